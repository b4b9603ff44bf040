#include "runtime/pretok.h"

#include <assert.h>
#include <string.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "gguf/base/mem.h"

/*
 * The patterns are facts of each model family's tokenizer.json, written so that PCRE2 never walks a
 * run of characters more than a fixed number of times: what cannot be given back is possessive (++,
 * *+).
 *
 * `\s` is spelled out, since PCRE2's \s also takes U+180E, which has not been white space since
 * Unicode 6.3. Letter cases of contractions are spelled out too: without case, 's' is also U+017F.
 */
#define WS          "\\t-\\r\\x{85}\\p{Z}" /* inside a class */
#define S           "[" WS "]"
#define NOS         "[^" WS "]"
#define LETTER_OR_N "\\p{L}\\p{N}"

#define CONTRACTION     "'(?:[stmd]|re|ve|ll)"
#define CONTRACTION_ANY "'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"
#define SPACES          S "+(?!" NOS ")|" S "+" /* a last space stays with the word that follows */
#define LINES           S "*[\\r\\n]+"

/* GPT-2, tokenizer of 2019. */
#define GPT2 CONTRACTION "| ?\\p{L}++| ?\\p{N}++| ?[^" WS LETTER_OR_N "]++|" SPACES

/* GPT-4 and its descendants; they differ in how many digits stand together. */
#define GPT4(digits)                                                                               \
    CONTRACTION_ANY "|[^\\r\\n" LETTER_OR_N "]?\\p{L}++|" digits "| ?[^" WS LETTER_OR_N            \
                    "]++[\\r\\n]*+|" LINES "|" SPACES

/* GPT-4o: words break where a lower-case letter is followed by an upper-case one. */
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CAMEL(suffix)                                                                              \
    "[^\\r\\n" LETTER_OR_N "]?" UPPER "*" LOWER "++" suffix "|[^\\r\\n" LETTER_OR_N "]?" UPPER     \
    "++" LOWER "*+" suffix
#define GPT4O(suffix, digits)                                                                      \
    CAMEL(suffix) "|" digits "| ?[^" WS LETTER_OR_N "]++[\\r\\n/]*+|" LINES "|" SPACES

/* DeepSeek-LLM: cased letters of the Unicode version it was made with, as its tokenizer.json lists
 * them. */
