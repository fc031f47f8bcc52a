/* ONNX files whose EPContext nodes hold or name context binaries, as runtime/context/ep_context.py has them. Of
 * protobuf's wire format only the fields are looked at that lead to the nodes and their attributes. */
#include "reading.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { MOST_FIELDS = 1 << 17, MOST_NODES = 1024, MOST_ATTRIBUTES = 64, LONGEST_TEXT = 4096, WINDOW_BYTES = 4096 };
enum { MODEL_GRAPH = 7, GRAPH_NODE = 1, NODE_NAME = 3, NODE_OPERATOR = 4, NODE_ATTRIBUTE = 5, NODE_DOMAIN = 7 };
enum { ATTRIBUTE_NAME = 1, ATTRIBUTE_INTEGER = 3, ATTRIBUTE_STRING = 4, ATTRIBUTE_TYPE = 20, INTEGER = 2, STRING = 3 };
enum { VARINT = 0, FIXED64 = 1, LENGTH = 2, FIXED32 = 5, LONGEST_NUMBER = 10 };

typedef struct wire { /* a field of a message */
    uint64_t number, kind, value; /* value: of a varint */
    extent content;               /* of all others */
    bool there;
} wire;

typedef struct attributes { /* of a node */
    struct attribute {
        slice name;
        extent text;
        bool is_number;
        int64_t number;
    } all[MOST_ATTRIBUTES];
    size_t count;
} attributes;

typedef struct onnx {
    reader *reader;
    gputune_file *file;
    size_t fields_left;
    uint64_t from; /* where in the file the window begins, of which numbers are read */
    size_t has;
    uint8_t window[WINDOW_BYTES];
} onnx;

/* The first bytes of a part of the file, at most so many; how many there are. */
static size_t peek(onnx *onnx, extent part, size_t most, uint8_t bytes[LONGEST_NUMBER]) {
    const size_t count = part.nbytes < most ? part.nbytes : most;
    if (part.at < onnx->from || part.at + count > onnx->from + onnx->has) {
        const source *source = part.source;
        const uint64_t left = source->nbytes - part.at;
        onnx->from = part.at;
        onnx->has = left < WINDOW_BYTES ? (size_t)left : WINDOW_BYTES;
        onnx->reader->code = read_source(source, onnx->reader->path, part.at, onnx->window, onnx->has,
                                         onnx->reader->error);
        if (onnx->reader->code) return onnx->has = 0;
    }
    memcpy(bytes, onnx->window + (part.at - onnx->from), count);
    return count;
}

static extent behind(extent part, size_t nbytes) { return part_of(part, nbytes, part.nbytes - nbytes); }

static uint64_t varint(onnx *onnx, extent *rest, size_t longest) {
    uint8_t bytes[LONGEST_NUMBER];
    uint64_t value = 0;
    const size_t count = onnx->reader->code ? 0 : peek(onnx, *rest, longest, bytes);
    for (size_t at = 0; at < count; at++) {
        if (at == 9 && bytes[at] > 1) break;
        value |= (uint64_t)(bytes[at] & 0x7f) << 7 * at;
        if (bytes[at] >= 0x80) continue;
        if (longest == 5 && value > UINT32_MAX) break;
        *rest = behind(*rest, at + 1);
        return value;
    }
    reader *reader = onnx->reader;
    MALFORMED(reader, "damaged: a number is cut off or too large");
    return 0;
}

