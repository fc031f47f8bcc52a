/* Loads graphs: everything is allocated and every argument is bound then.
 *
 * The states of a graph, which changes while the turn of its stream is held:
 * - Loading: gputune_load has added it to its device; where something fails it is unloaded.
 * - Ready (`is_ready`): its launches are bound. A graph without a persistent form is so when it is loaded.
 * - Persistent (`persistent` without `is_ready`): only the persistent kernels are bound, and `copies` have what the
 *   launches need. launches_needed makes the graph ready when an inference runs its launches for the first time.
 * - Broken (`launches` without `is_ready`): the launches could not be bound. Inferences that need them fail for good.
 * - Unloading: asynchronous inferences end first; a fork of the process only gives back memory.
 * In any state an inference may still run that has returned (`runs_on` of the stream): of a graph whose outputs are all
 * linked (link.c). group.c exchanges the arenas of graphs that are loaded, when nothing else runs on their device.
 * A packing is a graph of a moment: pack fills it in, runs its launches once and takes its arena. */
#include "graph.h"
#include "inference.h"
#include "launches.h"
#include "../profiling/marked.h"
#include "persistent.h"
#include "../profiling/profile.h"
#include "../devices/programs.h"
#include "recorded.h"
#include "../power/votes.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- which graph -------------------------------------------------------------------------------------------------- */

static bool is_empty(const gputune_shape *shape) {
    for (size_t i = 0; i < shape->rank; i++)
        if (!shape->shape[i]) return true;
    return false;
}

static bool takes(const gputune_graph_info *info, const gputune_load_options *options) {
    if (options->graph && strcmp(options->graph, info->name)) return false;
    for (size_t i = 0; i < options->shape_count; i++) {
        const gputune_shape *shape = &options->shapes[i];
        const gputune_tensor *input = info->inputs, *end = input + info->input_count;
        while (input < end && strcmp(input->name, shape->input)) input++;
        if (input == end && is_empty(shape)) continue; /* a graph has no empty inputs */
        if (input == end || input->rank != shape->rank) return false;
        if (memcmp(input->shape, shape->shape, shape->rank * sizeof *shape->shape)) return false;
    }
    return true;
}

/* The first graph with these shapes. */
static gputune_code find_shapes(gputune_graph *graph, size_t place, size_t end, const gputune_load_options *options,
                                gputune_error *error) {
    for (; place < end; place++) {
        TRY(context_at(graph->file, place, &graph->context, error));
        for (size_t i = 0; i < graph->context->graph_count; i++) {
            graph->record = &graph->context->graphs[i];
            if (takes(&graph->record->info, options)) return GPUTUNE_OK;
        }
    }
    graph->record = NULL;
    return fail(error, GPUTUNE_INVALID_ARGUMENT, "there is no graph whose inputs have these shapes");
}

static gputune_code choose_graph(gputune_graph *graph, const gputune_load_options *options, gputune_error *error) {
    size_t place, end, found = 0;
    TRY(choose_contexts(graph->file, &graph->device->identity, options->graph, &place, &end, graph->choice, error));
    if (options->shape_count) return find_shapes(graph, place, end, options, error);
    TRY(find_graph(graph->file, options->graph, &place, &found, error));
    TRY(context_at(graph->file, place, &graph->context, error));
    graph->record = &graph->context->graphs[found];
    return GPUTUNE_OK;
}

static gputune_code check_verdict(gputune_graph *graph, const gputune_load_options *options, gputune_error *error) {
    char reason[REASON_BYTES] = "", lacking[LACKING_BYTES];
    const char *const path = graph->context->path;
    const verdict verdict = verdict_on(graph->context, graph->record->info.name, &graph->device->identity, reason);
    graph->from_binaries = verdict == OPTIMAL;
    if (verdict == UNSUPPORTED) return fail(error, GPUTUNE_WRONG_DEVICE, "%s: %s", path, reason);
    if (lacks_features(graph->context, graph->record, options->features, options->feature_count, lacking) &&
        !(graph->lacking = pool_text(&graph->pool, lacking, strlen(lacking))))
        return NO_MEMORY;
    if (verdict == OPTIMAL) return GPUTUNE_OK;
    TRY(check_proofs(graph, error));
    if (graph->strict) return fail(error, GPUTUNE_WRONG_DEVICE, "%s: made for another device: %s", path, reason);
    if (*graph->choice) warn(graph, "%s; make one for this device and add it: gputune package --add", graph->choice);
    warn(graph, "building from source on another device: %s", reason);
    return GPUTUNE_OK;
}

