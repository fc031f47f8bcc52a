/* Logs of inferences in the form of runtime/profiling/log.py: MsgPack arrays [kind, fields]. At the level detailed
 * launches run one by one on a queue with the device's clock. An offset leads to the host's, in the middle of what
 * readings of both clocks leave, or else the host's times around calls. */
#include "profile.h"
#include "inference.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST_EVENTS = 512, MOST_BOUNDS = 8 };
#define MOST_RATE 500e-6 /* how far two clocks run apart at most */

struct gputune_profile {
    gputune_device *device;
    gputune_level level;
    FILE *log;
    mutex turn; /* of the log: graphs on different streams write there */
    uint64_t graphs;
    cl_command_queue queue; /* with the device's clock; made when it is needed */
};

struct recorder {
    gputune_profile *profile;
    uint64_t place, number, begun_ns, write_ns;
    size_t part_count, part_space;
    int64_t (*parts)[4];
    int64_t (*times)[2]; /* of each launch, by the device's clock */
    cl_event events[MOST_EVENTS];
    size_t harvested, pending;
    cl_command_queue usual;
    struct bounds { /* moments by the device's clock, and times of the host's that they are not before and not after */
        int64_t device, before, after;
    } bounds[MOST_BOUNDS];
    size_t bound_count, read; /* read: those whose moment is known; of others `device` is the place of an event */
    bool has_timer;
};

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

double processor_ns(void) { return (double)clock() * (1e9 / CLOCKS_PER_SEC); }

/* --- MsgPack --- */

enum { BIN = 0xc6, UINT = 0xcf, INT = 0xd3, TEXT = 0xdb, ARRAY = 0xdd, MAP = 0xdf, YES = 0xc3, NO = 0xc2 };

static void put(FILE *log, int kind, uint64_t value) {
    putc(kind, log);
    for (int bits = kind == UINT || kind == INT ? 64 : kind == YES || kind == NO ? 0 : 32; bits; bits -= 8)
        putc((int)(value >> (bits - 8) & 255), log);
}

static void put_text(FILE *log, const char *text) {
    put(log, TEXT, strlen(text));
    fputs(text, log);
}

static void put_field(FILE *log, const char *name, int kind, uint64_t value) {
    put_text(log, name);
    put(log, kind, value);
}

static void put_text_field(FILE *log, const char *name, const char *text) {
    put_text(log, name);
    put_text(log, text);
}

static void put_sizes(FILE *log, const char *name, const size_t *sizes, size_t count) {
    put_field(log, name, ARRAY, count);
    for (size_t i = 0; i < count; i++) put(log, UINT, sizes[i]);
}

/* 64-bit integers, the lowest byte first. */
static void put_block(FILE *log, const char *name, const int64_t *numbers, size_t count) {
    put_field(log, name, BIN, count * 8);
    for (size_t i = 0; i < count; i++)
        for (int bits = 0; bits < 64; bits += 8) putc((int)((uint64_t)numbers[i] >> bits & 255), log);
}

static void put_tensors(FILE *log, const char *name, const gputune_tensor *tensors, size_t count) {
    put_field(log, name, MAP, count);
    for (size_t i = 0; i < count; i++) put_field(log, tensors[i].name, UINT, tensors[i].nbytes);
}

static void begin_record(FILE *log, const char *kind, size_t fields) {
    put(log, ARRAY, 2);
    put_text(log, kind);
    put(log, MAP, fields);
}

/* What was measured survives this process. */
static gputune_code end_record(FILE *log, gputune_error *error) {
    return fflush(log) ? fail(error, GPUTUNE_IO_ERROR, "the profile log cannot be written: %s", strerror(errno)) : 0;
}

/* --- graphs --- */

static gputune_code put_graph(FILE *log, const gputune_graph *graph, gputune_error *error) {
    const graph_record *record = graph->record;
    char digest[65];
    TRY(digest_of(record, digest, error));
    begin_record(log, "graph", 11);
    put_text_field(log, "name", record->info.name);
    put_text_field(log, "context", graph->context->name);
    put_text_field(log, "digest", digest);
    put_field(log, "computes", graph->context->computes ? YES : NO, 0);
    put_field(log, "launches", ARRAY, record->info.launch_count);
    for (size_t i = 0; i < record->info.launch_count; i++) {
        const launch *launch = &record->launches[i];
        put(log, MAP, 5);
        put_text_field(log, "operation", launch->operation);
        put_text_field(log, "task", launch->task);
        put_text_field(log, "entry", launch->entry);
        put_sizes(log, "global_size", launch->global_size, launch->dimensions);
        put_sizes(log, "local_size", launch->local_size, launch->dimensions);
    }
    put_tensors(log, "inputs", record->info.inputs, record->info.input_count);
    put_tensors(log, "outputs", record->info.outputs, record->info.output_count);
    put_sizes(log, "arena_bytes", record->arenas, record->arena_count);
    put_field(log, "persistent", UINT, record->persistent_count);
    put_field(log, "load_ns", UINT, graph->load_ns);
    put_text_field(log, "unmarked", record->persistent_count ? "an application's own inferences are not marked" : "");
    return end_record(log, error);
}

