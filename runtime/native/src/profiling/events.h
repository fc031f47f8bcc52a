/* What the system counts while inferences run: events of all threads of this process by perf_event_open(2). Software
 * events exist on every Linux that lets a process ask for them; hardware events need a processor that shows its
 * counters. Nothing here fails: counting must never cost an inference. One thread at a time. */
#ifndef GPUTUNE_EVENTS_H
#define GPUTUNE_EVENTS_H

#include <stddef.h>
#include <stdint.h>

enum { EVENTS = 11 };

/* What is asked of the system; each returns what is less than 0 and -errno where it fails. */
typedef struct event_calls {
    int (*open)(const void *attributes, int thread, int group); /* a perf_event_attr of the first version */
    int (*enable)(int descriptor);
} event_calls;
typedef struct events events;
typedef struct preemption {
    int thread;
    uint64_t count; /* how often the system took a processor from it that it could have used */
} preemption;

const char *event_name(size_t event);
/* Counts the threads that there are. NULL calls: the system's; proc: "/proc". NULL where there is no memory. */
events *events_open(const event_calls *calls, const char *proc);
/* Why an event is not counted, NULL where it is. */
const char *event_unavailable(const events *events, size_t event);
/* Counts threads that are new from now on, and gives up those that have ended. */
void events_refresh(events *events);
/* What was counted since each thread was met, with those that have ended. */
void events_read(events *events, uint64_t counts[EVENTS]);
/* Those of threads since they began, as many as there is room for; their number. */
size_t events_preemptions(const events *events, preemption *rows, size_t most);
void events_close(events *events);

#endif
