/* gputune.h: loads a context binary on the device that it was tuned for, and runs it.
 *
 * C99 and OpenCL 1.2. Nothing is linked but libc, libm, libdl and the system's threads: libOpenCL.so is looked for when
 * a device is opened. Objects belong to the caller, who closes them in the reverse order; there is no global state.
 *
 * Functions that can fail return a code and, where the caller has given an error, write one line of text into it.
 * Several threads may use an object, and inferences of a graph take turns; only closing is for one thread alone. What
 * is opened with a device belongs to the process that has opened it: in a fork every use of it fails with
 * GPUTUNE_FORKED_PROCESS at once, and closing gives back memory and nothing else. */
#ifndef GPUTUNE_H
#define GPUTUNE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#ifdef __GNUC__
#pragma GCC visibility push(default) /* all other symbols of the library are hidden */
#endif

typedef enum gputune_code {
    GPUTUNE_OK = 0,
    GPUTUNE_INVALID_ARGUMENT,
    GPUTUNE_IO_ERROR,
    GPUTUNE_OUT_OF_MEMORY,
    /* of files */
    GPUTUNE_NOT_A_CONTEXT,
    GPUTUNE_UNSUPPORTED_FORMAT_VERSION,
    GPUTUNE_TRUNCATED,
    GPUTUNE_CHECKSUM_MISMATCH,
    GPUTUNE_MALFORMED_HEADER,
    GPUTUNE_MALFORMED_EP_CONTEXT,
    GPUTUNE_MALFORMED_PACKAGE,
    GPUTUNE_WRONG_DEVICE,
    GPUTUNE_ARENA_TOO_SMALL,
    GPUTUNE_UNTRUSTED_FILE,
    GPUTUNE_FILE_CHANGED,
    /* of devices */
    GPUTUNE_DEVICE_NOT_FOUND,
    GPUTUNE_BUILD_FAILED,
    GPUTUNE_LIMIT_EXCEEDED,
    GPUTUNE_LAUNCH_FAILED,
    GPUTUNE_FORKED_PROCESS,
    GPUTUNE_UNUSABLE_MEMORY,
    GPUTUNE_CANNOT_IMPORT
} gputune_code;

#define GPUTUNE_MESSAGE_BYTES 512

typedef struct gputune_error {
    gputune_code code;
    char message[GPUTUNE_MESSAGE_BYTES];
} gputune_error;

/* The name of a code as gputune's other parts have it, such as "checksum_mismatch". */
const char *gputune_code_name(gputune_code code);

typedef struct gputune_file gputune_file;     /* an open context binary, package or ONNX file with EPContext nodes */
typedef struct gputune_device gputune_device; /* an open OpenCL device */
typedef struct gputune_memory gputune_memory; /* memory that a device uses as it lies */
typedef struct gputune_group gputune_group;   /* arenas that several graphs share, one inference at a time */
typedef struct gputune_graph gputune_graph;   /* a loaded graph */
typedef struct gputune_profile gputune_profile; /* a profile log that is being written */

/* --- files ------------------------------------------------------------------------------------------------------- */

#define GPUTUNE_MOST_DIMENSIONS 16

typedef struct gputune_tensor {
    const char *name;
    const char *dtype; /* as numpy calls it, such as "float32" */
    size_t rank;
    size_t shape[GPUTUNE_MOST_DIMENSIONS];
    size_t nbytes;
} gputune_tensor;

/* What a graph takes and gives. Pointers hold as long as what they were asked of. */
typedef struct gputune_graph_info {
    const char *name;
    const gputune_tensor *inputs;
    size_t input_count;
    const gputune_tensor *outputs;
    size_t output_count;
    size_t launch_count;
    size_t arena_bytes;
} gputune_graph_info;

/* Opens a file and checks its header; sections are read and checked when they are used. Refuses one that another user
 * could change, as its code would run as this one's. Of one that is written over while it is open nothing is used that
 * was not checked: what needs it fails with GPUTUNE_FILE_CHANGED. Replace a file by renaming a new one. */
gputune_code gputune_open(const char *path, gputune_file **file, gputune_error *error);
void gputune_close(gputune_file *file);

/* How many contexts a file holds: 1, those of a package, or those of an ONNX file's main nodes. */
size_t gputune_context_count(const gputune_file *file);
/* Their names: of a package those of its index, else "". */
const char *gputune_context_name(const gputune_file *file, size_t context);
/* The device that a context was made for, as its driver calls it. */
const char *gputune_context_device(const gputune_file *file, size_t context);
size_t gputune_graph_count(const gputune_file *file, size_t context);
gputune_code gputune_graph_info_of(const gputune_file *file, size_t context, size_t graph, gputune_graph_info *info,
                                   gputune_error *error);

/* --- devices ----------------------------------------------------------------------------------------------------- */

typedef struct gputune_device_options {
    const char *library; /* of OpenCL; NULL: GPUTUNE_OPENCL_LIBRARY, else where systems have it */
    const char *device;  /* a part of its name or its platform's; NULL: the one `file` was made for, else the best */
    const gputune_file *file;
} gputune_device_options;

