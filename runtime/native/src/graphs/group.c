/* Groups of graphs that use arenas in turns, and have equal weights and programs once.
 * Each stream of a group has a set of arenas, and runs one inference at a time. */
#include "graph.h"
#include "recorded.h"

#include <stdlib.h>
#include <string.h>

typedef cl_mem arenas[MOST_ARENAS];

/* Makes sizes as large as what the graphs of a file need; those are of arenas that may not be there yet. */
static gputune_code add_needs(const gputune_group *group, const gputune_file *file, size_t sizes[MOST_ARENAS],
                              size_t *count, gputune_error *error) {
    char choice[REASON_BYTES];
    size_t place, end;
    TRY(choose_contexts(file, &group->device->identity, NULL, &place, &end, choice, error));
    for (; place < end; place++) {
        const context *context;
        TRY(context_at(file, place, &context, error));
        for (size_t i = 0; i < context->graph_count; i++) {
            const graph_record *record = &context->graphs[i];
            if (record->arena_count > MOST_ARENAS)
                return fail(error, GPUTUNE_LIMIT_EXCEEDED, "%s: more than %d arenas", context->path, MOST_ARENAS);
            if (record->arena_count > *count) *count = record->arena_count;
            for (size_t j = 0; j < record->arena_count; j++)
                if (record->arenas[j] > sizes[j]) sizes[j] = record->arenas[j];
        }
    }
    return GPUTUNE_OK;
}

/* --- arenas ------------------------------------------------------------------------------------------------------- */

static void release(const gputune_device *device, arenas *sets, size_t count) {
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < MOST_ARENAS; j++)
            if (sets[i][j]) device->cl.ReleaseMemObject(sets[i][j]);
    free(sets);
}

/* Makes arenas of these sizes for each stream, where the group has them in another size. */
static gputune_code allocate_all(const gputune_group *group, const size_t sizes[MOST_ARENAS], arenas **made,
                                 gputune_error *error) {
    arenas *sets = *made = calloc(group->stream_count, sizeof *sets);
    gputune_code code = sets ? GPUTUNE_OK : NO_MEMORY;
    for (size_t i = 0; i < group->stream_count && !code; i++)
        for (size_t j = 0; j < MOST_ARENAS && !code; j++)
            if (sizes[j] != group->streams[i].arenas[j].nbytes)
                code = allocate(group->device, 0, sizes[j], NULL, &sets[i][j], error);
    if (code && sets) release(group->device, sets, group->stream_count), *made = NULL;
    return code;
}

/* Has all graphs of a group use these arenas where there is one, else what the group has. */
static gputune_code use_arenas(const gputune_group *group, arenas *sets, const size_t sizes[MOST_ARENAS],
                               gputune_error *error) {
    for (gputune_graph *graph = group->device->graphs; graph; graph = graph->next)
        for (size_t j = 0; graph->group == group && j < graph->place_counts[ARENA]; j++) {
            const cl_mem wanted = sets[graph->lane][j];
            if (wanted) TRY(use_memory(graph, &graph->places[ARENA][j], wanted, sizes[j], error));
        }
    return GPUTUNE_OK;
}

/* Exchanges the arenas of all graphs; where that fails, all have what they had before. What the graphs have recorded
 * uses the old ones. */
static gputune_code exchange(gputune_group *group, arenas *larger, const size_t sizes[MOST_ARENAS],
                             gputune_error *error) {
    size_t old_sizes[MOST_ARENAS];
    arenas *old = calloc(group->stream_count, sizeof *old);
    if (!old) return NO_MEMORY;
    for (size_t i = 0; i < group->stream_count; i++)
        for (size_t j = 0; j < MOST_ARENAS; j++)
            old[i][j] = larger[i][j] ? group->streams[i].arenas[j].memory : NULL;
    for (size_t j = 0; j < MOST_ARENAS; j++) old_sizes[j] = group->streams->arenas[j].nbytes;
    for (gputune_graph *graph = group->device->graphs; graph; graph = graph->next)
        if (graph->group == group) recorded_forget(graph, NULL);
    const gputune_code code = use_arenas(group, larger, sizes, error);
    if (code) use_arenas(group, old, old_sizes, NULL);
    for (size_t i = 0; i < group->stream_count && !code; i++)
        for (size_t j = 0; j < MOST_ARENAS; j++)
            if (larger[i][j]) group->streams[i].arenas[j] = (place){.memory = larger[i][j], .nbytes = sizes[j]};
    release(group->device, code ? larger : old, group->stream_count);
    free(code ? old : larger);
    return code;
}

