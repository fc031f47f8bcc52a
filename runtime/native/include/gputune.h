/* Load a context binary on the device for which it was tuned, and run it.
 *
 * The library needs C99 and OpenCL 1.2. It links only libc, libm, libdl and the system's threads, and looks for
 * libOpenCL.so when a device is opened. You own all objects and close them in the reverse order. There is no global
 * state.
 *
 * A function that can fail returns a code. If you pass an error, it also writes one line of text there. Several threads
 * may use an object, and inferences of a graph take turns; only one thread may close it. An open device and all objects
 * on it belong to the process that opened the device. In a fork, every use of them fails at once with
 * GPUTUNE_FORKED_PROCESS, and closing them only frees memory. */
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

#define GPUTUNE_VERSION "0.1.0"

/* Return the version of the library, such as "0.1.0". In a library that gputune builds for Python, "+" and a digest of
 * the sources follow. */
const char *gputune_version(void);

typedef enum gputune_code {
    GPUTUNE_OK = 0,
    GPUTUNE_INVALID_ARGUMENT,
    GPUTUNE_IO_ERROR,
    GPUTUNE_OUT_OF_MEMORY,
    /* files */
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
    /* devices */
    GPUTUNE_DEVICE_NOT_FOUND,
    GPUTUNE_BUILD_FAILED,
    GPUTUNE_LIMIT_EXCEEDED,
    GPUTUNE_LAUNCH_FAILED,
    GPUTUNE_FORKED_PROCESS,
    GPUTUNE_UNUSABLE_MEMORY,
    GPUTUNE_CANNOT_IMPORT,
    GPUTUNE_UNKNOWN_GRAPH,
    GPUTUNE_INVALID_LAUNCH,
    GPUTUNE_CANNOT_MARK
} gputune_code;

#define GPUTUNE_MESSAGE_BYTES 4096

typedef struct gputune_error {
    gputune_code code;
    char message[GPUTUNE_MESSAGE_BYTES];
} gputune_error;

/* Return the name of a code, the same as in gputune's other parts, such as "checksum_mismatch". */
const char *gputune_code_name(gputune_code code);

typedef struct gputune_file gputune_file;     /* an open context binary, package or ONNX file with EPContext nodes */
typedef struct gputune_device gputune_device; /* an open OpenCL device */
typedef struct gputune_memory gputune_memory; /* memory that a device uses in place */
typedef struct gputune_group gputune_group;   /* arenas that several graphs share, one inference at a time */
typedef struct gputune_graph gputune_graph;   /* a loaded graph */
typedef struct gputune_state gputune_state;     /* what graphs remember between inferences */
typedef struct gputune_profile gputune_profile; /* an open profile log */
typedef struct gputune_power gputune_power;     /* the controls of a device's clocks and power */
typedef struct gputune_votes gputune_votes;     /* what one instance asks of them */

/* --- files ------------------------------------------------------------------------------------------------------- */

#define GPUTUNE_MOST_DIMENSIONS 16

typedef struct gputune_tensor {
    const char *name;
    const char *dtype; /* numpy's name, such as "float32" */
    size_t rank;
    size_t shape[GPUTUNE_MOST_DIMENSIONS];
    size_t nbytes;
} gputune_tensor;

/* Describes the inputs and outputs of a graph. Pointers stay valid as long as the object that returned them. */
typedef struct gputune_graph_info {
    const char *name;
    const gputune_tensor *inputs;
    size_t input_count;
    const gputune_tensor *outputs;
    size_t output_count;
    size_t launch_count;
    size_t arena_bytes;
} gputune_graph_info;

/* Open a file and check its header; sections are read and checked when they are used. A file that another user could
 * change is refused, because its code would run as this user. If a file is overwritten while it is open, no unchecked
 * part of it is used: a call that needs it fails with GPUTUNE_FILE_CHANGED. To replace a file, rename a new file. */