gputune_code gputune_open_device(const gputune_device_options *options, gputune_device **device, gputune_error *error);
void gputune_close_device(gputune_device *device);
const char *gputune_device_name(const gputune_device *device);

/* --- memory ------------------------------------------------------------------------------------------------------ */

/* New memory that host and device share as well as they can. */
gputune_code gputune_allocate(gputune_device *device, size_t nbytes, gputune_memory **memory, gputune_error *error);
/* Memory of the caller that outlives the object. */
gputune_code gputune_wrap(gputune_device *device, void *data, size_t nbytes, gputune_memory **memory,
                          gputune_error *error);
/* A sealed memfd or a dma-buf; the descriptor is duplicated. */
gputune_code gputune_import(gputune_device *device, int descriptor, size_t nbytes, gputune_memory **memory,
                            gputune_error *error);
/* What the host sees of it between inferences; NULL where it sees nothing. */
void *gputune_memory_data(const gputune_memory *memory);
/* How the device uses it: "shared", "mapped", or why it is copied. */
const char *gputune_memory_kind(const gputune_memory *memory);
void gputune_free(gputune_memory *memory);

/* --- graphs ------------------------------------------------------------------------------------------------------ */

/* Arenas for the graphs of these files, as large as the largest need. */
gputune_code gputune_open_group(gputune_device *device, const gputune_file *const *files, size_t count,
                                gputune_group **group, gputune_error *error);
void gputune_close_group(gputune_group *group);
size_t gputune_group_bytes(const gputune_group *group);

typedef struct gputune_shape {
    const char *input;
    size_t rank;
    size_t shape[GPUTUNE_MOST_DIMENSIONS];
} gputune_shape;

typedef struct gputune_load_options {
    const char *graph;           /* its name; NULL: by shapes, else the first */
    const gputune_shape *shapes; /* of inputs: the graph that takes them */
    size_t shape_count;
    bool strict;              /* refuse what was made for another device, which is built from source otherwise */
    bool one_by_one;          /* no persistent kernels */
    gputune_group *group;     /* NULL: arenas of its own */
    const char *perf_profile; /* a preset: for which clocks and power to vote around inferences; NULL: no vote */
} gputune_load_options;

/* Programs are built, weights copied and arguments bound; `file` may be closed afterwards, and changed. Of a package
 * the context is loaded that fits the device best. options may be NULL. */
gputune_code gputune_load(gputune_device *device, const gputune_file *file, const gputune_load_options *options,
                          gputune_graph **graph, gputune_error *error);
void gputune_unload(gputune_graph *graph);

const gputune_graph_info *gputune_info(const gputune_graph *graph);
/* What costs time without being asked for, one line each; NULL behind the last. */
const char *gputune_warning(const gputune_graph *graph, size_t number);
/* Of a package: which context was taken and why; "" otherwise. */
const char *gputune_choice(const gputune_graph *graph);

/* Where a tensor lies for an inference: `data` of exactly its bytes, which are copied, or `memory`, which is used as it
 * lies. The order of values is the graph's where no names are given. */
typedef struct gputune_value {
    const char *name; /* NULL: the next one */
    void *data;
    gputune_memory *memory;
} gputune_value;

gputune_code gputune_run(gputune_graph *graph, const gputune_value *inputs, size_t input_count,
                         const gputune_value *outputs, size_t output_count, gputune_error *error);

typedef void (*gputune_callback)(void *user, gputune_code code, const gputune_error *error);

/* Returns at once; the callback comes from a thread of the graph when outputs are where they shall be. What the values
 * point to must live until then; inferences begin in the order in which they were asked for. Unloading waits for
 * them. */
gputune_code gputune_run_async(gputune_graph *graph, const gputune_value *inputs, size_t input_count,
                               const gputune_value *outputs, size_t output_count, gputune_callback callback, void *user,
                               gputune_error *error);

/* Inferences from now on vote for clocks and power as the preset says; NULL ends that. */
gputune_code gputune_set_perf_profile(gputune_graph *graph, const char *preset, gputune_error *error);

/* How inferences ran, and what they copied between the caller's memory and the device's. */
typedef struct gputune_counters {
    uint64_t inferences, persistent, aborted, launches;
    uint64_t bytes_copied, writes, reads, maps, allocations;
} gputune_counters;

void gputune_counters_of(gputune_graph *graph, gputune_counters *total, gputune_counters *last);

/* --- profiling --------------------------------------------------------------------------------------------------- */

typedef enum gputune_level { GPUTUNE_BASIC, GPUTUNE_DETAILED } gputune_level;

/* A log in the form that `gputune profile-viewer` reads: whole inferences; at the level detailed launch by launch. */
gputune_code gputune_open_profile(gputune_device *device, const char *path, gputune_level level,
                                  gputune_profile **profile, gputune_error *error);
/* Records the inferences of a graph from now on; NULL ends that. */
gputune_code gputune_record(gputune_graph *graph, gputune_profile *profile, gputune_error *error);
gputune_code gputune_close_profile(gputune_profile *profile, gputune_error *error);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
