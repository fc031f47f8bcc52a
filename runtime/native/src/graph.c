/* Loads graphs and runs them: everything is allocated and every argument is bound when a graph is loaded; an inference
 * only gives the device its inputs, launches and takes its outputs. As runtime/execution/{executor,tensor_memory}.py. */
#include "graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- launches ------------------------------------------------------------------------------------------------------ */

gputune_code enqueue(gputune_device *device, const bound *kernels, size_t count, cl_event *events,
                     gputune_error *error) {
    for (size_t i = 0; i < count; i++) {
        const bound *one = &kernels[i];
        const cl_int status =
            device->cl.EnqueueNDRangeKernel(device->queue, one->kernel, one->dimensions, NULL, one->global_size,
                                            one->local_size, 0, NULL, events ? &events[i] : NULL);
        if (status)
            return opencl_failed(error, "a launch", status);
    }
    return GPUTUNE_OK;
}

gputune_code launches_needed(gputune_graph *graph, gputune_error *error) {
    const size_t count = graph->record->info.launch_count;
    if (graph->launches)
        return GPUTUNE_OK;
    gputune_code code = load_programs(graph, graph->record->launches, count, graph->strict, true, error);
    bound *bounds = code ? NULL : pool_take(&graph->pool, count, sizeof *bounds);
    if (!code && !bounds)
        code = fail(error, GPUTUNE_OUT_OF_MEMORY, "no memory for %zu launches", count);
    if (!code)
        code = bind_launches(graph, graph->record->launches, count, bounds, error);
    graph->launches = code ? NULL : bounds;
    return code;
}

gputune_code enqueue_launches(gputune_graph *graph, size_t first, gputune_error *error) {
    const gputune_code code = launches_needed(graph, error);
    const size_t count = graph->record->info.launch_count;
    return code ? code : enqueue(graph->device, graph->launches + first, count - first, NULL, error);
}

void warn(gputune_graph *graph, const char *format, ...) {
    char text[GPUTUNE_MESSAGE_BYTES];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    struct warning **end = &graph->warnings;
    while (*end)
        end = &(*end)->next;
    *end = pool_take(&graph->pool, 1, sizeof **end);
    if (*end)
        (*end)->text = pool_text(&graph->pool, text, strlen(text));
}

gputune_code start_inference(gputune_graph *graph, gputune_error *error) {
    if (graph->persistent)
        return persistent_run(graph, error);
    graph->last.launches++;
    graph->total.launches++;
    return enqueue_launches(graph, 0, error);
}

/* --- an inference -------------------------------------------------------------------------------------------------- */

static bool is_output(const gputune_graph *graph, const tensor *tensor) {
    return tensor >= graph->tensors + graph->record->info.input_count;
}

/* The tensor's own memory, allocated where it is not yet. */
static gputune_code own_memory(gputune_graph *graph, tensor *tensor, gputune_error *error) {
    held made = {0};
    if (!tensor->own) {
        const gputune_code code =
            allocate_shared(graph->device, tensor->record->nbytes, &made.memory, &made.host, error);
        tensor->own = code ? NULL : hold(graph->device, &graph->own, made, error);
        if (!tensor->own)
            return code ? code : GPUTUNE_OUT_OF_MEMORY;
        graph->last.allocations++;
    }
    return tensor->place->memory == tensor->own->memory
               ? GPUTUNE_OK
               : use_memory(graph, tensor->place, tensor->own->memory, tensor->record->nbytes, error);
}

/* Has the launches use the memory of a value, or the tensor's own with an input's value in it. */
static gputune_code give(gputune_graph *graph, tensor *tensor, gputune_error *error) {
    gputune_device *device = graph->device;
    gputune_memory *memory = tensor->memory;
    const size_t nbytes = tensor->record->nbytes;
    const bool output = is_output(graph, tensor);
    if (memory && memory->memory) {
        gputune_code code = GPUTUNE_OK;
        if (tensor->place->memory != memory->memory)
            code = use_memory(graph, tensor->place, memory->memory, memory->nbytes, error);
        if (code || memory->coherent || !memory->of_host)
            return code;
        graph->last.maps++;
        return give_to_device(memory, error);
    }
    if (!tensor->own && tensor->for_handles)
        warn(graph, "%s '%s' was prepared for memory handles and is given as an array: %zu bytes are allocated now, and "
                    "copied in every such inference", output ? "output" : "input", tensor->record->name, nbytes);
    const gputune_code code = own_memory(graph, tensor, error);
    if (code || output)
        return code;
    graph->last.writes++;
    graph->last.bytes_copied += nbytes;
    if (tensor->own->host) {
        memcpy(tensor->own->host, tensor->data, nbytes);
        return GPUTUNE_OK;
    }
    const cl_int status =
        device->cl.EnqueueWriteBuffer(device->queue, tensor->own->memory, 0, 0, nbytes, tensor->data, 0, NULL, NULL);
    return status ? opencl_failed(error, "writing a buffer", status) : GPUTUNE_OK;
}