gputune_code gputune_open(const char *path, gputune_file **file, gputune_error *error);
/* Open the bytes of such a file. They are not copied: do not free or change them before you close the file. Their code
 * runs as this user, so be sure where they come from. An ONNX file must hold its contexts: it has no folder here. */
gputune_code gputune_open_bytes(const void *data, size_t nbytes, gputune_file **file, gputune_error *error);
void gputune_close(gputune_file *file);

/* Return the number of contexts in a file: 1, or the number in a package or of an ONNX file's main nodes. */
size_t gputune_context_count(const gputune_file *file);
/* Return a context's name: in a package its name in the index, else "". */
const char *gputune_context_name(const gputune_file *file, size_t context);
/* Return the device for which a context was made, by its driver's name. */
const char *gputune_context_device(const gputune_file *file, size_t context);
size_t gputune_graph_count(const gputune_file *file, size_t context);
gputune_code gputune_graph_info_of(const gputune_file *file, size_t context, size_t graph, gputune_graph_info *info,
                                   gputune_error *error);

/* --- devices ----------------------------------------------------------------------------------------------------- */

typedef struct gputune_device_options {
    const char *library; /* OpenCL library; NULL: GPUTUNE_OPENCL_LIBRARY, else the usual places */
    const char *device;  /* part of its or its platform's name; NULL: the device of `file`, else the best */
    const gputune_file *file;
    /* An open cl_context and the cl_device_id that is meant in it; `library` must be the one that made them. No context
     * is opened then, nor another device looked for. The device keeps the context until it is closed. */
    void *context, *device_id;
    /* Exactly one device, also among equal ones: the whole name of its platform, and its number from 0 among the
     * platform's devices, in the order of the library. `device` is then NULL or its whole name. NULL: any platform. */
    const char *platform;
    size_t ordinal;
    /* Another device that is open: its device is opened once more, in the same cl_context with a queue of its own. All
     * but this is NULL then. Both devices may be closed in any order. */
    gputune_device *beside;
} gputune_device_options;

gputune_code gputune_open_device(const gputune_device_options *options, gputune_device **device, gputune_error *error);
void gputune_close_device(gputune_device *device);
const char *gputune_device_name(const gputune_device *device);

/* Describes a device in its driver's words; sizes are in bytes, extensions are sorted. */
typedef struct gputune_identity {
    const char *platform, *platform_version, *name, *vendor, *driver_version, *device_version;
    const char *device_type; /* "cpu", "gpu" or "accelerator" */
    const char *driver;      /* the name of its .icd file; "" for an open device, of which OpenCL does not say it */
    uint64_t compute_units, max_work_group_size, max_work_item_sizes[3], local_memory_bytes, global_memory_bytes,
        max_allocation_bytes, base_address_alignment_bytes, preferred_float_width;
    const char *const *extensions;
    size_t extension_count;
} gputune_identity;

const gputune_identity *gputune_device_identity(const gputune_device *device);
/* Return whether the device has stopped working in this process, as some do after a kernel has crashed: close all that
 * is on it, and the device, and open it again or in another process. The device is asked, which waits for its turn. */
bool gputune_is_lost(gputune_device *device);
/* Return the bytes of device memory that its graphs, groups and states hold now. gputune_memory does not count. */
size_t gputune_device_bytes(const gputune_device *device);
/* Return the cl_context of the device, in which a cl_mem of your own must be made. Of a CPU device it may be another
 * one, or NULL, when no graph, group, memory or profile is left on the device. */
void *gputune_device_context(const gputune_device *device);
/* Launch an empty kernel on a queue of its own, and wait for it. At short intervals between inferences this keeps a
 * device from falling asleep. On a CPU it does nothing: what runs there keeps it awake. */
gputune_code gputune_touch(gputune_device *device, gputune_error *error);

/* --- memory ------------------------------------------------------------------------------------------------------ */

/* Allocate memory that host and device share as well as they can. */
gputune_code gputune_allocate(gputune_device *device, size_t nbytes, gputune_memory **memory, gputune_error *error);
/* Wrap your own memory, which must outlive the object. */
gputune_code gputune_wrap(gputune_device *device, void *data, size_t nbytes, gputune_memory **memory,
                          gputune_error *error);
