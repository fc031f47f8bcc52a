/* Which memory the launches of a graph use: bound when it is loaded, and bound again where memory is exchanged, which
 * costs an argument of those launches that use it and nothing else. */
#include "graph.h"

#include <string.h>

typedef struct range range;

/* The memory of a range where a place has this one: all of it, which may be more, or a part. */
static gputune_code memory_of(gputune_device *device, const place *place, const range *range, cl_mem whole,
                              cl_mem *memory, gputune_error *error) {
    const cl_buffer_region region = {range->offset, range->nbytes};
    cl_int status = 0;
    *memory = whole;
    if (whole && region.origin && !place->pointer)
        *memory = device->cl.CreateSubBuffer(whole, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &status);
    return checked(error, "making a part of a buffer", status);
}

static gputune_code give_range(gputune_device *device, const place *place, const range *range, cl_kernel kernel,
                               cl_uint number, cl_mem memory, gputune_error *error) {
    return checked(error, "binding a buffer",
                   place->pointer ? device->cl.SetKernelArgSVMPointer(kernel, number, place->pointer + range->offset)
                                  : device->cl.SetKernelArg(kernel, number, sizeof memory, &memory));
}

static gputune_code point(gputune_device *device, const place *place, const range *range, cl_mem memory,
                          gputune_error *error) {
    for (const struct use *use = range->uses; use; use = use->next)
        TRY(give_range(device, place, range, use->kernel, use->argument, memory, error));
    return GPUTUNE_OK;
}

/* Not before other memory has taken its place: drivers abort when memory is freed that is still an argument. */
static void drop(gputune_device *device, cl_mem part, cl_mem whole) {
    if (part && part != whole) device->cl.ReleaseMemObject(part);
}

gputune_code use_memory(gputune_graph *graph, place *place, cl_mem memory, size_t nbytes, gputune_error *error) {
    gputune_device *device = graph->device;
    gputune_code code = GPUTUNE_OK;
    for (range *range = place->ranges; range; range = range->next) {
        range->wanted = NULL;
        if (!code) code = memory_of(device, place, range, memory, &range->wanted, error);
    }
    for (range *range = place->ranges; range && !code; range = range->next)
        code = point(device, place, range, range->wanted, error);
    for (range *range = place->ranges; range && code; range = range->next)
        point(device, place, range, range->memory, NULL);
    for (range *range = place->ranges; range; range = range->next) {
        drop(device, code ? range->wanted : range->memory, code ? memory : place->memory);
        range->memory = code ? range->memory : range->wanted;
    }
    place->memory = code ? place->memory : memory;
    place->nbytes = code ? place->nbytes : nbytes;
    return code;
}

gputune_code refuse_taken(const gputune_graph *graph, const tensor *tensor, gputune_error *error) {
    return fail(error, GPUTUNE_INVALID_ARGUMENT, "%s '%s' of graph '%s' %s", tensor->kind, tensor->record->name,
                graph->record->info.name, tensor->linked ? "is linked to another graph" : "belongs to its state");
}

/* The range of an argument, made where it is the first. The last one is in front, because a launch reads what the one
 * before it wrote. */
static gputune_code range_of(gputune_graph *graph, place *place, const argument *wanted, range **found,
                             gputune_error *error) {
    range **at = &place->ranges;
    while (*at && ((*at)->offset != wanted->offset || (*at)->nbytes != wanted->nbytes)) at = &(*at)->next;
    if ((*found = *at)) {
        *at = (*found)->next;
    } else {
        if (!(*found = pool_take(&graph->pool, 1, sizeof **found))) return NO_MEMORY;
        (*found)->offset = wanted->offset;
        (*found)->nbytes = wanted->nbytes;
        TRY(memory_of(graph->device, place, *found, place->memory, &(*found)->memory, error));
    }
    (*found)->next = place->ranges;
    place->ranges = *found;
    return GPUTUNE_OK;
}

static gputune_code bind_number(gputune_graph *graph, cl_kernel kernel, cl_uint number, int32_t value,
                                gputune_error *error) {
    return checked(error, "binding a number", graph->device->cl.SetKernelArg(kernel, number, sizeof value, &value));
}

static gputune_code bind_buffer(gputune_graph *graph, cl_kernel kernel, cl_uint number, const argument *argument,
                                gputune_error *error) {
    range *range;
    place *place = &graph->places[argument->kind][argument->index];
    struct use *use = pool_take(&graph->pool, 1, sizeof *use);
    if (!use) return NO_MEMORY;
    TRY(range_of(graph, place, argument, &range, error));
    *use = (struct use){range->uses, kernel, number};
    range->uses = use;
    return give_range(graph->device, place, range, kernel, number, range->memory, error);
}

