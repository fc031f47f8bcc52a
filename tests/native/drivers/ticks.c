/* marks.c on inferences that are made up: what is kept of them, and what is written. */
#include "profiling/marks.c"

static const int64_t (*next_ticks)[2];
static int64_t *next_inside, *next_clock;
static size_t launch_count;

size_t stands_for(const launch *launch) { return launch->program; }

gputune_code marked_take(gputune_graph *graph, int64_t (*ticks)[2], gputune_error *error) {
    (void)graph, (void)error;
    memcpy(ticks, next_ticks, launch_count * sizeof *ticks);
    return GPUTUNE_OK;
}

gputune_code log_inference(profile_log *log, const logged *inference, gputune_error *error) {
    (void)log, (void)error;
    memcpy(next_inside, inference->launches, 2 * launch_count * sizeof *next_inside);
    next_inside += 2 * launch_count;
    *next_clock++ = inference->clock.bound_ns;
    return GPUTUNE_OK;
}

gputune_code fail(gputune_error *error, gputune_code code, const char *format, ...) {
    (void)error, (void)format;
    return code;
}

/* A graph with a persistent kernel that stands for all launches but the last, and that one as it is. */
gputune_code converted(size_t launches, size_t inferences, const int64_t (*kernels)[4], const int64_t (*ticks)[2],
                       int64_t bound_ns, int64_t *inside, int64_t *bounds_ns) {
    const launch persistent[] = {{.program = launches - 1, .counts = true}, {.program = 1}};
    const graph_record record = {.info = {.launch_count = launches}, .persistent = persistent, .persistent_count = 2};
    gputune_graph graph = {.record = &record};
    kept_marks *marks = marks_open(&graph);
    gputune_code code = marks ? GPUTUNE_OK : GPUTUNE_OUT_OF_MEMORY;
    launch_count = launches, next_inside = inside, next_clock = bounds_ns;
    for (size_t i = 0; i < inferences && !code; i++, ticks += launches) {
        const logged inference = {.launches = kernels[i], .launch_count = 2, .columns = 2,
                                  .clock = {.bound_ns = bound_ns}};
        next_ticks = ticks;
        code = marks_keep(marks, &graph, &inference, NULL);
    }
    if (!code) code = marks_write(marks, NULL, NULL);
    if (!code && marks->first) code = GPUTUNE_INVALID_ARGUMENT; /* it is written once */
    marks_close(marks);
    return code;
}
