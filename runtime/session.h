/*
 * Session: a model with a context. Tokens go in, logits come out. The context holds one sequence of tokens or
 * several, numbered from 0, each of which is continued on its own.
 *
 * Evaluation cuts tokens into micro-batches; each either replays a graph of the last few or builds, plans and binds
 * a new one (runtime/reuse.h says when). Everything is allocated by session_new: a steady decode step
 * allocates nothing.
 */
#ifndef GGRUN_RUNTIME_SESSION_H
#define GGRUN_RUNTIME_SESSION_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "gguf/base/status.h"
#include "gguf/base/text.h"
#include "runtime/exec.h"
#include "runtime/graph_sampling.h"
#include "runtime/model.h"
#include "runtime/sequences.h"

struct session;
struct plan; /* runtime/plan.h */

#define SESSION_CTX_ALL UINT32_MAX

struct session_options {
    const struct devices *devs; /* must outlive the session */
    uint32_t n_seqs;      /* sequences, at most 64; 0 = 1 */
    bool kv_unified;      /* sequences share all positions; else each has its part, rounded up to 256, and gets the
                             bits of a session of its own */
    bool embd;            /* tokens are given as embeddings, to session_eval_batch alone */
    uint32_t n_ctx;       /* positions, of all sequences; 0 = min(the model's, 4096), SESSION_CTX_ALL = the model's */
    uint32_t n_batch;     /* tokens evaluated between two cancel/progress points; 0 = 2048; cut to n_ctx */
    uint32_t n_ubatch;    /* tokens per graph; 0 = 512; cut to n_batch */
    int n_threads;        /* for one token at a time; 0 = all of the pool */
    int n_threads_batch;  /* for more; 0 = as n_threads */
    enum dtype type_k, type_v; /* KV cache: F32, F16, BF16, or Q8_0, Q4_0 where heads are whole blocks */
    bool swa_full;        /* layers with a sliding window keep all positions, not their window alone */
    bool no_flash_attn;   /* attention as products and a softmax; values in the cache are then f32, f16 or bf16 */
    bool all_outputs;     /* logits of every token can be asked for (else only of the last of each sequence) */
    bool no_reuse;        /* build a graph for each micro-batch, for tests and measurements */
    bool check_reuse;     /* compute each replayed step a second time with a fresh graph and compare bits */
    struct graph_sampling sampling; /* as of session_set_sampling, from the first graph on */
    struct exec_options exec;  /* n_slots: micro-batches that may be in work at one time */
    const atomic_bool *cancel; /* may be NULL; true = stop soon with ST_CANCELLED */
    /* After each micro-batch, which may still be in work with exec.n_slots > 1; may be NULL. */
    void (*progress)(void *ctx, uint32_t n_done, uint32_t n_total);
    void *progress_ctx;
    exec_watch *watch;         /* may be NULL; see exec.h (--dump-node). A watch that stops a replay ends
                                  session_eval with ST_CANCELLED */
    void *watch_ctx;
};

/* Checks the options (ST_USAGE names flag and value), allocates the KV cache and reserves the worst graphs. */
enum status session_new(struct session **out, struct model *m, const struct session_options *opt,
                        struct err *e);
void session_free(struct session *s); /* NULL is fine; before the model */

enum want { WANT_NONE, WANT_LAST, WANT_ALL };

/*
 * Called with the logits of one position during session_eval, in order; `logits` [n_vocab] f32 is valid
 * during the call. Return other than ST_OK to stop the evaluation with that status (set *e).
 */
typedef enum status logits_sink(void *ctx, uint32_t pos, const float *logits, struct err *e);

/*
 * Append ids[0..n) to sequence 0 at positions n_past.. and evaluate them. An id outside the vocabulary is ST_USAGE; more
 * than fit into the context is ST_USAGE with both numbers, before anything is evaluated. On any failure
 * n_past is what it was, or 0 if layers with a sliding window had to let go of positions that would be needed
 * again (as with swa_full they do not). Non-finite logits are ST_MODEL, naming the first node that was not finite.
 *   WANT_LAST   logits of the last token are kept until the next call: session_logits
 *   WANT_ALL    sink is called for each token (needs options.all_outputs)
 */
enum status session_eval(struct session *s, const int32_t *ids, uint32_t n, enum want want,
                         logits_sink *sink, void *sink_ctx, struct err *e);
/*
 * [n_vocab] of the last token of the last session_eval with WANT_LAST; owned by the session. With samplers in
 * the graph only if sampling.logits was set.
 */
const float *session_logits(const struct session *s);

