#include "cli/help.h"

#include <cjson/cJSON.h>
#include <string.h>

#include "cli/option_table.h"

static void row_heading(const struct option_row *r, struct text *t)
{
    const char *p = r->names;

    for (size_t k, i = 0; (k = option_next_name(&p)) > 0; p += k, i++) {
        if (i)
            text_str(t, ", ");
        text_bytes(t, p, k);
    }
    if (r->kind == KIND_LEVEL)
        text_addf(t, "[=%s]", r->arg);
    else if (r->arg)
        text_addf(t, " %s", r->arg);
}

/* Words of s from column `indent` on, wrapped before column 100. */
static void wrap(struct text *t, const char *s, size_t indent)
{
    size_t column = indent;

    while (*s) {
        size_t k = strcspn(s, " ");
        if (column > indent && column + 1 + k > 99) {
            text_addf(t, "\n%*s", (int)indent, "");
            column = indent;
        } else if (column > indent) {
            text_byte(t, ' ');
            column++;
        }
        text_bytes(t, s, k);
        column += k;
        s += k + (s[k] == ' ');
    }
    text_byte(t, '\n');
}

static void help_rows(struct text *t, enum command c, enum option_group g)
{
    bool any = false;

    for (int i = 0; i < n_option_rows; i++) {
        struct text head = {0};
        if (option_rows[i].group != g || !(option_rows[i].cmds & 1u << c))
            continue;
        if (!any)
            text_addf(t, "\n%s:\n", option_group_names[g]);
        any = true;
        row_heading(&option_rows[i], &head);
        text_addf(t, "  %-30s", head.p ? head.p : "");
        if (head.n > 29)
            text_addf(t, "\n%32s", "");
        wrap(t, option_rows[i].help, 32);
        text_release(&head);
    }
}

static const char *const examples[CMD_COUNT] = {
    [CMD_RUN] = "  ggrun \"Tell me a story about a fox and a lantern\"\n"
                "  ggrun -m model.gguf -p \"The capital of France is\" -n 16 --temp 0\n"
                "  ggrun -m model.gguf --chat \"Why is the sky blue?\"\n"
                "  cat notes.txt | ggrun -m model.gguf -n 100 -\n",
    [CMD_INFO] = "  ggrun info model.gguf\n"
                 "  ggrun info -m model.gguf --json | jq .architecture\n",
    [CMD_TOKENIZE] = "  ggrun tokenize -m model.gguf \"Hello world\"\n"
                     "  ggrun tokenize -m model.gguf -f a.txt -f b.txt --json --no-bos\n"
                     "  ggrun tokenize -m model.gguf --decode --ids 1,2,3\n",
    [CMD_LOGITS] = "  ggrun logits -m model.gguf --ids 1,2,3 -ctk f32 -ctv f32 -o logits.f32\n"
                   "  ggrun logits -m model.gguf -p \"Hello\" --json --top 5\n",
    [CMD_PLAN] = "  ggrun plan model.gguf --device-memory sim0=24GiB,sim1=8GiB -c 16384\n"
                 "  ggrun plan model.gguf --sim 2 -ot 'ffn_.*_exps=CPU' --nodes\n"
                 "  ggrun plan model.gguf --sim 2 --dot | dot -Tsvg > plan.svg\n",
    [CMD_BENCH] = "  ggrun bench -m model.gguf -p 512 -n 128 -r 3\n"
                  "  ggrun bench -m a.gguf,b.gguf -t 1,2,4 -o jsonl\n",
};

static const char run_notes[] =
    "\nThe text comes from one place: PROMPT, -p, -f, or - (stdin). Without any, stdin is read "
    "when it is\n"
    "not a terminal. With -m the text is continued; the embedded model answers a PROMPT, and "
    "--chat makes\n"
    "any model do so. stdout holds the answer alone, with a newline at its end.\n";

void help_command(struct text *t, enum command c)
{
    text_addf(t, "Usage: ggrun %s\n\n", commands[c].usage);
    text_addf(t, "%c%s.\n", commands[c].summary[0] - 'a' + 'A', commands[c].summary + 1);
    if (c == CMD_RUN)
        text_str(t, run_notes);
    for (int g = 0; g < G_COUNT; g++)
        help_rows(t, c, (enum option_group)g);
    if (examples[c])
        text_addf(t, "\nExamples:\n%s", examples[c]);
}

void help_program(struct text *t)
{
    text_str(t, "Usage: ggrun [COMMAND] [OPTION]... [PROMPT]\n\n"
                "Run GGUF language models. Without -m, the embedded story model is used.\n\n"
                "Commands:\n");
    for (int c = 0; c < CMD_COUNT; c++)
        text_addf(t, "  %-10s %s%s\n", commands[c].name, commands[c].summary,
                  c == CMD_RUN ? " (when no command is named)" : "");
    text_str(t,
             "\nA first word that is the name of a command is the command; -- ends the options.\n"
             "'ggrun help COMMAND' lists a command's options.\n\nExamples:\n");
    for (int c = 0; c < CMD_COUNT; c++) {
        const char *x = examples[c];
        if (x)
            text_bytes(t, x, strcspn(x, "\n") + 1);
    }
}

void help_words(struct text *t, enum command c)
{
    for (int i = 0; i < n_option_rows; i++)
        if (option_rows[i].cmds & 1u << c)
            text_addf(t, "%s\n", option_rows[i].names);
}

static cJSON *row_json(const struct option_row *r)
{
    static const char *const kinds[] = {
        [KIND_FLAG] = "flag",    [KIND_INT] = "int",       [KIND_NUMBER] = "number",
        [KIND_ABOVE] = "number", [KIND_SEED] = "seed",     [KIND_CHOICE] = "choice",
        [KIND_LEVEL] = "level",  [KIND_STRING] = "string", [KIND_MODEL] = "file",
        [KIND_MODELS] = "files", [KIND_SOURCE] = "source", [KIND_OVERRIDE] = "override", [KIND_PLACE] = "place",
        [KIND_INTS] = "ints",    [KIND_BIAS] = "bias",     [KIND_ORDER] = "order",
        [KIND_BREAKER] = "breaker",
    };
    cJSON *o = cJSON_CreateObject();
    cJSON *names = cJSON_AddArrayToObject(o, "names");
    cJSON *cmds = cJSON_AddArrayToObject(o, "commands");
    const char *p = r->names;

    for (size_t k; (k = option_next_name(&p)) > 0; p += k) {
        char name[32];
        cJSON_AddItemToArray(names, cJSON_CreateString(text_quote(name, sizeof name, p, k)));
    }
    for (int c = 0; c < CMD_COUNT; c++)
        if (r->cmds & 1u << c)
            cJSON_AddItemToArray(cmds, cJSON_CreateString(commands[c].name));
    cJSON_AddStringToObject(o, "kind", kinds[r->kind]);
    if (r->arg)
        cJSON_AddStringToObject(o, "argument", r->arg);
    if (r->kind == KIND_INT || r->kind == KIND_INTS || r->kind == KIND_LEVEL ||
        r->kind == KIND_NUMBER || r->kind == KIND_ABOVE) {
        cJSON_AddNumberToObject(o, "min", r->min);
        cJSON_AddNumberToObject(o, "max", r->max);
    }
    cJSON_AddStringToObject(o, "group", option_group_names[r->group]);
    cJSON_AddStringToObject(o, "help", r->help);
    return o;
}

cJSON *help_json(void)
{
    cJSON *list = cJSON_CreateArray();

    for (int i = 0; i < n_option_rows; i++)
        cJSON_AddItemToArray(list, row_json(&option_rows[i]));
    return list;
}
