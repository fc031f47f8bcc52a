/* The head of a context binary: memory block and header, as format.py, memory_need.py and records.py have them. */
#include "reading.h"

#include <stdio.h>
#include <string.h>

enum { VERSION = 3, COMPACT_VERSION = 4, DEEPEST_CONFIGURATION = 32, COUNTER_BYTES = 4 };
enum { PREFIX_BYTES = 48, FRONT_BYTES = 84, LARGEST_BLOCK = 1 << 20, LARGEST_HEADER = 64 << 20 };
#define LARGEST_ARENA_BYTES ((uint64_t)1 << 56)
#define LARGEST_TENSOR_BYTES ((uint64_t)1 << 40)

/* --- forms --- */

static void check_identity(reader *reader, void *row) {
    uint64_t alignment = ((identity *)row)->base_address_alignment_bytes;
    if (!alignment || alignment & (alignment - 1)) MALFORMED(reader, "device identity: alignment is no power of two");
}

static const char *const DEVICE_TYPES[] = {"cpu", "gpu", "accelerator", NULL};
#define OF(kind, member) {#member, kind, offsetof(identity, member), .names = DEVICE_TYPES}
const form IDENTITY = {
    .what = "device identity", .is_closed = true, .check = check_identity, .fields = (const field[]){
    OF(A_TEXT, platform), OF(A_TEXT, platform_version), OF(A_TEXT, name), OF(A_TEXT, vendor), OF(A_TEXT, driver),
    OF(A_TEXT, driver_version), OF(A_TEXT, device_version), OF(A_NAME, device_type), OF(A_COUNT, compute_units),
    OF(A_COUNT, max_work_group_size), OF(THREE, max_work_item_sizes), OF(A_COUNT, local_memory_bytes),
    OF(A_COUNT, global_memory_bytes), OF(A_COUNT, max_allocation_bytes), OF(A_COUNT, base_address_alignment_bytes),
    OF(A_COUNT, preferred_float_width), {"extensions", TEXTS, MANY(identity, extensions, extension_count)}, {0}}};

static const char *const DTYPES[] = {"float32", "int64", "int32", "int16", "int8", "uint64", "uint32", "uint16",
                                     "uint8", "bool", NULL};
static const uint8_t DTYPE_BYTES[] = {4, 8, 4, 2, 1, 8, 4, 2, 1, 1};

static void check_tensor(reader *reader, void *row) {
    gputune_tensor *tensor = row;
    uint64_t nbytes = 0;
    for (size_t i = 0; DTYPES[i] != NULL; i++)
        if (DTYPES[i] == tensor->dtype) nbytes = DTYPE_BYTES[i];
    for (size_t i = 0; i < tensor->rank; i++)
        nbytes = nbytes && tensor->shape[i] <= LARGEST_TENSOR_BYTES / nbytes ? nbytes * tensor->shape[i] : 0;
    tensor->nbytes = (size_t)nbytes;
    if (!nbytes || tensor->nbytes != nbytes)
        MALFORMED(reader, "tensor '%s': its shape is empty or too large", tensor->name);
}

static const form TENSOR = {
    .what = "tensor", .row_bytes = sizeof(gputune_tensor), .least_bytes = 30, .check = check_tensor,
    .fields = (const field[]){
        {"name", A_TEXT, IN(gputune_tensor, name)},
        {"dtype", A_NAME, IN(gputune_tensor, dtype), .names = DTYPES},
        {"shape", DIMENSIONS, MANY(gputune_tensor, shape, rank), .most = GPUTUNE_MOST_DIMENSIONS}, {0}}};
static const char *const MEMORY_TYPES[] = {"raw", "memhandle", NULL};
static const form TYPED = { /* a tensor once more, for what gputune_tensor does not have */
    .what = "tensor", .row_bytes = sizeof(memory_type), .least_bytes = 30,
    .fields = (const field[]){{"memory_type", A_CHOICE, .names = MEMORY_TYPES}, {0}}};

static const char *const KINDS[] = {"input", "output", "arena", "weights", "packed", "counters", "status", NULL};
static const form BUFFER = {.what = "buffer", .fields = (const field[]){
    {"kind", A_CHOICE, IN(argument, kind), .names = KINDS}, {"index", A_SIZE, IN(argument, index)},
    {"offset", A_SIZE, IN(argument, offset)}, {"nbytes", A_SIZE, IN(argument, nbytes)}, {0}}};

