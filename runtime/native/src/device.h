/* An open OpenCL device, by OpenCL 1.2 calls through function pointers. */
#ifndef GPUTUNE_DEVICE_H
#define GPUTUNE_DEVICE_H

#include "context.h"
/* Own declarations of what is used of OpenCL 1.2 (no headers of the system), and `opencl`, a table of function pointers
 * that opencl_open fills by dlopen. */
#include "opencl.h"

struct gputune_device {
    opencl cl;
    cl_platform_id platform;
    cl_device_id id;
    cl_context context;
    cl_command_queue queue;
    identity identity;
    pool pool;
    bool is_cpu;
    bool shares_memory; /* a CPU device that reads and writes the host's memory itself */
    void *turn;         /* mutex: what uses the queue holds it (threads.h) */
};

void device_take(gputune_device *device);
void device_leave(gputune_device *device);
/* A code for a status of OpenCL, with what was done and the status in the message. */
gputune_code opencl_failed(gputune_error *error, const char *what, cl_int status);

#endif
