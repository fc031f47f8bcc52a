/* What graphs remember between inferences. */
#ifndef GPUTUNE_STATES_H
#define GPUTUNE_STATES_H

#include "graph.h"

/* Gives the tensors of a state its memory for an inference, whose turn has come, and its length; without a state
 * nothing. Fails where the state is used elsewhere or has no room. */
gputune_code states_begin(gputune_graph *graph, gputune_error *error);
/* Ends an inference that has begun so, with its code: if it is good, what it wrote is what is remembered. */
void states_end(gputune_graph *graph, gputune_code code);
/* Returns the device memory of a state that is opened for a graph; 0 if that remembers nothing. */
size_t state_bytes_of(const graph_record *record);

#endif
