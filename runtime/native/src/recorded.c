/* Launches that are recorded once and enqueued by one call for each inference, where that is faster. As
 * runtime/queues/ and runtime/execution/recorded.py, which give the reasons, but with one recording at a time, and
 * without mutable dispatch: where memory has changed, command buffers are recorded again. */
#include "recorded.h"
#include "inference.h"
#include "profile.h"

#include <dlfcn.h>
#include <string.h>

#define GAIN 0.03
#define VERSION(major, minor, patch) ((cl_uint)(major) << 22 | (minor) << 12 | (patch))
enum { TURNS = 11, MOST_TURNS = 9, MOST_COMPARED = 50, MOST_CHANGES = 64, EXTENSIONS_WITH_VERSION = 0x1060 };
enum { CAPABILITIES = 0x12A9, CAN_BE_SIMULTANEOUS = 1 << 2, FLAGS = 0x1293, SIMULTANEOUS_USE = 1 << 0 }; /* Khronos */
enum { RECORDABLE = 1 << 30, MAX_SIZE = 0x41DE, MOST_LAUNCHES = 1 << 16 }; /* Qualcomm */

typedef struct moved { cl_uint launch, place; size_t nbytes; const void *value; } moved; /* cl_array_arg_qcom */

#define KHR_FUNCTIONS(X) \
    X(CreateCommandBufferKHR, void *, (cl_uint, const cl_command_queue *, const cl_ulong *, cl_int *)) \
    X(CommandNDRangeKernelKHR, cl_int, (void *, void *, const cl_ulong *, cl_kernel, cl_uint, const size_t *, \
                                        const size_t *, const size_t *, cl_uint, const cl_uint *, cl_uint *, void **)) \
    X(FinalizeCommandBufferKHR, cl_int, (void *)) \
    X(EnqueueCommandBufferKHR, cl_int, (cl_uint, const void *, void *, CL_EVENTS)) \
    X(ReleaseCommandBufferKHR, cl_int, (void *))
#define QCOM_FUNCTIONS(X) \
    X(NewRecordingQCOM, void *, (cl_command_queue, cl_int *)) \
    X(EndRecordingQCOM, cl_int, (void *)) \
    X(EnqueueRecordingQCOM, cl_int, (cl_command_queue, void *, size_t, const moved *, size_t, const void *, size_t, \
                                     const void *, size_t, const void *, CL_EVENTS)) \
    X(ReleaseRecordingQCOM, cl_int, (void *))

struct recorded {
    KHR_FUNCTIONS(OPENCL_MEMBER)
    QCOM_FUNCTIONS(OPENCL_MEMBER)
    cl_ulong flags;         /* of command buffers */
    size_t most;            /* launches in one of Qualcomm's recordings; 0: command buffers */
    cl_command_queue queue; /* Qualcomm's, to record on */
    void **parts;           /* a command buffer, or Qualcomm's recordings */
    size_t part_count;
    bool decided, wins, turn, fresh;
    int compared; /* inferences */
    double launches_ns, times[2][TURNS]; /* of launches, and recorded right after them */
    size_t turns;
};

static bool find(const gputune_device *device, const char *name, void *function) {
    void *address = NULL;
    if (device->cl.GetExtensionFunctionAddressForPlatform)
        address = device->cl.GetExtensionFunctionAddressForPlatform(device->platform, name);
    if (!address && strstr(name, "QCOM")) address = dlsym(device->cl.library, name);
    memcpy(function, &address, sizeof address);
    return address;
}
#define FOUND(name, type, arguments) &&find(device, "cl" #name, &own->name)

static bool has_command_buffers(const gputune_device *device, recorded *own) {
    struct { cl_uint version; char name[64]; } listed[512]; /* a driver with more returns an error */
    size_t nbytes = 0;
    cl_uint version = 0;
    if (device->cl.GetDeviceInfo(device->id, EXTENSIONS_WITH_VERSION, sizeof listed, listed, &nbytes)) return false;
    for (size_t i = 0; i < nbytes / sizeof *listed; i++)
        if (!strncmp(listed[i].name, "cl_khr_command_buffer", sizeof listed[i].name)) version = listed[i].version;
    const uint64_t capabilities = version < VERSION(0, 9, 8) ? number_of(device, device->id, CAPABILITIES) : 0;
    own->flags = capabilities & CAN_BE_SIMULTANEOUS ? SIMULTANEOUS_USE : 0;
    return ((version >= VERSION(0, 9, 0) && version <= VERSION(0, 9, 8)) || version == VERSION(1, 0, 0))
        KHR_FUNCTIONS(FOUND);
}

