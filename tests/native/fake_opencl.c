/* A libOpenCL.so for tests: one GPU whose kernels double floats, from their first buffer to their last one.
 *
 * It runs a command when it is enqueued, on the caller's thread, and locks nothing but its counts, so that a sanitizer
 * sees two threads that use a queue or a kernel at once, and memory that is freed too early. It counts what is alive
 * (fake_alive) and calls that could fail, of which one can be made to (fake_fail_at), and events may have times that are
 * made up (fake_stamp). A program is its text: a binary is one that has "__kernel" in it. Launches can be recorded
 * (fake_records), in command buffers, whose arguments may be changed, or on Qualcomm's queues, by a device without memory
 * of its own, and may take time when they are enqueued (fake_delay). The GPU may be a CPU (fake_cpu).
 *
 * Another process than the test's own is told by the environment. FAKE_ORDERS names a file that is read when the library
 * is loaded: the number of the call that fails, or less than 0 of that which ends the process; the work-items that the
 * device allows for a kernel; and those that a kernel was compiled for. Where the call is that failed is written to
 * FAKE_ORDERS.failed. FAKE_PLATFORM, FAKE_NAME and FAKE_LOG are the platform's and the device's name, and the log of
 * each build. */
#define _POSIX_C_SOURCE 200809L
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define API __attribute__((visibility("default")))
enum { INVALID_VALUE = -30, INVALID_BINARY = -42, INVALID_KERNEL_NAME = -46, INVALID_ARGUMENTS = -52,
       INVALID_OPERATION = -59 };
enum { MOST_ARGUMENTS = 16, NAME_BYTES = 64 };

typedef struct object object;
typedef struct step {
    object *kernel, *given[MOST_ARGUMENTS];
} step;
struct object {
    atomic_int owners;
    object *parent; /* of a part of a buffer, and of a kernel its program */
    char *bytes;    /* of a buffer, or the text of a program */
    size_t nbytes;
    bool owns_bytes;
    atomic_int maps; /* of a buffer, which no launch may use meanwhile */
    char name[NAME_BYTES]; /* of a kernel */
    unsigned arguments;
    struct {
        object *buffer;
        bool set;
    } given[MOST_ARGUMENTS];
    uint64_t begun_ns, ended_ns; /* of an event */
    uint64_t commands;           /* of a queue */
    object *recording;           /* of a queue on which launches are recorded */
    step *steps;                 /* of a recording */
    size_t step_count;
};

static atomic_long alive, calls, failing;
static atomic_int status_of_failures = -5;
#define OUT_OF_RESOURCES atomic_load(&status_of_failures)
static _Atomic uint64_t stamps_ns[4]; /* of each event: queued, submitted, begun and ended; 0: as it was */
static _Atomic(const char *) failed = "";
static atomic_int records; /* 0: nothing, or one of the following */
enum { COMMAND_BUFFERS = 1, RECORDABLE_QUEUES, MUTABLE, MUTABLE_BY_LIST };
static atomic_long delay_ns, replays, recordings, updates, refusing, is_cpu, finishes;
static atomic_long meeting, arrived, inside, most_inside;
static int platform, devices[2]; /* whose addresses are their handles */
static atomic_long device_count = 1, opened, lost, events, most_events, ahead_ns;

API long fake_alive(void) { return atomic_load(&alive); }
API long fake_calls(void) { return atomic_load(&calls); }
API void fake_records(int how) { atomic_store(&records, how); }
/* Enqueuing a launch takes so long. */
API void fake_delay(long ns) { atomic_store(&delay_ns, ns); }
/* The platform has so many equal devices, and is listed twice if it has more than one. */
API void fake_devices(long count) { atomic_store(&device_count, count); }
/* The number of the device that a context was made for last. */
API long fake_opened(void) { return atomic_load(&opened); }
/* What is read of the device is wrong from now on, without an error. */
API void fake_lose(long is_lost) { atomic_store(&lost, is_lost); }
/* From now on so many threads wait for a queue at a time, each for the others; 0: as they come. */
API void fake_meet(long threads) {
    atomic_store(&arrived, 0);
    atomic_store(&most_inside, 0);
    atomic_store(&meeting, threads);
}
/* The most threads that have waited at a time. */
API long fake_met(void) { return atomic_load(&most_inside); }
/* Waits for a queue so far. */
API long fake_finishes(void) { return atomic_load(&finishes); }
API long fake_replays(void) { return atomic_load(&replays); }
API long fake_recordings(void) { return atomic_load(&recordings); }
API long fake_updates(void) { return atomic_load(&updates); }
/* Every replay fails. */
API void fake_refuse(long refuses) { atomic_store(&refusing, refuses); }
/* The device is a CPU for who asks from now on. */
API void fake_cpu(long is_one) { atomic_store(&is_cpu, is_one); }
/* The call of this number from now on fails; 0: none does. */
API void fake_fail_at(long number) {
    atomic_store(&calls, 0);
    atomic_store(&failing, number);
}