#define DEEPSEEK_CASED                                                                             \
    "A-Za-z\\x{B5}\\x{C0}-\\x{D6}\\x{D8}-\\x{F6}\\x{F8}-\\x{1BA}\\x{1BC}-\\x{1BF}"                 \
    "\\x{1C4}-\\x{293}\\x{295}-\\x{2AF}\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37B}-\\x{37D}"         \
    "\\x{37F}\\x{386}\\x{388}-\\x{38A}\\x{38C}\\x{38E}-\\x{3A1}\\x{3A3}-\\x{3F5}"                  \
    "\\x{3F7}-\\x{481}\\x{48A}-\\x{52F}\\x{531}-\\x{556}\\x{10A0}-\\x{10C5}"                       \
    "\\x{13A0}-\\x{13F5}\\x{13F8}-\\x{13FD}\\x{1C90}-\\x{1CBA}\\x{1CBD}-\\x{1CBF}"                 \
    "\\x{1D00}-\\x{1D2B}\\x{1D6B}-\\x{1D77}\\x{1D79}-\\x{1D9A}\\x{1E00}-\\x{1F15}"                 \
    "\\x{1F18}-\\x{1F1D}\\x{1F20}-\\x{1F45}\\x{1F48}-\\x{1F4D}\\x{1F50}-\\x{1F57}"                 \
    "\\x{1F59}\\x{1F5B}\\x{1F5D}\\x{1F5F}-\\x{1F7D}\\x{1F80}-\\x{1FB4}\\x{1FB6}-\\x{1FBC}"         \
    "\\x{1FBE}\\x{1FC2}-\\x{1FC4}\\x{1FC6}-\\x{1FCC}\\x{1FD0}-\\x{1FD3}"                           \
    "\\x{1FD6}-\\x{1FDB}\\x{1FE0}-\\x{1FEC}\\x{1FF2}-\\x{1FF4}\\x{1FF6}-\\x{1FFC}"                 \
    "\\x{2102}\\x{2107}\\x{210A}-\\x{2113}\\x{2115}\\x{2119}-\\x{211D}\\x{2124}\\x{2126}"          \
    "\\x{2128}\\x{212A}-\\x{212D}\\x{212F}-\\x{2134}\\x{2139}\\x{213C}-\\x{213F}"                  \
    "\\x{2145}-\\x{2149}\\x{214E}\\x{2183}\\x{2184}\\x{2C00}-\\x{2C7B}\\x{2C7E}-\\x{2CE4}"         \
    "\\x{2CEB}-\\x{2CEE}\\x{2CF2}\\x{2CF3}\\x{A640}-\\x{A66D}\\x{A680}-\\x{A69B}"                  \
    "\\x{A722}-\\x{A76F}\\x{A771}-\\x{A787}\\x{A78B}-\\x{A78E}\\x{AB70}-\\x{ABBF}"                 \
    "\\x{FB00}-\\x{FB06}\\x{FB13}-\\x{FB17}\\x{FF21}-\\x{FF3A}\\x{FF41}-\\x{FF5A}"                 \
    "\\x{10400}-\\x{1044F}\\x{104B0}-\\x{104D3}\\x{104D8}-\\x{104FB}\\x{10C80}-\\x{10CB2}"         \
    "\\x{10CC0}-\\x{10CF2}\\x{118A0}-\\x{118DF}\\x{1E900}-\\x{1E943}"

#define CJK_KANA "[\\x{4E00}-\\x{9FA5}\\x{3040}-\\x{309F}\\x{30A0}-\\x{30FF}]++"
#define CJK_WIDE "[\\x{4E00}-\\x{9FA5}\\x{800}-\\x{4E00}\\x{AC00}-\\x{D7FF}]++"

#define DEEPSEEK3                                                                                  \
    "[!-/:-@\\[-`{-~][A-Za-z]++|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]++"                      \
    "| ?[\\p{P}\\p{S}]++[\\r\\n]*+|" LINES "|" SPACES

#define DEEPSEEK3_SPARK                                                                            \
    "[!-/:-@\\[-`{-~][A-Za-z]++|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]++"                      \
    "| ?[\\p{P}\\p{S}]++|[\\r\\n]|" SPACES

/*
 * Digits in groups of three that end where the number ends: a piece of digits is cut, any other piece
 * stays as it is. Looking ahead happens at the piece's start only.
 */
#define THREES(digit)                                                                              \
    "\\A(?!" digit "++\\z)(?s:.++)|\\A" digit "{1,2}(?=(?:" digit "{3})*+\\z)|" digit "{3}"

/*
 * SuperBPE cuts a number in front of every three digits up to the end of the digits, where other
 * number characters may follow: `x1234` is x1|234, `123x` stays one piece. A run of digits is looked
 * through once, at its start.
 */
#define LEADING      "(?<!\\p{Nd})\\p{Nd}{1,2}(?=(?:\\p{Nd}{3})++(?!\\p{Nd}))"
#define UP_TO_THREE  "(?:[^\\p{Nd}]++|(?<!\\p{Nd})\\p{Nd}{1,2}+(?!\\p{Nd}))*+(?:" LEADING ")?+"
#define SUPER_THREES LEADING "|\\p{Nd}{3}(?=\\p{Nd})|\\p{Nd}{3}" UP_TO_THREE "|(?!\\z)" UP_TO_THREE

/* A number that a word character (as Oniguruma sees it) does not continue. */
#define NUMBER_ALONE "(?<!\\p{Nd})\\p{Nd}++(?![\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}])"

