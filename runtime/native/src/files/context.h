/* What a context binary holds, once it was read and checked: as runtime/context/records.py has it. Texts are copied and
 * end with 0; all of it lies in one pool, which goes with the file. */
#ifndef GPUTUNE_CONTEXT_H
#define GPUTUNE_CONTEXT_H

#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* POSIX beside C99 */
#endif

#include "gputune.h"

#include <stdarg.h>

typedef gputune_identity identity;

typedef enum buffer_kind { INPUT, OUTPUT, ARENA, WEIGHTS, PACKED, COUNTERS, STATUS, MARKS, BUFFER_KINDS } buffer_kind;
/* MARKS: memory of a profiler, which no file names. */
enum { STATUS_BYTES = 64, FLAG = 0, ROUNDS = 1, LONGEST = 2 }; /* 32-bit places of the status */
enum { OFFSET_BYTES = 16 };

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
    const size_t *writes; /* places of arguments */
    size_t write_count;
    bool offsets;        /* its kernel takes each buffer as a whole and an offset in units of OFFSET_BYTES */
    bool counts, yields; /* a persistent kernel, and one that leaves where it has waited too long */
} launch;

typedef enum memory_type { RAW, MEMHANDLE } memory_type; /* MEMHANDLE: no memory of its own before it is needed */

typedef struct tensor_record {
    gputune_tensor shown; /* what gputune_graph_info has */
    memory_type memory_type;
} tensor_record;

enum { FIXED = -1 };
typedef struct state_pair { /* an output that becomes an input of the next inference */
    const char *input, *output;
    int64_t axis; /* of the rows that grow, or FIXED */
} state_pair;
typedef struct token_axis { /* an input or output with a row for each token */
    const char *name;
    size_t axis;
} token_axis;
typedef struct state_record { /* what a graph remembers between inferences; without pairs: nothing */
    const char *length; /* the input that says how many rows are there; "": all pairs are fixed */
    size_t tokens, capacity; /* rows that an inference adds, and rows of growing pairs */
    const token_axis *token_inputs, *token_outputs;
    const state_pair *pairs;
    size_t token_input_count, token_output_count, pair_count;
    bool whole; /* an inference sees exactly so many tokens; what fills up a part of them would show */
} state_record;

typedef struct graph_record {
    gputune_graph_info info;
    const tensor_record *inputs, *outputs; /* how many there are says info, and how many launches */
    const launch *launches, *persistent;
    size_t persistent_count;
    const size_t *arenas; /* bytes of each */
    size_t arena_count, counter_bytes;
    uint64_t arena_bound_bytes; /* what no plan of the arenas can do without; 0: unknown */
    enum { SUB_BUFFERS, BUFFERS, SVM, OFFSETS } argument_form; /* how launches are given what lies in arenas */
    bool one_by_one;            /* the configuration wants no recorded queue */
    state_record states;
} graph_record;

typedef struct section {
    const char *kind;
    uint64_t at;     /* in the file */
    uint64_t offset; /* in the section area of a file of its own */
    size_t nbytes;      /* in the file */
    const char *sha256; /* of these, in hex */
    size_t inflated;    /* what they become by DEFLATE; 0: they are the content. Weights are */
} section;

typedef struct program_entry {
    size_t binary, source; /* sections */
    size_t need_count;
    const char *options, *const *needs; /* needs: features of the device, without which only its binary is run */
} program_entry;

typedef struct file_record { /* a file by its name, and its SHA-256 in hex */
    const char *name, *sha256;
} file_record;

typedef struct model_record { /* a model file that graphs were made from */
    const char *name, *sha256;
    file_record *weights;
    const char *const *graphs;
    size_t weight_count, graph_count;
} model_record;

typedef struct context {
    const char *path, *name, *tier; /* name: of a package's context, else "" */
    const struct source *source;    /* the open file that has its sections */
    bool computes;
    bool by_elements; /* kernels may read inputs at any address that suits their elements: none is of an op package */
    identity device;
    graph_record *graphs, *packing; /* packing: each fills its arena, which graphs read, from weights */
    program_entry *programs;
    size_t *weights; /* sections */
    section *sections;
    model_record *models;        /* none in older files */
    const char *const *requires; /* features */
    size_t model_count, require_count, graph_count, packing_count, program_count, weight_count, section_count;
} context;

