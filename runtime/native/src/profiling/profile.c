/* Records inferences in logs. Where launches are timed they run one by one on a queue with the device's clock, or as
 * persistent kernels with marks (marked.c). Each inference's line to the host's clock follows from readings of both
 * clocks, or else from the host's times around calls. */
#include "profile.h"
#include "../graphs/inference.h"
#include "../graphs/launches.h"
#include "log.h"
#include "marked.h"
#include "marks.h"
#include "measured.h"
#include "../graphs/persistent.h"

#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST_EVENTS = 512, MOST_STAMPS = 4 };
static const char *const LEVELS[] = {
    [GPUTUNE_BASIC] = "basic", [GPUTUNE_DETAILED] = "detailed", [GPUTUNE_QHAS] = "qhas"};

struct gputune_profile {
    gputune_device *device;
    gputune_level level;
    profile_log log;
    uint64_t graphs;
    meters *meters; /* at level qhas */
};

/* Of one graph in one profile; two where inferences with marks are recorded, too. */
struct recorder {
    recorder *next; /* of the graph's */
    gputune_profile *profile;
    uint64_t place, number, begun_ns, write_ns;
    size_t part_count, part_space;
    int64_t (*parts)[4];
    size_t kernel_count, columns; /* of `times`, NULL: nothing is timed */
    int64_t *times;               /* of each launch, or of each kernel with marks, by the device's clock */
    cl_event events[MOST_EVENTS];
    size_t harvested, pending;
    cl_command_queue queue, usual; /* queue: with the device's clock */
    clock_bound before[MOST_STAMPS], after[MOST_STAMPS];
    size_t stamps, read; /* read: those whose moment is known; of others `device` is the place of an event */
    bool has_timer;
    clock_tracker clock;
    measured *measured; /* at level qhas, but with marks */
    kept_marks *marks; /* inferences with marks that are not written yet; NULL: it records others */
    bool is_loaded, is_whole; /* with marks: the driver has loaded the code; the last one was not given up */
    gputune_error failed;     /* what record_begin could not do */
};

/* --- the clocks --- */

static void stamp_clock(recorder *recorder, int64_t device, int64_t before, int64_t after) {
    recorder->before[recorder->stamps] = (clock_bound){device, before};
    recorder->after[recorder->stamps++] = (clock_bound){device, after};
}

/* Reads both clocks, where the device allows that. */
static void read_clocks(recorder *recorder) {
    gputune_device *device = recorder->profile->device;
    cl_ulong device_ns, host_ns;
    const int64_t before = (int64_t)now_ns();
    recorder->has_timer = recorder->has_timer && !device->cl.GetDeviceAndHostTimer(device->id, &device_ns, &host_ns);
    if (!recorder->has_timer) return;
    stamp_clock(recorder, (int64_t)device_ns, before, (int64_t)now_ns());
    recorder->read = recorder->stamps;
}

/* waited_ns: the last launch ends before the wait for it. */
static clock_fit fit_stamps(recorder *recorder, uint64_t waited_ns) {
    size_t afters = recorder->stamps;
    const int64_t ended = recorder->times[recorder->harvested * recorder->columns - 1];
    if (!recorder->has_timer) recorder->after[afters++] = (clock_bound){ended, (int64_t)waited_ns};
    const clock_bounds bounds = {recorder->before, recorder->after, recorder->stamps, afters};
    clock_fit found = track_clock(&recorder->clock, &bounds);
    found.by_timer = recorder->has_timer;
    return found;
}

/* --- inferences --- */

