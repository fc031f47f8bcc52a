/* What gputune-run needs to name files: errors in a line, memory, the stems of files, and the words of a list. */
#ifndef GPUTUNE_RUN_NAMES_H
#define GPUTUNE_RUN_NAMES_H

#include "gputune.h"

#include <ctype.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { BAD_OPTION = 2, BAD_OUTPUT = 6, BAD_DEVICE_OR_CONTEXT = 8, STEM_BYTES = 200 };

static int failed(int code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("error: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return code;
}

/* Memory for `count` and one more, until the program ends. */
static void *more(void *memory, size_t count, size_t nbytes) {
    void *got = count < SIZE_MAX / nbytes - 1 ? realloc(memory, (count + 1) * nbytes) : NULL;
    if (got == NULL) exit(failed(BAD_DEVICE_OR_CONTEXT, "there is no memory for %zu x %zu bytes", count, nbytes));
    return got;
}

/* Names the file of a tensor: what is no letter, digit, dot, hyphen or underscore of ASCII is an underscore, a dot in
 * front, too, and what is over STEM_BYTES is cut off. The result has room for a number. */
static char *file_stem(const char *name) {
    char *stem = more(NULL, STEM_BYTES + 24, 1);
    size_t length = 0;
    for (const unsigned char *at = (const unsigned char *)name; *at && length < STEM_BYTES; at++) {
        if ((*at & 0xc0) == 0x80) continue; /* the rest of a character */
        bool plain = (*at < 128 && (isalnum(*at) || strchr("_-", *at))) || (*at == '.' && length > 0);
        stem[length++] = plain ? (char)*at : '_';
    }
    stem[length] = 0;
    return stem;
}

/* Names the files of tensors as net-run does. A name that can be a file's stays as it is; of others that would share a
 * file, the later one gets a number, so no stem is the name of another tensor. Some file systems do not tell A from a.
 */
static char **file_stems(const gputune_tensor *tensors, size_t count) {
    char **stems = memset(more(NULL, count, sizeof *stems), 0, count * sizeof *stems);
    for (size_t step = 0; step < 2 * count; step++) { /* first those that keep their names */
        char *stem = file_stem(tensors[step % count].name);
        size_t length = strlen(stem), number = 2;
        if ((strcmp(stem, tensors[step % count].name) == 0) != (step < count)) {
            free(stem);
            continue;
        }
        for (size_t other = 0; other < count; other++)
            if (stems[other] != NULL && strcasecmp(stems[other], stem) == 0)
                sprintf(stem + length, ".%zu", number++), other = SIZE_MAX; /* against all others once more */
        stems[step % count] = stem;
    }
    return stems;
}

/* Takes the next word of a line, NULL at its end. Blanks in double quotes are part of it, and the quotes are not.
 * *closed: whether every quote has an end. */
static char *next_word(char **rest, bool *closed) {
    bool quoted = false;
    char *at = *rest + strspn(*rest, " \t\r\n"), *word = at, *to = at;
    if (*at == 0) return NULL;
    for (; *at && (quoted || !strchr(" \t\r\n", *at)); at++) {
        if (*at == '"') quoted = !quoted;
        else *to++ = *at;
    }
    *rest = at + (*at != 0);
    *to = 0;
    *closed = !quoted;
    return word;
}

#endif
