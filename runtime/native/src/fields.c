/* Fields of maps, one by one, each with its type checked. */
#include "reading.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_PLACE = 200 };
static const item NOTHING = {MISSING, 0, {(const uint8_t *)"", 0}};

void malformed(reader *reader, const char *format, ...) {
    char text[GPUTUNE_MESSAGE_BYTES];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    if (!reader->code) reader->code = fail(reader->error, reader->malformed, "%s: %s", reader->path, text);
}

void out_of_memory(reader *reader) {
    if (!reader->code) reader->code = fail(reader->error, GPUTUNE_OUT_OF_MEMORY, "%s: out of memory", reader->path);
}

/* Writes where a map is, such as "header: graphs[3]". */
static size_t place_of(const fields *fields, char text[LONGEST_PLACE]) {
    size_t used = 0;
    if (fields->parent != NULL) {
        used = place_of(fields->parent, text);
        used += (size_t)snprintf(text + used, LONGEST_PLACE - used, ": ");
    }
    if (fields->number)
        used += (size_t)snprintf(text + used, LONGEST_PLACE - used, "%s[%zu]", fields->place, fields->number - 1);
    else used += (size_t)snprintf(text + used, LONGEST_PLACE - used, "%s", fields->place);
    return used;
}

static void wrong(const fields *fields, const char *name, const char *format, const char *wanted) {
    char place[LONGEST_PLACE];
    place_of(fields, place);
    malformed(fields->reader, format, place, name, wanted);
}

/* The place of a wanted name; MOST_FIELDS where there is none. */
static size_t index_of(const char *const *names, slice name) {
    for (size_t at = 0; names[at] != NULL; at++)
        if (strlen(names[at]) == name.nbytes && !memcmp(names[at], name.data, name.nbytes)) return at;
    return MOST_FIELDS;
}

fields fields_of(reader *reader, const fields *parent, const char *place, size_t number, item value,
                 const char *const *names) {
    fields found = {.reader = reader, .parent = parent, .place = place, .number = number, .names = names};
    bool good = value.kind == MAP;
    for (uint64_t left = good && !reader->code ? value.number : 0; good && left > 0; left--) {
        item key = msgpack_take(&value.content), inner = msgpack_take(&value.content);
        size_t at = index_of(names, key.content);
        good = key.kind == TEXT;
        if (at == MOST_FIELDS) found.unknown = true;
        else found.values[at] = inner; /* of a name that is there twice the last one counts */
    }
    if (!good) wrong(&found, "", "%s is no map with text keys", "");
    return found;
}

static item value_of(const fields *fields, const char *name) {
    return fields->values[index_of(fields->names, (slice){(const uint8_t *)name, strlen(name)})];
}

bool field_there(const fields *fields, const char *name) {
    return value_of(fields, name).kind != MISSING;
}

item field_of(const fields *fields, const char *name, item_kind kind, const char *wanted) {
    item found = value_of(fields, name);
    if (found.kind == MISSING) wrong(fields, name, "%s: '%s' is missing", "");
    else if (found.kind != kind) wrong(fields, name, "%s: '%s' is not %s", wanted);
    return fields->reader->code ? NOTHING : found;
}

/* A copy that ends with 0, so there is no other one in it. */
static const char *text_of(const fields *fields, const char *name, item value) {
    reader *reader = fields->reader;
    if (value.kind != TEXT || memchr(value.content.data, 0, value.content.nbytes))
        wrong(fields, name, "%s: '%s' is not %s", "a text");
    const char *text = reader->code ? ""
                                    : pool_text(reader->pool, (const char *)value.content.data, value.content.nbytes);
    if (text == NULL) out_of_memory(reader);
    return text == NULL ? "" : text;
}

const char *field_text(const fields *fields, const char *name) {
    return text_of(fields, name, field_of(fields, name, TEXT, "a text"));
}

uint64_t field_count(const fields *fields, const char *name) {
    item found = field_of(fields, name, COUNT, "a number from 0");
    if (found.number <= INT64_MAX) return found.number;
    wrong(fields, name, "%s: '%s' is not %s", "a number from 0");
    return 0;
}

size_t field_size(const fields *fields, const char *name) {
    uint64_t found = field_count(fields, name);
    if ((size_t)found == found) return (size_t)found;
    wrong(fields, name, "%s: '%s' is not %s", "a number that fits this machine");
    return 0;
}

void *field_rows(const fields *fields, const char *name, size_t row_bytes, size_t least_bytes, slice *items,
                 size_t *count) {
    reader *reader = fields->reader;
    item list = field_of(fields, name, LIST, "a list");
    if (list.number > list.content.nbytes / least_bytes)
        wrong(fields, name, "%s: '%s' has items that are not %s", "what they should be");
    *items = list.content;
    *count = reader->code ? 0 : (size_t)list.number;
    void *rows = pool_take(reader->pool, *count, row_bytes);
    if (rows != NULL) return rows;
    *count = 0;
    out_of_memory(reader);
    return NULL;
}

size_t *field_sizes(const fields *fields, const char *name, size_t *count) {
    slice items;
    size_t *found = field_rows(fields, name, sizeof *found, 1, &items, count);
    for (size_t at = 0; at < *count; at++) {
        item each = msgpack_take(&items);
        found[at] = (size_t)each.number;
        if (each.kind != COUNT || each.number > INT64_MAX || found[at] != each.number)
            wrong(fields, name, "%s: '%s' is not %s", "a list of numbers from 0");
    }
    *count = fields->reader->code ? 0 : *count;
    return found;
}

const char *const *field_texts(const fields *fields, const char *name, size_t *count) {
    slice items;
    const char **found = field_rows(fields, name, sizeof *found, 1, &items, count);
    for (size_t at = 0; at < *count; at++) found[at] = text_of(fields, name, msgpack_take(&items));
    *count = fields->reader->code ? 0 : *count;
    return found;
}

static int by_text(const void *one, const void *other) {
    const char *const *const *texts[] = {one, other};
    return strcmp(**texts[0], **texts[1]);
}

bool texts_differ(reader *reader, const void *rows, size_t count, size_t row_bytes) {
    const uint8_t *first = rows;
    if (count < 2) return true;
    const char *const **sorted = calloc(count, sizeof *sorted);
    if (sorted == NULL) {
        out_of_memory(reader);
        return true;
    }
    for (size_t at = 0; at < count; at++) sorted[at] = (const char *const *)(const void *)(first + at * row_bytes);
    qsort(sorted, count, sizeof *sorted, by_text);
    bool differ = true;
    for (size_t at = 1; at < count; at++) differ = differ && strcmp(*sorted[at - 1], *sorted[at]);
    free(sorted);
    return differ;
}
