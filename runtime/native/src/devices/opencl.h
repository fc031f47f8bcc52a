/* What is used of OpenCL 1.2, and of later versions where a device has them: own declarations, since phones' toolchains
 * have no headers of it, and a table of functions that is filled by dlopen. Values are those of CL/cl.h. */
#ifndef GPUTUNE_OPENCL_H
#define GPUTUNE_OPENCL_H

#include <stddef.h>
#include <stdint.h>

typedef int32_t cl_int;
typedef uint32_t cl_uint, cl_bool;
typedef uint64_t cl_ulong, cl_bitfield;
typedef struct cl_platform_object *cl_platform_id;
typedef struct cl_device_object *cl_device_id;
typedef struct cl_context_object *cl_context;
typedef struct cl_queue_object *cl_command_queue;
typedef struct cl_mem_object *cl_mem;
typedef struct cl_program_object *cl_program;
typedef struct cl_kernel_object *cl_kernel;
typedef struct cl_event_object *cl_event;
typedef struct cl_buffer_region {
    size_t origin, size;
} cl_buffer_region;

enum {
    CL_MEM_OBJECT_ALLOCATION_FAILURE = -4, CL_OUT_OF_RESOURCES = -5, CL_OUT_OF_HOST_MEMORY = -6,
    CL_INVALID_WORK_GROUP_SIZE = -54, CL_INVALID_WORK_ITEM_SIZE = -55, CL_INVALID_BUFFER_SIZE = -61,
    CL_DEVICE_TYPE_CPU = 1 << 1, CL_DEVICE_TYPE_GPU = 1 << 2, CL_QUEUE_PROFILING_ENABLE = 1 << 1,
    CL_PLATFORM_VERSION = 0x0901, CL_PLATFORM_NAME = 0x0902, CL_DEVICE_TYPE = 0x1000,
    CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002, CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004,
    CL_DEVICE_MAX_WORK_ITEM_SIZES = 0x1005, CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT = 0x100A,
    CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010, CL_DEVICE_MEM_BASE_ADDR_ALIGN = 0x1019, CL_DEVICE_GLOBAL_MEM_SIZE = 0x101F,
    CL_DEVICE_LOCAL_MEM_SIZE = 0x1023, CL_DEVICE_NAME = 0x102B, CL_DEVICE_VENDOR = 0x102C, CL_DRIVER_VERSION = 0x102D,
    CL_DEVICE_VERSION = 0x102F, CL_DEVICE_EXTENSIONS = 0x1030, CL_DEVICE_PLATFORM = 0x1031,
    CL_DEVICE_HOST_UNIFIED_MEMORY = 0x1035,
    CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT = 0x103A, CL_MEM_READ_WRITE = 1 << 0, CL_MEM_USE_HOST_PTR = 1 << 3,
    CL_MEM_ALLOC_HOST_PTR = 1 << 4, CL_MEM_COPY_HOST_PTR = 1 << 5, CL_MAP_READ = 1 << 0, CL_MAP_WRITE = 1 << 1,
    CL_BUFFER_CREATE_TYPE_REGION = 0x1220, CL_PROGRAM_BUILD_LOG = 0x1183,
    CL_PROGRAM_BINARY_SIZES = 0x1165, CL_PROGRAM_BINARIES = 0x1166, CL_EVENT_COMMAND_EXECUTION_STATUS = 0x11D3,
    CL_RUNNING = 1, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE = 0x101E, CL_KERNEL_NUM_ARGS = 0x1191,
    CL_KERNEL_WORK_GROUP_SIZE = 0x11B0, CL_KERNEL_COMPILE_WORK_GROUP_SIZE = 0x11B1, CL_KERNEL_LOCAL_MEM_SIZE = 0x11B2,
    CL_PROFILING_COMMAND_QUEUED = 0x1280, CL_PROFILING_COMMAND_SUBMIT = 0x1281, CL_PROFILING_COMMAND_START = 0x1282,
    CL_PROFILING_COMMAND_END = 0x1283,
    /* of OpenCL 2.0: */
    CL_DEVICE_SVM_CAPABILITIES = 0x1053, CL_SVM_COARSE_GRAIN_BUFFER = 1 << 0, CL_SVM_FINE_GRAIN_BUFFER = 1 << 1,
    CL_SVM_FINE_GRAIN_SYSTEM = 1 << 2, CL_MEM_SVM_FINE_GRAIN_BUFFER = 1 << 10, CL_MEM_USES_SVM_POINTER = 0x1109
};

#define CL_EVENTS cl_uint, const cl_event *, cl_event *
#define CL_ANSWER size_t, void *, size_t *