/* Calls that fail return this status from now on. */
API void fake_status(long status) { atomic_store(&status_of_failures, (int)status); }

/* Events have these times from now on; 0: those that they have. */
API void fake_stamp(uint64_t queued, uint64_t submitted, uint64_t begun, uint64_t ended) {
    const uint64_t stamps[] = {queued, submitted, begun, ended};
    for (int at = 0; at < 4; at++) atomic_store(&stamps_ns[at], stamps[at]);
}

/* The device's clock can be read, and is ahead of the host's by so much; 0: it cannot, and is the host's. */
API void fake_ahead(long ns) { atomic_store(&ahead_ns, ns); }
/* The most events that were alive at a time since this was asked last. */
API long fake_most_events(void) { return atomic_exchange(&most_events, atomic_load(&events)); }

/* Where the call is that was made to fail. */
API const char *fake_failed(void) { return atomic_load(&failed); }

static size_t allowed_items = 1024, compiled_items;

__attribute__((constructor)) static void take_orders(void) {
    const char *const path = getenv("FAKE_ORDERS");
    FILE *const file = path != NULL ? fopen(path, "r") : NULL;
    long number = 0;
    if (file != NULL && fscanf(file, "%ld %zu %zu", &number, &allowed_items, &compiled_items) > 0)
        atomic_store(&failing, number);
    if (file != NULL) fclose(file);
}

static void report(const char *function) {
    const char *const path = getenv("FAKE_ORDERS");
    char name[512];
    if (path == NULL) return;
    snprintf(name, sizeof name, "%s.failed", path);
    FILE *const file = fopen(name, "w");
    if (file == NULL) abort();
    fputs(function, file);
    fclose(file);
}

static bool fails_in(const char *function) {
    const long number = atomic_fetch_add(&calls, 1) + 1;
    if (number == -atomic_load(&failing)) abort();
    if (number != atomic_load(&failing)) return false;
    atomic_store(&failed, function);
    report(function);
    return true;
}

static const char *told(const char *variable, const char *usual) {
    const char *const found = getenv(variable);
    return found != NULL ? found : usual;
}
#define fails() fails_in(__func__)

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static object *made(int32_t *status, int32_t wrong) {
    if (status != NULL) *status = wrong;
    if (wrong) return NULL;
    object *one = calloc(1, sizeof *one);
    if (one == NULL) abort();
    atomic_store(&one->owners, 1);
    atomic_fetch_add(&alive, 1);
    return one;
}

static int32_t release(object *one) {
    if (atomic_fetch_sub(&one->owners, 1) > 1) return 0;
    if (one->parent != NULL) release(one->parent);
    if (one->owns_bytes) free(one->bytes);
    for (size_t at = 0; at < one->step_count; at++) release(one->steps[at].kernel);
    free(one->steps);
    free(one);
    atomic_fetch_sub(&alive, 1);
    return 0;
}

static object *shared(object *one) {
    atomic_fetch_add(&one->owners, 1);
    return one;
}

static int32_t answer(const void *value, size_t length, size_t room, void *to, size_t *needed) {
    if (fails()) return OUT_OF_RESOURCES;
    if (needed != NULL) *needed = length;
    if (to != NULL && room < length) return INVALID_VALUE;
    if (to != NULL) memcpy(to, value, length);
    return 0;
}

static int32_t answer_text(const char *text, size_t room, void *to, size_t *needed) {
    return answer(text, strlen(text) + 1, room, to, needed);
}

static int32_t answer_number(uint64_t number, size_t length, size_t room, void *to, size_t *needed) {
    return answer(&number, length, room, to, needed);
}

/* --- platform and device --- */

API int32_t clGetPlatformIDs(uint32_t room, void **platforms, uint32_t *count) {
    const uint32_t listed = atomic_load(&device_count) > 1 ? 2 : 1;
    for (uint32_t at = 0; at < listed && at < room && platforms != NULL; at++) platforms[at] = &platform;
    if (count != NULL) *count = listed;
    return fails() ? OUT_OF_RESOURCES : 0;
}

API int32_t clGetPlatformInfo(void *of, uint32_t what, size_t room, void *to, size_t *needed) {
    (void)of;
    return answer_text(what == 0x0902 ? told("FAKE_PLATFORM", "Fake") : "OpenCL 1.2 fake", room, to, needed);
}