void record_begin(gputune_graph *graph) {
    recorder *recorder = graph->recorder;
    recorder->part_count = recorder->stamps = recorder->read = recorder->harvested = recorder->pending = 0;
    recorder->failed.code = GPUTUNE_OK;
    if (recorder->measured) measured_begin(recorder->measured, &recorder->profile->log);
    if (recorder->times) {
        recorder->usual = graph->stream->queue;
        graph->stream->queue = recorder->queue;
        if (recorder->marks) marked_begin(graph, &recorder->failed);
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

static int64_t moment(const opencl *cl, cl_event event, cl_uint what) {
    cl_ulong ns = 0;
    return cl->GetEventProfilingInfo(event, what, sizeof ns, &ns, NULL) ? 0 : (int64_t)ns;
}

static int64_t earlier(int64_t one, int64_t other) { return one < other ? one : other; }

/* A launch's moments: none is before the one in front of it, whatever the driver says. */
static void read_times(const opencl *cl, cl_event event, int64_t *times, size_t columns) {
    const int64_t started = moment(cl, event, CL_PROFILING_COMMAND_START);
    const int64_t ended = moment(cl, event, CL_PROFILING_COMMAND_END);
    times[columns - 2] = started;
    times[columns - 1] = ended > started ? ended : started;
    if (columns == 2) return;
    times[1] = earlier(moment(cl, event, CL_PROFILING_COMMAND_SUBMIT), started);
    times[0] = earlier(moment(cl, event, CL_PROFILING_COMMAND_QUEUED), times[1]);
}

/* Reads the timestamps of launches that are finished; keep: not of an inference that has failed. */
static void harvest(recorder *recorder, bool keep) {
    const opencl *cl = &recorder->profile->device->cl;
    for (; keep && recorder->read < recorder->stamps; recorder->read++) {
        const cl_event event = recorder->events[recorder->before[recorder->read].device];
        const int64_t queued = moment(cl, event, CL_PROFILING_COMMAND_QUEUED);
        recorder->before[recorder->read].device = recorder->after[recorder->read].device = queued;
    }
    for (size_t i = 0; i < recorder->pending; i++) {
        if (!recorder->events[i]) continue;
        if (keep)
            read_times(cl, recorder->events[i], recorder->times + recorder->harvested++ * recorder->columns,
                       recorder->columns);
        cl->ReleaseEvent(recorder->events[i]);
    }
    recorder->pending = 0;
}

bool record_times(const recorder *recorder) { return recorder->times; }

gputune_code record_launches(gputune_graph *graph, gputune_error *error) {
    recorder *recorder = graph->recorder;
    const bound *const kernels = recorder->marks ? marked_kernels(graph) : graph->launches;
    const size_t count = recorder->kernel_count;
    if (recorder->failed.code) return fail(error, recorder->failed.code, "%s", recorder->failed.message);
    if (!recorder->marks) graph->total.launches++, graph->last.launches++;
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
        TRY(enqueue(graph->stream, kernels + i, 1, recorder->events + place, error));
        if (bounds) stamp_clock(recorder, place, before, (int64_t)now_ns());
    }
    return GPUTUNE_OK;
}

gputune_code record_finish(gputune_graph *graph, gputune_error *error) {
    recorder *recorder = graph->recorder;
    int32_t flag = 0;
    if (!graph->over) TRY(finish(graph->stream, error));
    graph->over = true;
    if (!recorder->marks) return GPUTUNE_OK;
    TRY(persistent_gave_up(graph, &flag, error));
    recorder->is_whole = !flag;
    if (!flag) return graph->total.persistent++, graph->last.persistent++, GPUTUNE_OK;
    graph->total.aborted++, graph->last.aborted++;
    TRY(enqueue_launches(graph, (size_t)flag - 1, error));
    return finish(graph->stream, error);
}

/* Keeps an inference with marks: what each is in ns, all of them tell together. */
static gputune_code keep_marks(gputune_graph *graph, const logged *inference, gputune_error *error) {
    recorder *recorder = graph->recorder;
    const bool is_loaded = recorder->is_loaded;
    recorder->is_loaded = true;
    if (!is_loaded || !recorder->is_whole) return GPUTUNE_OK; /* a first one loads code */
    return marks_keep(recorder->marks, graph, inference, error);
}

static gputune_code put_inference(gputune_graph *graph, uint64_t ended_ns, uint64_t waited_ns, gputune_error *error) {
    recorder *recorder = graph->recorder;
    logged inference = {.kind = recorder->marks ? "marked" : "inference", .graph = recorder->place};
    inference.form = form_of(&graph->last);
    inference.number = recorder->number++;
    inference.thread = (uint64_t)syscall(SYS_gettid);
    inference.begun_ns = recorder->begun_ns, inference.ended_ns = ended_ns;
    inference.parts = (const int64_t(*)[4])recorder->parts, inference.part_count = recorder->part_count;
    if (recorder->times) {
        inference.launches = recorder->times, inference.columns = recorder->columns;
        inference.launch_count = recorder->harvested;
        inference.clock = fit_stamps(recorder, waited_ns);
    }
    if (recorder->measured) measured_add(recorder->measured, &inference);
    const uint64_t recorded_ns = now_ns();
    inference.profiler_ns = recorded_ns - ended_ns + recorder->write_ns;
    const gputune_code code = recorder->marks ? keep_marks(graph, &inference, error)
                                              : log_inference(&recorder->profile->log, &inference, error);
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
    if (recorder->measured) measured_end(recorder->measured);
    if (recorder->times) {
        read_clocks(recorder);
        harvest(recorder, !code);
        graph->stream->queue = recorder->usual;
    }
    return code ? code : put_inference(graph, ended_ns, waited_ns, error);
}

/* --- what is recorded --- */

static void free_recorder(recorder *recorder, bool here) {
    if (!recorder) return;
    if (recorder->queue && here) recorder->profile->device->cl.ReleaseCommandQueue(recorder->queue);
    marks_close(recorder->marks);
    free(recorder->measured);
    free(recorder->parts);
    free(recorder->times);
    free(recorder);
}

static gputune_code write_marks(recorder *recorder, gputune_error *error) {
    return recorder->marks ? marks_write(recorder->marks, &recorder->profile->log, error) : GPUTUNE_OK;
}

/* Gives back the recorders of a graph in one profile, or in all; inferences with marks are written. */
static gputune_code drop_recorders(gputune_graph *graph, const gputune_profile *profile, bool here,
                                   gputune_error *error) {
    gputune_code code = GPUTUNE_OK;
    for (recorder **at = &graph->recorders, *one; (one = *at);) {
        if (profile && one->profile != profile) {
            at = &one->next;
            continue;
        }
        const gputune_code failed = here ? write_marks(one, code ? NULL : error) : GPUTUNE_OK;
        code = code ? code : failed;
        *at = one->next;
        if (graph->recorder == one) graph->recorder = NULL;
        free_recorder(one, here);
    }
    return code;
}

void record_no_more(gputune_graph *graph) { drop_recorders(graph, NULL, is_here(graph->device), NULL); }

/* Makes room for what a recorder takes of an inference. */
static gputune_code fill_recorder(recorder *made, const gputune_graph *graph, bool marked, gputune_error *error) {
    const graph_record *record = graph->record;
    gputune_device *device = graph->device;
    cl_int status = 0;
    const size_t kernels = marked ? record->persistent_count : record->info.launch_count;
    const bool timed = made->profile->level != GPUTUNE_BASIC && kernels;
    made->columns = made->profile->level == GPUTUNE_QHAS && !marked ? 4 : 2;
    made->kernel_count = kernels;
    made->has_timer = device->cl.GetDeviceAndHostTimer != NULL;
    made->part_space = 2 * graph->tensor_count + kernels / MOST_EVENTS + 6;
    made->parts = calloc(made->part_space, sizeof *made->parts);
    if (timed) made->times = calloc(kernels, made->columns * sizeof *made->times);
    if (marked) made->marks = marks_open(graph);
    const bool measures = made->profile->meters && !marked;
    if (measures) made->measured = measured_open(made->profile->meters);
    if (!made->parts || (timed && !made->times) || (marked && !made->marks) || (measures && !made->measured))
        return NO_MEMORY;
    if (timed)
        made->queue = device->cl.CreateCommandQueue(device->context, device->id, CL_QUEUE_PROFILING_ENABLE, &status);
    return checked(error, "making a queue with the device's clock", status);
}

/* A recorder that is new; the log describes its graph unless another recorder of the profile has it. */
static gputune_code make_recorder(gputune_graph *graph, gputune_profile *profile, bool marked, recorder **made,
                                  gputune_error *error) {
    const recorder *other = graph->recorders;
    while (other && other->profile != profile) other = other->next;
    if (!(*made = calloc(1, sizeof **made))) return NO_MEMORY;
    (*made)->profile = profile;
    gputune_code code = fill_recorder(*made, graph, marked, error);
    if (!code && !other)
        code = log_graph(&profile->log, graph, graph->record->persistent_count && !marked
                             ? "an application's own inferences are not marked" : "", error);
    if (code) return free_recorder(*made, true), code;
    (*made)->place = other ? other->place : profile->graphs++;
    (*made)->next = graph->recorders;
    graph->recorders = *made;
    return GPUTUNE_OK;
}

static gputune_code start(gputune_graph *graph, gputune_profile *profile, bool marked, gputune_error *error) {
    if (profile->device != graph->device)
        return fail(error, GPUTUNE_INVALID_ARGUMENT, "the profile and the graph are for different devices");
    if (marked && profile->level != GPUTUNE_QHAS)
        return fail(error, GPUTUNE_INVALID_ARGUMENT, "marks need a profile of level qhas");
    recorder *found = graph->recorders;
    while (found && (found->profile != profile || !found->marks != !marked)) found = found->next;
    if (!found) {
        if (marked) TRY(marked_open(graph, error));
        else if (profile->level != GPUTUNE_BASIC) TRY(launches_needed(graph, error));
        TRY(make_recorder(graph, profile, marked, &found, error));
    }
    graph->recorder = found;
    return GPUTUNE_OK;
}

static gputune_code record_in(gputune_graph *graph, gputune_profile *profile, bool marked, gputune_error *error) {
    TRY(check_here(graph->device, error));
    device_take(graph->device);
    graph->recorder = NULL;
    const gputune_code code = profile ? start(graph, profile, marked, error) : GPUTUNE_OK;
    device_leave(graph->device);
    return code;
}

gputune_code gputune_record(gputune_graph *graph, gputune_profile *profile, gputune_error *error) {
    return record_in(graph, profile, false, error);
}

gputune_code gputune_record_marked(gputune_graph *graph, gputune_profile *profile, gputune_error *error) {
    return record_in(graph, profile, true, error);
}

/* --- profiles --- */

gputune_code profile_to(FILE *file, gputune_device *device, gputune_level level, gputune_profile **profile,
                        gputune_error *error) {
    gputune_profile *made = *profile = calloc(1, sizeof *made);
    if (!made || !log_open(&made->log, file)) {
        if (file) fclose(file);
        free(made);
        *profile = NULL;
        return NO_MEMORY;
    }
    made->device = device, made->level = level;
    if (level == GPUTUNE_QHAS) made->meters = meters_open();
    const events *events = made->meters ? meters_events(made->meters) : NULL;
    gputune_code code = level == GPUTUNE_QHAS && !events ? NO_MEMORY : GPUTUNE_OK;
    if (!code) code = log_header(&made->log, device, LEVELS[level], events, error);
    if (!code) code = add_user(device, error);
    if (code) meters_close(made->meters, true), log_close(&made->log, true, NULL), free(made), *profile = NULL;
    return code;
}

gputune_code gputune_open_profile(gputune_device *device, const char *path, gputune_level level,
                                  gputune_profile **profile, gputune_error *error) {
    FILE *file = NULL;
    *profile = NULL;
    TRY(check_here(device, error));
    if ((size_t)level >= sizeof LEVELS / sizeof *LEVELS)
        return fail(error, GPUTUNE_INVALID_ARGUMENT, "there is no level %d of profiles", (int)level);
    if (path) TRY(open_log_file(path, &file, error));
    return profile_to(file, device, level, profile, error);
}

gputune_code gputune_profile_take(gputune_profile *profile, void *data, size_t *nbytes, gputune_error *error) {
    TRY(check_here(profile->device, error));
    if (profile->log.file) return fail(error, GPUTUNE_INVALID_ARGUMENT, "this profile's records go into its file");
    log_take(&profile->log, data, nbytes);
    return GPUTUNE_OK;
}

gputune_code gputune_write_marks(gputune_profile *profile, gputune_error *error) {
    gputune_code code = GPUTUNE_OK;
    TRY(check_here(profile->device, error));
    device_take(profile->device);
    for (gputune_graph *graph = profile->device->graphs; graph; graph = graph->next)
        for (recorder *one = graph->recorders; one && !code; one = one->next)
            if (one->profile == profile) code = write_marks(one, error);
    device_leave(profile->device);
    return code;
}

gputune_code gputune_close_profile(gputune_profile *profile, gputune_error *error) {
    if (!profile) return GPUTUNE_OK;
    gputune_device *device = profile->device;
    const bool here = is_here(device);
    gputune_code code = GPUTUNE_OK, failed;
    device_take(device);
    for (gputune_graph *each = device->graphs; each; each = each->next) {
        failed = drop_recorders(each, profile, here, code ? NULL : error);
        code = code ? code : failed;
    }
    device_leave(device);
    failed = here ? log_end(&profile->log, code ? NULL : error) : GPUTUNE_OK;
    code = code ? code : failed;
    failed = log_close(&profile->log, here, code ? NULL : error);
    code = code ? code : failed;
    meters_close(profile->meters, here);
    free(profile);
    remove_user(device);
    return code;
}