/* --- the clocks --- */

/* Reads both clocks, where the device allows that. */
static void read_clocks(recorder *recorder) {
    gputune_device *device = recorder->profile->device;
    cl_ulong device_ns, host_ns;
    const int64_t before = (int64_t)now_ns();
    recorder->has_timer = recorder->has_timer && !device->cl.GetDeviceAndHostTimer(device->id, &device_ns, &host_ns);
    if (!recorder->has_timer) return;
    recorder->bounds[recorder->bound_count++] = (struct bounds){(int64_t)device_ns, before, (int64_t)now_ns()};
    recorder->read = recorder->bound_count;
}

/* Bounds that contradict each other, since clocks run apart, get an offset that is off by no more than they do. */
static void put_clock(FILE *log, const recorder *recorder) {
    const struct bounds *bounds = recorder->bounds;
    int64_t least = INT64_MIN, most = INT64_MAX;
    for (size_t i = 0; i < recorder->bound_count; i++) {
        const int64_t before = bounds[i].before - bounds[i].device, after = bounds[i].after - bounds[i].device;
        least = before > least ? before : least;
        most = after < most ? after : most;
    }
    const int64_t run = bounds[recorder->bound_count - 1].device - bounds[0].device;
    put_field(log, "clock", ARRAY, 5);
    put(log, INT, (uint64_t)(bounds[0].device + run / 2));
    put(log, INT, (uint64_t)(least + (most - least) / 2));
    put(log, INT, 0); /* equal rates */
    put(log, INT, (uint64_t)(llabs(most - least) / 2 + (int64_t)(MOST_RATE * (double)run) + 2));
    put_text(log, recorder->has_timer ? "device_and_host_timer" : "bracketed");
}

/* --- inferences --- */

void record_begin(gputune_graph *graph) {
    recorder *recorder = graph->recorder;
    recorder->part_count = recorder->bound_count = recorder->read = recorder->harvested = recorder->pending = 0;
    if (recorder->times) {
        recorder->usual = graph->stream->queue;
        graph->stream->queue = recorder->profile->queue;
        read_clocks(recorder);
    }
    recorder->begun_ns = now_ns();
}

void record_part(recorder *recorder, enum part part, int64_t tensor, uint64_t begun_ns, uint64_t ended_ns) {
    if (!recorder->part_count && part != PART_HOST) record_part(recorder, PART_HOST, -1, recorder->begun_ns, begun_ns);
    if (recorder->part_count == recorder->part_space) return;
    const int64_t row[4] = {part, tensor, (int64_t)begun_ns, (int64_t)ended_ns};
    memcpy(recorder->parts[recorder->part_count++], row, sizeof row);
}

static cl_ulong moment(const opencl *cl, cl_event event, cl_uint what) {
    cl_ulong ns = 0;
    return cl->GetEventProfilingInfo(event, what, sizeof ns, &ns, NULL) ? 0 : ns;
}

/* Reads the timestamps of launches that are finished; keep: not of an inference that has failed. */
static void harvest(recorder *recorder, bool keep) {
    const opencl *cl = &recorder->profile->device->cl;
    for (; keep && recorder->read < recorder->bound_count; recorder->read++) {
        struct bounds *bounds = &recorder->bounds[recorder->read];
        bounds->device = (int64_t)moment(cl, recorder->events[bounds->device], CL_PROFILING_COMMAND_QUEUED);
    }
    for (size_t i = 0; i < recorder->pending; i++) {
        if (!recorder->events[i]) continue;
        const cl_ulong begun = moment(cl, recorder->events[i], CL_PROFILING_COMMAND_START);
        const cl_ulong ended = moment(cl, recorder->events[i], CL_PROFILING_COMMAND_END);
        if (keep) recorder->times[recorder->harvested][0] = (int64_t)begun;
        if (keep) recorder->times[recorder->harvested++][1] = (int64_t)(ended > begun ? ended : begun);
        cl->ReleaseEvent(recorder->events[i]);
    }
    recorder->pending = 0;
}

