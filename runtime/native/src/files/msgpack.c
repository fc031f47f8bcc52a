/* MsgPack: the values that headers have, and stepping over all others. */
#include "reading.h"

#include <string.h>

uint32_t little_endian(const uint8_t *bytes) {
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

enum { DEEPEST = 1024 };

/* Cuts bytes off the front. */
static bool cut(slice *rest, uint64_t nbytes, slice *found) {
    if (nbytes > rest->nbytes) return false;
    *found = (slice){rest->data, (size_t)nbytes};
    rest->data += nbytes;
    rest->nbytes -= (size_t)nbytes;
    return true;
}

static uint64_t big_endian(const uint8_t *data, size_t nbytes) {
    uint64_t number = 0;
    for (size_t at = 0; at < nbytes; at++) number = number << 8 | data[at];
    return number;
}

/* A timestamp is the extension -1, and has less than a second of nanoseconds. */
static bool valid_extension(uint8_t kind, slice content) {
    if (kind != 0xff || content.nbytes == 4) return kind != 0xff || content.nbytes == 4;
    if (content.nbytes != 8 && content.nbytes != 12) return false;
    return big_endian(content.data, 4) >> (content.nbytes == 8 ? 2 : 0) < 1000000000;
}

/* What the heads from 0xc0 to 0xdf say: the kind, and how many bytes of a number follow. */
static const struct {
    uint8_t kind, nbytes;
} HEADS[32] = {
    {NIL, 0},       {MISSING, 0},   {BOOL, 0},      {BOOL, 0},      {BYTES, 1},    {BYTES, 2},    {BYTES, 4},
    {EXTENSION, 1}, {EXTENSION, 2}, {EXTENSION, 4}, {REAL, 4},      {REAL, 8},     {COUNT, 1},    {COUNT, 2},
    {COUNT, 4},     {COUNT, 8},     {NEGATIVE, 1},  {NEGATIVE, 2},  {NEGATIVE, 4}, {NEGATIVE, 8}, {EXTENSION, 0},
    {EXTENSION, 0}, {EXTENSION, 0}, {EXTENSION, 0}, {EXTENSION, 0}, {TEXT, 1},     {TEXT, 2},     {TEXT, 4},
    {LIST, 2},      {LIST, 4},      {MAP, 2},       {MAP, 4},
};

/* Takes a value without what is in it, where it is a list or map. */
static bool next(slice *rest, item *found) {
    slice part;
    if (!cut(rest, 1, &part)) return false;
    uint8_t head = *part.data;
    size_t width = 0;
    if (head < 0x80) *found = (item){COUNT, head, {NULL, 0}};
    else if (head < 0xc0)
        *found = (item){head < 0x90 ? MAP : head < 0xa0 ? LIST : TEXT, head & (head < 0xa0 ? 15 : 31), {NULL, 0}};
    else if (head >= 0xe0) *found = (item){NEGATIVE, (uint64_t)(int64_t)(int8_t)head, {NULL, 0}};
    else {
        width = HEADS[head - 0xc0].nbytes;
        *found = (item){(item_kind)HEADS[head - 0xc0].kind, head == 0xc3, {NULL, 0}};
        if (width && !cut(rest, width, &part)) return false;
        if (width) found->number = big_endian(part.data, width);
        else if (found->kind == EXTENSION) found->number = (uint64_t)1 << (head - 0xd4);
    }
    switch (found->kind) {
    case NEGATIVE:
        if (head < 0xe0 && found->number >> (8 * width - 1) == 0) found->kind = COUNT;
        else if (width && width < 8) found->number |= ~(uint64_t)0 << 8 * width;
        return true;
    case REAL:
        found->number = width == 4 ? (found->number >> 23 & 0xff) != 0xff : (found->number >> 52 & 0x7ff) != 0x7ff;
        return true;
    case EXTENSION:
        return cut(rest, 1, &part) && cut(rest, found->number, &found->content) &&
               valid_extension(*part.data, found->content);
    case TEXT:
    case BYTES: return cut(rest, found->number, &found->content);
    default: found->content = *rest; return found->kind != MISSING;
    }
}

bool is_text(slice text, const char *expected) {
    return text.nbytes == strlen(expected) && (!text.nbytes || !memcmp(text.data, expected, text.nbytes));
}

size_t character_at(slice text) {
    const uint32_t first = text.nbytes ? *text.data : 0x80;
    if (first < 0x80) return 1;
    const size_t nbytes = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
    if (first < 0xc2 || first > 0xf4 || nbytes > text.nbytes) return 0;
    uint32_t code = first & (0x7fu >> nbytes);
    for (size_t at = 1; at < nbytes; code = code << 6 | (text.data[at++] & 0x3f))
        if ((text.data[at] & 0xc0) != 0x80) return 0;
    if (code < (first >= 0xf0 ? 0x10000u : first >= 0xe0 ? 0x800u : 0x80u)) return 0;
    return code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0 : nbytes;
}

bool is_utf8(slice text) {
    for (size_t nbytes; text.nbytes; text.data += nbytes, text.nbytes -= nbytes)
        if (!(nbytes = character_at(text))) return false;
    return true;
}

bool msgpack_valid(slice bytes) {
    struct {
        uint64_t left; /* values that are still to come */
        bool is_map;
    } open[DEEPEST];
    size_t depth = 0;
    do {
        item found;
        if (!next(&bytes, &found) || (found.kind == TEXT && !is_utf8(found.content))) return false;
        if (depth) {
            bool is_key = open[depth - 1].is_map && open[depth - 1].left % 2 == 0;
            if (is_key && found.kind != TEXT && found.kind != BYTES) return false;
            open[depth - 1].left--;
        }
        if (found.kind == LIST || found.kind == MAP) {
            if (depth == DEEPEST) return false;
            open[depth].is_map = found.kind == MAP;
            open[depth++].left = found.number << (found.kind == MAP);
        }
        while (depth && open[depth - 1].left == 0) depth--;
    } while (depth);
    return bytes.nbytes == 0;
}

item msgpack_first(slice bytes) {
    item found = {MISSING, 0, {NULL, 0}};
    return next(&bytes, &found) ? found : (item){MISSING, 0, {NULL, 0}};
}

item msgpack_take(slice *rest) {
    item first = {MISSING, 0, {NULL, 0}}, inner;
    if (!next(rest, &first)) return (item){MISSING, 0, {NULL, 0}};
    uint64_t left = first.kind == LIST || first.kind == MAP ? first.number << (first.kind == MAP) : 0;
    for (; left > 0 && next(rest, &inner); left--)
        if (inner.kind == LIST || inner.kind == MAP) left += inner.number << (inner.kind == MAP);
    return first;
}