static void read_argument(reader *reader, item value, void *row) {
    argument *into = row;
    into->is_buffer = value.kind == MAP;
    into->scalar = (int32_t)value.number;
    bool fits = (uint64_t)(int64_t)into->scalar == value.number && (into->scalar < 0) == (value.kind == NEGATIVE);
    if (into->is_buffer) read_row(reader, &BUFFER, value, into);
    else if (!fits || (value.kind != COUNT && value.kind != NEGATIVE))
        MALFORMED(reader, "arguments[%zu] is neither a buffer nor a 32-bit number", reader->place);
}

static const form ARGUMENT = {.row_bytes = sizeof(argument), .least_bytes = 1, .read = read_argument};
static const form LAUNCH = {
    .what = "launch", .row_bytes = sizeof(launch), .least_bytes = 64, .fields = (const field[]){
        {"operation", A_TEXT, IN(launch, operation)}, {"task", A_TEXT, IN(launch, task)},
        {"program", A_SIZE, IN(launch, program)}, {"entry", A_TEXT, IN(launch, entry)},
        {"global_size", DIMENSIONS, MANY(launch, global_size, dimensions), .most = 3},
        {"local_size", DIMENSIONS, MANY(launch, local_size, dimensions), .most = 3},
        {"arguments", ROWS, MANY(launch, arguments, argument_count), .form = &ARGUMENT}, {0}}};

static void check_graph(reader *reader, void *row) {
    graph_record *graph = row;
    const gputune_graph_info *info = &graph->info;
    uint64_t nbytes = 0;
    for (size_t i = 0; i < graph->arena_count; i++) {
        if (!graph->arenas[i] || graph->arenas[i] > LARGEST_ARENA_BYTES)
            MALFORMED(reader, "graph '%s': an arena is empty or larger than any device", info->name);
        nbytes = nbytes + graph->arenas[i] < nbytes ? UINT64_MAX : nbytes + graph->arenas[i];
    }
    graph->info.arena_bytes = (size_t)nbytes;
    if (graph->arena_bound_bytes > nbytes || info->arena_bytes != nbytes)
        MALFORMED(reader, "graph '%s': its arenas are smaller than their bound, or too large", info->name);
    if (graph->counter_bytes % COUNTER_BYTES)
        MALFORMED(reader, "graph '%s': %zu bytes of counters, not a multiple of %d", info->name, graph->counter_bytes,
                  COUNTER_BYTES);
    if (!all_differ(reader, info->inputs, info->input_count, sizeof *info->inputs, by_name) ||
        !all_differ(reader, info->outputs, info->output_count, sizeof *info->outputs, by_name))
        MALFORMED(reader, "graph '%s': two tensors have the same name", info->name);
}

#define G(name, kind, member) {name, kind, IN(graph_record, member), .optional = true}
#define GS(name, kind, member, count, ...) {name, kind, MANY(graph_record, member, count), __VA_ARGS__}
static const form GRAPH = {
    .what = "graph", .row_bytes = sizeof(graph_record), .least_bytes = 47, .check = check_graph,
    .fields = (const field[]){
        {"name", A_TEXT, IN(graph_record, info.name)},
        GS("inputs", ROWS, info.inputs, info.input_count, .form = &TENSOR),
        GS("inputs", ROWS, input_handles, info.input_count, .form = &TYPED),
        GS("outputs", ROWS, info.outputs, info.output_count, .form = &TENSOR),
        GS("outputs", ROWS, output_handles, info.output_count, .form = &TYPED),
        GS("launches", ROWS, launches, info.launch_count, .form = &LAUNCH),
        GS("persistent", ROWS, persistent, persistent_count, .form = &LAUNCH, .optional = true),
        GS("arena_bytes", SIZES, arenas, arena_count, .optional = false),
        G("counter_bytes", A_SIZE, counter_bytes), G("arena_bound_bytes", A_COUNT, arena_bound_bytes), {0}}};

static const form PROGRAM = {
    .what = "program", .row_bytes = sizeof(program_entry), .least_bytes = 26, .fields = (const field[]){
        {"binary", A_SIZE, IN(program_entry, binary)}, {"source", A_SIZE, IN(program_entry, source)},
        {"options", A_TEXT, IN(program_entry, options)}, {0}}};
