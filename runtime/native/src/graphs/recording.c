/* Command buffers of Khronos, whose arguments mutable dispatch may change, and Qualcomm's recordable queues, which are
 * told with each replay what has moved.
 *
 * The calls of Khronos are the same in all versions from 0.9.0 to 0.9.8 and in 1.0, but for three things. Before 0.9.8,
 * a command buffer must not be enqueued again while it runs, unless it was made for simultaneous use; PoCL notes the
 * end of a run after it has reported it, so the flag is set wherever the device has it. PoCL 3.1 needs a place for the
 * event, and reads a kernel's arguments when the buffer is enqueued. So a recording must only be enqueued while its
 * launches have the arguments that they had when it was recorded. The changes of arguments are a linked list in
 * mutable dispatch 0.9.0 and 0.9.1, and an array since 0.9.2.
 *
 * Structures and numbers of recordable queues are those of Qualcomm's cl_ext_qcom.h (Adreno OpenCL SDK); Khronos has no
 * text on it. Launches are recorded by enqueuing them on a queue of its own, which runs nothing. Whether a change holds
 * for later inferences is not specified, so every inference gives all arguments that ever changed. A recording has a
 * largest size, and longer sequences have several. This was tested with a made-up library, and not on hardware. */
#include "recording.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define VERSION(major, minor, patch) ((cl_uint)(major) << 22 | (minor) << 12 | (patch))
enum { EXTENSIONS_WITH_VERSION = 0x1060, MOST_EXTENSIONS = 512 };
/* of Khronos: */
enum { CAPABILITIES = 0x12A9, CAN_BE_SIMULTANEOUS = 1 << 2, FLAGS = 0x1293, SIMULTANEOUS_USE = 1 << 0, MUTABLE = 1 << 1,
       MUTABLE_CAPABILITIES = 0x12B0, UPDATABLE_FIELDS = 0x12B1, ARGUMENTS = 1 << 3, LINKED_TYPE = 1, ARRAY_TYPE = 0 };
/* of Qualcomm: */
enum { RECORDABLE = 1 << 30, MAX_SIZE = 0x41DE, MOST_LAUNCHES = 1 << 16 };

/* cl_array_arg_qcom */
typedef struct moved {
    cl_uint launch, place;
    size_t nbytes;
    const void *value;
} moved;
/* cl_mutable_dispatch_arg_khr */
typedef struct changed {
    cl_uint place;
    size_t nbytes;
    const void *value;
} changed;
/* cl_mutable_dispatch_config_khr since 0.9.2; before that it began with a type and what comes next. */
typedef struct configuration {
    void *command;
    cl_uint argument_count, svm_count, info_count, dimensions;
    const changed *arguments;
    const void *svm_arguments, *infos, *offset, *global_size, *local_size;
} configuration;
typedef struct linked {
    cl_uint type;
    const void *next;
    configuration own;
} linked;
/* cl_mutable_base_config_khr before 0.9.2 */
typedef struct base {
    cl_uint type;
    const void *next;
    cl_uint count;
    const linked *list;
} base;

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

/* An argument of a launch that is a tensor. */
typedef struct tensor_use {
    size_t launch, tensor;
    cl_uint place;
} tensor_use;

struct way {
    KHR_FUNCTIONS(OPENCL_MEMBER)
    QCOM_FUNCTIONS(OPENCL_MEMBER)
    /* one function, whose arguments are others before 0.9.2 of the extension */
    cl_int (*UpdateMutableCommandsKHR)(void *, cl_uint, const cl_uint *, const configuration *const *);
    cl_int (*UpdateByList)(void *, const base *);
    cl_ulong flags; /* of command buffers */
    bool is_mutable, is_linked;
    size_t most; /* launches in one of Qualcomm's recordings; 0: command buffers */
    tensor_use *uses;
    size_t use_count;
    /* room for all changes of one time: */
    moved *moved;
    changed *changed;
    linked *linked;
    const configuration **configurations;
    cl_uint *types;
};

/* --- what the device has --- */