/* Script Han. PCRE2's \p{Han} is another set from 10.40 on (script extensions). */
#define HAN                                                                                        \
    "\\x{2E80}-\\x{2E99}\\x{2E9B}-\\x{2EF3}\\x{2F00}-\\x{2FD5}\\x{3005}\\x{3007}"                  \
    "\\x{3021}-\\x{3029}\\x{3038}-\\x{303B}\\x{3400}-\\x{4DBF}\\x{4E00}-\\x{9FFF}"                 \
    "\\x{F900}-\\x{FA6D}\\x{FA70}-\\x{FAD9}\\x{16FE2}\\x{16FE3}\\x{16FF0}\\x{16FF1}"               \
    "\\x{20000}-\\x{2A6DF}\\x{2A700}-\\x{2B739}\\x{2B740}-\\x{2B81D}\\x{2B820}-\\x{2CEA1}"         \
    "\\x{2CEB0}-\\x{2EBE0}\\x{2EBF0}-\\x{2EE5D}\\x{2F800}-\\x{2FA1D}\\x{30000}-\\x{3134A}"         \
    "\\x{31350}-\\x{323AF}"

/* Kimi-K2: GPT-4o's words with Chinese characters apart. Classes are written as what is not in them,
 * since PCRE2 cannot take one class away from another. */
#define KIMI_UPPER "[^" HAN "\\p{Ll}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}]"
#define KIMI_LOWER "[^" HAN "\\p{Lu}\\p{Lt}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}]"
#define KIMI_WORD                                                                                  \
    "[^\\r\\n" LETTER_OR_N "]?(?:" KIMI_UPPER "*" KIMI_LOWER "++|" KIMI_UPPER                      \
    "++)(?:" CONTRACTION_ANY ")?+"
#define KIMI                                                                                       \
    "[" HAN "]++|" KIMI_WORD "|\\p{N}{1,3}| ?[^" WS LETTER_OR_N "]++[\\r\\n]*+|" LINES "|" SPACES

#define AFMOE_ASIAN                                                                                \
    "[\\x{4E00}-\\x{9FFF}\\x{3400}-\\x{4DBF}\\x{F900}-\\x{FAFF}\\x{3040}-\\x{309F}"                \
    "\\x{30A0}-\\x{30FF}\\x{FF65}-\\x{FF9F}\\x{2F00}-\\x{2FDF}\\x{E40}-\\x{E7F}"                   \
    "\\x{EC0}-\\x{EFF}\\x{1780}-\\x{17FF}\\x{1000}-\\x{109F}\\x{AA60}-\\x{AA7F}"                   \
    "\\x{A9E0}-\\x{A9FF}\\x{AC00}-\\x{D7AF}\\x{1100}-\\x{11FF}]++"

#define YOUTU                                                                                      \
    "[\\x{AC00}-\\x{D7A3}\\x{3131}-\\x{318E}]++|[\\x{FF01}\\x{2026}\\x{201C}\\x{201D}\\x{2018}"    \
    "\\x{2019}\\x{2014}\\x{FF1A}\\x{FF1B}\\x{FF0C}\\x{3001}-\\x{303F}\\x{FE30}-\\x{FE4F}]++"       \
    "|[\\x{3105}-\\x{312F}]++|" CJK_KANA

/* Jais-2 cuts runs of spaces (those that no line break ends) into powers of two. */
#define INLINE_WS "[\\t\\x{B}\\f\\x{85}\\p{Z}]"
#define JAIS2_SPACES                                                                               \
    "\\A(?!" INLINE_WS "++\\z)(?s:.++)|" INLINE_WS "{512}|" INLINE_WS "{256}|" INLINE_WS           \
    "{128}|" INLINE_WS "{64}|" INLINE_WS "{32}|" INLINE_WS "{16}|" INLINE_WS "{8}|" INLINE_WS      \
    "{4}|" INLINE_WS "{1,2}"

