/* Memory that a device uses in place, where it can, and the ways in which devices take memory. As runtime/memory/. */
#ifndef GPUTUNE_IMPORTING_H
#define GPUTUNE_IMPORTING_H

#include "../devices/device.h"

typedef enum memory_kind {
    NO_KIND,
    OF_MEMFD,
    OF_DMA_BUF,
    OF_HOST,           /* memory of the process */
    OF_SVM,            /* OpenCL's fine-grain shared virtual memory */
    OF_USM,            /* Intel's unified shared memory of the host */
    OF_MAPPED,         /* a cl_mem that was allocated to be mapped */
    OF_CL_MEM,         /* an application's own */
    OF_HARDWARE_BUFFER /* Android's */
} memory_kind;

/* What host access takes once the device has finished: nothing, a map, or a word to the dma-buf's exporter. */
typedef enum host_access { NO_COMMAND, BY_MAP, BY_SYNC } host_access;

typedef struct importer importer;   /* importers.c: a way to take memory */
typedef struct importing importing; /* what a device can take: asked once */

struct gputune_memory {
    gputune_device *device;
    memory_kind of;
    size_t nbytes;
    void *data;               /* where the host sees it, else NULL */
    int descriptor;           /* its own, or -1 */
    uint64_t offset, padding; /* bytes of what the descriptor stands for, before it and behind it */
    char *pages;              /* whole pages around it that belong to it, else NULL */
    size_t page_bytes;
    void *pointer;            /* the cl_mem of its kind, owned if it was allocated, or the AHardwareBuffer */
    cl_mem memory, whole;     /* NULL: it is copied; whole: what this is a part of, or itself */
    const importer *importer; /* by which it was taken */
    bool coherent;            /* host and device see the same without a command */
    bool of_host, reads_only; /* of_host: the host may touch it now; reads_only: or only read it */
    bool told, claimed;       /* a warning was given that it is copied; an inference has claimed it */
    const char *kind;         /* how the device uses it, or why it is copied: */
    char *reason;             /* a text of its own, else NULL */
};

/* --- importers.c: the ways --- */

typedef enum taking { IS_TAKEN, HAS_FAILED, IS_REFUSED } taking; /* refused: whatever the memory */

/* Each function writes into `why` what speaks against it. probe: whether the device can try it; fits: whether this
 * memory can be tried; take: makes memory->memory and ->whole; allocate: new memory where only its own will do. */
struct importer {
    const char *name, *needs; /* needs: an extension beside that of its name */
    bool is_extension;        /* it has the name of one */
    bool external;            /* commands must acquire memory before they use it, and release it then */
    host_access access;
    memory_kind allocates;
    bool (*probe)(const importing *own, char why[REASON_BYTES]);
    bool (*fits)(const importing *own, const gputune_memory *memory, char why[REASON_BYTES]);
    taking (*take)(const importing *own, gputune_memory *memory, char why[REASON_BYTES]);
    bool (*allocate)(const importing *own, gputune_memory *memory, char why[REASON_BYTES]);
};
enum { IMPORTERS = GPUTUNE_IMPORTERS - 1, UNIFIED_SHARED = 8, FINE_GRAIN, MAPPED = IMPORTERS - 1 }; /* they allocate */
extern const importer IMPORTER[IMPORTERS]; /* in the order in which they are tried */

#define IMPORTING_FUNCTIONS(X) \
    X(ImportMemoryARM, cl_mem, (cl_context, cl_bitfield, const intptr_t *, void *, size_t, cl_int *)) \
    X(HostMemAllocINTEL, void *, (cl_context, const cl_ulong *, size_t, cl_uint, cl_int *)) \
    X(MemBlockingFreeINTEL, cl_int, (cl_context, void *)) \
    X(EnqueueAcquireExternalMemObjectsKHR, cl_int, (cl_command_queue, cl_uint, const cl_mem *, CL_EVENTS)) \
    X(EnqueueReleaseExternalMemObjectsKHR, cl_int, (cl_command_queue, cl_uint, const cl_mem *, CL_EVENTS))

struct importing {
    gputune_device *device;
    IMPORTING_FUNCTIONS(OPENCL_MEMBER)
    unsigned major, minor;    /* of its OpenCL */
    size_t alignment, cache_line, page, padding; /* page, padding: what Qualcomm's drivers ask of descriptors' memory */
    bool dma_bufs, host_usm;  /* it takes dma-bufs as external memory; it has Intel's host memory */
    char lacks[IMPORTERS][REASON_BYTES];   /* what it said that it lacks; "": nothing */
    char refused[IMPORTERS][REASON_BYTES]; /* why an importer turned out to be none */
    char said[IMPORTERS][REASON_BYTES];    /* what gputune_importers said last */
};

/* Asks a device what it can take. */
void ask_device(importing *own);
/* Gives back what an importer has allocated. */
void free_allocated(gputune_memory *memory);

/* --- importing.c: which way is taken. What calls these has the turn of the device. --- */

/* Has the device take memory by the first importer that does; then the host may touch it. Else it has the reason why it
 * is copied, or the call fails where the host cannot see it. */
gputune_code take_memory(gputune_memory *memory, gputune_error *error);
/* Allocates memory of the best kind that the device has, and has the device take it. */
gputune_code allocate_memory(gputune_memory *memory, gputune_error *error);

/* --- access.c --- */

/* Gives memory to the host, once the stream is finished, or to the device. It must be the other one's. */
gputune_code give_to_host(gputune_memory *memory, const stream *stream, gputune_error *error);
gputune_code give_to_device(gputune_memory *memory, const stream *stream, gputune_error *error);
/* Enqueues that the device acquires or releases memory which other programs than OpenCL may use; for other memory
 * nothing. */
gputune_code hand_over(const gputune_memory *memory, bool acquire, const stream *stream, gputune_error *error);
/* Gives back a cl_mem, the host's pages and the descriptor. */
void drop_buffer(gputune_memory *memory);
void drop_host(gputune_memory *memory);

/* --- memory.c --- */

/* Has launches that still use memory which is going to be freed use other memory: drivers abort where an argument is
 * freed. Takes the turn of the device for granted. */
void forget_memory(gputune_device *device, cl_mem memory);
bool memories_meet(const gputune_memory *one, const gputune_memory *other);

#endif