static bool find(const gputune_device *device, const char *name, void *function) {
    void *address = NULL;
    if (device->cl.GetExtensionFunctionAddressForPlatform)
        address = device->cl.GetExtensionFunctionAddressForPlatform(device->platform, name);
    if (!address && strstr(name, "QCOM")) address = dlsym(device->cl.library, name);
    memcpy(function, &address, sizeof address);
    return address;
}
#define FOUND(name, type, arguments) &&find(device, "cl" #name, &own->name)

static bool between(cl_uint version, cl_uint first, cl_uint last) { return version >= first && version <= last; }

/* Mutable dispatch; version: that of its extension, 0 where the device has none. */
static void find_updates(const gputune_device *device, way *own, cl_uint version) {
    if (!between(version, VERSION(0, 9, 0), VERSION(0, 9, 5))) return;
    if (!(number_of(device, device->id, MUTABLE_CAPABILITIES) & ARGUMENTS)) return;
    own->is_linked = version < VERSION(0, 9, 2);
    own->is_mutable = own->is_linked ? find(device, "clUpdateMutableCommandsKHR", &own->UpdateByList)
                                     : find(device, "clUpdateMutableCommandsKHR", &own->UpdateMutableCommandsKHR);
    if (own->is_mutable) own->flags |= MUTABLE;
}

static bool has_command_buffers(const gputune_device *device, way *own) {
    struct { cl_uint version; char name[64]; } listed[MOST_EXTENSIONS]; /* a driver with more returns an error */
    size_t nbytes = 0;
    cl_uint version = 0, updates = 0;
    if (device->cl.GetDeviceInfo(device->id, EXTENSIONS_WITH_VERSION, sizeof listed, listed, &nbytes)) return false;
    for (size_t i = 0; i < nbytes / sizeof *listed; i++) {
        const char *const name = listed[i].name;
        if (!strncmp(name, "cl_khr_command_buffer", sizeof listed->name)) version = listed[i].version;
        if (!strncmp(name, "cl_khr_command_buffer_mutable_dispatch", sizeof listed->name)) updates = listed[i].version;
    }
    const uint64_t capabilities = version < VERSION(0, 9, 8) ? number_of(device, device->id, CAPABILITIES) : 0;
    own->flags = capabilities & CAN_BE_SIMULTANEOUS ? SIMULTANEOUS_USE : 0;
    const bool known = between(version, VERSION(0, 9, 0), VERSION(0, 9, 8)) || version == VERSION(1, 0, 0);
    if (!(known KHR_FUNCTIONS(FOUND))) return false;
    find_updates(device, own, updates);
    return true;
}

static bool has_recordable_queues(const gputune_device *device, way *own) {
    bool has = false;
    for (size_t i = 0; i < device->identity.extension_count; i++)
        has |= !strcmp(device->identity.extensions[i], "cl_qcom_recordable_queues");
    own->most = (size_t)number_of(device, device->id, MAX_SIZE);
    if (!own->most) own->most = MOST_LAUNCHES;
    return has QCOM_FUNCTIONS(FOUND);
}

/* --- which arguments are tensors --- */

/* Writes the uses of a launch where there is room for them; their number. */
static size_t list_uses(const gputune_graph *graph, size_t number, tensor_use *into) {
    const launch *launch = &graph->record->launches[number];
    cl_uint place = 0; /* of the kernel, to which an offset may be given, too */
    size_t count = 0;
    for (size_t i = 0; i < launch->argument_count; i++, place++) {
        const argument *one = &launch->arguments[i];
        place += i && launch->offsets && launch->arguments[i - 1].is_buffer;
        if (!one->is_buffer || (one->kind != INPUT && one->kind != OUTPUT)) continue;
        const size_t tensor = one->index + (one->kind == OUTPUT) * graph->record->info.input_count;
        if (into) into[count] = (tensor_use){number, tensor, place};
        count++;
    }
    return count;
}