/* EXAONE-MoE: words with single spaces between them stay together. */
#define EXAONE_MOE                                                                                 \
    CONTRACTION_ANY "|[^\\r\\n" LETTER_OR_N                                                        \
                    "]?\\p{L}[\\p{L}\\p{M}]*+(?: \\p{L}[\\p{L}\\p{M}]*+)*+"                        \
                    "|\\p{N}| ?[^" WS LETTER_OR_N "]++[\\r\\n/]?+|" S "*[\\r\\n]|" SPACES

#define BLOOM " ?[^(" WS "|.,!?\\x{2026}\\x{3002}\\x{FF0C}\\x{3001}\\x{964}\\x{6D4}\\x{60C})]++"

#define LIST(...) ((const char *const[]){__VA_ARGS__, NULL})

static const struct pretok_rule rules[] = {
    {LIST("default"), LIST("[\\p{P}$+<=>^~|]++", GPT2, "\\p{N}++", "[0-9]{3}")},
    {LIST("gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling", "exaone4",
          "gigachat", "a.x-4.0", "mellum", "modern-bert", "jina-es", "jina-de", "jina-v1-en",
          "jina-v2-es", "jina-v2-de", "jina-v2-code", "roberta-bpe"),
     LIST(GPT2)},
    {LIST("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
          "jina-v5-nano"),
     LIST(GPT4("\\p{N}{1,3}")), .ignore_merges = true, .add_bos = true},
    {LIST("dbrx", "smaug-bpe", "chatglm-bpe"), LIST(GPT4("\\p{N}{1,3}"))},
    {LIST("glm4", "glm5"), LIST(GPT4("\\p{N}{1,3}")), .ignore_merges = true},
    {LIST("qwen2", "deepseek-r1-qwen", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2",
          "kormo", "f2llmv2"),
     LIST(GPT4("\\p{N}"))},
    {LIST("qwen35"),
     LIST(CONTRACTION_ANY "|[^\\r\\n" LETTER_OR_N "]?[\\p{L}\\p{M}]++|\\p{N}"
                          "| ?[^" WS "\\p{L}\\p{M}\\p{N}]++[\\r\\n]*+|" LINES "|" SPACES)},
    {LIST("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b",
          "mellum2"),
     LIST("\\p{N}", GPT2)},
    {LIST("falcon"), LIST("[\\p{P}$+<=>^~|`]++", GPT2, "[0-9]{3}")},
    {LIST("deepseek-llm"),
     LIST("[\\r\\n]", S "?[" DEEPSEEK_CASED "]++",
          S
          "?[!-/:-~\\x{FF01}-\\x{FF0F}\\x{FF1A}-\\x{FF5E}\\x{2018}-\\x{201F}\\x{3000}-\\x{3002}]++",
          "(?<!" S ")" S "++\\z", CJK_WIDE, "\\p{N}++")},
    {LIST("deepseek-coder"), LIST("[\\r\\n]", S "?\\p{L}++", S "?\\p{P}++", CJK_WIDE, "\\p{N}")},
    {LIST("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"),
     LIST("\\p{N}{1,3}", CJK_KANA, DEEPSEEK3)},
    {LIST("gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"),
     LIST(GPT4O("(?:" CONTRACTION_ANY ")?+", "\\p{N}{1,3}"))},
    {LIST("tekken"), LIST(GPT4O("", "\\p{N}")), .ignore_merges = true, .add_bos = true},
    {LIST("bloom", "poro-chat", "gpt3-finnish"), LIST(BLOOM)},
    {LIST("viking"), LIST(BLOOM, "\\p{N}")},
    {LIST("bailingmoe", "bailingmoe2", "llada-moe"),
     LIST(CONTRACTION_ANY "|[^\\r\\n" LETTER_OR_N "]?\\p{L}++|\\p{N}"
                          "| ?[^" WS LETTER_OR_N "]++[\\r\\n]*+|" S "*[\\r\\n]|" SPACES)},
    {LIST("seed-coder"),
     LIST(CONTRACTION_ANY "|[^\\r\\n" LETTER_OR_N "]?\\p{L}++|\\p{N}"
                          "| ?[^" WS LETTER_OR_N "\\r\\n]++|" LINES "|" SPACES)},
    {LIST("minicpm5"), LIST("\\p{N}{1,3}", GPT4("\\p{N}++")), .ignore_merges = true},
    {LIST("laguna"), LIST("[^\\n]++|\\n++", GPT4("\\p{N}"))},
    {LIST("granite-embed-multi-97m"), LIST(GPT4O("(?:" CONTRACTION_ANY ")?+", "\\p{N}{1,3}")),
     .ignore_merges = true},
    {LIST("tiny_aya", "cohere2moe"),
     LIST(NUMBER_ALONE, THREES("\\p{Nd}"), GPT4O("(?:" CONTRACTION_ANY ")?+", "\\p{N}{1,3}"))},
    {LIST("youtu"), LIST(YOUTU, GPT4O("(?:" CONTRACTION_ANY ")?+", "\\p{N}")),
     .ignore_merges = true},
    {LIST("kimi-k2"), LIST(KIMI)},
    {LIST("afmoe"), LIST("\\p{N}++", THREES("\\p{N}"), AFMOE_ASIAN, DEEPSEEK3)},
    {LIST("superbpe"), LIST("\\p{N}++", SUPER_THREES)},
    {LIST("spark2_5"), LIST("\\p{N}{1,3}", CJK_KANA, DEEPSEEK3_SPARK, "\\p{N}")},
    {LIST("jais-2"), LIST(GPT4("\\p{N}{1,3}"), JAIS2_SPACES)},
    {LIST("ufakzeka"), LIST("[^\\r\\n" LETTER_OR_N "]?\\p{L}++|\\p{N}| ?[^" WS LETTER_OR_N
                            "]++[\\r\\n]*+|" LINES "|" SPACES)},
    {LIST("exaone-moe"), LIST(EXAONE_MOE)},
    {LIST("chameleon"),
     LIST("<sentinel:[0-9]++>", "IMGIMG[A-I]{1,4}Z", "[\\t\\n]|    |  ", "\\p{N}",
          "[\\p{P}!-/:-@\\[-`{-~]", GPT2),
     .add_bos = true},
    {LIST("gemma4", "granite-embed-multi-311m"), LIST(NULL), .add_bos = true, .always_bos = true,
     .raw = true, .whole_breaks = true},
    {LIST("sarvam-moe"), LIST(NULL), .raw = true},
};