/* Takes the next field of a message; false behind the last one, or where something is wrong. */
static bool next_field(onnx *onnx, extent *message, wire *found) {
    reader *reader = onnx->reader;
    if (message->nbytes == 0 || reader->code) return false;
    if (onnx->fields_left-- == 0) MALFORMED(reader, "more than %d fields", MOST_FIELDS);
    uint64_t tag = varint(onnx, message, 5), length = 0;
    *found = (wire){.number = tag >> 3, .kind = tag & 7, .there = true};
    if (found->number == 0 || found->number >= 1 << 29) MALFORMED(reader, "damaged: it has a field without a number");
    if (found->kind == VARINT) found->value = varint(onnx, message, LONGEST_NUMBER);
    else if (found->kind == LENGTH) length = varint(onnx, message, 5);
    else if (found->kind == FIXED64 || found->kind == FIXED32) length = found->kind == FIXED64 ? 8 : 4;
    else MALFORMED(reader, "damaged: a field has the wire type %d", (int)found->kind);
    if (length > message->nbytes) MALFORMED(reader, "damaged: a field is longer than its message; copy the file again");
    if (reader->code) return false;
    found->content = part_of(*message, 0, (size_t)length);
    *message = behind(*message, (size_t)length);
    return true;
}

/* Fields that a message has once at most: those with these numbers, of these kinds. */
static void single(onnx *onnx, extent message, size_t count, const uint8_t numbers[], const uint8_t kinds[],
                   wire found[]) {
    wire field;
    memset(found, 0, count * sizeof *found);
    while (next_field(onnx, &message, &field))
        for (size_t at = 0; at < count; at++) {
            if (field.number != numbers[at]) continue;
            if (field.kind != kinds[at] || found[at].there)
                MALFORMED(onnx->reader, "damaged: field %d occurs twice, or is of another type", numbers[at]);
            found[at] = field;
        }
}

static bool same_text(slice one, slice other) {
    return one.nbytes == other.nbytes && (!one.nbytes || !memcmp(one.data, other.data, one.nbytes));
}

static slice checked_text(reader *reader, extent from, const char *what) {
    slice text = {NULL, 0};
    if (from.nbytes > LONGEST_TEXT) MALFORMED(reader, "%s has more than %d bytes", what, LONGEST_TEXT);
    else if (from.nbytes && (text.data = bytes_of(reader, from)) != NULL) text.nbytes = from.nbytes;
    if (!is_utf8(text) || (text.nbytes && memchr(text.data, 0, text.nbytes)))
        MALFORMED(reader, "%s is not UTF-8, or has a character 0", what);
    return text;
}

static void read_attribute(onnx *onnx, extent message, attributes *into) {
    static const uint8_t NUMBERS[] = {ATTRIBUTE_NAME, ATTRIBUTE_INTEGER, ATTRIBUTE_STRING, ATTRIBUTE_TYPE};
    static const uint8_t WIRE_KINDS[] = {LENGTH, VARINT, LENGTH, VARINT};
    wire found[4];
    single(onnx, message, 4, NUMBERS, WIRE_KINDS, found);
    slice name = checked_text(onnx->reader, found[0].content, "an attribute's name");
    bool again = into->count == MOST_ATTRIBUTES;
    for (size_t i = 0; i < into->count; i++) again = again || same_text(into->all[i].name, name);
    if (again) MALFORMED(onnx->reader, "a node has an attribute twice, or more than %d", MOST_ATTRIBUTES);
    if (onnx->reader->code) return;
    struct attribute *made = &into->all[into->count++];
    *made = (struct attribute){.name = name, .is_number = found[3].value == INTEGER};
    if (made->is_number) made->number = (int64_t)found[1].value;
    else if (found[3].value == STRING) made->text = found[2].content;
}

/* An EPContext node's attributes; nodes of other operators are refused. */
static void read_attributes(onnx *onnx, extent message, attributes *into) {
    static const uint8_t NUMBERS[] = {NODE_NAME, NODE_OPERATOR, NODE_DOMAIN}, WIRE_KINDS[] = {LENGTH, LENGTH, LENGTH};
    wire head[3], field;
    single(onnx, message, 3, NUMBERS, WIRE_KINDS, head);
    slice texts[3];
    for (size_t i = 0; i < 3; i++)
        texts[i] = checked_text(onnx->reader, head[i].content, "a node's name, operator or domain");
    if (!is_text(texts[1], "EPContext") || !is_text(texts[2], "com.microsoft"))
        MALFORMED(onnx->reader, "a model, and no context: context-binary-generator makes one of it");
    for (into->count = 0; next_field(onnx, &message, &field);) {
        if (field.number == NODE_ATTRIBUTE && field.kind == VARINT) MALFORMED(onnx->reader, "damaged: an attribute");
        else if (field.number == NODE_ATTRIBUTE) read_attribute(onnx, field.content, into);
    }
}