/* --- memory ------------------------------------------------------------------------------------------------------- */

static gputune_code make_places(gputune_graph *graph, gputune_error *error) {
    const graph_record *record = graph->record;
    const gputune_graph_info *info = &record->info;
    const size_t counts[BUFFER_KINDS] = {[INPUT] = info->input_count, [OUTPUT] = info->output_count,
                                         [ARENA] = record->arena_count, [WEIGHTS] = graph->context->weight_count,
                                         [PACKED] = graph->context->packing_count, [COUNTERS] = 1, [STATUS] = 1};
    tensor *tensors = graph->tensors = pool_take(&graph->pool, counts[INPUT] + counts[OUTPUT], sizeof *graph->tensors);
    graph->programs = pool_take(&graph->pool, graph->context->program_count, sizeof *graph->programs);
    graph->copies = pool_take(&graph->pool, graph->context->section_count, sizeof *graph->copies);
    if (!tensors || !graph->programs || !graph->copies) return NO_MEMORY;
    for (size_t kind = 0; kind < BUFFER_KINDS; kind++) {
        graph->places[kind] = pool_take(&graph->pool, counts[kind], sizeof **graph->places);
        if (!graph->places[kind]) return NO_MEMORY;
        graph->place_counts[kind] = counts[kind];
    }
    graph->tensor_count = counts[INPUT] + counts[OUTPUT];
    for (size_t i = 0; i < counts[INPUT]; i++)
        *tensors++ = (tensor){&info->inputs[i], "input", record->inputs[i].memory_type,
                              .place = &graph->places[INPUT][i]};
    for (size_t i = 0; i < counts[OUTPUT]; i++)
        *tensors++ = (tensor){&info->outputs[i], "output", record->outputs[i].memory_type,
                              .place = &graph->places[OUTPUT][i]};
    for (size_t i = 0; i < counts[WEIGHTS]; i++)
        graph->places[WEIGHTS][i].nbytes = graph->context->sections[graph->context->weights[i]].nbytes;
    for (size_t i = 0; i < counts[PACKED]; i++)
        graph->places[PACKED][i].nbytes = graph->context->packing[i].info.arena_bytes;
    return GPUTUNE_OK;
}

static gputune_code make_arena(gputune_graph *graph, place *place, size_t nbytes, gputune_error *error) {
    gputune_device *device = graph->device;
    held *own;
    if (graph->record->argument_form != SVM || !device->svm_pointers)
        return new_memory_in(graph, place, nbytes, false, &own, error);
    if (!(own = hold(&graph->own, NULL))) return NO_MEMORY;
    place->pointer = own->host = device->cl.SVMAlloc(device->context, CL_MEM_READ_WRITE, nbytes, 0);
    place->nbytes = nbytes;
    if (own->host) count_held(device, own, nbytes);
    return own->host ? GPUTUNE_OK
                     : fail(error, GPUTUNE_LIMIT_EXCEEDED, "%zu bytes of shared memory cannot be allocated", nbytes);
}

/* shared: arenas that are a group's or a packing's, so many. */
static gputune_code make_memory(gputune_graph *graph, const place *shared, size_t count, gputune_error *error) {
    const graph_record *record = graph->record;
    for (size_t i = 0; i < graph->tensor_count; i++) {
        tensor *tensor = &graph->tensors[i];
        if (!tensor->for_handles)
            TRY(new_memory_in(graph, tensor->place, tensor->record->nbytes, true, &tensor->own, error));
    }
    for (size_t i = 0; i < record->arena_count; i++) {
        const size_t has = shared && i < count ? shared[i].nbytes : 0;
        if (!shared)
            TRY(make_arena(graph, &graph->places[ARENA][i], record->arenas[i], error));
        else if (has < record->arenas[i])
            return fail(error, GPUTUNE_ARENA_TOO_SMALL, "%s needs an arena of %zu bytes, the group has %zu",
                        graph->context->path, record->arenas[i], has);
        else
            graph->places[ARENA][i] = shared[i];
    }
    return GPUTUNE_OK;
}

