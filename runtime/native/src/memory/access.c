/* Gives memory to the host or to the device by the commands of its importer, and gives it back altogether. */
#include "descriptors.h"
#include "importing.h"

#include <sys/mman.h>
#include <unistd.h>

gputune_code give_to_host(gputune_memory *memory, const stream *stream, gputune_error *error) {
    const opencl *cl = &memory->device->cl;
    const cl_bitfield flags = CL_MAP_READ | (memory->reads_only ? 0 : CL_MAP_WRITE);
    cl_int status = 0;
    if (memory->importer->access == BY_MAP) {
        void *data = cl->EnqueueMapBuffer(stream->queue, memory->memory, 0, flags, 0, memory->nbytes, 0, NULL, NULL,
                                          &status);
        TRY(checked(error, "mapping memory", status));
        if (data != memory->data) {
            cl->EnqueueUnmapMemObject(stream->queue, memory->memory, data, 0, NULL, NULL);
            return fail(error, GPUTUNE_LAUNCH_FAILED, "mapping memory: the driver has mapped a copy");
        }
    } else if (memory->importer->access == BY_SYNC) {
        TRY(finish(stream, error));
        TRY(synchronise(memory->descriptor, true, !memory->reads_only, error));
    }
    memory->of_host = true;
    return GPUTUNE_OK;
}

gputune_code give_to_device(gputune_memory *memory, const stream *stream, gputune_error *error) {
    if (memory->importer->access == BY_SYNC)
        TRY(synchronise(memory->descriptor, false, !memory->reads_only, error));
    if (memory->importer->access == BY_MAP)
        TRY(checked(error, "unmapping memory",
                    memory->device->cl.EnqueueUnmapMemObject(stream->queue, memory->memory, memory->data, 0, NULL,
                                                             NULL)));
    memory->of_host = memory->reads_only = false;
    return GPUTUNE_OK;
}

gputune_code hand_over(const gputune_memory *memory, bool acquire, const stream *stream, gputune_error *error) {
    const importing *own = memory->device->importing;
    const char *const name = acquire ? "clEnqueueAcquireExternalMemObjectsKHR"
                                     : "clEnqueueReleaseExternalMemObjectsKHR";
    if (!memory->importer || !memory->importer->external) return GPUTUNE_OK;
    if (acquire ? !own->EnqueueAcquireExternalMemObjectsKHR : !own->EnqueueReleaseExternalMemObjectsKHR)
        return fail(error, GPUTUNE_LAUNCH_FAILED, "%s is not available", name);
    const cl_int status =
        acquire ? own->EnqueueAcquireExternalMemObjectsKHR(stream->queue, 1, &memory->whole, 0, NULL, NULL)
                : own->EnqueueReleaseExternalMemObjectsKHR(stream->queue, 1, &memory->whole, 0, NULL, NULL);
    return checked(error, name, status);
}

void drop_buffer(gputune_memory *memory) {
    if (memory->memory) memory->device->cl.ReleaseMemObject(memory->memory);
    memory->memory = memory->whole = NULL;
}

void drop_host(gputune_memory *memory) {
    if (memory->pages) munmap(memory->pages, memory->page_bytes);
    if (memory->descriptor >= 0) close(memory->descriptor);
    memory->pages = NULL, memory->descriptor = -1;
}
