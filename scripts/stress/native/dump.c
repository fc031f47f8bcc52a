/* Reads files as the C runtime does, and writes what it has found: a line of JSON for each path that a line of the input
 * names. Records have the fields that tables.c says. Every section is checked, too. With the argument "bytes" it reads
 * each file into memory of its size first, and opens that. */
#include "../../../runtime/native/src/files/reading.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *between = ""; /* what stands in front of the next value */

static void name(const char *text) {
    printf("%s", between);
    if (text != NULL) printf("\"%s\": ", text);
    between = ", ";
}

static void begin(const char *text, char bracket) {
    name(text);
    putchar(bracket);
    between = "";
}

static void end(char bracket) {
    putchar(bracket);
    between = ", ";
}

static void text(const char *key, const char *value) {
    name(key);
    putchar('"');
    for (const unsigned char *at = (const unsigned char *)value; *at; at++)
        if (*at < ' ' || *at == '"' || *at == '\\') printf("\\u%04x", *at);
        else putchar(*at);
    putchar('"');
}

static void number(const char *key, long long value) {
    name(key);
    printf("%lld", value);
}

static void flag(const char *key, bool value) {
    name(key);
    printf(value ? "true" : "false");
}

/* Writes a number of as many bytes as a uint64_t or a size_t has. */
static void number_at(const char *key, const void *at, size_t nbytes) {
    uint64_t value = 0;
    memcpy(&value, at, nbytes);
    number(key, (long long)value);
}

static void row(const char *key, const form *form, const void *at);

static void list(const field *field, const uint8_t *items, size_t count) {
    const size_t bytes[] = {[SIZES] = sizeof(size_t), [TEXTS] = sizeof(char *), [DIMENSIONS] = sizeof(size_t)};
    begin(field->name, '[');
    for (size_t i = 0; i < count; i++) {
        if (field->kind == ROWS) row(NULL, field->form, items + i * field->form->row_bytes);
        else if (field->kind == TEXTS) text(NULL, ((const char *const *)(const void *)items)[i]);
        else if (field->kind == THREE) number_at(NULL, items + i * field->bytes / count, field->bytes / count);
        else number_at(NULL, items + i * bytes[field->kind], bytes[field->kind]);
    }
    end(']');
}

static void value(const field *field, const uint8_t *of_row) {
    const void *const at = of_row + field->offset;
    const size_t count = *(const size_t *)(const void *)(of_row + field->count_offset);
    switch (field->kind) {
    case A_TEXT:
    case A_NAME:
    case A_DIGEST: text(field->name, *(const char *const *)at); break;
    case A_CHOICE: text(field->name, field->names[*(const int *)at]); break;
    case A_NUMBER:
    case A_SIGNED: number_at(field->name, at, field->bytes); break;
    case A_FLAG: flag(field->name, *(const bool *)at); break;
    case A_ROW: /* one that may be missing begins with a text */
        if (!field->optional || *(const char *const *)at != NULL) row(field->name, field->form, at);
        break;
    case THREE: list(field, at, 3); break;
    case DIMENSIONS: list(field, at, count); break;
    case SIZES:
    case TEXTS:
    case ROWS: list(field, *(const uint8_t *const *)at, count); break;
    default: break; /* maps are not kept, and files have no blobs */
    }
}

/* Writes an argument that is a number, which is none of a form's rows. */
static bool scalar(const form *form, const void *at) {
    const argument *const found = at;
    if (form != &ARGUMENT || found->is_buffer) return false;
    number(NULL, found->scalar);
    return true;
}

/* Writes what the runtime makes of a row beside its fields. */
static void derived(const form *form, const void *at) {
    const launch *const launched = at;
    const tensor_record *const tensor = at;
    if (!strcmp(form->what, "tensor")) number("nbytes", (long long)tensor->shown.nbytes);
    if (strcmp(form->what, "launch")) return;
    flag("counts", launched->counts);
    flag("yields", launched->yields);
}

static void fields(const form *form, const void *at) {
    for (size_t i = 0; i < form->count; i++) value(&form->fields[i], at);
}

static void row(const char *key, const form *form, const void *at) {
    if (scalar(form, at)) return;
    begin(key, '{');
    fields(form, at);
    derived(form, at);
    end('}');
}

static gputune_code check_all(const gputune_file *file, gputune_error *error) {
    gputune_code code = GPUTUNE_OK;
    for (size_t place = 0; !code && place < gputune_context_count(file); place++) {
        const context *context;
        code = context_at(file, place, &context, error);
        for (size_t at = 0; !code && at < context->section_count; at++) {
            uint8_t *bytes;
            if (!(code = copy_section(context, at, &bytes, error))) free(bytes);
        }
    }
    return code;
}

/* The bytes of a file, in memory that ends where they do. */
static void *content(const char *path, size_t *nbytes) {
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END)) abort();
    *nbytes = (size_t)ftell(file);
    rewind(file);
    void *bytes = malloc(*nbytes ? *nbytes : 1);
    if (bytes == NULL || fread(bytes, 1, *nbytes, file) != *nbytes) abort();
    fclose(file);
    return bytes;
}

static void dump(const char *path, bool by_bytes) {
    gputune_error error = {GPUTUNE_OK, ""};
    gputune_file *file = NULL;
    size_t nbytes = 0;
    void *bytes = by_bytes ? content(path, &nbytes) : NULL;
    gputune_code code = by_bytes ? gputune_open_bytes(bytes, nbytes, &file, &error) : gputune_open(path, &file, &error);
    if (!code) code = check_all(file, &error);
    begin(NULL, '{');
    text("error", gputune_code_name(code));
    text("message", error.message);
    begin("contexts", '[');
    for (size_t place = 0; !code && place < gputune_context_count(file); place++) {
        const context *context;
        if (context_at(file, place, &context, &error)) continue;
        begin(NULL, '{');
        text("context", gputune_context_name(file, place));
        fields(&HEADER, context);
        end('}');
    }
    end(']');
    begin("nodes", '[');
    for (size_t at = 0; !code && at < file->node_count; at++) {
        begin(NULL, '{');
        text("name", file->nodes[at].name);
        number("context", (long long)file->nodes[at].part);
        flag("main", file->nodes[at].is_main);
        end('}');
    }
    end(']');
    end('}');
    putchar('\n');
    between = "";
    gputune_close(file);
    free(bytes);
}

int main(int count, char **arguments) {
    const bool by_bytes = count > 1 && !strcmp(arguments[1], "bytes");
    char path[4096];
    while (fgets(path, sizeof path, stdin) != NULL) {
        path[strcspn(path, "\n")] = 0;
        dump(path, by_bytes);
        fflush(stdout);
    }
    return 0;
}
