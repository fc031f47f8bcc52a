/* What graphs and groups hold: memory and programs. Graphs of a group have equal weights and programs once; those go
 * with the last graph that uses them. */
#include "graph.h"

#include <stdlib.h>
#include <string.h>

held *hold(holdings *holdings, const char *key) {
    held *made = calloc(1, sizeof *made + (key ? strlen(key) + 1 : 0));
    if (!made) return NULL;
    if (key) made->key = memcpy(made->text, key, strlen(key));
    made->next = holdings->first;
    return holdings->first = made;
}

held *held_of(const holdings *holdings, const char *key) {
    held *found = holdings->first;
    while (found && (!found->key || strcmp(found->key, key))) found = found->next;
    return found;
}

size_t held_bytes(const holdings *holdings) {
    size_t nbytes = 0;
    for (const held *held = holdings->first; held; held = held->next) nbytes += held->nbytes;
    return nbytes;
}

void count_held(gputune_device *device, held *held, size_t nbytes) {
    held->nbytes = nbytes;
    __atomic_add_fetch(&device->held_bytes, nbytes, __ATOMIC_RELAXED);
}

/* --- giving back -------------------------------------------------------------------------------------------------- */

void release_held(gputune_device *device, held *held) {
    if (held->memory) device->cl.ReleaseMemObject(held->memory), held->key = NULL;
    if (held->host) device->cl.SVMFree(device->context, held->host);
    __atomic_sub_fetch(&device->held_bytes, held->nbytes, __ATOMIC_RELAXED);
    held->memory = NULL, held->host = NULL, held->nbytes = 0;
}

void release_memory(gputune_device *device, holdings *holdings) {
    for (held *held = is_here(device) ? holdings->first : NULL; held; held = held->next) release_held(device, held);
}

static void release_one(gputune_device *device, held *held) {
    if (is_here(device)) release_held(device, held);
    if (is_here(device) && held->program) device->cl.ReleaseProgram(held->program);
    free(held);
}

void release_all(gputune_device *device, holdings *holdings) {
    for (held *held = holdings->first, *next; held; held = next) {
        next = held->next;
        release_one(device, held);
    }
    holdings->first = NULL;
}

/* --- what graphs have in common ----------------------------------------------------------------------------------- */

bool use_held(gputune_graph *graph, held *held) {
    if (graph->shared == &graph->own) return true;
    struct used *used = pool_take(&graph->pool, 1, sizeof *used);
    if (!used) return false;
    *used = (struct used){graph->used, held};
    graph->used = used;
    held->users++;
    return true;
}

void leave_held(gputune_graph *graph) {
    if (graph->shared == &graph->own) return;
    for (const struct used *used = graph->used; used; used = used->next) used->held->users--;
    graph->used = NULL;
    for (held **at = &graph->shared->first, *one; (one = *at);) {
        if (!one->users) *at = one->next, release_one(graph->device, one);
        else at = &one->next;
    }
}
