/* Files with contexts: what is in them is read part by part, when it is used first. */
#include "reading.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static bool is_onnx(const char *path) {
    const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1;
    size_t length = strlen(name);
    return length > 5 && !strcasecmp(name + length - 5, ".onnx");
}

gputune_code read_form(gputune_file *file, bool is_onnx, gputune_error *error) {
    reader reader = {.pool = &file->pool, .error = error, .path = file->path, .malformed = GPUTUNE_MALFORMED_HEADER};
    const extent whole = {&file->source, 0, (size_t)file->source.nbytes, NULL};
    const context *first;
    const uint8_t *begin = whole.nbytes < 8 ? NULL : bytes_of(&reader, part_of(whole, 0, 8));
    if (begin != NULL && !memcmp(begin, "GPUTPKG", 8)) {
        read_package(&reader, file);
    } else if (is_onnx) {
        read_nodes(&reader, file);
    } else {
        file->part_count = 1;
        file->parts = rows(&reader, &file->part_count, sizeof *file->parts);
        if (file->part_count) *file->parts = (part){.name = "", .bytes = whole};
        if (file->part_count) reader.code = context_at(file, 0, &first, error);
    }
    pool_free(&reader.scratch);
    return reader.code;
}

/* Opens what a source has, and owns the source from now on. */
static gputune_code open_form(source *source, const char *path, bool is_onnx, gputune_file **opened,
                              gputune_error *error) {
    gputune_file *file = calloc(1, sizeof *file);
    if (file == NULL || !mutex_open(&file->turn)) {
        free(file);
        close_source(source);
        return fail(error, GPUTUNE_OUT_OF_MEMORY, "%s: out of memory", path);
    }
    file->owners = 1;
    file->source = *source;
    file->path = pool_text(&file->pool, path, strlen(path));
    const gputune_code code = file->path == NULL ? fail(error, GPUTUNE_OUT_OF_MEMORY, "%s: out of memory", path)
                                                 : read_form(file, is_onnx, error);
    if (code) gputune_close(file);
    else *opened = file;
    return code;
}

gputune_code gputune_open(const char *path, gputune_file **file, gputune_error *error) {
    source source;
    if (path == NULL || file == NULL) return fail(error, GPUTUNE_INVALID_ARGUMENT, "no path, or no place for a file");
    TRY(check_trusted(path, error));
    TRY(open_source(&source, path, error));
    return open_form(&source, path, is_onnx(path), file, error);
}

gputune_code gputune_open_bytes(const void *data, size_t nbytes, gputune_file **file, gputune_error *error) {
    source source = {.descriptor = -1, .data = data, .nbytes = nbytes};
    if (data == NULL || file == NULL) return fail(error, GPUTUNE_INVALID_ARGUMENT, "no bytes, or no place for a file");
    const bool is_onnx = nbytes && *source.data == ONNX_BEGINS;
    return open_form(&source, is_onnx ? "ONNX file in memory" : "context in memory", is_onnx, file, error);
}

gputune_file *another_owner(const gputune_file *file) {
    gputune_file *own = (gputune_file *)(uintptr_t)file;
    __atomic_add_fetch(&own->owners, 1, __ATOMIC_RELAXED);
    return own;
}

void gputune_close(gputune_file *file) {
    if (file == NULL || __atomic_sub_fetch(&file->owners, 1, __ATOMIC_ACQ_REL)) return;
    for (size_t at = 0; at < file->part_count && file->parts != NULL; at++) {
        if (file->parts[at].path != NULL && file->parts[at].ready) close_source(&file->parts[at].own);
        pool_free(&file->parts[at].pool);
    }
    close_source(&file->source);
    mutex_close(&file->turn);
    pool_free(&file->pool);
    free(file);
}

/* --- contexts --- */

static gputune_code open_beside(part *part, gputune_error *error) {
    TRY(check_trusted(part->path, error));
    TRY(open_source(&part->own, part->path, error));
    part->bytes = (extent){&part->own, 0, (size_t)part->own.nbytes, NULL};
    return GPUTUNE_OK;
}

static gputune_code read_part(const gputune_file *file, part *part, gputune_error *error) {
    const char *path = part->path == NULL ? file->path : part->path;
    context *context = &part->context;
    reader reader = {.pool = &part->pool, .error = error, .path = path, .malformed = GPUTUNE_MALFORMED_HEADER};
    *context = (struct context){.path = path, .name = part->name};
    const gputune_code code = reader.code = part->path == NULL ? GPUTUNE_OK : open_beside(part, error);
    context->source = part->path == NULL ? &file->source : &part->own;
    if (!code && file->sections != NULL) {
        read_packed(&reader, file, part);
    } else if (!code) {
        size_t head_bytes = read_head(&reader, part->bytes, context);
        if (!reader.code) place_sections(&reader, part->bytes, head_bytes, context->sections, context->section_count);
    }
    pool_free(&reader.scratch);
    if (reader.code) pool_free(&part->pool);
    if (reader.code && !code && part->path != NULL) close_source(&part->own);
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

/* Says which graphs a context has, or which an ONNX file has nodes for, in place of one that is missing. */
static gputune_code no_graph(const gputune_file *file, const context *context, const char *wanted,
                             gputune_error *error) {
    enum { TOLD = 8 };
    const size_t count = context == NULL ? file->node_count : context->graph_count;
    char names[512] = "";
    for (size_t at = 0; at < count && at < TOLD; at++)
        snprintf(names + strlen(names), sizeof names - strlen(names), "%s'%.48s'", at ? ", " : "",
                 context == NULL ? file->nodes[at].name : context->graphs[at].info.name);
    return fail(error, GPUTUNE_UNKNOWN_GRAPH, "%s: there is no graph '%s'; the graphs are %s%s: name one of them, "
                "or the context was made from another model", file->path, wanted, names,
                count > TOLD ? " and more" : "");
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
        return no_graph(file, NULL, name, error);
    }
    TRY(context_at(file, *place, &context, error));
    for (size_t at = 0; at < context->graph_count; at++)
        if (wanted == NULL || !strcmp(context->graphs[at].info.name, wanted)) {
            *graph = at;
            return GPUTUNE_OK;
        }
    return no_graph(file, context, wanted, error);
}

/* --- what the caller asks for --- */

size_t gputune_context_count(const gputune_file *file) { return file->part_count; }

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
    TRY(context_at(file, context, &found, error));
    if (graph >= found->graph_count)
        return fail(error, GPUTUNE_INVALID_ARGUMENT, "%s: there is no graph %zu", file->path, graph);
    *info = found->graphs[graph].info;
    return GPUTUNE_OK;
}
