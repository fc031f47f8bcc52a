/* Inferences by persistent kernels, which may be given up, and by launches where those do better.
 *
 * The kernels wait a bounded number of rounds for each other (client/context/persistent.py has their text), because
 * OpenCL C knows no clock. How long a round takes is measured at load. A kernel that is given up says from which launch
 * on the inference has to run by launches. How long is too long? The cost of waiting grows with the wait; giving up
 * costs once, the extra time of the remaining launches. A wait of about that long costs at most twice as much as a
 * choice with foresight, and no rule without foresight does better (ski rental: Karlin, Manasse, Rudolph, Sleator:
 * Competitive Snoopy Caching, Algorithmica 3, 1988). The waits that groups always have come on top. But no group waits
 * for longer than all launches would take: on a machine that was busy from the beginning, groups have always waited.
 *
 * The breaker decides on the form. Persistent kernels gain while each of their groups has a processor. A slow inference
 * says little, because the same disturbance would have slowed launches down. So only a comparison opens the breaker
 * (launches) or closes it (persistent): until the difference of the means is clear next to its standard error (Welch,
 * Biometrika 29, 1938). Meanwhile the form that was faster lately leads, and the slower the other is, the rarer it runs
 * (play the winner: Robbins, 1952). While the breaker is open, a few attempts that are not slower close it, and a
 * comparison confirms that at once. A comparison is due when inferences take much longer than before, or by launches
 * much shorter, and otherwise after waits that double while the answer stays the same. A bucket of tokens keeps
 * attempts and comparisons rare. A young process knows no earlier times, but processor time that it did not get shows
 * that other programs took processors; then the first comparison is due from the third inference on. The programs of
 * the launches are loaded only then, or after EARLY inferences, because every quiet process would pay for them. */
#include "persistent.h"
#include "launches.h"
#include "../profiling/profile.h"
#include "recorded.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WAIT 3.0
#define LEAST_COST_NS 1e5
#define BEGUN_NS 1e5
#define FIRST_WAIT_NS 1e8
#define ALIKE 1.1
#ifndef MOST_ROUNDS /* tests have kernels given up */
#define MOST_ROUNDS 2147483647.0
#endif
enum { CALIBRATING_ROUNDS = 1 << 14, CALIBRATIONS = 8, NEVER = -(1 << 30), TAKEN = 1 << 30 };
#define WHOLE SIZE_MAX /* all launches, in the form that is faster */

#define ATTEMPTS (0.8 * 0.005) /* what an inference adds to the bucket, which is at most 0.5 % while it is open */
#define LAUNCHES (1.0 / 64)
#define CLEAR 1.5 /* standard errors */
#define CHANGED 1.3
#define LEAST_LOST_NS 1e6 /* of processor time: shorter than a time slice of most systems */
enum { TRIES = 3, LEAST = 8, KEPT = 64, MOST = 32, EARLY = 100, FIRST_WAIT = 1000, DOUBLINGS = 3, RECENT = 16,
       LATELY = 3, PACE = 8, MOST_AHEAD = 36, MOST_QUIET = 12 };

typedef struct form {
    double usual, last[LATELY], samples[KEPT]; /* rings */
    size_t seen, added;
} form;

typedef struct breaker {
    bool closed, comparing, lead, confirmed, watchful;
    double bucket, mean, level, watched_ns, lost_ns;
    int64_t wait;
    int doublings, ahead, stride;
    form forms[2]; /* launches, persistent */
} breaker;

struct persistent {
    double groups;
    int32_t *status_host;
    breaker breaker;
    double usual_wait, rounds_per_ns; /* the longest wait in a kernel that was not given up, in rounds */
    bool begun, launched;
};

/* --- the breaker --- */

/* Moves a running estimate towards a sample: falls fast, rises slowly. */
static void add_usual(double *usual, double sample) {
    if (*usual == 0) *usual = sample;
    else if (sample < *usual) *usual += (sample - *usual) / 4;
    else *usual = fmin(sample, *usual * (1 + 1.0 / 256));
}

static size_t kept(const form *form) { return form->added < KEPT ? form->added : KEPT; }

/* The time of the last inference, or of the faster of the two before, if that is longer. */
static double lately(const form *form) {
    const double *last = form->last, newest = last[(form->seen + 2) % LATELY];
    return form->seen < LATELY ? newest : fmax(newest, fmin(last[form->seen % 3], last[(form->seen + 1) % 3]));
}

static bool persistent_leads(const breaker *own) { return lately(&own->forms[1]) <= lately(&own->forms[0]); }

