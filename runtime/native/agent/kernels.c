/* The device, its programs and kernels, and their times. */
#include "session.h"

#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

extern char **environ;

enum { LOG_BYTES = 1 << 16, NAME_BYTES = 128, SHORTEST_PAUSE_NS = 20000, LONGEST_PAUSE_NS = 1000000 };

/* --- the device --------------------------------------------------------------------------------------------------- */

/* A device of the library, any one: by it the others are found. */
static gputune_code any_device(session *session, gputune_error *error) {
    const gputune_device_options any = {.device = ""};
    return session->listed ? GPUTUNE_OK : gputune_open_device(&any, &session->listed, error);
}

gputune_code devices_of(session *session, found_device **found, size_t *count, gputune_error *error) {
    gputune_code code = any_device(session, error);
    *found = reply_rows(session, MOST_DEVICES, sizeof **found, &code, error);
    *count = code ? 0 : find_devices(session->listed, *found, MOST_DEVICES);
    return code;
}

gputune_code list_devices(session *session, const void *asked, void *reply, gputune_error *error) {
    devices_message *const devices = reply;
    found_device *found;
    (void)asked;
    gputune_code code = devices_of(session, &found, &devices->devices_count, error);
    identity *const all = reply_rows(session, MOST_DEVICES, sizeof *all, &code, error);
    for (size_t i = 0; i < devices->devices_count && !code; i++) all[i] = found[i].identity;
    devices->devices = all;
    return code;
}

/* Whether NAME=VALUE has one of these names, in which * stands for any characters. */
static bool is_listed(const char *variable, const char *const *patterns) {
    char name[NAME_BYTES];
    const char *const end = strchr(variable, '=');
    if (!end || end - variable >= NAME_BYTES) return false;
    memcpy(name, variable, (size_t)(end - variable));
    name[end - variable] = 0;
    while (*patterns && fnmatch(*patterns, name, 0)) patterns++;
    return *patterns;
}

/* Tells the variables that change code or time, and no others: others need not know them. */
static gputune_code tell_variables(session *session, opened_message *opened, gputune_error *error) {
    gputune_code code = GPUTUNE_OK;
    size_t count = 0;
    while (environ[count]) count++;
    const char **const told = reply_rows(session, count, sizeof *told, &code, error);
    for (size_t i = 0; i < count && !code; i++)
        if (is_listed(environ[i], TOLD_VARIABLES)) told[opened->variables_count++] = environ[i];
    opened->variables = told;
    return code;
}

gputune_code open_device(session *session, const void *asked, void *reply, gputune_error *error) {
    const open_message *const request = asked;
    opened_message *const opened = reply;
    char place[24];
    for (size_t i = 0; i < request->variables_count; i++)
        if (!is_listed(request->variables[i], GIVEN_VARIABLES))
            return fail(error, GPUTUNE_INVALID_ARGUMENT, "the variable '%.100s' is none that a client gives an agent",
                        request->variables[i]);
    for (size_t i = 0; i < request->variables_count; i++) {
        char *const variable = strdup(request->variables[i]); /* the environment keeps it */
        if (!variable || putenv(variable)) return NO_MEMORY;
    }
    snprintf(place, sizeof place, "%llu", (unsigned long long)request->place);
    const gputune_device_options options = {.device = place};
    TRY(gputune_open_device(&options, &session->device, error));
    gputune_device *const device = session->device;
    session->profiling = request->profiling, session->place = request->place;
    if (request->profiling) {
        cl_int status = 0;
        device->cl.ReleaseCommandQueue(device->stream.queue);
        device->stream.queue = device->cl.CreateCommandQueue(device->context, device->id, CL_QUEUE_PROFILING_ENABLE,
                                                             &status);
        TRY(checked(error, "making a queue", status));
    }
    opened->cache_bytes = number_of(device, device->id, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE);
    return tell_variables(session, opened, error);
}

/* --- programs ----------------------------------------------------------------------------------------------------- */