static gputune_code find_uses(gputune_graph *graph, way *own, gputune_error *error) {
    const size_t launches = graph->record->info.launch_count;
    size_t count = 0;
    for (size_t i = 0; i < launches; i++) count += list_uses(graph, i, NULL);
    own->uses = pool_take(&graph->pool, count, sizeof *own->uses);
    own->moved = pool_take(&graph->pool, own->most ? count : 0, sizeof *own->moved);
    own->changed = pool_take(&graph->pool, own->is_mutable ? count : 0, sizeof *own->changed);
    own->linked = pool_take(&graph->pool, own->is_mutable ? count : 0, sizeof *own->linked);
    own->configurations = pool_take(&graph->pool, own->is_mutable ? count : 0, sizeof *own->configurations);
    own->types = pool_take(&graph->pool, own->is_mutable ? count : 0, sizeof *own->types);
    if (!own->uses || !own->moved || !own->changed || !own->linked || !own->configurations || !own->types)
        return NO_MEMORY;
    for (size_t i = 0; i < launches; i++) own->use_count += list_uses(graph, i, own->uses + own->use_count);
    return GPUTUNE_OK;
}

gputune_code find_way(gputune_graph *graph, way **found, gputune_error *error) {
    way *own = pool_take(&graph->pool, 1, sizeof *own);
    *found = NULL;
    if (!own) return NO_MEMORY;
    if (!has_command_buffers(graph->device, own) && !has_recordable_queues(graph->device, own)) return GPUTUNE_OK;
    TRY(find_uses(graph, own, error));
    *found = own;
    return GPUTUNE_OK;
}

bool way_rebinds(const way *way) { return way->is_mutable || way->most; }

/* --- recordings --- */

recording *make_recording(const gputune_graph *graph) {
    const size_t tensors = graph->tensor_count, launches = graph->record->info.launch_count;
    recording *made = calloc(1, sizeof *made);
    if (!made) return NULL;
    made->memory = calloc(tensors + 1, sizeof *made->memory);
    made->moved = calloc(tensors + 1, sizeof *made->moved);
    made->parts = calloc(launches + 1, sizeof *made->parts);
    made->commands = calloc(launches + 1, sizeof *made->commands);
    if (!made->memory || !made->moved || !made->parts || !made->commands)
        return release_recording(NULL, NULL, made), NULL;
    for (size_t i = 0; i < tensors; i++) made->memory[i] = graph->tensors[i].place->memory;
    return made;
}

bool fits(const gputune_graph *graph, const recording *recording) {
    size_t i = 0;
    while (i < graph->tensor_count && recording->memory[i] == graph->tensors[i].place->memory) i++;
    return i == graph->tensor_count;
}

bool uses(const gputune_graph *graph, const recording *recording, cl_mem memory) {
    size_t i = 0;
    while (i < graph->tensor_count && recording->memory[i] != memory) i++;
    return i < graph->tensor_count;
}

static gputune_code begin_part(gputune_graph *graph, way *way, recording *recording, gputune_error *error) {
    gputune_device *device = graph->device;
    const cl_ulong properties[3] = {FLAGS, way->flags, 0};
    cl_int status = 0;
    if (way->most && !recording->queue)
        recording->queue = device->cl.CreateCommandQueue(device->context, device->id, RECORDABLE, &status);
    TRY(checked(error, "opening a queue to record on", status));
    void *made = way->most ? way->NewRecordingQCOM(recording->queue, &status)
                           : way->CreateCommandBufferKHR(1, &graph->stream->queue, way->flags ? properties : NULL,
                                                         &status);
    TRY(checked(error, "recording launches", status));
    recording->parts[recording->part_count++] = made;
    return GPUTUNE_OK;
}

static cl_int add_launch(const gputune_graph *graph, const way *way, recording *recording, size_t number) {
    static const cl_ulong UPDATABLE[3] = {UPDATABLE_FIELDS, ARGUMENTS, 0};
    const bound *one = &graph->launches[number];
    if (way->most)
        return graph->device->cl.EnqueueNDRangeKernel(recording->queue, one->kernel, one->dimensions, NULL,
                                                      one->global_size, one->local_size, 0, NULL, NULL);
    return way->CommandNDRangeKernelKHR(recording->parts[recording->part_count - 1], NULL,
                                        way->is_mutable ? UPDATABLE : NULL, one->kernel, one->dimensions, NULL,
                                        one->global_size, one->local_size, 0, NULL, NULL,
                                        way->is_mutable ? &recording->commands[number] : NULL);
}

