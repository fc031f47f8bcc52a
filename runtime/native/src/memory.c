/* Memory that a device uses as it lies, where it can: as runtime/memory/ has it, with fewer ways. A dma-buf is mapped and
 * copied here: what ARM's and Qualcomm's drivers take by descriptor this does not ask of them. */
#include "graph.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static size_t in_pages(size_t nbytes) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (nbytes + page - 1) / page * page;
}

static gputune_code new_memory(gputune_device *device, size_t nbytes, gputune_memory **memory, gputune_error *error) {
    *memory = NULL;
    if (nbytes < 1 || nbytes > device->identity.max_allocation_bytes)
        return fail(error, nbytes ? GPUTUNE_LIMIT_EXCEEDED : GPUTUNE_UNUSABLE_MEMORY,
                    "memory of %zu bytes, from 1 to %llu are possible", nbytes,
                    (unsigned long long)device->identity.max_allocation_bytes);
    if (!(*memory = calloc(1, sizeof **memory)))
        return fail(error, GPUTUNE_OUT_OF_MEMORY, "no memory for a handle");
    **memory = (gputune_memory){.device = device, .nbytes = nbytes, .descriptor = -1};
    return GPUTUNE_OK;
}

/* A buffer on memory of the host. */
static cl_mem buffer_on(gputune_device *device, void *data, size_t nbytes) {
    cl_int status;
    return device->cl.CreateBuffer(device->context, CL_MEM_READ_WRITE | CL_MEM_USE_HOST_PTR, nbytes, data, &status);
}

static bool is_shared(gputune_device *device, cl_mem memory) {
    cl_bool shared = 0;
    return !device->cl.GetMemObjectInfo(memory, CL_MEM_USES_SVM_POINTER, sizeof shared, &shared, NULL) && shared;
}

/* Whether the driver maps memory where it lies: elsewhere it is a copy. Leaves it mapped, which makes it the host's. */
static bool maps_in_place(gputune_memory *memory) {
    gputune_error refused;
    if (memory->memory && !give_to_host(memory, &refused) && !finish(memory->device, &refused))
        return true;
    if (memory->memory)
        memory->device->cl.ReleaseMemObject(memory->memory);
    memory->memory = NULL;
    return false;
}

/* Has the device use the host's memory, without commands, between maps, or not at all. */
static void take_as_it_lies(gputune_memory *memory) {
    gputune_device *device = memory->device;
    const char *why = "the device has memory of its own, so its driver would copy at every map";
    strcpy(memory->kind, "shared");
    if ((uintptr_t)memory->data % device->identity.base_address_alignment_bytes) {
        snprintf(memory->kind, sizeof memory->kind, "its address is no multiple of %llu bytes",
                 (unsigned long long)device->identity.base_address_alignment_bytes);
        return;
    }
    if (memory->is_shared || device->fine_grain_system) {
        memory->memory = buffer_on(device, memory->data, memory->nbytes);
        if (memory->memory && (memory->coherent = is_shared(device, memory->memory)))
            return;
        if (memory->memory)
            device->cl.ReleaseMemObject(memory->memory);
        memory->memory = NULL;
    }
    if (device->is_unified) {
        memory->memory = buffer_on(device, memory->data, memory->nbytes);
        why = maps_in_place(memory) ? "mapped" : "the driver copies: what it maps lies elsewhere";
    }
    strcpy(memory->kind, why);
}

gputune_code gputune_wrap(gputune_device *device, void *data, size_t nbytes, gputune_memory **memory,
                          gputune_error *error) {
    const gputune_code code = new_memory(device, nbytes, memory, error);
    if (code)
        return code;
    (*memory)->data = data;
    device_take(device);
    take_as_it_lies(*memory);
    device_leave(device);
    return GPUTUNE_OK;
}

/* Memory that the driver has allocated so that it can be mapped, for where it takes no other. */
static void allocate_mapped(gputune_memory *memory) {
    gputune_device *device = memory->device;
    cl_int status;
    munmap(memory->data, memory->mapped_bytes);
    memory->mapped_bytes = 0;
    memory->memory = device->cl.CreateBuffer(device->context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR, memory->nbytes,
                                             NULL, &status);
    memory->data = NULL; /* it lies where it is mapped first */
    strcpy(memory->kind, maps_in_place(memory) ? "mapped" : "the driver gives no memory that can be mapped");
}