static const form SECTION = {
    .what = "section", .row_bytes = sizeof(section), .least_bytes = 31, .fields = (const field[]){
        {"kind", A_TEXT, IN(section, kind)}, {"offset", A_COUNT, IN(section, offset)},
        {"length", A_SIZE, IN(section, nbytes)}, {"sha256", A_TEXT, IN(section, sha256)}, {0}}};
static const form HEADER = {.what = "header", .fields = (const field[]){
    {"graphs", ROWS, MANY(context, graphs, graph_count), .form = &GRAPH},
    {"packing", ROWS, MANY(context, packing, packing_count), .form = &GRAPH, .optional = true},
    {"programs", ROWS, MANY(context, programs, program_count), .form = &PROGRAM},
    {"sections", ROWS, MANY(context, sections, section_count), .form = &SECTION},
    {"weights", SIZES, MANY(context, weights, weight_count)}, {"device", A_ROW, IN(context, device), .form = &IDENTITY},
    {"tier", A_TEXT, IN(context, tier)}, {"computes", A_FLAG, IN(context, computes)}, {"versions", A_MAP, .most = 0},
    {"configuration", A_MAP, .most = DEEPEST_CONFIGURATION}, {0}}};

typedef struct need { /* of a graph, from the memory block */
    const char *name;
    size_t *arenas, arena_count;
    uint64_t bound;
} need;
typedef struct memory {
    uint64_t alignment;
    need *graphs;
    size_t graph_count;
} memory;
static const form NEED = {
    .what = "memory block", .row_bytes = sizeof(need), .least_bytes = 4, .is_list = true, .fields = (const field[]){
        {"name", A_TEXT, IN(need, name)}, {"arenas", SIZES, MANY(need, arenas, arena_count)},
        {"bound", A_COUNT, IN(need, bound)}, {0}}};
static const form MEMORY = {.what = "memory block", .fields = (const field[]){
    {"alignment", A_COUNT, IN(memory, alignment)},
    {"graphs", ROWS, MANY(memory, graphs, graph_count), .form = &NEED}, {0}}};

/* --- what ties rows together --- */

bool sizes_fit(const launch *launch, const identity *device, char *why, size_t nbytes) {
    uint64_t items = 1;
    for (size_t i = 0; i < launch->dimensions; i++) {
        size_t global = launch->global_size[i], local = launch->local_size[i];
        if (!global || !local || global % local)
            return snprintf(why, nbytes, "local size %zu does not divide global size %zu", local, global), false;
        if (local > device->max_work_item_sizes[i])
            return snprintf(why, nbytes, "local size %zu in dimension %zu, the device allows %llu", local, i,
                            (unsigned long long)device->max_work_item_sizes[i]), false;
        items = local > UINT64_MAX / items ? UINT64_MAX : items * local;
    }
    if (!launch->dimensions) return snprintf(why, nbytes, "sizes need 1 to 3 dimensions"), false;
    if (items > device->max_work_group_size)
        return snprintf(why, nbytes, "work-group of %llu work-items, the device allows %llu", (unsigned long long)items,
                        (unsigned long long)device->max_work_group_size), false;
    return true;
}

/* How large the buffer of an argument is; 0 where there is none. */
static size_t buffer_bytes(const context *context, const graph_record *graph, const argument *of) {
    size_t at = of->index;
    switch (of->kind) {
    case INPUT: return at < graph->info.input_count ? graph->info.inputs[at].nbytes : 0;
    case OUTPUT: return at < graph->info.output_count ? graph->info.outputs[at].nbytes : 0;
    case ARENA: return at < graph->arena_count ? graph->arenas[at] : 0;
    case WEIGHTS: return at < context->weight_count ? context->sections[context->weights[at]].nbytes : 0;
    case PACKED: return at < context->packing_count ? context->packing[at].info.arena_bytes : 0;
    case COUNTERS: return at == 0 ? graph->counter_bytes : 0;
    default: return at == 0 ? STATUS_BYTES : 0;
    }
}

/* read: of each weights, and of what is packed behind them, the last graph that plain launches read it in; persistent
 * ones read no others. */
