/*
 * From the options of "Generation" to a sampler that knows the prompt.
 */
#ifndef GGRUN_CLI_SAMPLING_H
#define GGRUN_CLI_SAMPLING_H

#include "cli/setup.h"
#include "runtime/sampler.h"

/* That of -s, or a new one each time. */
uint64_t sampling_seed(const struct options *o);

/*
 * A sampler for the model and session of s, behind the tokens of the prompt. --verbose shows its
 * seed and its chain. ST_USAGE for a --logit-bias whose token is not in the vocabulary.
 */
enum status sampling_open(struct sampler **out, const struct setup *s, const struct tokens *prompt,
                          uint64_t seed, struct err *e);

/*
 * -bs: let the graph do what it can of the chain; *in_graph: there is something that it can do. Says what stands in
 * the way otherwise.
 */
enum status sampling_to_graph(bool *in_graph, const struct sampler *sampler, const struct setup *s,
                              struct err *e);

#endif
