/* Opens OpenCL devices: the library, the devices that it has, which one to use, and what is asked of it then.
 *
 * What drivers read of the environment when they are loaded is left as it is, since a program that has threads must not
 * change that: PoCL is measured with POCL_AFFINITY=1 and POCL_KERNEL_CACHE=0, and loads programs faster with
 * POCL_CACHE_DIR in memory. Who starts the process sets them, as gputune-run does for itself. */
#include "device.h"
#include "../files/reading.h"

#include <ctype.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#if UINTPTR_MAX > 0xffffffff
#define LIB "lib64"
#else
#define LIB "lib"
#endif

/* Where systems have it: Linux, Android (Pixels first, whose own libraries have to be asked), makers of GPUs, macOS. */
static const char *const LIBRARIES[] = {
    "libOpenCL.so.1", "libOpenCL-pixel.so", "libOpenCL-car.so", "libOpenCL.so", "/vendor/" LIB "/libOpenCL.so",
    "/system/vendor/" LIB "/libOpenCL.so", "/system/" LIB "/libOpenCL.so", "/vendor/" LIB "/egl/libGLES_mali.so",
    "/system/vendor/" LIB "/egl/libGLES_mali.so", "/vendor/" LIB "/libPVROCL.so",
    "/system/vendor/" LIB "/libPVROCL.so", "/System/Library/Frameworks/OpenCL.framework/OpenCL"};

typedef void *find_function(const char *name);

/* --- the library -------------------------------------------------------------------------------------------------- */

static bool has_functions(opencl *cl) {
#define OPENCL_ROW(name, type, arguments) {"cl" #name, &cl->name},
    const struct row {
        const char *name;
        void *place;
    } rows[] = {OPENCL_FUNCTIONS(OPENCL_ROW){NULL, NULL}, OPENCL_LATER_FUNCTIONS(OPENCL_ROW)};
    void *address = dlsym(cl->library, "enableOpenCL");
    find_function *find = NULL;
    if (address) { /* a Pixel's */
        void (*enable)(void);
        memcpy(&enable, &address, sizeof enable);
        enable();
        address = dlsym(cl->library, "loadOpenCLPointer");
        memcpy(&find, &address, sizeof find);
    }
    bool needed = true, all = true;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (!rows[i].name) needed = false;
        if (!rows[i].name) continue;
        address = find ? find(rows[i].name) : dlsym(cl->library, rows[i].name);
        memcpy(rows[i].place, &address, sizeof address);
        all &= address || !needed;
    }
    return all;
}

/* A library stays open when a device is closed: drivers have threads that go on. */
static gputune_code open_library(opencl *cl, const char *named, gputune_error *error) {
    const char *const wanted = named ? named : getenv("GPUTUNE_OPENCL_LIBRARY");
    const bool one = wanted && *wanted;
    for (size_t i = 0; i < (one ? 1 : sizeof LIBRARIES / sizeof *LIBRARIES); i++) {
        cl->library = dlopen(one ? wanted : LIBRARIES[i], RTLD_NOW | RTLD_LOCAL);
        if (cl->library && has_functions(cl)) return GPUTUNE_OK;
        if (cl->library) dlclose(cl->library);
    }
    if (one) return fail(error, GPUTUNE_DEVICE_NOT_FOUND, "%s is no library with OpenCL 1.2", wanted);
    return fail(error, GPUTUNE_DEVICE_NOT_FOUND,
                "no libOpenCL.so with OpenCL 1.2 was found; install an OpenCL loader (Debian's ocl-icd-libopencl1), or "
                "name a library in GPUTUNE_OPENCL_LIBRARY");
}

/* --- what there is ------------------------------------------------------------------------------------------------ */

/* A text of a device, or where there is none of its platform, without spaces at the ends. */
static const char *text_of(gputune_device *device, cl_platform_id platform, cl_device_id id, cl_uint what) {
    const opencl *cl = &device->cl;
    char text[1 << 14] = "";
    if (id ? cl->GetDeviceInfo(id, what, sizeof text - 1, text, NULL)
           : cl->GetPlatformInfo(platform, what, sizeof text - 1, text, NULL))
        return "";
    size_t begin = 0, end = strlen(text);
    while (isspace((unsigned char)text[begin])) begin++;
    while (end > begin && isspace((unsigned char)text[end - 1])) end--;
    const char *copy = pool_text(&device->pool, text + begin, end - begin);
    return copy ? copy : "";
}