/* Import `nbytes` bytes from `offset` on of a memfd that is sealed against shrinking, or of a dma-buf. The descriptor
 * is duplicated. All other descriptors and ranges are GPUTUNE_UNUSABLE_MEMORY. */
gputune_code gputune_import(gputune_device *device, int descriptor, uint64_t offset, size_t nbytes,
                            gputune_memory **memory, gputune_error *error);
/* Import a cl_mem of the context in which the device was opened (`context` of gputune_device_options), or an Android
 * AHardwareBuffer of format BLOB; the latter must outlive the object. The host sees neither. */
gputune_code gputune_import_cl_mem(gputune_device *device, void *cl_mem, size_t nbytes, gputune_memory **memory,
                                   gputune_error *error);
gputune_code gputune_import_hardware_buffer(gputune_device *device, void *buffer, size_t nbytes,
                                            gputune_memory **memory, gputune_error *error);
/* Return the memory as the host sees it between inferences; NULL if the host cannot see it. */
void *gputune_memory_data(const gputune_memory *memory);
/* Return how the device uses the memory: "shared", "mapped", "synchronised" (a dma-buf), or why it is copied. */
const char *gputune_memory_kind(const gputune_memory *memory);
/* Return the name of the importer by which the device took the memory, such as "CL_MEM_USE_HOST_PTR"; NULL if it is
 * copied. */
const char *gputune_memory_importer(const gputune_memory *memory);
/* Return a descriptor of the memory that other processes can be given, which stays the object's; -1 if it has none. */
int gputune_memory_descriptor(const gputune_memory *memory);
/* Return the memory as a cl_mem of the device's context, which stays the object's; NULL if it is copied. Between
 * inferences memory belongs to the host: commands of your own stand between gputune_end_host and gputune_begin_host. */
void *gputune_memory_cl_mem(const gputune_memory *memory);
/* Let the host use memory that the device has, and write there if `write` is true, once your commands are finished; or
 * give memory to the device. Both do nothing for memory that takes no commands, or belongs to the right one. */
gputune_code gputune_begin_host(gputune_memory *memory, bool write, gputune_error *error);
gputune_code gputune_end_host(gputune_memory *memory, gputune_error *error);
void gputune_free(gputune_memory *memory);

/* Names a way in which devices take memory. reason: why a device cannot use it, or "". */
typedef struct gputune_importer {
    const char *name, *reason;
} gputune_importer;

#define GPUTUNE_IMPORTERS 14

/* Write the importers, GPUTUNE_IMPORTERS of them, in the order in which they are tried; the last is the copy. What can
 * be tried on a page of memory is tried. The texts stay valid until the next call, or until the device is closed. */
gputune_code gputune_importers(gputune_device *device, gputune_importer *importers, gputune_error *error);

/* --- graphs ------------------------------------------------------------------------------------------------------ */

/* Allocate arenas for the graphs of these files, as large as the largest need. Graphs of a group have equal weights and
 * programs once. As many of their inferences run at a time as there are streams, each in arenas of its own. With more
 * than one stream no persistent kernels run: they need all processors. */
gputune_code gputune_open_group(gputune_device *device, const gputune_file *const *files, size_t count, size_t streams,
                                gputune_group **group, gputune_error *error);
/* Make the arenas large enough for the graphs of another file, too. Loaded graphs of the group use the new arenas from
 * then on; if that fails, all stays as it was. Waits for inferences that run on the device. */
gputune_code gputune_grow(gputune_group *group, const gputune_file *file, gputune_error *error);
/* Close a group whose graphs are unloaded. Those may be loaded and unloaded at any time before. */
void gputune_close_group(gputune_group *group);
/* Return the bytes of all arenas of all streams. */
size_t gputune_group_bytes(const gputune_group *group);
/* Return the bytes that an arena has in each stream; 0 after the last arena. */
size_t gputune_group_arena(const gputune_group *group, size_t place);
/* Return the bytes of the weights that loaded graphs of the group use. */
size_t gputune_group_weights(const gputune_group *group);

