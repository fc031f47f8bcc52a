/* MsgPack of messages. */
#include "codec.h"

#include <stdlib.h>
#include <string.h>

enum { BLOB = 1, ROOM = 1 << 10 };

/* --- in ----------------------------------------------------------------------------------------------------------- */

/* Takes a pair off the front of a map whose key is this. */
static item taken(item *map, const char *key) {
    item missing = {MISSING, 0, {NULL, 0}}, name = map->number ? msgpack_take(&map->content) : missing;
    if (name.kind != TEXT || !is_text(name.content, key)) return missing;
    map->number--;
    return msgpack_take(&map->content);
}

bool take_message(reader *reader, const frame *frame, message_kind first, message_kind last, message *found) {
    *found = (message){MESSAGE_KINDS, 0, NULL};
    item map = {MISSING, 0, {NULL, 0}};
    if (msgpack_valid(frame->header)) map = msgpack_first(frame->header);
    const item id = map.kind == MAP ? taken(&map, "id") : map, name = map.kind == MAP ? taken(&map, "type") : map;
    if (id.kind != COUNT || id.number > INT64_MAX || name.kind != TEXT) {
        MALFORMED(reader, "the header is no map that begins with an id and a type");
        return false;
    }
    found->id = id.number;
    for (message_kind kind = first; kind <= last; kind++)
        if (is_text(name.content, MESSAGES[kind]->what)) found->kind = kind;
    if (found->kind == MESSAGE_KINDS) {
        MALFORMED(reader, "the type is no message that may arrive here");
        return false;
    }
    size_t one = 1;
    void *row = rows(reader, &one, MESSAGES[found->kind]->row_bytes);
    reader->blobs = frame->blobs, reader->blob_count = frame->blob_count;
    if (row) read_row(reader, MESSAGES[found->kind], map, row);
    found->row = row;
    return !reader->code;
}

/* --- out ---------------------------------------------------------------------------------------------------------- */

static void put(outgoing *out, const void *bytes, size_t nbytes) {
    if (out->room - out->nbytes < nbytes) {
        const size_t room = 2 * out->room + nbytes + ROOM;
        uint8_t *const larger = out->failed ? NULL : realloc(out->data, room);
        out->failed = !larger;
        if (out->failed) return;
        out->data = larger, out->room = room;
    }
    if (nbytes) memcpy(out->data + out->nbytes, bytes, nbytes);
    out->nbytes += nbytes;
}

/* A head of MsgPack, and a number behind it of so many bytes. */
static void put_head(outgoing *out, unsigned head, uint64_t number, size_t nbytes) {
    uint8_t bytes[9] = {(uint8_t)head};
    for (size_t i = 0; i < nbytes; i++) bytes[1 + i] = (uint8_t)(number >> 8 * (nbytes - 1 - i));
    put(out, bytes, 1 + nbytes);
}

/* Texts of systems and drivers may hold any bytes: what is no UTF-8 becomes question marks. */
static void put_text(outgoing *out, const char *text) {
    size_t left = strlen(text);
    put_head(out, 0xdb, left, 4);
    put(out, text, left);
    for (uint8_t *at = out->data + out->nbytes - left; left && !out->failed;) {
        const size_t nbytes = character_at((slice){at, left});
        if (!nbytes) *at = '?';
        at += nbytes ? nbytes : 1, left -= nbytes ? nbytes : 1;
    }
}

static void put_blob(outgoing *out, const slice *blob) {
    const uint32_t place = (uint32_t)out->blob_count;
    if (place == MOST_BLOBS) out->failed = true;
    else out->blobs[out->blob_count++] = *blob;
    const uint8_t bytes[] = {0xd6, BLOB, (uint8_t)place, (uint8_t)(place >> 8), 0, 0};
    put(out, bytes, sizeof bytes);
}

static uint64_t number_at(const void *at, size_t nbytes) {
    if (nbytes == sizeof(uint64_t)) return *(const uint64_t *)at;
    return *(const size_t *)at;
}

static void put_pairs(outgoing *out, const form *form, const uint8_t *row);

static void put_list(outgoing *out, const field *field, const uint8_t *row) {
    const void *const at = row + field->offset;
    const bool inside = field->kind == THREE || field->kind == DIMENSIONS; /* of the row */
    const size_t count = field->kind == THREE ? 3 : *(const size_t *)(const void *)(row + field->count_offset);
    const size_t bytes = field->kind == THREE ? field->bytes / 3 : sizeof(size_t);
    const uint8_t *const first = inside ? at : *(const uint8_t *const *)at;
    put_head(out, 0xdd, count, 4);
    for (size_t i = 0; i < count; i++) {
        if (field->kind == TEXTS) put_text(out, ((const char *const *)(const void *)first)[i]);
        else if (field->kind == BLOBS) put_blob(out, (const slice *)(const void *)first + i);
        else if (field->kind == ROWS) {
            put_head(out, 0xdf, field->form->count, 4);
            put_pairs(out, field->form, first + i * field->form->row_bytes);
        } else put_head(out, 0xcf, number_at(first + i * bytes, bytes), 8);
    }
}

static void put_pairs(outgoing *out, const form *form, const uint8_t *row) {
    for (size_t i = 0; i < form->count; i++) {
        const field *const field = &form->fields[i];
        const void *const at = row + field->offset;
        put_text(out, field->name);
        switch (field->kind) {
        case A_TEXT:
        case A_NAME: put_text(out, *(const char *const *)at); break;
        case A_NUMBER: put_head(out, 0xcf, number_at(at, field->bytes), 8); break;
        case A_SIGNED: put_head(out, 0xd3, *(const uint64_t *)at, 8); break;
        case A_FLAG: put_head(out, *(const bool *)at ? 0xc3 : 0xc2, 0, 0); break;
        case A_BLOB: put_blob(out, at); break;
        default: put_list(out, field, row);
        }
    }
}

void put_message(outgoing *out, message_kind kind, uint64_t id, const void *row) {
    out->nbytes = out->blob_count = 0;
    out->failed = false;
    put_head(out, 0xdf, MESSAGES[kind]->count + 2, 4);
    put_text(out, "id");
    put_head(out, 0xcf, id, 8);
    put_text(out, "type");
    put_text(out, MESSAGES[kind]->what);
    put_pairs(out, MESSAGES[kind], row);
}