static void check_launch(reader *reader, const context *context, const graph_record *graph, launch *launch,
                         bool persistent, const graph_record **read) {
    const char *name = launch->operation;
    char why[120];
    if (launch->program >= context->program_count)
        MALFORMED(reader, "operation '%s': there is no program %zu", name, launch->program);
    if (!sizes_fit(launch, &context->device, why, sizeof why)) MALFORMED(reader, "operation '%s': %s", name, why);
    for (size_t i = 0; i < launch->argument_count && !reader->code; i++) {
        const argument *each = &launch->arguments[i];
        if (!each->is_buffer) continue;
        size_t nbytes = buffer_bytes(context, graph, each);
        const bool constant = each->kind == WEIGHTS || each->kind == PACKED;
        const size_t place = each->index + (each->kind == PACKED ? context->weight_count : 0);
        launch->counts = launch->counts || each->kind == COUNTERS;
        launch->yields = launch->yields || each->kind == STATUS;
        if (!each->nbytes || each->nbytes > nbytes || each->offset > nbytes - each->nbytes)
            MALFORMED(reader, "operation '%s': arguments[%zu] lies outside its buffer", name, i);
        else if (each->offset % context->device.base_address_alignment_bytes || (each->offset && each->kind <= OUTPUT))
            MALFORMED(reader, "operation '%s': arguments[%zu] has an offset that is not allowed", name, i);
        else if (!persistent && each->kind >= COUNTERS)
            MALFORMED(reader, "operation '%s' is not persistent and reads counters or a status", name);
        else if (persistent && constant && read[place] != graph)
            MALFORMED(reader, "operation '%s' reads weights that no plain launch reads", name);
        else if (constant) read[place] = graph;
    }
}

static void check_section(reader *reader, const context *context, size_t place, const char *kind) {
    if (place >= context->section_count || strcmp(context->sections[place].kind, kind))
        MALFORMED(reader, "section %zu is no %s section", place, kind);
}

static void check_launches(reader *reader, const context *context, const graph_record *graph,
                           const graph_record **read) {
    for (size_t at = 0; at < graph->info.launch_count && !reader->code; at++)
        check_launch(reader, context, graph, (launch *)&graph->launches[at], false, read);
    for (size_t at = 0; at < graph->persistent_count && !reader->code; at++)
        check_launch(reader, context, graph, (launch *)&graph->persistent[at], true, read);
}

static void check(reader *reader, const context *context) {
    struct context unpacked = *context;
    unpacked.packing_count = 0; /* what packs reads nothing that is packed */
    size_t count = context->weight_count + context->packing_count;
    const graph_record **read = rows(reader, &count, sizeof *read);
    for (size_t i = 0; i < context->program_count; i++) {
        check_section(reader, context, context->programs[i].binary, "binary");
        check_section(reader, context, context->programs[i].source, "source");
    }
    for (size_t i = 0; i < context->weight_count; i++) check_section(reader, context, context->weights[i], "weights");
    if (!context->graph_count ||
        !all_differ(reader, context->graphs, context->graph_count, sizeof *context->graphs, by_name))
        MALFORMED(reader, "graphs must have different names, and there must be one");
    for (size_t i = 0; i < context->packing_count && !reader->code; i++) {
        const graph_record *graph = &context->packing[i];
        if (graph->arena_count != 1 || graph->info.input_count || graph->info.output_count || graph->persistent_count ||
            graph->counter_bytes)
            MALFORMED(reader, "packing '%s' must have one arena, and nothing that only graphs have", graph->info.name);
        check_launches(reader, &unpacked, graph, read);
    }
    for (size_t i = 0; i < context->graph_count && !reader->code; i++)
        check_launches(reader, context, &context->graphs[i], read);
}

static bool agrees(const memory *memory, const context *context) {
    bool same = memory->alignment == context->device.base_address_alignment_bytes &&
                memory->graph_count == context->graph_count;
    for (size_t i = 0; i < memory->graph_count && same; i++) {
        const need *need = &memory->graphs[i];
        const graph_record *graph = &context->graphs[i];
        same = !strcmp(need->name, graph->info.name) && need->bound == graph->arena_bound_bytes &&
               need->arena_count == graph->arena_count &&
               !memcmp(need->arenas, graph->arenas, need->arena_count * sizeof *need->arenas);
    }
    return same;
}

/* --- the head of a file --- */

