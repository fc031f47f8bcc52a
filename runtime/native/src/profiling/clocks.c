#include "clocks.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define GIGA 1000000000
#define ENOUGH_NS 0.5 /* a line that breaks a bound by less than this breaks none: moments are whole ns */
enum { MOST_PPB = 500000, TOLD_PPB = 50000, MOST_STEPS = 64, ROUNDING_NS = 2, ANCHORS_APART_NS = GIGA };

/* What bounds leave at one rate, in ns beyond their base: offsets from `lowest` to `highest`, none where that is less.
 * slope: how that range grows with the rate. lower, upper: the places of the bounds that end it. */
typedef struct cut {
    double rate, lowest, highest, slope;
    size_t lower, upper;
} cut;

/* Bounds as numbers that are small: moments count from `at`, offsets from `base`. */
typedef struct near {
    const clock_bounds *of;
    int64_t at, base;
    double first, last;
} near;

static double width(const cut *cut) { return cut->highest - cut->lowest; }

/* The difference of two moments, which may be of any clock. */
static int64_t minus(int64_t one, int64_t other) { return (int64_t)((uint64_t)one - (uint64_t)other); }
static double x_of(const near *own, const clock_bound *one) { return (double)minus(one->device, own->at); }
static double y_of(const near *own, const clock_bound *one) {
    return (double)minus(minus(one->host, one->device), own->base);
}

static near near_to(const clock_bounds *bounds) {
    int64_t least = bounds->before->device, greatest = least;
    const clock_bound *const rows[] = {bounds->before, bounds->after};
    const size_t counts[] = {bounds->before_count, bounds->after_count};
    for (size_t kind = 0; kind < 2; kind++)
        for (const clock_bound *one = rows[kind]; one < rows[kind] + counts[kind]; one++) {
            least = one->device < least ? one->device : least;
            greatest = one->device > greatest ? one->device : greatest;
        }
    near made = {bounds, least + minus(greatest, least) / 2, minus(bounds->before->host, bounds->before->device), 0, 0};
    made.first = (double)minus(least, made.at), made.last = (double)minus(greatest, made.at);
    return made;
}

static cut cut_at(const near *own, double rate) {
    cut made = {rate, -INFINITY, INFINITY, 0, 0, 0};
    for (size_t i = 0; i < own->of->before_count; i++) {
        const double lowest = y_of(own, &own->of->before[i]) - rate * x_of(own, &own->of->before[i]);
        if (lowest > made.lowest) made.lowest = lowest, made.lower = i;
    }
    for (size_t i = 0; i < own->of->after_count; i++) {
        const double highest = y_of(own, &own->of->after[i]) - rate * x_of(own, &own->of->after[i]);
        if (highest < made.highest) made.highest = highest, made.upper = i;
    }
    made.slope = x_of(own, &own->of->before[made.lower]) - x_of(own, &own->of->after[made.upper]);
    return made;
}

/* Where on the way between two rates the first lines are left; false where none are. Newton's method, since the width
 * is concave in the rate and made of straight pieces. */
static bool nearest(const near *own, double start, double stop, cut *found) {
    const double toward = stop > start ? 1 : -1;
    double rate = start;
    for (int i = 0; i < MOST_STEPS; i++) {
        *found = cut_at(own, rate);
        if (width(found) >= -ENOUGH_NS) return true;
        if (found->slope * toward <= 0) return false;
        rate -= width(found) / found->slope;
        if ((stop - rate) * toward < 0) return false;
    }
    return false;
}

/* The least and the greatest rate at which lines are left. */
static bool extremes(const near *own, int64_t low_ppb, int64_t high_ppb, cut *first, cut *last) {
    const double low = (double)low_ppb / GIGA, high = (double)high_ppb / GIGA;
    const bool has_first = nearest(own, low, high, first);
    return nearest(own, high, low, last) && has_first;
}

