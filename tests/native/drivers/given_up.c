/* persistent.c, whose kernels a test has one group run alone where more are waited for. The group finds so many arrivals
 * of the others that it gives up behind a launch that the test chooses. */
#include "graphs/launches.h"

static struct {
    const int32_t *arrivals; /* what counters begin with; NULL: all groups run */
    size_t kernel, launch;   /* behind which kernel this launch runs, too; SIZE_MAX: none does */
    size_t resumed;          /* from which launch on launches ran */
} planned;

static gputune_code run_alone(gputune_graph *graph, const bound *kernels, size_t count, cl_event *events,
                              gputune_error *error) {
    if (!planned.arrivals) return enqueue(graph->stream, kernels, count, events, error);
    TRY(write_buffer(graph->stream, graph->places[COUNTERS]->memory, 0, planned.arrivals, graph->record->counter_bytes,
                     true, error));
    for (size_t i = 0; i < count; i++) {
        bound one = kernels[i];
        if (graph->record->persistent[i].counts) one.global_size[0] = 1;
        TRY(enqueue(graph->stream, &one, 1, NULL, error));
        if (i == planned.kernel) TRY(enqueue(graph->stream, graph->launches + planned.launch, 1, NULL, error));
    }
    return GPUTUNE_OK;
}

static gputune_code resume(gputune_graph *graph, size_t first, gputune_error *error) {
    planned.resumed = first;
    return enqueue_launches(graph, first, error);
}

#define MOST_ROUNDS 1000.0
#define enqueue(stream, ...) run_alone(graph, __VA_ARGS__)
#define enqueue_launches resume
#include "graphs/persistent.c"

/* The next inference runs by persistent kernels, whatever became of those before. The graph has run by launches. */
void give_up(gputune_graph *graph, const int32_t *arrivals, size_t kernel, size_t launch) {
    graph->persistent->breaker = new_breaker();
    graph->persistent->breaker.watchful = false;
    graph->persistent->launched = true;
    planned.arrivals = arrivals, planned.kernel = kernel, planned.launch = launch;
}

size_t resumed_from(void) { return planned.resumed; }