gputune_code record_launches(gputune_graph *graph, gputune_error *error) {
    recorder *recorder = graph->recorder;
    const size_t count = graph->record->info.launch_count;
    if (!recorder->times) return start_inference(graph, error);
    graph->total.launches++, graph->last.launches++;
    for (size_t i = 0; i < count; i++) {
        if (recorder->pending == MOST_EVENTS) { /* drivers keep an event of each launch until it is read */
            const uint64_t begun_ns = now_ns();
            TRY(finish(graph->stream, error));
            harvest(recorder, true);
            record_part(recorder, PART_PROFILER, -1, begun_ns, now_ns());
        }
        const bool bounds = !recorder->has_timer && (i == 0 || i == count / 2 || i == count - 1);
        const int64_t before = bounds ? (int64_t)now_ns() : 0, place = (int64_t)recorder->pending++;
        recorder->events[place] = NULL;
        TRY(enqueue(graph->stream, graph->launches + i, 1, recorder->events + place, error));
        if (bounds) recorder->bounds[recorder->bound_count++] = (struct bounds){place, before, (int64_t)now_ns()};
    }
    return GPUTUNE_OK;
}

static gputune_code put_inference(gputune_graph *graph, uint64_t ended_ns, gputune_error *error) {
    recorder *recorder = graph->recorder;
    FILE *log = recorder->profile->log;
    begin_record(log, "inference", 13);
    put_field(log, "graph", UINT, recorder->place);
    put_field(log, "number", UINT, recorder->number++);
    put_field(log, "thread", UINT, (uint64_t)syscall(SYS_gettid));
    put_text_field(log, "form", form_of(&graph->last));
    put_field(log, "begun_ns", UINT, recorder->begun_ns);
    put_field(log, "ended_ns", UINT, ended_ns);
    put_block(log, "parts", *recorder->parts, 4 * recorder->part_count);
    put_block(log, "launches", recorder->times ? *recorder->times : NULL, 2 * recorder->harvested);
    if (recorder->harvested) put_clock(log, recorder);
    else put_field(log, "clock", ARRAY, 0);
    put_field(log, "counters", MAP, 0);
    put_field(log, "preemptions", ARRAY, 0);
    put_field(log, "observed", MAP, 0);
    const uint64_t recorded_ns = now_ns();
    put_field(log, "profiler_ns", UINT, recorded_ns - ended_ns + recorder->write_ns);
    const gputune_code code = end_record(log, error);
    recorder->write_ns = now_ns() - recorded_ns;
    return code;
}

gputune_code record_end(gputune_graph *graph, gputune_code code, gputune_error *error) {
    recorder *recorder = graph->recorder;
    const uint64_t ended_ns = now_ns();
    uint64_t last_ns = recorder->begun_ns, waited_ns = 0;
    for (size_t i = 0; i < recorder->part_count; i++) {
        last_ns = (uint64_t)recorder->parts[i][3];
        waited_ns = recorder->parts[i][0] == PART_WAIT ? last_ns : waited_ns;
    }
    record_part(recorder, PART_HOST, -1, last_ns, ended_ns);
    if (recorder->times) {
        read_clocks(recorder);
        harvest(recorder, !code);
        graph->stream->queue = recorder->usual;
        if (!recorder->has_timer && recorder->harvested) /* the last launch ends before the wait for it */
            recorder->bounds[recorder->bound_count++] =
                (struct bounds){recorder->times[recorder->harvested - 1][1], INT64_MIN / 2, (int64_t)waited_ns};
    }
    if (code) return code;
    mutex_lock(&recorder->profile->turn);
    code = put_inference(graph, ended_ns, error);
    mutex_unlock(&recorder->profile->turn);
    return code;
}

/* --- the interface --- */

void record_no_more(gputune_graph *graph) {
    if (!graph->recorder) return;
    free(graph->recorder->parts);
    free(graph->recorder->times);
    free(graph->recorder);
    graph->recorder = NULL;
}

static gputune_code start(gputune_graph *graph, gputune_profile *profile, gputune_error *error) {
    const size_t count = graph->record->info.launch_count;
    if (profile->device != graph->device)
        return fail(error, GPUTUNE_INVALID_ARGUMENT, "the profile and the graph are for different devices");
    const bool timed = profile->level == GPUTUNE_DETAILED && count;
    cl_int status = 0;
    if (timed) TRY(launches_needed(graph, error));
    if (timed && !profile->queue)
        profile->queue = graph->device->cl.CreateCommandQueue(graph->device->context, graph->device->id,
                                                              CL_QUEUE_PROFILING_ENABLE, &status);
    TRY(checked(error, "making a queue with the device's clock", status));
    recorder *made = graph->recorder = calloc(1, sizeof *made);
    if (made && timed) made->times = calloc(count, sizeof *made->times);
    if (made) made->part_space = 2 * graph->tensor_count + count / MOST_EVENTS + 6;
    if (made) made->parts = calloc(made->part_space, sizeof *made->parts);
    if (!made || !made->parts || (timed && !made->times)) return NO_MEMORY;
    made->profile = profile;
    made->place = profile->graphs++;
    made->has_timer = graph->device->cl.GetDeviceAndHostTimer != NULL;
    return put_graph(profile->log, graph, error);
}