/* What a graph reads of a packing, a graph of its own that runs once, unless others have it already. used: what the
 * packing needs. */
static gputune_code pack(gputune_graph *graph, size_t index, holdings *used, gputune_error *error) {
    gputune_device *const device = graph->device;
    place *place = &graph->places[PACKED][index];
    const graph_record *record = &graph->context->packing[index];
    const size_t nbytes = strlen(record->info.name) + 32;
    gputune_graph packing = {.device = device, .stream = graph->stream, .context = graph->context, .record = record,
                             .shared = used, .strict = graph->strict, .from_binaries = graph->from_binaries,
                             .lacking = graph->lacking};
    char *key = pool_take(&graph->pool, nbytes, 1);
    if (!key) return NO_MEMORY;
    snprintf(key, nbytes, "packed %zu %s", place->nbytes, record->info.name);
    held *held = held_of(graph->shared, key);
    if (held && !use_held(graph, held)) return NO_MEMORY;
    if (held) return place->memory = held->memory, GPUTUNE_OK;
    TRY(allocate(device, 0, place->nbytes, NULL, &place->memory, error));
    gputune_code code = fill_buffer(graph->stream, place->memory, 0, place->nbytes, error);
    if (!code) code = make_places(&packing, error);
    if (!code) code = make_memory(&packing, place, 1, error);
    if (!code) code = enqueue_launches(&packing, 0, error);
    const gputune_code finished = finish(graph->stream, code ? NULL : error); /* also what has failed in the middle */
    code = code ? code : finished;
    for (struct warning *one = packing.warnings; one; one = one->next) warn(graph, "%s", one->text);
    unbind(&packing);
    pool_free(&packing.pool);
    release_memory(device, used);
    if (!code && !(held = hold(graph->shared, key))) code = NO_MEMORY;
    if (code) return device->cl.ReleaseMemObject(place->memory), code;
    held->memory = place->memory;
    count_held(device, held, place->nbytes);
    return use_held(graph, held) ? GPUTUNE_OK : NO_MEMORY;
}

/* Packings have their programs in common; of sources the device has those of one at a time. */
static gputune_code pack_all(gputune_graph *graph, gputune_error *error) {
    holdings used = {NULL};
    gputune_code code = GPUTUNE_OK;
    for (size_t i = 0; i < graph->record->info.launch_count; i++)
        for (size_t j = 0; j < graph->record->launches[i].argument_count && !code; j++) {
            const argument *read = &graph->record->launches[i].arguments[j];
            if (read->is_buffer && read->kind == PACKED && !graph->places[PACKED][read->index].memory)
                code = pack(graph, read->index, &used, error);
        }
    release_all(graph->device, &used);
    return code;
}

/* --- the persistent form ------------------------------------------------------------------------------------------ */

/* Whether the groups of persistent kernels can wait for each other here. Of the drivers that are known, PoCL has a
 * thread for each compute unit of a processor, of which each takes one work-group before any takes a second. */
static bool can_wait(gputune_graph *graph) {
    const identity *device = &graph->device->identity;
    const bool known = graph->device->is_cpu && strstr(device->platform, "Portable Computing Language") &&
                       (!strncmp(device->name, "pthread-", 8) ||
                        (!strncmp(device->name, "cpu-", 4) && strncmp(device->name, "cpu-tbb-", 8)));
    const uint64_t threads = known ? device->compute_units : 0;
    const uint64_t at_once = threads < processors() ? threads : processors();
    bool any = false;
    for (size_t i = 0; i < graph->record->persistent_count; i++) {
        const launch *launch = &graph->record->persistent[i];
        uint64_t needed = 1;
        for (size_t j = 0; j < launch->dimensions; j++) needed *= launch->global_size[j];
        any |= launch->counts;
        if (!launch->counts || (launch->yields && needed <= at_once)) continue;
        if (launch->yields)
            warn(graph, "launches run one by one: the persistent kernel needs %llu processors, there are %llu",
                 (unsigned long long)needed, (unsigned long long)at_once);
        else
            warn(graph, "launches run one by one: the persistent kernels are of an older gputune and cannot yield to "
                 "other programs; generate the context again");
        return false;
    }
    return any;
}

