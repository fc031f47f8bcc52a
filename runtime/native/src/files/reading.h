/* What the readers of files share: MsgPack, the forms of its maps, and open files. */
#ifndef GPUTUNE_READING_H
#define GPUTUNE_READING_H

#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE 700 /* realpath, and clocks of threads: for the system's headers, which come after */
#endif
#include "context.h"
#include "threads.h"

#include <stddef.h>

typedef struct slice {
    const uint8_t *data;
    size_t nbytes;
} slice;

/* An open file. Others may write over it or cut it short at any time, which a mapping of it would show as other bytes
 * or as a signal. So it is read into memory of this process, and what is used are bytes that were checked there. */
typedef struct source {
    int descriptor;                /* -1 of bytes in memory */
    const uint8_t *data;           /* those bytes, which the caller keeps */
    uint64_t nbytes;               /* when it was opened, as the times are */
    struct timespec written, made; /* of its content, and of that or its entry */
} source;

typedef struct extent { /* a part of a file */
    const source *source;
    uint64_t at;
    size_t nbytes;
    const uint8_t *data; /* its bytes, where they were read before */
} extent;
extent part_of(extent whole, size_t place, size_t nbytes);

/* Opens a file, and refuses at once what is none: a named pipe or a device would be waited for. */
gputune_code open_source(source *source, const char *path, gputune_error *error);
void close_source(source *source);
/* Reads bytes that it had when it was opened; path: how errors call it. */
gputune_code read_source(const source *source, const char *path, uint64_t at, void *into, size_t nbytes,
                         gputune_error *error);
/* Says of bytes that are not those that were written whether the file was changed since it was opened, or before. */
gputune_code damaged(const source *source, const char *path, const char *what, gputune_error *error);

/* What reads a file. The first thing that is wrong is kept as its code and error; after it everything reads as nothing,
 * so a caller asks for the code once, behind what it has read. */
typedef struct reader {
    pool *pool, scratch; /* scratch: what is read from the file and not kept */
    gputune_error *error;
    const char *path;       /* how errors call the file */
    gputune_code malformed; /* the code of what contradicts its form */
    gputune_code code;
    const char *list; /* whose item is read, for errors */
    size_t place;
    const slice *blobs; /* of a message: what travels beside its header */
    size_t blob_count;
} reader;

/* Says what is wrong, unless something was before. */
void refuse(reader *reader, gputune_code why, const char *format, ...) LIKE_PRINTF(3, 4);
#define MALFORMED(reader, ...) refuse(reader, (reader)->malformed, __VA_ARGS__)

/* --- MsgPack --- */

typedef enum item_kind { MISSING, NIL, BOOL, COUNT, NEGATIVE, REAL, TEXT, BYTES, LIST, MAP, EXTENSION } item_kind;

typedef struct item { /* a value */
    item_kind kind;
    uint64_t number; /* of a bool or a number itself; of a real whether it is finite; items of a list, pairs of a map */
    slice content;   /* of a text or bytes; of a list or map from its first item to the end of all */
} item;

uint32_t little_endian(const uint8_t *bytes); /* of four */
bool is_text(slice text, const char *expected);
/* What a file is by its first bytes in place of what it ought to be, and the remedy, as words behind "it "; "" if they
 * do not tell. */
enum { TELLING_BYTES = 64, ONNX_BEGINS = 0x08 }; /* the latter with the version of its format, as every writer has it */
const char *mistaken(const uint8_t *begin, size_t nbytes);
#define CUT_SHORT "it is cut short: copy it again, or make it again"
/* The bytes of the character that a text begins with, in UTF-8 without surrogates and without longer forms than needed;
 * 0: it is none. */
size_t character_at(slice text);
bool is_utf8(slice text);
/* Whether raw DEFLATE becomes exactly so many bytes, which may be written in any case. */
bool inflate_whole(slice from, uint8_t *to, size_t nbytes);
/* Whether bytes are one value as Python's msgpack reads it: whole, texts in UTF-8, keys texts or bytes, and at most
 * 1024 levels deep. The rest is for bytes that are. */
bool msgpack_valid(slice bytes);
/* Of an extension, which is the byte in front of its content. */
#define EXTENSION_OF(item) ((item).content.data[-1])
item msgpack_first(slice bytes);
/* Takes a value with all that is in it. */
item msgpack_take(slice *rest);

/* --- forms of maps --- */

typedef enum field_kind {
    A_TEXT,    /* const char * */
    A_NAME,    /* the same, one of `names` */
    A_CHOICE,  /* an enum: the place in `names` */
    A_DIGEST,  /* const char *: 32 bytes in hex */
    A_NUMBER,  /* uint64_t or size_t, at most INT64_MAX */
    A_SIGNED,  /* int64_t */
    A_FLAG,    /* bool */
    A_ROW,     /* the structure of `form` */
    A_BLOB,    /* slice, of a message: the bytes stay where they are */
    A_MAP,     /* nothing: whose values are texts or, with `most` levels, JSON */
    SIZES,     /* size_t *, and how many */
    TEXTS,     /* const char **, and how many */
    BLOBS,     /* slice *, and how many */
    ROWS,      /* structures of `form`, and how many */
    THREE,     /* uint64_t[3] */
    DIMENSIONS /* size_t[most], and how many, which are as many as another such field of the row has */
} field_kind;

typedef struct field {
    const char *name;
    field_kind kind;
    size_t offset, bytes, count_offset, most; /* in the row */
    const char *const *names;                 /* NULL behind the last */
    const struct form *form;
    bool optional;
} field;

