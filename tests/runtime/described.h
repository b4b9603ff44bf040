/*
 * Models of any size without a file: llama's weights as descriptions without memory, on the CPU.
 */
#ifndef GGRUN_TESTS_DESCRIBED_H
#define GGRUN_TESTS_DESCRIBED_H

#include "backends/backend.h"
#include "gguf/base/status.h"
#include "runtime/model.h"

struct described {
    struct model m; /* points into the rest: the struct must stay where it is */
    struct buffer buffer;
    struct tensor *tensors;
};

/* hp: sizes; what norms and RoPE need is filled in. Matrices are Q8_0. devs must outlive it. */
enum status described_init(struct described *d, const struct hparams *hp, const struct devices *devs,
                           struct err *e);
void described_release(struct described *d); /* also after a failure */

#endif
