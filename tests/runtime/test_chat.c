/*
 * Templates as published with models, and damaged ones: what they should render to was written down
 * by hand. Templates of every family, rendered by Jinja: tests/data/chat/golden.json, made by
 * scripts/make-golden-chat.
 */
#include "tests/unit.h"

#include <string.h>

#include "gguf/base/mem.h"
#include "gguf/writer.h"
#include "runtime/chat.h"
#include "tests/util_json.h"

#define PLAIN                                                                                      \
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + "                   \
    "message['content'] + '<|im_end|>' + '\n' }}{% endfor %}{% if add_generation_prompt %}"        \
    "{{ '<|im_start|>assistant\n' }}{% endif %}"
#define WITH_SYSTEM                                                                                \
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"         \
    "{{ '<|im_start|>system\nYou are nice.\\nIt\\'s true<|im_end|>\n' }}{% endif %}"               \
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"       \
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"

static const struct chat_message talk[] = {
    {"user", "Hi", 2},
    {"assistant", "Hello\0!", 7},
    {"user", "Bye", 3},
};
static const char talk_chatml[] = "<|im_start|>user\nHi<|im_end|>\n"
                                  "<|im_start|>assistant\nHello\0!<|im_end|>\n"
                                  "<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n";

static void expect(const char *template, const char *system)
{
    struct chat c;
    struct err e = {0};
    struct text t = {0};
    size_t n_system = strlen(system);

    assert_int_equal(chat_recognise(&c, template, strlen(template), &e), ST_OK);
    assert_string_equal(chat_family_name(c.family), "chatml");
    assert_int_equal(chat_render(&c, talk, 3, true, &t, NULL, &e), ST_OK);
    assert_int_equal(t.n, n_system + sizeof talk_chatml - 1);
    assert_memory_equal(t.p, system, n_system);
    assert_memory_equal(t.p + n_system, talk_chatml, sizeof talk_chatml - 1);
    text_release(&t);
    chat_release(&c);
}

static void test_recognised(void **state)
{
    (void)state;
    expect(PLAIN, "");
    expect(PLAIN "\n", "");
    expect(WITH_SYSTEM, "<|im_start|>system\nYou are nice.\nIt's true<|im_end|>\n");
    /* other spellings of the same */
    expect("{% for message in messages %}{{ '<|im_\\\nstart|>' ~ message['role'] ~ \"\\n\" ~ "
           "message.content ~ '<|im_end|>\\n' }}{% endfor %}"
           "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
           "");
    expect("{#- from (\"{{\") -#}\n" PLAIN "{# end #}\n", "");
    expect("{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}"
           "{% endif %}{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
           "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}"
           "{{ '<|im_start|>assistant\\n' }}{% endif %}",
           "");
    expect(
        "{%- for   message in messages -%}\n  {{- \"<|im_start|>\" + message.role + \"\\n\" + "
        "message.content + \"<|im_end|>\\n\" -}}\n{%- endfor -%}\n"
        "{%- if add_generation_prompt -%}\n {{- \"<|im_start|>assistant\\n\" -}}\n{%- endif -%}\n",
        "");
    expect("{% for message in messages %}\n<|im_start|>{{ message.role }}\n{{ message.content }}"
           "<|im_end|>\n    {% endfor %}\n{% if add_generation_prompt %}\n<|im_start|>assistant\n"
           "{% endif %}",
           "");
}

static void expect_refused(const char *template, size_t n)
{
    struct chat c;
    struct err e = {0};

    assert_int_equal(chat_recognise(&c, template, n, &e), ST_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "--chat-template"));
    assert_non_null(strstr(e.msg, "chatml"));
    chat_release(&c);
}

static void test_refused(void **state)
{
    static const char *const bad[] = {
        "",
        "{{ .System }} {{ .Prompt }}",
        "{% frobnicate %}" PLAIN,
        PLAIN "{% frobnicate %}",
        PLAIN "{% if x %}",
        "{% if add_generation_prompt %}" PLAIN,
        "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + "
        "message['content'] + '<|im_end|>' }}{% endfor %}{% if add_generation_prompt %}"
        "{{ '<|im_start|>assistant\n' }}{% endif %}", /* no newline after a message */
        "{# c " PLAIN,
        PLAIN "{% endif %}",
        "{% else %}" PLAIN,
        "{% set x %}" PLAIN,
        "{{ (a }}" PLAIN,
        "{{ a) }}" PLAIN,
        "{{ '\1for message in messages\2' }}",
        "{{",
        "{%",
        "{{ '",
        "{{ 'a\\",
        "{{ 'a' +",
        "{{ a +",
        "{{ a -",
    };

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        expect_refused(bad[i], strlen(bad[i]));
    for (size_t n = 0; n < sizeof WITH_SYSTEM - 1; n++) { /* cut anywhere */
        char *copy = mem_strndup(WITH_SYSTEM, n);         /* so that reading on is noticed */
        expect_refused(copy, n);
        mem_free(copy);
    }
}

/* Any single changed byte gives a refusal or a template whose only difference is the system
 * message. */
static void test_changed_byte(void **state)
{
    char t[] = WITH_SYSTEM;

    (void)state;
    for (size_t i = 0; i < sizeof t - 1; i++) {
        char old = t[i];
        struct chat c;
        struct err e;
        for (int v = 1; v < 256; v += 7) {
            t[i] = (char)(old ^ v);
            if (chat_recognise(&c, t, sizeof t - 1, &e) == ST_OK)
                assert_string_equal(chat_family_name(c.family), "chatml");
            chat_release(&c);
        }
        t[i] = old;
    }
}

static void test_system_message_replaces_default(void **state)
{
    static const struct chat_message m[] = {{"system", "Be brief", 8}, {"user", "Hi", 2}};
    struct chat c;
    struct err e;
    struct text t = {0};

    (void)state;
    assert_int_equal(chat_recognise(&c, WITH_SYSTEM, sizeof WITH_SYSTEM - 1, &e), ST_OK);
    assert_int_equal(chat_render(&c, m, 2, false, &t, NULL, &e), ST_OK);
    assert_string_equal(t.p, "<|im_start|>system\nBe brief<|im_end|>\n"
                             "<|im_start|>user\nHi<|im_end|>\n");
    text_release(&t);
    chat_release(&c);
}

static void find(const char *template, const char *name, enum status want, const char *word)
{
    struct gguf_writer *w = gguf_writer_new();
    struct gguf *g;
    struct chat c;
    struct err e = {0};
    void *data;
    size_t n;

    gguf_put_str(w, "general.architecture", "llama");
    if (template)
        gguf_put_str(w, "tokenizer.chat_template", template);
    assert_int_equal(gguf_write_memory(w, &data, &n, &e), ST_OK);
    assert_int_equal(gguf_open_memory(&g, data, n, "test", &e), ST_OK);
    assert_int_equal(chat_find(&c, name, g, &e), want);
    if (want)
        assert_non_null(strstr(e.msg, word));
    chat_release(&c);
    gguf_close(g);
    gguf_writer_free(w);
    mem_free(data);
}

static void test_find(void **state)
{
    (void)state;
    find(PLAIN, NULL, ST_OK, "");
    find(NULL, NULL, ST_UNSUPPORTED, "no chat template");
    find("{{ x }}", NULL, ST_UNSUPPORTED, "not one that is known");
    find("{{ x }}", "chatml", ST_OK, "");
    find(NULL, "chatml", ST_OK, "");
    find(PLAIN, "nosuch", ST_USAGE, "chatml");
    find(PLAIN, "", ST_USAGE, "chatml");
}

/* ---- golden renderings ---- */

enum { MAX_TALK = 8 };

struct talk {
    struct text role[MAX_TALK], content[MAX_TALK];
    struct chat_message m[MAX_TALK];
    size_t n;
};

static void read_talk(struct json *j, struct talk *t)
{
    t->n = 0;
    json_begin(j);
    while (json_item(j)) {
        size_t i = t->n++;
        assert_true(i < MAX_TALK);
        json_begin(j);
        json_item(j);
        json_str(j, &t->role[i]);
        json_item(j);
        json_str(j, &t->content[i]);
        assert_false(json_item(j));
        t->m[i] = (struct chat_message){t->role[i].p, t->content[i].p ? t->content[i].p : "",
                                        t->content[i].n};
    }
}

static void expect_rendering(const struct chat *c, const char *what, const struct talk *t,
                             bool generate, const struct text *want)
{
    struct text got = {0};
    struct text_spans spans = {0};
    struct err e = {0};
    size_t n_content = 0, n_spans = 0;

    if (chat_render(c, t->m, t->n, generate, &got, &spans, &e))
        fail_msg("%s: %s", what, e.msg);
    if (got.n != want->n || memcmp(got.p ? got.p : "", want->p, want->n) != 0)
        fail_msg("%s: got\n%s\nexpected\n%s", what, got.p, want->p);
    for (size_t i = 0; i < spans.n; i++) {
        assert_true(spans.span[i].to <= got.n);
        assert_true(i == 0 || spans.span[i - 1].to <= spans.span[i].from);
        n_spans += spans.span[i].to - spans.span[i].from;
    }
    for (size_t i = 0; i < t->n; i++)
        n_content += t->m[i].n_content;
    assert_true(n_spans <= n_content + c->system.n); /* stripping makes it less */
    text_spans_release(&spans);
    text_release(&got);
}

/* [generate, talk, text], ...: renders each talk; returns how many there were. */
static int expect_renderings(struct json *j, const struct chat *c, const char *what)
{
    struct text want = {0};
    struct talk t = {0};
    int n = 0;

    json_begin(j);
    for (; json_item(j); n++) {
        bool generate;
        json_begin(j);
        json_item(j);
        generate = json_int(j) != 0;
        json_item(j);
        read_talk(j, &t);
        json_item(j);
        json_str(j, &want);
        assert_false(json_item(j));
        expect_rendering(c, what, &t, generate, &want);
    }
    for (size_t i = 0; i < MAX_TALK; i++) {
        text_release(&t.role[i]);
        text_release(&t.content[i]);
    }
    text_release(&want);
    return n;
}

static void test_golden(void **state)
{
    struct json j = json_open(getenv("GGRUN_TEST_DATA"), "chat/golden.json");
    struct text name = {0}, template = {0}, bos = {0}, eos = {0};
    struct text *const fields[] = {&name, &template, &bos, &eos};
    struct err e = {0};
    int n_cases = 0;

    (void)state;
    json_begin(&j);
    while (json_item(&j)) {
        struct chat c;
        json_begin(&j);
        for (int i = 0; i < 4; i++) {
            json_item(&j);
            json_str(&j, fields[i]);
        }
        if (chat_recognise(&c, template.p, template.n, &e))
            fail_msg("%s: %s\n%s", name.p, e.msg, template.p);
        if (strcmp(chat_family_name(c.family), name.p) != 0)
            fail_msg("taken for %s: %s", chat_family_name(c.family), template.p);
        assert_int_equal(c.wants_bos, strstr(template.p, "bos_token") != NULL);
        c.bos = (struct gguf_str){bos.p, bos.n};
        c.eos = (struct gguf_str){eos.p, eos.n};
        json_item(&j);
        n_cases += expect_renderings(&j, &c, name.p);
        assert_false(json_item(&j));
        chat_release(&c);
    }
    assert_true(n_cases > 300);
    for (int i = 0; i < 4; i++)
        text_release(fields[i]);
    json_close(&j);
}

/* The template in a real file. */
static void test_model(void **state)
{
    struct json j = json_open(getenv("GGRUN_TEST_DATA"), "chat/smollm2.json");
    const char *models = getenv("GGRUN_MODELS"), *home = getenv("HOME");
    struct gguf *g = NULL;
    struct chat c;
    struct err e = {0};
    char path[1024];

    (void)state;
    snprintf(path, sizeof path, "%s%s/SmolLM2-135M-Instruct.Q4_1.gguf",
             models ? models
             : home ? home
                    : "",
             models ? "" : "/.cache/ggrun");
    if (gguf_open(&g, path, GGUF_NO_DATA, &e)) {
        printf("SmolLM2 is not here; scripts/get-models fetches it\n");
    } else {
        assert_int_equal(chat_find(&c, NULL, g, &e), ST_OK);
        assert_true(c.exact);
        assert_true(expect_renderings(&j, &c, path) >= 10);
        chat_release(&c);
    }
    gguf_close(g);
    json_close(&j);
}

/* Each allocation fails in turn. */
static void test_no_memory(void **state)
{
    static const char *const templates[] = {WITH_SYSTEM, "{% if x %}", "{{ x }}"};

    (void)state;
    for (size_t i = 0; i < 3; i++) {
        enum status st = ST_NOMEM;
        for (uint64_t k = 1; st == ST_NOMEM; k++) {
            struct chat c;
            struct err e = {0};
            struct text t = {0};
            struct text_spans spans = {0};
            assert_true(k < 1000);
            mem_fail_at(k);
            st = chat_recognise(&c, templates[i], strlen(templates[i]), &e);
            if (!st)
                st = chat_render(&c, talk, 3, true, &t, &spans, &e);
            mem_fail_at(0);
            text_release(&t);
            text_spans_release(&spans);
            chat_release(&c);
        }
        assert_int_equal(st, i ? ST_UNSUPPORTED : ST_OK);
    }
}

/* Much of the same takes no longer than it is long: a minute, if it were looked through again and
 * again. */
static void test_long(void **state)
{
    static const char *const words[] = {"<|im_start|>system\n", "add_generation_prompt ", "{{ x }}",
                                        "{# c #}", "<|im_end|>\n"};
    struct err e = {0};

    (void)state;
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        struct text t = {0};
        struct chat c;
        text_str(&t,
                 "{% if add_generation_prompt %}<|im_start|>assistant\n<|im_end|>\n{% endif %}");
        while (t.n < 2000000)
            text_str(&t, words[i]);
        assert_int_equal(chat_recognise(&c, t.p, t.n, &e), ST_OK);
        assert_int_equal(c.system.n, 0);
        chat_release(&c);
        text_release(&t);
    }
}

static void test_places(void **state)
{
    static const struct chat_message two[] = {
        {"system", "a", 1}, {"system", "b", 1}, {"user", "c", 1}};
    struct chat c;
    struct err e = {0};
    struct text t = {0};

    (void)state;
    assert_int_equal(chat_find(&c, "gemma", NULL, &e), ST_OK);
    assert_int_equal(chat_render(&c, two, 3, true, &t, NULL, &e), ST_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "two system messages"));
    assert_int_equal(chat_render(&c, two, 1, true, &t, NULL, &e), ST_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "none follows"));
    assert_int_equal(chat_render(&c, &(struct chat_message){"tool", "x", 1}, 1, true, &t, NULL, &e),
                     ST_UNSUPPORTED);
    assert_non_null(strstr(e.msg, "'tool'"));
    text_release(&t);
    chat_release(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recognised),   cmocka_unit_test(test_refused),
        cmocka_unit_test(test_changed_byte), cmocka_unit_test(test_system_message_replaces_default),
        cmocka_unit_test(test_find),         cmocka_unit_test(test_golden),
        cmocka_unit_test(test_model),        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_places),       cmocka_unit_test(test_long),
    };

    return cmocka_run_group_tests_name("chat", tests, NULL, NULL);
}
