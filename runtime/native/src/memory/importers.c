/* The ways in which devices take memory, best first. Each says what a device lacks for it and why memory does not fit,
 * and makes the cl_mem. Numbers are those of CL/cl.h and CL/cl_ext.h, and of Qualcomm's cl_ext_qcom.h. */
#include "importing.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum {
    MEM_OBJECT_BUFFER = 0x10F0, MEM_TYPE = 0x1100, MEM_SIZE = 0x1102, MEM_CONTEXT = 0x1106,
    DEVICE_CACHE_LINE = 0x101D, CACHE_LINE = 64, /* bytes, where a driver does not say */
    EXTERNAL_IMPORT_TYPES = 0x204F, EXTERNAL_DMA_BUF = 0x2067, MOST_TYPES = 64,
    IMPORT_TYPE = 0x40B2, IMPORT_TYPE_HOST = 0x40B3, IMPORT_TYPE_DMA_BUF = 0x40B4,
    IMPORT_TYPE_HARDWARE_BUFFER = 0x41E2, IMPORT_CONSISTENCY_WITH_HOST = 0x41E3,
    MEM_EXT_HOST_PTR = 1 << 29, DEVICE_PADDING = 0x40A0, DEVICE_PAGE = 0x40A1, HOST_WRITEBACK = 0x40A5,
    HOST_IOCOHERENT = 0x40A9, ION_HOST_PTR = 0x40A8, DMABUF_HOST_PTR = 0x411D, HARDWARE_BUFFER_HOST_PTR = 0x4119,
    HOST_MEM_CAPABILITIES = 0x4190, UNIFIED_ACCESS = 1 << 0
};

typedef struct ext_host_ptr { cl_uint allocation_type, host_cache_policy; } ext_host_ptr;
typedef struct descriptor_host_ptr { ext_host_ptr head; int descriptor; void *host; } descriptor_host_ptr;
typedef struct hardware_buffer_host_ptr { ext_host_ptr head; void *buffer; } hardware_buffer_host_ptr;

static bool no(char why[REASON_BYTES], const char *format, ...) LIKE_PRINTF(2, 3);
static bool no(char why[REASON_BYTES], const char *format, ...) {
    va_list values;
    va_start(values, format);
    write_text(why, REASON_BYTES, format, values);
    va_end(values);
    return false;
}

/* --- what a device says ------------------------------------------------------------------------------------------- */

static bool has_extension(const importing *own, const char *name) {
    const identity *device = &own->device->identity;
    for (size_t i = 0; i < device->extension_count; i++)
        if (!strcmp(device->extensions[i], name)) return true;
    return false;
}

static uint64_t asked(const importing *own, cl_uint what, const char *extension) {
    return has_extension(own, extension) ? number_of(own->device, own->device->id, what) : 0;
}

static bool imports_dma_bufs(const importing *own) {
    cl_uint types[MOST_TYPES];
    size_t nbytes = 0;
    if (!has_extension(own, "cl_khr_external_memory_dma_buf") ||
        own->device->cl.GetDeviceInfo(own->device->id, EXTERNAL_IMPORT_TYPES, sizeof types, types, &nbytes))
        return false;
    for (size_t i = 0; i < nbytes / sizeof *types; i++)
        if (types[i] == EXTERNAL_DMA_BUF) return true;
    return false;
}

/* The loader's own entry would look for the driver in an object that an extension may not have made. */
static void find_functions(importing *own) {
#define IMPORTING_ROW(name, type, arguments) {"cl" #name, &own->name},
    const struct row {
        const char *name;
        void *place;
    } rows[] = {IMPORTING_FUNCTIONS(IMPORTING_ROW){NULL, NULL}};
    const opencl *cl = &own->device->cl;
    for (const struct row *row = rows; row->name && cl->GetExtensionFunctionAddressForPlatform; row++) {
        void *address = cl->GetExtensionFunctionAddressForPlatform(own->device->platform, row->name);
        memcpy(row->place, &address, sizeof address);
    }
}