API int32_t clGetDeviceIDs(void *of, uint64_t kind, uint32_t room, void **listed, uint32_t *count) {
    const uint32_t found = (uint32_t)atomic_load(&device_count);
    (void)of, (void)kind;
    for (uint32_t at = 0; at < found && at < room && listed != NULL; at++) listed[at] = &devices[at];
    if (count != NULL) *count = found;
    return fails() ? OUT_OF_RESOURCES : 0;
}

static const char EXTENSIONS[] = "cl_khr_fp16 cl_khr_byte_addressable_store cl_qcom_recordable_queues";
static const size_t EXTENSIONS_LENGTH = sizeof EXTENSIONS - sizeof " cl_qcom_recordable_queues";
typedef struct version {
    uint32_t version;
    char name[64];
} version;

static bool has_command_buffers(void) { return records && records != RECORDABLE_QUEUES; }

static int32_t answer_versions(size_t room, void *to, size_t *needed) {
    const uint32_t patch = records == MUTABLE_BY_LIST ? 1 : 2; /* since 0.9.2 changes are an array */
    const version versions[] = {{9 << 12, "cl_khr_command_buffer"},
                                {9 << 12 | patch, "cl_khr_command_buffer_mutable_dispatch"}};
    const size_t count = records == COMMAND_BUFFERS ? 1 : 2;
    return has_command_buffers() ? answer(versions, count * sizeof *versions, room, to, needed) : INVALID_VALUE;
}

static int32_t answer_extensions(size_t room, void *to, size_t *needed) {
    char text[sizeof EXTENSIONS];
    strcpy(text, EXTENSIONS);
    if (records != RECORDABLE_QUEUES) text[EXTENSIONS_LENGTH] = 0;
    return answer_text(text, room, to, needed);
}

API int32_t clGetDeviceInfo(void *of, uint32_t what, size_t room, void *to, size_t *needed) {
    static const size_t items[3] = {1024, 1024, 64};
    (void)of;
    switch (what) {
    case 0x1000: return answer_number(is_cpu ? 1 << 1 : 1 << 2, 8, room, to, needed); /* type */
    case 0x1002: return answer_number(4, 4, room, to, needed);            /* compute units */
    case 0x1003: return answer_number(3, 4, room, to, needed);            /* dimensions */
    case 0x1004: return answer_number(1024, 8, room, to, needed);         /* work-group */
    case 0x1005: return answer(items, sizeof items, room, to, needed);    /* work-items */
    case 0x100A: return answer_number(1, 4, room, to, needed);            /* width of float */
    case 0x1010: return answer_number(1 << 28, 8, room, to, needed);      /* largest allocation */
    case 0x1019: return answer_number(1024, 4, room, to, needed);         /* alignment in bits */
    case 0x101F: return answer_number(1u << 30, 8, room, to, needed);     /* global memory */
    case 0x1023: return answer_number(32 << 10, 8, room, to, needed);     /* local memory */
    case 0x102B: return answer_text(told("FAKE_NAME", "Fake GPU"), room, to, needed);
    case 0x102C: return answer_text(told("FAKE_VENDOR", "gputune"), room, to, needed);
    case 0x102D: return answer_text("1.0", room, to, needed);
    case 0x102F: return answer_text(told("FAKE_VERSION", "OpenCL 1.2 fake"), room, to, needed);
    case 0x1031: return answer(&(void *){&platform}, sizeof(void *), room, to, needed);
    case 0x1030: return answer_extensions(room, to, needed);
    case 0x1060: return answer_versions(room, to, needed);
    case 0x12A9: return answer_number(1 << 2, 8, room, to, needed);       /* simultaneous use */
    case 0x12B0: return answer_number(1 << 3, 8, room, to, needed);       /* arguments may be changed */
    case 0x41DE: return answer_number(2, 4, room, to, needed);            /* launches in a recording */
    case 0x1035: return answer_number(records != 0, 4, room, to, needed); /* unified memory */
    default: return INVALID_VALUE;
    }
}

API object *clCreateContext(const intptr_t *wishes, uint32_t count, void *const *wanted, void *told, void *user,
                            int32_t *status) {
    (void)wishes, (void)count, (void)told, (void)user;
    atomic_store(&opened, (int *)wanted[0] - devices);
    return made(status, fails() ? OUT_OF_RESOURCES : 0);
}