/* variance: of the mean. */
static double mean_of(const form *form, double *variance) {
    const double count = (double)kept(form);
    long double sum = 0, squares = 0;
    for (size_t i = 0; i < kept(form); i++) sum += form->samples[i];
    const double mean = (double)sum / count;
    for (size_t i = 0; i < kept(form); i++) {
        const double off = form->samples[i] - mean, square = off * off;
        squares += square;
    }
    *variance = (double)squares / (count * (count - 1));
    return mean;
}

static double least(const breaker *breaker) { return breaker->closed ? LEAST : TRIES; }

/* mean: of the form that runs from now on. */
static void decide(breaker *breaker, bool closed, double mean) {
    if (closed && !breaker->closed) {
        breaker->wait = 0; /* to be confirmed at once */
        breaker->bucket = LEAST;
    } else {
        const bool held = breaker->closed && !closed && breaker->confirmed;
        breaker->doublings = held ? 0 : breaker->doublings < DOUBLINGS ? breaker->doublings + 1 : DOUBLINGS;
        breaker->wait = (int64_t)FIRST_WAIT << breaker->doublings;
        breaker->bucket = closed == breaker->closed ? breaker->bucket : 0;
    }
    breaker->confirmed = closed && breaker->closed;
    breaker->closed = closed;
    breaker->mean = breaker->level = mean;
    breaker->comparing = false;
    breaker->forms[0].added = breaker->forms[1].added = 0;
}

static void compare(breaker *breaker) {
    const form *launches = &breaker->forms[0], *persistent = &breaker->forms[1];
    if (fmin((double)kept(persistent), (double)kept(launches)) >= least(breaker)) {
        double ours, theirs;
        const double mean = mean_of(persistent, &ours), other = mean_of(launches, &theirs);
        if (!breaker->closed || fabs(mean - other) >= CLEAR * sqrt(ours + theirs)) {
            decide(breaker, mean <= other, fmin(mean, other));
            return;
        }
    }
    const double ours = lately(persistent), others = lately(launches), ratio = fmax(ours, others) / fmin(ours, others);
    breaker->lead = breaker->closed && persistent_leads(breaker);
    breaker->ahead = breaker->closed ? (int)fmax(1, fmin((double)PACE * (ratio - 1), MOST_AHEAD)) : 1;
    breaker->stride = breaker->ahead < MOST_QUIET ? 1 : breaker->ahead / MOST_QUIET;
}

/* Whether persistent kernels would have been much faster without other programs. */
static bool suspects(const breaker *breaker) {
    return breaker->watchful && breaker->lost_ns > LEAST_LOST_NS &&
           breaker->watched_ns > CHANGED * (breaker->watched_ns - breaker->lost_ns);
}

static void watch(breaker *breaker, double elapsed_ns) {
    breaker->mean += breaker->mean != 0 ? (elapsed_ns - breaker->mean) / (double)RECENT : elapsed_ns;
    breaker->bucket = fmin(MOST, breaker->bucket + (breaker->closed ? LAUNCHES : ATTEMPTS));
    breaker->wait--;
    const double level = fmax(breaker->level, breaker->forms[1].usual);
    const bool changed = breaker->closed ? breaker->mean > CHANGED * level : CHANGED * breaker->mean < breaker->level;
    if (!(changed || suspects(breaker) || breaker->wait <= 0) || breaker->bucket < least(breaker)) return;
    breaker->comparing = true, breaker->watchful = false, breaker->lead = breaker->closed;
    breaker->ahead = !breaker->lead;
}

/* An inference that was begun in one form, and all that it took. */
static void breaker_record(breaker *breaker, bool persistent, double elapsed_ns) {
    form *form = &breaker->forms[persistent];
    add_usual(&form->usual, elapsed_ns);
    form->last[form->seen++ % LATELY] = elapsed_ns;
    if (!breaker->comparing) {
        watch(breaker, elapsed_ns);
        return;
    }
    form->samples[form->added++ % KEPT] = elapsed_ns;
    if (persistent != breaker->closed) breaker->bucket = fmax(0, breaker->bucket - 1);
    const double *last = form->last, shortest = fmin(last[0], fmin(last[1], last[2])); /* 0 if there are fewer */
    const bool quiet = fmax(last[0], fmax(last[1], last[2])) <= CHANGED * shortest;
    const int ahead = breaker->ahead;
    breaker->ahead = (int)fmax(0, ahead - (quiet ? breaker->stride : 1));
    if (!ahead || (breaker->closed && breaker->lead != persistent_leads(breaker))) compare(breaker);
}

