/* ONNX files whose EPContext nodes hold or name context binaries, as runtime/context/ep_context.py has them. Of
 * protobuf's wire format only the fields are looked at that lead to the nodes and their attributes. */
#include "reading.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_FILE_FIELDS = 1 << 17, MOST_NODES = 1024, MOST_ATTRIBUTES = 64, LONGEST_TEXT = 4096 };
enum { MODEL_GRAPH = 7, GRAPH_NODE = 1, NODE_NAME = 3, NODE_OPERATOR = 4, NODE_ATTRIBUTE = 5, NODE_DOMAIN = 7 };
enum { ATTRIBUTE_NAME = 1, ATTRIBUTE_INTEGER = 3, ATTRIBUTE_STRING = 4, ATTRIBUTE_TYPE = 20, INTEGER = 2, STRING = 3 };
enum { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5 };

typedef struct wire {             /* a field of a message */
    uint64_t number, kind, value; /* value: of a varint */
    slice content;                /* of all others */
    bool there;
} wire;

typedef struct attribute {
    slice name, text;
    bool is_number;
    int64_t number;
} attribute;

typedef struct attributes {
    attribute all[MOST_ATTRIBUTES];
    size_t count;
} attributes;

typedef struct onnx {
    reader *reader;
    gputune_file *file;
    size_t fields_left;
} onnx;

static uint64_t varint(reader *reader, slice *rest, size_t longest) {
    uint64_t value = 0;
    for (size_t at = 0; at < longest && at < rest->nbytes; at++) {
        uint8_t byte = rest->data[at];
        if (at == 9 && byte > 1) break;
        value |= (uint64_t)(byte & 0x7f) << 7 * at;
        if (byte >= 0x80) continue;
        if (longest == 5 && value > UINT32_MAX) break;
        rest->data += at + 1;
        rest->nbytes -= at + 1;
        return value;
    }
    malformed(reader, "damaged: a number is cut off or too large");
    return 0;
}

/* Takes the next field of a message; false behind the last one, or where something is wrong. */
static bool next_field(onnx *onnx, slice *message, wire *found) {
    reader *reader = onnx->reader;
    if (message->nbytes == 0 || reader->code) return false;
    if (onnx->fields_left-- == 0) malformed(reader, "more than %d fields", MOST_FILE_FIELDS);
    uint64_t tag = varint(reader, message, 5), length = 0;
    *found = (wire){.number = tag >> 3, .kind = tag & 7, .there = true};
    if (found->number == 0 || found->number >= 1 << 29) malformed(reader, "damaged: it has a field without a number");
    if (found->kind == VARINT) found->value = varint(reader, message, 10);
    else if (found->kind == LENGTH) length = varint(reader, message, 5);
    else if (found->kind == FIXED64 || found->kind == FIXED32) length = found->kind == FIXED64 ? 8 : 4;
    else malformed(reader, "damaged: a field has the wire type %d", (int)found->kind);
    if (length > message->nbytes) malformed(reader, "damaged: a field has more bytes than are there");
    if (reader->code) return false;
    found->content = (slice){message->data, (size_t)length};
    message->data += length;
    message->nbytes -= (size_t)length;
    return true;
}

/* Fields that a message has once at most: those with these numbers, of these kinds. */
static void single(onnx *onnx, slice message, size_t count, const uint8_t numbers[], const uint8_t kinds[],
                   wire found[]) {
    wire field;
    memset(found, 0, count * sizeof *found);
    while (next_field(onnx, &message, &field))
        for (size_t at = 0; at < count; at++) {
            if (field.number != numbers[at]) continue;
            if (field.kind != kinds[at] || found[at].there)
                malformed(onnx->reader, "damaged: field %d occurs twice, or is of another type", numbers[at]);
            found[at] = field;
        }
}

/* A text that is UTF-8 and has no 0 in it. */
static void check_text(reader *reader, slice text, const char *what) {
    if (text.nbytes > LONGEST_TEXT) malformed(reader, "%s has more than %d bytes", what, LONGEST_TEXT);
    else if (!is_utf8(text) || (text.nbytes && memchr(text.data, 0, text.nbytes)))
        malformed(reader, "%s is no text in UTF-8", what);
}

static bool is_text(slice text, const char *expected) {
    return text.nbytes == strlen(expected) && (!text.nbytes || !memcmp(text.data, expected, text.nbytes));
}

static bool same_text(slice one, slice other) {
    return one.nbytes == other.nbytes && (!one.nbytes || !memcmp(one.data, other.data, one.nbytes));
}

