/* The launches of a graph, one by one. What calls this holds the turn of its stream. */
#ifndef GPUTUNE_LAUNCHES_H
#define GPUTUNE_LAUNCHES_H

#include "graph.h"

/* Loads and binds the launches where that was not done yet: they may not be the usual form. */
gputune_code launches_needed(gputune_graph *graph, gputune_error *error);
/* Enqueues kernels; events: for each, or NULL. */
gputune_code enqueue(const stream *stream, const bound *kernels, size_t count, cl_event *events,
                     gputune_error *error);
/* The same of the launches from one on, which it loads where that is needed. */
gputune_code enqueue_launches(gputune_graph *graph, size_t first, gputune_error *error);

#endif
