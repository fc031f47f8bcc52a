/* What a context binary holds, once it was read and checked: as runtime/context/records.py has it. Texts are copied and
 * end with 0; all of it lies in one pool, which goes with the file. */
#ifndef GPUTUNE_CONTEXT_H
#define GPUTUNE_CONTEXT_H

#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* POSIX beside C99, and madvise */
#endif

#include "gputune.h"

typedef struct identity {
    const char *platform, *platform_version, *name, *vendor, *driver_version, *device_version, *device_type, *driver;
    uint64_t compute_units, max_work_group_size, max_work_item_sizes[3], local_memory_bytes, global_memory_bytes,
        max_allocation_bytes, base_address_alignment_bytes, preferred_float_width;
    const char *const *extensions;
    size_t extension_count;
} identity;

typedef enum buffer_kind { INPUT, OUTPUT, ARENA, WEIGHTS, COUNTERS, STATUS, BUFFER_KINDS } buffer_kind;
enum { STATUS_BYTES = 64, FLAG = 0, ROUNDS = 1, LONGEST = 2 }; /* 32-bit places of the status */

typedef struct argument {
    bool is_buffer;
    int32_t scalar;
    buffer_kind kind;
    size_t index, offset, nbytes;
} argument;

typedef struct launch {
    const char *operation, *task, *entry;
    size_t program, dimensions, global_size[3], local_size[3];
    const argument *arguments;
    size_t argument_count;
    bool counts, yields; /* a persistent kernel, and one that leaves where it has waited too long */
} launch;

typedef enum memory_type { RAW, MEMHANDLE } memory_type; /* MEMHANDLE: no memory of its own before it is needed */

typedef struct graph_record {
    gputune_graph_info info;
    const launch *launches, *persistent;
    size_t persistent_count; /* how many launches there are says info */
    const size_t *arenas;    /* bytes of each */
    size_t arena_count, counter_bytes;
    uint64_t arena_bound_bytes; /* what no plan of the arenas can do without; 0: unknown */
    const memory_type *input_handles, *output_handles;
} graph_record;

typedef struct section {
    const char *kind;
    const uint8_t *data; /* in the map */
    uint64_t offset;     /* in the section area of a file of its own */
    size_t nbytes;
    const char *sha256; /* in hex */
    int verified;       /* with atomics: 0 not yet, 1 is what was written */
} section;

typedef struct program_entry {
    size_t binary, source; /* sections */
    const char *options;
} program_entry;

typedef struct context {
    const char *path, *name, *tier; /* name: of a package's context, else "" */
    bool computes;
    identity device;
    graph_record *graphs;
    program_entry *programs;
    size_t *weights; /* sections */
    section *sections;
    size_t graph_count, program_count, weight_count, section_count;
} context;

/* The same file once more, which gputune_close gives back: records and sections live as long as an owner. */
gputune_file *another_owner(const gputune_file *file);
/* Gives back the memory that its mapped bytes take; they are there again when they are read. */
void forget_pages(const gputune_file *file);
/* The context at a place of a file: read and checked when it is asked for first. */
gputune_code context_at(const gputune_file *file, size_t place, const context **found, gputune_error *error);
/* Of a package the device of an entry is known without opening it. */
const identity *context_identity(const gputune_file *file, size_t place);
bool context_computes(const gputune_file *file, size_t place);
/* Where a graph of this name is; NULL: the first one. Of an ONNX file the name is a node's, and `graph` becomes that of
 * the context; of a package it's in each context, and `place` stays as it is. */
gputune_code find_graph(const gputune_file *file, const char *name, size_t *place, size_t *graph, gputune_error *error);
/* The bytes of a section, which are those that were written. */
gputune_code section_bytes(const context *context, size_t place, const uint8_t **data, size_t *nbytes,
                           gputune_error *error);
/* Whether a launch's sizes are such as a device allows; else why not. */
bool sizes_fit(const launch *launch, const identity *device, char *why, size_t nbytes);

/* --- errors and memory, for all files --- */

/* Fills the error, where there is one, and returns the code. */
gputune_code fail(gputune_error *error, gputune_code code, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 3, 4)))
#endif
    ;

/* Memory that is freed at once. Zeroed; NULL where there is none. */
typedef struct pool {
    struct block *blocks;
} pool;
void *pool_take(pool *pool, size_t count, size_t nbytes);
const char *pool_text(pool *pool, const char *text, size_t length);
void pool_free(pool *pool);

void sha256(const uint8_t *data, size_t nbytes, uint8_t digest[32]);

#endif
