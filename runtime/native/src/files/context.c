/* The head of a context binary: memory block and header, as format.py, memory_need.py and records.py have them. */
#include "reading.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PREFIX_BYTES = 48, FRONT_BYTES = 84 };

/* --- what a row must be --- */

void check_identity(reader *reader, void *row) {
    uint64_t alignment = ((identity *)row)->base_address_alignment_bytes;
    if (!alignment || alignment & (alignment - 1)) MALFORMED(reader, "device identity: alignment is no power of two");
}

void check_tensor(reader *reader, void *row) {
    gputune_tensor *tensor = &((tensor_record *)row)->shown;
    uint64_t nbytes = 0;
    for (size_t i = 0; DTYPES[i] != NULL; i++)
        if (DTYPES[i] == tensor->dtype) nbytes = DTYPE_BYTES[i];
    for (size_t i = 0; i < tensor->rank; i++)
        nbytes = nbytes && tensor->shape[i] <= LARGEST_TENSOR_BYTES / nbytes ? nbytes * tensor->shape[i] : 0;
    tensor->nbytes = (size_t)nbytes;
    if (!nbytes || tensor->nbytes != nbytes)
        MALFORMED(reader, "tensor '%s': its shape is empty or too large", tensor->name);
}

void read_argument(reader *reader, item value, void *row) {
    argument *into = row;
    into->is_buffer = value.kind == MAP;
    into->scalar = (int32_t)value.number;
    bool fits = (uint64_t)(int64_t)into->scalar == value.number && (into->scalar < 0) == (value.kind == NEGATIVE);
    if (into->is_buffer) read_row(reader, &ARGUMENT, value, into);
    else if (!fits || (value.kind != COUNT && value.kind != NEGATIVE))
        MALFORMED(reader, "arguments[%zu] is neither a buffer nor a 32-bit number", reader->place);
}

/* The tensors as gputune_graph_info has them. */
static const gputune_tensor *shown(reader *reader, const tensor_record *tensors, size_t count) {
    gputune_tensor *made = rows(reader, &count, sizeof *made);
    for (size_t i = 0; i < count && made != NULL; i++) made[i] = tensors[i].shown;
    if (made != NULL && !all_differ(reader, made, count, sizeof *made, by_name))
        MALFORMED(reader, "two tensors of a graph have the same name");
    return made;
}

/* Tensors by their names: a file may have very many. */
typedef struct sorted_tensors {
    const gputune_tensor **at;
    size_t count;
} sorted_tensors;

static sorted_tensors sort_tensors(reader *reader, const gputune_tensor *tensors, size_t count) {
    const gputune_tensor **sorted = rows(reader, &count, sizeof *sorted);
    for (size_t i = 0; i < count; i++) sorted[i] = &tensors[i];
    if (count) qsort(sorted, count, sizeof *sorted, by_name);
    return (sorted_tensors){sorted, count};
}

/* NULL where there is none. */
static const gputune_tensor *tensor_of(sorted_tensors tensors, const char *name) {
    const char *const *const row = &name;
    const gputune_tensor **found =
        tensors.count ? bsearch(&row, tensors.at, tensors.count, sizeof *tensors.at, by_name) : NULL;
    return found == NULL ? NULL : *found;
}

static void check_pair(reader *reader, const state_record *states, const state_pair *pair, sorted_tensors inputs,
                       sorted_tensors outputs) {
    const gputune_tensor *one = tensor_of(inputs, pair->input), *other = tensor_of(outputs, pair->output);
    if (one == NULL || other == NULL || one->dtype != other->dtype || one->rank != other->rank ||
        memcmp(one->shape, other->shape, one->rank * sizeof *one->shape))
        MALFORMED(reader, "states: '%s' and '%s' are no pair of one dtype and shape", pair->input, pair->output);
    else if (pair->axis != FIXED && (pair->axis < 0 || (uint64_t)pair->axis >= one->rank ||
                                     one->shape[pair->axis] != states->capacity))
        MALFORMED(reader, "states: '%s' has no such axis of %zu rows", pair->input, states->capacity);
}

