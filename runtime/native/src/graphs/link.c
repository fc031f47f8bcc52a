/* Linked graphs: what one writes the next reads in place. */
#include "graph.h"
#include "recorded.h"

#include <stdio.h>
#include <string.h>

typedef struct end { /* of a link */
    gputune_graph *graph;
    tensor *tensor;
    held *held;
    cl_mem before;
    size_t before_bytes;
} end;

static gputune_code find_end(end *found, bool output, const char *name, gputune_error *error) {
    gputune_graph *graph = found->graph;
    const gputune_graph_info *info = &graph->record->info;
    const size_t from = output ? info->input_count : 0, to = output ? graph->tensor_count : info->input_count;
    for (size_t i = from; i < to; i++)
        if (!strcmp(graph->tensors[i].record->name, name)) found->tensor = &graph->tensors[i];
    if (!found->tensor)
        return fail(error, GPUTUNE_INVALID_ARGUMENT, "graph '%s' has no %s '%s'", info->name,
                    output ? "output" : "input", name);
    const bool taken = found->tensor->linked || found->tensor->remembered;
    return taken ? refuse_taken(graph, found->tensor, error) : GPUTUNE_OK;
}

/* A tensor's type and shape in words. */
static const char *form_of_tensor(const gputune_tensor *tensor, char text[REASON_BYTES]) {
    snprintf(text, REASON_BYTES, "%s[", tensor->dtype);
    for (size_t i = 0; i < tensor->rank; i++)
        snprintf(text + strlen(text), REASON_BYTES - strlen(text), "%s%zu", i ? ", " : "", tensor->shape[i]);
    snprintf(text + strlen(text), REASON_BYTES - strlen(text), "]");
    return text;
}

static gputune_code check_ends(const end *from, const end *to, gputune_error *error) {
    const gputune_tensor *one = from->tensor->record, *other = to->tensor->record;
    char gives[REASON_BYTES], takes[REASON_BYTES];
    if (!strcmp(form_of_tensor(one, gives), form_of_tensor(other, takes))) return GPUTUNE_OK;
    return fail(error, GPUTUNE_INVALID_ARGUMENT, "output '%s' is %s, input '%s' takes %s", one->name, gives,
                other->name, takes);
}

/* Has the launches of an end use the memory of the link; where that fails all is as before. */
static gputune_code join(end *end, cl_mem memory, gputune_error *error) {
    place *place = end->tensor->place;
    end->before = place->memory, end->before_bytes = place->nbytes;
    if (!(end->held = hold(&end->graph->own, NULL))) return NO_MEMORY;
    recorded_forget(end->graph, NULL);
    return use_memory(end->graph, place, memory, end->tensor->record->nbytes, error);
}

/* Gives back the memory that the tensor had. */
static void keep(end *end, cl_mem memory) {
    end->held->memory = memory;
    if (end->tensor->own) release_held(end->graph->device, end->tensor->own);
    end->tensor->own = NULL;
    end->tensor->linked = true;
}

static gputune_code link_ends(end *from, end *to, gputune_error *error) {
    gputune_device *device = from->graph->device;
    cl_mem memory;
    TRY(check_ends(from, to, error));
    TRY(finish(from->graph->stream, error));
    TRY(allocate(device, 0, from->tensor->record->nbytes, NULL, &memory, error));
    gputune_code code = join(from, memory, error);
    if (!code) {
        code = join(to, memory, error);
        if (code) use_memory(from->graph, from->tensor->place, from->before, from->before_bytes, NULL);
    }
    if (code) return device->cl.ReleaseMemObject(memory), code;
    device->cl.RetainMemObject(memory); /* each graph may be unloaded first */
    keep(from, memory);
    keep(to, memory);
    return GPUTUNE_OK;
}

gputune_code gputune_link(gputune_graph *first, const char *output, gputune_graph *second, const char *input,
                          gputune_error *error) {
    end from = {.graph = first}, to = {.graph = second};
    TRY(check_here(first->device, error));
    if (first == second || first->stream != second->stream)
        return fail(error, GPUTUNE_INVALID_ARGUMENT, "graphs '%s' and '%s' cannot be linked: %s",
                    first->record->info.name, second->record->info.name,
                    first == second ? "they are one" : "they do not run on one stream of one device");
    stream_take(first->stream);
    gputune_code code = find_end(&from, true, output, error);
    if (!code) code = find_end(&to, false, input, error);
    if (!code) code = link_ends(&from, &to, error);
    stream_leave(first->stream);
    return code;
}
