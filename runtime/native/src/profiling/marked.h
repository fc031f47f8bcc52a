/* The persistent kernels of a graph with marks of when each launch that they stand for began and ended. */
#ifndef GPUTUNE_MARKED_H
#define GPUTUNE_MARKED_H

#include "../graphs/graph.h"

/* Copies the texts that kernels with marks are built from: a loaded graph does not read its file. */
gputune_code marked_prepare(gputune_graph *graph, gputune_error *error);
/* Builds and binds the kernels when they are needed first. Those of other inferences have no marks. Fails with
 * GPUTUNE_CANNOT_MARK where the persistent form does not run, or cannot be marked. */
gputune_code marked_open(gputune_graph *graph, gputune_error *error);
/* The kernels, in the order in which they are to be enqueued: as many as the persistent form has. */
const bound *marked_kernels(const gputune_graph *graph);
/* Has them ready for one inference. */
gputune_code marked_begin(gputune_graph *graph, gputune_error *error);
/* Reads in ticks when each launch began and ended, by rows in order; 0 and 0 for a plain launch. All is finished. */
gputune_code marked_take(gputune_graph *graph, int64_t (*ticks)[2], gputune_error *error);
/* How many launches one of the persistent form stands for. */
size_t stands_for(const launch *launch);
/* here: not in a fork, which only gives back memory of the host. */
void marked_close(gputune_graph *graph, bool here);

#endif
