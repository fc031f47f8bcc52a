/* The head of a context binary: memory block and header, as format.py, memory_need.py and records.py have them. */
#include "reading.h"

#include <stdio.h>
#include <string.h>

enum { VERSION = 3, PREFIX_BYTES = 48, MEMORY_PREFIX_BYTES = 36, LARGEST_BLOCK = 1 << 20, LARGEST_HEADER = 64 << 20 };
enum { DEEPEST_CONFIGURATION = 32, COUNTER_BYTES = 4 };
#define LARGEST_ARENA_BYTES ((uint64_t)1 << 56)
#define LARGEST_TENSOR_BYTES ((uint64_t)1 << 40)

static uint64_t total(const size_t *numbers, size_t count) {
    uint64_t sum = 0;
    for (size_t at = 0; at < count; at++) sum = sum + numbers[at] < sum ? UINT64_MAX : sum + numbers[at];
    return sum;
}

/* --- parts of a graph --- */

static void read_tensor(const fields *tensor, gputune_tensor *into, bool *handle) {
    static const struct {
        const char *name;
        size_t nbytes;
    } TYPES[] = {{"float32", 4}, {"int64", 8},  {"int32", 4},  {"int16", 2}, {"int8", 1},
                 {"uint64", 8},  {"uint32", 4}, {"uint16", 2}, {"uint8", 1}, {"bool", 1}};
    const char *dtype = field_text(tensor, "dtype"), *type = field_text(tensor, "memory_type");
    const size_t *shape = field_sizes(tensor, "shape", &into->rank);
    uint64_t nbytes = 0;
    into->name = field_text(tensor, "name");
    for (size_t at = 0; at < sizeof TYPES / sizeof *TYPES; at++)
        if (!strcmp(TYPES[at].name, dtype)) nbytes = TYPES[at].nbytes, into->dtype = TYPES[at].name;
    *handle = !strcmp(type, "memhandle");
    if (!nbytes || (!*handle && strcmp(type, "raw")))
        malformed(tensor->reader, "tensor '%s': dtype '%s' as '%s' is not supported", into->name, dtype, type);
    bool good = nbytes && into->rank <= GPUTUNE_MOST_DIMENSIONS;
    for (size_t at = 0; good && at < into->rank; at++) {
        good = shape[at] > 0 && shape[at] <= LARGEST_TENSOR_BYTES / nbytes;
        nbytes = good ? nbytes * shape[at] : 0;
        into->shape[at] = shape[at];
    }
    into->nbytes = (size_t)nbytes;
    if (!good || into->nbytes != nbytes)
        malformed(tensor->reader, "tensor '%s': its shape is empty or too large", into->name);
}

static const gputune_tensor *read_tensors(const fields *graph, const char *name, size_t *count, const bool **handles) {
    static const char *const NAMES[] = {"name", "shape", "dtype", "memory_type", NULL};
    slice items;
    gputune_tensor *found = field_rows(graph, name, sizeof *found, 30, &items, count);
    bool *kinds = pool_take(graph->reader->pool, *count, sizeof *kinds);
    for (size_t at = 0; at < *count && !graph->reader->code; at++) {
        fields tensor = fields_of(graph->reader, graph, name, at + 1, msgpack_take(&items), NAMES);
        read_tensor(&tensor, &found[at], &kinds[at]);
    }
    if (!graph->reader->code && !texts_differ(graph->reader, found, *count, sizeof *found))
        malformed(graph->reader, "two %s of a graph have the same name", name);
    *handles = kinds;
    return found;
}