/* --- what nodes mean --- */

static struct attribute attribute_of(const attributes *node, const char *name) {
    for (size_t i = 0; i < node->count; i++)
        if (is_text(node->all[i].name, name)) return node->all[i];
    return (struct attribute){.name = {NULL, 0}};
}

static slice text_of(reader *reader, const attributes *node, const char *name) {
    struct attribute found = attribute_of(node, name);
    if (found.is_number) MALFORMED(reader, "an EPContext node's %s is a number", name);
    return checked_text(reader, found.text, name);
}

static int64_t number_of(reader *reader, const attributes *node, const char *name, int64_t otherwise, int64_t most) {
    struct attribute found = attribute_of(node, name);
    bool missing = found.name.data == NULL;
    if (!missing && (!found.is_number || found.number < 0 || found.number > most))
        MALFORMED(reader, "an EPContext node's %s is no number from 0 to %lld", name, (long long)most);
    return missing ? otherwise : found.number;
}

/* Whether a path could lead out of the folder of its file, on whatever system. */
static bool leaves_folder(const char *path) {
    bool drive = *path && path[1] == ':' && (*path | 32) >= 'a' && (*path | 32) <= 'z';
    bool leaves = !*path || drive || *path == '/' || *path == '\\';
    for (size_t length; *path && !leaves; path += length + (path[length] != 0)) {
        length = strcspn(path, "/\\");
        leaves = length == 2 && !memcmp(path, "..", 2);
    }
    return leaves;
}

const char *beside(reader *reader, const char *text) {
    const char *slash = strrchr(reader->path, '/'), *path = NULL;
    size_t front = slash == NULL ? 0 : (size_t)(slash - reader->path) + 1, used = front;
    size_t nbytes = front + strlen(text) + 3;
    char *wanted = rows(reader, &nbytes, 1);
    if (wanted == NULL || leaves_folder(text)) {
        MALFORMED(reader, "ep_cache_context '%s' must be a path in the folder of the ONNX file", text);
        return NULL;
    }
    memcpy(wanted, reader->path, front);
    if (!front) memcpy(wanted, "./", used = front = 2);
    char *folder = realpath(wanted, NULL), *found = NULL;
    for (size_t length; *text; text += length + (text[length] == '/')) { /* without parts that say nothing */
        length = strcspn(text, "/");
        if (length == 0 || (length == 1 && *text == '.')) continue;
        if (used > front) wanted[used++] = '/';
        memcpy(wanted + used, text, length);
        used += length;
    }
    struct stat status;
    if (folder != NULL && (found = realpath(wanted, NULL)) != NULL && lies_in(found, folder) && !stat(found, &status) &&
        S_ISREG(status.st_mode))
        path = pool_text(reader->pool, found, strlen(found));
    if (path == NULL)
        MALFORMED(reader, "ep_cache_context '%s' is no file in the folder of the ONNX file", wanted + front);
    free(folder);
    free(found);
    return path;
}

static const char *copied(reader *reader, slice text) {
    const char *copy = reader->code ? "" : pool_text(reader->pool, (const char *)text.data, text.nbytes);
    if (copy == NULL) refuse(reader, GPUTUNE_OUT_OF_MEMORY, "out of memory");
    return copy == NULL ? "" : copy;
}