/* Copies an output to where it is wanted; where that takes a command, it is over when the queue is finished. */
static gputune_code take(gputune_graph *graph, tensor *tensor, gputune_error *error) {
    gputune_device *device = graph->device;
    const size_t nbytes = tensor->record->nbytes;
    graph->last.reads++;
    graph->last.bytes_copied += nbytes;
    if (tensor->own->host) {
        memcpy(tensor->data, tensor->own->host, nbytes);
        return GPUTUNE_OK;
    }
    const cl_int status =
        device->cl.EnqueueReadBuffer(device->queue, tensor->own->memory, 0, 0, nbytes, tensor->data, 0, NULL, NULL);
    return status ? opencl_failed(error, "reading a buffer", status) : GPUTUNE_OK;
}

/* What was given to the device becomes the host's again, once the queue is finished. */
static gputune_code give_back(gputune_graph *graph, gputune_error *error) {
    gputune_code code = GPUTUNE_OK;
    for (size_t i = 0; i < graph->tensor_count; i++) {
        gputune_memory *memory = graph->tensors[i].memory;
        if (memory && memory->memory && !memory->coherent && !memory->of_host) {
            const gputune_code failed = give_to_host(memory, code ? NULL : error);
            code = code ? code : failed;
        }
    }
    return code;
}

/* The recorder's stamp of what was done since the last one. */
static void stamp(gputune_graph *graph, enum part part, int64_t tensor, uint64_t *since_ns) {
    if (graph->recorder) {
        const uint64_t now = now_ns();
        record_part(graph->recorder, part, tensor, *since_ns, now);
        *since_ns = now;
    }
}

/* All steps; reads that take commands are enqueued behind the launches, so that there is one wait for everything. */
static gputune_code infer(gputune_graph *graph, gputune_error *error) {
    const size_t inputs = graph->record->info.input_count;
    uint64_t since_ns = graph->recorder ? now_ns() : 0;
    gputune_code code = GPUTUNE_OK;
    for (size_t i = 0; i < graph->tensor_count && !code; i++) {
        code = give(graph, &graph->tensors[i], error);
        stamp(graph, PART_WRITE, i < inputs ? (int64_t)i : -1, &since_ns);
    }
    if (!code)
        code = graph->recorder ? record_launches(graph, error) : start_inference(graph, error);
    stamp(graph, PART_ENQUEUE, -1, &since_ns);
    if (graph->recorder && !code)
        code = finish(graph->device, error);
    stamp(graph, PART_WAIT, -1, &since_ns);
    for (size_t i = inputs; i < graph->tensor_count && !code; i++)
        if (graph->tensors[i].data && !graph->tensors[i].own->host)
            code = take(graph, &graph->tensors[i], error);
    const gputune_code given_back = give_back(graph, code ? NULL : error);
    const gputune_code finished = finish(graph->device, code || given_back ? NULL : error);
    code = code ? code : given_back ? given_back : finished; /* waited for also where it has failed */
    stamp(graph, PART_READ, -1, &since_ns);
    for (size_t i = inputs; i < graph->tensor_count && !code; i++)
        if (graph->tensors[i].data && graph->tensors[i].own->host) {
            code = take(graph, &graph->tensors[i], error);
            stamp(graph, PART_READ, (int64_t)(i - inputs), &since_ns);
        }
    return code;
}

/* --- what is given for it ------------------------------------------------------------------------------------------ */