static void read_argument(const fields *launch, size_t place, item value, argument *into) {
    static const char *const NAMES[] = {"kind", "index", "offset", "nbytes", NULL};
    static const char *const KINDS[] = {"input", "output", "arena", "weights", "counters", "status"};
    if (value.kind == COUNT || value.kind == NEGATIVE) {
        into->scalar = (int32_t)value.number;
        if ((uint64_t)(int64_t)into->scalar == value.number && (into->scalar < 0) == (value.kind == NEGATIVE)) return;
    } else if (value.kind == MAP) {
        fields ref = fields_of(launch->reader, launch, "arguments", place + 1, value, NAMES);
        const char *kind = field_text(&ref, "kind");
        into->is_buffer = true;
        while (into->kind < BUFFER_KINDS && strcmp(KINDS[into->kind], kind)) into->kind++;
        if (into->kind == BUFFER_KINDS) malformed(launch->reader, "arguments[%zu]: unknown kind '%s'", place, kind);
        into->index = field_size(&ref, "index");
        into->offset = field_size(&ref, "offset");
        into->nbytes = field_size(&ref, "nbytes");
        return;
    }
    malformed(launch->reader, "arguments[%zu] is neither a buffer nor a 32-bit number", place);
}

static void read_launch(const fields *item, launch *into) {
    size_t dimensions;
    into->operation = field_text(item, "operation");
    into->task = field_text(item, "task");
    into->entry = field_text(item, "entry");
    into->program = field_size(item, "program");
    const size_t *global = field_sizes(item, "global_size", &into->dimensions);
    const size_t *local = field_sizes(item, "local_size", &dimensions);
    if (into->dimensions < 1 || into->dimensions > 3 || dimensions != into->dimensions)
        malformed(item->reader, "operation '%s': sizes need the same 1 to 3 dimensions", into->operation);
    slice items;
    argument *arguments = field_rows(item, "arguments", sizeof *arguments, 1, &items, &into->argument_count);
    into->arguments = arguments;
    if (item->reader->code) return;
    memcpy(into->global_size, global, dimensions * sizeof *global);
    memcpy(into->local_size, local, dimensions * sizeof *local);
    for (size_t at = 0; at < into->argument_count; at++) {
        read_argument(item, at, msgpack_take(&items), &arguments[at]);
        into->counts = into->counts || (arguments[at].is_buffer && arguments[at].kind == COUNTERS);
        into->yields = into->yields || (arguments[at].is_buffer && arguments[at].kind == STATUS);
    }
}

static const launch *read_launches(const fields *graph, const char *name, size_t *count) {
    static const char *const NAMES[] = {"operation",   "task",       "program",   "entry",
                                        "global_size", "local_size", "arguments", NULL};
    slice items;
    launch *found = field_rows(graph, name, sizeof *found, 64, &items, count);
    for (size_t at = 0; at < *count && !graph->reader->code; at++) {
        fields each = fields_of(graph->reader, graph, name, at + 1, msgpack_take(&items), NAMES);
        read_launch(&each, &found[at]);
    }
    return found;
}

static void read_graph(const fields *graph, graph_record *into) {
    into->info.name = field_text(graph, "name");
    into->info.inputs = read_tensors(graph, "inputs", &into->info.input_count, &into->input_handles);
    into->info.outputs = read_tensors(graph, "outputs", &into->info.output_count, &into->output_handles);
    into->launches = read_launches(graph, "launches", &into->info.launch_count);
    into->arenas = field_sizes(graph, "arena_bytes", &into->arena_count);
    if (field_there(graph, "persistent"))
        into->persistent = read_launches(graph, "persistent", &into->persistent_count);
    if (field_there(graph, "counter_bytes")) into->counter_bytes = field_size(graph, "counter_bytes");
    if (field_there(graph, "arena_bound_bytes")) into->arena_bound_bytes = field_count(graph, "arena_bound_bytes");
    uint64_t nbytes = total(into->arenas, into->arena_count);
    into->info.arena_bytes = (size_t)nbytes;
    for (size_t at = 0; at < into->arena_count; at++)
        if (!into->arenas[at]) malformed(graph->reader, "graph '%s': an empty arena", into->info.name);
    if (into->arena_bound_bytes > nbytes || into->info.arena_bytes != nbytes)
        malformed(graph->reader, "graph '%s': arenas below their bound, or too large", into->info.name);
    if (into->counter_bytes % COUNTER_BYTES)
        malformed(graph->reader, "graph '%s': %zu bytes of counters", into->info.name, into->counter_bytes);
}