gputune_code record_into(gputune_graph *graph, way *way, recording *recording, gputune_error *error) {
    const size_t count = graph->record->info.launch_count, most = way->most ? way->most : count;
    for (size_t i = 0; i < count; i++) {
        if (i % most == 0) TRY(begin_part(graph, way, recording, error));
        TRY(checked(error, "recording a launch", add_launch(graph, way, recording, i)));
        if ((i + 1) % most && i + 1 < count) continue;
        void *const part = recording->parts[recording->part_count - 1];
        TRY(checked(error, "recording", way->most ? way->EndRecordingQCOM(part) : way->FinalizeCommandBufferKHR(part)));
    }
    return GPUTUNE_OK;
}

/* Lists what has changed, by launches; their number. */
static cl_uint list_changes(const gputune_graph *graph, way *way, const recording *recording) {
    size_t launch = SIZE_MAX;
    cl_uint count = 0;
    changed *next = way->changed;
    for (const tensor_use *one = way->uses; one < way->uses + way->use_count; one++) {
        const place *place = graph->tensors[one->tensor].place;
        if (recording->memory[one->tensor] == place->memory) continue;
        if (one->launch != launch) {
            way->linked[count] = (linked){LINKED_TYPE, NULL, {.command = recording->commands[one->launch]}};
            way->linked[count].own.arguments = next;
            way->configurations[count] = &way->linked[count].own;
            way->types[count++] = ARRAY_TYPE;
            launch = one->launch;
        }
        *next++ = (changed){one->place, sizeof(cl_mem), &place->memory};
        way->linked[count - 1].own.argument_count++;
    }
    return count;
}

gputune_code rebind(gputune_graph *graph, way *way, recording *recording, gputune_error *error) {
    const cl_uint count = way->is_mutable ? list_changes(graph, way, recording) : 0;
    const base all = {0, NULL, count, way->linked};
    if (count)
        TRY(checked(error, "changing arguments of a recorded queue", way->is_linked
            ? way->UpdateByList(*recording->parts, &all)
            : way->UpdateMutableCommandsKHR(*recording->parts, count, way->types, way->configurations)));
    for (size_t i = 0; i < graph->tensor_count; i++) {
        recording->moved[i] |= recording->memory[i] != graph->tensors[i].place->memory;
        recording->memory[i] = graph->tensors[i].place->memory;
    }
    return GPUTUNE_OK;
}

/* Whether a change holds for later replays is not specified, so each one is told all that ever changed. */
static gputune_code replay_part(gputune_graph *graph, way *way, const recording *recording, size_t part,
                                gputune_error *error) {
    size_t count = 0;
    for (const tensor_use *one = way->uses; one < way->uses + way->use_count; one++)
        if (one->launch / way->most == part && recording->moved[one->tensor])
            way->moved[count++] = (moved){(cl_uint)(one->launch % way->most), one->place, sizeof(cl_mem),
                                          &recording->memory[one->tensor]};
    return checked(error, "replaying",
                   way->EnqueueRecordingQCOM(graph->stream->queue, recording->parts[part], count, way->moved, 0, NULL,
                                             0, NULL, 0, NULL, 0, NULL, NULL));
}

gputune_code replay(gputune_graph *graph, way *way, const recording *recording, gputune_error *error) {
    cl_event event; /* to which PoCL 3.1 writes without asking */
    for (size_t i = 0; way->most && i < recording->part_count; i++) TRY(replay_part(graph, way, recording, i, error));
    if (way->most) return GPUTUNE_OK;
    TRY(checked(error, "replaying", way->EnqueueCommandBufferKHR(0, NULL, *recording->parts, 0, NULL, &event)));
    graph->device->cl.ReleaseEvent(event);
    return GPUTUNE_OK;
}

void release_recording(gputune_graph *graph, const way *way, recording *recording) {
    const bool here = graph && is_here(graph->device);
    for (size_t i = 0; here && i < recording->part_count; i++)
        if (way->most) way->ReleaseRecordingQCOM(recording->parts[i]);
        else way->ReleaseCommandBufferKHR(recording->parts[i]);
    if (here && recording->queue) graph->device->cl.ReleaseCommandQueue(recording->queue);
    free(recording->memory);
    free(recording->moved);
    free(recording->parts);
    free(recording->commands);
    free(recording);
}
