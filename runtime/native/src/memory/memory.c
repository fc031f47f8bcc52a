/* Memory handles: what an application makes, and who may touch them. As runtime/memory/handles.py. */
#define _GNU_SOURCE /* off_t of any file */
#include "descriptors.h"
#include "importing.h"
#include "../graphs/recorded.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* --- making ------------------------------------------------------------------------------------------------------- */

static gputune_code new_memory(gputune_device *device, memory_kind kind, size_t nbytes, gputune_memory **memory,
                               gputune_error *error) {
    *memory = NULL;
    TRY(check_here(device, error));
    if (nbytes > device->identity.max_allocation_bytes)
        return fail(error, GPUTUNE_LIMIT_EXCEEDED, "a buffer of %zu bytes, the device's largest allocation is %llu",
                    nbytes, (unsigned long long)device->identity.max_allocation_bytes);
    if (nbytes < 1) return fail(error, GPUTUNE_UNUSABLE_MEMORY, "memory of 0 bytes, at least 1 is needed");
    if (!(*memory = calloc(1, sizeof **memory))) return NO_MEMORY;
    const gputune_code code = add_user(device, error);
    if (code) return free(*memory), *memory = NULL, code;
    **memory = (gputune_memory){.device = device, .of = kind, .nbytes = nbytes, .descriptor = -1};
    return GPUTUNE_OK;
}

/* Has the device take new memory, or allocate it, which is freed where that fails. code: what was before. */
static gputune_code open_memory(gputune_memory **memory, gputune_code code, gputune_error *error) {
    gputune_memory *made = *memory;
    if (!code) {
        device_take(made->device);
        code = made->of == NO_KIND ? allocate_memory(made, error) : take_memory(made, error);
        device_leave(made->device);
    }
    if (code) gputune_free(made), *memory = NULL;
    return code;
}

gputune_code gputune_allocate(gputune_device *device, size_t nbytes, gputune_memory **memory, gputune_error *error) {
    TRY(new_memory(device, NO_KIND, nbytes, memory, error));
    return open_memory(memory, GPUTUNE_OK, error);
}

gputune_code gputune_wrap(gputune_device *device, void *data, size_t nbytes, gputune_memory **memory,
                          gputune_error *error) {
    TRY(new_memory(device, OF_HOST, nbytes, memory, error));
    (*memory)->data = data;
    return open_memory(memory, data ? GPUTUNE_OK
                                    : fail(error, GPUTUNE_UNUSABLE_MEMORY, "memory of %zu bytes at no address", nbytes),
                       error);
}

static gputune_code wrap_pointer(gputune_device *device, memory_kind kind, void *pointer, size_t nbytes,
                                 gputune_memory **memory, gputune_error *error) {
    TRY(new_memory(device, kind, nbytes, memory, error));
    (*memory)->pointer = pointer;
    return open_memory(memory, pointer ? GPUTUNE_OK : fail(error, GPUTUNE_UNUSABLE_MEMORY, "0 is no pointer"), error);
}

gputune_code gputune_import_cl_mem(gputune_device *device, void *cl_mem, size_t nbytes, gputune_memory **memory,
                                   gputune_error *error) {
    return wrap_pointer(device, OF_CL_MEM, cl_mem, nbytes, memory, error);
}

gputune_code gputune_import_hardware_buffer(gputune_device *device, void *buffer, size_t nbytes,
                                            gputune_memory **memory, gputune_error *error) {
    return wrap_pointer(device, OF_HARDWARE_BUFFER, buffer, nbytes, memory, error);
}

/* Maps a range of what its descriptor stands for. mmap begins at pages only, so the page in which the range begins is
 * mapped with it. Some dma-bufs are for devices alone: the host does not see those. */
static gputune_code map(gputune_memory *memory, gputune_error *error) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), delta = (size_t)(memory->offset % page),
                 nbytes = delta + memory->nbytes;
    char *pages = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->descriptor,
                       (off_t)(memory->offset - delta));
    if (pages == MAP_FAILED && memory->of == OF_DMA_BUF) return GPUTUNE_OK;
    if (pages == MAP_FAILED)
        return fail(error, GPUTUNE_UNUSABLE_MEMORY, "the descriptor's memory cannot be mapped for reading and writing: "
                    "%s", strerror(errno));
    memory->pages = pages;
    memory->page_bytes = (nbytes + page - 1) / page * page;
    memory->data = pages + delta;
    return GPUTUNE_OK;
}

