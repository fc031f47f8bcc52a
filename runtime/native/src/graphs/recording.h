/* The launches of a graph, recorded once and enqueued at once for each inference. */
#ifndef GPUTUNE_RECORDING_H
#define GPUTUNE_RECORDING_H

#include "graph.h"

typedef struct way way; /* how a device records launches */
typedef struct recording {
    cl_mem *memory; /* what each tensor's arguments are */
    bool *moved;    /* tensors whose memory every replay tells, since another one was recorded */
    void **parts;   /* a command buffer, or Qualcomm's recordings */
    size_t part_count; /* 0: its launches are not recorded yet */
    void **commands;   /* of each launch, where its arguments may be changed */
    cl_command_queue queue; /* Qualcomm's, to record on */
    uint64_t used;          /* recorded.c: when it was used last */
} recording;

/* How the device of a graph whose launches are bound records them. NULL: it does not, or not so that it can be used. */
gputune_code find_way(gputune_graph *graph, way **found, gputune_error *error);
/* Whether the arguments of a recording can become other memory. */
bool way_rebinds(const way *way);
/* One for the memory that the tensors have now, with no launches recorded; NULL where there is no memory. */
recording *make_recording(const gputune_graph *graph);
/* Whether that is still the memory that the tensors have. */
bool fits(const gputune_graph *graph, const recording *recording);
bool uses(const gputune_graph *graph, const recording *recording, cl_mem memory);
/* Records the launches with the arguments that they have. Where that fails, the recording can only be released. */
gputune_code record_into(gputune_graph *graph, way *way, recording *recording, gputune_error *error);
/* Has its arguments be the memory that the tensors have now; nothing of it is enqueued. Fails as record_into does. */
gputune_code rebind(gputune_graph *graph, way *way, recording *recording, gputune_error *error);
/* Enqueues all launches, after everything that was enqueued before. */
gputune_code replay(gputune_graph *graph, way *way, const recording *recording, gputune_error *error);
/* Nothing of it is enqueued. In a fork, only memory of the host is given back. */
void release_recording(gputune_graph *graph, const way *way, recording *recording);

#endif
