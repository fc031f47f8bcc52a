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

static gputune_code check_digest(const reading *reading, const uint8_t digest[32], gputune_error *error) {
    char found[65], what[64];
    hex(digest, found);
    if (!strcmp(found, reading->section->sha256)) return GPUTUNE_OK;
    snprintf(what, sizeof what, "%.20s section %zu", reading->section->kind, reading->place);
    return damaged(reading->source, reading->path, what, error);
}

gputune_code read_piece(reading *reading, void *into, size_t room, size_t *nbytes, gputune_error *error) {
    const section *section = reading->section;
    const size_t left = section->nbytes - reading->done;
    uint8_t digest[32];
    *nbytes = left < room ? left : room;
    TRY(read_source(reading->source, reading->path, section->at + reading->done, into, *nbytes, error));
    reading->done += *nbytes;
    if (*nbytes < left) {
        sha256_add(reading->state, into, *nbytes);
        return GPUTUNE_OK;
    }
    sha256_end(reading->state, into, *nbytes, section->nbytes, digest);
    return check_digest(reading, digest, error);
}

size_t content_bytes(const section *section) { return section->inflated ? section->inflated : section->nbytes; }

gputune_code keep_section(const context *context, size_t place, uint8_t **kept, gputune_error *error) {
    const section *section = &context->sections[place];
    uint8_t *made = *kept = malloc(section->nbytes ? section->nbytes : 1);
    if (made == NULL) return fail(error, GPUTUNE_OUT_OF_MEMORY, "%s: out of memory", context->path);
    gputune_code code = read_source(context->source, context->path, section->at, made, section->nbytes, error);
    if (code) free(made), *kept = NULL;
    return code;
}

/* Whether they are those that were written, and what they become. */
static gputune_code inflate_section(const context *context, size_t place, const uint8_t *kept, uint8_t **content,
                                    gputune_error *error) {
    const section *section = &context->sections[place];
    const reading reading = begin_reading(context->source, context->path, section, place);
    uint8_t digest[32];
    sha256(kept, section->nbytes, digest);
    TRY(check_digest(&reading, digest, error));
    if (!section->inflated) return GPUTUNE_OK;
    if ((*content = malloc(section->inflated)) == NULL)
        return fail(error, GPUTUNE_OUT_OF_MEMORY, "%s: out of memory", context->path);
    if (inflate_whole((slice){kept, section->nbytes}, *content, section->inflated)) return GPUTUNE_OK;
    free(*content);
    *content = NULL;
    return fail(error, GPUTUNE_MALFORMED_HEADER, "%s: %.20s section %zu does not inflate to %zu bytes", context->path,
                section->kind, place, section->inflated);
}

gputune_code open_section(const context *context, size_t place, uint8_t *kept, uint8_t **content,
                          gputune_error *error) {
    *content = NULL;
    const gputune_code code = inflate_section(context, place, kept, content, error);
    if (code || *content != NULL) free(kept);
    else *content = kept;
    return code;
}

gputune_code copy_section(const context *context, size_t place, uint8_t **content, gputune_error *error) {
    uint8_t *kept;
    *content = NULL;
    TRY(keep_section(context, place, &kept, error));
    return open_section(context, place, kept, content, error);
}