static void ask_importer(importing *own, size_t place) {
    const importer *one = &IMPORTER[place];
    char *why = own->lacks[place];
    if (one->needs && !has_extension(own, one->needs))
        no(why, "the device has no %s", one->needs);
    else if (one->is_extension && !has_extension(own, one->name))
        no(why, "the device has no %s", one->name);
    else if (one->probe && one->probe(own, why))
        *why = 0;
}

void ask_device(importing *own) {
    const identity *device = &own->device->identity;
    own->alignment = (size_t)device->base_address_alignment_bytes;
    own->cache_line = (size_t)number_of(own->device, own->device->id, DEVICE_CACHE_LINE);
    if (!own->cache_line) own->cache_line = CACHE_LINE;
    if (sscanf(device->device_version, "%*s %u.%u", &own->major, &own->minor) != 2) own->major = 1, own->minor = 0;
    own->dma_bufs = imports_dma_bufs(own);
    own->host_usm = asked(own, HOST_MEM_CAPABILITIES, "cl_intel_unified_shared_memory") & UNIFIED_ACCESS;
    own->padding = (size_t)asked(own, DEVICE_PADDING, "cl_qcom_ext_host_ptr");
    own->page = (size_t)asked(own, DEVICE_PAGE, "cl_qcom_ext_host_ptr");
    if (!own->page) own->page = (size_t)sysconf(_SC_PAGESIZE);
    find_functions(own);
    for (size_t i = 0; i < IMPORTERS; i++) ask_importer(own, i);
}

/* --- what memory is ----------------------------------------------------------------------------------------------- */

static bool is_kind(const gputune_memory *memory, memory_kind kind, const char *called, char *why) {
    return memory->of == kind || no(why, "it is no %s", called);
}

static bool is_visible(const gputune_memory *memory, char *why) {
    return memory->data || no(why, "the host cannot see it");
}

static bool is_aligned(const importing *own, uint64_t place, const char *what, char *why) {
    return place % own->alignment == 0 || no(why, "its %s is no multiple of %zu bytes", what, own->alignment);
}

/* Whether the host's view of memory is the memory to be given to a device. */
static bool is_own(const gputune_memory *memory, char *why) {
    if (memory->of == OF_DMA_BUF)
        return no(why, "it is a dma-buf, whose exporter must know of every access through the host's mapping");
    return memory->of != OF_MAPPED || no(why, "it is the memory of a cl_mem");
}

static bool is_unified(const importing *own, char *why) {
    return own->device->is_unified ||
           no(why, "the device has memory of its own, so its driver would copy at every map");
}

static bool was_allocated(const gputune_memory *memory, memory_kind kind, char *why) {
    return memory->of == kind || no(why, "the device did not allocate it");
}

/* --- making a cl_mem ---------------------------------------------------------------------------------------------- */

static taking no_function(const char *name, char *why) { return no(why, "%s is not available", name), HAS_FAILED; }

/* made: what the call was to return. */
static bool good(const char *call, cl_int status, const void *made, char *why) {
    char room[STATUS_CHARACTERS];
    if (!status && made) return true;
    return no(why, "%s failed: %s", call, status ? status_text(status, room) : "it returned nothing");
}

static taking taken(gputune_memory *memory, const char *call, cl_mem made, cl_int status, char *why) {
    if (!good(call, status, made, why)) return HAS_FAILED;
    memory->memory = memory->whole = made;
    return IS_TAKEN;
}

/* Makes the part that the memory is of what was made; it keeps the whole alive. */
static taking cut(const importing *own, gputune_memory *memory, uint64_t origin, char *why) {
    const opencl *cl = &own->device->cl;
    const cl_buffer_region region = {(size_t)origin, memory->nbytes};
    cl_int status = 0;
    if (!origin) return IS_TAKEN;
    const cl_mem whole = memory->whole,
                 part = cl->CreateSubBuffer(whole, CL_MEM_READ_WRITE, CL_BUFFER_CREATE_TYPE_REGION, &region, &status);
    cl->ReleaseMemObject(whole);
    memory->memory = memory->whole = NULL;
    if (!good("clCreateSubBuffer", status, part, why)) return HAS_FAILED;
    memory->memory = part, memory->whole = whole;
    return IS_TAKEN;
}

