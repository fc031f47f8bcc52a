/* Packages: contexts of one model for several devices, each section once, as runtime/context/package.py has them. */
#include "reading.h"

#include <string.h>

enum { PREFIX_BYTES = 48, LONGEST_NAME = 200 };

void check_entry(reader *reader, void *row) {
    static const char LETTERS[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
    const char *name = ((part *)row)->name;
    size_t length = strlen(name);
    if (!length || length > LONGEST_NAME || strspn(name, LETTERS) != length || strchr("._-", *name) != NULL)
        MALFORMED(reader, "package: '%s' cannot be the name of a context", name);
}

/* users: of each section the number of the last context that has it, from 1. */
static void check_use(reader *reader, const gputune_file *file, size_t place, size_t *users) {
    const part *part = &file->parts[place];
    for (size_t i = 0; i <= part->packed.section_count && !reader->code; i++) {
        bool is_head = i == part->packed.section_count;
        size_t section = is_head ? part->packed.head : part->packed.sections[i];
        if (section >= file->section_count || users[section] == place + 1)
            MALFORMED(reader, "package: context '%s' has a section twice, or one that does not exist", part->name);
        else if (!strcmp(file->sections[section].kind, SECTION_KINDS[0]) != is_head)
            MALFORMED(reader, "package: context '%s' has sections of wrong kinds", part->name);
        else
            users[section] = place + 1;
    }
}

static int by_digest(const void *one, const void *other) {
    const section *const *sections[] = {one, other};
    int order = strcmp((*sections[0])->sha256, (*sections[1])->sha256);
    return order ? order : strcmp((*sections[0])->kind, (*sections[1])->kind);
}

static void check_index(reader *reader, gputune_file *file) {
    uint64_t end = 0;
    for (size_t i = 0; i < file->section_count && !reader->code; i++) {
        section *section = &file->sections[i];
        uint64_t kind = section->offset /* as tables.c has it */, nbytes = section->nbytes;
        section->offset = aligned(end); /* offsets follow from lengths */
        if (kind > 3 || nbytes > LARGEST_SECTION_BYTES || section->offset > LARGEST_SECTION_BYTES)
            MALFORMED(reader, "package: sections[%zu] has an unknown kind, or is too large", i);
        else section->kind = SECTION_KINDS[kind];
        end = section->offset + nbytes;
    }
    if (reader->code) return;
    if (!file->part_count || file->part_count > MOST_CONTEXTS ||
        !all_differ(reader, file->parts, file->part_count, sizeof *file->parts, by_name))
        MALFORMED(reader, "package: contexts must have different names, and there must be one");
    else if (!all_differ(reader, file->sections, file->section_count, sizeof *file->sections, by_digest))
        MALFORMED(reader, "package: the same section twice");
    size_t count = file->section_count, *users = rows(reader, &count, sizeof *users);
    for (size_t i = 0; i < file->part_count && !reader->code; i++) check_use(reader, file, i, users);
    for (size_t i = 0; i < count && !reader->code; i++)
        if (!users[i]) MALFORMED(reader, "package: a section that no context uses");
}

void read_package(reader *reader, gputune_file *file) {
    const extent whole = {&file->source, 0, (size_t)file->source.nbytes, NULL};
    const bool short_one = whole.nbytes < PREFIX_BYTES;
    const uint8_t *data = short_one ? NULL : bytes_of(reader, part_of(whole, 0, PREFIX_BYTES));
    reader->malformed = GPUTUNE_MALFORMED_PACKAGE;
    if (short_one)
        refuse(reader, GPUTUNE_TRUNCATED, "the file ends after %zu bytes; " CUT_SHORT, whole.nbytes);
    else if (data != NULL && little_endian(data + 8) != PACKAGE_VERSION)
        refuse(reader, GPUTUNE_UNSUPPORTED_FORMAT_VERSION, "package version %u, this runtime reads %d",
               little_endian(data + 8), (int)PACKAGE_VERSION);
    if (reader->code) return;
    size_t length = little_endian(data + 12);
    item index = checked_part(reader, whole, PREFIX_BYTES, length, (size_t)LARGEST_INDEX_BYTES, data + 16, "index");
    read_row(reader, &INDEX, index, file);
    if (!reader->code) check_index(reader, file);
    if (!reader->code) place_sections(reader, whole, PREFIX_BYTES + length, file->sections, file->section_count);
}

/* Whether a context's sections are those that the index has for it, one behind the other; takes where they lie. */
static bool take_sections(const gputune_file *file, const struct packed *packed, context *context, uint64_t *end) {
    bool same = context->section_count == packed->section_count;
    for (size_t i = 0; i < context->section_count && same; i++) {
        section *own = &context->sections[i];
        const section *other = &file->sections[packed->sections[i]];
        same = !strcmp(own->kind, other->kind) && own->nbytes == other->nbytes && !strcmp(own->sha256, other->sha256) &&
               own->offset == aligned(*end);
        own->at = other->at;
        *end = own->offset + own->nbytes;
    }
    return same;
}

void read_packed(reader *reader, const gputune_file *file, part *part) {
    const struct packed *packed = &part->packed;
    const section *head = &file->sections[packed->head];
    context *context = &part->context;
    uint64_t end = 0;
    size_t nbytes = head->nbytes;
    uint8_t *bytes = pool_take(&reader->scratch, nbytes, 1);
    reading reading = begin_reading(&file->source, reader->path, head, packed->head);
    if (bytes == NULL) refuse(reader, GPUTUNE_OUT_OF_MEMORY, "out of memory");
    else reader->code = read_piece(&reading, bytes, nbytes, &nbytes, reader->error);
    size_t front = reader->code ? 0 : read_head(reader, (extent){&file->source, head->at, nbytes, bytes}, context);
    if (!reader->code && front != head->nbytes) MALFORMED(reader, "%zu bytes after a header", head->nbytes - front);
    if (reader->code) return;
    reader->malformed = GPUTUNE_MALFORMED_PACKAGE;
    if (!same_rows(&IDENTITY, &context->device, &packed->device) || strcmp(context->tier, packed->tier) ||
        context->computes != packed->computes)
        MALFORMED(reader, "the index and the header disagree about the device of '%s'", part->name);
    else if (!take_sections(file, packed, context, &end) || packed->nbytes != aligned(front) + end)
        MALFORMED(reader, "the index and the header disagree about the sections of '%s'", part->name);
}
