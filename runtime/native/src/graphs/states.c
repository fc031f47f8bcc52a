/* What graphs remember between inferences.
 *
 * Each pair of a state has two buffers: an inference reads one and writes the other. They change places when it has
 * ended well, so that what was remembered is there until then, and no byte of it passes through the host. Clearing a
 * state does the same, and so does another capacity: rows are not the outermost axis, so those of a graph with room for
 * fewer lie elsewhere. The buffers have room for the most, and what fewer rows need is their beginning. A state has no
 * arguments of its own: graphs bind its buffers as they bind an application's memory. Whoever uses a state has it alone
 * (`busy`); others are refused, as waiting would only hide a race. */
#include "states.h"

#include "../memory/importing.h"

#include <stdlib.h>
#include <string.h>

enum { UNIT_BYTES = 4 }; /* devices fill memory in these */

struct gputune_state {
    gputune_device *device;
    gputune_file *file; /* which has the record; this is one of its owners */
    const graph_record *record; /* of the graph with the most rows that can use it */
    bool busy; /* with atomics */
    size_t turn; /* which buffers hold what is remembered */
    size_t rows; /* the capacity of the graphs for which it lies there; 0: it is zeros, which suit all of them */
    int32_t length; /* with atomics where it is written, as it may be asked for at any time */
    size_t nbytes; /* of all buffers, which the device counts */
    struct kept {
        const gputune_tensor *tensor;
        size_t nbytes;
        size_t strips, row; /* in how many strips rows lie, and the bytes of a row in one; what does not grow is one */
        cl_mem buffers[2];
    } kept[]; /* as the pairs of the record */
};

/* A pair of a graph: where its tensors are, and which one of the state's it is. */
struct remembered {
    tensor *input, *output;
    size_t place;
};

/* --- who uses it -------------------------------------------------------------------------------------------------- */

static gputune_code take(gputune_state *state, gputune_error *error) {
    TRY(check_here(state->device, error));
    if (!__atomic_exchange_n(&state->busy, true, __ATOMIC_ACQUIRE)) return GPUTUNE_OK;
    return fail(error, GPUTUNE_INVALID_ARGUMENT, "the state is used by another thread: each thread needs its own");
}

static void set_length(gputune_state *state, int32_t length) {
    __atomic_store_n(&state->length, length, __ATOMIC_RELAXED);
}

static void leave(gputune_state *state) { __atomic_store_n(&state->busy, false, __ATOMIC_RELEASE); }

/* --- making and closing ------------------------------------------------------------------------------------------- */

static const gputune_tensor *input_of(const graph_record *record, const char *name) {
    const gputune_tensor *one = record->info.inputs;
    while (strcmp(one->name, name)) one++; /* the file was checked: there is one */
    return one;
}

static size_t kept_bytes(const gputune_tensor *tensor) {
    return (tensor->nbytes + UNIT_BYTES - 1) / UNIT_BYTES * UNIT_BYTES;
}

size_t state_bytes_of(const graph_record *record) {
    size_t nbytes = 0;
    for (size_t i = 0; i < record->states.pair_count; i++)
        nbytes += 2 * kept_bytes(input_of(record, record->states.pairs[i].input));
    return nbytes;
}

static gputune_code allocate_kept(gputune_state *state, gputune_error *error) {
    const state_record *states = &state->record->states;
    for (size_t i = 0; i < states->pair_count; i++) {
        struct kept *kept = &state->kept[i];
        kept->tensor = input_of(state->record, states->pairs[i].input);
        kept->nbytes = kept_bytes(kept->tensor);
        kept->strips = 1;
        for (int j = 0; j < states->pairs[i].axis; j++) kept->strips *= kept->tensor->shape[j];
        kept->row = kept->tensor->nbytes / kept->strips;
        if (states->pairs[i].axis != FIXED) kept->row /= states->capacity;
        for (size_t j = 0; j < 2; j++) {
            TRY(allocate(state->device, 0, kept->nbytes, NULL, &kept->buffers[j], error));
            state->nbytes += kept->nbytes;
            __atomic_add_fetch(&state->device->held_bytes, kept->nbytes, __ATOMIC_RELAXED);
        }
    }
    return GPUTUNE_OK;
}

/* Copies what a pair of a state remembers into a buffer, for graphs of a capacity. */
static gputune_code copy_rows(const gputune_state *from, size_t pair, cl_mem to, size_t capacity, stream *stream,
                              gputune_error *error) {
    const struct kept *kept = &from->kept[pair];
    const bool grows = from->record->states.pairs[pair].axis != FIXED;
    const size_t has = grows ? from->rows : 1, gets = grows ? capacity : 1, beginning[3] = {0, 0, 0};
    const size_t region[3] = {(has < gets ? has : gets) * kept->row, kept->strips, 1};
    if (!region[0]) return GPUTUNE_OK; /* zeros */
    return checked(error, "copying a state",
                   from->device->cl.EnqueueCopyBufferRect(stream->queue, kept->buffers[from->turn], to, beginning,
                                                          beginning, region, has * kept->row, 0, gets * kept->row, 0, 0,
                                                          NULL, NULL));
}