/* Whether there are a length, tokens and a capacity exactly where rows grow. */
static bool lengths_fit(const state_record *states, sorted_tensors inputs) {
    bool grows = false;
    for (size_t i = 0; i < states->pair_count; i++) grows |= states->pairs[i].axis != FIXED;
    if (!grows)
        return !*states->length && !states->tokens && !states->capacity && !states->token_input_count &&
               !states->token_output_count;
    const gputune_tensor *length = tensor_of(inputs, states->length);
    return states->tokens && states->tokens <= states->capacity && states->capacity <= LARGEST_CAPACITY &&
           length != NULL && !strcmp(length->dtype, "int32") && length->nbytes == sizeof(int32_t);
}

static void check_tokens(reader *reader, const state_record *states, bool outputs,
                         sorted_tensors tensors) {
    const token_axis *tokens = outputs ? states->token_outputs : states->token_inputs;
    const size_t count = outputs ? states->token_output_count : states->token_input_count;
    for (size_t i = 0; i < count; i++) {
        const gputune_tensor *found = tensor_of(tensors, tokens[i].name);
        if (found == NULL || tokens[i].axis >= found->rank || found->shape[tokens[i].axis] != states->tokens)
            MALFORMED(reader, "states: '%s' has no such axis of %zu tokens", tokens[i].name, states->tokens);
    }
}

/* Each input or output has one part in a state. */
static void check_once(reader *reader, const state_record *states, bool outputs) {
    const token_axis *tokens = outputs ? states->token_outputs : states->token_inputs;
    const size_t token_count = outputs ? states->token_output_count : states->token_input_count;
    size_t count = states->pair_count + token_count + 1, at = 0;
    const char **names = rows(reader, &count, sizeof *names);
    if (names == NULL) return;
    for (size_t i = 0; i < states->pair_count; i++)
        names[at++] = outputs ? states->pairs[i].output : states->pairs[i].input;
    for (size_t i = 0; i < token_count; i++) names[at++] = tokens[i].name;
    if (!outputs) names[at++] = states->length;
    if (!all_differ(reader, names, at, sizeof *names, by_name)) MALFORMED(reader, "states name a tensor twice");
}

static void check_states(reader *reader, const state_record *states, const gputune_graph_info *info) {
    if (reader->code || states->length == NULL) return; /* or it has none */
    const sorted_tensors inputs = sort_tensors(reader, info->inputs, info->input_count),
                         outputs = sort_tensors(reader, info->outputs, info->output_count);
    if (!states->pair_count) MALFORMED(reader, "states without a pair");
    for (size_t i = 0; i < states->pair_count; i++) check_pair(reader, states, &states->pairs[i], inputs, outputs);
    if (!reader->code && !lengths_fit(states, inputs))
        MALFORMED(reader, "states whose length, tokens and capacity do not fit");
    check_tokens(reader, states, false, inputs);
    check_tokens(reader, states, true, outputs);
    check_once(reader, states, false);
    check_once(reader, states, true);
}

void check_graph(reader *reader, void *row) {
    graph_record *graph = row;
    gputune_graph_info *info = &graph->info;
    uint64_t nbytes = 0;
    for (size_t i = 0; i < graph->arena_count; i++) {
        if (!graph->arenas[i] || graph->arenas[i] > LARGEST_ARENA_BYTES)
            MALFORMED(reader, "graph '%s': an arena is empty or larger than any device", info->name);
        nbytes = nbytes + graph->arenas[i] < nbytes ? UINT64_MAX : nbytes + graph->arenas[i];
    }
    info->arena_bytes = (size_t)nbytes;
    if (graph->arena_bound_bytes > nbytes || info->arena_bytes != nbytes)
        MALFORMED(reader, "graph '%s': its arenas are smaller than their bound, or too large", info->name);
    if (graph->counter_bytes % COUNTER_BYTES)
        MALFORMED(reader, "graph '%s': %zu bytes of counters, not a multiple of %d", info->name, graph->counter_bytes,
                  (int)COUNTER_BYTES);
    info->inputs = shown(reader, graph->inputs, info->input_count);
    info->outputs = shown(reader, graph->outputs, info->output_count);
    check_states(reader, &graph->states, info);
}

