/* Calls events.c for Python, whose functions are what is asked of the system. */
#include "profiling/events.h"

#include <stdbool.h>

events *opened(int (*open)(const void *, int, int), int (*enable)(int), const char *proc) {
    const event_calls calls = {open, enable};
    return events_open(open ? &calls : NULL, proc);
}

const char *unavailable(const events *events, size_t event) { return event_unavailable(events, event); }
const char *name_of(size_t event) { return event_name(event); }
void refresh(events *events) { events_refresh(events); }
void counts_of(events *events, uint64_t counts[EVENTS]) { events_read(events, counts); }
size_t preemptions_of(const events *events, preemption *rows, size_t most) {
    return events_preemptions(events, rows, most);
}
void closed(events *events) { events_close(events); }