/* Writes the buffers that hold nothing, zeros or what this or another state remembers, for graphs of a capacity, and
 * has them hold it. What more rows it has room for are zeros. The turn of the stream is held. */
static gputune_code replace(gputune_state *state, const gputune_state *from, size_t capacity, stream *stream,
                            gputune_error *error) {
    gputune_code code = GPUTUNE_OK;
    for (size_t i = 0; i < state->record->states.pair_count && !code; i++) {
        const struct kept *kept = &state->kept[i];
        code = fill_buffer(stream, kept->buffers[!state->turn], 0, kept->nbytes, error);
        if (from && !code) code = copy_rows(from, i, kept->buffers[!state->turn], capacity, stream, error);
    }
    const gputune_code finished = finish(stream, code ? NULL : error);
    if (code || finished) return code ? code : finished;
    set_length(state, from ? from->length : 0);
    state->rows = capacity;
    state->turn = !state->turn;
    return GPUTUNE_OK;
}

/* Has rows lie where graphs of a capacity look for them. The turn of the stream is held. */
static gputune_code lay_out(gputune_state *state, size_t capacity, stream *stream, gputune_error *error) {
    if (state->rows && state->rows != capacity) return replace(state, state, capacity, stream, error);
    state->rows = capacity;
    return GPUTUNE_OK;
}

static gputune_code make(const gputune_state *other, gputune_graph *graph, gputune_state **state,
                         gputune_error *error) {
    gputune_device *device = other ? other->device : graph->device;
    const graph_record *record = other ? other->record : graph->record;
    const size_t count = record->states.pair_count;
    gputune_state *made = calloc(1, sizeof *made + count * sizeof *made->kept);
    if (!made) return NO_MEMORY;
    gputune_code code = add_user(device, error);
    if (code) return free(made), code;
    made->device = device;
    made->record = record;
    made->file = another_owner(other ? other->file : graph->file);
    code = allocate_kept(made, error);
    stream_take(&device->stream);
    if (!code) code = replace(made, other, other ? other->rows : 0, &device->stream, error);
    stream_leave(&device->stream);
    if (code) gputune_close_state(made);
    else *state = made;
    return code;
}

gputune_code gputune_open_state(gputune_graph *graph, gputune_state **state, gputune_error *error) {
    *state = NULL;
    TRY(check_here(graph->device, error));
    if (!graph->record->states.pair_count)
        return fail(error, GPUTUNE_INVALID_ARGUMENT, "graph '%s' has no state", graph->record->info.name);
    return make(NULL, graph, state, error);
}

gputune_code gputune_copy_state(gputune_state *state, gputune_state **copy, gputune_error *error) {
    *copy = NULL;
    TRY(take(state, error));
    const gputune_code code = make(state, NULL, copy, error);
    leave(state);
    return code;
}

/* Has a graph take all of its tensors from its caller again. */
static void detach(gputune_graph *graph) {
    for (size_t i = 0; i < graph->tensor_count; i++)
        graph->tensors[i].remembered = false, graph->tensors[i].kept = NULL;
    graph->state = NULL;
}

void gputune_close_state(gputune_state *state) {
    if (!state) return;
    gputune_device *device = state->device;
    const bool here = is_here(device);
    device_take(device);
    for (gputune_graph *graph = here ? device->graphs : NULL; graph; graph = graph->next)
        if (graph->state == state) detach(graph);
    for (size_t i = 0; i < state->record->states.pair_count && here; i++)
        for (size_t j = 0; j < 2; j++) {
            if (!state->kept[i].buffers[j]) continue;
            forget_memory(device, state->kept[i].buffers[j]);
            device->cl.ReleaseMemObject(state->kept[i].buffers[j]);
        }
    device_leave(device);
    __atomic_sub_fetch(&device->held_bytes, state->nbytes, __ATOMIC_RELAXED);
    gputune_close(state->file);
    free(state);
    remove_user(device);
}

/* --- the state of a graph ----------------------------------------------------------------------------------------- */

static tensor *tensor_of(gputune_graph *graph, bool output, const char *name) {
    tensor *one = graph->tensors + (output ? graph->record->info.input_count : 0);
    while (strcmp(one->record->name, name)) one++; /* the file was checked: there is one */
    return one;
}