typedef struct gputune_shape {
    const char *input;
    size_t rank;
    size_t shape[GPUTUNE_MOST_DIMENSIONS];
} gputune_shape;

typedef struct gputune_load_options {
    const char *graph;           /* its name; NULL: by shapes, else the first */
    const gputune_shape *shapes; /* of inputs; selects the graph that takes them */
    size_t shape_count;
    bool strict;              /* refuse a context for another device; default: build it from source */
    bool one_by_one;          /* no persistent kernels, and no recorded queue */
    gputune_group *group;     /* NULL: its own arenas */
    const char *perf_profile; /* preset with the clocks and power to vote for around inferences; NULL: no vote */
    size_t stream;            /* of the group, from 0 on, on which the graph runs */
    const char *const *features; /* of the device, which you have proved: a graph that needs others is not built from
                                    source */
    size_t feature_count;
} gputune_load_options;

/* Load a graph: build programs, copy weights and bind arguments. You may then close `file`, and change it. From a
 * package, the context that fits the device best is loaded. options may be NULL. */
gputune_code gputune_load(gputune_device *device, const gputune_file *file, const gputune_load_options *options,
                          gputune_graph **graph, gputune_error *error);
void gputune_unload(gputune_graph *graph);

const gputune_graph_info *gputune_info(const gputune_graph *graph);
/* Return a cause of unexpected cost, one line each; NULL after the last. */
const char *gputune_warning(const gputune_graph *graph, size_t number);
/* Return which context of a package was loaded and why; "" for other files. */
const char *gputune_choice(const gputune_graph *graph);

/* Says where a tensor is for an inference: `data` of exactly its size, which is copied, or `memory`, which is used in
 * place. PoCL's CPU devices read `data` of inputs of 64 KiB or more in place, until the inference is over. Without
 * names, values are in the graph's order. A name without either stands for an input without elements, which a graph
 * does not have. */
typedef struct gputune_value {
    const char *name; /* NULL: the next one */
    void *data;
    gputune_memory *memory;
} gputune_value;

/* Run one inference and return when the outputs are in place. */
gputune_code gputune_run(gputune_graph *graph, const gputune_value *inputs, size_t input_count,
                         const gputune_value *outputs, size_t output_count, gputune_error *error);

/* Link an output of a graph to an input of another graph on the same stream, for good: both use one buffer, which only
 * the device sees, and neither takes or returns it from then on. Run the first graph and then the second; nothing is
 * copied between them. The first returns before it is over if all that it makes is linked. */
gputune_code gputune_link(gputune_graph *first, const char *output, gputune_graph *second, const char *input,
                          gputune_error *error);

typedef void (*gputune_callback)(void *user, gputune_code code, const gputune_error *error);

/* Start an inference and return at once. A thread of the graph calls the callback when the outputs are in place. Keep
 * what the values point to until then. Inferences begin in the order of the calls. Unloading waits for them. */
gputune_code gputune_run_async(gputune_graph *graph, const gputune_value *inputs, size_t input_count,
                               const gputune_value *outputs, size_t output_count, gputune_callback callback, void *user,
                               gputune_error *error);

/* Make inferences from now on vote for clocks and power as the preset says; NULL ends that. */
gputune_code gputune_set_perf_profile(gputune_graph *graph, const char *preset, gputune_error *error);

/* Make inferences from now on run by launches and not by persistent kernels; false lets them run by those where they
 * pay. Launches still run as a recorded queue where that is faster. */
void gputune_set_one_by_one(gputune_graph *graph, bool one_by_one);
/* Return whether inferences may run by persistent kernels here. */
bool gputune_has_persistent(const gputune_graph *graph);
/* Return how the last inference ran that no profile has recorded launch by launch: by "launches"; by launches that were
 * "recorded" and enqueued at once; by "persistent" kernels; or "aborted", begun by those and ended by launches. Before
 * the first inference it returns "launches". */