static gputune_code not_built(session *session, cl_program program, cl_int status, gputune_error *error) {
    const opencl *const cl = &session->device->cl;
    char room[STATUS_CHARACTERS];
    size_t nbytes = 0;
    if (cl->GetProgramBuildInfo(program, session->device->id, CL_PROGRAM_BUILD_LOG, 0, NULL, &nbytes)) nbytes = 0;
    char *const log = pool_take(&session->pool, nbytes + 1, 1);
    if (log && cl->GetProgramBuildInfo(program, session->device->id, CL_PROGRAM_BUILD_LOG, nbytes, log, NULL)) *log = 0;
    if (log && nbytes >= LOG_BYTES) log[LOG_BYTES] = 0, cut_text(log);
    session->said = log && *log ? log : NULL;
    return fail(error, GPUTUNE_BUILD_FAILED, "building a program failed: %s", status_text(status, room));
}

static gputune_code built_of(session *session, const build_message *request, cl_program *program,
                             gputune_error *error) {
    const gputune_device *const device = session->device;
    const uint8_t *const binary = request->binary.data;
    const char *const source = request->source;
    const size_t nbytes = request->binary.nbytes ? request->binary.nbytes : strlen(source);
    char room[STATUS_CHARACTERS];
    cl_int status = 0, loaded = 0;
    *program = request->binary.nbytes
                   ? device->cl.CreateProgramWithBinary(device->context, 1, &device->id, &nbytes,
                                                        (const uint8_t *[]){binary}, &loaded, &status)
                   : device->cl.CreateProgramWithSource(device->context, 1, (const char *[]){source}, &nbytes, &status);
    if (!*program || status || loaded)
        return fail(error, GPUTUNE_BUILD_FAILED, "loading a program failed: %s",
                    status_text(status ? status : loaded, room));
    status = device->cl.BuildProgram(*program, 1, &device->id, request->options, NULL, NULL);
    return status ? not_built(session, *program, status, error) : GPUTUNE_OK;
}

gputune_code build_program(session *session, const void *asked, void *reply, gputune_error *error) {
    const build_message *const request = asked;
    built_message *const built = reply;
    const uint64_t begun_ns = now_ns();
    cl_program program = NULL;
    object *made = NULL;
    gputune_code code = built_of(session, request, &program, error);
    if (!code) code = new_object(session, request->handle, PROGRAM, &made, error);
    if (code && program) session->device->cl.ReleaseProgram(program);
    if (!code) made->program = program;
    built->build_ns = now_ns() - begun_ns;
    return code;
}

gputune_code harvest_program(session *session, const void *asked, void *reply, gputune_error *error) {
    contents_message *const contents = reply;
    const cl_program program = session->named->program;
    const opencl *const cl = &session->device->cl;
    size_t nbytes = 0;
    (void)asked;
    TRY(checked(error, "reading a program's binary",
                cl->GetProgramInfo(program, CL_PROGRAM_BINARY_SIZES, sizeof nbytes, &nbytes, NULL)));
    TRY(take_contents(session, nbytes, error));
    TRY(checked(error, "reading a program's binary",
                cl->GetProgramInfo(program, CL_PROGRAM_BINARIES, sizeof session->contents, &session->contents, NULL)));
    gputune_code code = GPUTUNE_OK;
    slice *const data = reply_rows(session, 1, sizeof *data, &code, error);
    if (!code) *data = (slice){session->contents, nbytes};
    contents->data = data, contents->data_count = 1;
    return code;
}

/* --- kernels ------------------------------------------------------------------------------------------------------ */