/* Finds the tensors of a graph's pairs, once. */
static gputune_code find_pairs(gputune_graph *graph, gputune_error *error) {
    const state_record *states = &graph->record->states;
    if (graph->pairs) return GPUTUNE_OK;
    struct remembered *made = pool_take(&graph->pool, states->pair_count, sizeof *made);
    if (!made) return NO_MEMORY;
    for (size_t i = 0; i < states->pair_count; i++)
        made[i] = (struct remembered){tensor_of(graph, false, states->pairs[i].input),
                                      tensor_of(graph, true, states->pairs[i].output), 0};
    graph->length = *states->length ? tensor_of(graph, false, states->length) : NULL;
    graph->pairs = made;
    return GPUTUNE_OK;
}

/* Whether two tensors differ by their names, types or shapes. axis: along which they may differ, or FIXED. */
static bool differ(const gputune_tensor *one, const gputune_tensor *other, int axis) {
    bool differ = strcmp(one->name, other->name) || strcmp(one->dtype, other->dtype) || one->rank != other->rank;
    for (size_t i = 0; i < one->rank && !differ; i++) differ = (int)i != axis && one->shape[i] != other->shape[i];
    return differ;
}

/* Which one of a state's pairs that of a graph is, by the input and the axis of rows; their count if it is none. */
static size_t place_of(const gputune_graph *graph, size_t pair, const gputune_state *state) {
    const state_record *own = &graph->record->states, *others = &state->record->states;
    const int axis = (int)own->pairs[pair].axis;
    const size_t has = others->pair_count;
    size_t tried = 0; /* from the same place on, where it usually is */
    while (tried < has && differ(state->kept[(pair + tried) % has].tensor, graph->pairs[pair].input->record, axis))
        tried++;
    const size_t place = (pair + tried) % has;
    return tried < has && axis == others->pairs[place].axis ? place : has;
}

static gputune_code check_fits(const gputune_graph *graph, const gputune_state *state, gputune_error *error) {
    const state_record *own = &graph->record->states, *others = &state->record->states;
    const size_t count = own->pair_count;
    bool fits = graph->device == state->device && count == others->pair_count;
    for (size_t i = 0; i < count && fits; i++) fits = place_of(graph, i, state) < count;
    if (fits && own->capacity <= others->capacity) return GPUTUNE_OK;
    return fail(error, GPUTUNE_INVALID_ARGUMENT, "graph '%s' cannot use this state: graph '%s', for which it was "
                "opened, %s", graph->record->info.name, state->record->info.name,
                graph->device != state->device ? "is on another device"
                : fits                         ? "has fewer rows: open a state for the one with the most"
                                               : "remembers other tensors");
}

static gputune_code attach(gputune_graph *graph, gputune_state *state, gputune_error *error) {
    const size_t count = graph->record->states.pair_count;
    if (count) TRY(find_pairs(graph, error));
    TRY(check_fits(graph, state, error));
    for (size_t i = 0; i < count; i++) {
        if (graph->pairs[i].input->linked) return refuse_taken(graph, graph->pairs[i].input, error);
        if (graph->pairs[i].output->linked) return refuse_taken(graph, graph->pairs[i].output, error);
    }
    if (graph->length && graph->length->linked) return refuse_taken(graph, graph->length, error);
    for (size_t i = 0; i < count; i++) {
        graph->pairs[i].input->remembered = graph->pairs[i].output->remembered = true;
        graph->pairs[i].place = place_of(graph, i, state);
    }
    if (graph->length) graph->length->remembered = true;
    graph->state = state;
    return GPUTUNE_OK;
}

gputune_code gputune_use_state(gputune_graph *graph, gputune_state *state, gputune_error *error) {
    gputune_code code = GPUTUNE_OK;
    TRY(check_here(graph->device, error));
    stream_take(graph->stream);
    if (state) code = attach(graph, state, error);
    else detach(graph);
    stream_leave(graph->stream);
    return code;
}

gputune_code gputune_state_graph(gputune_state *state, size_t tokens, gputune_graph **graph, gputune_error *error) {
    gputune_graph *found = NULL;
    TRY(check_here(state->device, error));
    device_take(state->device);
    for (gputune_graph *one = state->device->graphs; one; one = one->next) {
        const state_record *own = &one->record->states;
        const bool fits = own->tokens == tokens && (size_t)state->length + tokens <= own->capacity;
        if (one->state == state && fits && (!found || own->capacity < found->record->states.capacity)) found = one;
    }
    device_leave(state->device);
    *graph = found;
    if (found) return GPUTUNE_OK;
    return fail(error, GPUTUNE_LIMIT_EXCEEDED, "no graph that uses this state adds %zu rows to %d: rewind or reset it, "
                "or give another number of tokens", tokens, (int)state->length);
}