uint32_t little_endian(const uint8_t *bytes) {
    return (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 | (uint32_t)bytes[3] << 24;
}

uint64_t aligned(uint64_t offset) { return (offset + 63) / 64 * 64; }

const uint8_t *bytes_of(reader *reader, extent part) {
    if (part.data != NULL) return part.data;
    uint8_t *made = reader->code ? NULL : pool_take(&reader->scratch, part.nbytes, 1);
    if (made == NULL) refuse(reader, GPUTUNE_OUT_OF_MEMORY, "out of memory");
    else reader->code = read_source(part.source, reader->path, part.at, made, part.nbytes, reader->error);
    return reader->code ? NULL : made;
}

item checked_part(reader *reader, extent file, size_t place, size_t nbytes, size_t most, const uint8_t *digest,
                  const char *what) {
    const item nothing = {MISSING, 0, {NULL, 0}};
    uint8_t found[32];
    if (reader->code) return nothing;
    if (nbytes > most) MALFORMED(reader, "its %s has %zu bytes, at most %zu are allowed", what, nbytes, most);
    else if (nbytes > file.nbytes - place)
        refuse(reader, GPUTUNE_TRUNCATED, "the file ends after %zu bytes, within its %s", file.nbytes, what);
    slice part = {bytes_of(reader, part_of(file, place, nbytes)), nbytes};
    if (reader->code) return nothing;
    sha256(part.data, part.nbytes, found);
    if (memcmp(found, digest, sizeof found)) reader->code = damaged(file.source, reader->path, what, reader->error);
    else if (!msgpack_valid(part)) MALFORMED(reader, "its %s is not MsgPack", what);
    return reader->code ? nothing : msgpack_first(part);
}

void place_sections(reader *reader, extent file, size_t head_bytes, section *sections, size_t count) {
    uint64_t start = aligned(head_bytes), end = 0;
    for (size_t i = 0; i < count && !reader->code; i++) {
        if (sections[i].offset % 64 || sections[i].offset < end)
            MALFORMED(reader, "section %zu overlaps the one before or is not aligned", i);
        end = sections[i].offset + sections[i].nbytes;
    }
    if (start > file.nbytes || end > file.nbytes - start)
        refuse(reader, GPUTUNE_TRUNCATED, "it has %zu bytes, but describes more", file.nbytes);
    else if (end < file.nbytes - start)
        MALFORMED(reader, "%zu bytes after the last section", (size_t)(file.nbytes - start - end));
    for (size_t i = 0; i < count && !reader->code; i++) sections[i].at = file.at + start + sections[i].offset;
}

size_t read_head(reader *reader, extent file, context *context) {
    const size_t begin = file.nbytes < FRONT_BYTES ? file.nbytes : FRONT_BYTES;
    const uint8_t *data = bytes_of(reader, part_of(file, 0, begin));
    memory memory = {0, NULL, 0};
    if (data == NULL) return 0;
    if (begin >= 8 && !memcmp(data, "GPUTPKG", 8))
        refuse(reader, GPUTUNE_NOT_A_CONTEXT, "a package of contexts within another file");
    else if (!begin || memcmp(data, "GPUTUNE", begin < 8 ? begin : 8))
        refuse(reader, GPUTUNE_NOT_A_CONTEXT, "not a gputune context binary");
    else if (begin >= PREFIX_BYTES && little_endian(data + 8) != VERSION && little_endian(data + 8) != COMPACT_VERSION)
        refuse(reader, GPUTUNE_UNSUPPORTED_FORMAT_VERSION, "format version %u, this runtime reads %d and %d; make it "
               "again", little_endian(data + 8), VERSION, COMPACT_VERSION);
    else if (begin < FRONT_BYTES)
        refuse(reader, GPUTUNE_TRUNCATED, "the file ends after %zu bytes", begin);
    if (reader->code) return 0;
    size_t blocks = little_endian(data + PREFIX_BYTES), headers = little_endian(data + 12); /* their bytes */
    const uint8_t *digest = data + PREFIX_BYTES + 4;
    item block = checked_part(reader, file, FRONT_BYTES, blocks, LARGEST_BLOCK, digest, "memory block");
    read_row(reader, &MEMORY, block, &memory);
    item header = checked_part(reader, file, FRONT_BYTES + blocks, headers, LARGEST_HEADER, data + 16, "header");
    read_row(reader, &HEADER, header, context);
    if (!reader->code) check(reader, context);
    if ((context->packing_count > 0) != (little_endian(data + 8) == COMPACT_VERSION))
        MALFORMED(reader, "contexts of version %d, and no others, have packings", COMPACT_VERSION);
    if (!reader->code && !agrees(&memory, context)) MALFORMED(reader, "the memory block and the header disagree");
    context->path = reader->path;
    return FRONT_BYTES + blocks + headers;
}