/* Where the graph has one that can run here; the launches are loaded then when they are needed. */
static gputune_code open_persistent(gputune_graph *graph, gputune_error *error) {
    const graph_record *record = graph->record;
    gputune_error refused = {GPUTUNE_OK, ""};
    held *own;
    if (!graph->from_binaries || !can_wait(graph)) return GPUTUNE_OK;
    load_programs(graph, record->persistent, record->persistent_count, true, &refused);
    if (refused.code == GPUTUNE_WRONG_DEVICE)
        return warn(graph, "launches run one by one: %s", refused.message), GPUTUNE_OK;
    if (refused.code) return fail(error, refused.code, "%s", refused.message);
    TRY(new_memory_in(graph, graph->places[COUNTERS], record->counter_bytes, false, &own, error));
    TRY(new_memory_in(graph, graph->places[STATUS], STATUS_BYTES, true, &own, error));
    TRY(bind_launches(graph, record->persistent, record->persistent_count, &graph->kernels, error));
    TRY(marked_prepare(graph, error));
    return persistent_open(graph, own->host, error);
}

/* --- loading ------------------------------------------------------------------------------------------------------ */

static gputune_code fill_graph(gputune_graph *graph, const gputune_load_options *options, gputune_error *error) {
    TRY(make_places(graph, error));
    TRY(async_open(graph, gputune_run, error));
    const gputune_group *group = graph->group;
    TRY(make_memory(graph, group ? group->streams[graph->lane].arenas : NULL, group ? group->arena_count : 0, error));
    TRY(pack_all(graph, error));
    /* Persistent kernels need all processors: those of two streams would wait for each other. */
    if (!options->one_by_one && (!group || group->stream_count == 1)) TRY(open_persistent(graph, error));
    if (!graph->persistent) TRY(launches_needed(graph, error));
    if (!graph->persistent) TRY(recorded_open(graph, error));
    return finish(graph->stream, error);
}

static gputune_code load(gputune_graph *graph, const gputune_load_options *options, gputune_error *error) {
    TRY(choose_graph(graph, options, error));
    TRY(check_verdict(graph, options, error));
    gputune_perf_settings settings;
    if (options->perf_profile) TRY(gputune_preset(options->perf_profile, &settings, error));
    if (options->perf_profile) TRY(votes_open(&settings, &graph->device->identity, &graph->votes, error));
    gputune_begin_phase(graph->votes, GPUTUNE_INIT, NULL);
    const gputune_code code = fill_graph(graph, options, error);
    gputune_end_phase(graph->votes, GPUTUNE_INIT, NULL);
    return code;
}

/* The stream that options pick, or NULL where there is none. */
static stream *choose_stream(gputune_device *device, const gputune_load_options *options, gputune_error *error) {
    const gputune_group *group = options->group;
    const size_t count = group ? group->stream_count : 1;
    if (group && group->device != device)
        return fail(error, GPUTUNE_INVALID_ARGUMENT, "the group and the graph are for different devices"), NULL;
    if (options->stream >= count)
        return fail(error, GPUTUNE_INVALID_ARGUMENT, "there is no stream %zu, %s has %zu", options->stream,
                    group ? "the group" : "what is loaded without a group", count), NULL;
    return group ? group->streams[options->stream].stream : &device->stream;
}