/* The tensor that a value is for: that of its name, or the one in its place. */
static tensor *named(gputune_graph *graph, const gputune_value *value, size_t place, bool outputs) {
    const gputune_graph_info *info = &graph->record->info;
    tensor *first = graph->tensors + (outputs ? info->input_count : 0);
    const size_t count = outputs ? info->output_count : info->input_count;
    if (place < count && (!value->name || !strcmp(first[place].record->name, value->name)))
        return &first[place];
    for (size_t i = 0; i < count && value->name; i++)
        if (!strcmp(first[i].record->name, value->name))
            return &first[i];
    return NULL;
}

static gputune_code set_values(gputune_graph *graph, const gputune_value *values, size_t count, bool outputs,
                               gputune_error *error) {
    const char *const kind = outputs ? "output" : "input", *const name = graph->record->info.name;
    for (size_t i = 0; i < count; i++) {
        gputune_memory *memory = values[i].memory;
        tensor *tensor = named(graph, &values[i], i, outputs);
        if (!tensor && values[i].name)
            return fail(error, GPUTUNE_INVALID_ARGUMENT, "graph '%s' has no %s '%s'", name, kind, values[i].name);
        if (!tensor || tensor->given)
            return fail(error, GPUTUNE_INVALID_ARGUMENT, "graph '%s' is given too many %ss", name, kind);
        if (!memory == !values[i].data)
            return fail(error, GPUTUNE_INVALID_ARGUMENT, "%s '%s' needs either data or memory", kind,
                        tensor->record->name);
        if (memory && (memory->nbytes < tensor->record->nbytes || memory->device != graph->device))
            return fail(error, GPUTUNE_INVALID_ARGUMENT, "tensor '%s' needs memory of %zu bytes, its handle has %zu%s",
                        tensor->record->name, tensor->record->nbytes, memory->nbytes,
                        memory->device != graph->device ? " on another device" : "");
        tensor->given = true;
        tensor->memory = memory;
        tensor->data = !memory ? values[i].data : memory->memory ? NULL : memory->data;
        if (memory && !memory->memory && !memory->told) {
            memory->told = true;
            warn(graph, "%s '%s' is copied: %s", kind, tensor->record->name, memory->kind);
        }
    }
    return GPUTUNE_OK;
}

static gputune_code check_values(const gputune_graph *graph, gputune_error *error) {
    const tensor *tensors = graph->tensors;
    for (size_t i = 0; i < graph->record->info.input_count; i++)
        if (!tensors[i].given)
            return fail(error, GPUTUNE_INVALID_ARGUMENT, "graph '%s' needs the input '%s'", graph->record->info.name,
                        tensors[i].record->name);
    for (size_t i = graph->record->info.input_count; i < graph->tensor_count; i++)
        for (size_t j = 0; j < graph->tensor_count && tensors[i].memory; j++)
            if (j != i && tensors[j].memory && memories_meet(tensors[i].memory, tensors[j].memory))
                return fail(error, GPUTUNE_INVALID_ARGUMENT, "'%s' and '%s' of graph '%s' would use the same memory, of "
                            "which one is written while the other may still be read", tensors[i].record->name,
                            tensors[j].record->name, graph->record->info.name);
    return GPUTUNE_OK;
}

/* How it ran is counted where it runs. */
static void count_inference(gputune_graph *graph) {
    gputune_counters *total = &graph->total;
    graph->last.inferences = 1;
    total->inferences++;
    total->bytes_copied += graph->last.bytes_copied;
    total->writes += graph->last.writes;
    total->reads += graph->last.reads;
    total->maps += graph->last.maps;
    total->allocations += graph->last.allocations;
}

gputune_code gputune_run(gputune_graph *graph, const gputune_value *inputs, size_t input_count,
                         const gputune_value *outputs, size_t output_count, gputune_error *error) {
    device_take(graph->device);
    for (size_t i = 0; i < graph->tensor_count; i++) {
        graph->tensors[i].given = false;
        graph->tensors[i].data = NULL;
        graph->tensors[i].memory = NULL;
    }
    gputune_code code = set_values(graph, inputs, input_count, false, error);
    if (!code)
        code = set_values(graph, outputs, output_count, true, error);
    if (!code)
        code = check_values(graph, error);
    if (!code) {
        memset(&graph->last, 0, sizeof graph->last);
        if (graph->votes)
            votes_begin(graph->votes, "execute");
        if (graph->recorder)
            record_begin(graph->recorder);
        code = infer(graph, error);
        if (graph->recorder && !code)
            code = record_end(graph, error);
        if (graph->votes)
            votes_end(graph->votes, "execute");
        if (!code)
            count_inference(graph);
    }
    device_leave(graph->device);
    return code;
}

