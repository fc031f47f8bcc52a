/* Lends arrays to launches, which read them where they lie.
 *
 * An input has a few buffers on the arrays that were given last, by their addresses. An array may be gone: another one
 * is given before its buffer is read again. */
#include "../graphs/inference.h"
#include "../graphs/recorded.h"

#include <string.h>

#ifndef LEAST_LENT       /* tests have less */
#define LEAST_LENT 65536 /* bytes: fewer are copied in less time than it takes to bind another buffer */
#endif
enum { MOST_LENT = 8, PROBED = 64 }; /* probed: bytes by which it is seen whether a device reads where memory lies */

struct lent {
    size_t oldest;
    struct {
        const void *array;
        held *buffer;
    } places[MOST_LENT];
};

/* Whether a buffer on memory at an odd address is mapped there. */
static bool maps_at(gputune_graph *graph, char *memory) {
    const opencl *cl = &graph->device->cl;
    const cl_command_queue queue = graph->stream->queue;
    cl_mem buffer;
    cl_int status = 0;
    allocate(graph->device, CL_MEM_USE_HOST_PTR, PROBED, memory, &buffer, NULL);
    if (!buffer) return false;
    void *mapped = cl->EnqueueMapBuffer(queue, buffer, 1, CL_MAP_READ | CL_MAP_WRITE, 0, PROBED, 0, NULL, NULL,
                                        &status);
    if (!status) cl->EnqueueUnmapMemObject(queue, buffer, mapped, 0, NULL, NULL);
    finish(graph->stream, NULL);
    cl->ReleaseMemObject(buffer);
    return !status && mapped == memory;
}

/* Whether the driver is known for it, and does it. */
static bool reads_in_place(gputune_graph *graph) {
    const identity *device = &graph->device->identity;
    uint64_t memory[PROBED / 8 + 1] = {0};
    if (graph->reading == UNKNOWN) {
        const bool known = graph->device->is_cpu && strstr(device->platform, "Portable Computing Language") &&
                           (!strncmp(device->name, "pthread-", 8) || !strncmp(device->name, "cpu-", 4));
        graph->reading = known && maps_at(graph, (char *)memory + 1) ? READS_IN_PLACE : NEEDS_COPIES;
    }
    return graph->reading == READS_IN_PLACE;
}

/* What kernels ask of an address: of an op package they may read vectors by pointers, and so may those for a GPU. */
static size_t alignment_of(const gputune_graph *graph, const gputune_tensor *record) {
    const context *context = graph->context;
    size_t elements = 1;
    for (size_t i = 0; i < record->rank; i++) elements *= record->shape[i];
    const size_t element = elements ? record->nbytes / elements : 1,
                 device = (size_t)graph->device->identity.base_address_alignment_bytes;
    return context->by_elements && !strcmp(context->device.device_type, "cpu") ? element : device;
}

/* Whether launches may write to an array. Memory that is given for an output may be another mapping of it. */
static bool is_written(const gputune_graph *graph, const tensor *input) {
    const uintptr_t start = (uintptr_t)input->data, end = start + input->record->nbytes;
    for (size_t i = graph->record->info.input_count; i < graph->tensor_count; i++) {
        const tensor *output = &graph->tensors[i];
        const uintptr_t own = output->own ? (uintptr_t)output->own->host : 0;
        if (output->memory || (own && start < own + output->record->nbytes && own < end)) return true;
    }
    return false;
}

/* Makes a buffer on a tensor's array for its launches; it takes the place of the oldest where there are too many. */
static gputune_code make_buffer(gputune_graph *graph, tensor *tensor, bool *lent, gputune_error *error) {
    const size_t nbytes = tensor->record->nbytes;
    if (!tensor->lent) tensor->lent = pool_take(&graph->pool, 1, sizeof *tensor->lent);
    if (!tensor->lent) return NO_MEMORY;
    const size_t oldest = tensor->lent->oldest;
    held *kept = tensor->lent->places[oldest].buffer;
    cl_mem buffer;
    if (!kept) kept = tensor->lent->places[oldest].buffer = hold(&graph->own, NULL);
    if (!kept) return NO_MEMORY;
    allocate(graph->device, CL_MEM_USE_HOST_PTR, nbytes, tensor->data, &buffer, NULL);
    if (!buffer) return GPUTUNE_OK;
    const gputune_code code = use_memory(graph, tensor->place, buffer, nbytes, error);
    if (code) return graph->device->cl.ReleaseMemObject(buffer), code;
    if (kept->memory) { /* which no launch uses any more */
        recorded_forget(graph, kept->memory);
        graph->device->cl.ReleaseMemObject(kept->memory);
    }
    kept->memory = buffer;
    tensor->lent->places[oldest].array = tensor->data;
    tensor->lent->oldest = (oldest + 1) % MOST_LENT;
    *lent = true;
    return GPUTUNE_OK;
}

gputune_code lend(gputune_graph *graph, tensor *tensor, bool *lent, gputune_error *error) {
    const size_t nbytes = tensor->record->nbytes;
    *lent = false;
    if (nbytes < LEAST_LENT || !reads_in_place(graph) || is_written(graph, tensor)) return GPUTUNE_OK;
    for (size_t i = 0; tensor->lent && i < MOST_LENT; i++) {
        if (tensor->lent->places[i].array != tensor->data) continue;
        const cl_mem buffer = tensor->lent->places[i].buffer->memory;
        if (tensor->place->memory != buffer) TRY(use_memory(graph, tensor->place, buffer, nbytes, error));
        *lent = true;
        return GPUTUNE_OK;
    }
    if ((uintptr_t)tensor->data % alignment_of(graph, tensor->record)) return GPUTUNE_OK;
    return make_buffer(graph, tensor, lent, error);
}