/* --- what ties the parts together --- */

bool sizes_fit(const launch *launch, const identity *device, char *why, size_t nbytes) {
    uint64_t items = 1;
    for (size_t at = 0; at < launch->dimensions; at++) {
        size_t global = launch->global_size[at], local = launch->local_size[at];
        if (!global || !local || global % local) {
            snprintf(why, nbytes, "local size %zu does not divide global size %zu", local, global);
            return false;
        }
        items = local > UINT64_MAX / items ? UINT64_MAX : items * local;
    }
    if (items > device->max_work_group_size) {
        snprintf(why, nbytes, "work-group of %llu work-items, the device allows %llu", (unsigned long long)items,
                 (unsigned long long)device->max_work_group_size);
        return false;
    }
    for (size_t at = 0; at < launch->dimensions; at++)
        if (launch->local_size[at] > device->max_work_item_sizes[at]) {
            snprintf(why, nbytes, "local size %zu in dimension %zu, the device allows %llu", launch->local_size[at], at,
                     (unsigned long long)device->max_work_item_sizes[at]);
            return false;
        }
    return true;
}

/* How many buffers of a kind a graph has, and how large one of them is. */
static size_t buffer_bytes(const context *context, const graph_record *graph, const argument *ref, size_t *count) {
    size_t at = ref->index;
    switch (ref->kind) {
    case INPUT: *count = graph->info.input_count; return at < *count ? graph->info.inputs[at].nbytes : 0;
    case OUTPUT: *count = graph->info.output_count; return at < *count ? graph->info.outputs[at].nbytes : 0;
    case ARENA: *count = graph->arena_count; return at < *count ? graph->arenas[at] : 0;
    case WEIGHTS:
        *count = context->weight_count;
        return at < *count ? context->sections[context->weights[at]].nbytes : 0;
    case COUNTERS: *count = 1; return graph->counter_bytes;
    default: *count = 1; return STATUS_BYTES;
    }
}

/* read: which weights launches that are not persistent have read; persistent ones read no others. */
static void check_launch(reader *reader, const context *context, const graph_record *graph, const launch *launch,
                         bool persistent, bool *read) {
    char why[120];
    if (launch->program >= context->program_count)
        malformed(reader, "operation '%s': there is no program %zu", launch->operation, launch->program);
    if (!sizes_fit(launch, &context->device, why, sizeof why))
        malformed(reader, "operation '%s': %s", launch->operation, why);
    if (!persistent && (launch->counts || launch->yields))
        malformed(reader, "operation '%s' is not persistent and reads counters or a status", launch->operation);
    for (size_t at = 0; at < launch->argument_count && !reader->code; at++) {
        const argument *ref = &launch->arguments[at];
        if (!ref->is_buffer) continue;
        size_t count, nbytes = buffer_bytes(context, graph, ref, &count);
        if (ref->index >= count || !ref->nbytes || ref->nbytes > nbytes || ref->offset > nbytes - ref->nbytes)
            malformed(reader, "operation '%s': arguments[%zu] lies outside its buffer", launch->operation, at);
        else if (ref->offset % context->device.base_address_alignment_bytes || (ref->offset && ref->kind <= OUTPUT))
            malformed(reader, "operation '%s': arguments[%zu] starts where no buffer may start", launch->operation, at);
        else if (ref->kind == WEIGHTS && persistent && !read[ref->index])
            malformed(reader, "operation '%s' reads weights that no plain launch reads", launch->operation);
        else if (ref->kind == WEIGHTS) read[ref->index] = true;
    }
}

static void check_section(reader *reader, const context *context, size_t place, const char *kind, const char *owner) {
    if (place >= context->section_count || strcmp(context->sections[place].kind, kind))
        malformed(reader, "%s: section %zu is no %s section", owner, place, kind);
}