/* Every library has these... */
#define OPENCL_FUNCTIONS(X) \
    X(GetPlatformIDs, cl_int, (cl_uint, cl_platform_id *, cl_uint *)) \
    X(GetPlatformInfo, cl_int, (cl_platform_id, cl_uint, CL_ANSWER)) \
    X(GetDeviceIDs, cl_int, (cl_platform_id, cl_bitfield, cl_uint, cl_device_id *, cl_uint *)) \
    X(GetDeviceInfo, cl_int, (cl_device_id, cl_uint, CL_ANSWER)) \
    X(CreateContext, cl_context, (const intptr_t *, cl_uint, const cl_device_id *, void *, void *, cl_int *)) \
    X(RetainContext, cl_int, (cl_context)) \
    X(ReleaseContext, cl_int, (cl_context)) \
    X(CreateCommandQueue, cl_command_queue, (cl_context, cl_device_id, cl_bitfield, cl_int *)) \
    X(ReleaseCommandQueue, cl_int, (cl_command_queue)) \
    X(CreateBuffer, cl_mem, (cl_context, cl_bitfield, size_t, const void *, cl_int *)) \
    X(CreateSubBuffer, cl_mem, (cl_mem, cl_bitfield, cl_uint, const void *, cl_int *)) \
    X(RetainMemObject, cl_int, (cl_mem)) \
    X(ReleaseMemObject, cl_int, (cl_mem)) \
    X(GetMemObjectInfo, cl_int, (cl_mem, cl_uint, CL_ANSWER)) \
    X(EnqueueWriteBuffer, cl_int, (cl_command_queue, cl_mem, cl_bool, size_t, size_t, const void *, CL_EVENTS)) \
    X(EnqueueReadBuffer, cl_int, (cl_command_queue, cl_mem, cl_bool, size_t, size_t, void *, CL_EVENTS)) \
    X(EnqueueFillBuffer, cl_int, (cl_command_queue, cl_mem, const void *, size_t, size_t, size_t, CL_EVENTS)) \
    X(EnqueueCopyBuffer, cl_int, (cl_command_queue, cl_mem, cl_mem, size_t, size_t, size_t, CL_EVENTS)) \
    X(EnqueueCopyBufferRect, cl_int, (cl_command_queue, cl_mem, cl_mem, const size_t *, const size_t *, \
                                      const size_t *, size_t, size_t, size_t, size_t, CL_EVENTS)) \
    X(EnqueueMapBuffer, void *, (cl_command_queue, cl_mem, cl_bool, cl_bitfield, size_t, size_t, CL_EVENTS, cl_int *)) \
    X(EnqueueUnmapMemObject, cl_int, (cl_command_queue, cl_mem, void *, CL_EVENTS)) \
    X(Finish, cl_int, (cl_command_queue)) \
    X(CreateProgramWithSource, cl_program, (cl_context, cl_uint, const char **, const size_t *, cl_int *)) \
    X(CreateProgramWithBinary, cl_program, (cl_context, cl_uint, const cl_device_id *, const size_t *, \
                                            const unsigned char **, cl_int *, cl_int *)) \
    X(BuildProgram, cl_int, (cl_program, cl_uint, const cl_device_id *, const char *, void *, void *)) \
    X(GetProgramBuildInfo, cl_int, (cl_program, cl_device_id, cl_uint, CL_ANSWER)) \
    X(GetProgramInfo, cl_int, (cl_program, cl_uint, CL_ANSWER)) \
    X(ReleaseProgram, cl_int, (cl_program)) \
    X(CreateKernel, cl_kernel, (cl_program, const char *, cl_int *)) \
    X(ReleaseKernel, cl_int, (cl_kernel)) \
    X(SetKernelArg, cl_int, (cl_kernel, cl_uint, size_t, const void *)) \
    X(GetKernelInfo, cl_int, (cl_kernel, cl_uint, CL_ANSWER)) \
    X(GetKernelWorkGroupInfo, cl_int, (cl_kernel, cl_device_id, cl_uint, CL_ANSWER)) \
    X(EnqueueNDRangeKernel, cl_int, (cl_command_queue, cl_kernel, cl_uint, const size_t *, const size_t *, \
                                     const size_t *, CL_EVENTS)) \
    X(Flush, cl_int, (cl_command_queue)) \
    X(GetEventInfo, cl_int, (cl_event, cl_uint, CL_ANSWER)) \
    X(ReleaseEvent, cl_int, (cl_event)) \
    X(GetEventProfilingInfo, cl_int, (cl_event, cl_uint, CL_ANSWER))
/* ...and these may be missing (NULL). */
#define OPENCL_LATER_FUNCTIONS(X) \
    X(GetExtensionFunctionAddressForPlatform, void *, (cl_platform_id, const char *)) \
    X(CreateBufferWithProperties, cl_mem, (cl_context, const cl_ulong *, cl_bitfield, size_t, void *, cl_int *)) \
    X(SVMAlloc, void *, (cl_context, cl_bitfield, size_t, cl_uint)) \
    X(SVMFree, void, (cl_context, void *)) \
    X(SetKernelArgSVMPointer, cl_int, (cl_kernel, cl_uint, const void *)) \
    X(GetDeviceAndHostTimer, cl_int, (cl_device_id, cl_ulong *, cl_ulong *))

#define OPENCL_MEMBER(name, type, arguments) type(*name) arguments;
typedef struct opencl {
    void *library;
    OPENCL_FUNCTIONS(OPENCL_MEMBER)
    OPENCL_LATER_FUNCTIONS(OPENCL_MEMBER)
} opencl;

#endif