/* A kernel that takes offsets has two arguments for a buffer: all of the memory that it is a part of, and where. */
static gputune_code bind_arguments(gputune_graph *graph, cl_kernel kernel, const launch *launch, gputune_error *error) {
    cl_uint number = 0;
    for (const argument *one = launch->arguments; one < launch->arguments + launch->argument_count; one++) {
        argument whole = *one;
        if (launch->offsets) whole.offset = 0;
        if (!one->is_buffer) TRY(bind_number(graph, kernel, number++, one->scalar, error));
        if (one->is_buffer) TRY(bind_buffer(graph, kernel, number++, &whole, error));
        if (one->is_buffer && launch->offsets)
            TRY(bind_number(graph, kernel, number++, (int32_t)(one->offset / OFFSET_BYTES), error));
    }
    return GPUTUNE_OK;
}

/* What no driver may find out only when it launches. */
static gputune_code check_kernel(const gputune_device *device, const launch *launch, cl_kernel kernel, size_t items,
                                 gputune_error *error) {
    const opencl *cl = &device->cl;
    cl_uint arguments = 0;
    size_t given = launch->argument_count;
    for (size_t i = 0; launch->offsets && i < launch->argument_count; i++) given += launch->arguments[i].is_buffer;
    size_t allowed = 0, compiled_for[3] = {0};
    uint64_t local = 0, has = device->identity.local_memory_bytes;
    cl->GetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof arguments, &arguments, NULL);
    cl->GetKernelWorkGroupInfo(kernel, device->id, CL_KERNEL_WORK_GROUP_SIZE, sizeof allowed, &allowed, NULL);
    cl->GetKernelWorkGroupInfo(kernel, device->id, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof compiled_for,
                               compiled_for, NULL); /* NVIDIA allows 256 and runs this */
    cl->GetKernelWorkGroupInfo(kernel, device->id, CL_KERNEL_LOCAL_MEM_SIZE, sizeof local, &local, NULL);
    if (arguments != given)
        return fail(error, GPUTUNE_LAUNCH_FAILED, "kernel '%s' takes %u arguments, %zu are given", launch->entry,
                    arguments, given);
    if (items > allowed && items > compiled_for[0] * compiled_for[1] * compiled_for[2])
        return fail(error, GPUTUNE_LIMIT_EXCEEDED, "work-group of %zu work-items, kernel '%s' allows %zu here", items,
                    launch->entry, allowed);
    return local <= has ? GPUTUNE_OK
                        : fail(error, GPUTUNE_LIMIT_EXCEEDED,
                               "%llu bytes of local memory in kernel '%s', the device has %llu",
                               (unsigned long long)local, launch->entry, (unsigned long long)has);
}

gputune_code bind_launches(gputune_graph *graph, const launch *launches, size_t count, bound **bounds,
                           gputune_error *error) {
    bound *made = *bounds = pool_take(&graph->pool, count + 1, sizeof *made);
    for (size_t i = 0; made && i < count; i++) {
        const launch *launch = &launches[i];
        char room[STATUS_CHARACTERS];
        cl_int status = 0;
        size_t items = 1;
        made[i].kernel = graph->device->cl.CreateKernel(graph->programs[launch->program], launch->entry, &status);
        if (!made[i].kernel)
            return fail(error, GPUTUNE_BUILD_FAILED, "the program has no kernel '%s': %s", launch->entry,
                        status_text(status, room));
        made[i].dimensions = (cl_uint)launch->dimensions;
        for (size_t j = 0; j < launch->dimensions; j++) {
            made[i].global_size[j] = launch->global_size[j];
            items *= made[i].local_size[j] = launch->local_size[j];
        }
        TRY(check_kernel(graph->device, launch, made[i].kernel, items, error));
        TRY(bind_arguments(graph, made[i].kernel, launch, error));
    }
    return made ? GPUTUNE_OK : NO_MEMORY;
}

void unbind(gputune_graph *graph) {
    if (!is_here(graph->device)) return;
    bound *const forms[] = {graph->launches, graph->kernels};
    for (size_t form = 0; form < 2; form++)
        for (bound *one = forms[form]; one && one->kernel; one++) graph->device->cl.ReleaseKernel(one->kernel);
    for (size_t kind = 0; kind < BUFFER_KINDS; kind++)
        for (size_t i = 0; i < graph->place_counts[kind]; i++)
            for (range *range = graph->places[kind][i].ranges; range; range = range->next)
                drop(graph->device, range->memory, graph->places[kind][i].memory);
}
