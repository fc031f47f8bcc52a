/* The persistent form of a graph, whose kernels are bound. */
#ifndef GPUTUNE_PERSISTENT_H
#define GPUTUNE_PERSISTENT_H

#include "graph.h"

/* status_host: the status as the host sees it, NULL where it does not. */
gputune_code persistent_open(gputune_graph *graph, int32_t *status_host, gputune_error *error);
/* An inference on what lies in the buffers; everything is finished when it returns. */
gputune_code persistent_run(gputune_graph *graph, gputune_error *error);

#endif