void check_section(reader *reader, void *row) {
    const section *section = row;
    const size_t least = section->inflated / (size_t)MOST_INFLATED + (section->inflated % (size_t)MOST_INFLATED != 0);
    if (section->inflated && (!strcmp(section->kind, "weights") || least > section->nbytes))
        MALFORMED(reader, "sections[%zu]: %zu bytes of %.20s cannot become %zu", reader->place, section->nbytes,
                  section->kind, section->inflated);
}

void check_requirements(reader *reader, void *row) {
    const context *context = row;
    for (size_t i = 0; i < context->require_count; i++) {
        const char *const *known = FEATURES;
        while (*known != NULL && strcmp(*known, context->requires[i])) known++;
        if (*known == NULL)
            refuse(reader, GPUTUNE_UNSUPPORTED_FORMAT_VERSION, "it requires '%s', which this runtime does not know; "
                   "use a newer runtime, or generate the context again", context->requires[i]);
    }
}

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
    for (size_t i = 0; i < launch->write_count; i++)
        if (launch->writes[i] >= launch->argument_count || !launch->arguments[launch->writes[i]].is_buffer)
            MALFORMED(reader, "operation '%s': it writes an argument that is no buffer", name);
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
        else if (each->offset % context->device.base_address_alignment_bytes ||
                 (each->offset && each->kind <= OUTPUT) || (launch->offsets && each->offset % OFFSET_BYTES))
            MALFORMED(reader, "operation '%s': arguments[%zu] has an offset that is not allowed", name, i);
        else if (!persistent && each->kind >= COUNTERS)
            MALFORMED(reader, "operation '%s' is not persistent and reads counters or a status", name);
        else if (persistent && constant && read[place] != graph)
            MALFORMED(reader, "operation '%s' reads weights that no plain launch reads", name);
        else if (constant) read[place] = graph;
    }
}

static void check_kind(reader *reader, const context *context, size_t place, const char *kind) {
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
        check_kind(reader, context, context->programs[i].binary, "binary");
        check_kind(reader, context, context->programs[i].source, "source");
    }
    for (size_t i = 0; i < context->weight_count; i++) check_kind(reader, context, context->weights[i], "weights");
    if (!context->graph_count ||
        !all_differ(reader, context->graphs, context->graph_count, sizeof *context->graphs, by_name))
        MALFORMED(reader, "graphs must have different names, and there must be one");
    for (size_t i = 0; i < context->packing_count && !reader->code; i++) {
        const graph_record *graph = &context->packing[i];
        if (graph->arena_count != 1 || graph->info.input_count || graph->info.output_count || graph->persistent_count ||
            graph->counter_bytes || graph->states.pair_count)
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
        refuse(reader, GPUTUNE_TRUNCATED, "the file ends after %zu bytes, within its %s; " CUT_SHORT, file.nbytes,
               what);
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
        refuse(reader, GPUTUNE_TRUNCATED, "it has %zu bytes, but describes more; " CUT_SHORT, file.nbytes);
    else if (end < file.nbytes - start)
        MALFORMED(reader, "%zu bytes after the last section", (size_t)(file.nbytes - start - end));
    for (size_t i = 0; i < count && !reader->code; i++) sections[i].at = file.at + start + sections[i].offset;
}

static item member(item map, const char *name) {
    item found = {MISSING, 0, {NULL, 0}};
    for (uint64_t left = map.kind == MAP ? map.number : 0; left > 0; left--) {
        const item key = msgpack_take(&map.content), value = msgpack_take(&map.content);
        if (key.kind == TEXT && is_text(key.content, name)) found = value;
    }
    return found;
}