static void check(reader *reader, const context *context) {
    for (size_t at = 0; at < context->program_count; at++) {
        check_section(reader, context, context->programs[at].binary, "binary", "a program");
        check_section(reader, context, context->programs[at].source, "source", "a program");
    }
    for (size_t at = 0; at < context->weight_count; at++)
        check_section(reader, context, context->weights[at], "weights", "weights");
    if (!reader->code && (!context->graph_count ||
                          !texts_differ(reader, context->graphs, context->graph_count, sizeof *context->graphs)))
        malformed(reader, "graphs must have different names, and there must be one");
    for (size_t at = 0; at < context->graph_count && !reader->code; at++) {
        const graph_record *graph = &context->graphs[at];
        bool *read = pool_take(reader->pool, context->weight_count, sizeof *read);
        if (read == NULL) out_of_memory(reader);
        for (size_t one = 0; one < graph->info.launch_count && !reader->code; one++)
            check_launch(reader, context, graph, &graph->launches[one], false, read);
        for (size_t one = 0; one < graph->persistent_count && !reader->code; one++)
            check_launch(reader, context, graph, &graph->persistent[one], true, read);
    }
}

/* --- the header --- */

/* Texts, finite numbers, bools, nothing, lists, and maps whose keys are texts; at most so many levels deep. */
static bool is_json(slice *rest, int levels) {
    item value = msgpack_first(*rest), key;
    if (levels == 0 || value.kind == BYTES || value.kind == EXTENSION || (value.kind == REAL && !value.number))
        return false;
    if (value.kind != LIST && value.kind != MAP) return msgpack_take(rest).kind != MISSING;
    *rest = value.content;
    for (uint64_t left = value.number; left > 0; left--) {
        if (value.kind == MAP && (key = msgpack_take(rest)).kind != TEXT) return false;
        if (!is_json(rest, levels - 1)) return false;
    }
    return true;
}

static void read_programs(const fields *header, context *into) {
    static const char *const NAMES[] = {"binary", "source", "options", NULL};
    slice items;
    into->programs = field_rows(header, "programs", sizeof *into->programs, 26, &items, &into->program_count);
    for (size_t at = 0; at < into->program_count && !header->reader->code; at++) {
        fields each = fields_of(header->reader, header, "programs", at + 1, msgpack_take(&items), NAMES);
        into->programs[at].binary = field_size(&each, "binary");
        into->programs[at].source = field_size(&each, "source");
        into->programs[at].options = field_text(&each, "options");
    }
}

static void read_sections(const fields *header, context *into) {
    static const char *const NAMES[] = {"kind", "offset", "length", "sha256", NULL};
    slice items;
    into->sections = field_rows(header, "sections", sizeof *into->sections, 31, &items, &into->section_count);
    for (size_t at = 0; at < into->section_count && !header->reader->code; at++) {
        fields each = fields_of(header->reader, header, "sections", at + 1, msgpack_take(&items), NAMES);
        into->sections[at].kind = field_text(&each, "kind");
        into->sections[at].offset = field_count(&each, "offset");
        into->sections[at].nbytes = field_size(&each, "length");
        into->sections[at].sha256 = field_text(&each, "sha256");
    }
}

static void read_graphs(const fields *header, context *into) {
    static const char *const NAMES[] = {"name",       "inputs",        "outputs",           "launches", "arena_bytes",
                                        "persistent", "counter_bytes", "arena_bound_bytes", NULL};
    slice items;
    into->graphs = field_rows(header, "graphs", sizeof *into->graphs, 47, &items, &into->graph_count);
    for (size_t at = 0; at < into->graph_count && !header->reader->code; at++) {
        fields each = fields_of(header->reader, header, "graphs", at + 1, msgpack_take(&items), NAMES);
        read_graph(&each, &into->graphs[at]);
    }
}