/* Takes a descriptor of its own for a range of memory, and maps it. */
static gputune_code open_range(gputune_memory *memory, int descriptor, gputune_error *error) {
    described found = {false, 0};
    TRY(duplicate(descriptor, &memory->descriptor, &found, error));
    if (memory->offset > found.nbytes || memory->nbytes > found.nbytes - memory->offset)
        return fail(error, GPUTUNE_UNUSABLE_MEMORY, "bytes %llu to %llu are asked for, the descriptor's memory has "
                    "%llu", (unsigned long long)memory->offset, (unsigned long long)memory->offset + memory->nbytes,
                    (unsigned long long)found.nbytes);
    memory->of = found.dma_buf ? OF_DMA_BUF : OF_MEMFD;
    memory->padding = found.nbytes - memory->offset - memory->nbytes;
    return map(memory, error);
}

gputune_code gputune_import(gputune_device *device, int descriptor, uint64_t offset, size_t nbytes,
                            gputune_memory **memory, gputune_error *error) {
    TRY(new_memory(device, OF_MEMFD, nbytes, memory, error));
    (*memory)->offset = offset;
    return open_memory(memory, open_range(*memory, descriptor, error), error);
}

/* --- what it is --------------------------------------------------------------------------------------------------- */

void *gputune_memory_data(const gputune_memory *memory) { return memory->data; }

const char *gputune_memory_kind(const gputune_memory *memory) { return memory->kind; }

const char *gputune_memory_importer(const gputune_memory *memory) {
    return memory->importer ? memory->importer->name : NULL;
}

int gputune_memory_descriptor(const gputune_memory *memory) { return memory->descriptor; }

void *gputune_memory_cl_mem(const gputune_memory *memory) { return memory->memory; }

static bool meet(uint64_t start, size_t nbytes, uint64_t other, size_t other_nbytes) {
    return start < other + other_nbytes && other < start + nbytes;
}

bool memories_meet(const gputune_memory *one, const gputune_memory *other) {
    if (same_memory(one->descriptor, other->descriptor))
        return meet(one->offset, one->nbytes, other->offset, other->nbytes);
    if (one->pointer && other->pointer) return one->pointer == other->pointer;
    return one->data && other->data &&
           meet((uintptr_t)one->data, one->nbytes, (uintptr_t)other->data, other->nbytes);
}

/* --- who may touch it --------------------------------------------------------------------------------------------- */

static gputune_code begin_host(gputune_memory *memory, bool writes, const stream *stream, gputune_error *error) {
    if (memory->of_host && (!memory->reads_only || !writes)) return GPUTUNE_OK;
    if (memory->of_host) TRY(give_to_device(memory, stream, error));
    memory->reads_only = !writes;
    TRY(give_to_host(memory, stream, error));
    return finish(stream, error);
}

static gputune_code end_host(gputune_memory *memory, const stream *stream, gputune_error *error) {
    if (!memory->of_host) return GPUTUNE_OK;
    TRY(give_to_device(memory, stream, error));
    return finish(stream, error);
}

/* Memory that needs no command is everybody's at all times. */
static gputune_code change_owner(gputune_memory *memory, bool to_host, bool writes, gputune_error *error) {
    const stream *stream = &memory->device->stream;
    gputune_code code = GPUTUNE_OK;
    TRY(check_here(memory->device, error));
    device_take(memory->device);
    if (memory->importer && !memory->coherent)
        code = to_host ? begin_host(memory, writes, stream, error) : end_host(memory, stream, error);
    device_leave(memory->device);
    return code;
}

gputune_code gputune_begin_host(gputune_memory *memory, bool write, gputune_error *error) {
    return change_owner(memory, true, write, error);
}

gputune_code gputune_end_host(gputune_memory *memory, gputune_error *error) {
    return change_owner(memory, false, false, error);
}

/* --- its end ------------------------------------------------------------------------------------------------------ */

void forget_memory(gputune_device *device, cl_mem memory) {
    for (gputune_graph *one = device->graphs; one; one = one->next) recorded_forget(one, memory);
    for (gputune_graph *graph = device->graphs; graph; graph = graph->next)
        for (size_t i = 0; i < graph->tensor_count; i++) {
            const tensor *tensor = &graph->tensors[i];
            if (tensor->place->memory == memory)
                use_memory(graph, tensor->place, tensor->own ? tensor->own->memory : NULL,
                           tensor->record->nbytes, NULL);
        }
}

static void forget(gputune_memory *memory) {
    forget_memory(memory->device, memory->memory);
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
    if (here) free_allocated(memory);
    device_leave(device);
    drop_host(memory);
    free(memory->reason);
    free(memory);
    remove_user(device);
}
