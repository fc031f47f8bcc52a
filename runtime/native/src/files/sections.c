/* Sections of files, whose bytes are checked while they are read. */
#include "reading.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

reading begin_reading(const source *source, const char *path, const section *section, size_t place) {
    reading begun = {source, path, section, place, 0, {0}};
    sha256_begin(begun.state);
    return begun;
}

gputune_code read_piece(reading *reading, void *into, size_t room, size_t *nbytes, gputune_error *error) {
    const section *section = reading->section;
    const size_t left = section->nbytes - reading->done;
    uint8_t digest[32];
    char found[65], what[64];
    *nbytes = left < room ? left : room;
    TRY(read_source(reading->source, reading->path, section->at + reading->done, into, *nbytes, error));
    reading->done += *nbytes;
    if (*nbytes < left) {
        sha256_add(reading->state, into, *nbytes);
        return GPUTUNE_OK;
    }
    sha256_end(reading->state, into, *nbytes, section->nbytes, digest);
    hex(digest, found);
    if (!strcmp(found, section->sha256)) return GPUTUNE_OK;
    snprintf(what, sizeof what, "%.20s section %zu", section->kind, reading->place);
    return damaged(reading->source, reading->path, what, error);
}

gputune_code copy_section(const context *context, size_t place, uint8_t **bytes, gputune_error *error) {
    const section *section = &context->sections[place];
    reading reading = begin_reading(context->source, context->path, section, place);
    size_t nbytes = section->nbytes;
    uint8_t *made = *bytes = malloc(nbytes ? nbytes : 1);
    if (made == NULL) return fail(error, GPUTUNE_OUT_OF_MEMORY, "%s: out of memory", context->path);
    gputune_code code = read_piece(&reading, made, nbytes, &nbytes, error);
    if (code) free(made), *bytes = NULL;
    return code;
}