API object *clCreateCommandQueue(object *context, void *of, uint64_t wishes, int32_t *status) {
    (void)of;
    if (wishes & 1 << 30 && records != RECORDABLE_QUEUES) return made(status, INVALID_VALUE);
    object *queue = made(status, fails() ? OUT_OF_RESOURCES : 0);
    if (queue != NULL) queue->parent = shared(context);
    return queue;
}

API int32_t clRetainContext(object *context) { return shared(context), 0; }
/* Waits until all of as many threads have come, or for 20 s; also for as long as enqueuing takes. */
static void meet(long threads) {
    const struct timespec delay = {.tv_nsec = atomic_load(&delay_ns)};
    const uint64_t end_ns = now_ns() + 20000000000u;
    const long now = atomic_fetch_add(&inside, 1) + 1, place = atomic_fetch_add(&arrived, 1);
    long most = atomic_load(&most_inside);
    while (now > most && !atomic_compare_exchange_weak(&most_inside, &most, now)) {}
    while (atomic_load(&arrived) < (place / threads + 1) * threads && now_ns() < end_ns) sched_yield();
    nanosleep(&delay, NULL);
    atomic_fetch_sub(&inside, 1);
}

API int32_t clReleaseContext(object *context) { return release(context); }
API int32_t clReleaseCommandQueue(object *queue) { return release(queue); }
API int32_t clFlush(object *queue) { return queue->commands++, fails() ? OUT_OF_RESOURCES : 0; }
API int32_t clFinish(object *queue) {
    queue->commands++;
    if (atomic_load(&meeting)) meet(atomic_load(&meeting));
    atomic_fetch_add(&finishes, 1);
    return fails() ? OUT_OF_RESOURCES : 0;
}

/* --- memory --- */

API object *clCreateBuffer(object *context, uint64_t flags, size_t nbytes, void *host, int32_t *status) {
    object *buffer = made(status, fails() ? OUT_OF_RESOURCES : nbytes == 0 ? INVALID_VALUE : 0);
    if (buffer == NULL) return NULL;
    buffer->parent = shared(context);
    buffer->nbytes = nbytes;
    buffer->owns_bytes = !(flags & 1 << 3);
    buffer->bytes = buffer->owns_bytes ? malloc(nbytes) : host;
    if (buffer->owns_bytes) memset(buffer->bytes, 0xA5, nbytes); /* not the zeros that a test could mistake for a result */
    if (flags & 1 << 5) memcpy(buffer->bytes, host, nbytes);
    return buffer;
}

API object *clCreateSubBuffer(object *whole, uint64_t flags, uint32_t kind, const size_t *region, int32_t *status) {
    (void)flags, (void)kind;
    bool inside = region[1] && region[0] + region[1] <= whole->nbytes && region[0] % 128 == 0;
    object *part = made(status, fails() ? OUT_OF_RESOURCES : inside ? 0 : INVALID_VALUE);
    if (part == NULL) return NULL;
    part->parent = shared(whole);
    part->bytes = whole->bytes + region[0];
    part->nbytes = region[1];
    return part;
}

API int32_t clRetainMemObject(object *buffer) { return shared(buffer), 0; }
API int32_t clReleaseMemObject(object *buffer) { return release(buffer); }

API int32_t clGetMemObjectInfo(object *buffer, uint32_t what, size_t room, void *to, size_t *needed) {
    if (what == 0x1102) return answer_number(buffer->nbytes, 8, room, to, needed);
    return INVALID_VALUE;
}

static uint64_t device_now_ns(void) { return now_ns() + (uint64_t)atomic_load(&ahead_ns); }

API int32_t clGetDeviceAndHostTimer(void *of, uint64_t *device_ns, uint64_t *host_ns) {
    (void)of;
    if (!atomic_load(&ahead_ns)) return INVALID_OPERATION;
    *device_ns = device_now_ns(), *host_ns = now_ns();
    return fails() ? OUT_OF_RESOURCES : 0;
}

static object *new_event(void) {
    const long count = atomic_fetch_add(&events, 1) + 1;
    long most = atomic_load(&most_events);
    while (count > most && !atomic_compare_exchange_weak(&most_events, &most, count)) {}
    object *event = made(NULL, 0);
    event->begun_ns = event->ended_ns = device_now_ns();
    return event;
}

static int32_t command(object *queue, object **event) {
    queue->commands++;
    if (fails()) return OUT_OF_RESOURCES;
    if (event != NULL) *event = new_event();
    return 0;
}

