/* EPContext nodes as onnxruntime gives them, by the rules of src/ep_context.c. */
#include "plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LONGEST_TEXT = 4096 };

/* --- attributes --------------------------------------------------------------------------------------------------- */

/* NULL: the node has none of that name. */
static const ort_attribute *attribute_of(const factory *factory, const ort_node *node, const char *name) {
    const ort_attribute *found = NULL;
    ort_status *status = factory->api->Node_GetAttributeByName(node, name, &found);
    if (status) factory->api->ReleaseStatus(status);
    return status ? NULL : found;
}

/* The bytes of an attribute, with 0 behind them; "" where it is missing. */
static gputune_code read_bytes(const factory *factory, const ort_node *node, const char *name, pool *pool,
                               const char **bytes, size_t *nbytes, gputune_error *error) {
    const ort_attribute *attribute = attribute_of(factory, node, name);
    size_t room = 0;
    *bytes = "", *nbytes = 0;
    ort_status *status = attribute ? factory->api->ReadOpAttr(attribute, ATTRIBUTE_STRING, NULL, 0, &room) : NULL;
    if (status) factory->api->ReleaseStatus(status); /* it says how much room is needed */
    if (!room) return GPUTUNE_OK;
    char *made = pool_take(pool, room + 1, 1);
    if (!made) return NO_MEMORY;
    *bytes = made;
    return passed(factory, factory->api->ReadOpAttr(attribute, ATTRIBUTE_STRING, made, room, nbytes), error);
}

static gputune_code read_text(const factory *factory, const ort_node *node, const char *name, pool *pool,
                              const char **text, gputune_error *error) {
    size_t nbytes;
    TRY(read_bytes(factory, node, name, pool, text, &nbytes, error));
    if (nbytes > LONGEST_TEXT || strlen(*text) != nbytes || !is_utf8((slice){(const uint8_t *)*text, nbytes}))
        return fail(error, GPUTUNE_MALFORMED_EP_CONTEXT, "%s is no text of at most %d bytes", name, LONGEST_TEXT);
    return GPUTUNE_OK;
}

/* A number that is 0 or 1; 1 where it is missing, and 0 where a writer has left out the 0. */
static gputune_code read_flag(const factory *factory, const ort_node *node, const char *name, bool *flag,
                              gputune_error *error) {
    const ort_attribute *attribute = attribute_of(factory, node, name);
    int64_t value = 0;
    size_t nbytes = 0;
    ort_status *status = attribute ? factory->api->ReadOpAttr(attribute, ATTRIBUTE_INT, &value, sizeof value, &nbytes)
                                   : NULL;
    if (status) factory->api->ReleaseStatus(status);
    *flag = !attribute || value == 1;
    if (value == 0 || value == 1) return GPUTUNE_OK;
    return fail(error, GPUTUNE_MALFORMED_EP_CONTEXT, "%s is %lld, expected 0 or 1", name, (long long)value);
}

enum { TELLS_PARENTS = 1024 };

/* --- nodes -------------------------------------------------------------------------------------------------------- */

static gputune_code is_ours(const factory *factory, const ort_node *node, bool *ours, gputune_error *error) {
    const char *operator, *domain, *source;
    pool scratch = {NULL};
    *ours = false;
    ORT(factory, Node_GetOperatorType(node, &operator));
    ORT(factory, Node_GetDomain(node, &domain));
    if (strcmp(operator, "EPContext") || strcmp(domain, "com.microsoft")) return GPUTUNE_OK;
    const gputune_code code = read_text(factory, node, "source", &scratch, &source, NULL);
    *ours = !code && !strcmp(source, "gputune");
    pool_free(&scratch);
    return GPUTUNE_OK;
}

/* The file whose folder has the contexts: the model's, else the application says it. */
static gputune_code base_of(provider *provider, const char *model, const char *text, const char **base,
                            gputune_error *error) {
    const char *given = provider->options.context_file_path;
    struct stat status;
    *base = *model ? model : given;
    if (!**base)
        return fail(error, GPUTUNE_MALFORMED_EP_CONTEXT, "ep_cache_context '%s' is a path, but a model from memory has "
                    "no folder: name its file in ep.context_file_path, or embed the context", text);
    if (*model || stat(given, &status) || !S_ISDIR(status.st_mode)) return GPUTUNE_OK;
    char *folder = pool_take(&provider->claims, strlen(given) + 2, 1);
    if (!folder) return NO_MEMORY;
    strcat(strcpy(folder, given), "/");
    *base = folder;
    return GPUTUNE_OK;
}

