/* Memory that a device uses as it lies, where it can; as runtime/memory/, with fewer ways: a dma-buf is mapped and
 * copied here, because what ARM's and Qualcomm's drivers take by descriptor this does not ask of them. */
#define _GNU_SOURCE /* MAP_ANONYMOUS */
#include "descriptors.h"
#include "recorded.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { GPU_PAGE_BYTES = 4096 };

static gputune_code new_memory(gputune_device *device, size_t nbytes, gputune_memory **memory, gputune_error *error) {
    *memory = NULL;
    TRY(check_here(device, error));
    if (nbytes > device->identity.max_allocation_bytes)
        return fail(error, GPUTUNE_LIMIT_EXCEEDED, "a buffer of %zu bytes, the device's largest allocation is %llu",
                    nbytes, (unsigned long long)device->identity.max_allocation_bytes);
    if (nbytes < 1) return fail(error, GPUTUNE_UNUSABLE_MEMORY, "memory of 0 bytes, at least 1 is needed");
    if (!(*memory = calloc(1, sizeof **memory))) return NO_MEMORY;
    const gputune_code code = add_user(device, error);
    if (code) return free(*memory), *memory = NULL, code;
    **memory = (gputune_memory){.device = device, .nbytes = nbytes, .descriptor = -1};
    return GPUTUNE_OK;
}

static void drop_buffer(gputune_memory *memory) {
    if (memory->memory) memory->device->cl.ReleaseMemObject(memory->memory);
    memory->memory = NULL;
}

/* Whether a new buffer lies where it is mapped: elsewhere it is a copy. It stays mapped, which makes it the host's. */
static bool maps_in_place(gputune_memory *memory) {
    const bool good = memory->memory && !give_to_host(memory, &memory->device->stream, NULL) &&
                      !finish(&memory->device->stream, NULL);
    if (!good) drop_buffer(memory);
    return good;
}

/* Has the device use the host's memory: without commands, between maps, or not at all, with the reason as its kind. */
static void take_as_it_lies(gputune_memory *memory) {
    gputune_device *device = memory->device;
    const size_t alignment = device->is_cpu ? (size_t)device->identity.base_address_alignment_bytes : GPU_PAGE_BYTES;
    cl_bool shared = 0;
    if ((uintptr_t)memory->data % alignment) {
        snprintf(memory->kind, sizeof memory->kind, "its address is no multiple of %zu bytes", alignment);
        return;
    }
    allocate(device, CL_MEM_USE_HOST_PTR, memory->nbytes, memory->data, &memory->memory, NULL);
    if (memory->memory && (memory->is_shared || device->fine_grain_system))
        device->cl.GetMemObjectInfo(memory->memory, CL_MEM_USES_SVM_POINTER, sizeof shared, &shared, NULL);
    memory->coherent = shared;
    const bool apart = !shared && !device->is_unified;
    if (apart) drop_buffer(memory);
    strcpy(memory->kind, apart ? "the device has memory of its own, so its driver would copy at every map"
                         : shared ? "shared" : maps_in_place(memory) ? "mapped"
                         : "the driver copies: what it maps lies elsewhere");
}

gputune_code gputune_wrap(gputune_device *device, void *data, size_t nbytes, gputune_memory **memory,
                          gputune_error *error) {
    TRY(new_memory(device, nbytes, memory, error));
    device_take(device);
    (*memory)->data = data;
    take_as_it_lies(*memory);
    device_leave(device);
    return GPUTUNE_OK;
}

/* Memory that the driver has allocated so that it can be mapped, for where a device without memory of its own takes no
   other. */
static void allocate_mapped(gputune_memory *memory) {
    void *const pages = memory->data;
    memory->data = NULL; /* it lies where it is mapped first */
    allocate(memory->device, CL_MEM_ALLOC_HOST_PTR, memory->nbytes, NULL, &memory->memory, NULL);
    if (maps_in_place(memory)) {
        munmap(pages, memory->mapped_bytes);
        memory->mapped_bytes = 0, memory->pages = NULL;
        strcpy(memory->kind, "mapped");
    } else {
        memory->data = pages;
    }
}

gputune_code gputune_allocate(gputune_device *device, size_t nbytes, gputune_memory **memory, gputune_error *error) {
    TRY(new_memory(device, nbytes, memory, error));
    gputune_memory *made = *memory;
    device_take(device);
    if (device->fine_grain_buffers)
        made->data = device->cl.SVMAlloc(device->context, CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER, nbytes, 0);
    made->is_shared = made->data;
    if (!made->data) {
        made->pages = made->data = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        made->mapped_bytes = nbytes;
    }
    const bool good = made->data != MAP_FAILED;
    if (good) take_as_it_lies(made);
    if (good && !made->memory && !made->is_shared && device->is_unified) allocate_mapped(made);
    device_leave(device);
    if (good) return GPUTUNE_OK;
    made->data = made->pages = NULL, made->mapped_bytes = 0;
    gputune_free(made), *memory = NULL;
    return fail(error, GPUTUNE_UNUSABLE_MEMORY, "memory of %zu bytes cannot be allocated", nbytes);
}

/* Maps a range of what its descriptor stands for. mmap begins at pages only, so the page in which the range begins is
 * mapped with it. Some dma-bufs are for devices alone: the host does not see those. */