API int32_t clEnqueueWriteBuffer(object *queue, object *buffer, uint32_t waits, size_t offset, size_t nbytes,
                                 const void *data, uint32_t count, const void *after, object **event) {
    (void)waits, (void)count, (void)after;
    int32_t status = offset + nbytes <= buffer->nbytes ? command(queue, event) : INVALID_VALUE;
    if (!status) memcpy(buffer->bytes + offset, data, nbytes);
    return status;
}

API int32_t clEnqueueReadBuffer(object *queue, object *buffer, uint32_t waits, size_t offset, size_t nbytes, void *data,
                                uint32_t count, const void *after, object **event) {
    (void)waits, (void)count, (void)after;
    int32_t status = offset + nbytes <= buffer->nbytes ? command(queue, event) : INVALID_VALUE;
    if (!status) memcpy(data, buffer->bytes + offset, nbytes);
    if (!status && nbytes && atomic_load(&lost)) *(char *)data ^= 1;
    return status;
}

API int32_t clEnqueueFillBuffer(object *queue, object *buffer, const void *pattern, size_t length, size_t offset,
                                size_t nbytes, uint32_t count, const void *after, object **event) {
    (void)count, (void)after;
    int32_t status = offset + nbytes <= buffer->nbytes ? command(queue, event) : INVALID_VALUE;
    for (size_t at = 0; !status && at < nbytes; at += length) memcpy(buffer->bytes + offset + at, pattern, length);
    return status;
}

API int32_t clEnqueueCopyBuffer(object *queue, object *from, object *to, size_t from_offset, size_t to_offset,
                                size_t nbytes, uint32_t count, const void *after, object **event) {
    (void)count, (void)after;
    const bool inside = from_offset + nbytes <= from->nbytes && to_offset + nbytes <= to->nbytes;
    int32_t status = inside ? command(queue, event) : INVALID_VALUE;
    if (!status) memcpy(to->bytes + to_offset, from->bytes + from_offset, nbytes);
    return status;
}

API int32_t clEnqueueCopyBufferRect(object *queue, object *from, object *to, const size_t *from_origin,
                                    const size_t *to_origin, const size_t *region, size_t from_pitch, size_t from_slice,
                                    size_t to_pitch, size_t to_slice, uint32_t count, const void *after,
                                    object **event) {
    (void)from_origin, (void)to_origin, (void)from_slice, (void)to_slice, (void)count, (void)after;
    const size_t last = region[1] - 1; /* origins are 0, and there is one slice */
    const bool valid = region[0] && region[0] <= from_pitch && region[0] <= to_pitch && from != to &&
                       last * from_pitch + region[0] <= from->nbytes && last * to_pitch + region[0] <= to->nbytes;
    int32_t status = valid ? command(queue, event) : INVALID_VALUE;
    for (size_t row = 0; row < region[1] && !status; row++)
        memcpy(to->bytes + row * to_pitch, from->bytes + row * from_pitch, region[0]);
    return status;
}

API void *clEnqueueMapBuffer(object *queue, object *buffer, uint32_t waits, uint64_t flags, size_t offset, size_t nbytes,
                             uint32_t count, const void *after, object **event, int32_t *status) {
    (void)waits, (void)flags, (void)count, (void)after;
    *status = offset + nbytes <= buffer->nbytes ? command(queue, event) : INVALID_VALUE;
    if (!*status) atomic_fetch_add(&buffer->maps, 1);
    return *status ? NULL : buffer->bytes + offset;
}

API int32_t clEnqueueUnmapMemObject(object *queue, object *buffer, void *data, uint32_t count, const void *after,
                                    object **event) {
    (void)data, (void)count, (void)after;
    const int32_t status = command(queue, event);
    if (!status) atomic_fetch_sub(&buffer->maps, 1);
    return status;
}

/* --- programs and kernels --- */

static object *program_of(object *context, const char *text, size_t length, int32_t *status, int32_t wrong) {
    object *program = made(status, wrong);
    if (program == NULL) return NULL;
    program->parent = shared(context);
    program->owns_bytes = true;
    program->bytes = memcpy(calloc(length + 1, 1), text, length);
    program->nbytes = length;
    return program;
}

API object *clCreateProgramWithSource(object *context, uint32_t count, const char **texts, const size_t *lengths,
                                      int32_t *status) {
    (void)count;
    size_t length = lengths != NULL && lengths[0] ? lengths[0] : strlen(texts[0]);
    return program_of(context, texts[0], length, status, fails() ? OUT_OF_RESOURCES : 0);
}

