/* Reads files as the C runtime does, and writes what it has found: a line of JSON for each path that a line of the input
 * names. Every section is checked, too. Texts are those of records.py, as it names them. With the argument "bytes" it
 * reads each file into memory of its size first, and opens that. */
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

static void number(const char *key, uint64_t value) {
    name(key);
    printf("%llu", (unsigned long long)value);
}

static void flag(const char *key, bool value) {
    name(key);
    printf(value ? "true" : "false");
}

static void sizes(const char *key, const size_t *values, size_t count) {
    begin(key, '[');
    for (size_t at = 0; at < count; at++) number(NULL, values[at]);
    end(']');
}

static void device(const identity *device) {
    begin("device", '{');
    text("platform", device->platform);
    text("platform_version", device->platform_version);
    text("name", device->name);
    text("vendor", device->vendor);
    text("driver_version", device->driver_version);
    text("device_version", device->device_version);
    text("device_type", device->device_type);
    text("driver", device->driver);
    number("compute_units", device->compute_units);
    number("max_work_group_size", device->max_work_group_size);
    number("local_memory_bytes", device->local_memory_bytes);
    number("global_memory_bytes", device->global_memory_bytes);
    number("max_allocation_bytes", device->max_allocation_bytes);
    number("base_address_alignment_bytes", device->base_address_alignment_bytes);
    number("preferred_float_width", device->preferred_float_width);
    begin("max_work_item_sizes", '[');
    for (size_t at = 0; at < 3; at++) number(NULL, device->max_work_item_sizes[at]);
    end(']');
    begin("extensions", '[');
    for (size_t at = 0; at < device->extension_count; at++) text(NULL, device->extensions[at]);
    end(']');
    end('}');
}

static void tensors(const char *key, const tensor_record *tensors, size_t count) {
    begin(key, '[');
    for (size_t at = 0; at < count; at++) {
        begin(NULL, '{');
        text("name", tensors[at].shown.name);
        text("dtype", tensors[at].shown.dtype);
        text("memory_type", tensors[at].memory_type == MEMHANDLE ? "memhandle" : "raw");
        sizes("shape", tensors[at].shown.shape, tensors[at].shown.rank);
        number("nbytes", tensors[at].shown.nbytes);
        end('}');
    }
    end(']');
}

static void arguments(const launch *launch) {
    static const char *const KINDS[] = {"input", "output", "arena", "weights", "packed", "counters", "status"};
    begin("arguments", '[');
    for (size_t at = 0; at < launch->argument_count; at++) {
        const argument *argument = &launch->arguments[at];
        if (!argument->is_buffer) {
            name(NULL);
            printf("%d", (int)argument->scalar);
            continue;
        }
        begin(NULL, '{');
        text("kind", KINDS[argument->kind]);
        number("index", argument->index);
        number("offset", argument->offset);
        number("nbytes", argument->nbytes);
        end('}');
    }
    end(']');
}

static void launches(const char *key, const launch *launches, size_t count) {
    begin(key, '[');
    for (size_t at = 0; at < count; at++) {
        begin(NULL, '{');
        text("operation", launches[at].operation);
        text("task", launches[at].task);
        text("entry", launches[at].entry);
        number("program", launches[at].program);
        flag("counts", launches[at].counts);
        flag("yields", launches[at].yields);
        sizes("global_size", launches[at].global_size, launches[at].dimensions);
        sizes("local_size", launches[at].local_size, launches[at].dimensions);
        arguments(&launches[at]);
        sizes("writes", launches[at].writes, launches[at].write_count);
        flag("offsets", launches[at].offsets);
        end('}');
    }
    end(']');
}

static void tokens(const char *key, const token_axis *tokens, size_t count) {
    begin(key, '[');
    for (size_t at = 0; at < count; at++) {
        begin(NULL, '{');
        text("name", tokens[at].name);
        number("axis", tokens[at].axis);
        end('}');
    }
    end(']');
}