static gputune_code map(gputune_memory *memory, bool dma_buf, gputune_error *error) {
    const uint64_t delta = memory->offset % (uint64_t)sysconf(_SC_PAGESIZE);
    const size_t nbytes = (size_t)delta + memory->nbytes;
    char *pages = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->descriptor,
                       (off_t)(memory->offset - delta));
    if (pages == MAP_FAILED && dma_buf) return GPUTUNE_OK;
    if (pages == MAP_FAILED)
        return fail(error, GPUTUNE_UNUSABLE_MEMORY, "the descriptor's memory cannot be mapped for reading and writing: "
                    "%s", strerror(errno));
    memory->pages = pages;
    memory->mapped_bytes = nbytes;
    memory->data = pages + delta;
    return GPUTUNE_OK;
}

/* Takes a descriptor of its own for a range of memory, and maps it. */
static gputune_code open_range(gputune_memory *memory, int descriptor, bool *dma_buf, gputune_error *error) {
    described found = {false, 0};
    TRY(duplicate(descriptor, &memory->descriptor, &found, error));
    *dma_buf = found.dma_buf;
    if (memory->offset > found.nbytes || memory->nbytes > found.nbytes - memory->offset)
        return fail(error, GPUTUNE_UNUSABLE_MEMORY, "bytes %llu to %llu are asked for, the descriptor's memory has "
                    "%llu", (unsigned long long)memory->offset, (unsigned long long)memory->offset + memory->nbytes,
                    (unsigned long long)found.nbytes);
    return map(memory, found.dma_buf, error);
}

gputune_code gputune_import(gputune_device *device, int descriptor, uint64_t offset, size_t nbytes,
                            gputune_memory **memory, gputune_error *error) {
    bool dma_buf = false;
    TRY(new_memory(device, nbytes, memory, error));
    (*memory)->offset = offset;
    const gputune_code code = open_range(*memory, descriptor, &dma_buf, error);
    device_take(device);
    if (dma_buf) strcpy((*memory)->kind, "it is a dma-buf, which is copied here");
    else if (!code) take_as_it_lies(*memory);
    device_leave(device);
    if (code) gputune_free(*memory), *memory = NULL;
    return code;
}

void *gputune_memory_data(const gputune_memory *memory) { return memory->data; }

const char *gputune_memory_kind(const gputune_memory *memory) { return memory->kind; }

gputune_code give_to_host(gputune_memory *memory, const stream *stream, gputune_error *error) {
    gputune_device *device = memory->device;
    cl_int status = 0;
    void *data = device->cl.EnqueueMapBuffer(stream->queue, memory->memory, 0, CL_MAP_READ | CL_MAP_WRITE, 0,
                                             memory->nbytes, 0, NULL, NULL, &status);
    TRY(checked(error, "mapping memory", status));
    memory->of_host = true;
    if (!memory->data) memory->data = data;
    if (data == memory->data) return GPUTUNE_OK;
    device->cl.EnqueueUnmapMemObject(stream->queue, memory->memory, data, 0, NULL, NULL);
    return fail(error, GPUTUNE_LAUNCH_FAILED, "mapping memory: the driver has mapped a copy");
}

gputune_code give_to_device(gputune_memory *memory, const stream *stream, gputune_error *error) {
    gputune_device *device = memory->device;
    memory->of_host = false;
    return checked(error, "unmapping memory", device->cl.EnqueueUnmapMemObject(stream->queue, memory->memory,
                                                                               memory->data, 0, NULL, NULL));
}

static bool meet(uint64_t start, size_t nbytes, uint64_t other, size_t other_nbytes) {
    return start < other + other_nbytes && other < start + nbytes;
}

bool memories_meet(const gputune_memory *one, const gputune_memory *other) {
    if (same_memory(one->descriptor, other->descriptor))
        return meet(one->offset, one->nbytes, other->offset, other->nbytes);
    return one->data && other->data &&
           meet((uintptr_t)one->data, one->nbytes, (uintptr_t)other->data, other->nbytes);
}

/* Launches that still use it get other memory before: drivers abort when memory is freed that is an argument. */
static void forget(gputune_memory *memory) {
    for (gputune_graph *one = memory->device->graphs; one; one = one->next) recorded_forget(one, memory->memory);
    for (gputune_graph *graph = memory->device->graphs; graph; graph = graph->next)
        for (size_t i = 0; i < graph->tensor_count; i++) {
            const tensor *tensor = &graph->tensors[i];
            if (tensor->place->memory == memory->memory)
                use_memory(graph, tensor->place, tensor->own ? tensor->own->memory : NULL,
                           tensor->record->nbytes, NULL);
        }
    if (memory->of_host) give_to_device(memory, &memory->device->stream, NULL);
    finish(&memory->device->stream, NULL);
    drop_buffer(memory);
}

void gputune_free(gputune_memory *memory) {
    if (!memory) return;
    gputune_device *device = memory->device;
    const bool here = is_here(device);
    device_take(device);
    if (memory->memory && here) forget(memory);
    if (memory->is_shared && here) device->cl.SVMFree(device->context, memory->data);
    device_leave(device);
    if (memory->mapped_bytes) munmap(memory->pages, memory->mapped_bytes);
    if (memory->descriptor >= 0) close(memory->descriptor);
    free(memory);
    remove_user(device);
}
