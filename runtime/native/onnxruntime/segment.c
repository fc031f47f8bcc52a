/* A fused node is a graph of a context: where its tensors are, and how it runs. */
#include "plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LONGEST_WORDS = 160 };

/* --- what tensors are --------------------------------------------------------------------------------------------- */

typedef struct seen { /* a tensor as onnxruntime knows it */
    const char *dtype;
    size_t rank; /* 0: that of a scalar, or unknown, since 1.23 does not say which */
    int64_t shape[GPUTUNE_MOST_DIMENSIONS]; /* below 0: unknown */
} seen;

static gputune_code see(const factory *factory, const ort_shape *known, seen *into, gputune_error *error) {
    static const char *const NAMES[] = {"nothing", "float32", "uint8", "int8", "uint16", "int16", "int32", "int64",
                                        "string", "bool", "float16", "float64", "uint32", "uint64",
                                        "complex64", "complex128", "bfloat16"};
    int type = 0;
    memset(into, 0, sizeof *into);
    if (known) ORT(factory, GetTensorElementType(known, &type));
    if (known) ORT(factory, GetDimensionsCount(known, &into->rank));
    const size_t most = into->rank < GPUTUNE_MOST_DIMENSIONS ? into->rank : GPUTUNE_MOST_DIMENSIONS;
    if (most) ORT(factory, GetDimensions(known, into->shape, most));
    into->dtype = type >= 0 && (size_t)type < sizeof NAMES / sizeof *NAMES ? NAMES[type] : "another type";
    return GPUTUNE_OK;
}

static const char *in_words(char text[LONGEST_WORDS], const char *dtype, const int64_t *shape, size_t rank) {
    int length = snprintf(text, LONGEST_WORDS, "%.16s [", dtype);
    for (size_t i = 0; i < rank && i < GPUTUNE_MOST_DIMENSIONS && length < LONGEST_WORDS - 24; i++)
        length += shape[i] < 0 ? sprintf(text + length, "%s?", i ? ", " : "")
                               : sprintf(text + length, "%s%lld", i ? ", " : "", (long long)shape[i]);
    strcpy(text + length, "]");
    return text;
}

/* Says how a tensor differs from the context's. knows: whether nothing about it is unknown. */
static gputune_code check(const struct port *port, const char *name, const char *where, const seen *seen, bool *knows,
                          gputune_error *error) {
    const gputune_tensor *tensor = port->tensor;
    char mine[LONGEST_WORDS], theirs[LONGEST_WORDS];
    bool fits = !strcmp(seen->dtype, tensor->dtype) && (!seen->rank || seen->rank == tensor->rank);
    *knows = seen->rank;
    for (size_t i = 0; i < seen->rank && fits; i++) {
        fits = seen->shape[i] < 0 || seen->shape[i] == port->shape[i];
        *knows &= seen->shape[i] >= 0;
    }
    return fits ? GPUTUNE_OK
                : fail(error, GPUTUNE_INVALID_ARGUMENT, "'%.80s' is %s%s, and %s in the context", name,
                       in_words(theirs, seen->dtype, seen->shape, seen->rank), where,
                       in_words(mine, tensor->dtype, port->shape, tensor->rank));
}

/* --- inferences --------------------------------------------------------------------------------------------------- */

static gputune_code check_input(const factory *factory, const struct port *port, const ort_value *value,
                                gputune_error *error) {
    ort_shape *shape;
    seen seen;
    bool knows;
    ORT(factory, GetTensorTypeAndShape(value, &shape));
    const gputune_code code = see(factory, shape, &seen, error);
    factory->api->ReleaseTensorTypeAndShapeInfo(shape);
    return code ? code : check(port, port->tensor->name, "", &seen, &knows, error);
}

static gputune_code run(const segment *segment, ort_context *context, gputune_error *error) {
    const factory *factory = segment->provider->factory;
    const size_t inputs = gputune_info(segment->graph)->input_count, outputs = segment->output_count;
    gputune_value values[inputs + outputs + 1];
    for (size_t i = 0; i < inputs; i++) {
        const struct port *port = &segment->inputs[i];
        const ort_value *value = NULL;
        const void *data = NULL;
        size_t nbytes = 0;
        ORT(factory, KernelContext_GetInput(context, port->place, &value));
        if (value) ORT(factory, GetTensorSizeInBytes(value, &nbytes));
        if (value && (port->checked || nbytes != port->tensor->nbytes)) TRY(check_input(factory, port, value, error));
        if (nbytes != port->tensor->nbytes)
            return fail(error, GPUTUNE_INVALID_ARGUMENT, "input '%s' has %zu bytes, expected %zu", port->tensor->name,
                        nbytes, port->tensor->nbytes);
        ORT(factory, GetTensorData(value, &data));
        values[i] = (gputune_value){NULL, (void *)(uintptr_t)data, NULL};
    }
    for (size_t i = 0; i < outputs; i++) {
        const struct port *port = &segment->outputs[i];
        ort_value *value = NULL;
        void *data = NULL;
        ORT(factory, KernelContext_GetOutput(context, port->place, port->shape, port->tensor->rank, &value));
        if (value) ORT(factory, GetTensorMutableData(value, &data));
        values[inputs + i] = (gputune_value){port->tensor->name, data, NULL};
    }
    return gputune_run(segment->graph, values, inputs, values + inputs, outputs, error);
}

static ort_status *create_state(ort_compute *table, void *context, void **state) {
    return (void)context, *state = table, NULL;
}
static void release_state(ort_compute *table, void *state) { (void)table, (void)state; }

