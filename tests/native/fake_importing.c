/* The library of fake_opencl.c with ways to import memory: it answers what a test says, and tells each call about
 * memory with the structures and lists to which its pointers lead.
 *
 * A test says what the device answers (fake_answer, fake_texts), which calls fail (fake_fail), which function is absent
 * (fake_absent), and how far from its bytes a buffer is mapped (fake_move). fake_told gives the calls since it was
 * asked last, as lists of Python; a cl_mem is a number there, in the order in which they were made. */
#define _GNU_SOURCE
#define clGetDeviceInfo usual_clGetDeviceInfo
#define clCreateBuffer usual_clCreateBuffer
#define clCreateSubBuffer usual_clCreateSubBuffer
#define clRetainMemObject usual_clRetainMemObject
#define clReleaseMemObject usual_clReleaseMemObject
#define clGetMemObjectInfo usual_clGetMemObjectInfo
#define clEnqueueMapBuffer usual_clEnqueueMapBuffer
#define clEnqueueUnmapMemObject usual_clEnqueueUnmapMemObject
#define clEnqueueNDRangeKernel usual_clEnqueueNDRangeKernel
#define clFinish usual_clFinish
#define clGetExtensionFunctionAddressForPlatform usual_clGetExtensionFunctionAddressForPlatform
#include "fake_opencl.c"
#undef clGetDeviceInfo
#undef clCreateBuffer
#undef clCreateSubBuffer
#undef clRetainMemObject
#undef clReleaseMemObject
#undef clGetMemObjectInfo
#undef clEnqueueMapBuffer
#undef clEnqueueUnmapMemObject
#undef clEnqueueNDRangeKernel
#undef clFinish
#undef clGetExtensionFunctionAddressForPlatform

#include <stdarg.h>
#include <sys/mman.h>

enum { MOST_ANSWERS = 16, MOST_VALUES = 4, MOST_TOLD = 1 << 16, MOST_MEMORY = 256, MOST_FAILING = 4 };
enum { USE_HOST_PTR = 1 << 3, ALLOC_HOST_PTR = 1 << 4, EXT_HOST_PTR = 1 << 29, OF_HARDWARE_BUFFER = 0x4119,
       IMPORT_DMA_BUF = 0x40B4, VERSION_OF_DEVICE = 0x102F, EXTENSIONS_OF_DEVICE = 0x1030, USES_SVM = 0x1109,
       TYPE_OF_MEM = 0x1100, CONTEXT_OF_MEM = 0x1106, SVM_CAPABILITIES = 0x1053 };

static struct { uint32_t what; uint64_t values[MOST_VALUES]; size_t count; } answered[MOST_ANSWERS];
static struct { char name[NAME_BYTES]; int32_t status; } refused[MOST_FAILING];
static char version_told[64], extensions[512], absent[NAME_BYTES], calls_told[MOST_TOLD], returned[MOST_TOLD];
static const object *numbered[MOST_MEMORY];
static size_t answer_count, refused_count, numbered_count, moved_by, moves_by;
static bool asked_for_svm;
static atomic_long driver_memory; /* blocks that clSVMAlloc and its like have given out */

/* --- for the test --- */

API void fake_usual(void) {
    answer_count = refused_count = numbered_count = moved_by = moves_by = 0;
    *version_told = *extensions = *absent = *calls_told = 0;
    asked_for_svm = false;
}

API void fake_answer(uint32_t what, const uint64_t *values, size_t count) {
    if (answer_count == MOST_ANSWERS || count > MOST_VALUES) abort();
    answered[answer_count].what = what;
    memcpy(answered[answer_count].values, values, count * sizeof *values);
    answered[answer_count++].count = count;
}

API void fake_texts(const char *of_version, const char *of_extensions) {
    snprintf(version_told, sizeof version_told, "%s", of_version);
    snprintf(extensions, sizeof extensions, "%s", of_extensions);
}

API void fake_fail(const char *name, int32_t status) {
    if (refused_count == MOST_FAILING) abort();
    snprintf(refused[refused_count].name, NAME_BYTES, "%s", name);
    refused[refused_count++].status = status;
}

