/*
 * What is a file that does not start with "GGUF"? People save web pages, pointers and archives
 * under the name of a model; a message about magic numbers does not help them.
 */
#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "gguf/reader_impl.h"

struct look {
    const char *magic;
    size_t n_magic, at;
    const char *what; /* "not a GGUF file but <what>" */
};

/* clang-format off */
#define LOOK(magic, at, what) {magic, sizeof magic - 1, at, what}
/* clang-format on */

static const struct look looks[] = {
    LOOK("version https://git-lfs", 0,
         "a git-lfs pointer; fetch the model itself with 'git lfs pull'"),
    LOOK("lmgg", 0,
         "a model in the old ggml format, from before GGUF; convert the original model again"),
    LOOK("fmgg", 0,
         "a model in the old ggmf format, from before GGUF; convert the original model again"),
    LOOK("tjgg", 0,
         "a model in the old ggjt format, from before GGUF; convert the original model again"),
    LOOK("algg", 0,
         "an adapter in the old ggla format, from before GGUF; convert the original again"),
    LOOK("FUGG", 0, "a GGUF file with swapped bytes; convert the model for little-endian machines"),
    LOOK("\x1f\x8b", 0, "a gzip archive; unpack it first"),
    LOOK("BZh", 0, "a bzip2 archive; unpack it first"),
    LOOK("\3757zXZ\0", 0, "an xz archive; unpack it first"),
    LOOK("\x28\xb5\x2f\xfd", 0, "a zstd archive; unpack it first"),
    LOOK("7z\xbc\xaf\x27\x1c", 0, "a 7z archive; unpack it first"),
    LOOK("Rar!\x1a\x07", 0, "a rar archive; unpack it first"),
    LOOK("ustar", 257, "a tar archive; unpack it first"),
    LOOK("\x89HDF\r\n\x1a\n", 0, "an HDF5 file; convert the model to GGUF"),
    LOOK("%PDF-", 0, "a PDF document"),
    LOOK("\177ELF", 0, "a program"),
};

static bool contains(const uint8_t *p, size_t n, const char *word)
{
    size_t n_word = strlen(word);

    for (size_t i = 0; i + n_word <= n; i++) {
        if (memcmp(p + i, word, n_word) == 0)
            return true;
    }
    return false;
}

/* What a text looks like by its first characters other than space, or NULL. */
static const char *look_of_text(const uint8_t *p, size_t n)
{
    const char *s;
    size_t i = n >= 3 && memcmp(p, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;

    while (i < n && isspace(p[i]))
        i++;
    s = (const char *)p + i;
    n -= i;
    if ((n >= 9 && strncasecmp(s, "<!doctype", 9) == 0) ||
        (n >= 5 && strncasecmp(s, "<html", 5) == 0))
        return "a web page (HTML), perhaps a login or error page; download the model again";
    if (n >= 5 && strncasecmp(s, "<?xml", 5) == 0)
        return "an XML document, perhaps an error answer of a server; download the model again";
    if (n >= 2 && s[0] == '<' && isalpha((unsigned char)s[1]))
        return "a web page (HTML or XML); download the model again";
    if (n >= 1 && (s[0] == '{' || s[0] == '['))
        return "a JSON text, perhaps an error answer of a server; download the model again";
    for (i = 0; i < n; i++) {
        if ((unsigned char)s[i] < 32 && !isspace((unsigned char)s[i]))
            return NULL;
    }
    return "a text";
}

static bool all_zero(const uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        if (p[i])
            return false;
    }
    return true;
}

/* A safetensors file starts with the u64 length of a JSON header. */
static bool is_safetensors(const uint8_t *p, size_t n, uint64_t n_file)
{
    uint64_t n_header;

    if (n < 9 || p[8] != '{')
        return false;
    memcpy(&n_header, p, 8);
    return n_header >= 2 && n_header <= n_file - 8;
}

static const char *look_of(const uint8_t *p, size_t n, uint64_t n_file)
{
    for (size_t i = 0; i < sizeof looks / sizeof looks[0]; i++) {
        const struct look *l = &looks[i];
        if (l->at + l->n_magic <= n && memcmp(p + l->at, l->magic, l->n_magic) == 0)
            return l->what;
    }
    if (n >= 4 && memcmp(p, "PK\3\4", 4) == 0)
        return contains(p, n, "data.pkl") ? "a PyTorch checkpoint; convert the model to GGUF"
                                          : "a zip archive; unpack it first";
    if (n >= 2 && p[0] == 0x80 && p[1] >= 2 && p[1] <= 5)
        return "a Python pickle (PyTorch); convert the model to GGUF";
    if (is_safetensors(p, n, n_file))
        return "a safetensors file; convert the model to GGUF";
    if (n >= 16 && all_zero(p, n))
        return "zeros, as an unfinished download leaves them; download the model again";
    return look_of_text(p, n);
}

enum status gguf_sniff(const uint8_t *p, size_t n, uint64_t n_file, struct err *e)
{
    const char *what;

    if (n < 4 && memcmp(p, "GGUF", n) == 0)
        return err_set(e, ST_MODEL, "file is cut off: it has %zu bytes, the header alone needs 24",
                       n);
    what = look_of(p, n, n_file);
    if (what)
        return err_set(e, ST_MODEL, "not a GGUF file but %s", what);
    if (n < 4)
        return err_set(e, ST_MODEL, "not a GGUF file: it has %zu bytes, the header alone needs 24",
                       n);
    return err_set(e, ST_MODEL,
                   "not a GGUF file: it starts with bytes %02x %02x %02x %02x, expected 'GGUF'",
                   p[0], p[1], p[2], p[3]);
}
