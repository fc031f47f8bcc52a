/* A profile log as it is written: MsgPack arrays [kind, fields] in the form of runtime/profiling/log.py. Each record
 * gets whole into a file, or is kept until it is taken. */
#ifndef GPUTUNE_LOG_H
#define GPUTUNE_LOG_H

#include "../graphs/graph.h" /* first: it says which functions of the system there are */

#include "clocks.h"
#include "events.h"
#include "../devices/state.h"

typedef struct profile_log {
    mutex turn;    /* of a record: graphs on different streams write */
    FILE *file;    /* NULL: records are kept */
    uint8_t *data; /* the record that is made now, or what is kept */
    size_t nbytes, room, taken; /* taken: of what is kept */
    size_t begun;               /* where the record begins that is made now */
    bool full;                  /* there was no memory for all of that record */
} profile_log;

typedef struct event_count {
    const char *name;
    uint64_t count;
} event_count;

/* An inference, as runtime/profiling/records.py has it. */
typedef struct logged {
    const char *kind, *form; /* kind: "inference" or "marked" */
    uint64_t graph, number, thread, begun_ns, ended_ns, profiler_ns;
    const int64_t (*parts)[4];
    size_t part_count;
    const int64_t *launches; /* `columns` moments of each launch; NULL: nothing was timed, nor is there a clock */
    size_t launch_count, columns;
    clock_fit clock;
    const event_count *counters; /* what they grew by */
    const preemption *preemptions;
    size_t counter_count, preemption_count;
} logged;

/* Opens the file of a log, which is replaced; not a context or package, which may be the one that is loaded. */
gputune_code open_log_file(const char *path, FILE **file, gputune_error *error);
/* Begins an empty log, to a file or, where that is NULL, to be taken; false where there is no memory. */
bool log_open(profile_log *log, FILE *file);
/* Each writes one record, or nothing. events: of which some are not counted; NULL: none are asked for. */
gputune_code log_header(profile_log *log, const gputune_device *device, const char *level, const events *events,
                        gputune_error *error);
/* unmarked: why launches have no times inside of persistent kernels. */
gputune_code log_graph(profile_log *log, const gputune_graph *graph, const char *unmarked, gputune_error *error);
gputune_code log_inference(profile_log *log, const logged *inference, gputune_error *error);
gputune_code log_state(profile_log *log, uint64_t at_ns, const state_value *values, size_t count, gputune_error *error);
gputune_code log_end(profile_log *log, gputune_error *error);
/* Moves bytes that are kept, as gputune_profile_take does. */
void log_take(profile_log *log, void *data, size_t *nbytes);
/* Closes the file and frees the rest. here: not in a fork, where nothing gets into the file any more. */
gputune_code log_close(profile_log *log, bool here, gputune_error *error);

#endif