static void read_attribute(onnx *onnx, slice message, attributes *into) {
    static const uint8_t NUMBERS[] = {ATTRIBUTE_NAME, ATTRIBUTE_INTEGER, ATTRIBUTE_STRING, ATTRIBUTE_TYPE};
    static const uint8_t KINDS[] = {LENGTH, VARINT, LENGTH, VARINT};
    wire found[4];
    single(onnx, message, 4, NUMBERS, KINDS, found);
    check_text(onnx->reader, found[0].content, "an attribute's name");
    bool again = into->count == MOST_ATTRIBUTES;
    for (size_t at = 0; at < into->count; at++) again = again || same_text(into->all[at].name, found[0].content);
    if (again) malformed(onnx->reader, "a node has an attribute twice, or more than %d", MOST_ATTRIBUTES);
    if (onnx->reader->code) return;
    attribute *made = &into->all[into->count++];
    *made = (attribute){.name = found[0].content, .is_number = found[3].value == INTEGER};
    if (made->is_number) made->number = (int64_t)found[1].value;
    else if (found[3].value == STRING) made->text = found[2].content;
}

/* An EPContext node's attributes; nodes of other operators are refused. */
static void read_attributes(onnx *onnx, slice message, attributes *into) {
    static const uint8_t NUMBERS[] = {NODE_NAME, NODE_OPERATOR, NODE_DOMAIN}, KINDS[] = {LENGTH, LENGTH, LENGTH};
    wire head[3], field;
    single(onnx, message, 3, NUMBERS, KINDS, head);
    for (size_t at = 0; at < 3; at++) check_text(onnx->reader, head[at].content, "a node's name, operator or domain");
    if (!is_text(head[1].content, "EPContext") || !is_text(head[2].content, "com.microsoft"))
        malformed(onnx->reader, "a node is no EPContext of 'com.microsoft'; context-binary-generator makes a context "
                                "of a model");
    into->count = 0;
    while (next_field(onnx, &message, &field)) {
        if (field.number == NODE_ATTRIBUTE && field.kind == VARINT)
            malformed(onnx->reader, "damaged: field %d is of another type", NODE_ATTRIBUTE);
        else if (field.number == NODE_ATTRIBUTE) read_attribute(onnx, field.content, into);
    }
}

/* --- what nodes mean --- */

static const attribute *attribute_of(const attributes *node, const char *name) {
    for (size_t at = 0; at < node->count; at++)
        if (is_text(node->all[at].name, name)) return &node->all[at];
    return NULL;
}

static slice text_of(reader *reader, const attributes *node, const char *name) {
    const attribute *found = attribute_of(node, name);
    slice text = found == NULL ? (slice){NULL, 0} : found->text;
    if (found != NULL && found->is_number) malformed(reader, "an EPContext node's %s is a number", name);
    check_text(reader, text, name);
    return text;
}

static int64_t number_of(reader *reader, const attributes *node, const char *name, int64_t otherwise, int64_t most) {
    const attribute *found = attribute_of(node, name);
    int64_t number = found == NULL ? otherwise : found->number;
    if ((found != NULL && !found->is_number) || number < 0 || number > most)
        malformed(reader, "an EPContext node's %s is not a number from 0 to %lld", name, (long long)most);
    return number;
}

/* Whether a path could lead out of the folder of its file, on whatever system. */
static bool leaves_folder(const char *path) {
    bool drive = path[0] && path[1] == ':' && ((path[0] | 32) >= 'a' && (path[0] | 32) <= 'z');
    if (!*path || drive || strchr("/\\", *path) != NULL) return true;
    for (const char *part = path;; part++) {
        size_t length = strcspn(part, "/\\");
        if (length == 2 && part[0] == '.' && part[1] == '.') return true;
        if (!*(part += length)) return false;
    }
}

/* The path of a file beside the ONNX file; links that lead out of its folder are refused. */
static const char *beside(onnx *onnx, const char *text) {
    reader *reader = onnx->reader;
    const char *slash = strrchr(reader->path, '/'), *path = NULL;
    size_t front = slash == NULL ? 0 : (size_t)(slash - reader->path) + 1, used = front;
    char *wanted = pool_take(reader->pool, front + strlen(text) + 2, 1);
    if (wanted == NULL) out_of_memory(reader);
    if (wanted == NULL || leaves_folder(text)) {
        malformed(reader, "ep_cache_context '%s' must be a path in the folder of the ONNX file", text);
        return NULL;
    }
    memcpy(wanted, reader->path, front);
    if (!front) wanted[0] = '.';
    char *folder = realpath(front ? wanted : ".", NULL);
    for (size_t length; *text; text += length + (text[length] == '/')) { /* without parts that say nothing */
        length = strcspn(text, "/");
        if (length == 0 || (length == 1 && *text == '.')) continue;
        if (used > front) wanted[used++] = '/';
        memcpy(wanted + used, text, length);
        wanted[used += length] = 0;
    }
    struct stat status;
    char *found = realpath(wanted, NULL);
    if (folder == NULL || found == NULL || !lies_in(found, folder) || stat(found, &status) || !S_ISREG(status.st_mode))
        malformed(reader, "ep_cache_context '%s' is no file in the folder of the ONNX file", wanted + front);
    else if ((path = pool_text(reader->pool, found, strlen(found))) == NULL) out_of_memory(reader);
    free(folder);
    free(found);
    return path;
}