gputune_code gputune_record(gputune_graph *graph, gputune_profile *profile, gputune_error *error) {
    TRY(check_here(graph->device, error));
    device_take(graph->device);
    record_no_more(graph);
    const gputune_code code = profile ? start(graph, profile, error) : GPUTUNE_OK;
    if (code) record_no_more(graph);
    device_leave(graph->device);
    return code;
}

/* Opens the file of a log, which is replaced; not a context or package, which may be the one that is loaded. */
static gputune_code open_log(const char *path, FILE **log, gputune_error *error) {
    char begin[8] = {0};
    struct stat status;
    FILE *there = !stat(path, &status) && S_ISREG(status.st_mode) ? fopen(path, "rbe") : NULL;
    if (there) {
        size_t length = fread(begin, 1, sizeof begin, there);
        fclose(there);
        if (length == 8 && (!memcmp(begin, "GPUTUNE", 8) || !memcmp(begin, "GPUTPKG", 8)))
            return fail(error, GPUTUNE_INVALID_ARGUMENT, "%s: a log would overwrite a context binary", path);
    }
    *log = fopen(path, "wbe");
    return *log ? GPUTUNE_OK : fail(error, GPUTUNE_IO_ERROR, "%s: %s", path, strerror(errno));
}

gputune_code profile_to(FILE *log, gputune_device *device, gputune_level level, gputune_profile **profile,
                        gputune_error *error) {
    gputune_profile *made = *profile = calloc(1, sizeof *made);
    if (!made || !mutex_open(&made->turn)) {
        fclose(log);
        *profile = NULL;
        return free(made), NO_MEMORY;
    }
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    made->device = device, made->level = level, made->log = log;
    begin_record(log, "gputune-profile", 8);
    put_field(log, "version", UINT, 1);
    put_text_field(log, "level", level == GPUTUNE_BASIC ? "basic" : "detailed");
    put_text_field(log, "software", "gputune's C runtime");
    put_field(log, "device", MAP, 5);
    put_text_field(log, "name", device->identity.name);
    put_text_field(log, "vendor", device->identity.vendor);
    put_text_field(log, "platform", device->identity.platform);
    put_text_field(log, "driver_version", device->identity.driver_version);
    put_text_field(log, "device_version", device->identity.device_version);
    put_field(log, "begun_ns", UINT, now_ns());
    put_field(log, "begun_unix_ns", UINT, (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
    put_field(log, "settings", MAP, 0);
    put_field(log, "unavailable", MAP, 0);
    gputune_code code = end_record(log, error);
    if (!code) code = add_user(device, error);
    if (code) fclose(log), mutex_close(&made->turn), free(made), *profile = NULL;
    return code;
}

gputune_code gputune_open_profile(gputune_device *device, const char *path, gputune_level level,
                                  gputune_profile **profile, gputune_error *error) {
    FILE *log;
    *profile = NULL;
    TRY(check_here(device, error));
    TRY(open_log(path, &log, error));
    return profile_to(log, device, level, profile, error);
}

gputune_code gputune_close_profile(gputune_profile *profile, gputune_error *error) {
    if (!profile) return GPUTUNE_OK;
    gputune_device *device = profile->device;
    const bool here = is_here(device);
    gputune_code code = GPUTUNE_OK;
    device_take(device);
    for (gputune_graph *each = device->graphs; each; each = each->next)
        if (each->recorder && each->recorder->profile == profile) record_no_more(each);
    if (profile->queue && here) device->cl.ReleaseCommandQueue(profile->queue);
    device_leave(device);
    if (here) begin_record(profile->log, "end", 0), code = end_record(profile->log, error);
    /* Of what the stream may still hold in a fork nothing gets into the file, which is another process's. */
    const int nowhere = here ? -1 : open("/dev/null", O_WRONLY | O_CLOEXEC);
    const bool closes = here || (nowhere >= 0 && dup2(nowhere, fileno(profile->log)) >= 0);
    if (closes && fclose(profile->log) && here && !code)
        code = fail(error, GPUTUNE_IO_ERROR, "the profile log cannot be written: %s", strerror(errno));
    if (nowhere >= 0) close(nowhere);
    if (here) mutex_close(&profile->turn);
    free(profile);
    remove_user(device);
    return code;
}
