/* The launches of a graph, which are loaded when they are needed, and enqueued one by one. */
#include "launches.h"
#include "../devices/programs.h"

gputune_code enqueue(const stream *stream, const bound *kernels, size_t count, cl_event *events,
                     gputune_error *error) {
    for (size_t i = 0; i < count; i++) {
        const bound *one = &kernels[i];
        TRY(checked(error, "a launch",
                    stream->device->cl.EnqueueNDRangeKernel(stream->queue, one->kernel, one->dimensions, NULL,
                                                            one->global_size, one->local_size, 0, NULL,
                                                            events ? &events[i] : NULL)));
    }
    return GPUTUNE_OK;
}

gputune_code launches_needed(gputune_graph *graph, gputune_error *error) {
    const graph_record *record = graph->record;
    if (graph->is_ready) return GPUTUNE_OK;
    if (graph->launches) return fail(error, GPUTUNE_BUILD_FAILED, "the launches of graph '%s' could not be loaded",
                                     record->info.name);
    TRY(load_programs(graph, record->launches, record->info.launch_count, graph->strict, error));
    TRY(bind_launches(graph, record->launches, record->info.launch_count, &graph->launches, error));
    graph->is_ready = true;
    drop_copies(graph);
    return GPUTUNE_OK;
}

gputune_code enqueue_launches(gputune_graph *graph, size_t first, gputune_error *error) {
    const size_t count = graph->record->info.launch_count;
    if (!graph->is_ready) TRY(launches_needed(graph, error));
    return first < count ? enqueue(graph->stream, graph->launches + first, count - first, NULL, error) : GPUTUNE_OK;
}