static void states(const state_record *states) {
    begin("states", '{');
    text("length", states->length);
    number("tokens", states->tokens);
    number("capacity", states->capacity);
    tokens("token_inputs", states->token_inputs, states->token_input_count);
    tokens("token_outputs", states->token_outputs, states->token_output_count);
    begin("pairs", '[');
    for (size_t at = 0; at < states->pair_count; at++) {
        begin(NULL, '{');
        text("input", states->pairs[at].input);
        text("output", states->pairs[at].output);
        name("axis");
        printf("%d", (int)states->pairs[at].axis);
        end('}');
    }
    end(']');
    flag("whole", states->whole);
    end('}');
}

static void graph(const graph_record *graph) {
    static const char *const FORMS[] = {"sub_buffers", "buffers", "svm", "offsets"};
    begin(NULL, '{');
    text("name", graph->info.name);
    tensors("inputs", graph->inputs, graph->info.input_count);
    tensors("outputs", graph->outputs, graph->info.output_count);
    launches("launches", graph->launches, graph->info.launch_count);
    launches("persistent", graph->persistent, graph->persistent_count);
    sizes("arena_bytes", graph->arenas, graph->arena_count);
    number("counter_bytes", graph->counter_bytes);
    number("arena_bound_bytes", graph->arena_bound_bytes);
    text("argument_form", FORMS[graph->argument_form]);
    if (graph->states.pair_count) states(&graph->states);
    end('}');
}

static void graphs(const char *key, const graph_record *graphs, size_t count) {
    begin(key, '[');
    for (size_t at = 0; at < count; at++) graph(&graphs[at]);
    end(']');
}

static void models(const model_record *models, size_t count) {
    begin("models", '[');
    for (size_t at = 0; at < count; at++) {
        begin(NULL, '{');
        text("name", models[at].name);
        text("sha256", models[at].sha256);
        begin("weights", '[');
        for (size_t j = 0; j < models[at].weight_count; j++) {
            begin(NULL, '{');
            text("name", models[at].weights[j].name);
            text("sha256", models[at].weights[j].sha256);
            end('}');
        }
        end(']');
        begin("graphs", '[');
        for (size_t j = 0; j < models[at].graph_count; j++) text(NULL, models[at].graphs[j]);
        end(']');
        end('}');
    }
    end(']');
}

static void records(const char *key, const context *context) {
    begin(NULL, '{');
    text("context", key);
    text("tier", context->tier);
    flag("computes", context->computes);
    device(&context->device);
    sizes("weights", context->weights, context->weight_count);
    begin("programs", '[');
    for (size_t at = 0; at < context->program_count; at++) {
        begin(NULL, '{');
        number("binary", context->programs[at].binary);
        number("source", context->programs[at].source);
        text("options", context->programs[at].options);
        begin("needs", '[');
        for (size_t j = 0; j < context->programs[at].need_count; j++) text(NULL, context->programs[at].needs[j]);
        end(']');
        end('}');
    }
    end(']');
    begin("sections", '[');
    for (size_t at = 0; at < context->section_count; at++) {
        begin(NULL, '{');
        text("kind", context->sections[at].kind);
        number("offset", context->sections[at].offset);
        number("length", context->sections[at].nbytes);
        text("sha256", context->sections[at].sha256);
        number("inflated", context->sections[at].inflated);
        end('}');
    }
    end(']');
    begin("requires", '[');
    for (size_t at = 0; at < context->require_count; at++) text(NULL, context->requires[at]);
    end(']');
    models(context->models, context->model_count);
    graphs("graphs", context->graphs, context->graph_count);
    graphs("packing", context->packing, context->packing_count);
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
        if (!context_at(file, place, &context, &error)) records(gputune_context_name(file, place), context);
    }
    end(']');
    begin("nodes", '[');
    for (size_t at = 0; !code && at < file->node_count; at++) {
        begin(NULL, '{');
        text("name", file->nodes[at].name);
        number("context", file->nodes[at].part);
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