API object *clCreateProgramWithBinary(object *context, uint32_t count, void *const *devices, const size_t *lengths,
                                      const unsigned char **binaries, int32_t *of_each, int32_t *status) {
    (void)count, (void)devices;
    bool good = lengths[0] >= 8 && memcmp(binaries[0], "__kernel", 8) == 0;
    int32_t wrong = fails() ? OUT_OF_RESOURCES : good ? 0 : INVALID_BINARY;
    if (of_each != NULL) *of_each = wrong;
    return program_of(context, (const char *)binaries[0], lengths[0], status, wrong);
}

API int32_t clBuildProgram(object *program, uint32_t count, void *const *devices, const char *options, void *told,
                           void *user) {
    (void)program, (void)count, (void)devices, (void)options, (void)told, (void)user;
    return fails() ? OUT_OF_RESOURCES : 0;
}

API int32_t clGetProgramBuildInfo(object *program, void *of, uint32_t what, size_t room, void *to, size_t *needed) {
    (void)program, (void)of, (void)what;
    return answer_text(told("FAKE_LOG", "the log of a build that failed"), room, to, needed);
}

API int32_t clGetProgramInfo(object *program, uint32_t what, size_t room, void *to, size_t *needed) {
    if (what == 0x1165) return answer_number(program->nbytes, sizeof(size_t), room, to, needed); /* sizes of binaries */
    memcpy(*(void **)to, program->bytes, program->nbytes);
    return 0;
}

API int32_t clReleaseProgram(object *program) { return release(program); }

API object *clCreateKernel(object *program, const char *name, int32_t *status) {
    char head[NAME_BYTES + 2] = "";
    strcat(strncat(head, name, NAME_BYTES - 1), "(");
    const char *found = strstr(program->bytes, head);
    object *kernel = made(status, fails() ? OUT_OF_RESOURCES : found == NULL ? INVALID_KERNEL_NAME : 0);
    if (kernel == NULL) return NULL;
    kernel->parent = shared(program);
    strncpy(kernel->name, name, NAME_BYTES - 1);
    for (kernel->arguments = 1; *found && *found != ')' && kernel->arguments < MOST_ARGUMENTS; found++)
        kernel->arguments += *found == ',';
    return kernel;
}

API int32_t clReleaseKernel(object *kernel) { return release(kernel); }

API int32_t clGetKernelInfo(object *kernel, uint32_t what, size_t room, void *to, size_t *needed) {
    if (what == 0x1191) return answer_number(kernel->arguments, 4, room, to, needed);
    return INVALID_VALUE;
}

API int32_t clGetKernelWorkGroupInfo(object *kernel, void *of, uint32_t what, size_t room, void *to, size_t *needed) {
    (void)kernel, (void)of;
    const size_t compiled[3] = {compiled_items, 1, 1};
    if (what == 0x11B1 && compiled_items) return answer(compiled, sizeof compiled, room, to, needed);
    const size_t length = what == 0x11B2 ? 8 : sizeof(size_t); /* of local memory, or of a size */
    return answer_number(what == 0x11B0 ? allowed_items : 0, length, room, to, needed);
}

API int32_t clSetKernelArg(object *kernel, uint32_t place, size_t length, const void *value) {
    if (fails()) return OUT_OF_RESOURCES;
    if (place >= kernel->arguments || place >= MOST_ARGUMENTS) return INVALID_VALUE;
    kernel->given[place].buffer = NULL;
    kernel->given[place].set = true;
    if (length == sizeof(object *)) memcpy(&kernel->given[place].buffer, value, length);
    return 0;
}

static void compute(const step *step) {
    object *from = NULL, *to = NULL;
    for (unsigned place = 0; place < step->kernel->arguments; place++) {
        object *buffer = step->given[place];
        from = from != NULL ? from : buffer;
        to = buffer != NULL ? buffer : to;
    }
    for (size_t at = 0; to != NULL && at + 4 <= from->nbytes && at + 4 <= to->nbytes; at += 4) {
        float value;
        memcpy(&value, from->bytes + at, sizeof value);
        value *= 2;
        memcpy(to->bytes + at, &value, sizeof value);
    }
}

static int32_t record(object *recording, const step *step) {
    recording->steps = realloc(recording->steps, (recording->step_count + 1) * sizeof *step);
    if (recording->steps == NULL) abort();
    recording->steps[recording->step_count++] = *step;
    shared(step->kernel);
    return 0;
}