/* What a main node says of its context. The ONNX file must be trusted as the context must, which is opened later. */
static gputune_code read_content(provider *provider, const ort_graph *graph, const ort_node *node, claimed *into,
                                 gputune_error *error) {
    const factory *factory = provider->factory;
    const char *model, *text, *base;
    bool embedded;
    ORT(factory, Graph_GetModelPath(graph, &model));
    if (*model) TRY(check_trusted(model, error));
    TRY(read_flag(factory, node, "embed_mode", &embedded, error));
    if (embedded) {
        TRY(read_bytes(factory, node, "ep_cache_context", &provider->claims, &text, &into->nbytes, error));
        into->bytes = (const uint8_t *)text;
        if (into->nbytes) return GPUTUNE_OK;
        return fail(error, GPUTUNE_MALFORMED_EP_CONTEXT, "ep_cache_context holds no context");
    }
    TRY(read_text(factory, node, "ep_cache_context", &provider->claims, &text, error));
    TRY(base_of(provider, model, text, &base, error));
    reader reader = {.pool = &provider->claims, .error = error, .path = base,
                     .malformed = GPUTUNE_MALFORMED_EP_CONTEXT};
    into->path = beside(&reader, text);
    return reader.code;
}

/* By what a node is found again when it is to be compiled. */
static gputune_code read_key(const factory *factory, const ort_node *node, size_t *id, const char **output,
                             gputune_error *error) {
    size_t count;
    *output = "";
    ORT(factory, Node_GetId(node, id));
    ORT(factory, Node_GetNumOutputs(node, &count));
    const ort_value_info *outputs[count + 1];
    ORT(factory, Node_GetOutputs(node, outputs, count));
    if (count && outputs[0]) ORT(factory, GetValueInfoName(outputs[0], output));
    return GPUTUNE_OK;
}

static gputune_code read_node(provider *provider, const ort_graph *graph, const ort_node *node, claimed *into,
                              gputune_error *error) {
    const factory *factory = provider->factory;
    ORT(factory, Node_GetName(node, &into->name));
    TRY(read_key(factory, node, &into->id, &into->output, error));
    into->name = pool_text(&provider->claims, into->name, strlen(into->name));
    into->output = pool_text(&provider->claims, into->output, strlen(into->output));
    if (!into->name || !into->output) return NO_MEMORY;
    TRY(read_text(factory, node, "partition_name", &provider->claims, &into->graph, error));
    TRY(read_flag(factory, node, "main_context", &into->is_main, error));
    return into->is_main ? read_content(provider, graph, node, into, error) : GPUTUNE_OK;
}

static int by_id(const void *one, const void *other) {
    const size_t mine = ((const claimed *)one)->id, theirs = ((const claimed *)other)->id;
    return (mine > theirs) - (mine < theirs);
}

/* Nodes come in the order in which they can run; their ids are in that of the file. A node that is not a main one uses
 * the context of the nearest before it, else of the first. */
static void find_mains(claimed *all, size_t count) {
    claimed *main = NULL;
    qsort(all, count, sizeof *all, by_id);
    for (size_t i = count; i-- > 0;)
        if (all[i].is_main) main = &all[i];
    for (size_t i = 0; i < count; i++) {
        if (all[i].is_main) main = &all[i];
        all[i].main = main;
    }
}

/* Says once if the graph of the model, which comes behind those of its branches, has no node for this plugin. From
 * TELLS_PARENTS on onnxruntime says which graph that is. */
