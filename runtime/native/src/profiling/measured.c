#include "measured.h"

#include <stdlib.h>
#include <string.h>

enum { SAMPLE_NS = 250000000 /* between two samples */, READ_NS = 3000000, MOST_THREADS = 1024 };

typedef struct counts {
    uint64_t events[EVENTS];
    preemption preemptions[MOST_THREADS];
    size_t preemption_count;
} counts;

struct meters {
    mutex turn; /* of what follows */
    events *events;
    state_files *state;
    uint64_t sampled_ns;
};

struct measured {
    meters *meters;
    counts before, after;
    event_count grown[EVENTS];
    size_t grown_count;
};

meters *meters_open(void) {
    meters *made = calloc(1, sizeof *made);
    if (!made || !mutex_open(&made->turn)) return free(made), NULL;
    made->events = events_open(NULL, "/proc");
    made->state = state_open("");
    if (!made->events || !made->state) return meters_close(made, true), NULL;
    return made;
}

const events *meters_events(const meters *own) { return own->events; }

void meters_close(meters *own, bool here) {
    if (!own) return;
    events_close(own->events);
    state_close(own->state);
    if (here) mutex_close(&own->turn);
    free(own);
}

measured *measured_open(meters *meters) {
    measured *made = calloc(1, sizeof *made);
    if (made) made->meters = meters;
    return made;
}

/* What cannot be written costs no inference; what follows then fails as well. */
static void sample(meters *meters, profile_log *log) {
    state_value values[MOST_STATE_VALUES];
    const uint64_t begun_ns = now_ns();
    if (meters->sampled_ns && begun_ns < meters->sampled_ns + SAMPLE_NS) return;
    meters->sampled_ns = begun_ns;
    const size_t count = state_read(meters->state, READ_NS, values);
    if (count) log_state(log, now_ns(), values, count, NULL);
}

void measured_begin(measured *own, profile_log *log) {
    meters *const meters = own->meters;
    mutex_lock(&meters->turn);
    sample(meters, log);
    events_refresh(meters->events);
    own->before.preemption_count = events_preemptions(meters->events, own->before.preemptions, MOST_THREADS);
    events_read(meters->events, own->before.events);
    mutex_unlock(&meters->turn);
}

/* What events have grown by. */
static void find_grown(measured *own) {
    own->grown_count = 0;
    for (size_t i = 0; i < EVENTS; i++) {
        const uint64_t now = own->after.events[i], then = own->before.events[i];
        if (event_unavailable(own->meters->events, i)) continue;
        own->grown[own->grown_count++] = (event_count){event_name(i), now > then ? now - then : 0};
    }
}

/* The same of preemptions; a thread that is new is not known yet. */
static void find_preempted(measured *own) {
    size_t known = 0;
    for (size_t i = 0; i < own->after.preemption_count; i++) {
        const preemption now = own->after.preemptions[i];
        size_t place = 0;
        while (place < own->before.preemption_count && own->before.preemptions[place].thread != now.thread) place++;
        if (place == own->before.preemption_count) continue;
        const uint64_t then = own->before.preemptions[place].count;
        own->after.preemptions[known++] = (preemption){now.thread, now.count > then ? now.count - then : 0};
    }
    own->after.preemption_count = known;
}

void measured_end(measured *own) {
    meters *const meters = own->meters;
    mutex_lock(&meters->turn);
    events_read(meters->events, own->after.events);
    own->after.preemption_count = events_preemptions(meters->events, own->after.preemptions, MOST_THREADS);
    mutex_unlock(&meters->turn);
    find_grown(own);
    find_preempted(own);
}

void measured_add(const measured *own, logged *inference) {
    inference->counters = own->grown, inference->counter_count = own->grown_count;
    inference->preemptions = own->after.preemptions, inference->preemption_count = own->after.preemption_count;
}