static taking create(const importing *own, gputune_memory *memory, cl_bitfield flags, size_t nbytes, void *host,
                     char *why) {
    cl_int status = 0;
    const cl_mem made = own->device->cl.CreateBuffer(own->device->context, CL_MEM_READ_WRITE | flags, nbytes, host,
                                                     &status);
    return taken(memory, "clCreateBuffer", made, status, why);
}

static taking take_pointer(const importing *own, gputune_memory *memory, char *why) {
    return create(own, memory, CL_MEM_USE_HOST_PTR, memory->nbytes, memory->data, why);
}

/* --- an application's own ----------------------------------------------------------------------------------------- */

static bool fits_own(const importing *own, const gputune_memory *memory, char *why) {
    return (void)own, is_kind(memory, OF_CL_MEM, "cl_mem", why);
}

static taking take_own(const importing *own, gputune_memory *memory, char *why) {
    const opencl *cl = &own->device->cl;
    const cl_mem asked_for = memory->pointer;
    cl_uint type = 0;
    cl_context context = NULL;
    size_t nbytes = 0;
    cl_int status = cl->GetMemObjectInfo(asked_for, MEM_TYPE, sizeof type, &type, NULL);
    if (!status) status = cl->GetMemObjectInfo(asked_for, MEM_CONTEXT, sizeof context, &context, NULL);
    if (!status) status = cl->GetMemObjectInfo(asked_for, MEM_SIZE, sizeof nbytes, &nbytes, NULL);
    if (!good("clGetMemObjectInfo", status, own, why)) return HAS_FAILED;
    if (type != MEM_OBJECT_BUFFER) return no(why, "the cl_mem is an image or a pipe, no buffer"), HAS_FAILED;
    if (context != own->device->context) return no(why, "the cl_mem belongs to another context"), HAS_FAILED;
    if (nbytes < memory->nbytes)
        return no(why, "the cl_mem has %zu bytes, the handle %zu", nbytes, memory->nbytes), HAS_FAILED;
    return taken(memory, "clRetainMemObject", asked_for, cl->RetainMemObject(asked_for), why);
}

/* --- Khronos ------------------------------------------------------------------------------------------------------ */

static bool fits_dma_buf(const importing *own, const gputune_memory *memory, char *why) {
    return is_kind(memory, OF_DMA_BUF, "dma-buf", why) && is_aligned(own, memory->offset, "offset", why);
}

static bool probe_khr(const importing *own, char *why) {
    if (own->major < 3) /* the loader would call what an older driver does not have */
        return no(why, "the device has OpenCL %u.%u, 3.0 is needed", own->major, own->minor);
    return own->dma_bufs || no(why, "the device does not list dma-bufs among the memory that it imports");
}

static taking take_khr(const importing *own, gputune_memory *memory, char *why) {
    /* The specification's own example passes no flags: none of those about host pointers may be set. */
    const cl_ulong properties[] = {EXTERNAL_DMA_BUF, (cl_ulong)memory->descriptor, 0};
    const opencl *cl = &own->device->cl;
    cl_int status = 0;
    if (!cl->CreateBufferWithProperties) return no_function("clCreateBufferWithProperties", why);
    const cl_mem whole = cl->CreateBufferWithProperties(own->device->context, properties, CL_MEM_READ_WRITE,
                                                        (size_t)memory->offset + memory->nbytes, NULL, &status);
    const taking made = taken(memory, "clCreateBufferWithProperties", whole, status, why);
    return made == IS_TAKEN ? cut(own, memory, memory->offset, why) : made;
}

/* --- ARM: what is mapped into the device's page tables, and never copied ------------------------------------------ */

static taking import_arm(const importing *own, gputune_memory *memory, const intptr_t *properties, void *what,
                         size_t nbytes, char *why) {
    cl_int status = 0;
    if (!own->ImportMemoryARM) return no_function("clImportMemoryARM", why);
    const cl_mem made = own->ImportMemoryARM(own->device->context, CL_MEM_READ_WRITE, properties, what, nbytes,
                                             &status);
    return taken(memory, "clImportMemoryARM", made, status, why);
}