API void fake_succeed(void) { refused_count = 0; }
API void fake_absent(const char *name) { snprintf(absent, sizeof absent, "%s", name); }
/* each: how much farther each map lies than the last. */
API void fake_move(size_t bytes, size_t each) { moved_by = bytes, moves_by = each; }
API bool fake_asked_for_svm(void) { return asked_for_svm; }
API long fake_driver_memory(void) { return atomic_load(&driver_memory); }

API const char *fake_told(void) {
    memcpy(returned, calls_told, sizeof returned);
    *calls_told = 0;
    return returned;
}

/* --- what calls have in common --- */

static void tell(const char *format, ...) {
    const size_t length = strlen(calls_told);
    va_list values;
    va_start(values, format);
    vsnprintf(calls_told + length, sizeof calls_told - length, format, values);
    va_end(values);
}

static size_t number_of(const object *memory) {
    for (size_t at = 0; at < numbered_count; at++)
        if (numbered[at] == memory) return at + 1;
    if (numbered_count == MOST_MEMORY) abort();
    numbered[numbered_count++] = memory;
    return numbered_count;
}

/* Another object may have had the address of a new one. */
static void is_new(const object *memory) {
    for (size_t at = 0; at < numbered_count; at++)
        if (numbered[at] == memory) numbered[at] = NULL;
}

static int32_t refusal(const char *name) {
    for (size_t at = 0; at < refused_count; at++)
        if (strcmp(refused[at].name, name) == 0) return refused[at].status;
    return 0;
}
#define REFUSAL() refusal(__func__)

static object *new_buffer(object *context, void *bytes, size_t nbytes, int32_t *status, int32_t wrong) {
    object *buffer = made(status, wrong);
    if (buffer == NULL) return NULL;
    is_new(buffer);
    buffer->parent = shared(context);
    buffer->bytes = bytes;
    buffer->nbytes = nbytes;
    return buffer;
}

/* The list ends with 0. */
static void tell_list(const int64_t *values) {
    tell("[");
    do tell("%lld, ", (long long)*values);
    while (*values++);
    tell("]");
}

/* --- questions --- */

API int32_t clGetDeviceInfo(void *of, uint32_t what, size_t room, void *to, size_t *needed) {
    asked_for_svm |= what == SVM_CAPABILITIES;
    if (what == VERSION_OF_DEVICE && *version_told) return answer_text(version_told, room, to, needed);
    if (what == EXTENSIONS_OF_DEVICE && *extensions) return answer_text(extensions, room, to, needed);
    for (size_t at = 0; at < answer_count; at++) {
        uint32_t values[MOST_VALUES];
        if (answered[at].what != what) continue;
        for (size_t each = 0; each < answered[at].count; each++) values[each] = (uint32_t)answered[at].values[each];
        return answer(values, answered[at].count * sizeof *values, room, to, needed);
    }
    return usual_clGetDeviceInfo(of, what, room, to, needed);
}

API int32_t clGetMemObjectInfo(object *memory, uint32_t what, size_t room, void *to, size_t *needed) {
    const uint64_t context = (uint64_t)(uintptr_t)(memory->parent->parent ? memory->parent->parent : memory->parent);
    uint64_t value = what == TYPE_OF_MEM ? 0x10F0 : what == USES_SVM ? 1 : context;
    if (REFUSAL()) return REFUSAL();
    for (size_t at = 0; at < answer_count; at++)
        if (answered[at].what == what) value = answered[at].values[0];
    if (what == TYPE_OF_MEM || what == USES_SVM) return answer(&value, 4, room, to, needed);
    if (what == CONTEXT_OF_MEM) return answer(&value, 8, room, to, needed);
    return usual_clGetMemObjectInfo(memory, what, room, to, needed);
}

/* --- buffers --- */

typedef struct structure {
    uint32_t type, policy;
    union {
        struct { int descriptor; void *host; } file;
        void *buffer;
    } of;
} structure;

