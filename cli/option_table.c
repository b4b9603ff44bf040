#include "cli/option_table.h"

#include <float.h>
#include <string.h>

#include "runtime/exec.h"

/* ---- commands ---- */

const struct command_info commands[CMD_COUNT] = {
    [CMD_RUN] = {"run", "[run] [OPTION]... [PROMPT | -]", "continue a text or answer a request"},
    [CMD_INFO] = {"info", "info [OPTION]... [FILE]", "show what is in a model file"},
    [CMD_TOKENIZE] = {"tokenize", "tokenize [OPTION]... [TEXT | -]",
                      "turn text into token ids, and back with --decode"},
    [CMD_LOGITS] = {"logits", "logits [OPTION]... [TEXT | -]",
                    "write what the model computes for each token"},
    [CMD_BENCH] = {"bench", "bench [OPTION]...", "measure tokens per second"},
    [CMD_PLAN] = {"plan", "plan [OPTION]... [FILE]",
                  "show which device would run what, and the memory that it takes"},
    [CMD_HELP] = {"help", "help [COMMAND]", "show help"},
};

bool command_find(const char *name, enum command *out)
{
    for (int c = 0; c < CMD_COUNT; c++) {
        if (strcmp(name, commands[c].name) == 0) {
            *out = (enum command)c;
            return true;
        }
    }
    return false;
}

/* ---- options ---- */

enum {
    RUN = 1 << CMD_RUN,
    INFO = 1 << CMD_INFO,
    TOKENIZE = 1 << CMD_TOKENIZE,
    LOGITS = 1 << CMD_LOGITS,
    BENCH = 1 << CMD_BENCH,
    PLAN = 1 << CMD_PLAN,
    HELP = 1 << CMD_HELP,
    COMPUTE = RUN | LOGITS | BENCH,
    DEVICES = COMPUTE | PLAN,
    ALL = DEVICES | INFO | TOKENIZE | HELP,
};

const char *const option_group_names[G_COUNT] = {
    "Model", "Prompt", "Generation", "Context", "Computing", "Placement", "Measuring", "Output", "Diagnostics",
};