/* The context of a main node. */
static void read_content(onnx *onnx, const attributes *node, part *into) {
    reader *reader = onnx->reader;
    bool embedded = number_of(reader, node, "embed_mode", 1, 1);
    const attribute *content = attribute_of(node, "ep_cache_context");
    into->name = "";
    if (embedded) {
        if (content == NULL || !content->text.nbytes) malformed(reader, "ep_cache_context holds no context");
        else into->bytes = content->text;
        return;
    }
    slice text = text_of(reader, node, "ep_cache_context");
    const char *path = reader->code ? NULL : pool_text(reader->pool, (const char *)text.data, text.nbytes);
    if (path != NULL) into->path = beside(onnx, path);
    else out_of_memory(reader);
}

static void read_node(onnx *onnx, slice message) {
    reader *reader = onnx->reader;
    gputune_file *file = onnx->file;
    attributes attributes;
    node *made = &file->nodes[file->node_count];
    read_attributes(onnx, message, &attributes);
    if (reader->code) return;
    if (!is_text(text_of(reader, &attributes, "source"), "gputune"))
        malformed(reader, "an EPContext node's source is another one, and only those of 'gputune' can be loaded");
    made->is_main = number_of(reader, &attributes, "main_context", 1, 1);
    text_of(reader, &attributes, "ep_sdk_version");
    text_of(reader, &attributes, "notes");
    number_of(reader, &attributes, "max_size", 0, INT64_MAX);
    slice name = text_of(reader, &attributes, "partition_name");
    made->name = reader->code ? "" : pool_text(reader->pool, (const char *)name.data, name.nbytes);
    if (made->name == NULL) out_of_memory(reader);
    for (size_t at = 0; at < file->node_count && !reader->code; at++)
        if (*made->name && !strcmp(made->name, file->nodes[at].name))
            malformed(reader, "two EPContext nodes have the same partition_name");
    if (made->is_main && !reader->code) read_content(onnx, &attributes, &file->parts[file->part_count++]);
    made->part = file->part_count ? file->part_count - 1 : 0; /* the nearest before it, else the first */
    file->node_count++;
}

void read_nodes(reader *reader, gputune_file *file) {
    static const uint8_t GRAPH = MODEL_GRAPH, KIND = LENGTH;
    onnx onnx = {reader, file, MOST_FILE_FIELDS};
    wire graph, field;
    slice rest;
    size_t count = 0;
    reader->malformed = GPUTUNE_MALFORMED_EP_CONTEXT;
    if (!file->bytes.nbytes || file->bytes.nbytes > INT32_MAX)
        malformed(reader, "%zu bytes, an ONNX file has 1 to %d", file->bytes.nbytes, INT32_MAX);
    single(&onnx, file->bytes, 1, &GRAPH, &KIND, &graph);
    if (!graph.there) malformed(reader, "no ONNX model: it has no graph");
    size_t left = onnx.fields_left;
    for (rest = graph.content; next_field(&onnx, &rest, &field);) count += field.number == GRAPH_NODE;
    onnx.fields_left = left;
    if (count > MOST_NODES) malformed(reader, "more than %d nodes", MOST_NODES);
    file->nodes = pool_take(reader->pool, reader->code ? 0 : count, sizeof *file->nodes);
    file->parts = pool_take(reader->pool, reader->code ? 0 : count, sizeof *file->parts);
    if (file->nodes == NULL || file->parts == NULL) out_of_memory(reader);
    for (rest = graph.content; next_field(&onnx, &rest, &field);) {
        if (field.number == GRAPH_NODE && field.kind == VARINT) malformed(reader, "damaged: a node is of another type");
        else if (field.number == GRAPH_NODE) read_node(&onnx, field.content);
    }
    if (!reader->code && !file->part_count) malformed(reader, "no EPContext node with main_context = 1");
}
