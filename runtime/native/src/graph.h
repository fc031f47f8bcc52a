/* A loaded graph: who sets which parts of it. */
#ifndef GPUTUNE_GRAPH_H
#define GPUTUNE_GRAPH_H

#include "device.h"

typedef struct bound {
    cl_kernel kernel;
    cl_uint dimensions;
    size_t global_size[3], local_size[3];
} bound;

typedef struct place { /* what a tensor, an arena, a section or a status has for memory, and which arguments use it */
    cl_mem memory;     /* not owned here */
    size_t nbytes;
    struct use {
        bound *bound;
        cl_uint argument;
        size_t offset, nbytes;
        cl_mem part;
    } *uses;
    size_t use_count;
} place;

typedef struct persistent persistent; /* persistent.c: breaker, calibration, counts of runs */
typedef struct recorder recorder;     /* profile.c */
typedef struct async async;           /* async.c: a thread and a queue of inferences */
typedef struct votes votes;           /* power.c */

struct gputune_graph {
    gputune_device *device;
    gputune_group *group;
    context *context; /* what is kept of the file: records, and the sections of programs that are loaded later */
    graph_record *record;
    pool pool;
    bound *launches; /* kernel 0 until they are loaded (launches_needed) */
    size_t launch_count;
    place *places[BUFFER_KINDS];
    size_t place_counts[BUFFER_KINDS];
    persistent *persistent; /* NULL: launches one by one */
    recorder *recorder;
    async *async;
    votes *votes;
    gputune_counters total, last;
};

/* graph.c: loads the programs of the launches where they are not the usual form. The turn is held. */
gputune_code launches_needed(gputune_graph *graph, gputune_error *error);
/* graph.c: enqueues launches from one on. */
gputune_code enqueue_launches(gputune_graph *graph, size_t first, gputune_error *error);
/* graph.c: adds a line that gputune_warning gives. */
void warn(gputune_graph *graph, const char *format, ...);

/* persistent.c. kernels: bound launches of record->persistent; counters and status: their buffers. */
gputune_code persistent_open(gputune_graph *graph, bound *kernels, cl_mem counters, cl_mem status, int32_t *status_host,
                             gputune_error *error);
/* An inference on what lies in the buffers; everything is finished when it returns. */
gputune_code persistent_run(gputune_graph *graph, gputune_error *error);
void persistent_close(persistent *persistent);

/* profile.c: stamps of an inference, called by graph.c only where graph->recorder is set. */
enum part { PART_HOST, PART_WRITE, PART_ENQUEUE, PART_WAIT, PART_READ };
void record_begin(recorder *recorder);
void record_part(recorder *recorder, enum part part, int64_t tensor, uint64_t begun_ns, uint64_t ended_ns);
/* Enqueues the launches with events; for the level detailed. */
gputune_code record_launches(gputune_graph *graph, gputune_error *error);
gputune_code record_end(gputune_graph *graph, gputune_error *error);
uint64_t now_ns(void);

/* power.c. phase: "init", "execute" or "deinit"; begin and end nest. */
gputune_code votes_open(const char *preset, const identity *device, votes **votes, gputune_error *error);
void votes_begin(votes *votes, const char *phase);
void votes_end(votes *votes, const char *phase);
void votes_close(votes *votes);

#endif
