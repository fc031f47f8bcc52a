/* The persistent form of a graph, whose kernels are bound. */
#ifndef GPUTUNE_PERSISTENT_H
#define GPUTUNE_PERSISTENT_H

#include "graph.h"

/* status_host: the status as the host sees it, NULL where it does not. */
gputune_code persistent_open(gputune_graph *graph, int32_t *status_host, gputune_error *error);
/* An inference on what lies in the buffers; everything is finished when it returns. */
gputune_code persistent_run(gputune_graph *graph, gputune_error *error);
/* Has the status ready for an inference by kernels that are enqueued elsewhere, of which nothing is learnt. */
gputune_code persistent_prepare(gputune_graph *graph, gputune_error *error);
/* When it is finished: 0, or 1 + the launch from which launches have to run, where groups have given up. */
gputune_code persistent_gave_up(gputune_graph *graph, int32_t *flag, gputune_error *error);

#endif
