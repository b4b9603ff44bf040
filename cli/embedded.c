#include "cli/embedded.h"

/*
 * The assembler reads the file (EMBEDDED_FILE, a string from the build). Tensors in it are aligned
 * relative to its start, so it starts at a page as a mapped file does.
 */
__asm__(".pushsection .rodata\n"
        ".balign 4096\n"
        ".globl ggrun_embedded_start\n"
        ".hidden ggrun_embedded_start\n"
        "ggrun_embedded_start:\n"
        ".incbin \"" EMBEDDED_FILE "\"\n"
        ".globl ggrun_embedded_end\n"
        ".hidden ggrun_embedded_end\n"
        "ggrun_embedded_end:\n"
        ".byte 0\n"
        ".popsection\n");

extern const unsigned char ggrun_embedded_start[], ggrun_embedded_end[];

const void *embedded_model(size_t *n_bytes)
{
    *n_bytes = (size_t)(ggrun_embedded_end - ggrun_embedded_start);
    return ggrun_embedded_start;
}