/* Of a map, or of a list that has the fields in this order; and the row that it becomes. tables.c has all of them. */
typedef struct form {
    const char *what;
    const field *fields;
    size_t count, row_bytes, least_bytes; /* least_bytes: of such a map in a file, which bound what is allocated */
    bool is_list, is_closed;              /* is_closed: it has no other fields */
    void (*check)(reader *reader, void *row);
    void (*read)(reader *reader, item value, void *row); /* where values may be others than maps */
} form;

#define BYTES_OF(type, member) sizeof(((type *)NULL)->member)
#define IN(type, member) .offset = offsetof(type, member), .bytes = BYTES_OF(type, member)
#define MANY(type, member, count) .offset = offsetof(type, member), .count_offset = offsetof(type, count)
/* An array of `number` sizes: of another length it does not compile. */
#define FEW(type, member, count, number) \
    MANY(type, member, count), \
        .most = (number) * sizeof(char[BYTES_OF(type, member) == (number) * sizeof(size_t) ? 1 : -1])

void read_row(reader *reader, const form *form, item value, void *row);
/* Whether two rows of texts, numbers and lists of texts are equal. */
bool same_rows(const form *form, const void *one, const void *other);
/* Memory for so many things. Where there is none that is the reader's error, and there are none of them. */
void *rows(reader *reader, size_t *count, size_t nbytes);
/* Whether no two rows are equal by a comparison as qsort has it, of pointers to rows. */
bool all_differ(reader *reader, const void *rows, size_t count, size_t row_bytes,
                int (*compare)(const void *, const void *));
int by_name(const void *one, const void *other); /* of rows that begin with a text */

/* --- heads of context binaries --- */

typedef struct need { /* of a graph, from the memory block */
    const char *name;
    size_t *arenas, arena_count;
    uint64_t bound;
} need;
typedef struct memory {
    uint64_t alignment;
    need *graphs;
    size_t graph_count;
} memory;

/* tables.c, and what it asks of rows: */
extern const form IDENTITY, ARGUMENT, REQUIREMENTS, HEADER, MEMORY, INDEX;
extern const char *const DTYPES[], *const SECTION_KINDS[], *const FEATURES[];
extern const uint8_t DTYPE_BYTES[];
/* The names of OpenCL's errors; NULL ends them. */
typedef struct status_name {
    int32_t status;
    const char *name;
} status_name;
extern const status_name STATUS_NAMES[];
extern const uint64_t FORMAT_VERSION, REQUIRING_VERSION, LARGEST_HEADER_BYTES, LARGEST_MEMORY_BLOCK_BYTES,
    LARGEST_ARENA_BYTES, LARGEST_TENSOR_BYTES, COUNTER_BYTES, PACKAGE_VERSION, MOST_CONTEXTS, LARGEST_INDEX_BYTES,
    LARGEST_SECTION_BYTES, MOST_INFLATED, LARGEST_CAPACITY;
void check_identity(reader *reader, void *row);
void check_tensor(reader *reader, void *row);
void check_graph(reader *reader, void *row);
void check_section(reader *reader, void *row);
void check_requirements(reader *reader, void *row);
void check_entry(reader *reader, void *row);
void read_argument(reader *reader, item value, void *row);

uint64_t aligned(uint64_t offset);
/* The bytes of a part of a file, which the reader keeps; NULL where they cannot be read. */
const uint8_t *bytes_of(reader *reader, extent part);
/* The MsgPack of a part of a file: at most `most` bytes at a place in it, with this digest. */
item checked_part(reader *reader, extent file, size_t place, size_t nbytes, size_t most, const uint8_t *digest,
                  const char *what);
/* Says of sections where they lie behind a head; the last one ends the file. */
void place_sections(reader *reader, extent file, size_t head_bytes, section *sections, size_t count);
/* Reads what stands in front of a context binary's section area; its bytes. */
size_t read_head(reader *reader, extent file, context *context);

/* --- open files --- */

typedef struct part { /* a context of a file */
    const char *name; /* of a package's context, else "" */
    context context;
    pool pool;
    bool ready;
    extent bytes;     /* of a context binary */
    const char *path; /* of one that lies beside an ONNX file; it is opened when it is used first */
    source own;       /* that one, once it is ready */
    struct packed {   /* what a package's index says */
        const char *tier, *sha256;
        identity device;
        bool computes;
        size_t head, *sections, section_count;
        uint64_t nbytes;
    } packed;
} part;

typedef struct node { /* an EPContext node: a graph, by its name where it has one, of the context of a main node */
    const char *name;
    size_t part;
    bool is_main;
} node;

struct gputune_file {
    const char *path;
    source source;
    pool pool;
    mutex turn;    /* of who reads parts */
    size_t owners; /* with atomics: a fork may end one while a thread that it has not holds the turn */
    size_t part_count, section_count, node_count;
    part *parts;
    section *sections; /* of a package */
    node *nodes;       /* of an ONNX file */
};

/* Refuses a file that another user could change. */
gputune_code check_trusted(const char *path, gputune_error *error);
/* Whether a path is a folder or lies in it, both without links. */
bool lies_in(const char *path, const char *folder);
/* Reads a file's bytes as what they are. */
gputune_code read_form(gputune_file *file, bool is_onnx, gputune_error *error);
void read_package(reader *reader, gputune_file *file);
void read_packed(reader *reader, const gputune_file *file, part *part);
void read_nodes(reader *reader, gputune_file *file);
/* The path of a file that an EPContext node names, beside the ONNX file that is read; links out of its folder are
 * refused. */
const char *beside(reader *reader, const char *text);

#endif
