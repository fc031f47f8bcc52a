/* Inferences by persistent kernels with marks, from when they are made until their ticks are known as ns. */
#ifndef GPUTUNE_MARKS_H
#define GPUTUNE_MARKS_H

#include "log.h"

typedef struct kept_marks kept_marks;

/* Those of one graph, none at first; NULL where there is no memory. */
kept_marks *marks_open(const gputune_graph *graph);
/* Copies an inference, whose launches are those of the kernels, with the ticks of these. */
gputune_code marks_keep(kept_marks *marks, gputune_graph *graph, const logged *inference, gputune_error *error);
/* Writes what is kept, which no one keeps then: what a tick is in ns, all of it tells together. */
gputune_code marks_write(kept_marks *marks, profile_log *log, gputune_error *error);
void marks_close(kept_marks *marks);

#endif