/* Notes an early inference by persistent kernels, and the processor time that other programs took from its groups. */
static void lose(breaker *breaker, double elapsed_ns, double lost_ns) {
    breaker->watched_ns += elapsed_ns;
    breaker->lost_ns += fmax(0, lost_ns);
}

static breaker new_breaker(void) {
    return (breaker){.closed = true, .confirmed = true, .watchful = true, .bucket = MOST, .wait = EARLY};
}

/* What an undisturbed inference takes more by launches; 0 where that is not known. */
static double cost_of(const breaker *breaker) {
    const double launches_ns = breaker->forms[0].usual, kernels_ns = breaker->forms[1].usual;
    return launches_ns != 0 && kernels_ns != 0 ? fmax(0, launches_ns - kernels_ns) : 0;
}

/* Whether the next inference is to be persistent. */
static bool breaker_persistent(const breaker *breaker) {
    return breaker->comparing ? breaker->lead == (breaker->ahead > 0) : breaker->closed;
}

/* --- the kernels --- */

/* How many rounds a group may wait. */
static int32_t rounds_of(const persistent *persistent) {
    const double launches_ns = persistent->breaker.forms[0].usual;
    double rounds = FIRST_WAIT_NS * persistent->rounds_per_ns;
    if (persistent->usual_wait != 0) { /* on average half of the launches remain, which take longer undisturbed */
        const double cost_ns = fmax(cost_of(&persistent->breaker) / 2, LEAST_COST_NS);
        rounds = WAIT * persistent->usual_wait + cost_ns * persistent->rounds_per_ns;
        if (launches_ns != 0) rounds = fmin(rounds, launches_ns * persistent->rounds_per_ns);
    }
    return (int32_t)fmin(fmax(1, rounds), MOST_ROUNDS);
}

/* Lowers the flag and says how many rounds a group may wait. */
static gputune_code prepare(gputune_graph *graph, int32_t rounds, gputune_error *error) {
    int32_t status[STATUS_BYTES / 4] = {0};
    status[ROUNDS] = rounds;
    if (!graph->persistent->status_host)
        return write_buffer(graph->stream, graph->places[STATUS]->memory, 0, status, sizeof status, true, error);
    memcpy(graph->persistent->status_host, status, sizeof status);
    return GPUTUNE_OK;
}

static gputune_code status_after(gputune_graph *graph, int32_t status[STATUS_BYTES / 4], gputune_error *error) {
    if (!graph->persistent->status_host)
        return read_buffer(graph->stream, graph->places[STATUS]->memory, status, STATUS_BYTES, true, error);
    memcpy(status, graph->persistent->status_host, STATUS_BYTES);
    return GPUTUNE_OK;
}

/* 0, or 1 + the launch from which launches have to run. Device memory may hold anything: where that is no launch, all
 * of them run. */
static int32_t flag_of(const gputune_graph *graph, const int32_t status[STATUS_BYTES / 4]) {
    const int32_t flag = status[FLAG];
    return flag >= 0 && (size_t)flag <= graph->record->info.launch_count ? flag : 1;
}

static gputune_code fill_counters(gputune_graph *graph, int32_t pattern, gputune_error *error) {
    return fill_buffer(graph->stream, graph->places[COUNTERS]->memory, pattern, graph->record->counter_bytes, error);
}

/* Enqueues persistent kernels, or where there are none the graph's launches from one on or as a whole, and waits. */
static gputune_code timed(gputune_graph *graph, const bound *kernels, size_t count, size_t first, double *elapsed_ns,
                          gputune_error *error) {
    const uint64_t begun_ns = now_ns();
    gputune_code code = kernels ? enqueue(graph->stream, kernels, count, NULL, error)
                    : first == WHOLE ? recorded_start(graph, error) : enqueue_launches(graph, first, error);
    if (!code) code = finish(graph->stream, error);
    *elapsed_ns += (double)(now_ns() - begun_ns);
    return code;
}

/* Measures how many rounds of waiting a nanosecond has. The kernel finds all its groups taken and waits in vain until
 * the flag is raised; what disturbs it makes it slower, so the quickest launches count. */