enum { N_RULES = sizeof rules / sizeof rules[0], N_PATTERNS = 6 };

size_t pretok_rule_count(void)
{
    return N_RULES;
}

const struct pretok_rule *pretok_rule_at(size_t i)
{
    assert(i < N_RULES);
    return &rules[i];
}

const struct pretok_rule *pretok_rule_find(const char *name, size_t n, const char **as)
{
    for (size_t i = 0; i < N_RULES; i++)
        for (const char *const *s = rules[i].names; *s; s++)
            if (strlen(*s) == n && memcmp(*s, name, n) == 0) {
                *as = *s;
                return &rules[i];
            }
    return NULL;
}

/* PCRE2's memory comes from mem.h. `failed` tells "out of memory" from "no executable memory". */
struct hook {
    bool failed;
};

static void *hook_alloc(size_t n, void *ctx)
{
    struct hook *h = ctx;
    void *p = mem_alloc(n);

    h->failed |= !p;
    return p;
}

static void hook_free(void *p, void *ctx)
{
    (void)ctx;
    mem_free(p);
}

struct pretok {
    const struct pretok_rule *rule;
    struct hook hook; /* used while compiling only */
    pcre2_general_context *general;
    pcre2_code *code[N_PATTERNS + 1]; /* NULL at the end */
};

void pretok_free(struct pretok *p)
{
    if (!p)
        return;
    for (size_t i = 0; i < N_PATTERNS; i++)
        pcre2_code_free(p->code[i]);
    pcre2_general_context_free(p->general);
    mem_free(p);
}

