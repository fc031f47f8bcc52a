/* Packages: contexts of one model for several devices, each section once, as runtime/context/package.py has them. */
#include "reading.h"

#include <stdlib.h>
#include <string.h>

enum { VERSION = 1, PREFIX_BYTES = 48, MOST_CONTEXTS = 256, LONGEST_NAME = 200, LARGEST_INDEX_BYTES = 64 << 20 };
#define LARGEST_SECTION_BYTES ((uint64_t)1 << 56)
static const char HEAD[] = "head";

static int by_digest(const void *one, const void *other) {
    const section *const *sections[] = {one, other};
    int order = strcmp((*sections[0])->sha256, (*sections[1])->sha256);
    return order ? order : strcmp((*sections[0])->kind, (*sections[1])->kind);
}

static bool sections_differ(reader *reader, const section *sections, size_t count) {
    const section **sorted = calloc(count + 1, sizeof *sorted);
    bool differ = true;
    if (sorted == NULL) out_of_memory(reader);
    for (size_t at = 0; at < count && sorted != NULL; at++) sorted[at] = &sections[at];
    if (sorted != NULL) qsort(sorted, count, sizeof *sorted, by_digest);
    for (size_t at = 1; at < count && sorted != NULL; at++) differ = differ && by_digest(&sorted[at - 1], &sorted[at]);
    free(sorted);
    return differ;
}

/* Their offsets follow from their lengths. */
static void read_sections(const fields *index, gputune_file *file) {
    static const char *const KINDS[] = {HEAD, "binary", "source", "weights"};
    reader *reader = index->reader;
    slice items;
    uint64_t end = 0;
    file->sections = field_rows(index, "sections", sizeof *file->sections, 37, &items, &file->section_count);
    for (size_t at = 0; at < file->section_count && !reader->code; at++) {
        section *section = &file->sections[at];
        item row = msgpack_take(&items), kind = msgpack_take(&row.content), length = msgpack_take(&row.content),
             digest = msgpack_take(&row.content);
        section->offset = (end + 63) / 64 * 64;
        section->nbytes = (size_t)length.number;
        end = section->offset + length.number;
        if (row.kind != LIST || row.number != 3 || kind.kind != COUNT || kind.number >= 4 || length.kind != COUNT ||
            length.number > LARGEST_SECTION_BYTES || section->nbytes != length.number ||
            section->offset > LARGEST_SECTION_BYTES || digest.kind != BYTES || digest.content.nbytes != 32)
            malformed(reader, "package: sections[%zu] is no kind, length and digest", at);
        char *text = reader->code ? NULL : pool_take(reader->pool, 1, 65);
        if (text == NULL) {
            out_of_memory(reader);
        } else {
            hex(digest.content.data, text);
            section->sha256 = text;
            section->kind = KINDS[kind.number];
        }
    }
}

static void read_entry(const fields *entry, part *into) {
    struct packed *packed = &into->packed;
    into->name = field_text(entry, "name");
    packed->tier = field_text(entry, "tier");
    packed->computes = field_of(entry, "computes", BOOL, "true or false").number;
    packed->head = field_size(entry, "head");
    packed->sections = field_sizes(entry, "sections", &packed->section_count);
    packed->nbytes = field_count(entry, "nbytes");
    read_identity(entry->reader, field_of(entry, "device", MAP, "a map"), &packed->device);
    if (field_of(entry, "sha256", BYTES, "bytes").content.nbytes != 32)
        malformed(entry->reader, "package: context '%s' has no digest of 32 bytes", into->name);
    static const char LETTERS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    size_t length = strlen(into->name);
    if (!length || length > LONGEST_NAME || strspn(into->name, LETTERS) != length || strchr("._-", *into->name) != NULL)
        malformed(entry->reader, "package: '%s' is no name for a context", into->name);
}

/* users: of each section the number of the last context that has it, from 1. */
static void check_entry(reader *reader, const gputune_file *file, size_t place, size_t *users) {
    const part *part = &file->parts[place];
    for (size_t at = 0; at <= part->packed.section_count && !reader->code; at++) {
        bool is_head = at == part->packed.section_count;
        size_t section = is_head ? part->packed.head : part->packed.sections[at];
        if (section >= file->section_count || users[section] == place + 1)
            malformed(reader, "package: context '%s' has a section twice, or one that is not there", part->name);
        else if ((file->sections[section].kind == HEAD) != is_head)
            malformed(reader, "package: context '%s' has sections of wrong kinds", part->name);
        else users[section] = place + 1;
    }
}

