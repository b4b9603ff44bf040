/*
 * The table of chat template families. To add one: a row, and templates of its kind in
 * scripts/make-golden-chat. Names are those of llama.cpp where it has the family.
 */
#include "runtime/chat_impl.h"

#define EACH(pattern) .system = (pattern), .user = (pattern), .assistant = (pattern)
#define CONTENT       FORM_EXPR("message['content']")
#define EOS           FORM_EXPR("eos_token")
#define BOS           FORM_EXPR("bos_token")

/* DeepSeek's marks: full-width bars, and U+2581 as spaces */
#define BAR       "\xef\xbd\x9c"
#define DS_USER   "<" BAR "User" BAR ">"
#define DS_ANSWER "<" BAR "Assistant" BAR ">"
#define DS_END    "<" BAR "end\xe2\x96\x81of\xe2\x96\x81sentence" BAR ">"

/* Command R's */
#define CR_START "<|START_OF_TURN_TOKEN|>"
#define CR_END   "<|END_OF_TURN_TOKEN|>"

/* clang-format off */
const struct chat_family chat_families[] = {
    {"phi4", .has = {"<|im_start|>", "<|im_sep|>", "<|im_end|>"},
     EACH("<|im_start|>%r<|im_sep|>%c<|im_end|>"), .answer = "<|im_start|>assistant<|im_sep|>"},
    {"chatml", .has = {"<|im_start|>", "<|im_end|>\n", "<|im_start|>assistant\n", "add_generation_prompt"},
     .lacks = "<end_of_utterance>",
     EACH("<|im_start|>%r\n%c<|im_end|>\n"), .answer = "<|im_start|>assistant\n"},

    {"mistral-v7", .has = {"[SYSTEM_PROMPT] ", "[INST] "},
     .system = "[SYSTEM_PROMPT] %c[/SYSTEM_PROMPT]", .user = "[INST] %c[/INST]", .assistant = " %c%e", .answer = ""},
    {"mistral-v7-tekken", .has = {"[SYSTEM_PROMPT]", "[INST]"},
     .system = "[SYSTEM_PROMPT]%c[/SYSTEM_PROMPT]", .user = "[INST]%c[/INST]", .assistant = "%c%e", .answer = ""},
    {"mistral-v3-tekken", .has = {"[AVAILABLE_TOOLS]", "[INST]"}, .lacks = "[INST] ", .system_last = true,
     .system = "%c\n\n", .user = "[INST]%s%c[/INST]", .assistant = "%c%e", .answer = ""},
    {"mistral-v3", .has = {"[AVAILABLE_TOOLS]", "[INST] "}, .system_last = true,
     .system = "%c\n\n", .user = "[INST] %s%c[/INST]", .assistant = " %t%e", .answer = ""},
    {"mistral-v1", .has = {" [INST] ", "[/INST]"}, .lacks = "<<SYS>>",
     .system = "%c\n\n", .user = " [INST] %s%c [/INST]", .assistant = " %c%e", .answer = ""},
    {"llama2-sys-strip", .has = {"[INST] ", "<<SYS>>", ".strip()"},
     .system = "<<SYS>>\n%c\n<</SYS>>\n\n", .user = "%b[INST] %s%T [/INST]", .assistant = " %t %e", .answer = ""},
    {"llama2-sys-bos", .has = {"<<SYS>>", BOS "[INST] "},
     .system = "<<SYS>>\n%c\n<</SYS>>\n\n", .user = "%b[INST] %s%c [/INST]", .assistant = "%c%e", .answer = ""},
    {"llama2-sys", .has = {"[INST] ", "<<SYS>>"},
     .system = "<<SYS>>\n%c\n<</SYS>>\n\n", .user = "[INST] %s%c [/INST]", .assistant = "%c%e", .answer = ""},
    {"llama2", .has = {"[INST] ", " [/INST]"},
     .system = "%c\n", .user = "[INST] %s%c [/INST]", .assistant = "%c%e", .answer = ""},
    {"llama3", .has = {"<|start_header_id|>", "<|end_header_id|>\n\n", "<|eot_id|>"},
     EACH("<|start_header_id|>%r<|end_header_id|>\n\n%t<|eot_id|>"),
     .answer = "<|start_header_id|>assistant<|end_header_id|>\n\n"},
    {"llama4", .has = {"<|header_start|>", "<|header_end|>\n\n", "<|eot|>"},
     EACH("<|header_start|>%r<|header_end|>\n\n%t<|eot|>"), .answer = "<|header_start|>assistant<|header_end|>\n\n"},

    {"phi3", .has = {"<|assistant|>", "<|end|>\n"},
     EACH("<|%r|>\n%c<|end|>\n"), .answer = "<|assistant|>\n"},
    {"phi4-mini", .has = {"<|assistant|>", "<|end|>"},
     EACH("<|%r|>%c<|end|>"), .answer = "<|assistant|>"},
    {"chatglm4", .has = {"[gMASK]<sop>"}, .start = "[gMASK]<sop>",
     EACH("<|%r|>\n%c"), .answer = "<|assistant|>\n"},
    {"chatglm3", .has = {"[gMASK]sop"}, .start = "[gMASK]sop",
     EACH("<|%r|>\n %c"), .answer = "<|assistant|>"},
    {"olmo2", .has = {"<|user|>\n" CONTENT "\n", "<|assistant|>\n" CONTENT EOS},
     .system = "<|system|>\n%c\n", .user = "<|user|>\n%c\n", .assistant = "<|assistant|>\n%c%e\n",
     .answer = "<|assistant|>\n"},
    {"zephyr", .has = {"<|user|>", "<|assistant|>", CONTENT EOS},
     EACH("<|%r|>\n%c%e\n"), .answer = "<|assistant|>\n"},
    {"zephyr", .has = {"<|user|>", "<|assistant|>", "<|endoftext|>"},
     EACH("<|%r|>\n%c%e\n"), .answer = "<|assistant|>\n"},
    {"falcon3", .has = {"<|user|>", "<|assistant|>", "</s>"},
     EACH("<|%r|>\n%c\n"), .answer = "<|assistant|>\n"},
    {"glmedge", .has = {"<|assistant|>", "<|begin_of_image|>"},
     EACH("<|%r|>\n%c"), .answer = "<|assistant|>"},
    {"glmedge", .has = {"<|user|>\n", "<|assistant|>"},
     EACH("<|%r|>\n%c"), .answer = "<|assistant|>"},

    {"gemma", .has = {"<start_of_turn>", "<end_of_turn>"}, .system = "%c\n\n",
     .user = "<start_of_turn>user\n%s%t<end_of_turn>\n", .assistant = "<start_of_turn>model\n%t<end_of_turn>\n",
     .answer = "<start_of_turn>model\n"},
    {"deepseek", .has = {"### Instruction:", "<|EOT|>"},
     .system = "%c", .user = "### Instruction:\n%c\n", .assistant = "### Response:\n%c\n<|EOT|>\n",
     .answer = "### Response:\n"},
    {"deepseek2", .has = {"User: ", "Assistant: " CONTENT EOS},
     .system = "%c\n\n", .user = "User: %c\n\n", .assistant = "Assistant: %c%e", .answer = "Assistant:"},
    {"deepseek3", .has = {DS_USER, DS_ANSWER, DS_END},
     .system = "%c", .user = DS_USER "%c", .assistant = DS_ANSWER "%c" DS_END, .answer = DS_ANSWER},
    {"command-r", .has = {CR_START, "<|USER_TOKEN|>"},
     .system = CR_START "<|SYSTEM_TOKEN|>%c" CR_END, .user = CR_START "<|USER_TOKEN|>%t" CR_END,
     .assistant = CR_START "<|CHATBOT_TOKEN|>%t" CR_END, .answer = CR_START "<|CHATBOT_TOKEN|>"},
    {"granite", .has = {"<|start_of_role|>", "<|end_of_role|>"},
     EACH("<|start_of_role|>%r<|end_of_role|>%c<|end_of_text|>\n"), .answer = "<|start_of_role|>assistant<|end_of_role|>"},
    {"gpt-oss", .has = {"<|start|>", "<|channel|>", "<|message|>"},
     .system = "<|start|>developer<|message|># Instructions\n\n%c\n\n<|end|>", .user = "<|start|>user<|message|>%c<|end|>",
     .assistant = "<|start|>assistant<|channel|>final<|message|>%c<|end|>", .answer = "<|start|>assistant"},
    {"exaone3", .has = {"[|system|]", "[|assistant|]", "[|endofturn|]"}, .lacks = "[|tool|]",
     .system = "[|system|]%c[|endofturn|]\n", .user = "[|user|]%c\n", .assistant = "[|assistant|]%c[|endofturn|]\n",
     .answer = "[|assistant|]"},
};
/* clang-format on */
const size_t n_chat_families = sizeof chat_families / sizeof chat_families[0];