/* The memory of an argument: a buffer's own, or a part of it that the kernel keeps. */
static gputune_code argument_of(session *session, prepared *prepared, const given *given, cl_mem *memory,
                                gputune_error *error) {
    const span span = {given->buffer, given->offset, given->nbytes};
    storage *buffer;
    TRY(memory_of(session, &span, &buffer, error));
    *memory = buffer->memory;
    buffer->users++;
    prepared->buffers[prepared->buffer_count++] = buffer;
    if (!given->offset && given->nbytes == buffer->nbytes) return GPUTUNE_OK;
    const cl_buffer_region region = {(size_t)given->offset, (size_t)given->nbytes};
    cl_int status = 0;
    *memory = session->device->cl.CreateSubBuffer(buffer->memory, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION,
                                                  &region, &status);
    TRY(checked(error, "a buffer part", status));
    prepared->parts[prepared->part_count++] = *memory;
    return GPUTUNE_OK;
}

static gputune_code set_arguments(session *session, prepared *prepared, const bind_message *request,
                                  gputune_error *error) {
    const opencl *const cl = &session->device->cl;
    cl_uint wanted = 0;
    TRY(checked(error, "asking a kernel",
                cl->GetKernelInfo(prepared->kernel, CL_KERNEL_NUM_ARGS, sizeof wanted, &wanted, NULL)));
    if (wanted != request->arguments_count)
        return fail(error, GPUTUNE_LAUNCH_FAILED, "kernel '%s' takes %u arguments, %zu are given", request->entry,
                    wanted, request->arguments_count);
    for (cl_uint i = 0; i < wanted; i++) {
        const given *const given = &request->arguments[i];
        const int32_t scalar = (int32_t)given->scalar;
        cl_mem memory = NULL;
        if (given->buffer) TRY(argument_of(session, prepared, given, &memory, error));
        TRY(checked(error, "setting an argument",
                    cl->SetKernelArg(prepared->kernel, i, given->buffer ? sizeof memory : sizeof scalar,
                                     given->buffer ? (const void *)&memory : &scalar)));
    }
    return GPUTUNE_OK;
}

/* Whether a kernel can run with such work-groups; NVIDIA says 256 and runs what it was compiled for. */
static gputune_code check_limits(session *session, const prepared *prepared, const char *entry, gputune_error *error) {
    const gputune_device *const device = session->device;
    size_t allowed = 0, compiled[3] = {0, 0, 0}, items = 1;
    uint64_t local_bytes = 0;
    device->cl.GetKernelWorkGroupInfo(prepared->kernel, device->id, CL_KERNEL_WORK_GROUP_SIZE, sizeof allowed, &allowed,
                                      NULL);
    device->cl.GetKernelWorkGroupInfo(prepared->kernel, device->id, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof compiled,
                                      compiled, NULL);
    device->cl.GetKernelWorkGroupInfo(prepared->kernel, device->id, CL_KERNEL_LOCAL_MEM_SIZE, sizeof local_bytes,
                                      &local_bytes, NULL);
    for (size_t i = 0; i < prepared->dimensions; i++) items *= prepared->local_size[i];
    if (compiled[0] * compiled[1] * compiled[2] > allowed) allowed = compiled[0] * compiled[1] * compiled[2];
    if (items > allowed)
        return fail(error, GPUTUNE_LIMIT_EXCEEDED, "work-group of %zu work-items, kernel '%s' allows %zu here", items,
                    entry, allowed);
    if (local_bytes <= device->identity.local_memory_bytes) return GPUTUNE_OK;
    return fail(error, GPUTUNE_LIMIT_EXCEEDED, "%llu bytes of local memory in kernel '%s', the device has %llu",
                (unsigned long long)local_bytes, entry, (unsigned long long)device->identity.local_memory_bytes);
}

static gputune_code make_prepared(session *session, const bind_message *request, prepared *prepared,
                                  gputune_error *error) {
    cl_int status = 0;
    if (!request->global_size_count)
        return fail(error, GPUTUNE_INVALID_LAUNCH, "a launch without sizes");
    prepared->dimensions = (cl_uint)request->global_size_count;
    memcpy(prepared->global_size, request->global_size, sizeof prepared->global_size);
    memcpy(prepared->local_size, request->local_size, sizeof prepared->local_size);
    prepared->buffers = calloc(request->arguments_count + 1, sizeof *prepared->buffers);
    prepared->parts = calloc(request->arguments_count + 1, sizeof *prepared->parts);
    if (!prepared->buffers || !prepared->parts) return NO_MEMORY;
    prepared->kernel = session->device->cl.CreateKernel(session->named->program, request->entry, &status);
    if (!prepared->kernel || status)
        return fail(error, GPUTUNE_BUILD_FAILED, "the program has no kernel '%s'", request->entry);
    TRY(check_limits(session, prepared, request->entry, error));
    return set_arguments(session, prepared, request, error);
}