static bool has_recordable_queues(const gputune_device *device, recorded *own) {
    bool has = false;
    for (size_t i = 0; i < device->identity.extension_count; i++)
        has |= !strcmp(device->identity.extensions[i], "cl_qcom_recordable_queues");
    own->most = (size_t)number_of(device, device->id, MAX_SIZE);
    if (!own->most) own->most = MOST_LAUNCHES;
    return has QCOM_FUNCTIONS(FOUND);
}

gputune_code recorded_open(gputune_graph *graph, gputune_error *error) {
    const gputune_device *device = graph->device;
    const graph_record *record = graph->record;
    const bool leaks = device->is_cpu && strstr(device->identity.platform, "Intel"); /* with every replay */
    if (leaks || graph->one_by_one || record->one_by_one || !record->info.output_count) return GPUTUNE_OK;
    recorded *own = pool_take(&graph->pool, 1, sizeof *own);
    if (!own || !(own->parts = pool_take(&graph->pool, record->info.launch_count + 1, sizeof *own->parts)))
        return NO_MEMORY;
    if (has_command_buffers(device, own) || has_recordable_queues(device, own)) graph->recorded = own;
    return GPUTUNE_OK;
}

static gputune_code begin_part(gputune_graph *graph, gputune_error *error) {
    recorded *own = graph->recorded;
    const gputune_device *device = graph->device;
    const cl_ulong properties[3] = {FLAGS, own->flags, 0};
    cl_int status = 0;
    if (own->most && !own->queue)
        own->queue = device->cl.CreateCommandQueue(device->context, device->id, RECORDABLE, &status);
    TRY(checked(error, "opening a queue to record on", status));
    void *made = own->most ? own->NewRecordingQCOM(own->queue, &status)
                           : own->CreateCommandBufferKHR(1, &graph->stream->queue, own->flags ? properties : NULL,
                                                         &status);
    TRY(checked(error, "recording launches", status));
    own->parts[own->part_count++] = made;
    return GPUTUNE_OK;
}

static gputune_code record(gputune_graph *graph, gputune_error *error) {
    recorded *own = graph->recorded;
    const size_t count = graph->record->info.launch_count, most = own->most ? own->most : count;
    own->fresh = true;
    for (size_t i = 0; i < count; i++) {
        const bound *one = &graph->launches[i];
        if (i % most == 0) TRY(begin_part(graph, error));
        void *const part = own->parts[own->part_count - 1];
        TRY(checked(error, "recording a launch", own->most
            ? graph->device->cl.EnqueueNDRangeKernel(own->queue, one->kernel, one->dimensions, NULL, one->global_size,
                                                     one->local_size, 0, NULL, NULL)
            : own->CommandNDRangeKernelKHR(part, NULL, NULL, one->kernel, one->dimensions, NULL, one->global_size,
                                           one->local_size, 0, NULL, NULL, NULL)));
        if ((i + 1) % most && i + 1 < count) continue;
        TRY(checked(error, "recording", own->most ? own->EndRecordingQCOM(part) : own->FinalizeCommandBufferKHR(part)));
    }
    return GPUTUNE_OK;
}

void recorded_forget(gputune_graph *graph, cl_mem memory) {
    recorded *own = graph->recorded;
    bool uses = false;
    for (size_t i = 0; own && is_here(graph->device) && i < graph->tensor_count; i++)
        uses |= !memory || graph->tensors[i].seen == memory;
    for (size_t i = 0; i < graph->tensor_count && uses; i++) graph->tensors[i].seen = NULL;
    if (uses && own->part_count) finish(graph->stream, NULL); /* an inference may use it */
    while (uses && own->part_count)
        if (own->most) own->ReleaseRecordingQCOM(own->parts[--own->part_count]);
        else own->ReleaseCommandBufferKHR(own->parts[--own->part_count]);
    if (uses && own->queue) graph->device->cl.ReleaseCommandQueue(own->queue), own->queue = NULL;
}

/* Has the recording follow the memory that launches use: each replay tells Qualcomm's what has moved; others are
 * recorded again when memory is there for the second time. */
static gputune_code follow(gputune_graph *graph, gputune_error *error) {
    recorded *own = graph->recorded;
    bool same = true;
    for (size_t i = 0; i < graph->tensor_count; i++) same &= graph->tensors[i].seen == graph->tensors[i].place->memory;
    own->fresh = false;
    if (!same && !own->most) recorded_forget(graph, NULL);
    for (tensor *one = graph->tensors; one < graph->tensors + graph->tensor_count; one++) {
        one->moved = own->part_count && (one->moved || one->seen != one->place->memory);
        one->seen = one->place->memory;
    }
    return !own->part_count && (same || own->most) ? record(graph, error) : GPUTUNE_OK;
}

