/* Inferences: each gives the device its inputs, launches and takes its outputs, and allocates nothing that was there
 * before. */
#include "inference.h"
#include "persistent.h"
#include "../profiling/profile.h"
#include "recorded.h"
#include "states.h"

#include <string.h>

gputune_code start_inference(gputune_graph *graph, gputune_error *error) {
    if (graph->persistent && !graph->by_launches) TRY(persistent_run(graph, error));
    else TRY(recorded_start(graph, error));
    graph->form = form_of(&graph->last);
    return GPUTUNE_OK;
}

/* --- one tensor --------------------------------------------------------------------------------------------------- */

gputune_code new_memory_in(gputune_graph *graph, place *place, size_t nbytes, bool shared, held **own,
                           gputune_error *error) {
    gputune_device *device = graph->device;
    held *made = hold(&graph->own, NULL);
    if (!made) return NO_MEMORY;
    if (shared && device->shares_memory) {
        const cl_bitfield flags = CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER;
        made->host = device->cl.SVMAlloc(device->context, flags, nbytes, 0);
        if (!made->host)
            return fail(error, GPUTUNE_LIMIT_EXCEEDED, "%zu bytes of shared memory cannot be allocated", nbytes);
    }
    TRY(allocate(device, made->host ? CL_MEM_USE_HOST_PTR : 0, nbytes, made->host, &made->memory, error));
    count_held(device, made, nbytes);
    *own = made;
    return use_memory(graph, place, made->memory, nbytes, error);
}

/* Waits for an inference that has returned and may still run. */
static gputune_code settle(stream *stream, gputune_error *error) {
    const bool runs_on = stream->runs_on;
    stream->runs_on = false;
    return runs_on ? finish(stream, error) : GPUTUNE_OK;
}

/* Has the launches use the memory of a value, or the tensor's own with an input's value in it. */
static gputune_code give(gputune_graph *graph, tensor *tensor, bool output, gputune_error *error) {
    gputune_memory *memory = tensor->memory;
    place *place = tensor->place;
    const size_t nbytes = tensor->record->nbytes;
    tensor->copied = false;
    if (tensor->linked) return GPUTUNE_OK;
    if (tensor->kept)
        return place->memory == tensor->kept ? GPUTUNE_OK : use_memory(graph, place, tensor->kept, nbytes, error);
    if (memory && memory->memory) {
        if (place->memory != memory->memory)
            TRY(use_memory(graph, place, memory->memory, memory->nbytes, error));
        if (memory->coherent || !memory->of_host) return GPUTUNE_OK;
        tensor->last.maps += memory->data != NULL;
        return give_to_device(memory, graph->stream, error);
    }
    bool lent = false;
    if (!output && !memory) TRY(lend(graph, tensor, &lent, error));
    if (lent) return GPUTUNE_OK;
    if (!tensor->own) {
        TRY(new_memory_in(graph, place, nbytes, true, &tensor->own, error));
        tensor->last.allocations++;
        warn(graph, "%s '%s' was prepared for memory handles and is given as an array: %zu bytes are allocated now, "
             "and copied in every such inference", tensor->kind, tensor->record->name, nbytes);
    }
    if (place->memory != tensor->own->memory) TRY(use_memory(graph, place, tensor->own->memory, nbytes, error));
    if (output) return GPUTUNE_OK;
    count_copy(graph, tensor, &tensor->last.writes);
    if (tensor->own->host) {
        TRY(settle(graph->stream, error)); /* it may read what lies there */
        memcpy(tensor->own->host, tensor->data, nbytes);
        tensor->copied = true;
        return GPUTUNE_OK;
    }
    return write_buffer(graph->stream, place->memory, 0, tensor->data, nbytes, false, error);
}