uint64_t number_of(const gputune_device *device, cl_device_id id, cl_uint what) {
    uint64_t value = 0;
    return device->cl.GetDeviceInfo(id, what, sizeof value, &value, NULL) ? 0 : value;
}

static int by_text(const void *one, const void *other) {
    return strcmp(*(const char *const *)one, *(const char *const *)other);
}

static void add_extensions(gputune_device *device, identity *known, const char *text) {
    char *rest = pool_take(&device->pool, strlen(text) + 1, 1);
    const char **names = pool_take(&device->pool, strlen(text) / 2 + 1, sizeof *names);
    if (!rest || !names) return;
    strcpy(rest, text);
    for (char *name = strtok_r(rest, " \t\n", &rest); name; name = strtok_r(NULL, " \t\n", &rest))
        names[known->extension_count++] = name;
    qsort(names, known->extension_count, sizeof *names, by_text);
    known->extensions = names;
}

static identity identity_of(gputune_device *device, cl_platform_id platform, cl_device_id id) {
    const uint64_t kind = number_of(device, id, CL_DEVICE_TYPE), alignment =
                       number_of(device, id, CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8;
    const bool is_cpu = kind & CL_DEVICE_TYPE_CPU;
    size_t items[16] = {1, 1, 1}; /* more dimensions has none */
    if (device->cl.GetDeviceInfo(id, CL_DEVICE_MAX_WORK_ITEM_SIZES, sizeof items, items, NULL)) items[0] = 1;
    /* Drivers that vectorise work-items themselves prefer scalars; how wide a register is they say elsewhere. */
    const uint64_t width = number_of(device, id, CL_DEVICE_PREFERRED_VECTOR_WIDTH_FLOAT),
                   native = is_cpu ? number_of(device, id, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT) : 1,
                   widest = width > native ? width : native;
    identity found = {
        .platform = text_of(device, platform, NULL, CL_PLATFORM_NAME),
        .platform_version = text_of(device, platform, NULL, CL_PLATFORM_VERSION),
        .name = text_of(device, platform, id, CL_DEVICE_NAME),
        .vendor = text_of(device, platform, id, CL_DEVICE_VENDOR),
        .driver_version = text_of(device, platform, id, CL_DRIVER_VERSION),
        .device_version = text_of(device, platform, id, CL_DEVICE_VERSION),
        .device_type = kind & CL_DEVICE_TYPE_GPU ? "gpu" : is_cpu ? "cpu" : "accelerator",
        .driver = "",
        .compute_units = number_of(device, id, CL_DEVICE_MAX_COMPUTE_UNITS),
        .max_work_group_size = number_of(device, id, CL_DEVICE_MAX_WORK_GROUP_SIZE),
        .max_work_item_sizes = {items[0], items[1], items[2]},
        .local_memory_bytes = number_of(device, id, CL_DEVICE_LOCAL_MEM_SIZE),
        .global_memory_bytes = number_of(device, id, CL_DEVICE_GLOBAL_MEM_SIZE),
        .max_allocation_bytes = number_of(device, id, CL_DEVICE_MAX_MEM_ALLOC_SIZE),
        .base_address_alignment_bytes = alignment ? alignment : 1,
        .preferred_float_width = widest ? widest : 1,
    };
    add_extensions(device, &found, text_of(device, platform, id, CL_DEVICE_EXTENSIONS));
    return found;
}

/* --- which one ---------------------------------------------------------------------------------------------------- */

static bool contains(const char *text, const char *part) {
    size_t i = 0;
    for (; *text && part[i]; text++)
        for (i = 0; part[i] && tolower((unsigned char)text[i]) == tolower((unsigned char)part[i]);) i++;
    return !part[i];
}

/* A platform that is named has exactly one device at a place; else a number, or a part of a name, may be wanted. */
static bool matches(const found_device *found, size_t place, const gputune_device_options *given, const char *wanted) {
    const identity *device = &found->identity;
    char *end;
    if (given->platform)
        return !strcmp(device->platform, given->platform) && found->ordinal == given->ordinal &&
               (!given->device || !strcmp(device->name, given->device));
    const unsigned long number = strtoul(wanted, &end, 10);
    return !*wanted || (*end ? contains(device->name, wanted) || contains(device->platform, wanted) : number == place);
}

/* The lower the better: what a file was made for, in its order, then GPUs, accelerators, CPUs. */
static size_t rank_of(const identity *device, const gputune_file *file) {
    const size_t count = file ? gputune_context_count(file) : 0;
    for (size_t i = 0; i < count; i++) {
        const identity *made_for = context_computes(file, i) ? context_identity(file, i) : NULL;
        if (made_for && !strcmp(made_for->platform, device->platform) && !strcmp(made_for->name, device->name))
            return i;
    }
    return count + (size_t)(*device->device_type == 'c' ? 2 : *device->device_type == 'a');
}

size_t find_devices(gputune_device *device, found_device *found, size_t most) {
    enum { PLATFORMS = 32, DEVICES = 64 };
    const opencl *cl = &device->cl;
    cl_platform_id platforms[PLATFORMS];
    cl_device_id ids[DEVICES];
    cl_uint platform_count = 0, count;
    size_t place = 0;
    if (cl->GetPlatformIDs(PLATFORMS, platforms, &platform_count)) platform_count = 0; /* it says that there is none */
    for (cl_uint i = 0; i < platform_count && i < PLATFORMS; i++) {
        cl_uint first = 0;
        while (platforms[first] != platforms[i]) first++;
        if (first < i) continue;
        if (cl->GetDeviceIDs(platforms[i], 0xFFFFFFFF, DEVICES, ids, &count)) count = 0; /* of any type */
        for (cl_uint j = 0; j < count && j < DEVICES && place < most; j++)
            found[place++] = (found_device){platforms[i], ids[j], j, identity_of(device, platforms[i], ids[j])};
    }
    return place;
}

/* Says what was wanted and is not there, and what there is. */
static gputune_code not_found(const gputune_device_options *given, const char *wanted, const char *list,
                              gputune_error *error) {
    if (!*list)
        return fail(error, GPUTUNE_DEVICE_NOT_FOUND,
                    "no OpenCL device found; install a driver for it, such as Debian's pocl-opencl-icd");
    if (given->platform)
        return fail(error, GPUTUNE_DEVICE_NOT_FOUND, "device %zu of platform '%s' is not there%s%s%s%s", given->ordinal,
                    given->platform, given->device ? " with the name '" : "", given->device ? given->device : "",
                    given->device ? "'" : "", list);
    return fail(error, GPUTUNE_DEVICE_NOT_FOUND, "no OpenCL device matches '%s'%s", wanted, list);
}

/* The best of all devices of all platforms that match, the first of equal ones. */
static gputune_code choose(gputune_device *device, const gputune_device_options *given, gputune_error *error) {
    found_device all[MOST_DEVICES];
    const char *named = given->device ? given->device : getenv("GPUTUNE_DEVICE"), *wanted = named ? named : "";
    const size_t count = find_devices(device, all, MOST_DEVICES);
    size_t best = SIZE_MAX;
    char list[GPUTUNE_MESSAGE_BYTES / 2] = "";
    for (size_t place = 0; place < count; place++) {
        const identity *found = &all[place].identity;
        const size_t rank = rank_of(found, given->file), length = strlen(list);
        snprintf(list + length, sizeof list - length, "; #%zu %s (%s)", place, found->name, found->platform);
        if (!matches(&all[place], place, given, wanted)) continue;
        if (rank > best || (rank == best && found->compute_units <= device->identity.compute_units)) continue;
        best = rank;
        device->identity = *found;
        device->platform = all[place].platform;
        device->id = all[place].id;
    }
    return device->id ? GPUTUNE_OK : not_found(given, wanted, list, error);
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static gputune_code open_context(gputune_device *device, gputune_error *error) {
    cl_int status = 0;
    if (!device->is_given) device->context = device->cl.CreateContext(NULL, 1, &device->id, NULL, NULL, &status);
    if (device->context)
        device->stream.queue = device->cl.CreateCommandQueue(device->context, device->id, 0, &status);
    return checked(error, "opening the device", status);
}

static void close_touch(gputune_device *device) {
    struct touch *own = &device->touch;
    if (own->kernel) device->cl.ReleaseKernel(own->kernel);
    if (own->program) device->cl.ReleaseProgram(own->program);
    if (own->memory) device->cl.ReleaseMemObject(own->memory);
    if (own->queue) device->cl.ReleaseCommandQueue(own->queue);
}

static void close_context(gputune_device *device) {
    if (device->stream.queue) device->cl.ReleaseCommandQueue(device->stream.queue);
    if (device->context) device->cl.ReleaseContext(device->context);
    device->stream.queue = NULL;
    device->context = NULL;
}

static gputune_code open_chosen(gputune_device *device, gputune_error *error) {
    const identity *known = &device->identity;
    const bool has_svm = strncmp(known->device_version, "OpenCL 1", 8) && device->cl.SVMAlloc && device->cl.SVMFree;
    const uint64_t svm = has_svm ? number_of(device, device->id, CL_DEVICE_SVM_CAPABILITIES) : 0;
    device->is_cpu = !strcmp(known->device_type, "cpu");
    device->is_unified = device->is_cpu || number_of(device, device->id, CL_DEVICE_HOST_UNIFIED_MEMORY);
    device->svm_pointers = (svm & CL_SVM_COARSE_GRAIN_BUFFER) && device->cl.SetKernelArgSVMPointer;
    device->fine_grain_buffers = svm & CL_SVM_FINE_GRAIN_BUFFER;
    device->fine_grain_system = svm & CL_SVM_FINE_GRAIN_SYSTEM;
    device->shares_memory = device->is_cpu && device->fine_grain_buffers; /* a GPU may find such memory far away */
    return open_context(device, error);
}

/* The device of a context that is open already, which is kept. */
static gputune_code take_given(gputune_device *device, const gputune_device_options *given, gputune_error *error) {
    device->id = given->device_id;
    if (!given->context || !given->device_id)
        return fail(error, GPUTUNE_INVALID_ARGUMENT, "a context and a device of it are given together");
    if (given->platform || given->device)
        return fail(error, GPUTUNE_INVALID_ARGUMENT, "a context that is given has its device, so none is named");
    cl_int status = device->cl.GetDeviceInfo(device->id, CL_DEVICE_PLATFORM, sizeof device->platform,
                                             &device->platform, NULL);
    if (!status) status = device->cl.RetainContext(given->context);
    if (!status) device->context = given->context;
    device->is_given = !status;
    device->identity = identity_of(device, device->platform, device->id);
    return checked(error, "taking over an open context", status);
}

/* The same device in the same context, which is opened for that if the other has none now. */
static gputune_code take_beside(gputune_device *device, const gputune_device_options *given, gputune_error *error) {
    gputune_device *other = given->beside;
    if (given->library || given->device || given->file || given->context || given->device_id || given->platform)
        return fail(error, GPUTUNE_INVALID_ARGUMENT, "what is opened beside another device is that device");
    TRY(check_here(other, error));
    TRY(add_user(other, error));
    device->cl = other->cl;
    const gputune_device_options same = {.context = other->context, .device_id = other->id};
    const gputune_code code = take_given(device, &same, error);
    remove_user(other);
    return code;
}

static bool mutexes_open(gputune_device *device) {
    mutex *all[] = {&device->turn, &device->stream.turn, &device->touch.turn, &device->claims};
    size_t count = 0;
    while (count < 4 && mutex_open(all[count])) count++;
    if (count == 4 && condition_open(&device->released)) return true;
    while (count) mutex_close(all[--count]);
    return false;
}

gputune_code gputune_open_device(const gputune_device_options *options, gputune_device **device, gputune_error *error) {
    const gputune_device_options none = {.file = NULL}, *given = options ? options : &none;
    gputune_device *made = calloc(1, sizeof *made);
    *device = NULL;
    if (!made || !mutexes_open(made)) return free(made), NO_MEMORY;
    made->process = getpid();
    made->stream.device = made;
    gputune_code code = GPUTUNE_OK;
    if (given->ordinal && !given->platform)
        code = fail(error, GPUTUNE_INVALID_ARGUMENT, "an ordinal needs the platform whose devices it counts");
    if (!code && !given->beside) code = open_library(&made->cl, given->library, error);
    if (!code && given->beside) code = take_beside(made, given, error);
    else if (!code && (given->context || given->device_id)) code = take_given(made, given, error);
    else if (!code) code = choose(made, given, error);
    if (!code) code = open_chosen(made, error);
    if (code) gputune_close_device(made);
    else *device = made;
    return code;
}

static void mutexes_close(gputune_device *device) {
    condition_close(&device->released);
    mutex_close(&device->claims);
    mutex_close(&device->touch.turn);
    mutex_close(&device->stream.turn);
    mutex_close(&device->turn);
}

void gputune_close_device(gputune_device *device) {
    if (!device) return;
    const bool here = is_here(device);
    if (here) close_touch(device);
    if (here) close_context(device);
    if (here) mutexes_close(device);
    pool_free(&device->pool);
    free(device);
}

gputune_code add_user(gputune_device *device, gputune_error *error) {
    change_take(&device->stream);
    const gputune_code code = device->context ? GPUTUNE_OK : open_context(device, error);
    if (code) close_context(device);
    else device->users++;
    change_leave(&device->stream);
    return code;
}

void remove_user(gputune_device *device) {
    change_take(&device->stream);
    if (!--device->users && device->is_cpu && !device->is_given && is_here(device)) close_context(device);
    change_leave(&device->stream);
}

const char *gputune_device_name(const gputune_device *device) { return device->identity.name; }

const gputune_identity *gputune_device_identity(const gputune_device *device) { return &device->identity; }

bool gputune_is_lost(gputune_device *device) {
    enum { PROBED_WITH = 0x5A5A5A5A };
    int32_t found[16] = {0};
    cl_mem probe = NULL;
    if (check_here(device, NULL) || add_user(device, NULL)) return true;
    device_take(device);
    gputune_code code = allocate(device, 0, sizeof found, NULL, &probe, NULL);
    if (!code) code = fill_buffer(&device->stream, probe, PROBED_WITH, sizeof found, NULL);
    if (!code) code = read_buffer(&device->stream, probe, found, sizeof found, true, NULL);
    if (probe) device->cl.ReleaseMemObject(probe);
    device_leave(device);
    remove_user(device);
    for (size_t i = 0; i < sizeof found / sizeof *found; i++)
        if (found[i] != PROBED_WITH) return true;
    return code != GPUTUNE_OK;
}

size_t gputune_device_bytes(const gputune_device *device) {
    return __atomic_load_n(&device->held_bytes, __ATOMIC_RELAXED);
}

void *gputune_device_context(const gputune_device *device) { return device->context; }

bool is_here(const gputune_device *device) { return getpid() == device->process; }

gputune_code check_here(const gputune_device *device, gputune_error *error) {
    if (is_here(device)) return GPUTUNE_OK;
    return fail(error, GPUTUNE_FORKED_PROCESS, "%s was opened by process %ld and cannot be used in its fork %ld: fork "
                "before a device is opened, and open and load in each child", device->identity.name,
                (long)device->process, (long)getpid());
}

/* --- turns -------------------------------------------------------------------------------------------------------- */

void device_take(gputune_device *device) {
    if (!is_here(device)) return;
    mutex_lock(&device->turn);
    for (stream *one = &device->stream; one; one = one->next) mutex_lock(&one->turn);
}

void device_leave(gputune_device *device) {
    if (!is_here(device)) return;
    for (stream *one = &device->stream; one; one = one->next) mutex_unlock(&one->turn);
    mutex_unlock(&device->turn);
}

void stream_take(stream *stream) {
    if (is_here(stream->device)) mutex_lock(&stream->turn);
}

void stream_leave(stream *stream) {
    if (is_here(stream->device)) mutex_unlock(&stream->turn);
}

void change_take(stream *stream) {
    if (is_here(stream->device)) mutex_lock(&stream->device->turn);
    stream_take(stream);
}

void change_leave(stream *stream) {
    stream_leave(stream);
    if (is_here(stream->device)) mutex_unlock(&stream->device->turn);
}

gputune_code stream_open(gputune_device *device, stream **opened, gputune_error *error) {
    cl_int status = 0;
    stream *made = *opened = NULL;
    if (!(made = calloc(1, sizeof *made))) return NO_MEMORY;
    if (!mutex_open(&made->turn)) return free(made), NO_MEMORY;
    made->device = device;
    made->queue = device->cl.CreateCommandQueue(device->context, device->id, 0, &status);
    const gputune_code code = checked(error, "making a queue", status);
    if (code) {
        mutex_close(&made->turn);
        return free(made), code;
    }
    change_take(&device->stream);
    made->next = device->stream.next;
    device->stream.next = made;
    change_leave(&device->stream);
    *opened = made;
    return GPUTUNE_OK;
}

void stream_close(stream *closed) {
    if (!closed) return;
    gputune_device *device = closed->device;
    const bool here = is_here(device);
    stream *at = &device->stream;
    if (here) mutex_lock(&device->turn);
    while (at->next != closed) at = at->next;
    at->next = closed->next;
    if (here) mutex_unlock(&device->turn);
    if (here) device->cl.ReleaseCommandQueue(closed->queue);
    if (here) mutex_close(&closed->turn);
    free(closed);
}

/* --- memory and commands ------------------------------------------------------------------------------------------ */

const char *status_text(cl_int status, char room[STATUS_CHARACTERS]) {
    const status_name *named = STATUS_NAMES;
    while (named->name && named->status != status) named++;
    if (!named->name) snprintf(room, STATUS_CHARACTERS, "error %d", status);
    return named->name ? named->name : room;
}

gputune_code checked(gputune_error *error, const char *what, cl_int status) {
    char room[STATUS_CHARACTERS];
    const bool limit = status == CL_INVALID_WORK_GROUP_SIZE || status == CL_INVALID_WORK_ITEM_SIZE ||
                       status == CL_INVALID_BUFFER_SIZE || status == CL_MEM_OBJECT_ALLOCATION_FAILURE ||
                       status == CL_OUT_OF_RESOURCES || status == CL_OUT_OF_HOST_MEMORY;
    if (!status) return GPUTUNE_OK;
    return fail(error, limit ? GPUTUNE_LIMIT_EXCEEDED : GPUTUNE_LAUNCH_FAILED, "%s failed: %s", what,
                status_text(status, room));
}

gputune_code allocate(gputune_device *device, cl_bitfield flags, size_t nbytes, const void *host, cl_mem *memory,
                      gputune_error *error) {
    cl_int status = 0;
    *memory = NULL;
    if (!nbytes) return fail(error, GPUTUNE_INVALID_LAUNCH, "a buffer of 0 bytes, at least 1 is needed");
    if (nbytes > device->identity.max_allocation_bytes)
        return fail(error, GPUTUNE_LIMIT_EXCEEDED, "a buffer of %zu bytes, the device's largest allocation is %llu",
                    nbytes, (unsigned long long)device->identity.max_allocation_bytes);
    *memory = device->cl.CreateBuffer(device->context, CL_MEM_READ_WRITE | flags, nbytes, host, &status);
    return checked(error, "allocating a buffer", status);
}

gputune_code write_buffer(const stream *stream, cl_mem memory, size_t offset, const void *data, size_t nbytes,
                          bool waits, gputune_error *error) {
    return checked(error, "writing a buffer",
                   stream->device->cl.EnqueueWriteBuffer(stream->queue, memory, waits, offset, nbytes, data, 0, NULL,
                                                         NULL));
}

gputune_code read_buffer(const stream *stream, cl_mem memory, void *data, size_t nbytes, bool waits,
                         gputune_error *error) {
    return checked(error, "reading a buffer",
                   stream->device->cl.EnqueueReadBuffer(stream->queue, memory, waits, 0, nbytes, data, 0, NULL, NULL));
}

gputune_code fill_buffer(const stream *stream, cl_mem memory, int32_t pattern, size_t nbytes, gputune_error *error) {
    return checked(error, "filling a buffer",
                   stream->device->cl.EnqueueFillBuffer(stream->queue, memory, &pattern, sizeof pattern, 0, nbytes, 0,
                                                        NULL, NULL));
}

gputune_code finish(const stream *stream, gputune_error *error) {
    return checked(error, "waiting for a launch", stream->device->cl.Finish(stream->queue));
}