static gputune_code replay_part(gputune_graph *graph, size_t part, gputune_error *error) {
    const recorded *own = graph->recorded;
    moved changes[MOST_CHANGES];
    size_t count = 0;
    for (size_t i = part * own->most; i < graph->record->info.launch_count && i / own->most == part; i++) {
        const launch *launch = &graph->record->launches[i];
        cl_uint place = 0; /* of the kernel, to which an offset may be given, too */
        for (size_t j = 0; j < launch->argument_count; j++, place++) {
            const argument *one = &launch->arguments[j];
            place += j && launch->offsets && launch->arguments[j - 1].is_buffer;
            if (!one->is_buffer || (one->kind != INPUT && one->kind != OUTPUT)) continue;
            const tensor *at = graph->tensors + one->index + (one->kind == OUTPUT) * graph->record->info.input_count;
            if (at->moved && count == MOST_CHANGES) return fail(error, GPUTUNE_LIMIT_EXCEEDED, "too many tensors move");
            if (at->moved)
                changes[count++] = (moved){(cl_uint)(i % own->most), place, sizeof(cl_mem), &at->place->memory};
        }
    }
    return checked(error, "replaying", own->EnqueueRecordingQCOM(graph->stream->queue, own->parts[part], count, changes,
                                                                 0, NULL, 0, NULL, 0, NULL, 0, NULL, NULL));
}

static void decide(gputune_graph *graph, bool wins) {
    graph->recorded->decided = true, graph->recorded->wins = wins;
    if (!wins) recorded_forget(graph, NULL);
}

/* Enqueues an inference as a recorded queue; false where there is none, or none any more. */
static bool replayed(gputune_graph *graph) {
    const recorded *own = graph->recorded;
    gputune_error failed = {GPUTUNE_OK, ""};
    cl_event event; /* to which PoCL 3.1 writes without asking */
    gputune_code code = follow(graph, &failed);
    if (!code && !own->part_count) return false;
    for (size_t i = 0; own->most && i < own->part_count && !code; i++) code = replay_part(graph, i, &failed);
    if (!own->most && !code) {
        code = checked(&failed, "replaying", own->EnqueueCommandBufferKHR(0, NULL, *own->parts, 0, NULL, &event));
        if (!code) graph->device->cl.ReleaseEvent(event);
    }
    if (code) warn(graph, "launches are enqueued one by one and not as a recorded queue: %s", failed.message);
    if (code) decide(graph, false);
    if (!code) graph->total.recorded++, graph->last.recorded++;
    return !code;
}

static gputune_code launched(gputune_graph *graph, gputune_error *error) {
    graph->total.launches++, graph->last.launches++;
    return enqueue_launches(graph, 0, error);
}

static double median_of(const double times[TURNS]) {
    size_t i = TURNS, before = 0;
    while (before != TURNS / 2 && i-- > 0)
        for (size_t j = before = 0; j < TURNS; j++) before += times[j] < times[i] || (times[j] == times[i] && j < i);
    return times[i];
}

/* An inference in the form whose turn it is. Inferences that load code or record do not count. */
static gputune_code compare(gputune_graph *graph, gputune_error *error) {
    recorded *own = graph->recorded;
    const uint64_t begun_ns = now_ns();
    const bool recorded = own->turn && replayed(graph);
    if (!recorded) TRY(launched(graph, error));
    TRY(finish(graph->stream, error));
    graph->over = true;
    const double elapsed_ns = (double)(now_ns() - begun_ns);
    if (!recorded) own->launches_ns = elapsed_ns;
    else if (!own->fresh) own->times[0][own->turns] = own->launches_ns, own->times[1][own->turns++] = elapsed_ns;
    own->turn = !recorded;
    if (!own->decided && ++own->compared >= MOST_COMPARED) decide(graph, false); /* the memory is new each time */
    size_t often = 0;
    for (size_t i = 0; i < own->turns; i++) often += own->times[1][i] < own->times[0][i];
    if (!own->decided && own->turns == TURNS)
        decide(graph, often >= MOST_TURNS && median_of(own->times[1]) <= (1 - GAIN) * median_of(own->times[0]));
    return GPUTUNE_OK;
}

gputune_code recorded_start(gputune_graph *graph, gputune_error *error) {
    TRY(launches_needed(graph, error));
    if (graph->recorded && !graph->recorded->decided) return compare(graph, error);
    return graph->recorded && graph->recorded->wins && replayed(graph) ? GPUTUNE_OK : launched(graph, error);
}