/* Where between two rates the least is missing: by Kelley's cutting planes, here tangents. */
static cut widest(const near *own, double low, double high) {
    cut left = cut_at(own, low), right = cut_at(own, high), found = left;
    if (left.slope <= 0) return left;
    if (right.slope >= 0) return right;
    for (int i = 0; i < MOST_STEPS; i++) {
        const double above = (width(&right) - width(&left) + left.slope * left.rate - right.slope * right.rate) /
                             (left.slope - right.slope);
        found = cut_at(own, fmin(fmax(above, left.rate), right.rate));
        const double tangent = width(&left) + left.slope * (found.rate - left.rate);
        if (width(&found) >= tangent - ENOUGH_NS || found.slope == 0) break;
        if (found.slope > 0) left = found;
        else right = found;
    }
    return found;
}

/* At least what a line is off, whatever was rounded. */
static int64_t bound_of(double off) {
    const int64_t whole = (int64_t)ceil(fmin(fmax(off, 0), 4e18));
    return whole + (whole >> 48) + ROUNDING_NS;
}

/* The line at a rate between two cuts, and how far others between them are from it where they are farthest: at the
 * first or at the last moment, and at one of the extreme rates, since no bound lies outside of these. */
static clock_fit within(const near *own, const cut *first, const cut *last, int64_t rate_ppb) {
    const double rate = (double)rate_ppb / GIGA;
    const cut line = cut_at(own, rate);
    const double offset = rint((line.lowest + line.highest) / 2);
    const double at_first = offset + rate * own->first, at_last = offset + rate * own->last;
    double off = first->highest + first->rate * own->first - at_first;
    off = fmax(off, at_first - last->lowest - last->rate * own->first);
    off = fmax(off, last->highest + last->rate * own->last - at_last);
    off = fmax(off, at_last - first->lowest - first->rate * own->last);
    return (clock_fit){own->at, own->base + (int64_t)offset, rate_ppb, bound_of(off), false};
}

static bool has(const clock_bound *rows, size_t count, int64_t device) {
    size_t place = 0;
    while (place < count && rows[place].device != device) place++;
    return place < count;
}

/* The line of a cut that breaks bounds. It is as far off as from the bounds of moments that have both, and before the
 * first and after the last of these as far as any rate leads away from its own. */
static clock_fit contradicting(const near *own, const cut *found, int64_t low_ppb, int64_t high_ppb) {
    const clock_bounds *const of = own->of;
    const int64_t rate_ppb = (int64_t)rint(found->rate * GIGA);
    const cut line = cut_at(own, (double)rate_ppb / GIGA);
    const double offset = rint((line.lowest + line.highest) / 2), rates[] = {
        (double)low_ppb / GIGA, (double)high_ppb / GIGA, -(double)MOST_PPB / GIGA, (double)MOST_PPB / GIGA};
    bool any = false;
    for (size_t i = 0; i < of->before_count && !any; i++) any = has(of->after, of->after_count, of->before[i].device);
    double off = 0, first = INFINITY, last = -INFINITY, farthest = 0;
    for (size_t kind = 0; kind < 2; kind++) {
        const clock_bound *const rows = kind ? of->after : of->before, *const others = kind ? of->before : of->after;
        const size_t counts[] = {of->before_count, of->after_count};
        for (const clock_bound *one = rows; one < rows + counts[kind]; one++) {
            if (any && !has(others, counts[!kind], one->device)) continue;
            off = fmax(off, fabs(y_of(own, one) - line.rate * x_of(own, one) - offset));
            first = fmin(first, x_of(own, one)), last = fmax(last, x_of(own, one));
        }
    }
    for (size_t i = 0; i < sizeof rates / sizeof *rates; i++) farthest = fmax(farthest, fabs(line.rate - rates[i]));
    off += fmax(first - own->first, own->last - last) * farthest;
    return (clock_fit){own->at, own->base + (int64_t)offset, rate_ppb, bound_of(off), false};
}