gputune_code gputune_load(gputune_device *device, const gputune_file *file, const gputune_load_options *options,
                          gputune_graph **graph, gputune_error *error) {
    const gputune_load_options usual = {.graph = NULL}, *given = options ? options : &usual;
    gputune_graph *made = *graph = NULL;
    TRY(check_here(device, error));
    stream *stream = choose_stream(device, given, error);
    if (!stream) return GPUTUNE_INVALID_ARGUMENT;
    if (!(made = calloc(1, sizeof *made))) return NO_MEMORY;
    gputune_code code = add_user(device, error);
    if (code) return free(made), code;
    *graph = made;
    made->device = device;
    made->stream = stream;
    made->group = given->group;
    made->lane = given->stream;
    made->file = another_owner(file);
    made->strict = given->strict;
    made->one_by_one = given->one_by_one;
    made->form = form_of(&made->last);
    made->shared = given->group ? &given->group->shared : &made->own;
    change_take(stream);
    made->next = device->graphs;
    device->graphs = made;
    const uint64_t begun_ns = now_ns();
    code = load(made, given, error);
    made->load_ns = now_ns() - begun_ns;
    change_leave(stream);
    if (code) gputune_unload(made), *graph = NULL;
    return code;
}

void gputune_unload(gputune_graph *graph) {
    if (!graph) return;
    gputune_device *device = graph->device;
    stream *stream = graph->stream;
    const bool here = is_here(device);
    async_close(graph->async);
    change_take(stream);
    if (here) gputune_begin_phase(graph->votes, GPUTUNE_DEINIT, NULL);
    if (here) finish(stream, NULL);
    gputune_graph **at = &device->graphs;
    while (*at != graph) at = &(*at)->next;
    *at = graph->next;
    record_no_more(graph);
    free(graph->persistent);
    recorded_forget(graph, NULL); /* before what it uses */
    marked_close(graph, here);
    unbind(graph);
    leave_held(graph);
    release_all(device, &graph->own);
    if (here) gputune_end_phase(graph->votes, GPUTUNE_DEINIT, NULL);
    gputune_close_votes(graph->votes);
    change_leave(stream);
    drop_copies(graph);
    gputune_close(graph->file);
    pool_free(&graph->pool);
    free(graph);
    remove_user(device);
}

/* --- what is said and asked --------------------------------------------------------------------------------------- */

const char *gputune_warning(const gputune_graph *graph, size_t number) {
    char text[REASON_BYTES];
    stream_take(graph->stream);
    while (is_here(graph->device) && votes_warning(graph->votes, text, sizeof text))
        warn((gputune_graph *)graph, "%s", text);
    const struct warning *warning = graph->warnings;
    for (; warning && number; number--) warning = warning->next;
    stream_leave(graph->stream);
    return warning ? warning->text : NULL;
}

void gputune_counters_of(gputune_graph *graph, gputune_counters *total, gputune_counters *last) {
    stream_take(graph->stream);
    if (total) *total = graph->total;
    if (last) *last = graph->last;
    stream_leave(graph->stream);
}

void gputune_counters_at(const gputune_graph *graph, const gputune_counters **total, const gputune_counters **last) {
    *total = &graph->total;
    *last = &graph->last;
}

void gputune_set_one_by_one(gputune_graph *graph, bool one_by_one) {
    stream_take(graph->stream);
    graph->by_launches = one_by_one;
    stream_leave(graph->stream);
}

gputune_code gputune_set_perf_profile(gputune_graph *graph, const char *preset, gputune_error *error) {
    gputune_votes *fresh = NULL;
    gputune_perf_settings settings;
    TRY(check_here(graph->device, error));
    if (preset) TRY(gputune_preset(preset, &settings, error));
    device_take(graph->device);
    gputune_code code = GPUTUNE_OK;
    if (preset && graph->votes) {
        code = gputune_set_votes(graph->votes, &settings, error);
    } else if (!preset || !(code = votes_open(&settings, &graph->device->identity, &fresh, error))) {
        gputune_close_votes(graph->votes);
        graph->votes = fresh;
    }
    device_leave(graph->device);
    return code;
}

bool gputune_has_persistent(const gputune_graph *graph) { return graph->persistent; }

const char *gputune_last_form(const gputune_graph *graph) {
    stream_take(graph->stream);
    const char *form = graph->form;
    stream_leave(graph->stream);
    return form;
}

const gputune_graph_info *gputune_info(const gputune_graph *graph) { return &graph->record->info; }

const char *gputune_choice(const gputune_graph *graph) { return graph->choice; }
