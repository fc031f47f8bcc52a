/* Maps from files become rows of C, field by field, each with its type checked. */
#include "reading.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void refuse(reader *reader, gputune_code why, const char *format, ...) {
    char text[GPUTUNE_MESSAGE_BYTES];
    va_list values;
    va_start(values, format);
    write_text(text, sizeof text, format, values);
    va_end(values);
    if (!reader->code) reader->code = fail(reader->error, why, "%s: %s", reader->path, text);
}

/* By their field_kind. */
static const char *const WANTED[] = {"a text", "a known name", "a known name", "bytes of a digest",
                                     "a number from 0 that fits this machine", "a number", "true or false", "a map",
                                     "a blob", "a plain map", "a list of numbers from 0", "a list of texts",
                                     "a list of blobs", "a list", "three numbers from 0",
                                     "a list of few numbers from 0"};

static void wrong(reader *reader, const form *form, const field *field, bool missing) {
    const char *not = missing ? "missing" : "not ", *what = missing ? "" : WANTED[field->kind];
    if (reader->list == NULL) MALFORMED(reader, "%s: '%s' is %s%s", form->what, field->name, not, what);
    else MALFORMED(reader, "%s[%zu]: '%s' is %s%s", reader->list, reader->place, field->name, not, what);
}

void *rows(reader *reader, size_t *count, size_t nbytes) {
    void *made = reader->code ? NULL : pool_take(reader->pool, *count, nbytes);
    if (made == NULL) refuse(reader, GPUTUNE_OUT_OF_MEMORY, "out of memory"), *count = 0;
    return made;
}

enum { BLOB = 1, LONG_TEXT = 2 }; /* extensions, which hold the place of a blob in 4 bytes */

static bool read_blob(const reader *reader, item value, uint8_t kind, slice *found) {
    const bool known = value.kind == EXTENSION && value.content.nbytes == 4 && EXTENSION_OF(value) == kind;
    const uint32_t place = known ? little_endian(value.content.data) : 0;
    if (!known || place >= reader->blob_count) return false;
    *found = reader->blobs[place];
    return true;
}

/* A copy that ends with 0, so there is no other one in it; NULL where it is no such text. */
static const char *text_of(reader *reader, item value) {
    if (read_blob(reader, value, LONG_TEXT, &value.content)) value.kind = is_utf8(value.content) ? TEXT : MISSING;
    if (value.kind != TEXT || memchr(value.content.data, 0, value.content.nbytes)) return NULL;
    const char *text = pool_text(reader->pool, (const char *)value.content.data, value.content.nbytes);
    if (text == NULL) refuse(reader, GPUTUNE_OUT_OF_MEMORY, "out of memory");
    return text;
}

/* A number of as many bytes as a uint64_t or a size_t has. */
static bool read_number(item value, void *at, size_t nbytes) {
    const size_t size = (size_t)value.number;
    memcpy(at, nbytes == sizeof size ? (const void *)&size : &value.number, nbytes);
    return value.kind == COUNT && value.number <= INT64_MAX && (nbytes > sizeof size || size == value.number);
}

typedef char an_enum_is_an_int[sizeof(buffer_kind) == sizeof(int) && sizeof(memory_type) == sizeof(int) ? 1 : -1];

static bool read_choice(const field *field, item value, void *at) {
    for (int place = 0; field->names[place] != NULL; place++) {
        if (value.kind != TEXT || !is_text(value.content, field->names[place])) continue;
        if (field->kind == A_NAME) *(const char **)at = field->names[place];
        else *(int *)at = place;
        return true;
    }
    return false;
}

/* A list of numbers, texts or rows. False where it is none. */
static bool read_list(reader *reader, const field *field, item value, void *at, size_t *count) {
    size_t least = field->kind == ROWS ? field->form->least_bytes : 1, bytes = sizeof(size_t);
    if (value.kind != LIST || value.number > value.content.nbytes / least) return false;
    size_t number = (size_t)value.number;
    bool good = true;
    uint8_t *each = at;
    if (field->kind == DIMENSIONS || field->kind == THREE) {
        good = field->kind == THREE ? number == 3 : number <= field->most && (!*count || *count == number);
    } else {
        const size_t each_bytes[] = {[TEXTS] = sizeof(char *), [BLOBS] = sizeof(slice), [SIZES] = bytes};
        bytes = field->kind == ROWS ? field->form->row_bytes : each_bytes[field->kind];
        *(void **)at = each = rows(reader, &number, bytes);
    }
    if (field->kind == THREE) bytes = field->bytes / 3;
    else *count = good ? number : 0;
    const char *list = reader->list;
    size_t place = reader->place;
    for (size_t i = 0; i < number && good && !reader->code; i++, each += bytes) {
        item inner = msgpack_take(&value.content);
        reader->list = field->name, reader->place = i;
        if (field->kind == ROWS && field->form->read != NULL) field->form->read(reader, inner, each);
        else if (field->kind == ROWS) read_row(reader, field->form, inner, each);
        else if (field->kind == TEXTS) good = (*(const char **)(void *)each = text_of(reader, inner)) != NULL;
        else if (field->kind == BLOBS) good = read_blob(reader, inner, BLOB, (slice *)(void *)each);
        else good = read_number(inner, each, bytes);
    }
    reader->list = list, reader->place = place;
    return good;
}

