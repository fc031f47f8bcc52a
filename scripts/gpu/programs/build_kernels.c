// Builds a text for the OpenCL device that there is, and enqueues a kernel of it, so the driver prints what it made.
//   build_kernels FILE.cl OPTIONS            prints "kernel " and a name for each kernel
//   build_kernels FILE.cl OPTIONS KERNEL     enqueues one work-group of a kernel
// For drivers without a device (scripts/gpu/compiling/mesa.py), which end badly at the enqueue. The exit code is 2 if
// the text was refused; the build log is on stderr.

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>
#include <stdio.h>
#include <stdlib.h>

enum { BUFFER_BYTES = 1 << 20, MOST_BYTES = 1 << 24 };

static void check(const char *what, cl_int error)
{
    if (error != CL_SUCCESS) {
        fprintf(stderr, "%s: error %d\n", what, (int)error);
        exit(1);
    }
}

// The text of a file; ends the program if there is none.
static char *text_of(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *text = calloc(MOST_BYTES, 1);
    if (file == NULL || text == NULL || fread(text, 1, MOST_BYTES - 1, file) == 0) {
        fprintf(stderr, "%s cannot be read\n", path);
        exit(1);
    }
    fclose(file);
    return text;
}

static void print_names(cl_program program)
{
    cl_kernel kernels[64];
    cl_uint count = 0;
    check("kernels", clCreateKernelsInProgram(program, 64, kernels, &count));
    for (cl_uint i = 0; i < count; ++i) {
        char name[256];
        check("name", clGetKernelInfo(kernels[i], CL_KERNEL_FUNCTION_NAME, sizeof name, name, NULL));
        printf("kernel %s\n", name);
    }
}

// One work-group of the size that the kernel requires. All arguments are one buffer, or 1 where it is refused.
static void enqueue(cl_context context, cl_device_id device, cl_program program, const char *name)
{
    cl_int error;
    const cl_command_queue queue = clCreateCommandQueue(context, device, 0, &error);
    check("queue", error);
    const cl_kernel kernel = clCreateKernel(program, name, &error);
    check(name, error);
    const cl_mem buffer = clCreateBuffer(context, CL_MEM_READ_WRITE, BUFFER_BYTES, NULL, &error);
    check("buffer", error);
    cl_uint arguments;
    check("arguments", clGetKernelInfo(kernel, CL_KERNEL_NUM_ARGS, sizeof arguments, &arguments, NULL));
    for (cl_uint i = 0; i < arguments; ++i) {
        const cl_int one = 1;
        if (clSetKernelArg(kernel, i, sizeof buffer, &buffer) != CL_SUCCESS)
            check("argument", clSetKernelArg(kernel, i, sizeof one, &one));
    }
    size_t size[3] = {0, 0, 0};
    clGetKernelWorkGroupInfo(kernel, device, CL_KERNEL_COMPILE_WORK_GROUP_SIZE, sizeof size, size, NULL);
    for (int i = 0; i < 3; ++i)
        size[i] = size[i] ? size[i] : 1;
    check("enqueue", clEnqueueNDRangeKernel(queue, kernel, 3, NULL, size, size, 0, NULL, NULL));
}

int main(int count, char **words)
{
    cl_int error;
    cl_platform_id platform;
    cl_device_id device;
    if (count < 3) {
        fprintf(stderr, "build_kernels FILE.cl OPTIONS [KERNEL]\n");
        return 1;
    }
    check("platform", clGetPlatformIDs(1, &platform, NULL));
    check("device", clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, NULL));
    const cl_context context = clCreateContext(NULL, 1, &device, NULL, NULL, &error);
    check("context", error);
    const char *text = text_of(words[1]);
    const cl_program program = clCreateProgramWithSource(context, 1, &text, NULL, &error);
    check("program", error);
    if (clBuildProgram(program, 1, &device, words[2], NULL, NULL) != CL_SUCCESS) {
        static char log[1 << 16];
        clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, sizeof log, log, NULL);
        fprintf(stderr, "%s\n", log);
        return 2;
    }
    if (count == 3)
        print_names(program);
    else
        enqueue(context, device, program, words[3]);
    return 0;
}
