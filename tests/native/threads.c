/* Uses all objects of gputune.h from several threads at once, and checks every result; for a thread sanitizer.
 *
 * threads LIBRARY CONTEXT REMEMBERING FOLDER: the OpenCL library, contexts of tests/native/fake.py and stateful.py, and
 * where a log may lie. */
#define _POSIX_C_SOURCE 200809L
#include "gputune.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ELEMENTS = 64, FACTOR = 8, THREADS = 4, INFERENCES = 60, CAPACITY = 8 };

static gputune_file *file, *remembering;
static gputune_state *shared; /* which threads get in each other's way for */
static gputune_device *device;
static gputune_group *group; /* of two streams */
static gputune_graph *graphs[3];
static gputune_profile *profile;
static atomic_int called, wrong;

static void check(gputune_code code, const gputune_error *error) {
    if (code == GPUTUNE_OK) return;
    fprintf(stderr, "%s: %s\n", gputune_code_name(code), error->message);
    exit(1);
}

static void done(void *user, gputune_code code, const gputune_error *error) {
    const float *output = user;
    check(code, error);
    for (int i = 1; i < ELEMENTS; i++)
        if (output[i] != output[0]) atomic_fetch_add(&wrong, 1);
    atomic_fetch_add(&called, 1);
}

static void one_inference(int number, float *input, float *output) {
    gputune_error error;
    gputune_counters total, last;
    gputune_graph *graph = graphs[number % 3];
    for (int i = 0; i < ELEMENTS; i++) input[i] = (float)number;
    gputune_value in = {"x", input, NULL}, out = {"y", output, NULL};
    check(gputune_run(graph, &in, 1, &out, 1, &error), &error);
    for (int i = 0; i < ELEMENTS; i++)
        if (output[i] != (float)(FACTOR * number)) atomic_fetch_add(&wrong, 1);
    gputune_counters_of(graph, &total, &last);
    if (number % 7 == 0) check(gputune_record(graph, number % 2 ? profile : NULL, &error), &error);
    if (number % 13 == 0) check(gputune_touch(device, &error), &error);
    if (number % 17 == 0) { /* graphs of a group come and go */
        gputune_load_options options = {.group = group, .stream = (size_t)number % 2};
        gputune_graph *another;
        check(gputune_load(device, file, &options, &another, &error), &error);
        check(gputune_run(another, &in, 1, &out, 1, &error), &error);
        check(gputune_grow(group, file, &error), &error);
        gputune_unload(another);
    }
    if (number % 11 == 0) {
        gputune_memory *memory;
        check(gputune_allocate(device, sizeof(float) * ELEMENTS, &memory, &error), &error);
        gputune_value held = {"y", NULL, memory};
        check(gputune_run(graph, &in, 1, &held, 1, &error), &error);
        if (memcmp(gputune_memory_data(memory), output, sizeof(float) * ELEMENTS) != 0) atomic_fetch_add(&wrong, 1);
        gputune_free(memory);
    }
}

/* What is asked of the shared state is done, or refused because another thread uses it, or it is full. */
static void check_shared(gputune_code code, const gputune_error *error) {
    const bool busy = code == GPUTUNE_INVALID_ARGUMENT && strstr(error->message, "used by another thread");
    const bool beyond = code == GPUTUNE_INVALID_ARGUMENT && strstr(error->message, "cannot be rewound to");
    if (!busy && !beyond && code != GPUTUNE_LIMIT_EXCEEDED) check(code, error);
}