/* known: whether `known_ppb` is a rate; it is used as far as the bounds allow. */
static clock_fit fitted(const near *own, int64_t low_ppb, int64_t high_ppb, bool known, int64_t known_ppb) {
    cut first, last;
    if (!extremes(own, low_ppb, high_ppb, &first, &last)) {
        const cut found = widest(own, (double)low_ppb / GIGA, (double)high_ppb / GIGA);
        return contradicting(own, &found, low_ppb, high_ppb);
    }
    const double low = first.rate * GIGA, high = last.rate * GIGA, wanted = known ? (double)known_ppb : 0;
    const bool is_told = !known && high - low <= TOLD_PPB;
    return within(own, &first, &last, (int64_t)rint(is_told ? (low + high) / 2 : fmin(fmax(wanted, low), high)));
}

clock_fit fit_clock(const clock_bounds *bounds, int64_t low_ppb, int64_t high_ppb) {
    const near own = near_to(bounds);
    return fitted(&own, low_ppb, high_ppb, false, 0);
}

/* --- several runs --- */

/* The rates of the lines through all anchors; of a single one that says nothing, all. */
static bool find_rates(clock_tracker *tracker) {
    const clock_bounds bounds = {tracker->lower, tracker->upper, tracker->count, tracker->count};
    const near own = near_to(&bounds);
    cut first, last;
    const bool found = extremes(&own, -MOST_PPB, MOST_PPB, &first, &last);
    tracker->low_ppb = found ? (int64_t)floor(first.rate * GIGA) : -MOST_PPB;
    tracker->high_ppb = found ? (int64_t)ceil(last.rate * GIGA) : MOST_PPB;
    return found || tracker->count == 1;
}

static void drop_anchor(clock_tracker *tracker) {
    tracker->count--;
    memmove(tracker->lower, tracker->lower + 1, tracker->count * sizeof *tracker->lower);
    memmove(tracker->upper, tracker->upper + 1, tracker->count * sizeof *tracker->upper);
}

static void learn(clock_tracker *tracker, const near *own, int64_t rate_ppb) {
    const cut closest = cut_at(own, (double)rate_ppb / GIGA);
    const clock_bound lower = own->of->before[closest.lower];
    const size_t count = tracker->count;
    if (count && llabs(minus(lower.host, tracker->lower[count - 1].host)) < ANCHORS_APART_NS) return;
    if (count == ANCHORS) drop_anchor(tracker);
    tracker->lower[tracker->count] = lower;
    tracker->upper[tracker->count++] = own->of->after[closest.upper];
    while (!find_rates(tracker)) drop_anchor(tracker);
}

clock_fit track_clock(clock_tracker *tracker, const clock_bounds *bounds) {
    const near own = near_to(bounds);
    int64_t low_ppb = tracker->count ? tracker->low_ppb : -MOST_PPB;
    int64_t high_ppb = tracker->count ? tracker->high_ppb : MOST_PPB;
    bool known = high_ppb - low_ppb <= TOLD_PPB;
    cut found;
    if (!nearest(&own, (double)low_ppb / GIGA, (double)high_ppb / GIGA, &found)) {
        known = false;
        if (!nearest(&own, -(double)MOST_PPB / GIGA, (double)MOST_PPB / GIGA, &found))
            return fitted(&own, low_ppb, high_ppb, false, 0); /* it contradicts itself, and says nothing about others */
        tracker->count = 0, low_ppb = -MOST_PPB, high_ppb = MOST_PPB;
    }
    /* halves are rounded down, as Python's // does */
    const int64_t middle = (low_ppb + high_ppb - ((low_ppb + high_ppb) % 2 != 0 && low_ppb + high_ppb < 0)) / 2;
    const clock_fit line = fitted(&own, low_ppb, high_ppb, known, middle);
    learn(tracker, &own, line.rate_ppb);
    return line;
}

static int64_t floor_of(int64_t number, int64_t by) { return number / by - (number % by < 0); }

int64_t to_host(const clock_fit *clock, int64_t device_ns) {
    const int64_t since = minus(device_ns, clock->at_ns), seconds = floor_of(since, GIGA);
    const int64_t rest = (since - seconds * GIGA) * clock->rate_ppb;
    return device_ns + clock->offset_ns + seconds * clock->rate_ppb + floor_of(rest + GIGA / 2, GIGA);
}