static size_t bytes_of(const gputune_group *group) {
    size_t nbytes = 0;
    for (size_t i = 0; i < group->arena_count; i++) nbytes += group->streams->arenas[i].nbytes;
    return group->stream_count * nbytes;
}

static gputune_code grow(gputune_group *group, const size_t sizes[MOST_ARENAS], size_t count, gputune_error *error) {
    const size_t before = bytes_of(group);
    arenas *larger;
    TRY(allocate_all(group, sizes, &larger, error));
    TRY(exchange(group, larger, sizes, error));
    group->arena_count = count;
    __atomic_add_fetch(&group->device->held_bytes, bytes_of(group) - before, __ATOMIC_RELAXED);
    return GPUTUNE_OK;
}

/* --- the interface ------------------------------------------------------------------------------------------------ */

static gputune_code open_streams(gputune_group *group, size_t count, gputune_error *error) {
    if (!count) return fail(error, GPUTUNE_INVALID_ARGUMENT, "streams is 0, at least 1 is needed");
    if (!(group->streams = calloc(count, sizeof *group->streams))) return NO_MEMORY;
    group->streams->stream = &group->device->stream;
    for (group->stream_count = 1; group->stream_count < count; group->stream_count++)
        TRY(stream_open(group->device, &group->streams[group->stream_count].stream, error));
    return GPUTUNE_OK;
}

gputune_code gputune_open_group(gputune_device *device, const gputune_file *const *files, size_t count, size_t streams,
                                gputune_group **group, gputune_error *error) {
    size_t sizes[MOST_ARENAS] = {0}, arena_count = 0;
    *group = NULL;
    TRY(check_here(device, error));
    gputune_group *made = calloc(1, sizeof *made);
    if (!made) return NO_MEMORY;
    gputune_code code = add_user(device, error);
    if (code) return free(made), code;
    made->device = device;
    code = open_streams(made, streams, error);
    for (size_t i = 0; i < count && !code; i++) code = add_needs(made, files[i], sizes, &arena_count, error);
    device_take(device);
    if (!code) code = grow(made, sizes, arena_count, error);
    device_leave(device);
    if (code) gputune_close_group(made);
    else *group = made;
    return code;
}

gputune_code gputune_grow(gputune_group *group, const gputune_file *file, gputune_error *error) {
    size_t sizes[MOST_ARENAS];
    TRY(check_here(group->device, error));
    device_take(group->device);
    size_t count = group->arena_count;
    for (size_t i = 0; i < MOST_ARENAS; i++) sizes[i] = group->streams->arenas[i].nbytes;
    gputune_code code = add_needs(group, file, sizes, &count, error);
    for (size_t i = 0; i < group->stream_count && !code; i++) code = finish(group->streams[i].stream, error);
    if (!code) code = grow(group, sizes, count, error);
    device_leave(group->device);
    return code;
}

void gputune_close_group(gputune_group *group) {
    if (!group) return;
    gputune_device *device = group->device;
    __atomic_sub_fetch(&device->held_bytes, bytes_of(group), __ATOMIC_RELAXED);
    for (size_t i = 0; i < group->stream_count; i++) {
        for (size_t j = 0; is_here(device) && j < group->arena_count; j++)
            device->cl.ReleaseMemObject(group->streams[i].arenas[j].memory);
        if (i) stream_close(group->streams[i].stream);
    }
    release_all(device, &group->shared);
    remove_user(device);
    free(group->streams);
    free(group);
}

size_t gputune_group_arena(const gputune_group *group, size_t place) {
    change_take(&group->device->stream);
    const size_t nbytes = place < group->arena_count ? group->streams->arenas[place].nbytes : 0;
    change_leave(&group->device->stream);
    return nbytes;
}

size_t gputune_group_bytes(const gputune_group *group) {
    change_take(&group->device->stream);
    const size_t nbytes = bytes_of(group);
    change_leave(&group->device->stream);
    return nbytes;
}

size_t gputune_group_weights(const gputune_group *group) {
    change_take(&group->device->stream);
    const size_t nbytes = held_bytes(&group->shared);
    change_leave(&group->device->stream);
    return nbytes;
}
