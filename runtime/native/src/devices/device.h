/* An open OpenCL device, by OpenCL 1.2 calls through function pointers. */
#ifndef GPUTUNE_DEVICE_H
#define GPUTUNE_DEVICE_H

#include "../files/context.h"
#include "opencl.h"
#include "../files/threads.h"

#include <sys/types.h>

/* A queue, whose commands run in the order in which they are given, with its turn. Graphs on different streams run at
 * the same time. A device has one of its own; groups make others. */
typedef struct stream {
    gputune_device *device;
    cl_command_queue queue;
    mutex turn; /* what uses the queue, or changes a graph that runs on it, holds it */
    bool runs_on; /* an inference that has returned may still run */
    struct stream *next; /* of the device's */
} stream;

struct gputune_device {
    opencl cl;
    cl_platform_id platform;
    cl_device_id id;
    cl_context context;
    stream stream;     /* the first of its streams */
    identity identity; /* its `driver` is "": of which .icd file a platform is, OpenCL does not say */
    pool pool;
    bool is_cpu, is_unified; /* unified: without memory of its own */
    bool svm_pointers;                          /* kernels take pointers into shared virtual memory */
    bool fine_grain_buffers, fine_grain_system; /* shared virtual memory that needs no commands */
    bool is_given;      /* the context is one that the application has opened */
    bool shares_memory; /* a CPU device that reads and writes the host's memory itself */
    pid_t process;      /* which has opened it */
    mutex turn;         /* what changes the context, or what follows, holds it: before the turn of any stream */
    size_t users;       /* graphs, groups, memory and profiles: what needs the context */
    size_t held_bytes;  /* of graphs and groups, with atomics */
    gputune_graph *graphs;
    mutex claims; /* of memory that is mapped, by inferences */
    condition released;
    struct importing *importing; /* importing.c: what memory it takes; NULL: it was not asked yet */
    struct touch { /* touch.c makes what closing the context gives back */
        mutex turn;
        cl_command_queue queue;
        cl_mem memory;
        cl_program program;
        cl_kernel kernel;
    } touch;
};

typedef struct found_device {
    cl_platform_id platform;
    cl_device_id id;
    size_t ordinal; /* among the devices of its platform */
    identity identity;
} found_device;
enum { MOST_DEVICES = 64 };
/* The devices of all platforms of the library, at most so many, as Python's discovery lists them: a platform that the
 * library names twice counts once. The device's pool has their texts. */
size_t find_devices(gputune_device *device, found_device *found, size_t most);

/* Whether this process has opened the device, and is no fork of that one: a fork has neither the driver's threads, for
 * which it would wait for ever, nor this library's, which may have held the turn. It only gives back its own memory. */
bool is_here(const gputune_device *device);
gputune_code check_here(const gputune_device *device, gputune_error *error);
/* Takes the turns of the device and of all its streams: nothing else runs. In a fork, where there is one thread, this
 * and what follows take nothing. */
void device_take(gputune_device *device);
void device_leave(gputune_device *device);
/* Takes the turn of a stream, for what uses its graphs and memory that is there. */
void stream_take(stream *stream);
void stream_leave(stream *stream);
/* Takes the turns of a stream and of its device, for what changes which graphs there are; other streams go on. */
void change_take(stream *stream);
void change_leave(stream *stream);
/* Makes one more stream of a device; no graph may run on one that is closed; closing takes NULL, too. */
gputune_code stream_open(gputune_device *device, stream **stream, gputune_error *error);
void stream_close(stream *stream);
/* Counts what needs the context. A CPU device's is closed with the last of them and opened again for the next, which
 * fails if that fails: PoCL keeps some of each program that it has built, until no context is left in the process. GPUs
 * take long to make a context. What calls these has no turn. */
gputune_code add_user(gputune_device *device, gputune_error *error);
void remove_user(gputune_device *device);
/* What clGetDeviceInfo says; shorter numbers fill the start of it. 0: an error. */
uint64_t number_of(const gputune_device *device, cl_device_id id, cl_uint what);
/* A status of OpenCL by its name, or in `room` by its number where OpenCL's headers have none. */
enum { STATUS_CHARACTERS = 24 };
const char *status_text(cl_int status, char room[STATUS_CHARACTERS]);
/* A code for a status of OpenCL, with what was done and the status in the message where it is an error. */
gputune_code checked(gputune_error *error, const char *what, cl_int status);

/* New memory of the device, which clReleaseMemObject gives back; host: NULL, or what flags say about it. */
gputune_code allocate(gputune_device *device, cl_bitfield flags, size_t nbytes, const void *host, cl_mem *memory,
                      gputune_error *error);
/* waits: until the copy is made, else finishing the stream does. */
gputune_code write_buffer(const stream *stream, cl_mem memory, size_t offset, const void *data, size_t nbytes,
                          bool waits, gputune_error *error);
gputune_code read_buffer(const stream *stream, cl_mem memory, void *data, size_t nbytes, bool waits,
                         gputune_error *error);
gputune_code fill_buffer(const stream *stream, cl_mem memory, int32_t pattern, size_t nbytes, gputune_error *error);
gputune_code finish(const stream *stream, gputune_error *error);

/* verdict.c. How a context's graph (NULL: all of them) fits the device, and why it does not fit best. */
typedef enum verdict { OPTIMAL, PREFER_RECOMPILATION, UNSUPPORTED } verdict;
enum { REASON_BYTES = 400 };
verdict verdict_on(const context *context, const char *graph, const identity *device, char reason[REASON_BYTES]);
/* Whether a graph needs features that are not among those proved, and which, each with the reason. A proof may end its
 * process, so C makes none: it trusts binaries that were made for the device, and builds nothing from source without
 * proofs. */
enum { LACKING_BYTES = 1024 };
bool lacks_features(const context *context, const graph_record *graph, const char *const *proved, size_t proved_count,
                    char lacking[LACKING_BYTES]);
/* The contexts of a file that are meant, from a place to an end: all of them, or of a package the one that fits the
 * device best, with the choice in words. */
gputune_code choose_contexts(const gputune_file *file, const identity *device, const char *graph, size_t *place,
                             size_t *end, char choice[REASON_BYTES], gputune_error *error);

#endif