gputune_code bind_kernel(session *session, const void *asked, void *reply, gputune_error *error) {
    const bind_message *const request = asked;
    object *holder = NULL;
    (void)reply;
    prepared *const prepared = calloc(1, sizeof *prepared);
    gputune_code code = prepared ? make_prepared(session, request, prepared, error) : NO_MEMORY;
    if (!code) code = new_object(session, request->handle, BOUND, &holder, error);
    if (!code) holder->prepared = prepared;
    else if (prepared) release_prepared(session, prepared);
    return code;
}

/* --- launches ----------------------------------------------------------------------------------------------------- */

static gputune_code enqueue(session *session, const prepared *prepared, cl_event *event, gputune_error *error) {
    return checked(error, "a launch",
                   session->device->cl.EnqueueNDRangeKernel(session->device->stream.queue, prepared->kernel,
                                                            prepared->dimensions, NULL, prepared->global_size,
                                                            prepared->local_size, 0, NULL, event));
}

static gputune_code moment(session *session, cl_event event, cl_uint what, int64_t *found, gputune_error *error) {
    cl_ulong ns = 0;
    TRY(checked(error, "reading the time of a launch",
                session->device->cl.GetEventProfilingInfo(event, what, sizeof ns, &ns, NULL)));
    *found = (int64_t)ns;
    return GPUTUNE_OK;
}

/* What the event of a finished kernel says. */
static gputune_code stamps(session *session, cl_event event, int64_t times[4], gputune_error *error) {
    TRY(moment(session, event, CL_PROFILING_COMMAND_QUEUED, &times[0], error));
    TRY(moment(session, event, CL_PROFILING_COMMAND_SUBMIT, &times[1], error));
    TRY(moment(session, event, CL_PROFILING_COMMAND_START, &times[2], error));
    return moment(session, event, CL_PROFILING_COMMAND_END, &times[3], error);
}

/* Enqueues the kernels of a batch, and waits for their end. Each that was enqueued has an event. */
static gputune_code launch_batch(session *session, const batch *batch, cl_event *events, gputune_error *error) {
    object *kernel;
    for (size_t n = 0; n < batch->launches; n++)
        for (size_t i = 0; i < batch->bounds_count; i++) {
            TRY(object_of(session, batch->bounds[i], BOUND, &kernel, error));
            TRY(enqueue(session, kernel->prepared, events++, error));
        }
    return finish(&session->device->stream, error);
}

/* Runs a batch of so many kernels in all. event_ns: what they took, or -1 where the device's clock says nothing of one.
 * Without a clock the times stay 0. */
static gputune_code run_batch(session *session, const batch *batch, size_t count, int64_t *times, int64_t *wall_ns,
                              int64_t *event_ns, gputune_error *error) {
    gputune_code code = GPUTUNE_OK;
    cl_event *const events = reply_rows(session, count + 1, sizeof *events, &code, error);
    const uint64_t begun_ns = now_ns();
    if (!code) code = launch_batch(session, batch, events, error);
    *wall_ns = (int64_t)(now_ns() - begun_ns);
    *event_ns = session->profiling ? 0 : -1;
    for (size_t i = 0; events && i < count; i++) {
        if (!code && session->profiling) code = stamps(session, events[i], times + 4 * i, error);
        const int64_t took_ns = times[4 * i + 3] - times[4 * i + 2];
        *event_ns = took_ns < 0 || *event_ns < 0 ? -1 : *event_ns + took_ns;
        if (events[i]) session->device->cl.ReleaseEvent(events[i]);
    }
    return code;
}

