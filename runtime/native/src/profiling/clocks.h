/* From a device's clock to the host's, which is now_ns.
 *
 * Each device timestamp is bounded by host times before and after it: readings of both clocks, if the driver has them,
 * otherwise the calls that enqueue and wait. Nothing is assumed about how long a call takes on its way, as halving
 * round trips would assume. Each bound leaves a half-plane of the lines host = device + offset + rate * device, and all
 * bounds leave a convex polygon. A fit is a line inside. The rest of the polygon says how far off a moment can be.
 *
 * One short inference cannot show at which rate the clocks run apart; the inferences of a minute can. A contradiction
 * means that a clock was set, and the rate is learned again. */
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
