/* gputune-run: runs a context binary on files, and says what inferences take. An example of gputune.h, too. */
#define _POSIX_C_SOURCE 200809L
#include "gputune.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

enum { BAD_OPTION = 2, BAD_OUTPUT = 6, BAD_DEVICE_OR_CONTEXT = 8, LONGEST_PATH = 4096 };

static const char HELP[] =
    "usage: gputune-run --context FILE [OPTION ...] [INPUT.raw ...]\n\n"
    "Runs a context binary of gputune on this machine's device and writes its outputs.\n\n"
    "    gputune-run --context model.bin page.raw                      a file for each input, in the graph's order\n"
    "    echo x:=page.raw > inputs.txt\n"
    "    gputune-run --context model.bin --input_list inputs.txt --num_inferences 100 --output_dir results\n\n"
    "  --context FILE       a context binary, a package, or an ONNX file with EPContext nodes\n"
    "  --input_list FILE    an inference a line: NAME:=FILE NAME2:=FILE\n"
    "  --output_dir DIR     for Result_N/NAME.raw, N counting the lines of the input list; default: output\n"
    "  --num_inferences N   starts over in the list when it is used up; default: one a line\n"
    "  --duration SECONDS   instead of a number: as many as begin within that time\n"
    "  --warmup N           so many before, which are neither counted nor written\n"
    "  --graph NAME         of the context; default: its first\n"
    "  --device NAME        a part of the device's or its platform's name; default: the one of the context\n"
    "  --strict             refuse a context for another device or driver, which is built from source otherwise\n"
    "  --one_by_one         no persistent kernels\n"
    "  --perf_profile NAME  for which clocks and power to vote meanwhile, such as burst or power_saver\n"
    "  --profile FILE       record launches; `gputune profile-viewer --input_log FILE` shows them\n\n"
    "Raw files hold a tensor's values one after the other, little endian. GPUTUNE_OPENCL_LIBRARY names libOpenCL.so\n"
    "where it lies somewhere else. Exit codes: 0 done, 2 bad option or input, 6 output, 8 device or context.\n";

typedef struct run {
    const char *context, *input_list, *output_dir, *device, *profile;
    gputune_load_options load;
    double seconds;
    size_t count, warmup, lines, inputs, outputs, done, file_count;
    char **files; /* of each line those of the inputs, in their order */
    gputune_value *values, *results;
    const gputune_graph_info *info;
    uint64_t *took_ns;
} run;