/* The context of a main node. */
static void read_content(onnx *onnx, const attributes *node, part *into) {
    reader *reader = onnx->reader;
    *into = (part){.name = ""};
    if (!number_of(reader, node, "embed_mode", 1, 1)) {
        const char *path = copied(reader, text_of(reader, node, "ep_cache_context"));
        if (onnx->file->source.data != NULL)
            MALFORMED(reader, "ep_cache_context '%s' names a file, but the ONNX file is in memory, without a folder: "
                      "embed the context", path);
        if (!reader->code) into->path = beside(reader, path);
        return;
    }
    into->bytes = attribute_of(node, "ep_cache_context").text;
    if (!into->bytes.nbytes) MALFORMED(reader, "ep_cache_context holds no context");
}

static void read_node(onnx *onnx, extent message) {
    reader *reader = onnx->reader;
    gputune_file *file = onnx->file;
    attributes attributes;
    node *made = &file->nodes[file->node_count];
    read_attributes(onnx, message, &attributes);
    if (reader->code) return;
    if (!is_text(text_of(reader, &attributes, "source"), "gputune"))
        MALFORMED(reader, "an EPContext node's source is not gputune");
    made->is_main = number_of(reader, &attributes, "main_context", 1, 1);
    made->name = copied(reader, text_of(reader, &attributes, "partition_name"));
    text_of(reader, &attributes, "ep_sdk_version");
    text_of(reader, &attributes, "notes");
    number_of(reader, &attributes, "max_size", 0, INT64_MAX);
    for (size_t i = 0; i < file->node_count && !reader->code; i++)
        if (*made->name && !strcmp(made->name, file->nodes[i].name))
            MALFORMED(reader, "two EPContext nodes have the same partition_name '%s'", made->name);
    if (made->is_main && !reader->code) read_content(onnx, &attributes, &file->parts[file->part_count++]);
    made->part = file->part_count ? file->part_count - 1 : 0; /* the nearest before it, else the first */
    file->node_count++;
}

void read_nodes(reader *reader, gputune_file *file) {
    static const uint8_t GRAPH = MODEL_GRAPH, WIRE_KIND = LENGTH;
    onnx onnx = {.reader = reader, .file = file, .fields_left = MOST_FIELDS};
    const extent whole = {&file->source, 0, (size_t)file->source.nbytes, NULL};
    wire graph, field;
    size_t count = 0;
    reader->malformed = GPUTUNE_MALFORMED_EP_CONTEXT;
    const size_t begins = whole.nbytes < TELLING_BYTES ? whole.nbytes : TELLING_BYTES;
    const uint8_t *begin = bytes_of(reader, part_of(whole, 0, begins));
    const char *other = reader->code ? "" : mistaken(begin, begins);
    if (*other) MALFORMED(reader, "it %s", other);
    if (!whole.nbytes || whole.nbytes > INT32_MAX)
        MALFORMED(reader, "%zu bytes, an ONNX file has 1 to %d", whole.nbytes, INT32_MAX);
    single(&onnx, whole, 1, &GRAPH, &WIRE_KIND, &graph);
    if (!graph.there) MALFORMED(reader, "no ONNX model: it has no graph");
    size_t left = onnx.fields_left;
    for (extent rest = graph.content; next_field(&onnx, &rest, &field);) count += field.number == GRAPH_NODE;
    onnx.fields_left = left;
    if (count > MOST_NODES) MALFORMED(reader, "more than %d nodes", MOST_NODES);
    file->nodes = rows(reader, &count, sizeof *file->nodes);
    file->parts = rows(reader, &count, sizeof *file->parts);
    for (extent rest = graph.content; next_field(&onnx, &rest, &field);) {
        if (field.number != GRAPH_NODE) continue;
        if (field.kind == VARINT) MALFORMED(reader, "damaged: a node");
        else if (file->node_count == count) refuse(reader, GPUTUNE_FILE_CHANGED, "it was changed while it was read");
        else read_node(&onnx, field.content);
    }
    if (!file->part_count) MALFORMED(reader, "no EPContext node with main_context = 1");
}