static gputune_code calibrate(gputune_graph *graph, const bound *kernel, gputune_error *error) {
    const int32_t never = NEVER;
    double quickest = INFINITY, second = INFINITY;
    for (int i = 0; i < CALIBRATIONS && !(second < ALIKE * quickest); i++) {
        double elapsed_ns = 0;
        TRY(fill_counters(graph, TAKEN, error));
        TRY(write_buffer(graph->stream, graph->places[COUNTERS]->memory, 0, &never, sizeof never, true, error));
        TRY(prepare(graph, CALIBRATING_ROUNDS, error));
        TRY(timed(graph, kernel, 1, 0, &elapsed_ns, error));
        second = fmin(second, fmax(quickest, elapsed_ns));
        quickest = fmin(quickest, elapsed_ns);
    }
    graph->persistent->rounds_per_ns = (double)CALIBRATING_ROUNDS / fmax(quickest, 1);
    return fill_counters(graph, 0, error);
}

/* Runs launches from one on. before_ns: what the inference, which began in this form, has taken before. */
static gputune_code run_launches(gputune_graph *graph, size_t first, double before_ns, bool form,
                                 gputune_error *error) {
    persistent *persistent = graph->persistent;
    gputune_code code = launches_needed(graph, error);
    if (!code) /* drivers load code at a first launch: all at once, and the time says nothing */
        code = timed(graph, NULL, 0, persistent->launched || first == WHOLE ? first : 0, &before_ns, error);
    if (!code && persistent->launched) breaker_record(&persistent->breaker, form, before_ns);
    persistent->launched |= !code;
    graph->over = !code;
    return code;
}

static gputune_code run_persistently(gputune_graph *graph, gputune_error *error) {
    persistent *persistent = graph->persistent;
    breaker *breaker = &persistent->breaker;
    const int32_t rounds = rounds_of(persistent);
    int32_t status[STATUS_BYTES / 4];
    double elapsed_ns = 0;
    TRY(prepare(graph, rounds, error));
    const double begun_ns = breaker->watchful ? processor_ns() : 0;
    TRY(timed(graph, graph->kernels, graph->record->persistent_count, 0, &elapsed_ns, error));
    if (breaker->watchful) /* what the groups did not have, other programs took */
        lose(breaker, elapsed_ns, persistent->groups * elapsed_ns - (processor_ns() - begun_ns) - BEGUN_NS);
    TRY(status_after(graph, status, error));
    const int32_t flag = flag_of(graph, status);
    const bool first = !persistent->begun; /* no time of it is judged by: drivers load code, and caches are empty */
    persistent->begun = true;
    if (!first) add_usual(&persistent->usual_wait, flag ? rounds : status[LONGEST] > 1 ? status[LONGEST] : 1);
    if (!flag) {
        graph->over = true;
        if (!first) breaker_record(breaker, true, elapsed_ns);
        graph->total.persistent++, graph->last.persistent++;
        return GPUTUNE_OK;
    }
    graph->total.aborted++, graph->last.aborted++;
    TRY(fill_counters(graph, 0, error));
    return run_launches(graph, (size_t)flag - 1, elapsed_ns, true, error);
}

/* --- for graph.c --- */

gputune_code persistent_open(gputune_graph *graph, int32_t *status_host, gputune_error *error) {
    persistent *made = graph->persistent = calloc(1, sizeof *made);
    if (!made) return NO_MEMORY;
    *made = (persistent){.groups = 1, .status_host = status_host, .breaker = new_breaker()};
    size_t waiting = 0; /* its counters lie at the beginning */
    while (waiting + 1 < graph->record->persistent_count && !graph->record->persistent[waiting].counts) waiting++;
    const bound *kernel = &graph->kernels[waiting]; /* each group keeps a processor busy */
    for (size_t i = 0; i < kernel->dimensions; i++) made->groups *= (double)kernel->global_size[i];
    return calibrate(graph, kernel, error);
}

gputune_code persistent_prepare(gputune_graph *graph, gputune_error *error) {
    return prepare(graph, rounds_of(graph->persistent), error);
}

gputune_code persistent_gave_up(gputune_graph *graph, int32_t *flag, gputune_error *error) {
    int32_t status[STATUS_BYTES / 4];
    TRY(status_after(graph, status, error));
    *flag = flag_of(graph, status);
    return *flag ? fill_counters(graph, 0, error) : GPUTUNE_OK;
}

gputune_code persistent_run(gputune_graph *graph, gputune_error *error) {
    const breaker *breaker = &graph->persistent->breaker;
    if (breaker_persistent(breaker)) {
        graph->total.attempts += !breaker->closed, graph->last.attempts += !breaker->closed;
        return run_persistently(graph, error);
    }
    graph->persistent->begun = true;
    return run_launches(graph, WHOLE, 0, false, error);
}