static int failed(int code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    fputs("error: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    va_end(arguments);
    return code;
}

static int refused(const gputune_error *error) {
    return failed(BAD_DEVICE_OR_CONTEXT, "%s [%s]", error->message, gputune_code_name(error->code));
}

/* Memory for `count` and one more, until the program ends. */
static void *more(void *memory, size_t count, size_t nbytes) {
    void *got = count < SIZE_MAX / nbytes - 1 ? realloc(memory, (count + 1) * nbytes) : NULL;
    if (got == NULL) exit(failed(BAD_DEVICE_OR_CONTEXT, "there is no memory for %zu x %zu bytes", count, nbytes));
    return got;
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static int parse(run *run, int argc, char **argv) {
    static const struct option options[] = {
        {"context", 1, NULL, 'c'},        {"input_list", 1, NULL, 'i'}, {"output_dir", 1, NULL, 'o'},
        {"num_inferences", 1, NULL, 'n'}, {"duration", 1, NULL, 't'},   {"warmup", 1, NULL, 'w'},
        {"graph", 1, NULL, 'g'},          {"device", 1, NULL, 'd'},     {"strict", 0, NULL, 's'},
        {"one_by_one", 0, NULL, '1'},     {"profile", 1, NULL, 'l'},    {"perf_profile", 1, NULL, 'p'},
        {"help", 0, NULL, 'h'},           {NULL, 0, NULL, 0}};
    for (int option; (option = getopt_long(argc, argv, "h", options, NULL)) != -1;) {
        char *end = optarg;
        double value = strchr("ntw", option) != NULL ? strtod(optarg, &end) : 0;
        if (strchr("ntw", option) != NULL && (end == optarg || *end || !(value >= 0 && value < 1e9)))
            return failed(BAD_OPTION, "'%s' is no number that fits here; see --help", optarg);
        switch (option) {
        case 'c': run->context = optarg; break;
        case 'i': run->input_list = optarg; break;
        case 'o': run->output_dir = optarg; break;
        case 'n': run->count = (size_t)value; break;
        case 't': run->seconds = value; break;
        case 'w': run->warmup = (size_t)value; break;
        case 'g': run->load.graph = optarg; break;
        case 'd': run->device = optarg; break;
        case 's': run->load.strict = true; break;
        case '1': run->load.one_by_one = true; break;
        case 'l': run->profile = optarg; break;
        case 'p': run->load.perf_profile = optarg; break;
        case 'h': exit(fputs(HELP, stdout) < 0 ? BAD_OUTPUT : 0);
        default: return BAD_OPTION; /* getopt has said why */
        }
    }
    run->files = argv + optind;
    run->file_count = (size_t)(argc - optind);
    if (run->context == NULL) return failed(BAD_OPTION, "--context names what to run; see --help");
    if (run->count && run->seconds > 0) return failed(BAD_OPTION, "--num_inferences or --duration: give one of them");
    return 0;
}

/* Files of the inputs, which are named on a line: NAME:=FILE, or FILE where there is one input. */
static int read_line(run *run, char *line, size_t number) {
    char **files = memset(run->files + run->lines++ * run->inputs, 0, run->inputs * sizeof *files), *rest = NULL;
    size_t found = 0;
    for (char *word = strtok_r(line, " \t\r\n", &rest); word != NULL; word = strtok_r(NULL, " \t\r\n", &rest)) {
        char *file = strstr(word, ":=");
        size_t place = 0, length = file != NULL ? (size_t)(file - word) : 0;
        for (; file != NULL && place < run->inputs; place++) {
            const char *name = run->info->inputs[place].name;
            if (strlen(name) == length && memcmp(name, word, length) == 0) break;
        }
        if ((file == NULL && run->inputs != 1) || place >= run->inputs || files[place] != NULL)
            return failed(BAD_OPTION, "%s:%zu: '%s' is not NAME:=FILE of an input that has none yet", run->input_list,
                          number, word);
        files[place] = file != NULL ? file + 2 : word;
        found++;
    }
    if (found == run->inputs) return 0;
    return failed(BAD_OPTION, "%s:%zu: files for %zu of %zu inputs", run->input_list, number, found, run->inputs);
}

static int read_list(run *run) {
    FILE *file = fopen(run->input_list, "r");
    if (file == NULL) return failed(BAD_OPTION, "input list %s cannot be read: %s", run->input_list, strerror(errno));
    int code = 0;
    size_t room = 0, number = 0;
    run->files = NULL;
    for (char *line = NULL; !code && getline(&line, &room, file) != -1; line = NULL, room = 0) { /* its words stay */
        const char *first = line + strspn(line, " \t\r\n");
        number++;
        if (*first == 0 || *first == '#') continue;
        run->files = more(run->files, (run->lines + 1) * run->inputs, sizeof *run->files);
        code = read_line(run, line, number);
    }
    fclose(file);
    return code || run->lines ? code : failed(BAD_OPTION, "input list %s names no inputs", run->input_list);
}

static int read_input(const char *path, const gputune_tensor *tensor, char *to) {
    FILE *file = fopen(path, "rb");
    if (file == NULL) return failed(BAD_OPTION, "%s cannot be read: %s", path, strerror(errno));
    bool whole = fread(to, 1, tensor->nbytes, file) == tensor->nbytes && fgetc(file) == EOF;
    fclose(file);
    if (whole) return 0;
    return failed(BAD_OPTION, "%s has not %zu bytes, which input '%s' takes", path, tensor->nbytes, tensor->name);
}

/* In names of files, what separates folders or hides a file becomes an underscore. */
static int write_output(const run *run, size_t number, const gputune_tensor *tensor, const char *data) {
    char path[LONGEST_PATH];
    int begin = snprintf(path, sizeof path, "%s/Result_%zu", run->output_dir, number);
    if (begin < 0 || (size_t)begin + strlen(tensor->name) + 6 > sizeof path)
        return failed(BAD_OUTPUT, "--output_dir: the path of output '%s' is too long", tensor->name);
    if ((mkdir(run->output_dir, 0777) && errno != EEXIST) || (mkdir(path, 0777) && errno != EEXIST))
        return failed(BAD_OUTPUT, "--output_dir: %s cannot be made: %s", path, strerror(errno));
    sprintf(path + begin, "/%s.raw", tensor->name);
    for (char *letter = path + begin + 1; *letter; letter++)
        if ((*letter > 0 && !isalnum(*letter) && !strchr("._-", *letter)) || (letter == path + begin + 1 && *letter == '.'))
            *letter = '_';
    FILE *file = fopen(path, "wb");
    bool whole = file != NULL && fwrite(data, 1, tensor->nbytes, file) == tensor->nbytes;
    if (file != NULL && fclose(file) == 0 && whole) return 0;
    return failed(BAD_OUTPUT, "%s cannot be written: %s", path, strerror(errno));
}

/* The inference of a number, on a line of the list; those below 0 warm up. */
static int infer(run *run, gputune_graph *graph, long long number, gputune_error *error) {
    size_t line = number < 0 ? 0 : (size_t)number % run->lines;
    int code = 0;
    for (size_t place = 0; !code && place < run->inputs && (run->lines > 1 || number <= 0); place++)
        code = read_input(run->files[line * run->inputs + place], &run->info->inputs[place], run->values[place].data);
    if (code) return code;
    uint64_t begun_ns = now_ns();
    if (gputune_run(graph, run->values, run->inputs, run->results, run->outputs, error)) return refused(error);
    uint64_t took_ns = now_ns() - begun_ns;
    if (number < 0) return 0;
    if ((run->done & (run->done - 1)) == 0) run->took_ns = more(run->took_ns, 2 * run->done, sizeof took_ns);
    run->took_ns[run->done++] = took_ns;
    for (size_t place = 0; !code && (size_t)number < run->lines && place < run->outputs; place++)
        code = write_output(run, (size_t)number, &run->info->outputs[place], run->results[place].data);
    return code;
}

static gputune_value *values_of(const gputune_tensor *tensors, size_t count) {
    gputune_value *values = memset(more(NULL, count, sizeof *values), 0, count * sizeof *values);
    for (size_t place = 0; place < count; place++) values[place].data = more(NULL, tensors[place].nbytes, 1);
    return values;
}

static int infer_all(run *run, gputune_graph *graph, gputune_error *error) {
    int code = 0;
    run->info = gputune_info(graph);
    run->inputs = run->info->input_count, run->outputs = run->info->output_count;
    run->values = values_of(run->info->inputs, run->inputs);
    run->results = values_of(run->info->outputs, run->outputs);
    for (size_t place = 0; gputune_warning(graph, place) != NULL; place++)
        fprintf(stderr, "warning: %s\n", gputune_warning(graph, place));
    if (run->input_list != NULL && run->inputs) code = read_list(run);
    else if (run->file_count != run->inputs)
        code = failed(BAD_OPTION, "graph '%s' takes %zu inputs, and %zu files are named; see --help", run->info->name,
                      run->inputs, run->file_count);
    if (run->lines == 0) run->lines = 1;
    for (long long number = -(long long)run->warmup; !code && number < 0; number++)
        code = infer(run, graph, number, error);
    uint64_t begun_ns = now_ns();
    do {
        if (!code) code = infer(run, graph, (long long)run->done, error);
    } while (!code && (run->seconds > 0 ? (double)(now_ns() - begun_ns) < run->seconds * 1e9
                                        : run->done < (run->count ? run->count : run->lines)));
    return code;
}

static int ascending(const void *a, const void *b) {
    uint64_t one = *(const uint64_t *)a, other = *(const uint64_t *)b;
    return (one > other) - (one < other);
}

/* Percentiles lie between two values that are next to each other, as those of numpy.percentile do. */
static void tell(const run *run, const gputune_device *device, uint64_t load_ns) {
    static const double percents[] = {50, 90, 99, 99.9};
    printf("%zu inferences on %s: load %.2f ms, first %.2f ms", run->done, gputune_device_name(device),
           (double)load_ns / 1e6, (double)run->took_ns[0] / 1e6);
    qsort(run->took_ns, run->done, sizeof *run->took_ns, ascending);
    for (size_t number = 0; number < sizeof percents / sizeof *percents; number++) {
        double place = percents[number] / 100 * (double)(run->done - 1);
        size_t below = (size_t)place, above = below + (below + 1 < run->done);
        double low = (double)run->took_ns[below], high = (double)run->took_ns[above];
        printf(", p%g %.2f ms", percents[number], (low + (high - low) * (place - (double)below)) / 1e6);
    }
    printf("\n");
}

int main(int argc, char **argv) {
    run run = {.output_dir = "output"};
    int code = parse(&run, argc, argv);
    gputune_error error;
    gputune_file *file = NULL;
    gputune_device *device = NULL;
    gputune_graph *graph = NULL;
    gputune_profile *profile = NULL;
    if (code) return code;
    if (gputune_open(run.context, &file, &error) ||
        gputune_open_device(&(gputune_device_options){.device = run.device, .file = file}, &device, &error))
        code = refused(&error);
    uint64_t begun_ns = now_ns();
    if (!code && gputune_load(device, file, &run.load, &graph, &error)) code = refused(&error);
    uint64_t load_ns = now_ns() - begun_ns;
    gputune_close(file);
    if (!code && run.profile != NULL &&
        (gputune_open_profile(device, run.profile, GPUTUNE_DETAILED, &profile, &error) ||
         gputune_record(graph, profile, &error)))
        code = refused(&error);
    if (!code) code = infer_all(&run, graph, &error);
    if (!code) tell(&run, device, load_ns);
    gputune_unload(graph);
    if (profile != NULL && gputune_close_profile(profile, &error) && !code) code = refused(&error);
    gputune_close_device(device);
    return code;
}