bool gputune_is_remembered(const gputune_graph *graph, bool output, size_t place) {
    const state_record *states = &graph->record->states;
    const gputune_graph_info *info = &graph->record->info;
    if (place >= (output ? info->output_count : info->input_count) || !states->pair_count) return false;
    const char *const name = (output ? info->outputs : info->inputs)[place].name;
    bool found = !output && !strcmp(states->length, name);
    for (size_t i = 0; i < states->pair_count && !found; i++)
        found = !strcmp(output ? states->pairs[i].output : states->pairs[i].input, name);
    return found;
}

/* --- an inference ------------------------------------------------------------------------------------------------- */

gputune_code states_begin(gputune_graph *graph, gputune_error *error) {
    const state_record *states = &graph->record->states;
    gputune_state *state = graph->state;
    if (!state) return GPUTUNE_OK;
    TRY(take(state, error));
    const bool room = (size_t)state->length + states->tokens <= states->capacity;
    const gputune_code code = room ? lay_out(state, states->capacity, graph->stream, error) : GPUTUNE_LIMIT_EXCEEDED;
    if (code) leave(state);
    if (!room)
        fail(error, code, "graph '%s' adds %zu rows to a state that has %d of %zu: %s", graph->record->info.name,
             states->tokens, (int)state->length, states->capacity,
             states->capacity < state->record->states.capacity ? "run a graph with more" : "rewind or reset it");
    if (code) return code;
    for (size_t i = 0; i < states->pair_count; i++) {
        const struct remembered *pair = &graph->pairs[i];
        pair->input->kept = state->kept[pair->place].buffers[state->turn];
        pair->output->kept = state->kept[pair->place].buffers[!state->turn];
    }
    if (graph->length) graph->length->data = &state->length;
    return GPUTUNE_OK;
}

void states_end(gputune_graph *graph, gputune_code code) {
    gputune_state *state = graph->state;
    if (!state) return;
    if (!code) state->turn = !state->turn, set_length(state, state->length + (int32_t)graph->record->states.tokens);
    leave(state);
}

/* --- what is remembered ------------------------------------------------------------------------------------------- */

size_t gputune_state_length(const gputune_state *state) {
    return (size_t)__atomic_load_n(&state->length, __ATOMIC_RELAXED);
}

size_t gputune_state_capacity(const gputune_state *state) { return state->record->states.capacity; }

size_t gputune_state_bytes(const gputune_state *state) { return state->nbytes; }

gputune_code gputune_reset_state(gputune_state *state, gputune_error *error) {
    TRY(take(state, error));
    stream_take(&state->device->stream);
    const gputune_code code = replace(state, NULL, 0, &state->device->stream, error);
    stream_leave(&state->device->stream);
    leave(state);
    return code;
}

static gputune_code rewind_to(gputune_state *state, size_t length, gputune_error *error) {
    const state_record *states = &state->record->states;
    for (size_t i = 0; i < states->pair_count; i++)
        if (states->pairs[i].axis == FIXED)
            return fail(error, GPUTUNE_INVALID_ARGUMENT, "a state with '%s', which does not grow, cannot be rewound: "
                        "copy it before, or reset it", states->pairs[i].input);
    if (length > (size_t)state->length)
        return fail(error, GPUTUNE_INVALID_ARGUMENT, "a state of %d rows cannot be rewound to %zu", (int)state->length,
                    length);
    set_length(state, (int32_t)length);
    return GPUTUNE_OK;
}

gputune_code gputune_rewind_state(gputune_state *state, size_t length, gputune_error *error) {
    TRY(take(state, error));
    const gputune_code code = rewind_to(state, length, error);
    leave(state);
    return code;
}

static gputune_code read_kept(gputune_state *state, const char *name, void *data, size_t nbytes, gputune_error *error) {
    stream *stream = &state->device->stream;
    size_t place = 0;
    while (place < state->record->states.pair_count && strcmp(state->kept[place].tensor->name, name)) place++;
    if (place == state->record->states.pair_count)
        return fail(error, GPUTUNE_INVALID_ARGUMENT, "the state has no '%s'", name);
    const struct kept *kept = &state->kept[place];
    if (nbytes != kept->tensor->nbytes)
        return fail(error, GPUTUNE_INVALID_ARGUMENT, "'%s' of the state has %zu bytes, there is room for %zu", name,
                    kept->tensor->nbytes, nbytes);
    stream_take(stream);
    gputune_code code = lay_out(state, state->record->states.capacity, stream, error);
    if (!code) code = read_buffer(stream, kept->buffers[state->turn], data, nbytes, true, error);
    stream_leave(stream);
    return code;
}

gputune_code gputune_read_state(gputune_state *state, const char *name, void *data, size_t nbytes,
                                gputune_error *error) {
    TRY(take(state, error));
    const gputune_code code = read_kept(state, name, data, nbytes, error);
    leave(state);
    return code;
}