/* --- loading ------------------------------------------------------------------------------------------------------- */

static bool takes(const graph_record *record, const gputune_load_options *options) {
    for (size_t i = 0; i < options->shape_count; i++) {
        const gputune_shape *shape = &options->shapes[i];
        bool found = false;
        for (size_t j = 0; j < record->info.input_count && !found; j++) {
            const gputune_tensor *input = &record->info.inputs[j];
            found = !strcmp(input->name, shape->input) && input->rank == shape->rank &&
                    !memcmp(input->shape, shape->shape, shape->rank * sizeof *shape->shape);
        }
        if (!found)
            return false;
    }
    return true;
}

/* The context and the graph that are to be loaded. */
static gputune_code choose_graph(gputune_graph *graph, const gputune_load_options *options, gputune_error *error) {
    const bool is_package = *gputune_context_name(graph->file, 0);
    const char *const name = options->shape_count ? NULL : options->graph;
    size_t place = 0, found = 0;
    gputune_code code = GPUTUNE_OK;
    if (is_package)
        code = choose_context(graph->file, &graph->device->identity, name, &place, graph->choice, error);
    if (!code && !options->shape_count)
        code = find_graph(graph->file, name, &place, &found, error);
    const size_t last = options->shape_count && !is_package ? gputune_context_count(graph->file) : place + 1;
    for (; !code && place < last; place++, found = 0) {
        code = context_at(graph->file, place, &graph->context, error);
        if (!code && !options->shape_count)
            graph->record = &graph->context->graphs[found];
        for (size_t i = 0; !code && !graph->record && i < graph->context->graph_count; i++)
            if (takes(&graph->context->graphs[i], options) &&
                (!options->graph || !strcmp(options->graph, graph->context->graphs[i].info.name)))
                graph->record = &graph->context->graphs[i];
        if (graph->record)
            return code;
    }
    return code ? code : fail(error, GPUTUNE_INVALID_ARGUMENT, "there is no graph whose inputs have these shapes");
}

static gputune_code check_verdict(gputune_graph *graph, bool strict, gputune_error *error) {
    char reason[REASON_BYTES] = "";
    const identity *device = &graph->device->identity;
    const verdict verdict = verdict_on(graph->context, graph->record->info.name, device, reason);
    if (verdict == UNSUPPORTED)
        return fail(error, GPUTUNE_WRONG_DEVICE, "%s: %s", graph->context->path, reason);
    graph->from_binaries = verdict == OPTIMAL;
    if (verdict == OPTIMAL)
        return GPUTUNE_OK;
    if (strict)
        return fail(error, GPUTUNE_WRONG_DEVICE, "%s: made for another device: %s", graph->context->path, reason);
    if (*graph->choice)
        warn(graph, "%s; make one for this device and add it: gputune package --add", graph->choice);
    warn(graph, "building from source on another device: %s", reason);
    return GPUTUNE_OK;
}

static gputune_code make_places(gputune_graph *graph, gputune_error *error) {
    const graph_record *record = graph->record;
    const gputune_graph_info *info = &record->info;
    const size_t counts[BUFFER_KINDS] = {
        [INPUT] = info->input_count, [OUTPUT] = info->output_count, [ARENA] = record->arena_count,
        [WEIGHTS] = graph->context->weight_count, [COUNTERS] = 1, [STATUS] = 1};
    graph->tensor_count = info->input_count + info->output_count;
    graph->tensors = pool_take(&graph->pool, graph->tensor_count, sizeof *graph->tensors);
    graph->programs = pool_take(&graph->pool, graph->context->program_count, sizeof *graph->programs);
    bool good = graph->tensors && graph->programs;
    for (size_t kind = 0; kind < BUFFER_KINDS && good; kind++) {
        graph->places[kind] = pool_take(&graph->pool, counts[kind], sizeof **graph->places);
        good = graph->places[kind];
        graph->place_counts[kind] = good ? counts[kind] : 0;
    }
    if (!good)
        return fail(error, GPUTUNE_OUT_OF_MEMORY, "no memory for graph '%s'", info->name);
    for (size_t i = 0; i < counts[WEIGHTS]; i++)
        graph->places[WEIGHTS][i].nbytes = graph->context->sections[graph->context->weights[i]].nbytes;
    for (size_t i = 0; i < graph->tensor_count; i++) {
        const bool output = i >= info->input_count;
        const size_t place = output ? i - info->input_count : i;
        graph->tensors[i] = (tensor){
            .record = output ? &info->outputs[place] : &info->inputs[place],
            .for_handles = output ? record->output_handles[place] : record->input_handles[place],
            .place = &graph->places[output ? OUTPUT : INPUT][place]};
    }
    return GPUTUNE_OK;
}