/* Moves a state of its own on, in whose way nobody is, and now and then the shared one. */
static void remember(int thread) {
    float x[ELEMENTS], y[ELEMENTS];
    int32_t twice;
    gputune_error error;
    gputune_graph *graph;
    gputune_state *state, *copy;
    gputune_value in = {"x", x, NULL}, out[] = {{"y", y, NULL}, {"twice the length", &twice, NULL}};
    const gputune_load_options options = {.graph = "one", .group = thread < 2 ? group : NULL,
                                          .stream = thread < 2 ? (size_t)thread : 0};
    check(gputune_load(device, remembering, &options, &graph, &error), &error);
    check(gputune_open_state(graph, &state, &error), &error);
    for (int number = 0; number < INFERENCES; number++) {
        const size_t length = (size_t)number % CAPACITY;
        for (int i = 0; i < ELEMENTS; i++) x[i] = (float)(THREADS * number + thread);
        if (!length) check(gputune_reset_state(state, &error), &error);
        check(gputune_use_state(graph, state, &error), &error);
        check(gputune_run(graph, &in, 1, out, 2, &error), &error);
        const float wanted = length < 2 ? 0 : (float)(FACTOR * (THREADS * (number - 2) + thread));
        if (y[0] != wanted || twice != 2 * (int)length || gputune_state_length(state) != length + 1)
            atomic_fetch_add(&wrong, 1);
        check(gputune_copy_state(state, &copy, &error), &error);
        check(gputune_use_state(graph, shared, &error), &error);
        check_shared(gputune_run(graph, &in, 1, out, 2, &error), &error);
        check_shared(gputune_read_state(shared, "a", y, sizeof y, &error), &error);
        if (gputune_state_length(shared) == CAPACITY) check_shared(gputune_rewind_state(shared, 1, &error), &error);
        if (number % 5 == thread) check_shared(gputune_reset_state(shared, &error), &error);
        if (number % 2) gputune_close_state(state), state = copy;
        else gputune_close_state(copy);
    }
    gputune_close_state(state);
    gputune_unload(graph);
}

static void *work(void *which) {
    static float inputs[THREADS][ELEMENTS], outputs[THREADS][INFERENCES][ELEMENTS];
    int thread = *(int *)which;
    gputune_error error;
    for (int i = 0; i < ELEMENTS; i++) inputs[thread][i] = 1;
    for (int number = 0; number < INFERENCES; number++) {
        float input[ELEMENTS];
        gputune_value in = {"x", inputs[thread], NULL}, out = {"y", outputs[thread][number], NULL};
        if (number % 3 == 0)
            check(gputune_run_async(graphs[thread % 3], &in, 1, &out, 1, done, outputs[thread][number], &error), &error);
        else
            one_inference(thread * INFERENCES + number, input, outputs[thread][number]);
    }
    remember(thread);
    return NULL;
}

int main(int argc, char **argv) {
    gputune_error error;
    pthread_t threads[THREADS];
    int numbers[THREADS];
    char log[4096];
    if (argc != 5) return 2;
    snprintf(log, sizeof log, "%s/profile.log", argv[4]);
    check(gputune_open(argv[2], &file, &error), &error);
    check(gputune_open(argv[3], &remembering, &error), &error);
    check(gputune_open_device(&(gputune_device_options){.library = argv[1], .file = file}, &device, &error), &error);
    check(gputune_open_group(device, (const gputune_file *const *)&file, 1, 2, &group, &error), &error);
    check(gputune_open_profile(device, log, GPUTUNE_QHAS, &profile, &error), &error);
    for (int number = 0; number < 3; number++) {
        gputune_load_options options = {.group = number < 2 ? group : NULL, .stream = number < 2 ? (size_t)number : 0};
        check(gputune_load(device, file, &options, &graphs[number], &error), &error);
    }
    gputune_graph *first;
    check(gputune_load(device, remembering, &(gputune_load_options){.graph = "one"}, &first, &error), &error);
    check(gputune_open_state(first, &shared, &error), &error);
    for (int number = 0; number < THREADS; number++) {
        numbers[number] = number;
        if (pthread_create(&threads[number], NULL, work, &numbers[number])) return 3;
    }
    for (int number = 0; number < THREADS; number++) pthread_join(threads[number], NULL);
    for (int number = 0; number < 3; number++) gputune_unload(graphs[number]);
    check(gputune_close_profile(profile, &error), &error);
    gputune_close_state(shared);
    gputune_unload(first);
    gputune_close_group(group);
    gputune_close(remembering);
    gputune_close(file);
    gputune_close_device(device);
    printf("%d callbacks, %d wrong\n", atomic_load(&called), atomic_load(&wrong));
    return atomic_load(&wrong) || atomic_load(&called) != THREADS * INFERENCES / 3;
}
