/* by_runtime CONTEXT LIBRARY FORM INPUT ... OUTPUT ...: the C runtime, in turns. FORM: "persistent" or "launches". The
 * inputs are files; what the last inference gave is written to the outputs. */
#define _POSIX_C_SOURCE 200809L
#include "gputune.h"
#include "turns.h"

static gputune_error error;
static gputune_graph *graph;
static gputune_value values[16], results[16];
static size_t inputs, outputs;

static void check(gputune_code code) {
    if (code) die(error.message);
}

static void infer(void) { check(gputune_run(graph, values, inputs, results, outputs, &error)); }

int main(int argc, char **argv) {
    gputune_file *file;
    gputune_device *device;
    if (argc < 4) return 2;
    gputune_load_options options = {.strict = true, .one_by_one = strcmp(argv[3], "launches") == 0};
    uint64_t begun_ns = now_ns();
    check(gputune_open(argv[1], &file, &error));
    uint64_t opened_ns = now_ns();
    check(gputune_open_device(&(gputune_device_options){.library = argv[2], .file = file}, &device, &error));
    uint64_t device_ns = now_ns();
    check(gputune_load(device, file, &options, &graph, &error));
    uint64_t loaded_ns = now_ns();
    gputune_close(file);
    const gputune_graph_info *info = gputune_info(graph);
    inputs = info->input_count, outputs = info->output_count;
    if (inputs > 16 || outputs > 16 || (size_t)argc != 4 + inputs + outputs) return 2;
    for (size_t at = 0; at < inputs; at++) values[at].data = content_of(argv[4 + at], info->inputs[at].nbytes);
    for (size_t at = 0; at < outputs; at++) results[at].data = calloc(info->outputs[at].nbytes, 1);
    printf("%llu %llu\n", (unsigned long long)(loaded_ns - device_ns + opened_ns - begun_ns),
           (unsigned long long)(device_ns - opened_ns));
    fflush(stdout);
    take_turns(infer);
    for (size_t at = 0; at < outputs; at++) {
        FILE *output = fopen(argv[4 + inputs + at], "wb");
        if (output == NULL || !fwrite(results[at].data, info->outputs[at].nbytes, 1, output)) die("an output");
        fclose(output);
    }
    gputune_unload(graph);
    gputune_close_device(device);
    return 0;
}