static void read_index(const fields *index, gputune_file *file) {
    static const char *const NAMES[] = {"name",     "tier",   "device", "computes", "head",
                                        "sections", "nbytes", "sha256", NULL};
    reader *reader = index->reader;
    slice items;
    read_sections(index, file);
    file->parts = field_rows(index, "contexts", sizeof *file->parts, 300, &items, &file->part_count);
    for (size_t at = 0; at < file->part_count && !reader->code; at++) {
        fields entry = fields_of(reader, index, "contexts", at + 1, msgpack_take(&items), NAMES);
        read_entry(&entry, &file->parts[at]);
    }
    if (reader->code) return;
    if (!file->part_count || file->part_count > MOST_CONTEXTS ||
        !texts_differ(reader, file->parts, file->part_count, sizeof *file->parts))
        malformed(reader, "package: contexts must have different names, and there must be one");
    if (!reader->code && !sections_differ(reader, file->sections, file->section_count))
        malformed(reader, "package: a section that is there twice");
    size_t *users = pool_take(reader->pool, file->section_count, sizeof *users);
    if (users == NULL) out_of_memory(reader);
    for (size_t at = 0; at < file->part_count && !reader->code; at++) check_entry(reader, file, at, users);
    for (size_t at = 0; at < file->section_count && !reader->code; at++)
        if (!users[at]) malformed(reader, "package: a section of no context");
}

void read_package(reader *reader, gputune_file *file) {
    static const char *const NAMES[] = {"contexts", "sections", NULL};
    slice bytes = file->bytes;
    reader->malformed = GPUTUNE_MALFORMED_PACKAGE;
    if (bytes.nbytes < PREFIX_BYTES)
        reader->code = fail(reader->error, GPUTUNE_TRUNCATED, "%s: the file ends after %zu bytes", reader->path,
                            bytes.nbytes);
    else if (little_endian(bytes.data + 8) != VERSION)
        reader->code = fail(reader->error, GPUTUNE_UNSUPPORTED_FORMAT_VERSION,
                            "%s: package version %u, this runtime reads %d", reader->path,
                            little_endian(bytes.data + 8), VERSION);
    if (reader->code) return;
    size_t length = little_endian(bytes.data + 12);
    item content = checked_part(reader, bytes, PREFIX_BYTES, length, LARGEST_INDEX_BYTES, bytes.data + 16, "index");
    if (reader->code) return;
    fields index = fields_of(reader, NULL, "package", 0, content, NAMES);
    read_index(&index, file);
    place_sections(reader, bytes, PREFIX_BYTES + length, file->sections, file->section_count);
}

/* Whether a context's sections are those that the index has for it, one behind the other; takes where they lie. */
static bool take_sections(const gputune_file *file, const struct packed *packed, context *context, uint64_t *end) {
    if (context->section_count != packed->section_count) return false;
    for (size_t at = 0; at < context->section_count; at++) {
        section *own = &context->sections[at];
        const section *other = &file->sections[packed->sections[at]];
        if (strcmp(own->kind, other->kind) || own->nbytes != other->nbytes || strcmp(own->sha256, other->sha256) ||
            own->offset != (*end + 63) / 64 * 64)
            return false;
        own->data = other->data;
        *end = own->offset + own->nbytes;
    }
    return true;
}

void read_packed(reader *reader, const gputune_file *file, part *part) {
    const struct packed *packed = &part->packed;
    section *head = &file->sections[packed->head];
    context *context = &part->context;
    size_t front = 0;
    uint64_t end = 0;
    if (!verified(head))
        reader->code = fail(reader->error, GPUTUNE_CHECKSUM_MISMATCH,
                            "%s: its header in the package is damaged; make the package again", reader->path);
    else read_head(reader, (slice){head->data, head->nbytes}, context, &front);
    if (!reader->code && front != head->nbytes) malformed(reader, "%zu bytes behind the header", head->nbytes - front);
    reader->malformed = GPUTUNE_MALFORMED_PACKAGE;
    if (reader->code) return;
    if (!same_identity(&context->device, &packed->device) || strcmp(context->tier, packed->tier) ||
        context->computes != packed->computes)
        malformed(reader, "the index and the header disagree about the device");
    else if (!take_sections(file, packed, context, &end))
        malformed(reader, "the index and the header disagree about the sections");
    else if (packed->nbytes != aligned(front) + end)
        malformed(reader, "the index tells of %llu bytes, which its parts do not have",
                  (unsigned long long)packed->nbytes);
}