static gputune_code add_memory(gputune_graph *graph, place *place, size_t nbytes, void **host, gputune_error *error) {
    held made = {0};
    gputune_code code = host ? allocate_shared(graph->device, nbytes, &made.memory, &made.host, error)
                             : allocate(graph->device, nbytes, NULL, &made.memory, error);
    if (!code && !hold(graph->device, &graph->own, made, error))
        code = GPUTUNE_OUT_OF_MEMORY;
    if (host)
        *host = made.host;
    place->memory = code ? NULL : made.memory;
    place->nbytes = nbytes;
    return code;
}

static gputune_code make_memory(gputune_graph *graph, gputune_error *error) {
    const graph_record *record = graph->record;
    const gputune_group *group = graph->group;
    gputune_code code = GPUTUNE_OK;
    for (size_t i = 0; i < graph->tensor_count && !code; i++)
        if (!graph->tensors[i].for_handles)
            code = own_memory(graph, &graph->tensors[i], error);
    for (size_t i = 0; i < record->arena_count && !code; i++) {
        place *place = &graph->places[ARENA][i];
        if (!group)
            code = add_memory(graph, place, record->arenas[i], NULL, error);
        else if (i >= group->arena_count || group->arena_bytes[i] < record->arenas[i])
            code = fail(error, GPUTUNE_ARENA_TOO_SMALL, "%s needs an arena of %zu bytes, the group has %zu",
                        graph->context->path, record->arenas[i], i < group->arena_count ? group->arena_bytes[i] : 0);
        else
            *place = (struct place){.memory = group->arenas[i], .nbytes = group->arena_bytes[i]};
    }
    return code;
}

/* Why the groups of persistent kernels cannot wait for each other here. Of the drivers that are known, PoCL has a thread
 * for each compute unit of a processor, of which each takes one work-group before any takes a second. */
static bool can_wait(gputune_graph *graph) {
    const identity *device = &graph->device->identity;
    const bool known = strstr(device->platform, "Portable Computing Language") && graph->device->is_cpu &&
                       (!strncmp(device->name, "pthread-", 8) ||
                        (!strncmp(device->name, "cpu-", 4) && strncmp(device->name, "cpu-tbb-", 8)));
    const size_t at_once = !known ? 0 : device->compute_units < processors() ? (size_t)device->compute_units : processors();
    for (size_t i = 0; i < graph->record->persistent_count; i++) {
        const launch *launch = &graph->record->persistent[i];
        size_t needed = 1;
        for (size_t j = 0; j < launch->dimensions; j++)
            needed *= launch->global_size[j];
        if (launch->counts && (!launch->yields || needed > at_once)) {
            if (!launch->yields)
                warn(graph, "launches run one by one: the persistent kernels are of an older gputune and cannot yield "
                            "to other programs; generate the context again");
            else
                warn(graph, "launches run one by one: the persistent kernel needs %zu processors, there are %zu", needed,
                     at_once);
            return false;
        }
    }
    return true;
}

