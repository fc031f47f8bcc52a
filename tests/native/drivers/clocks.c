/* Calls clocks.c with rows as Python has them: of a moment by the device's clock and a time of the host's. */
#include "profiling/clocks.h"

/* Writes at, offset, rate and bound of a run's line, with what a tracker has told so far. */
void tracked(clock_tracker *tracker, const clock_bound *before, size_t before_count, const clock_bound *after,
             size_t after_count, int64_t found[4]) {
    const clock_bounds bounds = {before, after, before_count, after_count};
    const clock_fit line = track_clock(tracker, &bounds);
    found[0] = line.at_ns, found[1] = line.offset_ns, found[2] = line.rate_ppb, found[3] = line.bound_ns;
}

void fitted_between(int64_t low_ppb, int64_t high_ppb, const clock_bound *before, size_t before_count,
                    const clock_bound *after, size_t after_count, int64_t found[4]) {
    const clock_bounds bounds = {before, after, before_count, after_count};
    const clock_fit line = fit_clock(&bounds, low_ppb, high_ppb);
    found[0] = line.at_ns, found[1] = line.offset_ns, found[2] = line.rate_ppb, found[3] = line.bound_ns;
}

void moved(const int64_t line[4], int64_t *moments, size_t count) {
    const clock_fit clock = {line[0], line[1], line[2], line[3], false};
    for (size_t i = 0; i < count; i++) moments[i] = to_host(&clock, moments[i]);
}