static enum status compile(struct pretok *p, pcre2_compile_context *cc, size_t i, struct err *e)
{
    const char *pattern = p->rule->patterns[i];
    PCRE2_UCHAR why[128] = "";
    PCRE2_SIZE at;
    int rc;

    p->code[i] = pcre2_compile((PCRE2_SPTR)pattern, PCRE2_ZERO_TERMINATED,
                               PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &rc, &at, cc);
    if (!p->code[i]) {
        if (p->hook.failed)
            return err_nomem(e, "pre-tokenizer", strlen(pattern));
        pcre2_get_error_message(rc, why, sizeof why);
        return err_set(
            e, ST_UNSUPPORTED,
            "pattern %zu of pre-tokenizer '%s' is not understood by this PCRE2: %s at %zu", i + 1,
            p->rule->names[0], (char *)why, (size_t)at);
    }
    /* Without JIT (not built in, or the system gives no executable memory) patterns are
     * interpreted. */
    pcre2_jit_compile(p->code[i], PCRE2_JIT_COMPLETE);
    if (p->hook.failed)
        return err_nomem(e, "pre-tokenizer", strlen(pattern));
    return ST_OK;
}

enum status pretok_new(struct pretok **out, const struct pretok_rule *r, struct err *e)
{
    struct pretok *p = mem_zalloc(sizeof *p);
    pcre2_compile_context *cc = NULL;
    enum status st = ST_OK;

    *out = NULL;
    if (!p)
        return err_nomem(e, "pre-tokenizer", sizeof *p);
    p->rule = r;
    p->general = pcre2_general_context_create(hook_alloc, hook_free, &p->hook);
    if (p->general)
        cc = pcre2_compile_context_create(p->general);
    if (!cc) {
        st = err_nomem(e, "pre-tokenizer", sizeof *p);
        goto fail;
    }
    for (size_t i = 0; r->patterns[i]; i++) {
        assert(i < N_PATTERNS);
        st = compile(p, cc, i, e);
        if (st)
            goto fail;
    }
    pcre2_compile_context_free(cc);
    *out = p;
    return ST_OK;
fail:
    pcre2_compile_context_free(cc);
    pretok_free(p);
    return st;
}

struct pretok_run {
    const struct pretok *p;
    struct pretok_limits limits;
    struct hook hook;
    uint32_t options;
    pcre2_general_context *general;
    pcre2_match_context *match;
    pcre2_match_data *data;
    pcre2_jit_stack *stack;
};

/*
 * Linear patterns need a small number of steps per byte; the worst here is about four. Neither a
 * possessive run nor one that backtracks by single characters takes backtracking memory per
 * character, so the memory limits only have to hold one match's bookkeeping.
 */
static const struct pretok_limits usual_limits = {
    .match_base = 100000, .match_per_byte = 32, .heap_kib = 64 << 10, .jit_stack_kib = 1 << 10};

enum { JIT_STACK_START = 32 << 10 };

void pretok_run_free(struct pretok_run *r)
{
    if (!r)
        return;
    pcre2_jit_stack_free(r->stack);
    pcre2_match_data_free(r->data);
    pcre2_match_context_free(r->match);
    pcre2_general_context_free(r->general);
    mem_free(r);
}

enum status pretok_run_new(struct pretok_run **out, const struct pretok *p,
                           const struct pretok_limits *limits, struct err *e)
{
    struct pretok_run *r = mem_zalloc(sizeof *r);

    *out = NULL;
    if (!r)
        return err_nomem(e, "pre-tokenizer", sizeof *r);
    r->p = p;
    r->limits = limits ? *limits : usual_limits;
    r->options = PCRE2_NO_UTF_CHECK | (r->limits.jit_stack_kib ? 0 : PCRE2_NO_JIT);
    r->general = pcre2_general_context_create(hook_alloc, hook_free, &r->hook);
    if (!r->general)
        goto nomem;
    r->match = pcre2_match_context_create(r->general);
    r->data = pcre2_match_data_create(1, r->general);
    if (!r->match || !r->data)
        goto nomem;
    pcre2_set_heap_limit(r->match, r->limits.heap_kib);
    if (r->limits.jit_stack_kib) {
        size_t max = (size_t)r->limits.jit_stack_kib << 10;

        r->stack =
            pcre2_jit_stack_create(max < JIT_STACK_START ? max : JIT_STACK_START, max, r->general);
        if (r->hook.failed)
            goto nomem;
        if (r->stack)
            pcre2_jit_stack_assign(r->match, NULL, r->stack);
        else
            r->options |= PCRE2_NO_JIT; /* no JIT in this PCRE2 */
    }
    *out = r;
    return ST_OK;
nomem:
    pretok_run_free(r);
    return err_nomem(e, "pre-tokenizer", sizeof *r);
}

