/* What an inference consists of. Whoever calls this holds the turn. */
#ifndef GPUTUNE_INFERENCE_H
#define GPUTUNE_INFERENCE_H

#include "graph.h"

/* New memory for a place, of which the graph holds what is given; it is shared with the host where the device can, if
 * `shared`. */
gputune_code new_memory_in(gputune_graph *graph, place *place, size_t nbytes, bool shared, held **own,
                           gputune_error *error);
/* Enqueues an inference in the form that pays; graph->over says whether it is finished when this returns. */
gputune_code start_inference(gputune_graph *graph, gputune_error *error);
/* counters.c. The name of the form in which an inference ran that these counters are of. */
const char *form_of(const gputune_counters *counters);
/* Counts a copy of a tensor in `copies`, its reads or writes, with the reason. */
void count_copy(gputune_graph *graph, tensor *tensor, uint64_t *copies);
/* For an inference that begins. */
void clear_counters(gputune_graph *graph);
/* Sums up what tensors have counted, and adds it to the totals if the inference was good. In which form it ran is
 * counted where it runs. */
void count_inference(gputune_graph *graph, bool good);

/* lending.c. Has launches read an input's array where it lies, if the device can, as long as the inference runs. lent:
 * whether they do; else the array has to be copied. */
gputune_code lend(gputune_graph *graph, tensor *tensor, bool *lent, gputune_error *error);

#endif
