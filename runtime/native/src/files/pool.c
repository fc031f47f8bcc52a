/* Memory that is freed at once, errors, and which library this is. */
#include "context.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef POOL_BLOCK_BYTES
#define POOL_BLOCK_BYTES 8192 /* 0 gives each piece a block of its own, for tools that watch over their ends */
#endif

struct block {
    struct block *next;
    size_t used, nbytes;
    size_t unused; /* so that what follows is aligned for anything */
};

void *pool_take(pool *pool, size_t count, size_t nbytes) {
    if (count > (SIZE_MAX / 2) / (nbytes ? nbytes : 1)) return NULL;
    size_t wanted = POOL_BLOCK_BYTES ? (count * nbytes + 15) / 16 * 16 : count * nbytes;
    struct block *block = pool->blocks;
    if (block == NULL || wanted > block->nbytes - block->used) {
        size_t size = wanted > POOL_BLOCK_BYTES ? wanted : POOL_BLOCK_BYTES;
        if ((block = calloc(1, sizeof *block + size)) == NULL) return NULL;
        block->nbytes = size;
        bool full = wanted == size && pool->blocks != NULL; /* the first one has space for others */
        block->next = full ? pool->blocks->next : pool->blocks;
        *(full ? &pool->blocks->next : &pool->blocks) = block;
    }
    void *taken = (uint8_t *)(block + 1) + block->used;
    block->used += wanted;
    return taken;
}

const char *pool_text(pool *pool, const char *text, size_t length) {
    char *copy = pool_take(pool, length + 1, 1);
    if (copy != NULL && length) memcpy(copy, text, length);
    return copy;
}

void pool_free(pool *pool) {
    for (struct block *block = pool->blocks, *next; block != NULL; block = next) {
        next = block->next;
        free(block);
    }
    pool->blocks = NULL;
}

void cut_text(char *text) {
    size_t first = strlen(text), have = 0;
    while (first && have < 3 && ((unsigned char)text[first - 1] & 0xc0) == 0x80) first--, have++;
    const unsigned head = first ? (unsigned char)text[first - 1] : 0;
    if (have < (head >= 0xf0 ? 3u : head >= 0xe0 ? 2u : head >= 0xc0 ? 1u : 0u)) text[first - 1] = 0;
}

void write_text(char *text, size_t room, const char *format, va_list values) {
    if (vsnprintf(text, room, format, values) >= (int)room) cut_text(text);
}

gputune_code fail(gputune_error *error, gputune_code code, const char *format, ...) {
    if (error == NULL) return code;
    va_list values;
    va_start(values, format);
    write_text(error->message, sizeof error->message, format, values);
    va_end(values);
    for (char *each = error->message; *each; each++)
        if ((unsigned char)*each < ' ') *each = '?'; /* names from files: it stays one line */
    error->code = code;
    return code;
}

const char *gputune_version(void) {
#ifdef GPUTUNE_SOURCES
    return GPUTUNE_VERSION "+" GPUTUNE_SOURCES;
#else
    return GPUTUNE_VERSION;
#endif
}

const char *gputune_code_name(gputune_code code) {
    static const char *const NAMES[] = {
        "ok", "invalid_argument", "io_error", "out_of_memory", "not_a_context", "unsupported_format_version",
        "truncated", "checksum_mismatch", "malformed_header", "malformed_ep_context", "malformed_package",
        "wrong_device", "arena_too_small", "untrusted_file", "file_changed", "device_not_found", "build_failed",
        "limit_exceeded", "launch_failed", "forked_process", "unusable_memory", "cannot_import",
        "unknown_graph", "invalid_launch", "cannot_mark"};
    return (size_t)code < sizeof NAMES / sizeof *NAMES ? NAMES[code] : "unknown";
}