/* Copies an output to where it is wanted; where that takes a command, it is over when the stream is finished. */
static gputune_code take(gputune_graph *graph, tensor *tensor, gputune_error *error) {
    const size_t nbytes = tensor->record->nbytes;
    count_copy(graph, tensor, &tensor->last.reads);
    if (tensor->own->host) {
        memcpy(tensor->data, tensor->own->host, nbytes);
        return GPUTUNE_OK;
    }
    graph->over = false;
    return read_buffer(graph->stream, tensor->own->memory, tensor->data, nbytes, false, error);
}

/* --- an inference ------------------------------------------------------------------------------------------------- */

/* The recorder's stamp of what was done since the last one. */
static void stamp(gputune_graph *graph, enum part part, int64_t tensor, uint64_t *since_ns) {
    if (!graph->recorder) return;
    const uint64_t now = now_ns();
    record_part(graph->recorder, part, tensor, *since_ns, now);
    *since_ns = now;
}

/* Whether an inference is to be over when it returns: one is not that gives all that it makes to other graphs, needs
 * nothing of the caller's any more and moves no state on. The next on its stream follows it. */
static bool waits(const gputune_graph *graph) {
    const size_t inputs = graph->record->info.input_count;
    bool feeds = false;
    if (graph->state) return true;
    for (size_t i = 0; i < graph->tensor_count; i++) {
        const tensor *tensor = &graph->tensors[i];
        if (tensor->memory || (tensor->data && !tensor->copied)) return true;
        feeds |= i >= inputs && tensor->linked;
    }
    return !feeds;
}

/* Whether an inference has such memory; wanted: and it is claimed. */
static bool maps(const gputune_graph *graph, bool wanted) {
    bool any = false;
    for (size_t i = 0; i < graph->tensor_count; i++) {
        const gputune_memory *memory = graph->tensors[i].memory;
        any |= memory && memory->memory && !memory->coherent && (!wanted || memory->claimed);
    }
    return any;
}

static void set_claims(gputune_graph *graph, bool claimed) {
    for (size_t i = 0; i < graph->tensor_count; i++)
        if (graph->tensors[i].memory && !graph->tensors[i].memory->coherent)
            graph->tensors[i].memory->claimed = claimed;
}

/* Memory that is mapped between inferences is used by those of one stream at a time: others wait for all that they use,
 * so that none waits for one that waits for it. */
static void claim(gputune_graph *graph) {
    gputune_device *device = graph->device;
    if (!maps(graph, false)) return;
    mutex_lock(&device->claims);
    while (maps(graph, true)) condition_wait(&device->released, &device->claims);
    set_claims(graph, true);
    mutex_unlock(&device->claims);
}

static void release(gputune_graph *graph) {
    gputune_device *device = graph->device;
    if (!maps(graph, false)) return;
    mutex_lock(&device->claims);
    set_claims(graph, false);
    condition_tell(&device->released);
    mutex_unlock(&device->claims);
}

/* Ends an inference, also one that has failed, with its code: what was given to the device becomes the host's again,
 * and the stream is finished where that is needed. */
static gputune_code give_back(gputune_graph *graph, gputune_code code, gputune_error *error) {
    for (size_t i = 0; i < graph->tensor_count; i++) {
        gputune_memory *memory = graph->tensors[i].memory;
        if (!memory || !memory->memory || memory->coherent || memory->of_host) continue;
        graph->over = false;
        const gputune_code failed = give_to_host(memory, graph->stream, code ? NULL : error);
        code = code ? code : failed;
    }
    graph->stream->runs_on = !code && !graph->over && !waits(graph);
    if (!code && (graph->over || graph->stream->runs_on)) return GPUTUNE_OK;
    const gputune_code failed = finish(graph->stream, code ? NULL : error);
    return code ? code : failed;
}

