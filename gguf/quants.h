/*
 * Reference decoders and encoders of every tensor type: scalar, obvious, slow. What they give is the
 * definition of a type here; fast kernels are tested against them, and they against the `gguf` Python
 * package (scripts/make-golden-quants).
 */
#ifndef GGRUN_GGUF_QUANTS_H
#define GGRUN_GGUF_QUANTS_H

#include <stdbool.h>
#include <stdint.h>

#include "gguf/dtype.h"

/* src: n elements of type t (whole blocks, any alignment); dst: [n] f32. Integers are converted. */
typedef void quant_decode_fn(const void *src, float *dst, int64_t n);
/* src: [n] f32 (whole blocks); dst: dtype_row_bytes(t, n) bytes. */
typedef void quant_encode_fn(const float *src, void *dst, int64_t n);

/* Never NULL for a known type. */
quant_decode_fn *quant_decoder(enum dtype t);
/*
 * NULL where there is no encoder yet. There is one for F32 F16 BF16 F64, I8..I64 (rounded, saturated),
 * Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q8_1, Q4_K Q6_K, MXFP4; tests and tools use them, round to nearest.
 */
quant_encode_fn *quant_encoder(enum dtype t);

/* IEEE 754 half and bfloat16, exact to f32; from f32 round to nearest even, NaN stays NaN. */
float f16_to_f32(uint16_t h);
uint16_t f32_to_f16(float f);
float bf16_to_f32(uint16_t h);
uint16_t f32_to_bf16(float f);

#endif