static void read_header(reader *reader, item value, context *into) {
    static const char *const NAMES[] = {"graphs", "programs",      "weights",  "sections", "device",
                                        "tier",   "configuration", "versions", "computes", NULL};
    fields header = fields_of(reader, NULL, "header", 0, value, NAMES);
    read_identity(reader, field_of(&header, "device", MAP, "a map"), &into->device);
    item versions = field_of(&header, "versions", MAP, "a map"),
         configuration = field_of(&header, "configuration", MAP, "a map");
    for (uint64_t left = 2 * versions.number; left > 0 && !reader->code; left--)
        if (msgpack_take(&versions.content).kind != TEXT)
            malformed(reader, "header: 'versions' must map texts to texts");
    read_graphs(&header, into);
    read_programs(&header, into);
    into->weights = field_sizes(&header, "weights", &into->weight_count);
    read_sections(&header, into);
    into->tier = field_text(&header, "tier");
    into->computes = field_of(&header, "computes", BOOL, "true or false").number;
    for (uint64_t left = configuration.number; left > 0 && !reader->code; left--)
        if (msgpack_take(&configuration.content).kind != TEXT ||
            !is_json(&configuration.content, DEEPEST_CONFIGURATION - 1))
            malformed(reader, "header: 'configuration' is no JSON, or has more than %d levels", DEEPEST_CONFIGURATION);
    if (!reader->code) check(reader, into);
}

/* --- the memory block --- */

/* Reads the needs of graphs as far as records have them: names, arenas and bounds. */
static uint64_t read_needs(reader *reader, item value, graph_record **needs, size_t *count) {
    static const char *const NAMES[] = {"alignment", "graphs", NULL}, *const GRAPH[] = {"name", "arenas", "bound",
                                                                                        NULL};
    fields block = fields_of(reader, NULL, "memory block", 0, value, NAMES);
    uint64_t alignment = field_count(&block, "alignment");
    slice items;
    *needs = field_rows(&block, "graphs", sizeof **needs, 4, &items, count);
    if (!alignment) malformed(reader, "memory block: an alignment of 0 bytes");
    for (size_t at = 0; at < *count && !reader->code; at++) {
        graph_record *need = &(*needs)[at];
        item row = msgpack_take(&items);
        fields graph = {.reader = reader, .parent = &block, .place = "graphs", .number = at + 1, .names = GRAPH};
        if (row.kind != LIST || row.number != 3)
            malformed(reader, "memory block: graphs[%zu] is no name, arenas and bound", at);
        for (size_t part = 0; part < 3 && !reader->code; part++) graph.values[part] = msgpack_take(&row.content);
        need->info.name = field_text(&graph, "name");
        need->arenas = field_sizes(&graph, "arenas", &need->arena_count);
        need->arena_bound_bytes = field_count(&graph, "bound");
        for (size_t arena = 0; arena < need->arena_count; arena++)
            if (!need->arenas[arena] || need->arenas[arena] > LARGEST_ARENA_BYTES)
                malformed(reader, "memory block: an arena of no bytes, or of more than any device has");
        if (need->arena_bound_bytes > total(need->arenas, need->arena_count))
            malformed(reader, "memory block: arenas that are smaller than their bound");
    }
    return alignment;
}

static bool same_needs(const graph_record *one, const graph_record *other, size_t count) {
    for (; count > 0; count--, one++, other++)
        if (strcmp(one->info.name, other->info.name) || one->arena_count != other->arena_count ||
            one->arena_bound_bytes != other->arena_bound_bytes ||
            (one->arena_count && memcmp(one->arenas, other->arenas, one->arena_count * sizeof *one->arenas)))
            return false;
    return true;
}

/* --- the head of a file --- */

