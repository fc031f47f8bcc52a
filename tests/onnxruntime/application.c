/* An application of onnxruntime in C:  application ONNXRUNTIME PLUGIN MODEL CONTEXT TURNS [VERDICT-TEXT]
 *
 * It registers the plugin, runs the model in a session and the same context by gputune_run, in turns, compares the
 * outputs and ends as applications should. It prints how our device is known, the verdict on a text, and the least times:
 * also of the context loaded again behind the session, because where a context lies in memory has an effect, too.
 * onnxruntime is opened by its path, and its functions are called by their places in its table. */
#define _POSIX_C_SOURCE 200809L
#include <gputune.h>

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_TENSORS = 16, FLOAT = 1, LONGEST_NAME = 64 };
typedef void any_function(void);
typedef void *status;
typedef struct base {
    any_function *const *(*get_api)(uint32_t version);
    const char *(*version)(void);
} base;

static any_function *const *api;
#define CALL(place, result, ...) ((result(*)(__VA_ARGS__))api[place])

static void must(status found, const char *what) {
    if (!found) return;
    fprintf(stderr, "%s: %s\n", what, CALL(2, const char *, const void *)(found));
    CALL(93, void, void *)(found);
    exit(1);
}

static void must_do(gputune_code code, const gputune_error *error) {
    if (!code) return;
    fprintf(stderr, "%s\n", error->message);
    exit(1);
}

static double now_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e6 * (double)now.tv_sec + 1e-3 * (double)now.tv_nsec;
}

static void *our_device(const void *env) {
    static const char *const KINDS[] = {"cpu", "gpu", "npu"};
    void *const *devices;
    size_t count;
    must(CALL(303, status, const void *, void *const **, size_t *)(env, &devices, &count), "devices");
    for (size_t i = 0; i < count; i++) {
        if (strcmp(CALL(312, const char *, const void *)(devices[i]), "GputuneExecutionProvider")) continue;
        const void *hardware = CALL(316, const void *, const void *)(devices[i]);
        printf("device %s\n", KINDS[CALL(307, int, const void *)(hardware)]);
        return devices[i];
    }
    printf("no device\n");
    exit(0);
}

/* A tensor of onnxruntime's over memory of ours. */
static void *tensor_of(const gputune_tensor *tensor, void *data) {
    int64_t shape[GPUTUNE_MOST_DIMENSIONS];
    void *memory, *value;
    for (size_t i = 0; i < tensor->rank; i++) shape[i] = (int64_t)tensor->shape[i];
    must(CALL(69, status, int, int, void **)(0, 0, &memory), "memory");
    must(CALL(49, status, const void *, void *, size_t, const int64_t *, size_t, int, void **)(
             memory, data, tensor->nbytes, shape, tensor->rank, FLOAT, &value), "tensor");
    CALL(94, void, void *)(memory);
    return value;
}

static void *open_session(void *env, void *device, const char *model) {
    const char *const keys[] = {"cache_compatibility_mode"}, *const values[] = {"strict"};
    void *options, *session;
    must(CALL(10, status, void **)(&options), "options");
    must(CALL(130, status, void *, const char *, const char *)(options, "session.intra_op.allow_spinning", "0"), "entry");
    must(CALL(304, status, void *, void *, void *const *, size_t, const char *const *, const char *const *, size_t)(
             options, env, &device, 1, keys, values, 1), "provider");
    must(CALL(7, status, const void *, const char *, const void *, void **)(env, model, options, &session), "session");
    CALL(100, void, void *)(options);
    return session;
}