/* Texts, finite numbers, bools, nothing, lists, and maps whose keys are texts; at most so many levels deep. */
static bool is_json(slice *rest, size_t levels) {
    item value = msgpack_first(*rest);
    if (!levels || value.kind == BYTES || value.kind == EXTENSION) return false;
    if (value.kind == REAL && !value.number) return false;
    if (value.kind != LIST && value.kind != MAP) return msgpack_take(rest).kind != MISSING;
    *rest = value.content;
    for (uint64_t left = value.number; left > 0; left--)
        if ((value.kind == MAP && msgpack_take(rest).kind != TEXT) || !is_json(rest, levels - 1)) return false;
    return true;
}

/* Whether all keys of a map are texts, and all values texts or, with levels, JSON of so many with the map's own. */
static bool is_plain(item map, size_t levels) {
    bool good = map.kind == MAP;
    for (uint64_t left = good ? map.number : 0; left > 0 && good; left--)
        good = msgpack_take(&map.content).kind == TEXT &&
               (levels ? is_json(&map.content, levels - 1) : msgpack_take(&map.content).kind == TEXT);
    return good;
}

static void read_field(reader *reader, const form *form, const field *field, item value, uint8_t *row) {
    void *at = row + field->offset;
    size_t size;
    bool good = true;
    switch (field->kind) {
    case A_TEXT: good = (*(const char **)at = text_of(reader, value)) != NULL; break;
    case A_NAME:
    case A_CHOICE: good = read_choice(field, value, at); break;
    case A_NUMBER: good = read_number(value, at, field->bytes); break;
    case A_SIGNED:
        good = (value.kind == COUNT && value.number <= INT64_MAX) || value.kind == NEGATIVE;
        memcpy(at, &value.number, sizeof value.number); /* in two's complement */
        break;
    case A_BLOB: good = read_blob(reader, value, BLOB, at); break;
    case A_FLAG: good = value.kind == BOOL, *(bool *)at = value.number; break;
    case A_ROW: read_row(reader, field->form, value, at); break;
    case A_MAP: good = is_plain(value, field->most); break;
    case A_DIGEST:
        if (!(good = value.kind == BYTES && value.content.nbytes == 32)) break;
        size = 1;
        char *text = rows(reader, &size, 65);
        if (text != NULL) hex(value.content.data, text);
        *(const char **)at = text;
        break;
    default: good = read_list(reader, field, value, at, (size_t *)(void *)(row + field->count_offset));
    }
    if (!good) wrong(reader, form, field, value.kind == MISSING);
}

void read_row(reader *reader, const form *form, item value, void *row) {
    const field *fields = form->fields;
    const size_t count = form->count;
    item values[count + 1]; /* a message may have no field, and an array of C has an item */
    for (size_t i = 0; i < count; i++) values[i] = (item){MISSING, 0, {NULL, 0}};
    bool good = form->is_list ? value.kind == LIST && value.number == count : value.kind == MAP;
    for (size_t i = 0; i < count && good && form->is_list; i++) values[i] = msgpack_take(&value.content);
    for (uint64_t left = value.number; left > 0 && good && !form->is_list; left--) {
        item key = msgpack_take(&value.content), inner = msgpack_take(&value.content);
        bool known = !form->is_closed;
        for (size_t i = 0; i < count && key.kind == TEXT; i++)
            if (is_text(key.content, fields[i].name))
                values[i] = inner, known = true; /* of a key that is there twice the last one counts */
        good = key.kind == TEXT && known;
    }
    if (!good) MALFORMED(reader, "%s: not a map with the expected fields", form->what);
    for (size_t i = 0; i < count && !reader->code; i++)
        if (values[i].kind != MISSING || !fields[i].optional) read_field(reader, form, &fields[i], values[i], row);
    if (form->check != NULL && !reader->code) form->check(reader, row);
}

/* Of the kinds of fields that an identity has. */
bool same_rows(const form *form, const void *one, const void *other) {
    bool same = true;
    for (const field *field = form->fields; field < form->fields + form->count && same; field++) {
        const void *mine = (const uint8_t *)one + field->offset, *theirs = (const uint8_t *)other + field->offset;
        const size_t *count = (const size_t *)(const void *)((const uint8_t *)one + field->count_offset);
        if (field->kind == A_TEXT || field->kind == A_NAME) {
            same = !strcmp(*(const char *const *)mine, *(const char *const *)theirs);
        } else if (field->kind == TEXTS) {
            same = *count == *(const size_t *)(const void *)((const uint8_t *)other + field->count_offset);
            for (size_t i = 0; i < *count && same; i++)
                same = !strcmp((*(const char *const *const *)mine)[i], (*(const char *const *const *)theirs)[i]);
        } else {
            same = !memcmp(mine, theirs, field->bytes);
        }
    }
    return same;
}

int by_name(const void *one, const void *other) {
    const char *const *const *rows[] = {one, other};
    return strcmp(**rows[0], **rows[1]);
}

bool all_differ(reader *reader, const void *rows, size_t count, size_t row_bytes,
                int (*compare)(const void *, const void *)) {
    const void **sorted = calloc(count + 1, sizeof *sorted);
    bool differ = true;
    if (sorted == NULL) refuse(reader, GPUTUNE_OUT_OF_MEMORY, "out of memory");
    for (size_t i = 0; i < count && sorted != NULL; i++) sorted[i] = (const uint8_t *)rows + i * row_bytes;
    if (sorted != NULL) qsort(sorted, count, sizeof *sorted, compare);
    for (size_t i = 1; i < count && sorted != NULL; i++) differ = differ && compare(&sorted[i - 1], &sorted[i]);
    free(sorted);
    return differ;
}
