/* A connection, and the device that is open for it. */
#ifndef GPUTUNE_SESSION_H
#define GPUTUNE_SESSION_H

#include "codec.h"
#include "devices/device.h"
#include "graphs/graph.h"
#include "keys.h"

#define GPUTUNE_AGENT_SOFTWARE "gputune-agent"

typedef enum object_kind { NOTHING, BUFFER, PROGRAM, BOUND, KEPT, CONTEXT, STATE } object_kind;

/* Device memory. users: its handle while that is known, and kernels that have it as an argument, since drivers may not
 * keep what a kernel has. */
typedef struct storage {
    cl_mem memory;
    size_t nbytes, users;
} storage;

/* What a handle stands for. The host chooses handles: places in a table, counted from 1. */
typedef struct object {
    object_kind kind;
    storage *buffer;
    cl_program program;
    struct prepared *prepared;
    slice kept; /* bytes of the host, which this has a copy of */
    gputune_graph *graph;
    gputune_state *state;
} object;

typedef struct session {
    int descriptor;
    frame_reader frames;
    frame_mac in, out;
    frame_limits limits;
    outgoing outgoing;
    gputune_device *device; /* NULL until it is open */
    gputune_device *listed;
    gputune_device *runner; /* the same device, as an application opens it, for contexts; NULL before the first one */
    gputune_profile *profile;
    char *log; /* of the profile, if one is open */
    size_t log_bytes;
    uint64_t place; /* of the device, in the list */
    gputune_votes *votes;
    bool profiling; /* launches have the device's clock */
    object *objects;
    size_t object_count;
    pool pool;        /* of the message that is answered */
    const char *said; /* more than an error has room for, of the request that failed */
    uint8_t *contents;
    uint64_t id;
    object *named;     /* by the request, if it names one */
    bool is_too_large; /* the message that was to be sent, of which nothing was */
} session;

/* Serves a connection until it ends; returns an exit code, 0 if that is in order. channel: to the process that listens.
 * It opens the device and may be killed at any time. */
int serve(int descriptor, int channel, const uint8_t stretched[KEY_BYTES], const char *salt);
/* Does what a request asks, if it may come now, and says what is missing else. */
gputune_code carry_out(session *session, message_kind kind, const void *asked, void *reply, gputune_error *error);

/* Sends a message with the id of the request that is answered. */
bool say(session *session, message_kind kind, const void *row);

/* --- a request becomes the row of its reply, or an error ---------------------------------------------------------- */

/* session.c has a table of what each of them needs, such as an open device, and asks for that before. */

typedef gputune_code handler(session *session, const void *asked, void *reply, gputune_error *error);
handler list_devices, open_device, allocate_buffer, forget, write_spans, fill_spans, copy_spans, read_spans, read_files,
    keep_data, check_zones, build_program, harvest_program, bind_kernel, launch_first, time_pass, load_context,
    run_context, open_state, reset_state, read_state, begin_profile, end_profile, set_votes, cast_vote;
void forget_all(session *session);
void close_runner(session *session);

/* The devices that the OpenCL library shows, or an error. */
gputune_code devices_of(session *session, found_device **found, size_t *count, gputune_error *error);
/* The object of a handle, or an error. */
gputune_code object_of(session *session, uint64_t handle, object_kind kind, object **found, gputune_error *error);
/* A new object of a kind for a handle that is free, or an error. */
gputune_code new_object(session *session, uint64_t handle, object_kind kind, object **made, gputune_error *error);
/* Takes memory for contents that a reply has, which is freed once that was sent. */
gputune_code take_contents(session *session, size_t nbytes, gputune_error *error);
/* The buffer of a span, which lies inside of it, or an error. */
gputune_code memory_of(session *session, const span *span, storage **found, gputune_error *error);
/* Begins to copy a span to the host, where its bytes are once all is finished. */
gputune_code begin_read(session *session, const span *span, void *into, gputune_error *error);
void *reply_rows(session *session, size_t count, size_t nbytes, gputune_code *code, gputune_error *error);

/* A kernel with its sizes and arguments. */
typedef struct prepared {
    cl_kernel kernel;
    cl_uint dimensions;
    size_t global_size[3], local_size[3];
    storage **buffers; /* that are arguments */
    size_t buffer_count;
    cl_mem *parts;                 /* of buffers that are arguments */
    size_t part_count;
} prepared;
void release_prepared(session *session, prepared *prepared);
/* A buffer has one user less; with its last one its memory goes. */
void leave_buffer(session *session, storage *buffer);

#endif
