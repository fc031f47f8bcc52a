/* Open files: mapped, and read part by part. */
#include "reading.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static gputune_code map(const char *path, slice *bytes, gputune_error *error) {
    int descriptor = open(path, O_RDONLY | O_CLOEXEC), reason = errno;
    struct stat status;
    if (descriptor < 0) return fail(error, GPUTUNE_IO_ERROR, "%s: %s", path, strerror(reason));
    void *data = NULL; /* of an empty file nothing can be mapped */
    bool good = !fstat(descriptor, &status) && S_ISREG(status.st_mode) && (uint64_t)status.st_size < SIZE_MAX / 2;
    if (good && status.st_size) data = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, descriptor, 0);
    close(descriptor);
    if (!good || data == MAP_FAILED) return fail(error, GPUTUNE_IO_ERROR, "%s: it cannot be mapped", path);
    *bytes = (slice){data, (size_t)status.st_size};
    return GPUTUNE_OK;
}

static void unmap(slice bytes) {
    if (bytes.data != NULL) munmap((void *)(uintptr_t)bytes.data, bytes.nbytes);
}

static bool is_onnx(const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1;
    size_t length = strlen(name);
    return length > 5 && !strcasecmp(name + length - 5, ".onnx");
}

gputune_code read_form(gputune_file *file, bool is_onnx, gputune_error *error) {
    reader reader = {&file->pool, error, file->path, GPUTUNE_MALFORMED_HEADER, GPUTUNE_OK, NULL, 0};
    const context *first;
    if (file->bytes.nbytes >= 8 && !memcmp(file->bytes.data, "GPUTPKG", 8)) {
        read_package(&reader, file);
    } else if (is_onnx) {
        read_nodes(&reader, file);
    } else {
        size_t count = 1;
        file->parts = rows(&reader, &count, sizeof *file->parts);
        if (count) *file->parts = (part){.name = "", .bytes = file->bytes};
        file->part_count = count;
        if (count) reader.code = context_at(file, 0, &first, error);
    }
    return reader.code;
}

gputune_code gputune_open(const char *path, gputune_file **opened, gputune_error *error) {
    if (path == NULL || opened == NULL) return fail(error, GPUTUNE_INVALID_ARGUMENT, "no path, or no place for a file");
    gputune_code code = check_trusted(path, error);
    if (code) return code;
    gputune_file *file = calloc(1, sizeof *file);
    if (file == NULL || !mutex_open(&file->turn)) {
        free(file);
        return fail(error, GPUTUNE_OUT_OF_MEMORY, "%s: out of memory", path);
    }
    file->owners = 1;
    code = map(path, &file->bytes, error);
    file->path = pool_text(&file->pool, path, strlen(path));
    if (!code && file->path == NULL) code = fail(error, GPUTUNE_OUT_OF_MEMORY, "%s: out of memory", path);
    if (!code) code = read_form(file, is_onnx(path), error);
    if (code) gputune_close(file);
    else *opened = file;
    return code;
}

gputune_file *another_owner(const gputune_file *file) {
    gputune_file *own = (gputune_file *)(uintptr_t)file;
    mutex_lock(&own->turn);
    own->owners++;
    mutex_unlock(&own->turn);
    return own;
}

void gputune_close(gputune_file *file) {
    if (file == NULL) return;
    mutex_lock(&file->turn);
    bool last = --file->owners == 0;
    mutex_unlock(&file->turn);
    if (!last) return;
    for (size_t at = 0; at < file->part_count && file->parts != NULL; at++) {
        if (file->parts[at].path != NULL) unmap(file->parts[at].bytes);
        pool_free(&file->parts[at].pool);
    }
    unmap(file->bytes);
    mutex_close(&file->turn);
    pool_free(&file->pool);
    free(file);
}

void forget_pages(const gputune_file *file) {
    madvise((void *)(uintptr_t)file->bytes.data, file->bytes.nbytes, MADV_DONTNEED);
    for (size_t i = 0; i < file->part_count; i++)
        if (file->parts[i].path != NULL && file->parts[i].ready)
            madvise((void *)(uintptr_t)file->parts[i].bytes.data, file->parts[i].bytes.nbytes, MADV_DONTNEED);
}

/* --- contexts --- */

static gputune_code read_part(const gputune_file *file, part *part, gputune_error *error) {
    const char *path = part->path == NULL ? file->path : part->path;
    context *context = &part->context;
    reader reader = {&part->pool, error, path, GPUTUNE_MALFORMED_HEADER, GPUTUNE_OK, NULL, 0};
    *context = (struct context){.path = path, .name = part->name};
    if (part->path != NULL && part->bytes.data == NULL && !(reader.code = check_trusted(path, error)))
        reader.code = map(path, &part->bytes, error);
    if (!reader.code && file->sections != NULL) {
        read_packed(&reader, file, part);
    } else if (!reader.code) {
        size_t head_bytes = read_head(&reader, part->bytes, context);
        if (!reader.code) place_sections(&reader, part->bytes, head_bytes, context->sections, context->section_count);
    }
    if (reader.code) pool_free(&part->pool);
    part->ready = !reader.code;
    return reader.code;
}