/* Acquires or releases, once, each memory that other programs than OpenCL may use. */
static gputune_code hand_over_all(gputune_graph *graph, bool acquire, gputune_error *error) {
    for (size_t i = 0; i < graph->tensor_count; i++) {
        const gputune_memory *memory = graph->tensors[i].memory;
        bool seen = false;
        for (size_t j = 0; j < i; j++) seen |= graph->tensors[j].memory == memory;
        if (!memory || seen) continue;
        TRY(hand_over(memory, acquire, graph->stream, error));
        if (!acquire && memory->importer && memory->importer->external) graph->over = false;
    }
    return GPUTUNE_OK;
}

static gputune_code launch_all(gputune_graph *graph, gputune_error *error) {
    TRY(hand_over_all(graph, true, error));
    const bool timed = graph->recorder && record_times(graph->recorder);
    const gputune_code code = timed ? record_launches(graph, error) : start_inference(graph, error),
                       failed = hand_over_all(graph, false, code ? NULL : error);
    return code ? code : failed;
}

/* Reads that take commands stand behind the launches, so that there is one wait for everything. A recorder waits for
 * the launches alone. */
static gputune_code infer(gputune_graph *graph, gputune_error *error) {
    const size_t inputs = graph->record->info.input_count;
    tensor *tensors = graph->tensors;
    uint64_t since_ns = graph->recorder ? now_ns() : 0;
    gputune_code code = GPUTUNE_OK;
    graph->over = false;
    for (size_t i = 0; i < graph->tensor_count && !code; i++) {
        code = give(graph, &tensors[i], i >= inputs, error);
        stamp(graph, PART_WRITE, i < inputs ? (int64_t)i : -1, &since_ns);
    }
    if (!code) code = launch_all(graph, error);
    stamp(graph, PART_ENQUEUE, -1, &since_ns);
    if (graph->recorder && !code) code = record_finish(graph, error);
    stamp(graph, PART_WAIT, -1, &since_ns);
    for (size_t i = inputs; i < graph->tensor_count && !code; i++)
        if (tensors[i].data && !tensors[i].own->host) code = take(graph, &tensors[i], error);
    code = give_back(graph, code, error);
    stamp(graph, PART_READ, -1, &since_ns);
    for (size_t i = inputs; i < graph->tensor_count && !code; i++) {
        if (!tensors[i].data || !tensors[i].own->host) continue;
        code = take(graph, &tensors[i], error);
        stamp(graph, PART_READ, (int64_t)(i - inputs), &since_ns);
    }
    return code;
}

/* --- what is given for it ----------------------------------------------------------------------------------------- */

/* The tensor that a value is for: that of its name, or the one in its place. */
static tensor *tensor_for(tensor *tensors, size_t count, const char *name, size_t place) {
    if (place < count && (!name || !strcmp(tensors[place].record->name, name))) return &tensors[place];
    for (size_t i = 0; i < count && name; i++)
        if (!strcmp(tensors[i].record->name, name)) return &tensors[i];
    return NULL;
}

static gputune_code set_value(gputune_graph *graph, tensor *tensor, const gputune_value *value, gputune_error *error) {
    gputune_memory *memory = value->memory;
    const char *const name = tensor->record->name;
    if (tensor->linked || tensor->remembered) return refuse_taken(graph, tensor, error);
    if (tensor->given) return fail(error, GPUTUNE_INVALID_ARGUMENT, "%s '%s' is given twice", tensor->kind, name);
    if (!memory == !value->data)
        return fail(error, GPUTUNE_INVALID_ARGUMENT, "%s '%s' needs either data or memory", tensor->kind, name);
    if (memory && (memory->nbytes < tensor->record->nbytes || memory->device != graph->device))
        return fail(error, GPUTUNE_INVALID_ARGUMENT, "tensor '%s' needs memory of %zu bytes of this device, its handle "
                    "has %zu%s", name, tensor->record->nbytes, memory->nbytes,
                    memory->device == graph->device ? "" : " of another one");
    tensor->given = true;
    tensor->memory = memory;
    tensor->data = !memory ? value->data : memory->memory ? NULL : memory->data;
    if (memory && !memory->memory && !__atomic_exchange_n(&memory->told, true, __ATOMIC_RELAXED)) {
        warn(graph, "%s '%s' is copied: %s", tensor->kind, name, memory->kind);
    }
    return GPUTUNE_OK;
}

