/* Times of launches inside persistent kernels. Marks are ticks of a clock of which nothing is known but that it runs
 * evenly. None lies outside of its kernel, whose moments the device's own clock says. A line from ticks to that clock
 * goes through all inferences that are kept; each inference's own line leads from there to the host's. */
#include "marks.h"
#include "marked.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* How much less and more a tick can be than the first and the last mark say, in ppb. */
enum { LEAST_RATE = -500000000, MOST_RATE = 100000000 };
#define FARTHEST_NS 1e18

typedef struct kept {
    struct kept *next;
    logged inference; /* with copies of its parts, and as launches the times of the kernels, two each */
    int64_t (*ticks)[2], (*inside)[2]; /* of each launch; inside: the same in ns of the device's clock */
} kept;

struct kept_marks {
    size_t launch_count, kernel_count, *stand_for, count; /* stand_for: how many launches each kernel does */
    bool *counts;                                         /* which kernels are persistent */
    kept *first, **end;
};

/* Turns ticks into ns by one rate, so that what is left for the fit is little. */
typedef struct rate {
    int64_t first, first_ns;
    double tick_ns;
} rate;

kept_marks *marks_open(const gputune_graph *graph) {
    const graph_record *record = graph->record;
    kept_marks *made = calloc(1, sizeof *made);
    if (!made) return NULL;
    made->launch_count = record->info.launch_count, made->kernel_count = record->persistent_count;
    made->stand_for = calloc(made->kernel_count, sizeof *made->stand_for);
    made->counts = calloc(made->kernel_count, sizeof *made->counts);
    made->end = &made->first;
    if (!made->stand_for || !made->counts) return marks_close(made), NULL;
    for (size_t i = 0; i < made->kernel_count; i++) {
        made->stand_for[i] = stands_for(&record->persistent[i]);
        made->counts[i] = record->persistent[i].counts;
    }
    return made;
}

static void free_kept(kept *kept) {
    if (!kept) return;
    free((void *)kept->inference.parts);
    free((void *)kept->inference.launches);
    free(kept->ticks);
    free(kept->inside);
    free(kept);
}

static void *copy_of(const void *data, size_t count, size_t nbytes) {
    void *made = calloc(count ? count : 1, nbytes);
    if (made && count) memcpy(made, data, count * nbytes);
    return made;
}

gputune_code marks_keep(kept_marks *marks, gputune_graph *graph, const logged *inference, gputune_error *error) {
    kept *made = calloc(1, sizeof *made);
    if (!made) return NO_MEMORY;
    made->inference = *inference;
    made->inference.parts = copy_of(inference->parts, inference->part_count, sizeof *inference->parts);
    made->inference.launches = copy_of(inference->launches, 2 * marks->kernel_count, sizeof(int64_t));
    made->ticks = calloc(marks->launch_count, sizeof *made->ticks);
    made->inside = calloc(marks->launch_count, sizeof *made->inside);
    const bool has = made->inference.parts && made->inference.launches && made->ticks && made->inside;
    const gputune_code code = has ? marked_take(graph, made->ticks, error) : NO_MEMORY;
    if (code) return free_kept(made), code;
    *marks->end = made, marks->end = &made->next;
    marks->count++;
    return GPUTUNE_OK;
}

/* The ticks from one to another; marks lie in device memory, which may hold anything. */
static double between(int64_t one, int64_t other) { return (double)(int64_t)((uint64_t)other - (uint64_t)one); }

static int64_t about(const rate *rate, int64_t tick) {
    const double since_ns = rint(between(rate->first, tick) * rate->tick_ns);
    return (int64_t)fmin(fmax(since_ns, -FARTHEST_NS), FARTHEST_NS) + rate->first_ns;
}

/* Calls of each persistent kernel: its first and last tick, and its times. */
typedef struct span {
    int64_t began, ended, started_ns, ended_ns;
} span;

static size_t find_spans(const kept_marks *marks, span *spans) {
    size_t count = 0;
    for (const kept *one = marks->first; one; one = one->next) {
        const int64_t(*ticks)[2] = (const int64_t(*)[2])one->ticks;
        for (size_t i = 0; i < marks->kernel_count; ticks += marks->stand_for[i++]) {
            const int64_t *times = one->inference.launches + 2 * i;
            if (marks->counts[i])
                spans[count++] = (span){ticks[0][0], ticks[marks->stand_for[i] - 1][1], times[0], times[1]};
        }
    }
    return count;
}

/* The line from ticks, by one rate, to the device's clock. */
static clock_fit fit_ticks(const span *spans, size_t count, rate *rate, clock_bound *before, clock_bound *after) {
    const double ticks = between(spans[0].began, spans[count - 1].ended);
    *rate = (struct rate){spans[0].began, spans[0].started_ns, 0};
    rate->tick_ns = (double)(spans[count - 1].ended_ns - spans[0].started_ns) / fmax(ticks, 1);
    for (size_t i = 0; i < count; i++) {
        before[i] = (clock_bound){about(rate, spans[i].began), spans[i].started_ns};
        after[i] = (clock_bound){about(rate, spans[i].ended), spans[i].ended_ns};
    }
    const clock_bounds bounds = {before, after, count, count};
    return fit_clock(&bounds, LEAST_RATE, MOST_RATE);
}

/* Rows of when each launch began and ended; processors whose ticks differ let nothing end before it begins. */
static void find_inside(const kept_marks *marks, kept *one, const rate *rate, const clock_fit *clock) {
    for (size_t i = 0, row = 0; i < marks->kernel_count; i++)
        for (size_t j = 0; j < marks->stand_for[i]; j++, row++) {
            int64_t *times = one->inside[row];
            for (int side = 0; side < 2; side++)
                times[side] = marks->counts[i] ? to_host(clock, about(rate, one->ticks[row][side]))
                                               : one->inference.launches[2 * i + (size_t)side];
            if (times[1] < times[0]) times[1] = times[0];
        }
}

static gputune_code write_all(kept_marks *marks, profile_log *log, const span *spans, size_t count,
                              clock_bound *bounds, gputune_error *error) {
    rate rate;
    const clock_fit clock = fit_ticks(spans, count, &rate, bounds, bounds + count);
    for (kept *one = marks->first; one; one = one->next) {
        logged inference = one->inference;
        find_inside(marks, one, &rate, &clock);
        inference.form = "persistent", inference.columns = 2;
        inference.launches = *one->inside, inference.launch_count = marks->launch_count;
        inference.clock.bound_ns += clock.bound_ns;
        TRY(log_inference(log, &inference, error));
    }
    return GPUTUNE_OK;
}

static void forget(kept_marks *marks) {
    for (kept *one; (one = marks->first);) {
        marks->first = one->next;
        free_kept(one);
    }
    marks->end = &marks->first, marks->count = 0;
}

gputune_code marks_write(kept_marks *marks, profile_log *log, gputune_error *error) {
    if (!marks->first) return GPUTUNE_OK;
    const size_t most = marks->count * marks->kernel_count;
    span *spans = calloc(most, sizeof *spans);
    clock_bound *bounds = calloc(most, 2 * sizeof *bounds);
    const size_t count = spans && bounds ? find_spans(marks, spans) : 0;
    const gputune_code code = count ? write_all(marks, log, spans, count, bounds, error) : NO_MEMORY;
    free(spans);
    free(bounds);
    forget(marks);
    return code;
}

void marks_close(kept_marks *marks) {
    if (!marks) return;
    forget(marks);
    free(marks->stand_for);
    free(marks->counts);
    free(marks);
}
