/* A loaded graph, and what it is made of. */
#ifndef GPUTUNE_GRAPH_H
#define GPUTUNE_GRAPH_H

#include "../memory/importing.h"

#include <stdio.h>

enum { MOST_ARENAS = 64 };

typedef struct bound {
    cl_kernel kernel;
    cl_uint dimensions;
    size_t global_size[3], local_size[3];
} bound;

/* Memory or a program, given back with its owner, or with the last of its users; with a key it is found again. host:
 * shared virtual memory; nbytes: of memory that users have in common. */
typedef struct held {
    struct held *next;
    const char *key;
    size_t users;
    cl_mem memory;
    void *host;
    size_t nbytes; /* of memory, which the device counts */
    cl_program program;
    char text[]; /* the key's */
} held;
typedef struct holdings {
    held *first;
} holdings;

/* What a tensor, an arena or a section has for memory, and which ranges of it launches use. */
typedef struct place {
    cl_mem memory; /* not owned here */
    char *pointer; /* where launches find it in shared virtual memory, else NULL */
    size_t nbytes;
    struct range {
        struct range *next;
        size_t offset, nbytes;
        cl_mem memory, wanted; /* the place's, or a part of it that is owned here */
        struct use {
            struct use *next;
            cl_kernel kernel;
            cl_uint argument;
        } *uses;
    } *ranges;
} place;

/* An input or output. own: memory of its own, once it is needed. In an inference: data: what is copied; memory: what is
 * used as it lies, or copied where the device cannot. */
typedef struct tensor {
    const gputune_tensor *record;
    const char *kind; /* "input" or "output" */
    bool for_handles, given;
    bool linked, copied; /* linked: to another graph, for good; copied: its data is needed no more */
    bool remembered;     /* it belongs to the graph's state */
    cl_mem kept;         /* that state's memory for it in this inference, or NULL */
    place *place;
    held *own;
    void *data;
    gputune_memory *memory;
    struct lent *lent; /* lending.c: buffers on the arrays that were given last */
    gputune_tensor_counters total, last; /* last: of the inference that runs, or ran */
} tensor;

typedef struct persistent persistent; /* persistent.c: breaker, calibration, counts of runs */
typedef struct recorded recorded;     /* recorded.c: the launches as a recorded queue */
typedef struct recorder recorder;     /* profile.c */
typedef struct marked marked;         /* marked.c: the persistent kernels with marks */
typedef struct async async;           /* async.c: a thread and a queue of inferences */

struct gputune_graph {
    gputune_graph *next; /* of the device's */
    gputune_device *device;
    stream *stream;        /* of the device's, on which it runs */
    gputune_file *file;    /* the graph is one of its owners */
    const context *context;
    const graph_record *record;
    gputune_group *group; /* NULL: its own arenas */
    size_t lane;          /* of its stream in the group */
    holdings own, *shared; /* shared: weights and programs, a group's or its own */
    struct used {
        struct used *next;
        held *held;
    } *used; /* of those that are a group's */
    pool pool;
    char choice[REASON_BYTES];
    bool strict, from_binaries, one_by_one, is_ready; /* ready: launches are */
    const char *lacking; /* features that it needs and that are not proved; NULL: none, it may be built from source */
    enum { UNKNOWN, READS_IN_PLACE, NEEDS_COPIES } reading; /* lending.c: of its device */
    bool by_launches; /* persistent kernels are not to be used now */
    bool over; /* all that the inference has enqueued so far is finished */
    const char *form; /* of the last inference that was not recorded launch by launch */
    cl_program *programs;                 /* by their index, those that are loaded */
    uint8_t **copies;                     /* of sections, by their index: what launches need that are loaded later */
    bound *launches, *kernels;            /* kernels: of the persistent form; a kernel of NULL behind the last */
    place *places[BUFFER_KINDS];
    size_t place_counts[BUFFER_KINDS];
    tensor *tensors; /* inputs, then outputs */
    size_t tensor_count;
    struct warning {
        struct warning *next;
        const char *text;
    } *warnings, *reasons; /* reasons: why tensors were copied */
    persistent *persistent; /* NULL: launches one by one */
    recorded *recorded;     /* NULL: launches are enqueued */
    bool asked;             /* recorded.c: it is known how the device records launches */
    recorder *recorder, *recorders; /* NULL or one of these: what records the next inference */
    marked *marked; /* NULL: it has no persistent form */
    gputune_state *state;     /* that inferences use; NULL: none */
    struct remembered *pairs; /* states.c: the tensors of states, once they are known */
    tensor *length;           /* the input that says how many rows a state has; NULL: it does not grow */
    async *async;
    gputune_votes *votes;
    uint64_t load_ns;
    gputune_counters total, last;
};

struct gputune_group {
    gputune_device *device;
    holdings shared; /* weights and programs of all its graphs */
    struct group_stream {
        stream *stream; /* the first is the device's own, others are the group's */
        place arenas[MOST_ARENAS];
    } *streams;
    size_t stream_count, arena_count;
};

/* warnings.c: adds a line that gputune_warning gives. */
void warn(gputune_graph *graph, const char *format, ...);

/* binding.c: has launches use this memory in a place from now on; where that fails all is as before. */
gputune_code use_memory(gputune_graph *graph, place *place, cl_mem memory, size_t nbytes, gputune_error *error);
/* binding.c: the kernels of launches, whose programs are loaded, with their arguments; unbind takes them back. */
gputune_code bind_launches(gputune_graph *graph, const launch *launches, size_t count, bound **bounds,
                           gputune_error *error);
void unbind(gputune_graph *graph);

/* holdings.c: a new one with nothing in it, or NULL. */
held *hold(holdings *holdings, const char *key);
held *held_of(const holdings *holdings, const char *key);
size_t held_bytes(const holdings *holdings);
/* Counts memory that was put into what is held; giving it back takes it off again. */
void count_held(gputune_device *device, held *held, size_t nbytes);
/* Gives back memory, which is not found any more; release_all programs and what is held, too. */
void release_held(gputune_device *device, held *held);
void release_memory(gputune_device *device, holdings *holdings);
void release_all(gputune_device *device, holdings *holdings);
/* Counts a graph as a user of what is held for it and others, until it leaves all of that; false: no memory is left. */
bool use_held(gputune_graph *graph, held *held);
void leave_held(gputune_graph *graph);

/* binding.c: that a tensor is given which is linked, or belongs to a state. */
gputune_code refuse_taken(const gputune_graph *graph, const tensor *tensor, gputune_error *error);

/* async.c: what gputune_run_async needs, and what runs an inference then; closing waits for all that was asked for. */
typedef gputune_code run_one(gputune_graph *graph, const gputune_value *inputs, size_t input_count,
                             const gputune_value *outputs, size_t output_count, gputune_error *error);
gputune_code async_open(gputune_graph *graph, run_one *run, gputune_error *error);
void async_close(async *async);

/* digest.c: of a graph's launches, in hex. */
gputune_code digest_of(const graph_record *record, char hex[65], gputune_error *error);

/* profile.c: as gputune_open_profile, to a stream, which is closed with the profile, or at once where that fails. NULL:
 * records are kept until they are taken. */
gputune_code profile_to(FILE *log, gputune_device *device, gputune_level level, gputune_profile **profile,
                        gputune_error *error);

#endif