API int32_t clEnqueueNDRangeKernel(object *queue, object *kernel, uint32_t dimensions, const size_t *offset,
                                   const size_t *global_size, const size_t *local_size, uint32_t count,
                                   const void *after, object **event) {
    step step = {.kernel = kernel};
    const struct timespec delay = {.tv_nsec = atomic_load(&delay_ns)};
    (void)dimensions, (void)offset, (void)global_size, (void)local_size, (void)count, (void)after;
    if (delay.tv_nsec && queue->recording == NULL) nanosleep(&delay, NULL);
    for (unsigned place = 0; place < kernel->arguments; place++) {
        if (!kernel->given[place].set) return INVALID_ARGUMENTS;
        step.given[place] = kernel->given[place].buffer;
        if (step.given[place] != NULL && atomic_load(&step.given[place]->maps)) return INVALID_OPERATION;
    }
    int32_t status = command(queue, event);
    if (!status && queue->recording != NULL) return record(queue->recording, &step);
    if (!status) compute(&step);
    if (!status && event != NULL) (*event)->ended_ns = device_now_ns();
    return status;
}

/* --- recorded queues --- */

static int32_t replay(object *queue, const object *recording) {
    int32_t status = refusing ? OUT_OF_RESOURCES : command(queue, NULL);
    atomic_fetch_add(&replays, !status);
    for (size_t at = 0; !status && at < recording->step_count; at++) compute(&recording->steps[at]);
    return status;
}

static object *clCreateCommandBufferKHR(uint32_t count, object *const *queues, const uint64_t *wishes,
                                        int32_t *status) {
    const uint64_t flags = records == COMMAND_BUFFERS ? 1 : 3; /* for simultaneous use, mutable */
    bool good = count == 1 && wishes != NULL && wishes[0] == 0x1293 && wishes[1] == flags && !wishes[2];
    object *recording = made(status, fails() ? OUT_OF_RESOURCES : good ? 0 : INVALID_VALUE);
    if (recording != NULL) recording->parent = shared(*queues);
    atomic_fetch_add(&recordings, recording != NULL);
    return recording;
}

static int32_t clCommandNDRangeKernelKHR(object *recording, object *queue, const uint64_t *wishes, object *kernel,
                                         uint32_t dimensions, const size_t *offset, const size_t *global_size,
                                         const size_t *local_size, uint32_t count, const uint32_t *after,
                                         uint32_t *point, void **handle) {
    step step = {.kernel = kernel};
    (void)dimensions, (void)offset, (void)global_size, (void)local_size, (void)after;
    const bool can_change = records != COMMAND_BUFFERS;
    if (queue != NULL || can_change != (wishes != NULL) || count || point != NULL || can_change != (handle != NULL))
        return INVALID_VALUE;
    if (can_change && (wishes[0] != 0x12B1 || wishes[1] != 1 << 3 || wishes[2])) return INVALID_VALUE;
    for (unsigned place = 0; place < kernel->arguments; place++) step.given[place] = kernel->given[place].buffer;
    if (handle != NULL) *handle = (void *)(uintptr_t)(recording->step_count + 1);
    return fails() ? OUT_OF_RESOURCES : record(recording, &step);
}

typedef struct changed {
    uint32_t place;
    size_t nbytes;
    object *const *value;
} changed;
typedef struct configuration {
    uintptr_t command;
    uint32_t argument_count, svm_count, info_count, dimensions;
    const changed *arguments;
    const void *svm_arguments, *infos, *offset, *global_size, *local_size;
} configuration;
typedef struct linked {
    uint32_t type;
    const void *next;
    configuration own;
} linked;
typedef struct base {
    uint32_t type;
    const void *next;
    uint32_t count;
    const linked *list;
} base;

static bool change(object *recording, const configuration *wanted) {
    const size_t number = wanted->command - 1;
    if (number >= recording->step_count || wanted->svm_count || wanted->info_count || wanted->dimensions ||
        wanted->svm_arguments || wanted->infos || wanted->offset || wanted->global_size || wanted->local_size)
        return false;
    for (const changed *one = wanted->arguments; one < wanted->arguments + wanted->argument_count; one++) {
        if (one->nbytes != sizeof(object *) || one->place >= MOST_ARGUMENTS) return false;
        recording->steps[number].given[one->place] = *one->value;
    }
    return true;
}

static int32_t update_by_array(object *recording, uint32_t count, const uint32_t *types,
                               const configuration *const *wanted) {
    bool good = true;
    if (fails()) return OUT_OF_RESOURCES;
    for (uint32_t at = 0; at < count; at++) good = good && !types[at] && change(recording, wanted[at]);
    atomic_fetch_add(&updates, good);
    return good ? 0 : INVALID_VALUE;
}

static int32_t update_by_list(object *recording, const base *all) {
    bool good = !all->type && all->next == NULL;
    if (fails()) return OUT_OF_RESOURCES;
    for (uint32_t at = 0; at < all->count && good; at++)
        good = all->list[at].type == 1 && all->list[at].next == NULL && change(recording, &all->list[at].own);
    atomic_fetch_add(&updates, good);
    return good ? 0 : INVALID_VALUE;
}