int main(int count, char **arguments) {
    if (count < 6) return 2;
    void *library = dlopen(arguments[1], RTLD_NOW), *env, *device, *session;
    const base *(*get_base)(void);
    void *found = library ? dlsym(library, "OrtGetApiBase") : NULL;
    gputune_error error;
    gputune_file *file;
    gputune_device *own;
    gputune_graph *graph, *again;
    if (!found) return fprintf(stderr, "%s\n", dlerror()), 1;
    memcpy(&get_base, &found, sizeof get_base);
    api = get_base()->get_api(23);
    must(CALL(3, status, int, const char *, void **)(2, "application", &env), "environment");
    must(CALL(301, status, void *, const char *, const char *)(env, "gputune", arguments[2]), "registering");
    device = our_device(env);
    if (count > 6) {
        int verdict = -1;
        must(CALL(388, status, void *const *, size_t, const char *, int *)(&device, 1, arguments[6], &verdict), "verdict");
        printf("verdict %d\n", verdict);
    }
    must_do(gputune_open(arguments[4], &file, &error), &error);
    must_do(gputune_open_device(&(gputune_device_options){.file = file}, &own, &error), &error);
    double load_us = now_us();
    must_do(gputune_load(own, file, NULL, &graph, &error), &error);
    load_us = now_us() - load_us;
    double session_us = now_us();
    session = open_session(env, device, arguments[3]);
    session_us = now_us() - session_us;
    must_do(gputune_load(own, file, NULL, &again, &error), &error);

    const gputune_graph_info *info = gputune_info(graph);
    gputune_value inputs[MOST_TENSORS], outputs[MOST_TENSORS];
    const char *input_names[MOST_TENSORS], *output_names[MOST_TENSORS];
    void *given[MOST_TENSORS], *taken[MOST_TENSORS], *buffers[MOST_TENSORS];
    if (info->input_count > MOST_TENSORS || info->output_count > MOST_TENSORS) return 2;
    for (size_t i = 0; i < info->input_count; i++) {
        float *data = malloc(info->inputs[i].nbytes);
        for (size_t j = 0; j < info->inputs[i].nbytes / sizeof *data; j++) data[j] = (float)(j * 37 % 101) / 101;
        inputs[i] = (gputune_value){.data = data};
        input_names[i] = info->inputs[i].name;
        given[i] = tensor_of(&info->inputs[i], data);
    }
    for (size_t i = 0; i < info->output_count; i++) {
        outputs[i] = (gputune_value){.data = calloc(info->outputs[i].nbytes, 1)};
        buffers[i] = calloc(info->outputs[i].nbytes, 1);
        output_names[i] = info->outputs[i].name;
        taken[i] = tensor_of(&info->outputs[i], buffers[i]);
    }
    double least_us = 1e18, own_us = 1e18, again_us = 1e18;
    for (long turn = 0; turn < atol(arguments[5]); turn++) {
        double begun = now_us();
        must_do(gputune_run(graph, inputs, info->input_count, outputs, info->output_count, &error), &error);
        const double between = now_us();
        if (between - begun < own_us) own_us = between - begun;
        begun = now_us();
        must(CALL(9, status, void *, const void *, const char *const *, const void *const *, size_t, const char *const *,
                  size_t, void **)(session, NULL, input_names, (const void *const *)given, info->input_count,
                                   output_names, info->output_count, taken), "run");
        const double took = now_us() - begun;
        if (took < least_us) least_us = took;
        begun = now_us();
        must_do(gputune_run(again, inputs, info->input_count, outputs, info->output_count, &error), &error);
        const double behind = now_us() - begun;
        if (behind < again_us) again_us = behind;
    }
    bool equal = true;
    for (size_t i = 0; i < info->output_count; i++)
        equal &= !memcmp(outputs[i].data, buffers[i], info->outputs[i].nbytes);
    printf("%s\nload %.1f ms, session %.1f ms\nrun %.2f us, session's %.2f us, behind it %.2f us\n",
           equal ? "equal" : "NOT EQUAL", load_us / 1e3, session_us / 1e3, own_us, least_us, again_us);

    for (size_t i = 0; i < info->input_count; i++) CALL(96, void, void *)(given[i]), free(inputs[i].data);
    for (size_t i = 0; i < info->output_count; i++)
        CALL(96, void, void *)(taken[i]), free(outputs[i].data), free(buffers[i]);
    CALL(95, void, void *)(session);
    gputune_unload(again);
    gputune_unload(graph);
    gputune_close_device(own);
    gputune_close(file);
    must(CALL(302, status, void *, const char *)(env, "gputune"), "unregistering");
    CALL(92, void, void *)(env);
    return equal ? 0 : 1;
}