static gputune_code answer(provider *provider, const ort_graph *graph, size_t ours, gputune_error *error) {
    const factory *factory = provider->factory;
    const ort_node *parent = NULL;
    if (!ours && !provider->answered) ORT(factory, Graph_GetParentNode(graph, &parent));
    if (!ours && !provider->answered && !parent && factory->version >= TELLS_PARENTS)
        say(factory, provider->logger, LEVEL_WARNING, "no EPContext node of gputune in this model, so nothing of it "
            "runs on the device; make a model with one: `gputune context-binary-generator --ep_context`");
    provider->answered = provider->answered || ours || !parent;
    return GPUTUNE_OK;
}

gputune_code claim_nodes(provider *provider, const ort_graph *graph, ort_support *support, gputune_error *error) {
    const factory *factory = provider->factory;
    size_t count = 0, ours = 0;
    ORT(factory, Graph_GetNumNodes(graph, &count));
    pool scratch = {NULL};
    const ort_node **nodes = pool_take(&scratch, count + 1, sizeof *nodes);
    gputune_code code = nodes ? passed(factory, factory->api->Graph_GetNodes(graph, nodes, count), error) : NO_MEMORY;
    for (size_t i = 0; i < count && !code; i++) {
        bool is_one = false;
        code = is_ours(factory, nodes[i], &is_one, error);
        if (is_one) nodes[ours++] = nodes[i];
    }
    if (!code) code = answer(provider, graph, ours, error);
    if (ours && !code) forget_claims(provider);
    claimed *all = ours && !code ? pool_take(&provider->claims, ours, sizeof *all) : NULL;
    if (ours && !code && !all) code = NO_MEMORY;
    for (size_t i = 0; i < ours && !code; i++) {
        claimed *const into = &all[i];
        gputune_error wrong = {GPUTUNE_OK, ""};
        if (read_node(provider, graph, nodes[i], into, &wrong)) into->wrong = wrong;
        code = passed(factory, factory->ep_api->AddNodesToFuse(support, &nodes[i], 1, NULL), error);
    }
    if (all && !code) {
        find_mains(all, ours);
        provider->claimed = all;
        provider->claimed_count = ours;
    }
    pool_free(&scratch);
    return code;
}

static gputune_code open_claimed(provider *provider, claimed *claimed, gputune_error *error) {
    struct claimed *main = claimed->main;
    if (claimed->wrong.code) return fail(error, claimed->wrong.code, "%s", claimed->wrong.message);
    if (!main) return fail(error, GPUTUNE_MALFORMED_EP_CONTEXT, "no EPContext node with main_context = 1");
    if (main->wrong.code) return fail(error, main->wrong.code, "%s", main->wrong.message);
    if (!main->file && main->path) TRY(open_shared(provider->sharing, main->path, &main->file, error));
    if (!main->file) TRY(gputune_open_bytes(main->bytes, main->nbytes, &main->file, error));
    claimed->file = main->file;
    return GPUTUNE_OK;
}

gputune_code find_claimed(provider *provider, const ort_graph *graph, const ort_node **node, claimed **found,
                          gputune_error *error) {
    const factory *factory = provider->factory;
    const char *output;
    size_t count, id;
    ORT(factory, Graph_GetNumNodes(graph, &count));
    if (count != 1) return fail(error, GPUTUNE_INVALID_ARGUMENT, "%zu fused nodes, expected an EPContext node", count);
    ORT(factory, Graph_GetNodes(graph, node, 1));
    TRY(read_key(factory, *node, &id, &output, error));
    for (size_t i = 0; i < provider->claimed_count; i++) {
        claimed *const each = *found = &provider->claimed[i];
        if (each->id != id || strcmp(each->output, output)) continue;
        gputune_error wrong;
        const gputune_code code = open_claimed(provider, each, &wrong);
        return code ? fail(error, code, "EPContext node '%.80s': %s", each->name, wrong.message) : GPUTUNE_OK;
    }
    return fail(error, GPUTUNE_INVALID_ARGUMENT, "the node that makes '%s' is not an EPContext node that was claimed",
                output);
}

void forget_claims(provider *provider) {
    for (size_t i = 0; i < provider->claimed_count; i++)
        if (provider->claimed[i].bytes) gputune_close(provider->claimed[i].file);
    provider->claimed = NULL;
    provider->claimed_count = 0;
    pool_free(&provider->claims);
}