/* The driver keeps the host's view consistent. */
static taking take_arm_dma_buf(const importing *own, gputune_memory *memory, char *why) {
    const intptr_t properties[] = {IMPORT_TYPE, IMPORT_TYPE_DMA_BUF, IMPORT_CONSISTENCY_WITH_HOST, 1, 0};
    const taking made = import_arm(own, memory, properties, &memory->descriptor,
                                   (size_t)memory->offset + memory->nbytes, why);
    return made == IS_TAKEN ? cut(own, memory, memory->offset, why) : made;
}

static bool fits_arm_host(const importing *own, const gputune_memory *memory, char *why) {
    if (memory->of != OF_MEMFD && memory->of != OF_HOST) /* a dma-buf's pages through a mapping are undefined */
        return no(why, "it is no ordinary memory of the process");
    if ((uintptr_t)memory->data % own->cache_line)
        return no(why, "its address is no multiple of a cache line of %zu bytes", own->cache_line);
    return is_visible(memory, why) && is_aligned(own, (uintptr_t)memory->data, "address", why);
}

static taking take_arm_host(const importing *own, gputune_memory *memory, char *why) {
    const intptr_t properties[] = {IMPORT_TYPE, IMPORT_TYPE_HOST, 0};
    return import_arm(own, memory, properties, memory->data, memory->nbytes, why);
}

static bool fits_hardware_buffer(const importing *own, const gputune_memory *memory, char *why) {
    return (void)own, memory->of == OF_HARDWARE_BUFFER || no(why, "it is no AHardwareBuffer");
}

static taking take_arm_hardware_buffer(const importing *own, gputune_memory *memory, char *why) {
    const intptr_t properties[] = {IMPORT_TYPE, IMPORT_TYPE_HARDWARE_BUFFER, 0};
    return import_arm(own, memory, properties, memory->pointer, memory->nbytes, why);
}

/* --- Qualcomm: a structure in the place of the host pointer ------------------------------------------------------- */

/* Both policies are for memory that the host caches, as that of the system heap is. */
static ext_host_ptr head_of(const importing *own, cl_uint type) {
    return (ext_host_ptr){type, has_extension(own, "cl_qcom_ext_host_ptr_iocoherent") ? HOST_IOCOHERENT
                                                                                      : HOST_WRITEBACK};
}

static bool fits_qcom(const importing *own, const gputune_memory *memory, char *why) {
    if (!is_kind(memory, OF_DMA_BUF, "dma-buf", why) || !is_visible(memory, why)) return false;
    if (memory->offset) return no(why, "it does not begin where the dma-buf does");
    if ((uintptr_t)memory->data % own->page)
        return no(why, "its address is no multiple of the device's page of %zu bytes", own->page);
    return memory->padding >= own->padding || no(why, "the device needs %zu bytes after it, the dma-buf has %llu",
                                                 own->padding, (unsigned long long)memory->padding);
}

static taking take_qcom(const importing *own, gputune_memory *memory, cl_uint type, char *why) {
    descriptor_host_ptr host = {head_of(own, type), memory->descriptor, memory->data};
    return create(own, memory, CL_MEM_USE_HOST_PTR | MEM_EXT_HOST_PTR, memory->nbytes, &host, why);
}

static taking take_qcom_dma_buf(const importing *own, gputune_memory *memory, char *why) {
    return take_qcom(own, memory, DMABUF_HOST_PTR, why);
}

static taking take_qcom_ion(const importing *own, gputune_memory *memory, char *why) {
    return take_qcom(own, memory, ION_HOST_PTR, why);
}

static taking take_qcom_hardware_buffer(const importing *own, gputune_memory *memory, char *why) {
    hardware_buffer_host_ptr host = {head_of(own, HARDWARE_BUFFER_HOST_PTR), memory->pointer};
    return create(own, memory, CL_MEM_USE_HOST_PTR | MEM_EXT_HOST_PTR, memory->nbytes, &host, why);
}

/* --- Intel: unified shared memory; its specification leaves open whether a cl_mem can be made of it --------------- */

static bool probe_usm(const importing *own, char *why) {
    return own->host_usm || no(why, "the device does not support host USM");
}

static bool fits_usm(const importing *own, const gputune_memory *memory, char *why) {
    return (void)own, was_allocated(memory, OF_USM, why);
}