static int32_t clFinalizeCommandBufferKHR(object *recording) { return (void)recording, fails() ? OUT_OF_RESOURCES : 0; }
static int32_t clReleaseCommandBufferKHR(object *recording) { return release(recording); }

static int32_t clEnqueueCommandBufferKHR(uint32_t queues, object *const *queue, object *recording, uint32_t count,
                                         const void *after, object **event) {
    (void)count, (void)after;
    int32_t status = queues || queue != NULL ? INVALID_VALUE : replay(recording->parent, recording);
    if (!status) *event = new_event(); /* without asking, as PoCL does */
    return status;
}

API object *clNewRecordingQCOM(object *queue, int32_t *status) {
    object *recording = made(status, fails() ? OUT_OF_RESOURCES : queue->recording != NULL ? INVALID_VALUE : 0);
    if (recording != NULL) queue->recording = recording, recording->parent = shared(queue);
    atomic_fetch_add(&recordings, recording != NULL);
    return recording;
}

API int32_t clEndRecordingQCOM(object *recording) {
    recording->parent->recording = NULL;
    return fails() ? OUT_OF_RESOURCES : recording->step_count > 2 ? INVALID_VALUE : 0;
}

API int32_t clReleaseRecordingQCOM(object *recording) { return release(recording); }

typedef struct moved {
    uint32_t launch, place;
    size_t nbytes;
    object *const *value;
} moved;

API int32_t clEnqueueRecordingQCOM(object *queue, object *recording, size_t count, const moved *changes, size_t offsets,
                                   const void *offset, size_t globals, const void *global_size, size_t locals,
                                   const void *local_size, uint32_t waits, const void *after, object **event) {
    (void)offset, (void)global_size, (void)local_size, (void)after;
    if (offsets || globals || locals || waits || event != NULL) return INVALID_VALUE;
    object changed = *recording; /* a change holds for one replay */
    step steps[2];
    memcpy(steps, recording->steps, recording->step_count * sizeof *steps);
    changed.steps = steps;
    for (size_t at = 0; at < count; at++) {
        if (changes[at].launch >= recording->step_count || changes[at].nbytes != sizeof(object *)) return INVALID_VALUE;
        steps[changes[at].launch].given[changes[at].place] = *changes[at].value;
    }
    return replay(queue, &changed);
}

API void *clGetExtensionFunctionAddressForPlatform(void *of, const char *name) {
    static const struct {
        const char *name;
        void (*function)(void);
    } FUNCTIONS[] = {
#define FUNCTION(name) {#name, (void (*)(void))name}
        FUNCTION(clCreateCommandBufferKHR), FUNCTION(clCommandNDRangeKernelKHR), FUNCTION(clFinalizeCommandBufferKHR),
        FUNCTION(clEnqueueCommandBufferKHR), FUNCTION(clReleaseCommandBufferKHR)};
    void *address = NULL;
    (void)of;
    for (size_t at = 0; has_command_buffers() && at < sizeof FUNCTIONS / sizeof *FUNCTIONS; at++)
        if (strcmp(FUNCTIONS[at].name, name) == 0) memcpy(&address, &FUNCTIONS[at].function, sizeof address);
    void (*update)(void) = NULL;
    if (records == MUTABLE) update = (void (*)(void))update_by_array;
    if (records == MUTABLE_BY_LIST) update = (void (*)(void))update_by_list;
    if (strcmp(name, "clUpdateMutableCommandsKHR") == 0) memcpy(&address, &update, sizeof address);
    return address;
}

API int32_t clWaitForEvents(uint32_t count, object *const *events) { return (void)count, (void)events, 0; }
API int32_t clRetainEvent(object *event) { return shared(event), 0; }
API int32_t clReleaseEvent(object *event) {
    atomic_fetch_sub(&events, atomic_load(&event->owners) == 1);
    return release(event);
}

/* It has run when it was enqueued. */
API int32_t clGetEventInfo(object *event, uint32_t what, size_t room, void *to, size_t *needed) {
    (void)event, (void)what;
    return answer_number(0, 4, room, to, needed);
}

API int32_t clGetEventProfilingInfo(object *event, uint32_t what, size_t room, void *to, size_t *needed) {
    const uint64_t stamp = atomic_load(&stamps_ns[what - 0x1280]);
    return answer_number(stamp ? stamp : what == 0x1283 ? event->ended_ns : event->begun_ns, 8, room, to, needed);
}