const char *gputune_last_form(const gputune_graph *graph);

/* Counts how inferences ran, and what they copied between your memory and the device's. */
typedef struct gputune_counters {
    uint64_t inferences, persistent, aborted, launches;
    uint64_t bytes_copied, writes, reads, maps, allocations;
    uint64_t recorded;   /* inferences by launches as a recorded queue */
    uint64_t elapsed_ns; /* from before the first input is written until the last output is read, without votes */
    uint64_t attempts;   /* begun by persistent kernels to test whether they pay again */
    uint64_t warnings;   /* lines that gputune_warning has; not counted for the last inference */
} gputune_counters;

void gputune_counters_of(gputune_graph *graph, gputune_counters *total, gputune_counters *last);
/* Write where the counts lie until the graph is unloaded. Read them while no inference runs: that waits for nothing. */
void gputune_counters_at(const gputune_graph *graph, const gputune_counters **total, const gputune_counters **last);

/* Counts the memory operations of one input or output. */
typedef struct gputune_tensor_counters {
    uint64_t bytes_copied;  /* between your memory and the device's */
    uint64_t writes, reads; /* copies into the device's memory and out of it */
    uint64_t maps;          /* pairs of unmap and map, for memory that is not coherent */
    uint64_t allocations;   /* of device memory for the tensor */
    const char *reason;     /* why the last copy was made, or ""; stays valid until the graph is unloaded */
} gputune_tensor_counters;

/* Write what all inferences and the last one did for an input or output, by its place in the graph's description; zeros
 * for a place that does not exist. A pointer may be NULL. */
void gputune_tensor_counters_of(gputune_graph *graph, bool output, size_t place, gputune_tensor_counters *total,
                                gputune_tensor_counters *last);
/* Write what loading did for an input or output. */
void gputune_load_counters_of(gputune_graph *graph, bool output, size_t place, gputune_tensor_counters *load);

/* --- states ------------------------------------------------------------------------------------------------------ */

/* A graph may have outputs that are inputs of its next inference, as decoders and recurrent models have. You may give
 * and take them as other tensors, or open a state: memory of the device, zeros at first, through which no byte passes
 * to the host. A state is for one thread at a time. It may be closed after its graph is unloaded. */

/* Open a state for a graph, and for those that remember the same in as many rows or fewer: of a context that has graphs
 * for 8 tokens and for 1, both use one state. Open it for a graph with the most rows where capacities differ. */
gputune_code gputune_open_state(gputune_graph *graph, gputune_state **state, gputune_error *error);
/* Return whether an input or output, by its place in the graph's description, belongs to states of the graph. */
bool gputune_is_remembered(const gputune_graph *graph, bool output, size_t place);
/* Make inferences from now on use a state; NULL ends that. Give no value then for what belongs to it, and give others
 * by their names. A good inference moves the state on; after another one, it is as it was before. */
gputune_code gputune_use_state(gputune_graph *graph, gputune_state *state, gputune_error *error);
/* Choose the graph that is to run next: of those that use the state and add so many tokens, the one with the fewest
 * rows in which they have room. If another one has run before, what is remembered is moved, on the device. Give 0
 * tokens for a state that does not grow. */
gputune_code gputune_state_graph(gputune_state *state, size_t tokens, gputune_graph **graph, gputune_error *error);
/* Return how many rows are remembered, and how many there is room for; both are 0 of a state that does not grow. */
size_t gputune_state_length(const gputune_state *state);
size_t gputune_state_capacity(const gputune_state *state);
/* Return the bytes of device memory of a state. */
size_t gputune_state_bytes(const gputune_state *state);
/* Forget rows behind the first `length`, such as those of padding. A state with a tensor that does not grow cannot. */
gputune_code gputune_rewind_state(gputune_state *state, size_t length, gputune_error *error);
/* Forget everything. If that fails, everything is remembered. */
gputune_code gputune_reset_state(gputune_state *state, gputune_error *error);
/* Open another state that remembers the same. */
gputune_code gputune_copy_state(gputune_state *state, gputune_state **copy, gputune_error *error);
/* Read what is remembered for an input of this name, which has all rows of the capacity; those behind the length have
 * any content. */