static bool allocate_usm(const importing *own, gputune_memory *memory, char *why) {
    cl_int status = 0;
    if (!own->HostMemAllocINTEL || !own->MemBlockingFreeINTEL) return no_function("clHostMemAllocINTEL", why), false;
    memory->data = own->HostMemAllocINTEL(own->device->context, NULL, memory->nbytes, 0, &status);
    return good("clHostMemAllocINTEL", status, memory->data, why);
}

/* --- shared virtual memory ---------------------------------------------------------------------------------------- */

static taking take_shared(const importing *own, gputune_memory *memory, char *why) {
    const opencl *cl = &own->device->cl;
    cl_bool shared = 0;
    if (take_pointer(own, memory, why) != IS_TAKEN) return HAS_FAILED;
    const cl_int status = cl->GetMemObjectInfo(memory->memory, CL_MEM_USES_SVM_POINTER, sizeof shared, &shared, NULL);
    if (!status && shared) return IS_TAKEN;
    drop_buffer(memory);
    if (!good("clGetMemObjectInfo", status, own, why)) return HAS_FAILED;
    return no(why, "the driver does not know buffers of such memory as shared virtual memory"), IS_REFUSED;
}

static bool probe_fine_grain(const importing *own, char *why) {
    return own->device->fine_grain_buffers || no(why, "the device has no fine-grain SVM");
}

static bool fits_fine_grain(const importing *own, const gputune_memory *memory, char *why) {
    return (void)own, was_allocated(memory, OF_SVM, why);
}

static bool allocate_fine_grain(const importing *own, gputune_memory *memory, char *why) {
    const cl_bitfield flags = CL_MEM_READ_WRITE | CL_MEM_SVM_FINE_GRAIN_BUFFER;
    memory->data = own->device->cl.SVMAlloc(own->device->context, flags, memory->nbytes, 0);
    return memory->data || no(why, "clSVMAlloc failed"); /* it has no error code */
}

static bool probe_system(const importing *own, char *why) {
    return own->device->fine_grain_system || no(why, "the device does not share the host's address space");
}

static bool fits_system(const importing *own, const gputune_memory *memory, char *why) {
    return is_visible(memory, why) && is_own(memory, why) &&
           is_aligned(own, (uintptr_t)memory->data, "address", why);
}

/* --- host pointers ------------------------------------------------------------------------------------------------ */

static size_t place_in_pages(const gputune_memory *memory) { return (size_t)((char *)memory->data - memory->pages); }

static bool fits_pointer(const importing *own, const gputune_memory *memory, char *why) {
    const size_t page = (size_t)sysconf(_SC_PAGESIZE);
    const bool is_cpu = own->device->is_cpu;
    if (!is_visible(memory, why) || !is_own(memory, why)) return false;
    if (!is_cpu && memory->pages) return is_aligned(own, place_in_pages(memory), "place in its page", why);
    if (!is_cpu && (uintptr_t)memory->data % page)
        return no(why, "its address is no multiple of a page of %zu bytes, so the driver would copy", page);
    if (!is_cpu && memory->nbytes % own->cache_line)
        return no(why, "its size is no multiple of a cache line of %zu bytes, so the driver would copy",
                  own->cache_line);
    return is_aligned(own, (uintptr_t)memory->data, "address", why);
}

/* Drivers of GPUs take whole pages, or copy. */
static taking take_pages(const importing *own, gputune_memory *memory, char *why) {
    if (own->device->is_cpu || !memory->pages) return take_pointer(own, memory, why);
    const taking made = create(own, memory, CL_MEM_USE_HOST_PTR, memory->page_bytes, memory->pages, why);
    return made == IS_TAKEN ? cut(own, memory, place_in_pages(memory), why) : made;
}

static bool fits_mapped(const importing *own, const gputune_memory *memory, char *why) {
    return (void)own, was_allocated(memory, OF_MAPPED, why);
}

static taking take_mapped(const importing *own, gputune_memory *memory, char *why) {
    const cl_mem made = memory->pointer;
    return taken(memory, "clRetainMemObject", made, own->device->cl.RetainMemObject(made), why);
}

