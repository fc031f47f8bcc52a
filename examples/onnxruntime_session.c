/* Run an ONNX file in onnxruntime with gputune, from C:
 *
 *   cc -O2 -o session onnxruntime_session.c -ldl
 *   ./session LIBONNXRUNTIME "$(gputune onnxruntime build)" model_ctx.onnx x=1,3,224,224 y
 *
 * LIBONNXRUNTIME is onnxruntime's own library, 1.23 or newer, such as libonnxruntime.so.1. The model has an input x of
 * float32 with this shape, which gets made-up numbers, and the first numbers of its output y are printed.
 *
 * With onnxruntime's header, OrtApi has these functions by name. Here they are called by their places in it, which do
 * not change, so that the example needs nothing but a compiler. */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { API_VERSION = 23, MOST_DIMENSIONS = 16, SHOWN = 8, WARNINGS = 2, FLOAT = 1 };

typedef void any_function(void);
typedef void *status; /* NULL: it went well */
typedef struct base { any_function *const *(*get_api)(uint32_t version); } base;

static any_function *const *api;
#define CALL(place, result, ...) ((result(*)(__VA_ARGS__))api[place])
#define GET_ERROR_MESSAGE CALL(2, const char *, const void *)
#define CREATE_ENVIRONMENT CALL(3, status, int, const char *, void **)
#define CREATE_SESSION CALL(7, status, const void *, const char *, const void *, void **)
#define RUN CALL(9, status, void *, const void *, const char *const *, const void *const *, size_t, \
                 const char *const *, size_t, void **)
#define CREATE_SESSION_OPTIONS CALL(10, status, void **)
#define CREATE_TENSOR CALL(49, status, const void *, void *, size_t, const int64_t *, size_t, int, void **)
#define GET_TENSOR_DATA CALL(51, status, void *, void **)
#define CREATE_CPU_MEMORY_INFO CALL(69, status, int, int, void **)
#define RELEASE_ENVIRONMENT CALL(92, void, void *)
#define RELEASE_STATUS CALL(93, void, void *)
#define RELEASE_MEMORY_INFO CALL(94, void, void *)
#define RELEASE_SESSION CALL(95, void, void *)
#define RELEASE_VALUE CALL(96, void, void *)
#define RELEASE_SESSION_OPTIONS CALL(100, void, void *)
#define ADD_SESSION_ENTRY CALL(130, status, void *, const char *, const char *)
#define REGISTER_LIBRARY CALL(301, status, void *, const char *, const char *)
#define UNREGISTER_LIBRARY CALL(302, status, void *, const char *)
#define GET_DEVICES CALL(303, status, const void *, void *const **, size_t *)
#define ADD_PROVIDER CALL(304, status, void *, void *, void *const *, size_t, const char *const *, \
                          const char *const *, size_t)
#define PROVIDER_OF CALL(312, const char *, const void *)
#define GET_TENSOR_BYTES CALL(318, status, const void *, size_t *)

static void must(status found, const char *what) {
    if (!found) return;
    fprintf(stderr, "%s: %s\n", what, GET_ERROR_MESSAGE(found));
    RELEASE_STATUS(found);
    exit(1);
}

static void *device_of_gputune(const void *environment) {
    void *const *devices;
    size_t count;
    must(GET_DEVICES(environment, &devices, &count), "devices");
    for (size_t i = 0; i < count; i++)
        if (!strcmp(PROVIDER_OF(devices[i]), "GputuneExecutionProvider")) return devices[i];
    fprintf(stderr, "gputune found no OpenCL device; `gputune doctor` checks the drivers\n");
    exit(1);
}

static void *open_session(void *environment, const char *model) {
    void *options, *session, *device = device_of_gputune(environment);
    /* More options are in docs/onnxruntime.md. */
    const char *const names[] = {"perf_profile"}, *const values[] = {"system_settings"};
    must(CREATE_SESSION_OPTIONS(&options), "options");
    must(ADD_SESSION_ENTRY(options, "session.intra_op.allow_spinning", "0"), "options");
    must(ADD_PROVIDER(options, environment, &device, 1, names, values, 1), "provider");
    must(CREATE_SESSION(environment, model, options, &session), "session");
    RELEASE_SESSION_OPTIONS(options);
    return session;
}

/* Reads x=1,3,224,224 and returns how many elements that are; the name ends at the equals sign from now on. */
static size_t read_shape(char *text, int64_t shape[MOST_DIMENSIONS], size_t *rank) {
    size_t count = 1;
    char *at = strchr(text, '=');
    for (*rank = 0; at && *rank < MOST_DIMENSIONS && *at; count *= (size_t)shape[(*rank)++]) {
        *at++ = 0;
        shape[*rank] = strtoll(at, &at, 10);
    }
    return count;
}

int main(int count, char **arguments) {
    if (count != 6) return fprintf(stderr, "%s LIBONNXRUNTIME PLUGIN MODEL INPUT=SHAPE OUTPUT\n", arguments[0]), 2;
    void *library = dlopen(arguments[1], RTLD_NOW), *environment, *memory, *input, *output = NULL, *data;
    void *found = library ? dlsym(library, "OrtGetApiBase") : NULL;
    const base *(*get_base)(void);
    if (!found) return fprintf(stderr, "%s\n", dlerror()), 1;
    memcpy(&get_base, &found, sizeof get_base);
    api = get_base()->get_api(API_VERSION);
    if (!api) return fprintf(stderr, "this onnxruntime is older than 1.%d\n", API_VERSION), 1;
    must(CREATE_ENVIRONMENT(WARNINGS, "example", &environment), "environment");
    must(REGISTER_LIBRARY(environment, "gputune", arguments[2]), "registering gputune");
    void *session = open_session(environment, arguments[3]);

    int64_t shape[MOST_DIMENSIONS];
    size_t rank, elements = read_shape(arguments[4], shape, &rank), nbytes;
    float *numbers = malloc(elements * sizeof *numbers);
    if (!numbers) return fprintf(stderr, "out of memory\n"), 1;
    for (size_t i = 0; i < elements; i++) numbers[i] = (float)(i * 37 % 101) / 101;
    must(CREATE_CPU_MEMORY_INFO(0, 0, &memory), "memory");
    must(CREATE_TENSOR(memory, numbers, elements * sizeof *numbers, shape, rank, FLOAT, &input), "input");
    RELEASE_MEMORY_INFO(memory);
    const char *const inputs[] = {arguments[4]}, *const outputs[] = {arguments[5]};
    const void *const given[] = {input};
    must(RUN(session, NULL, inputs, given, 1, outputs, 1, &output), "inference");
    must(GET_TENSOR_DATA(output, &data), "output");
    must(GET_TENSOR_BYTES(output, &nbytes), "output");
    printf("%s:", arguments[5]);
    for (size_t i = 0; i < nbytes / sizeof(float) && i < SHOWN; i++) printf(" %g", (double)((float *)data)[i]);
    printf("\n");

    RELEASE_VALUE(output);
    RELEASE_VALUE(input);
    free(numbers);
    RELEASE_SESSION(session);
    must(UNREGISTER_LIBRARY(environment, "gputune"), "unregistering");
    RELEASE_ENVIRONMENT(environment);
    return 0;
}
