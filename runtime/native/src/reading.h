/* What the readers of files share: MsgPack, the fields of its maps, and open files. */
#ifndef GPUTUNE_READING_H
#define GPUTUNE_READING_H

#ifndef _XOPEN_SOURCE
#define _XOPEN_SOURCE                                                                                                  \
    700 /* realpath, and clocks of threads: for the headers of the system, which come after this one */
#endif
#include "context.h"
#include "threads.h"

typedef struct slice {
    const uint8_t *data;
    size_t nbytes;
} slice;

/* --- MsgPack --- */

typedef enum item_kind { MISSING, NIL, BOOL, COUNT, NEGATIVE, REAL, TEXT, BYTES, LIST, MAP, EXTENSION } item_kind;

/* A value. number: of a bool, a count or a negative number itself; of a real whether it is finite; of a list its items,
 * of a map its pairs. content: of a text or bytes; of a list or map from its first item to the end of all. */
typedef struct item {
    item_kind kind;
    uint64_t number;
    slice content;
} item;

/* UTF-8 without surrogates and without longer forms than needed. */
bool is_utf8(slice text);
/* Whether bytes are one value as Python's msgpack reads it: whole, texts in UTF-8, keys texts or bytes, and at most
 * 1024 levels deep. The rest is for bytes that are. */
bool msgpack_valid(slice bytes);
item msgpack_first(slice bytes);
/* Takes a value with all that is in it. */
item msgpack_take(slice *rest);

/* --- fields of maps ---
 *
 * The first thing that is wrong is kept as the reader's code and error. After it everything reads as nothing: numbers
 * as 0, texts as "", lists as empty. So a caller asks for the code once, behind what it has read. */

typedef struct reader {
    pool *pool;
    gputune_error *error;
    const char *path;       /* how errors call the file */
    gputune_code malformed; /* the code of what contradicts its form */
    gputune_code code;
} reader;

enum { MOST_FIELDS = 17 };

typedef struct fields {
    reader *reader;
    const struct fields *parent; /* for errors */
    const char *place;
    size_t number;            /* of an item of a list, from 1 */
    const char *const *names; /* of the fields that are wanted, NULL behind the last */
    item values[MOST_FIELDS];
    bool unknown; /* whether it has others */
} fields;

void malformed(reader *reader, const char *format, ...)
#if defined(__GNUC__)
    __attribute__((format(printf, 2, 3)))
#endif
    ;
void out_of_memory(reader *reader);
fields fields_of(reader *reader, const fields *parent, const char *place, size_t number, item value,
                 const char *const *names);
bool field_there(const fields *fields, const char *name);
item field_of(const fields *fields, const char *name, item_kind kind, const char *wanted);
const char *field_text(const fields *fields, const char *name);
uint64_t field_count(const fields *fields, const char *name); /* at most INT64_MAX */
size_t field_size(const fields *fields, const char *name);    /* at most SIZE_MAX, too */
/* The rows of a list, for which memory is taken where at least so many bytes are there for each item. */
void *field_rows(const fields *fields, const char *name, size_t row_bytes, size_t least_bytes, slice *items,
                 size_t *count);
size_t *field_sizes(const fields *fields, const char *name, size_t *count);
const char *const *field_texts(const fields *fields, const char *name, size_t *count);
/* Whether no two of so many rows, each of which begins with the pointer to a text, have the same. */
bool texts_differ(reader *reader, const void *rows, size_t count, size_t row_bytes);

/* --- heads of context binaries --- */

uint32_t little_endian(const uint8_t *bytes);
size_t aligned(size_t offset);
/* The MsgPack of a part of a file: at most `most` bytes at a place in it, with this digest. */
item checked_part(reader *reader, slice file, size_t place, size_t nbytes, size_t most, const uint8_t *digest,
                  const char *what);
void read_identity(reader *reader, item value, identity *device);
bool same_identity(const identity *one, const identity *other);
/* Says of sections where they lie behind a head; the last one ends the file. */
void place_sections(reader *reader, slice file, size_t head_bytes, section *sections, size_t count);
/* Reads what stands in front of a context binary's section area, and says where it ends. */
void read_head(reader *reader, slice file, context *context, size_t *end);
/* Reads a context binary, whose sections lie behind its head. */
void read_context(reader *reader, slice file, context *context);
/* A digest as a text. */
void hex(const uint8_t digest[32], char text[65]);
/* Whether a section's bytes have its digest. */
bool verified(section *section);

/* --- open files --- */

typedef struct part { /* a context of a file */
    const char *name; /* of a package's context, else "" */
    context context;
    pool pool;
    bool ready;
    struct packed { /* what a package's index says */
        const char *tier;
        identity device;
        bool computes;
        size_t head, *sections, section_count;
        uint64_t nbytes;
    } packed;
    slice bytes;         /* of a context binary */
    const char *path;    /* of one that lies beside an ONNX file; it is opened when it is used first */
    gputune_file *other; /* that file */
} part;

typedef struct node { /* an EPContext node: a graph, by its name where it has one, of the context of a main node */
    const char *name;
    size_t part;
    bool is_main;
} node;

struct gputune_file {
    const char *path;
    slice bytes;
    pool pool;
    mutex turn; /* of who reads parts, and counts owners */
    size_t owners;
    part *parts;
    size_t part_count;
    section *sections; /* of a package */
    size_t section_count;
    node *nodes; /* of an ONNX file */
    size_t node_count;
};

/* Whether a path is a folder or lies in it, both without links. */
bool lies_in(const char *path, const char *folder);
/* Refuses a file that another user could change. */
gputune_code check_trusted(const char *path, gputune_error *error);
void read_package(reader *reader, gputune_file *file);
void read_packed(reader *reader, const gputune_file *file, part *part);
void read_nodes(reader *reader, gputune_file *file);

#endif
