/* Opens OpenCL devices: the library, the devices that it has, which one to use, and what is asked of it then. */
#include "device.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if UINTPTR_MAX > 0xffffffff
#define LIB "lib64"
#else
#define LIB "lib"
#endif

/* Where systems have it: Linux, Android (Pixels first, whose own libraries have to be asked), makers of GPUs, macOS. */
static const char *const LIBRARIES[] = {
    "libOpenCL.so.1", "libOpenCL-pixel.so", "libOpenCL-car.so", "libOpenCL.so",
    "/vendor/" LIB "/libOpenCL.so", "/system/vendor/" LIB "/libOpenCL.so", "/system/" LIB "/libOpenCL.so",
    "/vendor/" LIB "/egl/libGLES_mali.so", "/system/vendor/" LIB "/egl/libGLES_mali.so",
    "/system/" LIB "/egl/libGLES_mali.so", "/vendor/" LIB "/libPVROCL.so", "/system/vendor/" LIB "/libPVROCL.so",
    "/System/Library/Frameworks/OpenCL.framework/OpenCL"};

typedef struct candidate {
    cl_platform_id platform;
    cl_device_id id;
    identity identity;
} candidate;

typedef void *find_function(const char *name);

/* --- the library --------------------------------------------------------------------------------------------------- */

static void *symbol(void *library, const char *name) {
    void *address = dlsym(library, "loadOpenCLPointer");
    if (!address)
        return dlsym(library, name);
    find_function *find; /* of a Pixel */
    memcpy(&find, &address, sizeof find);
    return find(name);
}

static bool has_functions(opencl *cl) {
#define OPENCL_ROW(name, type, arguments) {"cl" #name, &cl->name},
    const struct row {
        const char *name;
        void *place;
    } rows[] = {OPENCL_FUNCTIONS(OPENCL_ROW)}, later[] = {OPENCL_LATER_FUNCTIONS(OPENCL_ROW)};
#undef OPENCL_ROW
    void *address = dlsym(cl->library, "enableOpenCL");
    if (address) {
        void (*enable)(void);
        memcpy(&enable, &address, sizeof enable);
        enable();
    }
    bool all = true;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        address = symbol(cl->library, rows[i].name);
        memcpy(rows[i].place, &address, sizeof address);
        all &= address != NULL;
    }
    for (size_t i = 0; i < sizeof later / sizeof *later; i++) {
        address = symbol(cl->library, later[i].name);
        memcpy(later[i].place, &address, sizeof address);
    }
    return all;
}

/* A library stays open when a device is closed: drivers have threads that go on. */
static gputune_code opencl_open(opencl *cl, const char *named, gputune_error *error) {
    const char *const wanted = named ? named : getenv("GPUTUNE_OPENCL_LIBRARY");
    const bool one = wanted && *wanted;
    for (size_t i = 0; i < (one ? 1 : sizeof LIBRARIES / sizeof *LIBRARIES); i++) {
        cl->library = dlopen(one ? wanted : LIBRARIES[i], RTLD_NOW | RTLD_LOCAL);
        if (cl->library && has_functions(cl))
            return GPUTUNE_OK;
        if (cl->library)
            dlclose(cl->library);
    }
    return fail(error, GPUTUNE_DEVICE_NOT_FOUND, "%s is no library with OpenCL 1.2; name one in GPUTUNE_OPENCL_LIBRARY",
                one ? wanted : "none of libOpenCL.so.1, libOpenCL.so and where phones have them");
}

/* --- what there is ------------------------------------------------------------------------------------------------- */

/* Without spaces at the ends, as Python has it. */
static const char *text_of(gputune_device *device, const candidate *of, bool of_platform, cl_uint what) {
    const opencl *cl = &device->cl;
    size_t length = 0;
    if (of_platform ? cl->GetPlatformInfo(of->platform, what, 0, NULL, &length)
                    : cl->GetDeviceInfo(of->id, what, 0, NULL, &length))
        return "";
    char *text = pool_take(&device->pool, length + 1, 1);
    if (!text || (of_platform ? cl->GetPlatformInfo(of->platform, what, length, text, NULL)
                              : cl->GetDeviceInfo(of->id, what, length, text, NULL)))
        return "";
    while (isspace((unsigned char)*text))
        text++;
    for (size_t end = strlen(text); end && isspace((unsigned char)text[end - 1]);)
        text[--end] = 0;
    return text;
}

/* Shorter numbers fill the start of it. */
static uint64_t number_of(const gputune_device *device, cl_device_id id, cl_uint what) {
    uint64_t value = 0;
    return device->cl.GetDeviceInfo(id, what, sizeof value, &value, NULL) ? 0 : value;
}