gputune_code gputune_read_state(gputune_state *state, const char *name, void *data, size_t nbytes,
                                gputune_error *error);
/* Close a state; graphs that use it have none from then on. */
void gputune_close_state(gputune_state *state);

/* --- clocks and power -------------------------------------------------------------------------------------------- */

/* Votes for clocks and power need neither a graph nor OpenCL. The strongest of all live votes of this user's processes
 * is in force, for each field. What controls contained before comes back when the last vote ends. If its process was
 * killed, the next process that looks brings that back. A control that cannot be written makes nothing fail. */

/* Places in a vote. Bus and core have three each: the least, the target and the most of a corner. A corner is 0 for no
 * vote, else from 1, the lowest frequency of a clock, to 9, its highest. */
enum {
    GPUTUNE_BUS, GPUTUNE_CORE = 3,
    GPUTUNE_HELD = 6,             /* 1: no governor scales the clocks, which stay at their target */
    GPUTUNE_HIGH_PERFORMANCE = 7, /* 1: a processor prefers performance */
    GPUTUNE_POWER_MODE = 8,       /* 0 saves much power, 1 saves power, 2 duty cycle, 3 up and down, 4 only up,
                                     5 performance */
    GPUTUNE_LATENCY_US = 9,       /* to wake up at most; INT32_MAX: any */
    GPUTUNE_VOTE_FIELDS = 10
};

typedef struct gputune_vote {
    int32_t at[GPUTUNE_VOTE_FIELDS];
} gputune_vote;

typedef enum gputune_phase { GPUTUNE_INIT, GPUTUNE_EXECUTE, GPUTUNE_DEINIT } gputune_phase;

/* Says what an instance asks for in each phase. */
typedef struct gputune_perf_settings {
    gputune_vote start[3], done[3]; /* when a phase begins, and when it has ended */
    uint64_t hysteresis_us;         /* how long the start vote of an inference stays in force behind it */
    bool asynchronous;              /* phases never wait for their votes, else 15 ms at most */
} gputune_perf_settings;

/* Write the settings of a preset, such as "burst". You may change them. */
gputune_code gputune_preset(const char *name, gputune_perf_settings *settings, gputune_error *error);

/* Find the controls of a device by its type ("cpu" or another), vendor and name, below a folder. device_type NULL: all
 * controls. root NULL: "/". */
gputune_code gputune_open_power(const char *device_type, const char *vendor, const char *name, const char *root,
                                gputune_power **power, gputune_error *error);
/* Close controls whose votes are closed. Waits 3 s at most for a control that is slow; then a thread goes on. */
void gputune_close_power(gputune_power *power);
/* Return what names the controls, the same in all processes. */
const char *gputune_power_key(const gputune_power *power);
/* Return what could not be done, one line each; NULL after the last. */
const char *gputune_power_warning(const gputune_power *power, size_t number);

/* Begin to vote as an instance; its first phase votes first. */
gputune_code gputune_open_votes(gputune_power *power, const gputune_perf_settings *settings, gputune_votes **votes,
                                gputune_error *error);
/* Vote by other settings from the next phase on; if no phase runs, the done vote of the last one counts at once. */
gputune_code gputune_set_votes(gputune_votes *votes, const gputune_perf_settings *settings, gputune_error *error);
/* Vote when a phase begins, and when it has ended, whatever became of it. Of phases that run at once the last one
 * ends the vote. A vote equal to the one before makes no system call. Without votes (NULL) nothing is done. */
gputune_code gputune_begin_phase(gputune_votes *votes, gputune_phase phase, gputune_error *error);
gputune_code gputune_end_phase(gputune_votes *votes, gputune_phase phase, gputune_error *error);
/* Take the vote back. */
void gputune_close_votes(gputune_votes *votes);

