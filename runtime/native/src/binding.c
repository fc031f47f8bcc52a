/* Which memory the launches of a graph use: bound when it is loaded, and bound again where memory is exchanged, which
 * costs an argument of those launches that use it and nothing else. As runtime/execution/binding.py. */
#include "graph.h"

#include <stdio.h>
#include <string.h>

typedef struct range range;
typedef struct use use;

/* The memory of a range where a place has this one: all of it, or a part. */
static gputune_code memory_of(gputune_device *device, const range *range, cl_mem whole, size_t nbytes, cl_mem *memory,
                              gputune_error *error) {
    const cl_buffer_region region = {range->offset, range->nbytes};
    cl_int status = CL_SUCCESS;
    *memory = whole;
    if (!whole || range->whole || (region.origin == 0 && region.size == nbytes))
        return GPUTUNE_OK;
    *memory = device->cl.CreateSubBuffer(whole, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &status);
    return *memory ? GPUTUNE_OK : opencl_failed(error, "a part of a buffer", status);
}

static gputune_code point(gputune_device *device, const range *range, cl_mem memory, gputune_error *error) {
    for (const use *use = range->uses; use; use = use->next) {
        const cl_int status = device->cl.SetKernelArg(use->kernel, use->argument, sizeof memory, &memory);
        if (status)
            return opencl_failed(error, "binding a buffer", status);
    }
    return GPUTUNE_OK;
}

/* Not before other memory has taken its place: drivers abort when memory is freed that is still an argument. */
static void drop(gputune_device *device, cl_mem part, cl_mem whole) {
    if (part && part != whole)
        device->cl.ReleaseMemObject(part);
}

gputune_code use_memory(gputune_graph *graph, place *place, cl_mem memory, size_t nbytes, gputune_error *error) {
    gputune_device *device = graph->device;
    gputune_code code = GPUTUNE_OK;
    for (range *range = place->ranges; range; range = range->next) {
        range->wanted = NULL;
        if (!code)
            code = memory_of(device, range, memory, nbytes, &range->wanted, error);
    }
    for (range *range = place->ranges; range && !code; range = range->next)
        code = point(device, range, range->wanted, error);
    for (range *range = place->ranges; range && code; range = range->next)
        point(device, range, range->memory, NULL);
    for (range *range = place->ranges; range; range = range->next) {
        drop(device, code ? range->wanted : range->memory, code ? memory : place->memory);
        range->memory = code ? range->memory : range->wanted;
    }
    if (!code) {
        place->memory = memory;
        place->nbytes = nbytes;
    }
    return code;
}

/* The range of an argument, made where it is the first; the last one is in front, because a launch reads what the one
 * before it wrote. */
static range *range_of(gputune_graph *graph, place *place, const argument *wanted, gputune_error *error) {
    for (range **at = &place->ranges; *at; at = &(*at)->next) {
        range *range = *at;
        if (range->offset == wanted->offset && range->nbytes == wanted->nbytes) {
            *at = range->next;
            range->next = place->ranges;
            return place->ranges = range;
        }
    }
    range *made = pool_take(&graph->pool, 1, sizeof *made);
    if (!made) {
        fail(error, GPUTUNE_OUT_OF_MEMORY, "no memory for the launches of graph '%s'", graph->record->info.name);
        return NULL;
    }
    made->offset = wanted->offset;
    made->nbytes = wanted->nbytes;
    made->whole = wanted->kind == INPUT || wanted->kind == OUTPUT; /* which may lie in more memory */
    if (memory_of(graph->device, made, place->memory, place->nbytes, &made->memory, error))
        return NULL;
    made->next = place->ranges;
    return place->ranges = made;
}

static gputune_code bind_argument(gputune_graph *graph, cl_kernel kernel, cl_uint number, const argument *argument,
                                  gputune_error *error) {
    const opencl *cl = &graph->device->cl;
    if (!argument->is_buffer) {
        const cl_int status = cl->SetKernelArg(kernel, number, sizeof argument->scalar, &argument->scalar);
        return status ? opencl_failed(error, "binding a number", status) : GPUTUNE_OK;
    }
    range *range = range_of(graph, &graph->places[argument->kind][argument->index], argument, error);
    use *use = range ? pool_take(&graph->pool, 1, sizeof *use) : NULL;
    if (!use)
        return error && error->code ? error->code : fail(error, GPUTUNE_OUT_OF_MEMORY, "no memory for launches");
    *use = (struct use){range->uses, kernel, number};
    range->uses = use;
    const cl_int status = cl->SetKernelArg(kernel, number, sizeof range->memory, &range->memory);
    return status ? opencl_failed(error, "binding a buffer", status) : GPUTUNE_OK;
}