gputune_code context_at(const gputune_file *file, size_t place, const context **found, gputune_error *error) {
    *found = NULL;
    gputune_file *own = (gputune_file *)(uintptr_t)file; /* reading fills in what was there from the beginning */
    if (place >= file->part_count)
        return fail(error, GPUTUNE_INVALID_ARGUMENT, "%s: there is no context %zu", file->path, place);
    mutex_lock(&own->turn);
    part *part = &own->parts[place];
    gputune_code code = part->ready ? GPUTUNE_OK : read_part(own, part, error);
    mutex_unlock(&own->turn);
    *found = &part->context;
    return code;
}

const identity *context_identity(const gputune_file *file, size_t place) {
    const context *context;
    if (place < file->part_count && file->sections != NULL) return &file->parts[place].packed.device;
    return context_at(file, place, &context, NULL) ? NULL : &context->device;
}

bool context_computes(const gputune_file *file, size_t place) {
    const context *context;
    if (place < file->part_count && file->sections != NULL) return file->parts[place].packed.computes;
    return !context_at(file, place, &context, NULL) && context->computes;
}

void hex(const uint8_t digest[32], char text[65]) {
    for (size_t at = 0; at < 64; at++) text[at] = "0123456789abcdef"[digest[at / 2] >> (at % 2 ? 0 : 4) & 15];
    text[64] = 0;
}

bool verified(section *section) {
    uint8_t digest[32];
    char text[65];
    if (__atomic_load_n(&section->verified, __ATOMIC_ACQUIRE)) return true;
    sha256(section->data, section->nbytes, digest);
    hex(digest, text);
    if (strcmp(text, section->sha256)) return false;
    __atomic_store_n(&section->verified, 1, __ATOMIC_RELEASE);
    return true;
}

gputune_code section_bytes(const context *context, size_t place, const uint8_t **data, size_t *nbytes,
                           gputune_error *error) {
    section *section = &context->sections[place];
    if (!verified(section))
        return fail(error, GPUTUNE_CHECKSUM_MISMATCH, "%s: %s section %zu is damaged; generate it again", context->path,
                    section->kind, place);
    *data = section->data;
    *nbytes = section->nbytes;
    return GPUTUNE_OK;
}

gputune_code find_graph(const gputune_file *file, const char *name, size_t *place, size_t *graph,
                        gputune_error *error) {
    const context *context;
    const node *node = NULL;
    const char *wanted = name;
    for (size_t at = 0; at < file->node_count && node == NULL; at++)
        if (name == NULL ? file->nodes[at].is_main : !strcmp(file->nodes[at].name, name)) node = &file->nodes[at];
    if (node != NULL) {
        *place = node->part;
        wanted = *node->name ? node->name : name;
    } else if (file->nodes != NULL) {
        return fail(error, GPUTUNE_INVALID_ARGUMENT, "%s: there is no graph '%s'", file->path, name);
    }
    gputune_code code = context_at(file, *place, &context, error);
    for (size_t at = 0; !code && at < context->graph_count; at++)
        if (wanted == NULL || !strcmp(context->graphs[at].info.name, wanted)) {
            *graph = at;
            return GPUTUNE_OK;
        }
    return code ? code : fail(error, GPUTUNE_INVALID_ARGUMENT, "%s: there is no graph '%s'", file->path, wanted);
}

/* --- what the caller asks for --- */

size_t gputune_context_count(const gputune_file *file) {
    return file->part_count;
}

const char *gputune_context_name(const gputune_file *file, size_t context) {
    return context < file->part_count ? file->parts[context].name : "";
}

const char *gputune_context_device(const gputune_file *file, size_t context) {
    const identity *device = context_identity(file, context);
    return device == NULL ? "" : device->name;
}

size_t gputune_graph_count(const gputune_file *file, size_t context) {
    const struct context *found;
    return context_at(file, context, &found, NULL) ? 0 : found->graph_count;
}

gputune_code gputune_graph_info_of(const gputune_file *file, size_t context, size_t graph, gputune_graph_info *info,
                                   gputune_error *error) {
    const struct context *found;
    gputune_code code = context_at(file, context, &found, error);
    if (code) return code;
    if (graph >= found->graph_count)
        return fail(error, GPUTUNE_INVALID_ARGUMENT, "%s: there is no graph %zu", file->path, graph);
    *info = found->graphs[graph].info;
    return GPUTUNE_OK;
}