/* Describes a control. content: NULL if it cannot be read. refusal: the name of the errno with which a write would
 * fail, or ""; advice: what would allow it. */
typedef struct gputune_control {
    const char *actuator, *path, *content, *refusal, *advice;
} gputune_control;

/* Describes an end of a clock, or the clock itself, in Hz or us by the end of its name. 0: nothing is asked for, or it
 * cannot be read. */
typedef struct gputune_clock {
    const char *name;
    double requested, effective;
} gputune_clock;

typedef struct gputune_power_state {
    const gputune_control *controls;
    size_t control_count;
    const gputune_clock *clocks;
    size_t clock_count;
    uint64_t honoured; /* a bit for each place in a vote that a control makes something of */
} gputune_power_state;

/* Read the controls now. Pointers stay valid until the next call with these controls. */
gputune_code gputune_read_power(gputune_power *power, gputune_power_state *state, gputune_error *error);
/* Write what was requested for the last vote in force, and what the clocks were then; return how many there are, of
 * which `most` are written. 0: no vote of this process is in force, or a control has been slow for 15 ms. */
size_t gputune_live_clocks(gputune_power *power, gputune_clock *clocks, size_t most);

/* Says what would be written: for the vote at place `step`, or behind the last vote for the way back. */
typedef struct gputune_write {
    size_t step;
    const char *path, *value;
} gputune_write;

/* Find what would be written for some votes, one after the other, from now on; nothing is. Pointers stay valid until
 * the next call with these controls, on which no instance may vote. */
gputune_code gputune_plan(gputune_power *power, const gputune_vote *votes, size_t count, gputune_write *writes,
                          size_t most, size_t *found, gputune_error *error);

typedef void (*gputune_line)(void *user, const char *line);

/* Bring back what killed processes have left, for all controls below a folder. Each change and each process that still
 * votes is a line. root NULL: "/". */
gputune_code gputune_restore(const char *root, gputune_line line, void *user, gputune_error *error);

/* --- profiling --------------------------------------------------------------------------------------------------- */

typedef enum gputune_level { GPUTUNE_BASIC, GPUTUNE_DETAILED, GPUTUNE_QHAS } gputune_level;

/* Open a log for `gputune profile-viewer`. It records whole inferences; at level detailed, start and end of each
 * launch; at level qhas, also when a launch was queued and submitted, counters of the system, clocks, load and
 * temperatures. path: a file, which is replaced; NULL: records are kept until you take them. */
gputune_code gputune_open_profile(gputune_device *device, const char *path, gputune_level level,
                                  gputune_profile **profile, gputune_error *error);
/* Record the inferences of a graph from now on; NULL ends that. You may change it before each inference. */
gputune_code gputune_record(gputune_graph *graph, gputune_profile *profile, gputune_error *error);
/* Run and record the inferences of a graph from now on as persistent kernels that mark when each launch inside of them
 * began and ended; the profile has level qhas. Fails with GPUTUNE_CANNOT_MARK where that is impossible; the line says
 * why. The first inference loads code and is not recorded, and neither is one that persistent kernels give up. The
 * others are written together: by gputune_write_marks, and when the graph is unloaded or the profile closed. */
gputune_code gputune_record_marked(gputune_graph *graph, gputune_profile *profile, gputune_error *error);
gputune_code gputune_write_marks(gputune_profile *profile, gputune_error *error);
/* Take bytes of the records of a profile without a file, in order. A record is there when its inference has ended.
 * nbytes: the room in data before, the bytes taken after. data NULL: only count what is there. */
gputune_code gputune_profile_take(gputune_profile *profile, void *data, size_t *nbytes, gputune_error *error);
gputune_code gputune_close_profile(gputune_profile *profile, gputune_error *error);

#ifdef __GNUC__
#pragma GCC visibility pop
#endif
#ifdef __cplusplus
}
#endif
#endif