/* The persistent form, where the graph has one that can run here; the launches are for when it does not pay. */
static gputune_code open_persistent(gputune_graph *graph, gputune_error *error) {
    const graph_record *record = graph->record;
    const size_t count = record->persistent_count;
    void *status = NULL;
    bool counts = false;
    for (size_t i = 0; i < count; i++)
        counts |= record->persistent[i].counts;
    if (!counts || !graph->from_binaries || !can_wait(graph))
        return GPUTUNE_OK;
    gputune_error refused = {0};
    gputune_code code = load_programs(graph, record->persistent, count, true, true, &refused);
    if (code == GPUTUNE_WRONG_DEVICE) {
        warn(graph, "launches run one by one: %s", refused.message);
        return GPUTUNE_OK;
    }
    if (code)
        return fail(error, code, "%s", refused.message);
    code = add_memory(graph, &graph->places[COUNTERS][0], record->counter_bytes, NULL, error);
    if (!code)
        code = add_memory(graph, &graph->places[STATUS][0], STATUS_BYTES, &status, error);
    if (!code && !(graph->kernels = pool_take(&graph->pool, count, sizeof *graph->kernels)))
        code = fail(error, GPUTUNE_OUT_OF_MEMORY, "no memory for %zu launches", count);
    if (!code)
        code = bind_launches(graph, record->persistent, count, graph->kernels, error);
    if (!code)
        code = persistent_open(graph, graph->kernels, graph->places[COUNTERS][0].memory,
                               graph->places[STATUS][0].memory, status, error);
    const uint8_t *data;
    size_t nbytes;
    for (size_t i = 0; i < record->info.launch_count && !code; i++) { /* what is loaded later must be there then */
        const program_entry *entry = &graph->context->programs[record->launches[i].program];
        code = section_bytes(graph->context, entry->binary, &data, &nbytes, error);
        if (!code)
            code = section_bytes(graph->context, entry->source, &data, &nbytes, error);
    }
    return code;
}

static gputune_code open_graph(gputune_graph *graph, const gputune_load_options *options, gputune_error *error) {
    gputune_code code = choose_graph(graph, options, error);
    if (!code)
        code = check_verdict(graph, options->strict, error);
    if (!code)
        code = make_places(graph, error);
    if (!code)
        code = async_open(graph, error);
    if (!code && options->perf_profile)
        code = votes_open(options->perf_profile, &graph->device->identity, &graph->votes, error);
    if (code)
        return code;
    if (graph->votes)
        votes_begin(graph->votes, "init");
    code = make_memory(graph, error);
    if (!code && !options->one_by_one)
        code = open_persistent(graph, error);
    if (!code && !graph->persistent)
        code = launches_needed(graph, error);
    if (!code)
        code = finish(graph->device, error);
    if (graph->votes)
        votes_end(graph->votes, "init");
    memset(&graph->last, 0, sizeof graph->last);
    return code;
}

gputune_code gputune_load(gputune_device *device, const gputune_file *file, const gputune_load_options *options,
                          gputune_graph **graph, gputune_error *error) {
    const gputune_load_options usual = {0};
    gputune_graph *made = calloc(1, sizeof *made);
    *graph = NULL;
    if (!made)
        return fail(error, GPUTUNE_OUT_OF_MEMORY, "no memory for a graph");
    options = options ? options : &usual;
    made->device = device;
    made->file = another_owner(file);
    made->group = options->group;
    made->shared = made->group ? &made->group->shared : &made->own;
    made->strict = options->strict;
    device_take(device);
    made->next = device->graphs;
    device->graphs = made;
    const gputune_code code = open_graph(made, options, error);
    device_leave(device);
    if (code)
        gputune_unload(made);
    else
        *graph = made;
    return code;
}

void gputune_unload(gputune_graph *graph) {
    if (!graph)
        return;
    gputune_device *device = graph->device;
    if (graph->async)
        async_close(graph->async);
    device_take(device);
    if (graph->votes)
        votes_begin(graph->votes, "deinit");
    finish(device, NULL);
    gputune_graph **at = &device->graphs;
    while (*at != graph)
        at = &(*at)->next;
    *at = graph->next;
    if (graph->persistent)
        persistent_close(graph->persistent);
    if (graph->record)
        unbind(graph);
    release_all(device, &graph->own);
    if (graph->votes)
        votes_end(graph->votes, "deinit");
    device_leave(device);
    if (graph->votes)
        votes_close(graph->votes);
    gputune_close(graph->file);
    pool_free(&graph->pool);
    free(graph);
}

/* --- what is asked of it ------------------------------------------------------------------------------------------- */

const gputune_graph_info *gputune_info(const gputune_graph *graph) { return &graph->record->info; }

const char *gputune_choice(const gputune_graph *graph) { return graph->choice; }

const char *gputune_warning(const gputune_graph *graph, size_t number) {
    device_take(graph->device);
    const struct warning *warning = graph->warnings;
    for (; warning && number; number--)
        warning = warning->next;
    device_leave(graph->device);
    return warning ? warning->text : NULL;
}

void gputune_counters_of(gputune_graph *graph, gputune_counters *total, gputune_counters *last) {
    device_take(graph->device);
    if (total)
        *total = graph->total;
    if (last)
        *last = graph->last;
    device_leave(graph->device);
}
