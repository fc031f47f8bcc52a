/* From a device's clock to the host's, which is now_ns. As runtime/profiling/clocks.py, which gives the reasons: equal
 * bounds lead to equal lines. */
#ifndef GPUTUNE_CLOCKS_H
#define GPUTUNE_CLOCKS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* host = device + offset_ns + (device - at_ns) * rate_ppb / 10^9. bound_ns: no moment between those of the bounds is
 * farther off. by_timer: it is from readings of both clocks, and not from the host's times around calls. */
typedef struct clock_fit {
    int64_t at_ns, offset_ns, rate_ppb, bound_ns;
    bool by_timer;
} clock_fit;

/* A moment by the device's clock, and a time of the host's that it is not before, or not after. */
typedef struct clock_bound {
    int64_t device, host;
} clock_bound;

/* All that is known of a run. */
typedef struct clock_bounds {
    const clock_bound *before, *after; /* at least one of each */
    size_t before_count, after_count;
} clock_bounds;

enum { ANCHORS = 60 };

/* The rate that the runs so far have told: the closest bounds of one run a second. All 0 at first. */
typedef struct clock_tracker {
    size_t count;
    clock_bound lower[ANCHORS], upper[ANCHORS];
    int64_t low_ppb, high_ppb; /* none while there are no anchors */
} clock_tracker;

/* The line in the middle of what bounds leave, with a rate between two. Bounds that contradict each other get the line
 * that breaks them by least. */
clock_fit fit_clock(const clock_bounds *bounds, int64_t low_ppb, int64_t high_ppb);
/* The same of one run, with what the runs before have told, which learns from it. */
clock_fit track_clock(clock_tracker *tracker, const clock_bounds *bounds);
/* A moment by the host's clock. */
int64_t to_host(const clock_fit *clock, int64_t device_ns);

#endif
