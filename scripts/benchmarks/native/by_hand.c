/* by_hand PLAN BYTES LIBRARY INPUT ... OUTPUT ...: what one would write for one model: the same OpenCL calls as the C
 * runtime makes, with no check of the file. The plan is numbers and names, see peers.py; BYTES are binaries and weights,
 * one behind the other. Inputs and outputs are buffers of the host's memory where the device is a CPU. */
#define _POSIX_C_SOURCE 200809L
#include "devices/opencl.h"
#include "turns.h"

#include <dlfcn.h>

enum { MOST = 4096, INPUT, OUTPUT, PLAIN, WEIGHTS };

static opencl cl;
static cl_command_queue queue;
static struct { cl_mem memory; char *host, *data; size_t nbytes; int kind; } buffers[MOST];
static struct { cl_kernel kernel; cl_uint dimensions; size_t global_size[3], local_size[3]; } launches[MOST];
static size_t buffer_count, launch_count;

static void check(cl_int status) {
    if (status) die("an OpenCL call failed");
}

static void infer(void) {
    for (size_t at = 0; at < buffer_count; at++)
        if (buffers[at].kind == INPUT && buffers[at].host) memcpy(buffers[at].host, buffers[at].data, buffers[at].nbytes);
        else if (buffers[at].kind == INPUT)
            check(cl.EnqueueWriteBuffer(queue, buffers[at].memory, 0, 0, buffers[at].nbytes, buffers[at].data, 0, NULL,
                                        NULL));
    for (size_t at = 0; at < launch_count; at++)
        check(cl.EnqueueNDRangeKernel(queue, launches[at].kernel, launches[at].dimensions, NULL, launches[at].global_size,
                                      launches[at].local_size, 0, NULL, NULL));
    for (size_t at = 0; at < buffer_count; at++)
        if (buffers[at].kind == OUTPUT && !buffers[at].host)
            check(cl.EnqueueReadBuffer(queue, buffers[at].memory, 0, 0, buffers[at].nbytes, buffers[at].data, 0, NULL,
                                       NULL));
    check(cl.Finish(queue));
    for (size_t at = 0; at < buffer_count; at++)
        if (buffers[at].kind == OUTPUT && buffers[at].host) memcpy(buffers[at].data, buffers[at].host, buffers[at].nbytes);
}

static void open_library(const char *path) {
    void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) die(dlerror());
#define TAKE(name, type, arguments) *(void **)&cl.name = dlsym(library, "cl" #name);
    OPENCL_FUNCTIONS(TAKE)
    OPENCL_LATER_FUNCTIONS(TAKE)
}

static size_t number(FILE *plan) {
    size_t value = 0;
    if (fscanf(plan, "%zu", &value) != 1) die("the plan is too short");
    return value;
}

static void make_buffers(FILE *plan, FILE *bytes, cl_context context, int shares) {
    buffer_count = number(plan);
    for (size_t at = 0; at < buffer_count; at++) {
        cl_bitfield flags = CL_MEM_READ_WRITE;
        cl_int status;
        char *host = NULL;
        buffers[at].kind = (int)number(plan) + INPUT;
        buffers[at].nbytes = number(plan);
        if (buffers[at].kind == WEIGHTS) {
            host = malloc(buffers[at].nbytes);
            flags |= CL_MEM_COPY_HOST_PTR;
            if (host == NULL || !fread(host, buffers[at].nbytes, 1, bytes)) die("the bytes are too few");
        } else if (buffers[at].kind != PLAIN && shares) {
            host = buffers[at].host = cl.SVMAlloc(context, flags | CL_MEM_SVM_FINE_GRAIN_BUFFER, buffers[at].nbytes, 0);
            flags |= CL_MEM_USE_HOST_PTR;
        }
        buffers[at].memory = cl.CreateBuffer(context, flags, buffers[at].nbytes, host, &status);
        check(status);
        if (buffers[at].kind == WEIGHTS) free(host);
    }
}