/* What the configuration says of a graph, which may be nothing. */
static void read_configuration(item graphs, graph_record *graph) {
    const item wanted = member(member(graphs, graph->info.name), "queue_recording");
    graph->one_by_one = wanted.kind == BOOL && !wanted.number;
}

/* Says what a file is that is no context. */
static void refuse_other(reader *reader, const uint8_t *begin, size_t nbytes) {
    const char *other = mistaken(begin, nbytes);
    if (nbytes && *begin == ONNX_BEGINS)
        refuse(reader, GPUTUNE_NOT_A_CONTEXT, "this is an ONNX file and no context binary; `gputune "
               "context-binary-generator` makes a context of a model, and EPContext nodes lie next to theirs");
    else
        refuse(reader, GPUTUNE_NOT_A_CONTEXT, "not a gputune context binary%s%s", *other ? ": it " : "", other);
}

size_t read_head(reader *reader, extent file, context *context) {
    const size_t begin = file.nbytes < FRONT_BYTES ? file.nbytes : FRONT_BYTES;
    const uint8_t *data = bytes_of(reader, part_of(file, 0, begin));
    memory memory = {0, NULL, 0};
    if (data == NULL) return 0;
    if (begin >= 8 && !memcmp(data, "GPUTPKG", 8))
        refuse(reader, GPUTUNE_NOT_A_CONTEXT, "a package of contexts within another file");
    else if (!begin || memcmp(data, "GPUTUNE", begin < 8 ? begin : 8))
        refuse_other(reader, data, begin);
    else if (begin >= PREFIX_BYTES && little_endian(data + 8) != FORMAT_VERSION &&
             little_endian(data + 8) != REQUIRING_VERSION)
        refuse(reader, GPUTUNE_UNSUPPORTED_FORMAT_VERSION, "format version %u, this runtime reads %d and %d; make it "
               "again", little_endian(data + 8), (int)FORMAT_VERSION, (int)REQUIRING_VERSION);
    else if (begin < FRONT_BYTES)
        refuse(reader, GPUTUNE_TRUNCATED, "the file ends after %zu bytes; " CUT_SHORT, begin);
    if (reader->code) return 0;
    size_t blocks = little_endian(data + PREFIX_BYTES), headers = little_endian(data + 12); /* their bytes */
    const uint8_t *digest = data + PREFIX_BYTES + 4;
    const size_t most_block = (size_t)LARGEST_MEMORY_BLOCK_BYTES, most_header = (size_t)LARGEST_HEADER_BYTES;
    item block = checked_part(reader, file, FRONT_BYTES, blocks, most_block, digest, "memory block");
    read_row(reader, &MEMORY, block, &memory);
    item header = checked_part(reader, file, FRONT_BYTES + blocks, headers, most_header, data + 16, "header");
    read_row(reader, &REQUIREMENTS, header, context); /* first: without a feature the rest may look malformed */
    read_row(reader, &HEADER, header, context);
    if (!reader->code) check(reader, context);
    const item configuration = member(header, "configuration"), graphs = member(configuration, "graphs"),
               op_packages = member(configuration, "op_packages");
    context->by_elements = op_packages.kind == LIST && !op_packages.number;
    for (size_t i = 0; i < context->graph_count && !reader->code; i++) read_configuration(graphs, &context->graphs[i]);
    if ((context->packing_count || context->require_count) != (little_endian(data + 8) == REQUIRING_VERSION))
        MALFORMED(reader, "contexts of version %d, and no others, have packings or require features",
                  (int)REQUIRING_VERSION);
    if (!reader->code && !agrees(&memory, context)) MALFORMED(reader, "the memory block and the header disagree");
    context->path = reader->path;
    return FRONT_BYTES + blocks + headers;
}
