/* launches LIBRARY DEVICE LAUNCHES (FORM ARGUMENTS SOURCE) ...: chains of launches as one would write them by hand, in each
 * form of arguments. For each line "CHAIN COUNT" on standard input it runs a chain so often and says for each run, in ns,
 * when all was enqueued and when all was done. A form that the device does not know has the time 0. */
#define _POSIX_C_SOURCE 200809L
#include "opencl.h"
#include "turns.h"

#include <dlfcn.h>
#include <stdbool.h>

enum { TENSORS = 8, TENSOR_BYTES = 4096, MOST_CHAINS = 64, MOST_LAUNCHES = 256 };
typedef struct { cl_kernel kernels[MOST_LAUNCHES]; bool there; } chain;

static opencl cl;
static cl_command_queue queue;
static size_t launches;
static chain chains[MOST_CHAINS];

static void check(cl_int status) {
    if (status) die("an OpenCL call failed");
}

static cl_device_id device_named(const char *name) {
    cl_platform_id platforms[16];
    cl_uint platform_count = 0;
    check(cl.GetPlatformIDs(16, platforms, &platform_count));
    for (cl_uint i = 0; i < platform_count; i++) {
        cl_device_id devices[16];
        cl_uint count = 0;
        char found[256] = "";
        if (cl.GetDeviceIDs(platforms[i], 0xFFFFFFFF, 16, devices, &count)) continue;
        for (cl_uint j = 0; j < count; j++)
            if (!cl.GetDeviceInfo(devices[j], CL_DEVICE_NAME, sizeof found, found, NULL) && !strcmp(found, name))
                return devices[j];
    }
    die("there is no such device");
    return NULL;
}

static void make_chain(chain *made, cl_context context, cl_device_id device, const char *form, int arguments,
                       const char *path) {
    static char text[1 << 16];
    const char *const source = text;
    const bool svm = !strcmp(form, "svm"), offsets = !strcmp(form, "offsets");
    cl_mem parts[TENSORS] = {NULL}, whole = NULL;
    char *pointer = NULL;
    cl_int status = 0;
    if (svm && (!cl.SVMAlloc || !cl.SetKernelArgSVMPointer ||
                !(pointer = cl.SVMAlloc(context, CL_MEM_READ_WRITE, TENSORS * TENSOR_BYTES, 0)))) return;
    if (!svm) whole = cl.CreateBuffer(context, CL_MEM_READ_WRITE, TENSORS * TENSOR_BYTES, NULL, &status);
    for (size_t i = 0; i < TENSORS && !svm && !offsets; i++) {
        const size_t region[2] = {i * TENSOR_BYTES, TENSOR_BYTES};
        parts[i] = !strcmp(form, "buffers")
                       ? cl.CreateBuffer(context, CL_MEM_READ_WRITE, TENSOR_BYTES, NULL, &status)
                       : cl.CreateSubBuffer(whole, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, region, &status);
        check(status);
    }
    FILE *file = fopen(path, "rb");
    if (!file) die(path);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    fclose(file);
    cl_program program = cl.CreateProgramWithSource(context, 1, (const char **)&source, NULL, &status);
    check(status);
    check(cl.BuildProgram(program, 1, &device, "", NULL, NULL));
    for (size_t i = 0; i < launches; i++) {
        cl_kernel kernel = made->kernels[i] = cl.CreateKernel(program, "touch", &status);
        check(status);
        cl_uint number = 0;
        for (int j = 0; j < arguments; j++) {
            const size_t tensor = (i + (size_t)j) % TENSORS;
            const int32_t offset = (int32_t)(tensor * TENSOR_BYTES / 16);
            if (svm) check(cl.SetKernelArgSVMPointer(kernel, number++, pointer + tensor * TENSOR_BYTES));
            else check(cl.SetKernelArg(kernel, number++, sizeof(cl_mem), offsets ? &whole : &parts[tensor]));
            if (offsets) check(cl.SetKernelArg(kernel, number++, sizeof offset, &offset));
        }
    }
    made->there = true;
}

static void run_chain(const chain *chain) {
    const size_t global_size = 4, local_size = 1;
    const uint64_t begun_ns = now_ns();
    for (size_t i = 0; i < launches && chain->there; i++)
        check(cl.EnqueueNDRangeKernel(queue, chain->kernels[i], 1, NULL, &global_size, &local_size, 0, NULL, NULL));
    const uint64_t enqueued_ns = now_ns();
    check(cl.Finish(queue));
    const uint64_t done_ns = chain->there ? now_ns() : begun_ns;
    printf("%llu %llu ", (unsigned long long)(chain->there ? enqueued_ns - begun_ns : 0),
           (unsigned long long)(done_ns - begun_ns));
}

int main(int count, char **arguments) {
    void *library = count > 3 ? dlopen(arguments[1], RTLD_NOW | RTLD_LOCAL) : NULL;
    cl_int status;
    size_t number;
    if (library == NULL) die(count > 3 ? dlerror() : "too few arguments");
#define TAKE(name, type, parameters) *(void **)&cl.name = dlsym(library, "cl" #name);
    OPENCL_FUNCTIONS(TAKE)
    OPENCL_LATER_FUNCTIONS(TAKE)
    cl_device_id device = device_named(arguments[2]);
    cl_context context = cl.CreateContext(NULL, 1, &device, NULL, NULL, &status);
    check(status);
    queue = cl.CreateCommandQueue(context, device, 0, &status);
    check(status);
    launches = (size_t)atoi(arguments[3]);
    for (int i = 0; 6 + 3 * i < count && i < MOST_CHAINS; i++)
        make_chain(&chains[i], context, device, arguments[4 + 3 * i], atoi(arguments[5 + 3 * i]), arguments[6 + 3 * i]);
    puts("ready");
    fflush(stdout);
    for (long times; scanf("%zu %ld", &number, &times) == 2; fflush(stdout)) {
        while (times-- > 0) run_chain(&chains[number % MOST_CHAINS]);
        puts("");
    }
    return 0;
}
