/* The launches of a graph as a recorded queue, where that is faster. */
#ifndef GPUTUNE_RECORDED_H
#define GPUTUNE_RECORDED_H
#include "graph.h"

/* Finds how the device records the launches, which are bound; where it does not, they are enqueued. recorded_start does
 * it where that was not done yet. */
gputune_code recorded_open(gputune_graph *graph, gputune_error *error);
/* Enqueues all launches in the faster form, and counts that; the first inferences are finished when it returns. */
gputune_code recorded_start(gputune_graph *graph, gputune_error *error);
/* Gives back what has this memory for an argument; NULL: everything. */
void recorded_forget(gputune_graph *graph, cl_mem memory);
#endif