static ort_status *compute(ort_compute *table, void *state, ort_context *context) {
    const segment *segment = (struct segment *)table;
    gputune_error error = {GPUTUNE_OK, ""};
    (void)state;
    run(segment, context, &error);
    return status_of(segment->provider->factory, &error);
}

static const ort_compute COMPUTE = {ORT_VERSION, create_state, compute, release_state};

/* --- where its tensors are ---------------------------------------------------------------------------------------- */

/* Compares a tensor of the model with the context's as far as the model knows it; the rest is left to inferences. */
static gputune_code compare(const factory *factory, const ort_value_info *info, const char *name, struct port *port,
                            gputune_error *error) {
    const ort_type *type = NULL;
    const ort_shape *shape = NULL;
    seen seen;
    bool knows;
    for (size_t i = 0; i < port->tensor->rank; i++) port->shape[i] = (int64_t)port->tensor->shape[i];
    ORT(factory, GetValueInfoTypeInfo(info, &type));
    if (type) ORT(factory, CastTypeInfoToTensorInfo(type, &shape));
    TRY(see(factory, shape, &seen, error));
    TRY(check(port, name, " in the model", &seen, &knows, error));
    port->checked = !knows;
    return GPUTUNE_OK;
}

typedef ort_status *count_values(const ort_node *, size_t *count);
typedef ort_status *take_values(const ort_node *, const ort_value_info **, size_t count);

/* Tensors of the context are those of the EPContext node by their places, and these are the fused node's by their
 * names. An output that the fused node does not have is used by nobody. */
static gputune_code connect(segment *segment, const ort_node *node, const ort_node *fused, bool outputs,
                            gputune_error *error) {
    const factory *factory = segment->provider->factory;
    const gputune_graph_info *info = gputune_info(segment->graph);
    const size_t wanted = outputs ? info->output_count : info->input_count;
    count_values *count = outputs ? factory->api->Node_GetNumOutputs : factory->api->Node_GetNumInputs;
    take_values *take = outputs ? factory->api->Node_GetOutputs : factory->api->Node_GetInputs;
    size_t has = 0, fused_has = 0, used = 0;
    TRY(passed(factory, count(node, &has), error));
    TRY(passed(factory, count(fused, &fused_has), error));
    if (has != wanted)
        return fail(error, GPUTUNE_INVALID_ARGUMENT, "it has %zu %s, and graph '%s' of the context has %zu", has,
                    outputs ? "outputs" : "inputs", info->name, wanted);
    const ort_value_info *values[has + 1], *fused_values[fused_has + 1];
    struct port *ports = pool_take(&segment->pool, has, sizeof *ports);
    if (!ports) return NO_MEMORY;
    *(outputs ? &segment->outputs : &segment->inputs) = ports;
    TRY(passed(factory, take(node, values, has), error));
    TRY(passed(factory, take(fused, fused_values, fused_has), error));
    for (size_t i = 0; i < has; i++) {
        struct port *port = &ports[used];
        const char *name = "", *other;
        *port = (struct port){.tensor = outputs ? &info->outputs[i] : &info->inputs[i], .place = SIZE_MAX};
        if (values[i]) ORT(factory, GetValueInfoName(values[i], &name));
        for (size_t j = 0; j < fused_has && *name && port->place == SIZE_MAX; j++) {
            ORT(factory, GetValueInfoName(fused_values[j], &other));
            if (!strcmp(name, other)) port->place = j;
        }
        if (port->place == SIZE_MAX && outputs) continue;
        if (port->place == SIZE_MAX)
            return fail(error, GPUTUNE_INVALID_ARGUMENT, "its input %zu is missing: graph '%s' takes '%s' there", i,
                        info->name, port->tensor->name);
        TRY(compare(factory, values[i], name, port, error));
        used++;
    }
    if (outputs) segment->output_count = used;
    return GPUTUNE_OK;
}

gputune_code connect_segment(segment *segment, const ort_node *node, const ort_node *fused, gputune_error *error) {
    TRY(connect(segment, node, fused, false, error));
    return connect(segment, node, fused, true, error);
}

/* --- loading ------------------------------------------------------------------------------------------------------ */

gputune_code load_segment(provider *provider, const claimed *claimed, gputune_group *group, segment **made,
                          gputune_error *error) {
    const options *options = &provider->options;
    const gputune_load_options wanted = {
        .graph = *claimed->graph ? claimed->graph : NULL,
        .strict = !strcmp(options->cache_compatibility_mode, "strict"),
        .group = group,
        .perf_profile = *options->perf_profile ? options->perf_profile : NULL,
    };
    segment *segment = *made = calloc(1, sizeof *segment);
    if (!segment) return NO_MEMORY;
    segment->table = COMPUTE;
    segment->provider = provider;
    gputune_code code = gputune_load(provider->device->device, claimed->file, &wanted, &segment->graph, error);
    if (!code && provider->profile) code = gputune_record(segment->graph, provider->profile, error);
    if (code) close_segment(segment), *made = NULL;
    return code;
}

void say_warnings(segment *segment) {
    const provider *provider = segment->provider;
    for (const char *text; (text = gputune_warning(segment->graph, segment->told)) != NULL; segment->told++)
        say(provider->factory, provider->logger, LEVEL_WARNING, "graph '%s': %s", gputune_info(segment->graph)->name,
            text);
}

void close_segment(segment *segment) {
    if (segment->graph) say_warnings(segment);
    gputune_unload(segment->graph);
    pool_free(&segment->pool);
    free(segment);
}