/* Like logits_sink, with the token's sequence. */
typedef enum status seq_logits_sink(void *ctx, int32_t seq, uint32_t pos, const float *logits,
                                    struct err *e);
/*
 * Evaluate tokens of any of the sequences, each behind those before. The sink is called for each token whose
 * logits are wanted, those of one sequence in order; it may be NULL when there are none. Without
 * options.all_outputs there are at most n_seqs of them. Failures are those of
 * session_eval, and leave every sequence as it was or, where its windows are gone, empty. ST_USAGE while samplers
 * are in the graph.
 */
enum status session_eval_batch(struct session *s, const struct seq_tokens *t, seq_logits_sink *sink,
                               void *sink_ctx, struct err *e);
/*
 * Sequence `to` forgets what it holds and goes on from what `from` holds, without evaluating it again. On
 * failure it is empty.
 */
enum status session_copy(struct session *s, int32_t from, int32_t to, struct err *e);

/*
 * From now on let these samplers follow the logits in the graph (graph_sampling.h). The next step builds a graph,
 * for the reason "samplers", when anything but the bits of `allowed` and `logits` differs from what was set before.
 * Reserves the memory for it. On failure (ST_USAGE, ST_NOMEM) the samplers are what they were.
 */
enum status session_set_sampling(struct session *s, const struct graph_sampling *gs, struct err *e);
/*
 * What the samplers in the graph made of the last token of the last session_eval that wanted logits: ids, the most
 * likely first, and their logits, those divided by the temperature if one was set; -inf for an id that is not allowed.
 * Returns how many: 1 with argmax, else as many as top_k asked for; 0 without samplers in the graph. Owned by the session.
 */
int32_t session_sampled(const struct session *s, const int32_t **ids, const float **logits);

/* Positions that a sequence may have: its own part or, with kv_unified, as many as the others leave. */
uint32_t session_n_ctx(const struct session *s);
uint32_t session_n_ubatch(const struct session *s);
uint32_t session_n_past(const struct session *s); /* of sequence 0, as the two below */
/* Positions that are left for a sequence. */
uint32_t session_room(const struct session *s, int32_t seq);
/*
 * May everything from position n on be forgotten? A model with recurrent layers can only start anew, at 0; one
 * with sliding windows cannot go back to where its windows do not reach any more.
 */
bool session_can_truncate(const struct session *s, uint32_t n);
/* Forget everything from position n on; session_can_truncate. */
void session_truncate(struct session *s, uint32_t n);
/* The same of any sequence. */
uint32_t session_n_past_of(const struct session *s, int32_t seq);
bool session_can_truncate_of(const struct session *s, int32_t seq, uint32_t n);
void session_truncate_of(struct session *s, int32_t seq, uint32_t n);

/*
 * Plan and bind the graph of a micro-batch of this shape, of one sequence, without running it; of a dry session too. n_kv is
 * a multiple of 256 and at most n_ctx rounded up to it.
 */
enum status session_plan(struct session *s, uint32_t n_tokens, uint32_t n_outputs, uint32_t n_kv,
                         struct err *e);
/* The plan of the last graph, NULL before the first; valid until the session is used again. */
const struct plan *session_last_plan(const struct session *s);

/* Bytes that the session has asked for, or a dry one would ask for, in a device's memory. */
struct session_memory {
    uint64_t n_kv;      /* KV cache and recurrent state */
    uint64_t n_compute; /* intermediate results and copies */
    uint64_t n_scratch; /* work memory of its kernels */
    uint64_t n_staging; /* of the CPU: what is copied between devices goes through it */
    uint64_t n_output;  /* of the CPU: rows of logits and of the mask */
};
struct session_memory session_memory(const struct session *s, const struct device *dev);

struct session_stats {
    uint64_t evals;         /* micro-batches evaluated */
    uint64_t graphs_built;
    uint64_t graphs_reused;
    uint64_t rebuilds[16];  /* by reason: session_rebuild_name */
    uint64_t check_failures; /* --check-reuse: steps whose bits differed */
    uint64_t graph_sampled;  /* tokens that samplers in the graph were at */
    uint64_t n_kv_bytes;     /* KV cache */
    uint64_t n_state_bytes;  /* recurrent state */
    uint64_t n_graph_bytes;  /* metadata: pools and graphs */
    int graph_nodes;         /* of the last graph */
    struct exec_stats exec;
};
void session_stats(const struct session *s, struct session_stats *out);
/* Name of rebuild reason i ("first", "shape", "kv_length", "outputs", ...); NULL beyond the last. */
const char *session_rebuild_name(int i);

#endif
