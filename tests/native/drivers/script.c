/* persistent.c on a made-up device: commands take the times of a script, kernels end with its flags, and what was asked
 * of the device is noted. */
#include "graphs/persistent.c"

enum { GROUPS = 2 };

typedef struct script {
    const int64_t *kernels_ns, *launches_ns, *processor_ns; /* of the command of each number */
    const int32_t *flags, *longest;
    int64_t *noted; /* -rounds of kernels, or the first launch that was enqueued */
    size_t done, most;
} script;

static script *played;
static uint64_t clock_ns;
static int64_t used_ns;
static int32_t status_bytes[STATUS_BYTES / 4];
static bool kernels_last;

uint64_t now_ns(void) {
    return clock_ns;
}

double processor_ns(void) {
    return (double)used_ns;
}

gputune_code enqueue(const stream *stream, const bound *kernels, size_t count, cl_event *events,
                     gputune_error *error) {
    (void)stream, (void)kernels, (void)count, (void)events, (void)error;
    kernels_last = true;
    played->noted[played->done] = -(int64_t)status_bytes[ROUNDS];
    return GPUTUNE_OK;
}

gputune_code enqueue_launches(gputune_graph *graph, size_t first, gputune_error *error) {
    (void)graph, (void)error;
    kernels_last = false;
    played->noted[played->done] = (int64_t)first;
    return GPUTUNE_OK;
}

gputune_code recorded_start(gputune_graph *graph, gputune_error *error) {
    graph->total.launches++;
    return enqueue_launches(graph, 0, error);
}

gputune_code finish(const stream *stream, gputune_error *error) {
    (void)stream, (void)error;
    if (played->done == played->most) return GPUTUNE_LAUNCH_FAILED;
    clock_ns += (uint64_t)(kernels_last ? played->kernels_ns : played->launches_ns)[played->done];
    used_ns += played->processor_ns[played->done];
    if (kernels_last) {
        status_bytes[FLAG] = played->flags[played->done];
        status_bytes[LONGEST] = played->longest[played->done];
    }
    played->done++;
    return GPUTUNE_OK;
}

gputune_code launches_needed(gputune_graph *graph, gputune_error *error) {
    (void)graph, (void)error;
    return GPUTUNE_OK;
}

gputune_code write_buffer(const stream *stream, cl_mem memory, size_t offset, const void *data, size_t nbytes,
                          bool waits, gputune_error *error) {
    (void)stream, (void)memory, (void)offset, (void)data, (void)nbytes, (void)waits, (void)error;
    if (nbytes == STATUS_BYTES) memcpy(status_bytes, data, nbytes);
    return GPUTUNE_OK;
}

gputune_code read_buffer(const stream *stream, cl_mem memory, void *data, size_t nbytes, bool waits,
                         gputune_error *error) {
    (void)stream, (void)memory, (void)waits, (void)error;
    memcpy(data, status_bytes, nbytes);
    return GPUTUNE_OK;
}

gputune_code fill_buffer(const stream *stream, cl_mem memory, int32_t pattern, size_t nbytes, gputune_error *error) {
    (void)stream, (void)memory, (void)pattern, (void)nbytes, (void)error;
    return GPUTUNE_OK;
}

gputune_code fail(gputune_error *error, gputune_code code, const char *format, ...) {
    (void)error, (void)format;
    return code;
}

/* So many inferences, or fewer where the script ends; the counts of those that ran in each form, and of attempts. */
void play(script *script, size_t inferences, bool shared, uint64_t runs[4]) {
    static const launch launches[1] = {{.counts = true}};
    graph_record record = {.info = {.launch_count = 5}, .persistent = launches, .persistent_count = 1};
    record.counter_bytes = 64;
    bound kernel = {.dimensions = 2, .global_size = {GROUPS, 1}};
    place place = {.memory = NULL};
    gputune_graph graph = {.record = &record, .kernels = &kernel, .places = {[COUNTERS] = &place, [STATUS] = &place}};
    played = script;
    clock_ns = 0, used_ns = 0;
    gputune_code code = persistent_open(&graph, shared ? status_bytes : NULL, NULL);
    for (size_t i = 0; i < inferences && !code; i++) code = persistent_run(&graph, NULL);
    free(graph.persistent);
    runs[0] = graph.total.persistent, runs[1] = graph.total.aborted, runs[2] = graph.total.launches;
    runs[3] = graph.total.attempts;
}

/* Says what is made of the flag in a status when kernels that were enqueued elsewhere have ended. */
int32_t flag_after(int32_t flag, size_t launches) {
    graph_record record = {.info = {.launch_count = launches}};
    place place = {.memory = NULL};
    persistent persistent = {.status_host = status_bytes};
    gputune_graph graph = {.record = &record, .persistent = &persistent, .places = {[COUNTERS] = &place}};
    status_bytes[FLAG] = flag;
    return persistent_gave_up(&graph, &flag, NULL) ? -1 : flag;
}