gputune_code gputune_allocate(gputune_device *device, size_t nbytes, gputune_memory **memory, gputune_error *error) {
    gputune_code code = new_memory(device, nbytes, memory, error);
    if (code)
        return code;
    gputune_memory *made = *memory;
    device_take(device);
    if (device->fine_grain_buffers) {
        made->data = device->cl.SVMAlloc(device->context, CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER, nbytes, 0);
        made->is_shared = made->data;
    }
    if (!made->data) {
        made->mapped_bytes = in_pages(nbytes);
        made->data = mmap(NULL, made->mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    }
    if (made->data != MAP_FAILED)
        take_as_it_lies(made);
    if (made->data != MAP_FAILED && !made->memory && !made->is_shared)
        allocate_mapped(made);
    device_leave(device);
    if (made->data && made->data != MAP_FAILED)
        return GPUTUNE_OK;
    free(made);
    *memory = NULL;
    return fail(error, GPUTUNE_UNUSABLE_MEMORY, "memory of %zu bytes cannot be had", nbytes);
}

/* What a descriptor must be so that its memory cannot vanish under a device; how large it is, 0 for others. */
static size_t usable(int descriptor, bool *dma_buf, gputune_error *error) {
    char path[64], link[64] = "";
    struct stat status;
    snprintf(path, sizeof path, "/proc/self/fd/%d", descriptor);
    if (descriptor < 0 || fstat(descriptor, &status) || readlink(path, link, sizeof link - 1) < 0) {
        fail(error, GPUTUNE_UNUSABLE_MEMORY, "descriptor %d cannot be used: %s", descriptor, strerror(errno));
        return 0;
    }
    *dma_buf = !strncmp(link, "/dmabuf:", 8) || !strncmp(link, "anon_inode:dmabuf", 17);
    const off_t end = *dma_buf ? lseek(descriptor, 0, SEEK_END) : status.st_size;
    const int seals = *dma_buf ? F_SEAL_SHRINK : S_ISREG(status.st_mode) ? fcntl(descriptor, F_GET_SEALS) : -1;
    if (seals >= 0 && seals & F_SEAL_SHRINK && end > 0)
        return (size_t)end;
    fail(error, GPUTUNE_UNUSABLE_MEMORY, "descriptor %d is no dma-buf, and no memfd that is sealed against shrinking",
         descriptor);
    return 0;
}

gputune_code gputune_import(gputune_device *device, int descriptor, size_t nbytes, gputune_memory **memory,
                            gputune_error *error) {
    bool dma_buf = false;
    gputune_code code = new_memory(device, nbytes, memory, error);
    if (code)
        return code;
    gputune_memory *made = *memory;
    const size_t size = usable(descriptor, &dma_buf, error);
    *memory = NULL;
    if (size >= nbytes) {
        made->descriptor = fcntl(descriptor, F_DUPFD_CLOEXEC, 0);
        made->data = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, made->descriptor, 0);
        if (made->data != MAP_FAILED) {
            made->mapped_bytes = nbytes;
            device_take(device);
            if (dma_buf) /* whose exporter must know of every access through the host's mapping */
                strcpy(made->kind, "it is a dma-buf, which this runtime copies");
            else
                take_as_it_lies(made);
            device_leave(device);
            *memory = made;
            return GPUTUNE_OK;
        }
        close(made->descriptor);
        fail(error, GPUTUNE_UNUSABLE_MEMORY, "the descriptor's memory cannot be mapped: %s", strerror(errno));
    } else if (size) {
        fail(error, GPUTUNE_UNUSABLE_MEMORY, "%zu bytes are asked for, the descriptor's memory has %zu", nbytes, size);
    }
    free(made);
    return GPUTUNE_UNUSABLE_MEMORY;
}

void *gputune_memory_data(const gputune_memory *memory) { return memory->data; }

const char *gputune_memory_kind(const gputune_memory *memory) { return memory->kind; }

gputune_code give_to_host(gputune_memory *memory, gputune_error *error) {
    gputune_device *device = memory->device;
    cl_int status = CL_SUCCESS;
    void *data = device->cl.EnqueueMapBuffer(device->queue, memory->memory, 0, CL_MAP_READ | CL_MAP_WRITE, 0,
                                             memory->nbytes, 0, NULL, NULL, &status);
    if (status || !data)
        return opencl_failed(error, "mapping memory", status);
    memory->of_host = true;
    if (memory->data && data != memory->data) {
        give_to_device(memory, NULL);
        return fail(error, GPUTUNE_LAUNCH_FAILED, "mapping memory: the driver has mapped a copy");
    }
    memory->data = data;
    return GPUTUNE_OK;
}

gputune_code give_to_device(gputune_memory *memory, gputune_error *error) {
    gputune_device *device = memory->device;
    const cl_int status = device->cl.EnqueueUnmapMemObject(device->queue, memory->memory, memory->data, 0, NULL, NULL);
    memory->of_host = false;
    return status ? opencl_failed(error, "unmapping memory", status) : GPUTUNE_OK;
}

bool memories_meet(const gputune_memory *one, const gputune_memory *other) {
    struct stat mine, theirs;
    if (one->descriptor >= 0 && other->descriptor >= 0 && !fstat(one->descriptor, &mine) &&
        !fstat(other->descriptor, &theirs) && mine.st_dev == theirs.st_dev && mine.st_ino == theirs.st_ino)
        return true;
    const uintptr_t start = (uintptr_t)one->data, others = (uintptr_t)other->data;
    return start < others + other->nbytes && others < start + one->nbytes;
}

/* Graphs whose launches still use it get other memory before: drivers abort when memory is freed that is an argument. */
static void forget(gputune_memory *memory) {
    for (gputune_graph *graph = memory->device->graphs; graph; graph = graph->next)
        for (size_t i = 0; i < graph->tensor_count; i++) {
            tensor *tensor = &graph->tensors[i];
            if (tensor->place->memory == memory->memory)
                use_memory(graph, tensor->place, tensor->own ? tensor->own->memory : NULL, tensor->record->nbytes, NULL);
        }
    if (memory->of_host) {
        give_to_device(memory, NULL);
        finish(memory->device, NULL);
    }
    memory->device->cl.ReleaseMemObject(memory->memory);
}

void gputune_free(gputune_memory *memory) {
    if (!memory)
        return;
    device_take(memory->device);
    if (memory->memory)
        forget(memory);
    if (memory->is_shared)
        memory->device->cl.SVMFree(memory->device->context, memory->data);
    device_leave(memory->device);
    if (memory->mapped_bytes)
        munmap(memory->data, memory->mapped_bytes);
    if (memory->descriptor >= 0)
        close(memory->descriptor);
    free(memory);
}