static cl_program *make_programs(FILE *plan, FILE *bytes, cl_context context, cl_device_id device) {
    size_t count = number(plan);
    cl_program *programs = calloc(count, sizeof *programs);
    for (size_t at = 0; at < count; at++) {
        size_t nbytes = number(plan);
        unsigned char *binary = malloc(nbytes);
        if (binary == NULL || !fread(binary, nbytes, 1, bytes)) die("the bytes are too few");
        programs[at] = cl.CreateProgramWithBinary(context, 1, &device, &nbytes, (const unsigned char **)&binary, NULL, NULL);
        check(cl.BuildProgram(programs[at], 1, &device, "", NULL, NULL));
        free(binary);
    }
    return programs;
}

static void make_launches(FILE *plan, const cl_program *programs) {
    char entry[512];
    launch_count = number(plan);
    for (size_t at = 0; at < launch_count; at++) {
        cl_int status;
        if (fscanf(plan, "%511s", entry) != 1) die("the plan is too short");
        cl_kernel kernel = launches[at].kernel = cl.CreateKernel(programs[number(plan)], entry, &status);
        check(status);
        launches[at].dimensions = (cl_uint)number(plan);
        for (size_t axis = 0; axis < launches[at].dimensions; axis++) {
            launches[at].global_size[axis] = number(plan);
            launches[at].local_size[axis] = number(plan);
        }
        size_t count = number(plan);
        for (cl_uint place = 0; place < count; place++) {
            size_t buffer = number(plan), origin = number(plan), nbytes = number(plan);
            cl_int scalar = (cl_int)origin;
            cl_mem memory = buffer < MOST ? buffers[buffer].memory : NULL;
            if (memory != NULL && (origin || nbytes != buffers[buffer].nbytes))
                memory = cl.CreateSubBuffer(memory, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION,
                                            &(cl_buffer_region){origin, nbytes}, &status);
            check(memory != NULL ? cl.SetKernelArg(kernel, place, sizeof memory, &memory)
                                 : cl.SetKernelArg(kernel, place, sizeof scalar, &scalar));
        }
    }
}

int main(int argc, char **argv) {
    FILE *plan = argc > 3 ? fopen(argv[1], "r") : NULL, *bytes = argc > 3 ? fopen(argv[2], "rb") : NULL;
    if (plan == NULL || bytes == NULL) return 2;
    uint64_t begun_ns = now_ns(), opened_ns;
    cl_platform_id platform;
    cl_device_id device;
    cl_bitfield kind = 0;
    cl_int status;
    open_library(argv[3]);
    check(cl.GetPlatformIDs(1, &platform, NULL));
    check(cl.GetDeviceIDs(platform, 0xFFFFFFFF, 1, &device, NULL));
    check(cl.GetDeviceInfo(device, CL_DEVICE_TYPE, sizeof kind, &kind, NULL));
    cl_context context = cl.CreateContext(NULL, 1, &device, NULL, NULL, &status);
    queue = cl.CreateCommandQueue(context, device, 0, &status);
    check(status);
    opened_ns = now_ns();
    make_buffers(plan, bytes, context, (kind & CL_DEVICE_TYPE_CPU) != 0 && cl.SVMAlloc != NULL);
    make_launches(plan, make_programs(plan, bytes, context, device));
    check(cl.Finish(queue));
    printf("%llu %llu\n", (unsigned long long)(now_ns() - opened_ns), (unsigned long long)(opened_ns - begun_ns));
    fflush(stdout);
    fclose(plan);
    fclose(bytes);
    int file = 4;
    for (int wanted = INPUT; wanted <= OUTPUT; wanted++)
        for (size_t at = 0; at < buffer_count; at++)
            if (buffers[at].kind == wanted && file < argc)
                buffers[at].data = wanted == INPUT ? content_of(argv[file++], buffers[at].nbytes)
                                                   : calloc(buffers[at].nbytes, 1);
    take_turns(infer);
    for (size_t at = 0; at < buffer_count; at++) {
        FILE *output = buffers[at].kind == OUTPUT && file < argc ? fopen(argv[file++], "wb") : NULL;
        if (output != NULL && !fwrite(buffers[at].data, buffers[at].nbytes, 1, output)) die("an output");
        if (output != NULL) fclose(output);
    }
    return 0;
}