static int by_text(const void *one, const void *other) {
    return strcmp(*(const char *const *)one, *(const char *const *)other);
}

static bool add_extensions(gputune_device *device, identity *known, const char *text) {
    char *rest = pool_take(&device->pool, strlen(text) + 1, 1);
    const char **names = pool_take(&device->pool, strlen(text) / 2 + 1, sizeof *names);
    if (!rest || !names)
        return false;
    strcpy(rest, text);
    for (char *name = strtok_r(rest, " \t\n", &rest); name; name = strtok_r(NULL, " \t\n", &rest))
        names[known->extension_count++] = name;
    qsort(names, known->extension_count, sizeof *names, by_text);
    known->extensions = names;
    return true;
}

static bool identify(gputune_device *device, candidate *of) {
    const uint64_t kind = number_of(device, of->id, CL_DEVICE_TYPE);
    const bool is_cpu = kind & CL_DEVICE_TYPE_CPU;
    size_t items[16] = {1, 1, 1}; /* more dimensions has none */
    if (device->cl.GetDeviceInfo(of->id, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof items, items, NULL))
        items[0] = 1;
    /* Drivers that vectorise work-items themselves prefer scalars; how wide a register is they say elsewhere. */
    const uint64_t width = number_of(device, of->id, CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT),
                   native = is_cpu ? number_of(device, of->id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT) : 1,
                   widest = width > native ? width : native,
                   alignment = number_of(device, of->id, CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8;
    of->identity = (identity){
        .platform = text_of(device, of, true, CL_PLATFORM_NAME),
        .platform_version = text_of(device, of, true, CL_PLATFORM_VERSION),
        .name = text_of(device, of, false, CL_DEVICE_NAME),
        .vendor = text_of(device, of, false, CL_DEVICE_VENDOR),
        .driver_version = text_of(device, of, false, CL_DRIVER_VERSION),
        .device_version = text_of(device, of, false, CL_DEVICE_VERSION),
        .device_type = kind & CL_DEVICE_TYPE_GPU ? "gpu" : is_cpu ? "cpu" : "accelerator",
        .driver = "",
        .compute_units = number_of(device, of->id, CL_DEVICE_MAX_COMPUTE_UNITS),
        .max_work_group_size = number_of(device, of->id, CL_DEVICE_MAX_WORK_GROUP_SIZE),
        .max_work_item_sizes = {items[0], items[1], items[2]},
        .local_memory_bytes = number_of(device, of->id, CL_DEVICE_LOCAL_MEM_SIZE),
        .global_memory_bytes = number_of(device, of->id, CL_DEVICE_GLOBAL_MEM_SIZE),
        .max_allocation_bytes = number_of(device, of->id, CL_DEVICE_MAX_MEM_ALLOC_SIZE),
        .base_address_alignment_bytes = alignment ? alignment : 1,
        .preferred_float_width = widest ? widest : 1,
    };
    return add_extensions(device, &of->identity, text_of(device, of, false, CL_DEVICE_EXTENSIONS));
}

/* All devices of all platforms, in the loader's order. */
static candidate *candidates_of(gputune_device *device, size_t *count) {
    const opencl *cl = &device->cl;
    enum { PLATFORMS = 32, DEVICES = 64 };
    cl_platform_id platforms[PLATFORMS];
    cl_uint found = 0;
    candidate *all = pool_take(&device->pool, PLATFORMS * DEVICES, sizeof *all);
    if (!all || cl->GetPlatformIDs(PLATFORMS, platforms, &found)) /* the loader's way to say that there is none */
        found = 0;
    *count = 0;
    for (cl_uint i = 0; i < found && i < PLATFORMS; i++) {
        cl_device_id ids[DEVICES];
        cl_uint here = 0;
        if (cl->GetDeviceIDs(platforms[i], 0xFFFFFFFF, DEVICES, ids, &here)) /* of any type */
            here = 0;
        for (cl_uint j = 0; j < here && j < DEVICES; j++) {
            all[*count].platform = platforms[i];
            all[*count].id = ids[j];
            if (identify(device, &all[*count]))
                ++*count;
        }
    }
    return all;
}

/* --- which one ----------------------------------------------------------------------------------------------------- */

static bool contains(const char *text, const char *part) {
    for (; *text; text++) {
        size_t i = 0;
        while (part[i] && tolower((unsigned char)text[i]) == tolower((unsigned char)part[i]))
            i++;
        if (!part[i])
            return true;
    }
    return !*part;
}

static bool matches(const candidate *one, size_t place, const char *wanted) {
    if (!wanted || !*wanted)
        return true;
    char *end;
    const unsigned long number = strtoul(wanted, &end, 10);
    return *end ? contains(one->identity.name, wanted) || contains(one->identity.platform, wanted) : number == place;
}

/* The lower the better: what a file was made for, in its order, then GPUs, accelerators, CPUs. */
static size_t rank_of(const candidate *one, const gputune_file *file) {
    const size_t count = file ? gputune_context_count(file) : 0;
    for (size_t i = 0; i < count; i++) {
        const identity *made_for = context_identity(file, i);
        if (context_computes(file, i) && made_for && !strcmp(made_for->platform, one->identity.platform) &&
            !strcmp(made_for->name, one->identity.name))
            return i;
    }
    return count + (size_t)(*one->identity.device_type == 'c' ? 2 : *one->identity.device_type == 'a');
}

static gputune_code choose(const candidate *all, size_t count, const gputune_device_options *options,
                           const candidate **chosen, gputune_error *error) {
    const char *const wanted = options->device ? options->device : getenv("GPUTUNE_DEVICE");
    char list[GPUTUNE_MESSAGE_BYTES / 2] = "";
    *chosen = NULL;
    for (size_t i = 0; i < count; i++) {
        const candidate *one = &all[i];
        const size_t length = strlen(list);
        snprintf(list + length, sizeof list - length, "; #%zu %s (%s)", i, one->identity.name, one->identity.platform);
        if (!matches(one, i, wanted))
            continue;
        const size_t rank = rank_of(one, options->file), best = *chosen ? rank_of(*chosen, options->file) : 0;
        if (!*chosen || rank < best ||
            (rank == best && one->identity.compute_units > (*chosen)->identity.compute_units))
            *chosen = one;
    }
    if (*chosen)
        return GPUTUNE_OK;
    return wanted && *wanted ? fail(error, GPUTUNE_DEVICE_NOT_FOUND, "no OpenCL device matches '%s'%s", wanted, list)
                             : fail(error, GPUTUNE_DEVICE_NOT_FOUND,
                                    "no OpenCL device found; install a driver for it, such as Debian's pocl-opencl-icd");
}

/* --- opening ------------------------------------------------------------------------------------------------------- */

static gputune_code open_chosen(gputune_device *device, const candidate *chosen, gputune_error *error) {
    device->platform = chosen->platform;
    device->id = chosen->id;
    device->identity = chosen->identity;
    const uint64_t svm = strncmp(chosen->identity.device_version, "OpenCL 1", 8) && device->cl.SVMAlloc
                             ? number_of(device, chosen->id, CL_DEVICE_SVM_CAPABILITIES)
                             : 0;
    device->is_cpu = !strcmp(chosen->identity.device_type, "cpu");
    device->is_unified = device->is_cpu || number_of(device, chosen->id, CL_DEVICE_HOST_UNIFIED_MEMORY);
    device->fine_grain_buffers = svm & CL_SVM_FINE_GRAIN_BUFFER;
    device->fine_grain_system = svm & CL_SVM_FINE_GRAIN_SYSTEM;
    device->shares_memory = device->is_cpu && device->fine_grain_buffers; /* a GPU may find such memory far away */
    cl_int status = CL_SUCCESS;
    device->context = device->cl.CreateContext(NULL, 1, &device->id, NULL, NULL, &status);
    if (!device->context)
        return opencl_failed(error, "opening the device", status);
    device->queue = device->cl.CreateCommandQueue(device->context, device->id, 0, &status);
    return device->queue ? GPUTUNE_OK : opencl_failed(error, "opening a queue", status);
}

gputune_code gputune_open_device(const gputune_device_options *options, gputune_device **device, gputune_error *error) {
    const gputune_device_options none = {NULL, NULL, NULL};
    gputune_device *made = calloc(1, sizeof *made);
    *device = NULL;
    if (!made || !mutex_open(&made->turn)) {
        free(made);
        return fail(error, GPUTUNE_OUT_OF_MEMORY, "no memory for a device");
    }
    options = options ? options : &none;
    gputune_code code = opencl_open(&made->cl, options->library, error);
    if (!code) {
        size_t count;
        const candidate *chosen, *all = candidates_of(made, &count);
        code = choose(all, count, options, &chosen, error);
        if (!code)
            code = open_chosen(made, chosen, error);
    }
    if (code)
        gputune_close_device(made);
    else
        *device = made;
    return code;
}

void gputune_close_device(gputune_device *device) {
    if (!device)
        return;
    if (device->queue)
        device->cl.ReleaseCommandQueue(device->queue);
    if (device->context)
        device->cl.ReleaseContext(device->context);
    mutex_close(&device->turn);
    pool_free(&device->pool);
    free(device);
}

const char *gputune_device_name(const gputune_device *device) { return device->identity.name; }

void device_take(gputune_device *device) { mutex_lock(&device->turn); }
void device_leave(gputune_device *device) { mutex_unlock(&device->turn); }

/* --- memory and commands ------------------------------------------------------------------------------------------- */

gputune_code opencl_failed(gputune_error *error, const char *what, cl_int status) {
    const bool limit = status == CL_INVALID_WORK_GROUP_SIZE || status == CL_INVALID_WORK_ITEM_SIZE ||
                       status == CL_INVALID_BUFFER_SIZE || status == CL_MEM_OBJECT_ALLOCATION_FAILURE ||
                       status == CL_OUT_OF_RESOURCES || status == CL_OUT_OF_HOST_MEMORY;
    return fail(error, limit ? GPUTUNE_LIMIT_EXCEEDED : GPUTUNE_LAUNCH_FAILED, "%s failed: OpenCL's error %d", what,
                status);
}

static gputune_code create(gputune_device *device, cl_bitfield flags, size_t nbytes, const void *host, cl_mem *memory,
                           gputune_error *error) {
    char what[64];
    cl_int status = CL_SUCCESS;
    *memory = NULL;
    if (nbytes > device->identity.max_allocation_bytes)
        return fail(error, GPUTUNE_LIMIT_EXCEEDED, "a buffer of %zu bytes, the device's largest allocation is %llu",
                    nbytes, (unsigned long long)device->identity.max_allocation_bytes);
    union {
        const void *content;
        void *host;
    } given = {host}; /* which is only read where it is copied */
    *memory = device->cl.CreateBuffer(device->context, CL_MEM_READ_WRITE | flags, nbytes, given.host, &status);
    snprintf(what, sizeof what, "allocating %zu bytes", nbytes);
    return *memory ? GPUTUNE_OK : opencl_failed(error, what, status);
}

gputune_code allocate(gputune_device *device, size_t nbytes, const void *content, cl_mem *memory, gputune_error *error) {
    return create(device, content ? CL_MEM_COPY_HOST_PTR : 0, nbytes, content, memory, error);
}

gputune_code allocate_shared(gputune_device *device, size_t nbytes, cl_mem *memory, void **host, gputune_error *error) {
    *host = NULL;
    if (device->shares_memory && nbytes <= device->identity.max_allocation_bytes) {
        const cl_bitfield flags = CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER;
        *host = device->cl.SVMAlloc(device->context, flags, nbytes, 0);
        if (!*host)
            return fail(error, GPUTUNE_LIMIT_EXCEEDED, "allocating %zu bytes of shared memory failed", nbytes);
    }
    const gputune_code code = create(device, *host ? CL_MEM_USE_HOST_PTR : 0, nbytes, *host, memory, error);
    if (code && *host) {
        device->cl.SVMFree(device->context, *host);
        *host = NULL;
    }
    return code;
}

gputune_code write_buffer(gputune_device *device, cl_mem memory, size_t offset, const void *data, size_t nbytes,
                          gputune_error *error) {
    const cl_int status = device->cl.EnqueueWriteBuffer(device->queue, memory, 1, offset, nbytes, data, 0, NULL, NULL);
    return status ? opencl_failed(error, "writing a buffer", status) : GPUTUNE_OK;
}

gputune_code read_buffer(gputune_device *device, cl_mem memory, size_t offset, void *data, size_t nbytes,
                         gputune_error *error) {
    const cl_int status = device->cl.EnqueueReadBuffer(device->queue, memory, 1, offset, nbytes, data, 0, NULL, NULL);
    return status ? opencl_failed(error, "reading a buffer", status) : GPUTUNE_OK;
}

gputune_code fill_buffer(gputune_device *device, cl_mem memory, int32_t pattern, size_t nbytes, gputune_error *error) {
    const cl_int status = device->cl.EnqueueFillBuffer(device->queue, memory, &pattern, sizeof pattern, 0, nbytes, 0,
                                                       NULL, NULL);
    return status ? opencl_failed(error, "filling a buffer", status) : GPUTUNE_OK;
}

gputune_code finish(gputune_device *device, gputune_error *error) {
    const cl_int status = device->cl.Finish(device->queue);
    return status ? opencl_failed(error, "waiting for a launch", status) : GPUTUNE_OK;
}