static gputune_code set_values(gputune_graph *graph, const gputune_value *values, size_t count, bool outputs,
                               gputune_error *error) {
    const gputune_graph_info *info = &graph->record->info;
    tensor *tensors = graph->tensors + (outputs ? info->input_count : 0);
    const size_t has = outputs ? info->output_count : info->input_count;
    for (size_t i = 0; i < has; i++) tensors[i].given = false, tensors[i].data = NULL, tensors[i].memory = NULL;
    for (size_t i = 0; i < count; i++) {
        tensor *tensor = tensor_for(tensors, has, values[i].name, i);
        if (!tensor && !outputs && values[i].name && !values[i].data && !values[i].memory) continue; /* it is empty */
        if (!tensor)
            return fail(error, GPUTUNE_INVALID_ARGUMENT, "graph '%s' has no %s '%s'", info->name,
                        outputs ? "output" : "input", values[i].name ? values[i].name : "after its last");
        TRY(set_value(graph, tensor, &values[i], error));
    }
    for (size_t i = 0; i < has && !outputs; i++)
        if (!tensors[i].given && !tensors[i].linked && !tensors[i].remembered)
            return fail(error, GPUTUNE_INVALID_ARGUMENT, "graph '%s' needs the input '%s'", info->name,
                        tensors[i].record->name);
    return GPUTUNE_OK;
}

/* No output may have memory that another tensor uses, too. */
static gputune_code check_apart(const gputune_graph *graph, gputune_error *error) {
    const tensor *tensors = graph->tensors;
    for (size_t i = graph->record->info.input_count; i < graph->tensor_count; i++)
        for (size_t j = 0; j < graph->tensor_count && tensors[i].memory; j++)
            if (j != i && tensors[j].memory && memories_meet(tensors[i].memory, tensors[j].memory))
                return fail(error, GPUTUNE_INVALID_ARGUMENT, "%s '%s' and %s '%s' of graph '%s' would share memory, "
                            "but one is written while the other may still be read", tensors[j].kind,
                            tensors[j].record->name, tensors[i].kind, tensors[i].record->name,
                            graph->record->info.name);
    return GPUTUNE_OK;
}

static gputune_code run(gputune_graph *graph, gputune_error *error) {
    clear_counters(graph);
    gputune_begin_phase(graph->votes, GPUTUNE_EXECUTE, NULL);
    if (graph->recorder) record_begin(graph);
    const uint64_t begun_ns = now_ns();
    gputune_code code = infer(graph, error);
    graph->last.elapsed_ns = now_ns() - begun_ns;
    count_inference(graph, !code);
    if (graph->recorder) code = record_end(graph, code, error);
    gputune_end_phase(graph->votes, GPUTUNE_EXECUTE, NULL);
    return code;
}

gputune_code gputune_run(gputune_graph *graph, const gputune_value *inputs, size_t input_count,
                         const gputune_value *outputs, size_t output_count, gputune_error *error) {
    TRY(check_here(graph->device, error));
    mutex_lock(&graph->stream->turn); /* stream_take asks again whether this is a fork, which a system call says */
    gputune_code code = set_values(graph, inputs, input_count, false, error);
    if (!code) code = set_values(graph, outputs, output_count, true, error);
    if (!code) code = check_apart(graph, error);
    const bool timed = graph->recorder && record_times(graph->recorder); /* on a queue of its own */
    if (!code && timed) code = settle(graph->stream, error);
    if (!code) code = states_begin(graph, error);
    if (!code) {
        claim(graph);
        code = run(graph, error);
        release(graph);
        states_end(graph, code);
    }
    mutex_unlock(&graph->stream->turn);
    return code;
}