/* The same file once more, which gputune_close gives back: records and sections live as long as an owner. */
gputune_file *another_owner(const gputune_file *file);
/* The context at a place of a file: read and checked when it is asked for first. */
gputune_code context_at(const gputune_file *file, size_t place, const context **found, gputune_error *error);
/* Of a package the device of an entry is known without opening it. */
const identity *context_identity(const gputune_file *file, size_t place);
bool context_computes(const gputune_file *file, size_t place);
/* Where a graph of this name is; NULL: the first one. Of an ONNX file the name is a node's, and `graph` becomes that of
 * the context; of a package it's in each context, and `place` stays as it is. */
gputune_code find_graph(const gputune_file *file, const char *name, size_t *place, size_t *graph, gputune_error *error);
/* A section that is read piece by piece, each into memory of the caller's. */
typedef struct reading {
    const struct source *source;
    const char *path; /* how errors call the file */
    const section *section;
    size_t place, done; /* done: bytes that were read */
    uint32_t state[8];
} reading;
reading begin_reading(const struct source *source, const char *path, const section *section, size_t place);
/* Reads the next piece: as many bytes as there is room for, a multiple of 64, or all that are left. Behind the last one
 * the section's digest is compared with that of these very bytes; before that none of them may be used. */
gputune_code read_piece(reading *reading, void *into, size_t room, size_t *nbytes, gputune_error *error);
/* The content of a section, which is what was written, in memory that is to be freed; and how long it is. */
gputune_code copy_section(const context *context, size_t place, uint8_t **content, gputune_error *error);
size_t content_bytes(const section *section);
/* The same in two steps, for what may never be used: its bytes as they lie in the file, and what they are, once they
 * are used; that frees them. */
gputune_code keep_section(const context *context, size_t place, uint8_t **kept, gputune_error *error);
gputune_code open_section(const context *context, size_t place, uint8_t *kept, uint8_t **content, gputune_error *error);
/* Whether a launch's sizes are such as a device allows; else why not. */
bool sizes_fit(const launch *launch, const identity *device, char *why, size_t nbytes);

/* --- errors and memory, for all files --- */

/* Fills the error, where there is one, and returns the code. */
#ifdef __GNUC__
#define LIKE_PRINTF(format_at, first_at) __attribute__((format(printf, format_at, first_at)))
#else
#define LIKE_PRINTF(format_at, first_at)
#endif
gputune_code fail(gputune_error *error, gputune_code code, const char *format, ...) LIKE_PRINTF(3, 4);
/* Writes a text as vsnprintf does; if there is no room for all of it, it ends with a whole character. */
void write_text(char *text, size_t room, const char *format, va_list values);
/* Takes what begins a character of UTF-8, and does not end it, off the end of a text that was cut. */
void cut_text(char *text);
#define TRY(call) \
    do { \
        const gputune_code failed_code = (call); \
        if (failed_code) return failed_code; \
    } while (0)
#define NO_MEMORY fail(error, GPUTUNE_OUT_OF_MEMORY, "there is not enough memory")

/* Memory that is freed at once. Zeroed; NULL where there is none. */
typedef struct pool {
    struct block *blocks;
} pool;
void *pool_take(pool *pool, size_t count, size_t nbytes);
const char *pool_text(pool *pool, const char *text, size_t length);
void pool_free(pool *pool);

void sha256(const uint8_t *data, size_t nbytes, uint8_t digest[32]);
void hex(const uint8_t digest[32], char text[65]);
/* The same of pieces: begin, add blocks of 64 bytes, and end with the rest; nbytes: of all together. */
void sha256_begin(uint32_t state[8]);
void sha256_add(uint32_t state[8], const uint8_t *blocks, size_t nbytes);
void sha256_end(uint32_t state[8], const uint8_t *rest, size_t left, uint64_t nbytes, uint8_t digest[32]);

#endif
