/* Opens, loads and runs a context again and again, of whose file others do what they like, until its input ends. A line
 * for each step: what it has led to, the name of a code or which of the expected outputs it gave.
 *
 * replacing CONTEXT FOLDER: a graph with one input and one output; input.raw, one.raw and other.raw in the folder. */
#define _DEFAULT_SOURCE /* usleep */
#include "gputune.h"

#include <fcntl.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096, PAUSE_US = 5000 };
#define CLOSE 1e-3f

static const char *folder;
static float *input, *output, *expected[2];
static size_t elements;

static float *floats_of(const char *name, size_t *count) {
    char path[PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s.raw", folder, name);
    FILE *file = fopen(path, "rb");
    if (file == NULL || fseek(file, 0, SEEK_END)) exit(2);
    *count = (size_t)ftell(file) / sizeof(float);
    rewind(file);
    float *found = calloc(*count, sizeof(float));
    if (found == NULL || fread(found, sizeof(float), *count, file) != *count) exit(2);
    fclose(file);
    return found;
}

static bool is_close(const float *wanted) {
    float most = 0, off = 0;
    for (size_t i = 0; i < elements; i++) {
        most = fmaxf(most, fabsf(wanted[i]));
        off = fmaxf(off, isfinite(output[i]) ? fabsf(output[i] - wanted[i]) : INFINITY);
    }
    return off <= CLOSE * most;
}

static bool say(const char *step, gputune_code code) {
    printf("%s %s\n", step, gputune_code_name(code));
    if (code) usleep(PAUSE_US);
    return code == GPUTUNE_OK;
}

static void run(gputune_graph *graph, const char *step) {
    gputune_error error;
    const gputune_value in = {NULL, input, NULL}, out = {NULL, output, NULL};
    memset(output, 0, elements * sizeof *output);
    if (!say(step, gputune_run(graph, &in, 1, &out, 1, &error))) return;
    printf("output %s\n", is_close(expected[0]) ? "one" : is_close(expected[1]) ? "other" : "wrong");
}

/* Loads and runs it, and runs what is loaded later than the rest. */
static void use(gputune_device *device, const gputune_file *file, bool one_by_one) {
    gputune_error error;
    gputune_graph *graph;
    gputune_profile *profile;
    const gputune_load_options options = {.one_by_one = one_by_one};
    if (!say("load", gputune_load(device, file, &options, &graph, &error))) return;
    run(graph, "run");
    if (say("profile", gputune_open_profile(device, "/dev/null", GPUTUNE_DETAILED, &profile, &error))) {
        if (say("later", gputune_record(graph, profile, &error))) run(graph, "run");
        gputune_close_profile(profile, NULL);
    }
    gputune_unload(graph);
}

static bool goes_on(void) {
    struct pollfd waited = {.fd = 0, .events = POLLIN};
    return poll(&waited, 1, 0) == 0;
}

int main(int argc, char **argv) {
    gputune_error error;
    gputune_device *device = NULL;
    size_t count;
    if (argc != 3) return 2;
    folder = argv[2];
    setvbuf(stdout, NULL, _IOLBF, 0);
    input = floats_of("input", &count), expected[0] = floats_of("one", &elements), expected[1] = floats_of("other", &count);
    output = calloc(elements, sizeof *output);
    if (output == NULL || count != elements) return 2;
    while (goes_on()) {
        gputune_file *file;
        if (!say("open", gputune_open(argv[1], &file, &error))) continue;
        if (device == NULL && gputune_open_device(&(gputune_device_options){.file = file}, &device, &error)) return 3;
        use(device, file, false);
        use(device, file, true);
        gputune_close(file);
        say("turn", GPUTUNE_OK);
    }
    gputune_close_device(device);
    return 0;
}
