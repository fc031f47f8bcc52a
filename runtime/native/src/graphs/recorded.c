/* Chooses between launches and a recorded queue, and has recordings for the memory that is used.
 *
 * The first inferences decide: the two forms take turns, each inference is waited for, and the recorded queue is used
 * from then on if its median is clearly lower and it was faster nearly each time. So a busy machine, where a median of
 * a few inferences is luck, stays with launches. Inferences in which code is loaded or launches are recorded do not
 * count. A recording belongs to the memory that its launches use. If the way can rebind, there is one recording, whose
 * arguments follow. Otherwise launches are recorded for memory that is used repeatedly, and a few recordings are kept:
 * applications have two or three buffers that they use in turns. Inferences on new memory run by launches. */
#include "recorded.h"
#include "launches.h"
#include "recording.h"

#include <string.h>

#define GAIN 0.03
/* turns: in each form; of them faster than the launches right before: by chance, that happens once in thirty times */
enum { TURNS = 11, MOST_TURNS = 9, MOST_COMPARED = 50, MOST_KNOWN = 4 };

struct recorded {
    way *way;
    recording *known[MOST_KNOWN]; /* sets of memory; where a recording can follow, there is one */
    size_t known_count;
    uint64_t uses; /* of them */
    bool decided, wins, turn, fresh; /* fresh: it was recorded in this inference */
    int compared; /* inferences */
    double launches_ns, times[2][TURNS]; /* of launches, and recorded right after them */
    size_t turns;
};

gputune_code recorded_open(gputune_graph *graph, gputune_error *error) {
    const gputune_device *device = graph->device;
    const graph_record *record = graph->record;
    const bool leaks = device->is_cpu && strstr(device->identity.platform, "Intel"); /* 2 kB with every replay */
    way *way;
    graph->asked = true;
    if (leaks || graph->one_by_one || record->one_by_one || !record->info.output_count) return GPUTUNE_OK;
    TRY(find_way(graph, &way, error));
    if (!way) return GPUTUNE_OK;
    if (!(graph->recorded = pool_take(&graph->pool, 1, sizeof *graph->recorded))) return NO_MEMORY;
    graph->recorded->way = way;
    return GPUTUNE_OK;
}

/* --- which recording --- */

static void drop(gputune_graph *graph, size_t place) {
    recorded *own = graph->recorded;
    recording *dropped = own->known[place];
    own->known[place] = own->known[--own->known_count];
    if (dropped->part_count && is_here(graph->device)) finish(graph->stream, NULL); /* an inference may use it */
    release_recording(graph, own->way, dropped);
}

void recorded_forget(gputune_graph *graph, cl_mem memory) {
    recorded *own = graph->recorded;
    for (size_t i = own ? own->known_count : 0; i > 0; i--)
        if (!memory || uses(graph, own->known[i - 1], memory)) drop(graph, i - 1);
}

/* Adds one for the memory in use, in the place of that which was not used for longest. */
static recording *add_known(gputune_graph *graph) {
    recorded *own = graph->recorded;
    size_t oldest = 0;
    for (size_t i = 1; i < own->known_count; i++)
        if (own->known[i]->used < own->known[oldest]->used) oldest = i;
    if (own->known_count == MOST_KNOWN) drop(graph, oldest);
    recording *made = make_recording(graph);
    if (made) own->known[own->known_count++] = made;
    return made;
}

/* The recording for the memory that the launches use now; NULL where that is new. A recording that can follow does;
 * others are made when memory is there for the second time, since applications use two or three in turns. */
static gputune_code find_recording(gputune_graph *graph, recording **found, gputune_error *error) {
    recorded *own = graph->recorded;
    const bool rebinds = way_rebinds(own->way);
    size_t place = 0;
    *found = NULL, own->fresh = false;
    while (place < own->known_count && !rebinds && !fits(graph, own->known[place])) place++;
    recording *one = place < own->known_count ? own->known[place] : NULL;
    const bool is_known = one;
    if (!one && !(one = add_known(graph))) return NO_MEMORY;
    one->used = ++own->uses;
    if (!is_known && !rebinds) return GPUTUNE_OK;
    own->fresh = !one->part_count;
    if (own->fresh) TRY(record_into(graph, own->way, one, error));
    else if (!fits(graph, one)) {
        TRY(finish(graph->stream, error)); /* an inference that is not waited for may have the old memory */
        TRY(rebind(graph, own->way, one, error));
    }
    *found = one;
    return GPUTUNE_OK;
}

/* --- which form --- */

static void decide(gputune_graph *graph, bool wins) {
    graph->recorded->decided = true, graph->recorded->wins = wins;
    if (!wins) recorded_forget(graph, NULL);
}

/* Enqueues an inference as a recorded queue; false where there is none, or none any more. */
static bool replayed(gputune_graph *graph) {
    gputune_error failed = {GPUTUNE_OK, ""};
    recording *found;
    gputune_code code = find_recording(graph, &found, &failed);
    if (!code && !found) return false;
    if (!code) code = replay(graph, graph->recorded->way, found, &failed);
    if (code) warn(graph, "launches are enqueued one by one and not as a recorded queue: %s", failed.message);
    if (code) decide(graph, false);
    if (!code) graph->total.recorded++, graph->last.recorded++;
    return !code;
}

static gputune_code launched(gputune_graph *graph, gputune_error *error) {
    graph->total.launches++, graph->last.launches++;
    return enqueue_launches(graph, 0, error);
}

static double median_of(const double times[TURNS]) {
    size_t i = TURNS, before = 0;
    while (before != TURNS / 2 && i-- > 0)
        for (size_t j = before = 0; j < TURNS; j++) before += times[j] < times[i] || (times[j] == times[i] && j < i);
    return times[i];
}

/* An inference in the form whose turn it is. Inferences that load code or record do not count. */
static gputune_code compare(gputune_graph *graph, gputune_error *error) {
    recorded *own = graph->recorded;
    const uint64_t begun_ns = now_ns();
    const bool recorded = own->turn && replayed(graph);
    if (!recorded) TRY(launched(graph, error));
    TRY(finish(graph->stream, error));
    graph->over = true;
    const double elapsed_ns = (double)(now_ns() - begun_ns);
    if (!recorded) own->launches_ns = elapsed_ns;
    else if (!own->fresh) own->times[0][own->turns] = own->launches_ns, own->times[1][own->turns++] = elapsed_ns;
    own->turn = !recorded;
    if (!own->decided && ++own->compared >= MOST_COMPARED) decide(graph, false); /* the memory is new each time */
    size_t often = 0;
    for (size_t i = 0; i < own->turns; i++) often += own->times[1][i] < own->times[0][i];
    if (!own->decided && own->turns == TURNS)
        decide(graph, often >= MOST_TURNS && median_of(own->times[1]) <= (1 - GAIN) * median_of(own->times[0]));
    return GPUTUNE_OK;
}

gputune_code recorded_start(gputune_graph *graph, gputune_error *error) {
    TRY(launches_needed(graph, error));
    if (!graph->asked) TRY(recorded_open(graph, error));
    if (graph->recorded && !graph->recorded->decided) return compare(graph, error);
    return graph->recorded && graph->recorded->wins && replayed(graph) ? GPUTUNE_OK : launched(graph, error);
}