gputune_code time_pass(session *session, const void *asked, void *reply, gputune_error *error) {
    enum { MOST_KERNELS = 1 << 20 };
    const time_pass_message *const request = asked;
    timed_message *const timed = reply;
    gputune_code code = GPUTUNE_OK;
    size_t kernels = 0, done = 0, batches = 0;
    for (size_t i = 0; i < request->batches_count && !code; i++) {
        const batch *const batch = &request->batches[i];
        if (!batch->bounds_count || batch->launches > (MOST_KERNELS - kernels) / batch->bounds_count)
            code = fail(error, GPUTUNE_INVALID_ARGUMENT, "a batch of no kernel, or more than %d kernels", MOST_KERNELS);
        else kernels += (size_t)batch->launches * batch->bounds_count;
    }
    int64_t *const times = reply_rows(session, kernels + 1, 4 * sizeof *times, &code, error);
    int64_t *const walls = reply_rows(session, request->batches_count + 1, sizeof *walls, &code, error);
    int64_t total_ns = 0;
    if (!code && !request->batches_count) code = finish(&session->device->stream, error);
    for (bool enough = false; batches < request->batches_count && !code && !enough; batches++) {
        const batch *const batch = &request->batches[batches];
        const size_t count = (size_t)batch->launches * batch->bounds_count;
        int64_t event_ns = 0;
        code = run_batch(session, batch, count, times + 4 * done, &walls[batches], &event_ns, error);
        done += count;
        if (batch->counted) total_ns += event_ns;
        enough = batch->counted && (event_ns <= 0 || total_ns >= (int64_t)request->enough_ns);
    }
    timed->wall_ns = (slice){(const uint8_t *)walls, batches * sizeof *walls};
    timed->times = (slice){(const uint8_t *)times, done * 4 * sizeof *times};
    return code;
}

/* Waits until a launch runs or has run, and no driver compiles for it any more. */
static gputune_code wait_until_it_runs(session *session, cl_event event, gputune_error *error) {
    struct timespec pause = {0, SHORTEST_PAUSE_NS};
    for (cl_int status = CL_RUNNING + 1;;) {
        TRY(checked(error, "asking for a launch",
                    session->device->cl.GetEventInfo(event, CL_EVENT_COMMAND_EXECUTION_STATUS, sizeof status, &status,
                                                     NULL)));
        if (status < 0)
            return fail(error, GPUTUNE_LAUNCH_FAILED, "a launch failed: the driver ended it with status %d", status);
        if (status <= CL_RUNNING) return GPUTUNE_OK;
        nanosleep(&pause, NULL);
        if (pause.tv_nsec < LONGEST_PAUSE_NS) pause.tv_nsec *= 2;
    }
}

gputune_code launch_first(session *session, const void *asked, void *reply, gputune_error *error) {
    const first_launch_message *const request = asked;
    timed_message *const timed = reply;
    gputune_code code = GPUTUNE_OK;
    int64_t *const times = reply_rows(session, 5, sizeof *times, &code, error);
    cl_event event = NULL;
    const uint64_t begun_ns = now_ns();
    if (!code) code = enqueue(session, session->named->prepared, &event, error);
    if (!code) code = checked(error, "a launch", session->device->cl.Flush(session->device->stream.queue));
    if (!code && request->waits) code = wait_until_it_runs(session, event, error);
    if (!code && !say(session, STARTED_MESSAGE, &(started_message){0}))
        code = fail(error, GPUTUNE_IO_ERROR, "the connection has ended");
    if (!code) code = finish(&session->device->stream, error);
    if (!code) times[4] = (int64_t)(now_ns() - begun_ns);
    if (!code && session->profiling) code = stamps(session, event, times, error);
    if (event) session->device->cl.ReleaseEvent(event);
    timed->wall_ns = (slice){(const uint8_t *)&times[4], sizeof *times};
    timed->times = (slice){(const uint8_t *)times, 4 * sizeof *times};
    return code;
}