/* Tells what stands in the place of the host pointer, and returns where the bytes are. */
static void *told_host(uint64_t flags, void *host) {
    const structure *given = host;
    if (!(flags & EXT_HOST_PTR)) return tell("%zu], ", (size_t)host), host;
    tell("[%u, %u, ", given->type, given->policy);
    if (given->type == OF_HARDWARE_BUFFER) return tell("%zu]], ", (size_t)given->of.buffer), NULL;
    tell("%d, %zu]], ", given->of.file.descriptor, (size_t)given->of.file.host);
    return given->of.file.host;
}

API object *clCreateBuffer(object *context, uint64_t flags, size_t nbytes, void *host, int32_t *status) {
    tell("['clCreateBuffer', %llu, %zu, ", (unsigned long long)flags, nbytes);
    void *bytes = told_host(flags, host);
    object *buffer = flags & EXT_HOST_PTR ? new_buffer(context, bytes, nbytes, status, REFUSAL())
                     : REFUSAL()          ? made(status, REFUSAL())
                                          : usual_clCreateBuffer(context, flags, nbytes, host, status);
    if (buffer != NULL) is_new(buffer), number_of(buffer);
    return buffer;
}

API object *clCreateBufferWithProperties(object *context, const int64_t *properties, uint64_t flags, size_t nbytes,
                                         void *host, int32_t *status) {
    tell("['clCreateBufferWithProperties', ");
    tell_list(properties);
    tell(", %llu, %zu], ", (unsigned long long)flags, nbytes);
    if (host != NULL || flags & (USE_HOST_PTR | ALLOC_HOST_PTR)) abort();
    void *bytes = mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, (int)properties[1], 0); /* it stays so */
    object *buffer = new_buffer(context, bytes, nbytes, status, REFUSAL());
    if (buffer != NULL) number_of(buffer);
    return buffer;
}

static object *clImportMemoryARM(object *context, uint64_t flags, const int64_t *properties, void *memory,
                                 size_t nbytes, int32_t *status) {
    const bool of_file = properties[1] == IMPORT_DMA_BUF;
    tell("['clImportMemoryARM', %llu, ", (unsigned long long)flags);
    tell_list(properties);
    tell(", %zu, %zu], ", of_file ? (size_t) * (int *)memory : (size_t)memory, nbytes);
    void *bytes = of_file ? mmap(NULL, nbytes, PROT_READ | PROT_WRITE, MAP_SHARED, *(int *)memory, 0) : memory;
    object *buffer = new_buffer(context, bytes, nbytes, status, REFUSAL());
    if (buffer != NULL) number_of(buffer);
    return buffer;
}

API object *clCreateSubBuffer(object *whole, uint64_t flags, uint32_t kind, const size_t *region, int32_t *status) {
    tell("['clCreateSubBuffer', %zu, %llu, %zu, %zu], ", number_of(whole), (unsigned long long)flags, region[0],
         region[1]);
    object *part = REFUSAL() ? made(status, REFUSAL()) : usual_clCreateSubBuffer(whole, flags, kind, region, status);
    if (part != NULL) is_new(part), number_of(part);
    return part;
}

API int32_t clRetainMemObject(object *memory) {
    tell("['clRetainMemObject', %zu], ", number_of(memory));
    return REFUSAL() ? REFUSAL() : usual_clRetainMemObject(memory);
}

API int32_t clReleaseMemObject(object *memory) {
    tell("['clReleaseMemObject', %zu], ", number_of(memory));
    return usual_clReleaseMemObject(memory);
}

/* --- commands --- */

API void *clEnqueueMapBuffer(object *queue, object *buffer, uint32_t waits, uint64_t flags, size_t offset,
                             size_t nbytes, uint32_t count, const void *after, object **event, int32_t *status) {
    tell("['clEnqueueMapBuffer', %zu, %zu, %llu], ", number_of(buffer), nbytes, (unsigned long long)flags);
    *status = REFUSAL();
    if (*status) return NULL;
    char *bytes = usual_clEnqueueMapBuffer(queue, buffer, waits, flags, offset, nbytes, count, after, event, status);
    const size_t moved = moved_by;
    moved_by += moves_by;
    return bytes != NULL ? bytes + (buffer->owns_bytes && !moves_by ? 0 : moved) : NULL;
}