uint32_t little_endian(const uint8_t *bytes) {
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

size_t aligned(size_t offset) {
    return (offset + 63) / 64 * 64;
}

item checked_part(reader *reader, slice file, size_t place, size_t nbytes, size_t most, const uint8_t *digest,
                  const char *what) {
    const char *path = reader->path;
    uint8_t found[32];
    if (reader->code) return (item){MISSING, 0, {NULL, 0}};
    if (nbytes > most) {
        malformed(reader, "its %s has %zu bytes, at most %zu are allowed", what, nbytes, most);
    } else if (nbytes > file.nbytes - place) {
        reader->code = fail(reader->error, GPUTUNE_TRUNCATED, "%s: the file ends after %zu bytes, within its %s", path,
                            file.nbytes, what);
    } else {
        slice part = {file.data + place, nbytes};
        sha256(part.data, part.nbytes, found);
        if (memcmp(found, digest, sizeof found))
            reader->code = fail(reader->error, GPUTUNE_CHECKSUM_MISMATCH, "%s: its %s is damaged; make it again", path,
                                what);
        else if (!msgpack_valid(part)) malformed(reader, "its %s is no MsgPack", what);
        else return msgpack_first(part);
    }
    return (item){MISSING, 0, {NULL, 0}};
}

static void check_prefix(reader *reader, slice file) {
    gputune_error *error = reader->error;
    const char *path = reader->path;
    if (file.nbytes >= 8 && !memcmp(file.data, "GPUTPKG", 8))
        reader->code = fail(error, GPUTUNE_NOT_A_CONTEXT, "%s: a package of contexts within another file", path);
    else if (!file.nbytes || memcmp(file.data, "GPUTUNE", file.nbytes < 8 ? file.nbytes : 8))
        reader->code = fail(error, GPUTUNE_NOT_A_CONTEXT, "%s: not a gputune context binary", path);
    else if (file.nbytes >= PREFIX_BYTES && little_endian(file.data + 8) != VERSION)
        reader->code = fail(error, GPUTUNE_UNSUPPORTED_FORMAT_VERSION,
                            "%s: format version %u, this runtime reads %d; generate the context again", path,
                            little_endian(file.data + 8), VERSION);
    else if (file.nbytes < PREFIX_BYTES + MEMORY_PREFIX_BYTES)
        reader->code = fail(error, GPUTUNE_TRUNCATED, "%s: the file ends after %zu bytes", path, file.nbytes);
}

void read_head(reader *reader, slice file, context *context, size_t *end) {
    size_t block = PREFIX_BYTES + MEMORY_PREFIX_BYTES, count;
    graph_record *needs;
    check_prefix(reader, file);
    if (reader->code) return;
    uint32_t block_bytes = little_endian(file.data + PREFIX_BYTES), header_bytes = little_endian(file.data + 12);
    item memory = checked_part(reader, file, block, block_bytes, LARGEST_BLOCK, file.data + PREFIX_BYTES + 4,
                               "memory block");
    if (reader->code) return;
    uint64_t alignment = read_needs(reader, memory, &needs, &count);
    item header = checked_part(reader, file, block + block_bytes, header_bytes, LARGEST_HEADER, file.data + 16,
                               "header");
    if (reader->code) return;
    read_header(reader, header, context);
    context->path = reader->path;
    *end = block + block_bytes + header_bytes;
    if (!reader->code && (alignment != context->device.base_address_alignment_bytes || count != context->graph_count ||
                          !same_needs(needs, context->graphs, count)))
        malformed(reader, "the memory block and the header disagree");
}

void place_sections(reader *reader, slice file, size_t head_bytes, section *sections, size_t count) {
    size_t start = aligned(head_bytes);
    uint64_t end = 0;
    for (size_t at = 0; at < count && !reader->code; at++) {
        if (sections[at].offset % 64 || sections[at].offset < end)
            malformed(reader, "section %zu overlaps the one before or is not aligned", at);
        end = sections[at].offset + sections[at].nbytes;
    }
    if (reader->code) return;
    if (start > file.nbytes || end > file.nbytes - start)
        reader->code = fail(reader->error, GPUTUNE_TRUNCATED, "%s: %zu bytes, it tells of more", reader->path,
                            file.nbytes);
    else if (end < file.nbytes - start)
        malformed(reader, "%zu bytes behind the last section", (size_t)(file.nbytes - start - end));
    for (size_t at = 0; at < count && !reader->code; at++) sections[at].data = file.data + start + sections[at].offset;
}

void read_context(reader *reader, slice file, context *context) {
    size_t head_bytes = 0;
    read_head(reader, file, context, &head_bytes);
    place_sections(reader, file, head_bytes, context->sections, context->section_count);
}
