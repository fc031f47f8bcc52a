/* The stamps of an inference, which are made only where graph->recorder is set. */
#ifndef GPUTUNE_PROFILE_H
#define GPUTUNE_PROFILE_H

#include "../graphs/graph.h"

enum part { PART_HOST, PART_WRITE, PART_ENQUEUE, PART_WAIT, PART_READ, PART_PROFILER };
/* Makes room for an inference that begins now; what fails here, record_launches returns. */
void record_begin(gputune_graph *graph);
void record_part(recorder *recorder, enum part part, int64_t tensor, uint64_t begun_ns, uint64_t ended_ns);
/* Whether launches are timed, each by an event; those are enqueued then. */
bool record_times(const recorder *recorder);
gputune_code record_launches(gputune_graph *graph, gputune_error *error);
/* Waits for it; launches complete what persistent kernels with marks have given up. */
gputune_code record_finish(gputune_graph *graph, gputune_error *error);
/* Takes what has become of the inference, and returns that, or why it cannot be recorded. */
gputune_code record_end(gputune_graph *graph, gputune_code code, gputune_error *error);
/* Gives back all that records the graph, which is unloaded. */
void record_no_more(gputune_graph *graph);

#endif
