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

static void test_golden(void **state)
{
    struct json j = json_open(getenv("GGRUN_TEST_DATA"), "chat/golden.json");
    struct text name = {0}, template = {0}, bos = {0}, eos = {0}, want = {0};
    struct talk t = {0};
    struct err e = {0};
    int n_cases = 0;

    (void)state;
    json_begin(&j);
    while (json_item(&j)) {
        struct chat c;
        struct text *const fields[] = {&name, &template, &bos, &eos};
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
        json_begin(&j);
        for (; json_item(&j); n_cases++) {
            bool generate;
            json_begin(&j);
            json_item(&j);
            generate = json_int(&j) != 0;
            json_item(&j);
            read_talk(&j, &t);
            json_item(&j);
            json_str(&j, &want);
            assert_false(json_item(&j));
            expect_rendering(&c, name.p, &t, generate, &want);
        }
        assert_false(json_item(&j));
        chat_release(&c);
    }
    assert_true(n_cases > 300);
    for (size_t i = 0; i < MAX_TALK; i++) {
        text_release(&t.role[i]);
        text_release(&t.content[i]);
    }
    text_release(&name);
    text_release(&template);
    text_release(&bos);
    text_release(&eos);
    text_release(&want);
    json_close(&j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recognised),   cmocka_unit_test(test_refused),
        cmocka_unit_test(test_changed_byte), cmocka_unit_test(test_system_message_replaces_default),
        cmocka_unit_test(test_find),         cmocka_unit_test(test_golden),
    };

    return cmocka_run_group_tests_name("chat", tests, NULL, NULL);
}