API int32_t clEnqueueUnmapMemObject(object *queue, object *buffer, void *data, uint32_t count, const void *after,
                                    object **event) {
    tell("['clEnqueueUnmapMemObject', %zu, %zu], ", number_of(buffer), (size_t)data);
    return REFUSAL() ? REFUSAL() : usual_clEnqueueUnmapMemObject(queue, buffer, data, count, after, event);
}

API int32_t clEnqueueNDRangeKernel(object *queue, object *kernel, uint32_t dimensions, const size_t *offset,
                                   const size_t *global_size, const size_t *local_size, uint32_t count,
                                   const void *after, object **event) {
    tell("['clEnqueueNDRangeKernel'], ");
    return usual_clEnqueueNDRangeKernel(queue, kernel, dimensions, offset, global_size, local_size, count, after,
                                        event);
}

API int32_t clFinish(object *queue) {
    tell("['clFinish'], ");
    return REFUSAL() ? REFUSAL() : usual_clFinish(queue);
}

static int32_t handed_over(const char *name, uint32_t count, object *const *memory) {
    tell("['%s', [", name);
    for (uint32_t at = 0; at < count; at++) tell("%zu, ", number_of(memory[at]));
    tell("]], ");
    return refusal(name);
}

static int32_t clEnqueueAcquireExternalMemObjectsKHR(object *queue, uint32_t count, object *const *memory,
                                                     uint32_t waits, const void *after, object **event) {
    (void)queue, (void)waits, (void)after, (void)event;
    return handed_over(__func__, count, memory);
}

static int32_t clEnqueueReleaseExternalMemObjectsKHR(object *queue, uint32_t count, object *const *memory,
                                                     uint32_t waits, const void *after, object **event) {
    (void)queue, (void)waits, (void)after, (void)event;
    return handed_over(__func__, count, memory);
}

/* --- memory of the driver's own --- */

static void *given_out(size_t nbytes, bool good) {
    void *bytes = NULL;
    if (good && posix_memalign(&bytes, 4096, nbytes)) abort();
    atomic_fetch_add(&driver_memory, good);
    return bytes;
}

API void *clSVMAlloc(object *context, uint64_t flags, size_t nbytes, uint32_t alignment) {
    (void)context;
    tell("['clSVMAlloc', %llu, %zu, %u], ", (unsigned long long)flags, nbytes, alignment);
    return given_out(nbytes, !REFUSAL());
}

API void clSVMFree(object *context, void *memory) {
    (void)context;
    tell("['clSVMFree'], ");
    atomic_fetch_sub(&driver_memory, 1);
    free(memory);
}

static void *clHostMemAllocINTEL(object *context, const uint64_t *properties, size_t nbytes, uint32_t alignment,
                                 int32_t *status) {
    (void)context;
    tell("['clHostMemAllocINTEL', %zu, %zu, %u], ", (size_t)properties, nbytes, alignment);
    *status = REFUSAL();
    return given_out(nbytes, !*status);
}

static int32_t clMemBlockingFreeINTEL(object *context, void *memory) {
    (void)context;
    tell("['clMemBlockingFreeINTEL'], ");
    atomic_fetch_sub(&driver_memory, 1);
    free(memory);
    return 0;
}

API void *clGetExtensionFunctionAddressForPlatform(void *of, const char *name) {
    static const struct {
        const char *name;
        void (*function)(void);
    } FUNCTIONS[] = {
#define IMPORTING(name) {#name, (void (*)(void))name}
        IMPORTING(clImportMemoryARM), IMPORTING(clHostMemAllocINTEL), IMPORTING(clMemBlockingFreeINTEL),
        IMPORTING(clEnqueueAcquireExternalMemObjectsKHR), IMPORTING(clEnqueueReleaseExternalMemObjectsKHR)};
    void *address = NULL;
    for (size_t at = 0; at < sizeof FUNCTIONS / sizeof *FUNCTIONS; at++)
        if (strcmp(FUNCTIONS[at].name, name) == 0 && strcmp(absent, name) != 0)
            memcpy(&address, &FUNCTIONS[at].function, sizeof address);
    return address != NULL ? address : usual_clGetExtensionFunctionAddressForPlatform(of, name);
}