static enum status match_error(const struct pretok_run *r, int rc, size_t at, struct err *e)
{
    PCRE2_UCHAR why[128] = "";

    if (rc == PCRE2_ERROR_NOMEMORY)
        return err_nomem(e, "splitting a text into words", (size_t)r->limits.heap_kib << 10);
    pcre2_get_error_message(rc, why, sizeof why);
    return err_set(
        e, ST_UNSUPPORTED,
        "text cannot be split into words at byte %zu: PCRE2 says '%s' for the patterns of "
        "pre-tokenizer '%s'; try to break the text up with newlines",
        at, (char *)why, r->p->rule->names[0]);
}

/* Next match in s[from..n): ST_OK with *end = 0 if there is none. */
static enum status next_match(struct pretok_run *r, const pcre2_code *code, const char *s, size_t n,
                              size_t from, size_t at, size_t *start, size_t *end, struct err *e)
{
    PCRE2_SPTR p = (PCRE2_SPTR)s;
    int rc = pcre2_match(code, p, n, from, r->options, r->data, r->match);
    const PCRE2_SIZE *ov = pcre2_get_ovector_pointer(r->data);

    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) /* the interpreter has the heap */
        rc = pcre2_match(code, p, n, from, r->options | PCRE2_NO_JIT, r->data, r->match);
    *start = *end = 0;
    if (rc == PCRE2_ERROR_NOMATCH)
        return ST_OK;
    if (rc < 0)
        return match_error(r, rc, at + from, e);
    *start = ov[0];
    *end = ov[1];
    assert(*start >= from && *end > *start && *end <= n);
    return ST_OK;
}

struct split {
    struct pretok_run *run;
    const char *text;
    size_t at;
    pretok_word *word;
    void *ctx;
};

/* Hand a piece to pattern `level` and its parts to the next one. As deep as a rule has patterns. */
static enum status split_level(const struct split *sp, size_t level, const char *s, size_t n,
                               struct err *e)
{
    const pcre2_code *code = sp->run->p->code[level];
    size_t at = sp->at + (size_t)(s - sp->text), pos = 0, start, end;
    enum status st;

    if (!code)
        return sp->word(sp->ctx, s, n, e);
    while (pos < n) {
        st = next_match(sp->run, code, s, n, pos, at, &start, &end, e);
        if (st)
            return st;
        if (!end)
            return split_level(sp, level + 1, s + pos, n - pos, e);
        if (start > pos) {
            st = split_level(sp, level + 1, s + pos, start - pos, e);
            if (st)
                return st;
        }
        st = split_level(sp, level + 1, s + start, end - start, e);
        if (st)
            return st;
        pos = end;
    }
    return ST_OK;
}

enum status pretok_split(struct pretok_run *r, const char *text, size_t n, size_t at,
                         pretok_word *word, void *ctx, struct err *e)
{
    struct split sp = {.run = r, .text = text, .at = at, .word = word, .ctx = ctx};
    uint64_t limit = r->limits.match_base + (uint64_t)r->limits.match_per_byte * n;

    pcre2_set_match_limit(r->match, limit < UINT32_MAX ? (uint32_t)limit : UINT32_MAX);
    return split_level(&sp, 0, text, n, e);
}