#define AT(field) offsetof(struct options, field)
#define N_MAX     INT32_MAX
/* clang-format off */
const struct option_row option_rows[] = {
    {"-m --model", KIND_MODEL, 0, 0, 0, "FILE", ALL & ~(BENCH | HELP), G_MODEL,
     "GGUF file (any part of a split one); without it the embedded story model is used"},
    {"-m --model", KIND_MODELS, 0, 0, 0, "FILE,...", BENCH, G_MODEL,
     "GGUF files, one after the other; may repeat"},
    {"--no-mmap", KIND_FLAG, AT(no_mmap), 0, 0, NULL, ALL & ~HELP, G_MODEL,
     "read the file into memory instead of mapping it"},
    {"--mlock", KIND_FLAG, AT(mlock), 0, 0, NULL, COMPUTE, G_MODEL,
     "keep the weights of the CPU in memory: they are never swapped out or dropped"},
    {"--override-kv", KIND_OVERRIDE, 0, 0, 0, "KEY=TYPE:VALUE", ALL & ~HELP, G_MODEL,
     "give a metadata key another value, or add it; TYPE is int, float, bool or str; may repeat"},
    {"--check-tensors", KIND_FLAG, AT(check_tensors), 0, 0, NULL, COMPUTE, G_MODEL,
     "refuse weights that are NaN or infinite"},

    {"-p --prompt", KIND_SOURCE, 0, SOURCE_TEXT, 0, "TEXT", RUN | TOKENIZE | LOGITS, G_PROMPT,
     "the text, word for word"},
    {"-f --file", KIND_SOURCE, 0, SOURCE_FILE, 0, "FILE", RUN | TOKENIZE | LOGITS, G_PROMPT,
     "the text is what FILE holds, byte for byte; - is stdin; tokenize takes several"},
    {"--chat", KIND_FLAG, AT(chat), 0, 0, NULL, RUN | TOKENIZE, G_PROMPT,
     "the text is a request: put it into the model's chat template"},
    {"--system -sys --system-prompt", KIND_STRING, AT(system), 0, 0, "TEXT", RUN | TOKENIZE, G_PROMPT,
     "system message of the chat (implies --chat)"},
    {"--chat-template", KIND_STRING, AT(chat_template), 0, 0, "NAME", RUN | TOKENIZE, G_PROMPT,
     "use this template instead of the file's: a family, such as chatml or llama3, or a file"},
    {"--raw", KIND_FLAG, AT(raw), 0, 0, NULL, RUN, G_PROMPT,
     "no template: continue the text"},
    {"--ids", KIND_STRING, AT(ids), 0, 0, "1,2,3", TOKENIZE | LOGITS, G_PROMPT,
     "token ids instead of a text"},
    {"--embd", KIND_STRING, AT(embd), 0, 0, "FILE", LOGITS, G_PROMPT,
     "embeddings instead of a text: float32, little-endian, n_embd per token; - is stdin"},
    {"--decode", KIND_FLAG, AT(decode), 0, 0, NULL, TOKENIZE, G_PROMPT,
     "turn ids (--ids, or lists in a text) into their exact bytes"},
    {"--no-bos", KIND_FLAG, AT(no_bos), 0, 0, NULL, RUN | TOKENIZE | LOGITS, G_PROMPT,
     "add no begin-of-text token, whatever the file says"},
    {"--no-special", KIND_FLAG, AT(no_special), 0, 0, NULL, RUN | TOKENIZE | LOGITS, G_PROMPT,
     "control tokens written in the text are text"},

    {"-n --predict --n-predict", KIND_INT, AT(n_predict), -1, N_MAX, "N", RUN, G_SAMPLING,
     "tokens to generate; -1: until the text or the context ends [-1]"},
    {"--temp --temperature", KIND_NUMBER, AT(sampling.temp), 0, FLT_MAX, "T", RUN, G_SAMPLING,
     "temperature; 0: always the most likely token [0.8]"},
    {"--dynatemp-range", KIND_NUMBER, AT(sampling.dynatemp_range), 0, FLT_MAX, "T", RUN, G_SAMPLING,
     "the temperature follows the entropy, from T below --temp to T above; 0: it is --temp [0]"},
    {"--dynatemp-exp", KIND_NUMBER, AT(sampling.dynatemp_exp), 0, FLT_MAX, "X", RUN, G_SAMPLING,
     "exponent of the entropy, as a share of the largest possible [1]"},
    {"--top-k", KIND_INT, AT(sampling.top_k), -N_MAX, N_MAX, "N", RUN, G_SAMPLING,
     "keep the N most likely tokens; 0 or less: all [40]"},
    {"--top-nsigma --top-n-sigma", KIND_NUMBER, AT(sampling.top_n_sigma), -FLT_MAX, FLT_MAX, "N",
     RUN, G_SAMPLING,
     "keep logits at most N standard deviations below the largest; 0 or less: all [-1]"},
    {"--typical --typical-p", KIND_NUMBER, AT(sampling.typ_p), 0, 1, "P", RUN, G_SAMPLING,
     "keep the tokens of typical surprise up to a sum of P; 1: all [1]"},
    {"--top-p", KIND_NUMBER, AT(sampling.top_p), 0, 1, "P", RUN, G_SAMPLING,
     "keep the most likely tokens up to a sum of P; 1: all [0.95]"},
    {"--min-p", KIND_NUMBER, AT(sampling.min_p), 0, 1, "P", RUN, G_SAMPLING,
     "keep tokens at least P times as likely as the first; 0: all [0.05]"},
    {"--xtc-probability", KIND_NUMBER, AT(sampling.xtc_probability), 0, 1, "P", RUN, G_SAMPLING,
     "how often to remove the likeliest tokens; 0: never [0]"},
    {"--xtc-threshold", KIND_NUMBER, AT(sampling.xtc_threshold), 0, 1, "P", RUN, G_SAMPLING,
     "all but the last of those that have at least P are removed; above 0.5: none [0.1]"},
    {"--repeat-penalty", KIND_ABOVE, AT(sampling.repeat_penalty), 0, FLT_MAX, "X", RUN, G_SAMPLING,
     "make recent tokens less likely; 1: off [1]"},
    {"--repeat-last-n", KIND_INT, AT(sampling.repeat_last_n), -1, N_MAX, "N", RUN, G_SAMPLING,
     "tokens that count as recent; 0: off, -1: the whole context [64]"},
    {"--presence-penalty", KIND_NUMBER, AT(sampling.presence_penalty), -FLT_MAX, FLT_MAX, "X", RUN,
     G_SAMPLING, "subtract X from the logit of every recent token; 0: off [0]"},
    {"--frequency-penalty", KIND_NUMBER, AT(sampling.frequency_penalty), -FLT_MAX, FLT_MAX, "X",
     RUN, G_SAMPLING, "subtract X for each time that a token is among the recent ones; 0: off [0]"},
    {"--dry-multiplier", KIND_NUMBER, AT(sampling.dry_multiplier), 0, FLT_MAX, "X", RUN, G_SAMPLING,
     "penalty of a token that would continue a repetition; 0: off [0]"},
    {"--dry-base", KIND_NUMBER, AT(sampling.dry_base), 1, FLT_MAX, "X", RUN, G_SAMPLING,
     "factor of this penalty for each further repeated token [1.75]"},
    {"--dry-allowed-length", KIND_INT, AT(sampling.dry_allowed_length), 0, N_MAX, "N", RUN,
     G_SAMPLING, "repetitions of fewer tokens are free [2]"},
    {"--dry-penalty-last-n", KIND_INT, AT(sampling.dry_penalty_last_n), -1, N_MAX, "N", RUN,
     G_SAMPLING, "tokens to look for repetitions in; 0: none, -1: the whole context [64]"},
    {"--dry-sequence-breaker", KIND_BREAKER, 0, 0, 0, "TEXT", RUN, G_SAMPLING,
     "no repetition goes across this text; may repeat, none: no text does that [\\n : \" *]"},
    {"--adaptive-target", KIND_NUMBER, AT(sampling.adaptive_target), -1, 1, "P", RUN, G_SAMPLING,
     "draw tokens whose probability is near P; below 0: off [-1]"},
    {"--adaptive-decay", KIND_NUMBER, AT(sampling.adaptive_decay), 0, 0.99, "X", RUN, G_SAMPLING,
     "how much the past counts in it: 1 / (1 - X) tokens [0.9]"},
    {"--mirostat", KIND_INT, AT(sampling.mirostat), 0, 2, "N", RUN, G_SAMPLING,
     "keep the surprise of the text level, with version 1 or 2 of Mirostat, instead of all "
     "samplers but the temperature; 0: off [0]"},
    {"--mirostat-ent", KIND_NUMBER, AT(sampling.mirostat_ent), 0, FLT_MAX, "BITS", RUN, G_SAMPLING,
     "the surprise to keep to [5]"},
    {"--mirostat-lr", KIND_NUMBER, AT(sampling.mirostat_lr), 0, FLT_MAX, "X", RUN, G_SAMPLING,
     "how fast it is corrected [0.1]"},
    {"-l --logit-bias", KIND_BIAS, 0, 0, 0, "ID(+|-)X", RUN, G_SAMPLING,
     "add X to the logit of a token, as 42+1.5 or 42-1.5; 42-inf: never; may repeat"},
    {"--samplers", KIND_ORDER, 0, 0, 0, "A;B;...", RUN, G_SAMPLING,
     "the samplers to apply, by name and in their order [that of --sampler-seq]"},
    {"--sampler-seq --sampling-seq", KIND_ORDER, 0, 1, 0, "LETTERS", RUN, G_SAMPLING,
     "the same by letter: (e) penalties, (d) dry, (s) top_n_sigma, (k) top_k, (y) typ_p, "
     "(p) top_p, (m) min_p, (x) xtc, (t) temperature, (a) adaptive_p [edskypmxta]"},
    {"-s --seed", KIND_SEED, AT(sampling.seed), -1, 0, "N", RUN, G_SAMPLING,
     "same seed, same text; -1: a new one each time [-1]"},
    {"--ignore-eos", KIND_FLAG, AT(ignore_eos), 0, 0, NULL, RUN, G_SAMPLING,
     "never choose a token that ends the text"},
    {"-bs --backend-sampling", KIND_FLAG, AT(backend_sampling), 0, 0, NULL, RUN, G_SAMPLING,
     "choose the most likely token, or the top k, where the logits are computed; the text is the same"},

    {"-c --ctx --ctx-size", KIND_INT, AT(n_ctx), 0, N_MAX, "N", RUN | LOGITS | PLAN, G_CONTEXT,
     "tokens of context; 0: the model's [the model's, at most 4096]"},
    {"--truncate", KIND_CHOICE, AT(truncate), 0, 0, "no|head|middle", RUN, G_CONTEXT,
     "too long a prompt: refuse it, or drop its head or middle, with a note [no]"},
    {"--context-shift", KIND_FLAG, AT(context_shift), 0, 0, NULL, RUN, G_CONTEXT,
     "when the context is full, drop the older half and go on"},
    {"--keep", KIND_INT, AT(n_keep), -1, N_MAX, "N", RUN, G_CONTEXT,
     "with --context-shift: first tokens of the prompt that are never dropped; -1: all of them [0]"},
    {"-np --parallel", KIND_INT, AT(n_seqs), 1, 64, "N", RUN | BENCH | PLAN, G_CONTEXT,
     "sequences: run gives N answers at once, the first with the seed of -s, the next with one more, ...; "
     "bench generates N texts at once [1]"},
    {"-kvu --kv-unified", KIND_FLAG, AT(kv_unified), 0, 0, NULL, RUN | BENCH | PLAN, G_CONTEXT,
     "sequences share all of the context, instead of an equal part each"},
    {"-b --batch-size", KIND_INT, AT(n_batch), 1, N_MAX, "N", RUN | LOGITS | PLAN, G_CONTEXT,
     "tokens between two looks at Ctrl-C and progress [2048]"},
    {"-ub --ubatch-size", KIND_INT, AT(n_ubatch), 1, N_MAX, "N", RUN | LOGITS | PLAN, G_CONTEXT,
     "tokens computed together, at most -b [512]"},
    {"-ctk --cache-type-k", KIND_CHOICE, AT(type_k), 0, 0, "f16|f32|bf16|q8_0|q4_0", DEVICES, G_CONTEXT,
     "type of the keys in the KV cache [f16]"},
    {"-ctv --cache-type-v", KIND_CHOICE, AT(type_v), 0, 0, "f16|f32|bf16|q8_0|q4_0", DEVICES, G_CONTEXT,
     "type of the values in the KV cache [f16]"},
    {"--swa-full", KIND_FLAG, AT(swa_full), 0, 0, NULL, DEVICES, G_CONTEXT,
     "layers with a sliding window keep all positions, not their window alone"},

    {"-fa --flash-attn", KIND_CHOICE, AT(flash_attn), 0, 0, "auto|on|off", DEVICES, G_COMPUTE,
     "attention in one step, or (off) with all its scores in memory; auto: where the devices can [auto]"},
    {"-t --threads", KIND_INT, AT(n_threads), 1, 1024, "N", RUN | LOGITS | PLAN, G_COMPUTE,
     "CPU threads [the cores that this process may use]"},
    {"-tb --threads-batch", KIND_INT, AT(n_threads_batch), 1, 1024, "N", DEVICES, G_COMPUTE,
     "CPU threads for prompts [as -t]"},
    {"--isa", KIND_STRING, AT(isa), 0, 0, "NAME", DEVICES | INFO, G_COMPUTE,
     "highest CPU instruction set to use, such as scalar or avx2 [the best here]"},
    {"--blas", KIND_CHOICE, AT(blas), 0, 0, "off|on", DEVICES | INFO, G_COMPUTE,
     "OpenBLAS for large float products; its results may differ in the last bits [off]"},
    {"--no-reuse", KIND_FLAG, AT(no_reuse), 0, 0, NULL, COMPUTE, G_COMPUTE,
     "build a new graph for every step"},

    {"--sim", KIND_STRING, AT(sim), 0, 0, "N|SIZE,...", DEVICES | INFO, G_PLACE,
     "simulated accelerators SIM0, SIM1, ...: so many of 16 GiB, or of these sizes, such as 24GiB,8GiB [none]"},
    {"-dev --device", KIND_STRING, AT(device), 0, 0, "A,B,...|none", DEVICES, G_PLACE,
     "accelerators to use, in this order; none: the CPU alone [all]"},
    {"--list-devices", KIND_FLAG, AT(list_devices), 0, 0, NULL, DEVICES, G_PLACE,
     "list the devices that could be used, and their memory"},
    {"-ngl --gpu-layers --n-gpu-layers", KIND_STRING, AT(n_gpu_layers), 0, 0, "N|auto|all", DEVICES, G_PLACE,
     "the last N layers go to accelerators, the output counting as one; auto: as many as fit [auto]"},
    {"--fit", KIND_FLAG, AT(fit), 0, 0, NULL, DEVICES, G_PLACE,
     "the same as -ngl auto: layers, then experts, are chosen so that all fits into the accelerators"},
    {"-sm --split-mode", KIND_CHOICE, AT(split_mode), 0, 0, "layer|none|row", DEVICES, G_PLACE,
     "layers are spread over the accelerators; or are all on the one of -mg; or are there, but each matrix's rows are spread [layer]"},
    {"-ts --tensor-split", KIND_STRING, AT(tensor_split), 0, 0, "A,B,...", DEVICES, G_PLACE,
     "shares of the accelerators in the layers, or rows [their free memory]"},
    {"-mg --main-gpu", KIND_INT, AT(main_gpu), 0, N_MAX, "N", DEVICES, G_PLACE,
     "with -sm none or row: the accelerator that has the layers, counted from 0 [0]"},
    {"-ot --override-tensor", KIND_PLACE, 0, 0, 0, "REGEX=MEMORY,...", DEVICES, G_PLACE,
     "weights whose name matches go to this memory (CPU, SIM0, ...); the first that matches decides; may repeat"},
    {"-cmoe --cpu-moe", KIND_FLAG, AT(cpu_moe), 0, 0, NULL, DEVICES, G_PLACE,
     "weights of experts stay on the CPU"},
    {"-ncmoe --n-cpu-moe", KIND_INT, AT(n_cpu_moe), 0, N_MAX, "N", DEVICES, G_PLACE,
     "those of the first N layers [0]"},
    {"-nkvo --no-kv-offload", KIND_FLAG, AT(no_kv_offload), 0, 0, NULL, DEVICES, G_PLACE,
     "KV cache and recurrent state stay on the CPU"},
    {"--slots", KIND_INT, AT(n_slots), 1, EXEC_SLOTS_MAX, "N", DEVICES, G_PLACE,
     "micro-batches of a prompt that may be in work at one time, on one device after the other [1]"},

    {"--no-op-offload", KIND_FLAG, AT(no_op_offload), 0, 0, NULL, DEVICES, G_PLACE,
     "what weights on the CPU are for is computed there, however large the batch"},

    {"-p --n-prompt", KIND_INTS, AT(bench_prompt), 0, N_MAX, "N,...", BENCH, G_BENCH,
     "tokens of the prompt; 0: no such test [512]"},
    {"-n --n-gen", KIND_INTS, AT(bench_gen), 0, N_MAX, "N,...", BENCH, G_BENCH,
     "tokens to generate; 0: no such test [128]"},
    {"-d --n-depth", KIND_INTS, AT(bench_depth), 0, N_MAX, "N,...", BENCH, G_BENCH,
     "tokens in the context before each test [0]"},
    {"-t --threads", KIND_INTS, AT(bench_threads), 1, 1024, "N,...", BENCH, G_BENCH,
     "CPU threads [the cores that this process may use]"},
    {"-b --batch-size", KIND_INTS, AT(bench_batch), 1, N_MAX, "N,...", BENCH, G_BENCH,
     "tokens between two looks at Ctrl-C [2048]"},
    {"-ub --ubatch-size", KIND_INTS, AT(bench_ubatch), 1, N_MAX, "N,...", BENCH, G_BENCH,
     "tokens computed together, at most -b [512]"},
    {"-r --repetitions", KIND_INT, AT(repetitions), 1, 1000000, "N", BENCH, G_BENCH,
     "how often each test is repeated [5]"},
    {"-o --output", KIND_CHOICE, AT(format), 0, 0, "md|json|jsonl|csv", BENCH, G_BENCH,
     "format of the results on stdout [md]"},

    {"--device-memory", KIND_STRING, AT(device_memory), 0, 0, "NAME=SIZE,...", PLAN, G_PLACE,
     "plan for these accelerators, which need not be here, such as sim0=24GiB,sim1=8GiB [--sim]"},
    {"--tokens", KIND_INT, AT(plan_tokens), 1, N_MAX, "N", PLAN, G_OUTPUT,
     "show the graph of a micro-batch of N tokens [1]"},
    {"-d --depth", KIND_INT, AT(plan_depth), 0, N_MAX, "N", PLAN, G_OUTPUT,
     "tokens that are in the context before it [0]"},
    {"--nodes", KIND_FLAG, AT(nodes), 0, 0, NULL, PLAN, G_OUTPUT,
     "list every node with its op, shape, device and the cause of that"},
    {"--dot", KIND_FLAG, AT(dot), 0, 0, NULL, PLAN, G_OUTPUT,
     "draw splits and copies for Graphviz"},

    {"-o --output", KIND_STRING, AT(output), 0, 0, "FILE", LOGITS, G_OUTPUT,
     "write float32 logits, little-endian, n_vocab per token; - is stdout"},
    {"--json", KIND_FLAG, AT(json), 0, 0, NULL, INFO | TOKENIZE | LOGITS | PLAN | HELP, G_OUTPUT,
     "print JSON"},
    {"--top", KIND_INT, AT(top), 1, 1000, "N", LOGITS, G_OUTPUT,
     "how many of the most likely tokens to show [10]"},
    {"--tensors", KIND_FLAG, AT(tensors), 0, 0, NULL, INFO, G_OUTPUT,
     "list every tensor"},
    {"--keys", KIND_FLAG, AT(keys), 0, 0, NULL, INFO, G_OUTPUT,
     "list every metadata key"},
    {"--check", KIND_FLAG, AT(check), 0, 0, NULL, INFO, G_OUTPUT,
     "look for NaN and infinity in every tensor"},
    {"--words", KIND_FLAG, AT(words), 0, 0, NULL, HELP, G_OUTPUT,
     "print the option names alone, for shell completion"},

    {"--stats", KIND_FLAG, AT(stats), 0, 0, NULL, COMPUTE, G_DEBUG,
     "print counters, times and sizes as 'name value' lines at the end"},
    {"-v --verbose", KIND_FLAG, AT(verbose), 0, 0, NULL, ALL & ~HELP, G_DEBUG,
     "say what is being done"},
    {"-q --quiet", KIND_FLAG, AT(quiet), 0, 0, NULL, ALL & ~HELP, G_DEBUG,
     "print nothing on stderr but errors and what was asked for"},
    {"--sched-debug", KIND_LEVEL, AT(sched_debug), 1, 2, "1|2", DEVICES, G_DEBUG,
     "print the splits of each plan; 2: and every node, its device and the cause"},
    {"--alloc-debug", KIND_FLAG, AT(alloc_debug), 0, 0, NULL, DEVICES, G_DEBUG,
     "print what the allocator does"},
    {"--exec-debug", KIND_FLAG, AT(exec_debug), 0, 0, NULL, COMPUTE, G_DEBUG,
     "print device, kernel and microseconds of each node"},
    {"--dump-node", KIND_STRING, AT(dump_node), 0, 0, "NAME", RUN | LOGITS, G_DEBUG,
     "print the values of this node whenever it was computed"},
    {"--dump-file", KIND_STRING, AT(dump_file), 0, 0, "FILE", RUN | LOGITS, G_DEBUG,
     "write them to FILE instead of stderr"},
    {"--check-reuse", KIND_FLAG, AT(check_reuse), 0, 0, NULL, RUN | LOGITS, G_DEBUG,
     "compute each reused step a second time with a new graph and compare the bits"},

    {"-h --help", KIND_FLAG, AT(help), 0, 0, NULL, ALL, G_OUTPUT, "show this help"},
    {"--version", KIND_FLAG, AT(version), 0, 0, NULL, ALL, G_OUTPUT, "show version and build"},
};
/* clang-format on */
const int n_option_rows = sizeof option_rows / sizeof option_rows[0];

size_t option_next_name(const char **p)
{
    *p += strspn(*p, " ");
    return strcspn(*p, " ");
}

const char *option_skip_dashes(const char *s)
{
    while (*s == '-')
        s++;
    return s;
}

const struct option_row *option_find(const char *word, unsigned cmds)
{
    const char *name = option_skip_dashes(word);
    size_t n = strcspn(name, "=");
    bool dash_dash = name - word == 2;

    if (name - word > 2 || !n || (n == 1 && dash_dash))
        return NULL;
    for (int i = 0; i < n_option_rows; i++) {
        const char *p = option_rows[i].names;
        if (!(option_rows[i].cmds & cmds))
            continue;
        for (size_t k; (k = option_next_name(&p)) > 0; p += k) {
            const char *bare = option_skip_dashes(p);
            if ((size_t)(p + k - bare) == n && memcmp(bare, name, n) == 0)
                return &option_rows[i];
        }
    }
    return NULL;
}
