/* Keeps a device awake, for what calls this between inferences, as runtime/power/keep_warm.py does. */
#include "device.h"

static const char *const EMPTY_KERNEL = "__kernel void empty(__global int *unused) {}";

static gputune_code build(gputune_device *device, gputune_error *error) {
    struct touch *own = &device->touch;
    cl_int status = 0;
    own->program = device->cl.CreateProgramWithSource(device->context, 1, (const char **)&EMPTY_KERNEL, NULL, &status);
    if (!status) status = device->cl.BuildProgram(own->program, 1, &device->id, "", NULL, NULL);
    if (!status) own->kernel = device->cl.CreateKernel(own->program, "empty", &status);
    if (!status) return GPUTUNE_OK;
    if (own->program) device->cl.ReleaseProgram(own->program);
    own->program = NULL;
    return fail(error, GPUTUNE_BUILD_FAILED, "an empty kernel cannot be built: OpenCL's error %d", status);
}

/* Makes what is not there yet. */
static gputune_code prepare(gputune_device *device, gputune_error *error) {
    struct touch *own = &device->touch;
    cl_int status = 0;
    if (!own->queue) own->queue = device->cl.CreateCommandQueue(device->context, device->id, 0, &status);
    TRY(checked(error, "making a queue", status));
    if (!own->memory) TRY(allocate(device, 0, sizeof(cl_int), NULL, &own->memory, error));
    return own->kernel ? GPUTUNE_OK : build(device, error);
}

static gputune_code launch_empty(gputune_device *device, gputune_error *error) {
    const opencl *cl = &device->cl;
    const struct touch *own = &device->touch;
    const size_t one = 1;
    TRY(checked(error, "binding a buffer", cl->SetKernelArg(own->kernel, 0, sizeof own->memory, &own->memory)));
    TRY(checked(error, "a launch",
                cl->EnqueueNDRangeKernel(own->queue, own->kernel, 1, NULL, &one, &one, 0, NULL, NULL)));
    return checked(error, "waiting for a launch", cl->Finish(own->queue));
}

gputune_code gputune_touch(gputune_device *device, gputune_error *error) {
    TRY(check_here(device, error));
    if (device->is_cpu) return GPUTUNE_OK;
    mutex_lock(&device->touch.turn);
    gputune_code code = prepare(device, error);
    if (!code) code = launch_empty(device, error);
    mutex_unlock(&device->touch.turn);
    return code;
}