/* Where it is mapped must be the same place each time. */
static bool allocate_mapped(const importing *own, gputune_memory *memory, char *why) {
    const opencl *cl = &own->device->cl;
    const cl_command_queue queue = own->device->stream.queue;
    void *seen[2] = {NULL, NULL};
    cl_int status = 0;
    const cl_mem made = cl->CreateBuffer(own->device->context, CL_MEM_READ_WRITE | CL_MEM_ALLOC_HOST_PTR,
                                         memory->nbytes, NULL, &status);
    if (!good("clCreateBuffer", status, made, why)) return false;
    for (int i = 0; i < 2 && !status; i++) {
        seen[i] = cl->EnqueueMapBuffer(queue, made, 1, CL_MAP_READ | CL_MAP_WRITE, 0, memory->nbytes, 0, NULL, NULL,
                                       &status);
        if (good("clEnqueueMapBuffer", status, seen[i], why)) {
            status = cl->EnqueueUnmapMemObject(queue, made, seen[i], 0, NULL, NULL);
            good("clEnqueueUnmapMemObject", status, own, why);
        }
    }
    memory->pointer = made, memory->data = seen[0];
    if (!status && seen[0] && seen[0] == seen[1]) return true;
    if (!status && seen[0] != seen[1]) no(why, "it is mapped at another address each time");
    return cl->ReleaseMemObject(made), memory->pointer = NULL, memory->data = NULL, false;
}

void free_allocated(gputune_memory *memory) {
    const opencl *cl = &memory->device->cl;
    if (memory->of == OF_SVM && memory->data) cl->SVMFree(memory->device->context, memory->data);
    if (memory->of == OF_USM && memory->data)
        memory->device->importing->MemBlockingFreeINTEL(memory->device->context, memory->data);
    if (memory->of == OF_MAPPED && memory->pointer) cl->ReleaseMemObject(memory->pointer);
}

const importer IMPORTER[IMPORTERS] = {
    {"cl_mem", .fits = fits_own, .take = take_own},
    {"cl_khr_external_memory_dma_buf", "cl_khr_external_memory", true, true, BY_SYNC, .probe = probe_khr,
     .fits = fits_dma_buf, .take = take_khr},
    {"cl_arm_import_memory_dma_buf", "cl_arm_import_memory", true, .access = BY_SYNC, .fits = fits_dma_buf,
     .take = take_arm_dma_buf},
    {"cl_arm_import_memory_host", "cl_arm_import_memory", true, .fits = fits_arm_host, .take = take_arm_host},
    {"cl_arm_import_memory_android_hardware_buffer", "cl_arm_import_memory", true, .fits = fits_hardware_buffer,
     .take = take_arm_hardware_buffer},
    {"cl_qcom_dmabuf_host_ptr", "cl_qcom_ext_host_ptr", true, .access = BY_MAP, .fits = fits_qcom,
     .take = take_qcom_dma_buf},
    {"cl_qcom_ion_host_ptr", "cl_qcom_ext_host_ptr", true, .access = BY_MAP, .fits = fits_qcom, .take = take_qcom_ion},
    {"cl_qcom_android_ahardwarebuffer_host_ptr", "cl_qcom_ext_host_ptr", true, .fits = fits_hardware_buffer,
     .take = take_qcom_hardware_buffer},
    [UNIFIED_SHARED] = {"cl_intel_unified_shared_memory", .is_extension = true, .access = BY_MAP, .allocates = OF_USM,
                        .probe = probe_usm, .fits = fits_usm, .take = take_pointer, .allocate = allocate_usm},
    [FINE_GRAIN] = {"fine-grain SVM buffer", .allocates = OF_SVM, .probe = probe_fine_grain, .fits = fits_fine_grain,
                    .take = take_shared, .allocate = allocate_fine_grain},
    {"fine-grain SVM system", .probe = probe_system, .fits = fits_system, .take = take_shared},
    {"CL_MEM_USE_HOST_PTR", .access = BY_MAP, .probe = is_unified, .fits = fits_pointer, .take = take_pages},
    [MAPPED] = {"CL_MEM_ALLOC_HOST_PTR", .access = BY_MAP, .allocates = OF_MAPPED, .probe = is_unified,
                .fits = fits_mapped, .take = take_mapped, .allocate = allocate_mapped},
};
