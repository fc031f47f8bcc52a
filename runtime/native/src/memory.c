/* Memory that a device uses as it lies, where it can; as runtime/memory/, with fewer ways: a dma-buf is mapped and
 * copied here, because what ARM's and Qualcomm's drivers take by descriptor this does not ask of them. */
#define _GNU_SOURCE /* F_GET_SEALS */
#include "recorded.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
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
        memory->mapped_bytes = 0;
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
        made->data = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        made->mapped_bytes = nbytes;
    }
    const bool good = made->data != MAP_FAILED;
    if (good) take_as_it_lies(made);
    if (good && !made->memory && !made->is_shared && device->is_unified) allocate_mapped(made);
    device_leave(device);
    if (good) return GPUTUNE_OK;
    made->data = NULL, made->mapped_bytes = 0;
    gputune_free(made), *memory = NULL;
    return fail(error, GPUTUNE_UNUSABLE_MEMORY, "memory of %zu bytes cannot be allocated", nbytes);
}

/* Maps what a descriptor stands for, which must be such that it cannot vanish under a device. */
static gputune_code map(gputune_memory *memory, int descriptor, bool *dma_buf, gputune_error *error) {
    char path[64], link[64] = "";
    struct stat status;
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    if (descriptor < 0 || fstat(descriptor, &status) || readlink(path, link, sizeof link - 1) < 0)
        return fail(error, GPUTUNE_UNUSABLE_MEMORY, "descriptor %d cannot be used: %s", descriptor, strerror(errno));
    *dma_buf = !strncmp(link, "/dmabuf:", 8) || !strncmp(link, "anon_inode:dmabuf", 17);
    const off_t end = *dma_buf ? lseek(descriptor, 0, SEEK_END) : status.st_size;
    const int seals = *dma_buf ? F_SEAL_SHRINK : S_ISREG(status.st_mode) ? fcntl(descriptor, F_GET_SEALS) : -1;
    if (seals < 0 || !(seals & F_SEAL_SHRINK))
        return fail(error, GPUTUNE_UNUSABLE_MEMORY, "descriptor %d is no dma-buf, and no memfd that is sealed against "
                    "shrinking", descriptor);
    if (end < 0 || (uint64_t)end < memory->nbytes)
        return fail(error, GPUTUNE_UNUSABLE_MEMORY, "%zu bytes are asked for, the descriptor's memory has %lld",
                    memory->nbytes, (long long)end);
    memory->descriptor = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
    void *data = mmap(NULL, memory->nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->descriptor, 0);
    if (data == MAP_FAILED)
        return fail(error, GPUTUNE_UNUSABLE_MEMORY, "the descriptor's memory cannot be mapped: %s", strerror(errno));
    memory->data = data;
    memory->mapped_bytes = memory->nbytes;
    return GPUTUNE_OK;
}

gputune_code gputune_import(gputune_device *device, int descriptor, size_t nbytes, gputune_memory **memory,
                            gputune_error *error) {
    bool dma_buf = false;
    TRY(new_memory(device, nbytes, memory, error));
    const gputune_code code = map(*memory, descriptor, &dma_buf, error);
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

bool memories_meet(const gputune_memory *one, const gputune_memory *other) {
    struct stat mine, theirs;
    const uintptr_t start = (uintptr_t)one->data, others = (uintptr_t)other->data;
    const bool same_file = one->descriptor >= 0 && other->descriptor >= 0 && !fstat(one->descriptor, &mine) &&
                           !fstat(other->descriptor, &theirs) && mine.st_dev == theirs.st_dev &&
                           mine.st_ino == theirs.st_ino; /* which both have from its beginning */
    return same_file || (start < others + other->nbytes && others < start + one->nbytes);
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
    if (memory->mapped_bytes) munmap(memory->data, memory->mapped_bytes);
    if (memory->descriptor >= 0) close(memory->descriptor);
    free(memory);
    remove_user(device);
}