/* What no driver may find out only when it launches. */
static gputune_code check_kernel(const gputune_device *device, const launch *launch, cl_kernel kernel, size_t items,
                                 gputune_error *error) {
    cl_uint arguments = 0;
    size_t allowed = 0;
    uint64_t local_bytes = 0;
    device->cl.GetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof arguments, &arguments, NULL);
    device->cl.GetKernelWorkGroupInfo(kernel, device->id, CL_KERNEL_WORK_GROUP_SIZE, sizeof allowed, &allowed, NULL);
    device->cl.GetKernelWorkGroupInfo(kernel, device->id, CL_KERNEL_LOCAL_MEM_SIZE, sizeof local_bytes, &local_bytes,
                                      NULL);
    if (arguments != launch->argument_count)
        return fail(error, GPUTUNE_LAUNCH_FAILED, "kernel '%s' takes %u arguments, %zu are given", launch->entry,
                    arguments, launch->argument_count);
    if (items > allowed)
        return fail(error, GPUTUNE_LIMIT_EXCEEDED, "work-group of %zu work-items, kernel '%s' allows %zu here", items,
                    launch->entry, allowed);
    if (local_bytes > device->identity.local_memory_bytes)
        return fail(error, GPUTUNE_LIMIT_EXCEEDED, "%llu bytes of local memory in kernel '%s', the device has %llu",
                    (unsigned long long)local_bytes, launch->entry,
                    (unsigned long long)device->identity.local_memory_bytes);
    return GPUTUNE_OK;
}

gputune_code bind_launches(gputune_graph *graph, const launch *launches, size_t count, bound *bounds,
                           gputune_error *error) {
    const opencl *cl = &graph->device->cl;
    for (size_t i = 0; i < count; i++) {
        const launch *launch = &launches[i];
        cl_int status = CL_SUCCESS;
        bounds[i].kernel = cl->CreateKernel(graph->programs[launch->program], launch->entry, &status);
        if (!bounds[i].kernel)
            return fail(error, GPUTUNE_BUILD_FAILED, "the program has no kernel '%s': OpenCL's error %d", launch->entry,
                        status);
        size_t items = 1;
        bounds[i].dimensions = (cl_uint)launch->dimensions;
        for (size_t j = 0; j < launch->dimensions; j++) {
            bounds[i].global_size[j] = launch->global_size[j];
            items *= bounds[i].local_size[j] = launch->local_size[j];
        }
        gputune_code code = check_kernel(graph->device, launch, bounds[i].kernel, items, error);
        for (size_t j = 0; j < launch->argument_count && !code; j++)
            code = bind_argument(graph, bounds[i].kernel, (cl_uint)j, &launch->arguments[j], error);
        if (code)
            return code;
    }
    return GPUTUNE_OK;
}

static void release_kernels(gputune_graph *graph, bound *bounds, size_t count) {
    for (size_t i = 0; bounds && i < count; i++)
        if (bounds[i].kernel)
            graph->device->cl.ReleaseKernel(bounds[i].kernel);
}

void unbind(gputune_graph *graph) {
    release_kernels(graph, graph->launches, graph->record->info.launch_count);
    release_kernels(graph, graph->kernels, graph->record->persistent_count);
    for (size_t kind = 0; kind < BUFFER_KINDS; kind++)
        for (size_t i = 0; i < graph->place_counts[kind]; i++)
            for (range *range = graph->places[kind][i].ranges; range; range = range->next)
                drop(graph->device, range->memory, graph->places[kind][i].memory);
}

/* --- what is held -------------------------------------------------------------------------------------------------- */

held *held_of(const holdings *holdings, const char *key) {
    held *found = holdings->first;
    while (found && (!found->key || strcmp(found->key, key)))
        found = found->next;
    return found;
}

void release_held(const gputune_device *device, const held *held) {
    if (held->memory)
        device->cl.ReleaseMemObject(held->memory);
    if (held->host)
        device->cl.SVMFree(device->context, held->host);
    if (held->program)
        device->cl.ReleaseProgram(held->program);
}

held *hold(const gputune_device *device, holdings *holdings, held given, gputune_error *error) {
    held *held = pool_take(&holdings->pool, 1, sizeof *held);
    if (!held) {
        release_held(device, &given);
        fail(error, GPUTUNE_OUT_OF_MEMORY, "no memory to note what is held of the device's");
        return NULL;
    }
    *held = given;
    held->next = holdings->first;
    return holdings->first = held;
}

void release_all(const gputune_device *device, holdings *holdings) {
    for (const held *held = holdings->first; held; held = held->next)
        release_held(device, held);
    holdings->first = NULL;
    pool_free(&holdings->pool);
}
