/* The programs and weights of a graph. */
#ifndef GPUTUNE_PROGRAMS_H
#define GPUTUNE_PROGRAMS_H

#include "../graphs/graph.h"

/* Loads the programs of launches and all weights that are not there. strict: a binary that the driver refuses is an
 * error, else a warning and built from source. */
gputune_code load_programs(gputune_graph *graph, const launch *launches, size_t count, bool strict,
                           gputune_error *error);
/* Fails where the graph needs features that are not proved. */
gputune_code check_proofs(const gputune_graph *graph, gputune_error *error);
/* Returns GPUTUNE_BUILD_FAILED with what the compiler says, from its first error on, in one line. */
gputune_code build_failed(const gputune_device *device, cl_program program, cl_int status, gputune_error *error);
/* Gives back the copies of what was to be loaded later. */
void drop_copies(gputune_graph *graph);

#endif
