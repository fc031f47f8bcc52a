/* Arenas that several graphs share, one inference at a time, with equal weights and programs. */
#include "graph.h"

#include <stdlib.h>

gputune_code gputune_open_group(gputune_device *device, const gputune_file *const *files, size_t count,
                                gputune_group **group, gputune_error *error) {
    gputune_group *made = calloc(1, sizeof *made);
    gputune_code code = made ? GPUTUNE_OK : fail(error, GPUTUNE_OUT_OF_MEMORY, "no memory for a group");
    *group = NULL;
    if (made)
        made->device = device;
    for (size_t i = 0; i < count && !code; i++) {
        size_t arenas[MOST_ARENAS], found = 0;
        code = needed_arenas(files[i], arenas, MOST_ARENAS, &found, error);
        for (size_t j = 0; j < found && !code; j++)
            if (j >= made->arena_count || arenas[j] > made->arena_bytes[j])
                made->arena_bytes[j] = arenas[j];
        made->arena_count = found > made->arena_count ? found : made->arena_count;
    }
    for (size_t i = 0; !code && i < made->arena_count; i++) {
        held arena = {0};
        code = allocate(device, made->arena_bytes[i], NULL, &arena.memory, error);
        if (!code && !hold(device, &made->shared, arena, error))
            code = GPUTUNE_OUT_OF_MEMORY;
        made->arenas[i] = arena.memory;
    }
    if (code)
        gputune_close_group(made);
    else
        *group = made;
    return code;
}

void gputune_close_group(gputune_group *group) {
    if (!group)
        return;
    device_take(group->device);
    release_all(group->device, &group->shared);
    device_leave(group->device);
    free(group);
}

size_t gputune_group_bytes(const gputune_group *group) {
    size_t nbytes = 0;
    for (size_t i = 0; i < group->arena_count; i++)
        nbytes += group->arena_bytes[i];
    return nbytes;
}
