/* gputune-run: runs a context binary on files, and says what inferences take. An example of gputune.h, too. */
#define _POSIX_C_SOURCE 200809L
#include "gputune.h"
#include "names.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LONGEST_PATH = 4096, FEW = 10 };

static const char HELP[] =
    "usage: gputune-run --context_binary FILE [OPTION ...] [INPUT.raw ...]\n\n"
    "Run a gputune context binary on this machine's device, and write its outputs.\n\n"
    "    gputune-run --context_binary model.bin page.raw  # a file for each input\n"
    "    echo x:=page.raw > inputs.txt\n"
    "    gputune-run --context_binary model.bin --input_list inputs.txt\n\n"
    "  --context_binary FILE, --retrieve_context FILE\n"
    "                       context, package, or ONNX file with EPContext nodes\n"
    "  --input_list FILE    a line for each inference: NAME:=FILE NAME2:=\"A FILE\";\n"
    "                       without files for a state, lines are its steps, and an\n"
    "                       empty line begins anew\n"
    "  --output_dir DIR     folder for Result_N/NAME.raw, where N is the line of the\n"
    "                       list, from 0; default: output\n"
    "  --num_inferences N   number of inferences; after the last line, the list\n"
    "                       starts over; default: one for each line\n"
    "  --duration SECONDS   instead of a number: time in which inferences begin\n"
    "  --graph NAME         graph to run; default: the context's first graph, and for\n"
    "                       steps those that take the same in fewer rows, too\n"
    "  --device NAME        part of the name of the device or its platform;\n"
    "                       default: the context's own device, else the best device\n"
    "  --strict             refuse a context for another device or driver; without\n"
    "                       this option, its kernels are built from source\n"
    "  --one_by_one         launch kernels one by one, without persistent kernels\n"
    "  --perf_profile NAME  clocks and power to request, such as burst\n"
    "  --profile FILE       record launches; `gputune profile-viewer` shows them\n\n"
    "Raw files hold the values of a tensor one after the other, little endian.\n"
    "GPUTUNE_OPENCL_LIBRARY names libOpenCL.so if it is not in a usual place.\n"
    "Exit codes: 0 done, 2 bad option or input, 6 output, 8 device or context.\n";

typedef struct run {
    const char *context, *input_list, *output_dir, *device, *profile;
    gputune_load_options load;
    bool help;
    double seconds;
    size_t count, lines, done, inputs, outputs, warned;
    char **files; /* of each line those of the inputs, in their order */
    bool *begins; /* of each line of a list whether it is the first one or stands behind an empty line */
    gputune_state *state;               /* of which inferences are steps, or NULL */
    gputune_graph **others;             /* beside the first graph those for fewer rows, which steps use, too */
    size_t other_count, tokens;         /* of a step */
    const gputune_tensor *takes, *makes; /* inputs that are given and outputs that are written */
    char **input_stems, **stems; /* of the files of inputs and outputs */
    gputune_value *values, *results;
    uint64_t *took_ns;
} run;

/* What an option names and is not there, such as a graph, is the caller's mistake, as with net-run. */
static int refused(const gputune_error *error) {
    const bool is_option = error->code == GPUTUNE_INVALID_ARGUMENT || error->code == GPUTUNE_UNKNOWN_GRAPH;
    const int code = is_option ? BAD_OPTION : BAD_DEVICE_OR_CONTEXT;
    return failed(code, "%s [%s]", error->message, gputune_code_name(error->code));
}

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static bool number(const char *text, double *value) {
    char *end;
    *value = strtod(text, &end);
    return end != text && *end == 0 && *value >= 0 && *value < 1e9;
}

static int parse(run *run, int argc, char **argv) {
    const char *count = "0", *seconds = "0";
    const struct { const char *name, **text; bool *flag; } options[] = {
        {"--context_binary", &run->context, NULL}, {"--retrieve_context", &run->context, NULL},
        {"--input_list", &run->input_list, NULL},  {"--output_dir", &run->output_dir, NULL},
        {"--num_inferences", &count, NULL},        {"--duration", &seconds, NULL},
        {"--graph", &run->load.graph, NULL},       {"--perf_profile", &run->load.perf_profile, NULL},
        {"--device", &run->device, NULL},          {"--profile", &run->profile, NULL},
        {"--strict", NULL, &run->load.strict},     {"--one_by_one", NULL, &run->load.one_by_one},
        {"--help", NULL, &run->help}};
    enum { OPTIONS = sizeof options / sizeof *options };
    int place = 1;
    for (size_t option = 0; place < argc && strncmp(argv[place], "--", 2) == 0; place++, option = 0) {
        while (option < OPTIONS && strcmp(argv[place], options[option].name) != 0) option++;
        if (option == OPTIONS) return failed(BAD_OPTION, "there is no option %s; see --help", argv[place]);
        if (options[option].flag == NULL && place + 1 == argc)
            return failed(BAD_OPTION, "%s lacks a value; see --help", argv[place]);
        if (options[option].flag != NULL) *options[option].flag = true;
        else *options[option].text = argv[++place];
    }
    run->files = argv + place;
    run->inputs = (size_t)(argc - place);
    double inferences;
    if (!number(count, &inferences)) return failed(BAD_OPTION, "--num_inferences: '%s' is no number from 0 on", count);
    if (!number(seconds, &run->seconds)) return failed(BAD_OPTION, "--duration: '%s' is no number from 0 on", seconds);
    run->count = (size_t)inferences;
    if (run->context == NULL && !run->help) return failed(BAD_OPTION, "--context_binary names what to run; see --help");
    if (run->count && run->seconds > 0) return failed(BAD_OPTION, "--num_inferences or --duration: give one of them");
    return 0;
}

/* Finds the input of a name, or else of a file stem, since not every name can be written in a list. */
static size_t input_of(const run *run, const char *name) {
    size_t place = 0, by_stem = 0;
    while (place < run->inputs && strcmp(run->takes[place].name, name) != 0) place++;
    while (by_stem < run->inputs && strcmp(run->input_stems[by_stem], name) != 0) by_stem++;
    return place < run->inputs ? place : by_stem;
}

/* Reads the files of the inputs that a line names: NAME:=FILE, or FILE where there is one input. */
static int read_line(run *run, char *line, size_t number) {
    char **files = memset(run->files + run->lines++ * run->inputs, 0, run->inputs * sizeof *files), *word;
    size_t found = 0; /* too many where a word is wrong */
    bool closed = true;
    while (closed && (word = next_word(&line, &closed)) != NULL) {
        char *file = strstr(word, ":=");
        if (file != NULL) *file = 0;
        size_t place = file != NULL ? input_of(run, word) : 0;
        bool good = (file != NULL || run->inputs == 1) && place < run->inputs && files[place] == NULL;
        if (good) files[place] = file != NULL ? file + 2 : word;
        found += good ? 1 : run->inputs + 1;
    }
    if (closed && found == run->inputs) return 0;
    return failed(BAD_OPTION, "%s:%zu: %s", run->input_list, number,
                  closed ? "give NAME:=FILE once for each input; see --help" : "a quote is not closed");
}

/* Opens a file for reading, or says why not; what is none, such as a named pipe, would be waited for. */
static FILE *open_file(const char *path) {
    struct stat status;
    int descriptor = open(path, O_RDONLY | O_NONBLOCK);
    if (descriptor >= 0 && !fstat(descriptor, &status)) {
        if (S_ISREG(status.st_mode)) return fdopen(descriptor, "rb");
        errno = S_ISDIR(status.st_mode) ? EISDIR : EINVAL;
    }
    failed(BAD_OPTION, "%s cannot be read: %s", path, errno == EINVAL ? "it is no file" : strerror(errno));
    return NULL;
}

static int read_list(run *run) {
    FILE *file = open_file(run->input_list);
    if (file == NULL) return BAD_OPTION;
    int code = 0;
    size_t room = 0, number = 0;
    bool begins = true;
    run->files = NULL;
    for (char *line = NULL; !code && getline(&line, &room, file) != -1; line = NULL, room = 0) { /* its words stay */
        number++;
        const char first = line[strspn(line, " \t\r\n")];
        begins |= !first;
        if (!first || first == '#') continue;
        run->files = more(run->files, (run->lines + 1) * run->inputs, sizeof *run->files);
        run->begins = more(run->begins, run->lines, sizeof *run->begins);
        run->begins[run->lines] = begins;
        begins = false;
        code = read_line(run, line, number);
    }
    fclose(file);
    return code || run->lines ? code : failed(BAD_OPTION, "%s names no inputs", run->input_list);
}

static int read_input(const char *path, const gputune_tensor *tensor, char *to) {
    FILE *file = open_file(path);
    if (file == NULL) return BAD_OPTION;
    bool whole = fread(to, 1, tensor->nbytes, file) == tensor->nbytes && fgetc(file) == EOF;
    fclose(file);
    if (whole) return 0;
    return failed(BAD_OPTION, "%s does not have the %zu bytes that input '%s' takes", path, tensor->nbytes,
                  tensor->name);
}

/* Makes the path of an output's file of an inference. Returns false for one that is too long. */
static bool result_path(const run *run, size_t number, const char *stem, char path[LONGEST_PATH]) {
    int length = snprintf(path, LONGEST_PATH, "%s/Result_%zu/%s.raw", run->output_dir, number, stem);
    return length > 0 && length < LONGEST_PATH;
}

static bool is_same(const struct stat *file, const char *path) {
    struct stat other;
    return path != NULL && !stat(path, &other) && file->st_dev == other.st_dev && file->st_ino == other.st_ino;
}

/* Refuses an output that is a file which is read: the context, the input list, or an input. */
static int check_output(const run *run, const char *option, const char *path) {
    struct stat file;
    if (stat(path, &file) || !S_ISREG(file.st_mode)) return 0;
    bool read = is_same(&file, run->context) || is_same(&file, run->input_list);
    for (size_t place = 0; !read && place < run->lines * run->inputs; place++) read = is_same(&file, run->files[place]);
    return read ? failed(BAD_OPTION, "%s would overwrite %s, which is read; name another", option, path) : 0;
}

/* Checks all outputs before anything is written. */
static int check_outputs(const run *run) {
    char path[LONGEST_PATH];
    int code = run->profile != NULL ? check_output(run, "--profile", run->profile) : 0;
    for (size_t place = 0; !code && place < run->lines * run->outputs; place++) {
        if (!result_path(run, place / run->outputs, run->stems[place % run->outputs], path))
            return failed(BAD_OUTPUT, "--output_dir: the path of output '%s' is too long",
                          run->makes[place % run->outputs].name);
        if (run->profile != NULL && strcmp(path, run->profile) == 0)
            return failed(BAD_OPTION, "--profile and an output of --output_dir are both %s; name another", path);
        code = check_output(run, "--output_dir", path);
    }
    return code;
}

static int write_output(const run *run, const gputune_tensor *tensor, const char *stem, const char *data) {
    char path[LONGEST_PATH], folder[LONGEST_PATH];
    result_path(run, run->done, stem, path);
    snprintf(folder, sizeof folder, "%.*s", (int)(strrchr(path, '/') - path), path);
    if ((mkdir(run->output_dir, 0777) && errno != EEXIST) || (mkdir(folder, 0777) && errno != EEXIST))
        return failed(BAD_OUTPUT, "--output_dir: %s cannot be made: %s", folder, strerror(errno));
    FILE *file = fopen(path, "wb");
    bool whole = file != NULL && fwrite(data, 1, tensor->nbytes, file) == tensor->nbytes;
    if (file != NULL && fclose(file) == 0 && whole) return 0;
    return failed(BAD_OUTPUT, "%s cannot be written: %s", path, strerror(errno));
}

static int infer(run *run, gputune_graph *graph, gputune_error *error) {
    const size_t line = run->done % run->lines;
    char **files = run->files + line * run->inputs;
    int code = 0;
    if (run->state != NULL && (run->begins == NULL || run->begins[line]) && gputune_reset_state(run->state, error))
        return refused(error);
    for (size_t place = 0; !code && place < run->inputs && (run->lines > 1 || run->done == 0); place++)
        code = read_input(files[place], &run->takes[place], run->values[place].data);
    if (code) return code;
    if (run->other_count && gputune_state_graph(run->state, run->tokens, &graph, error)) return refused(error);
    uint64_t begun_ns = now_ns();
    if (gputune_run(graph, run->values, run->inputs, run->results, run->outputs, error)) return refused(error);
    uint64_t took_ns = now_ns() - begun_ns;
    for (size_t place = 0; !code && run->done < run->lines && place < run->outputs; place++)
        code = write_output(run, &run->makes[place], run->stems[place], run->results[place].data);
    if ((run->done & (run->done - 1)) == 0) run->took_ns = more(run->took_ns, 2 * run->done, sizeof took_ns);
    run->took_ns[run->done++] = took_ns;
    return code;
}

static gputune_value *values_of(const gputune_tensor *tensors, size_t count) {
    gputune_value *values = memset(more(NULL, count, sizeof *values), 0, count * sizeof *values);
    for (size_t place = 0; place < count; place++)
        values[place] = (gputune_value){tensors[place].name, more(NULL, tensors[place].nbytes, 1), NULL};
    return values;
}

/* Returns the inputs or outputs that are not a state's, or with `all` every one. */
static const gputune_tensor *tensors_of(const gputune_graph *graph, bool outputs, bool all, size_t *count) {
    const gputune_graph_info *info = gputune_info(graph);
    const size_t has = outputs ? info->output_count : info->input_count;
    gputune_tensor *kept = more(NULL, has, sizeof *kept);
    *count = 0;
    for (size_t place = 0; place < has; place++)
        if (all || !gputune_is_remembered(graph, outputs, place))
            kept[(*count)++] = (outputs ? info->outputs : info->inputs)[place];
    return kept;
}

/* Finds out whether an input list has a file for an input that a state would give. */
static int find_state(const run *run, const gputune_graph *graph, bool *found) {
    char *line = NULL, *word, *name_end;
    size_t room = 0;
    FILE *file = open_file(run->input_list);
    if (file == NULL) return BAD_OPTION;
    while (!*found && getline(&line, &room, file) != -1) {
        bool closed;
        char *rest = line[strspn(line, " \t")] == '#' ? strchr(line, 0) : line;
        while ((word = next_word(&rest, &closed)) != NULL)
            if ((name_end = strstr(word, ":=")) != NULL)
                *name_end = 0, *found |= gputune_is_remembered(graph, false, input_of(run, word));
    }
    free(line);
    fclose(file);
    return 0;
}

/* Says what costs time, of which there may be more after some inferences. */
static void warn(run *run, gputune_graph *graph) {
    for (const char *line; (line = gputune_warning(graph, run->warned)) != NULL; run->warned++)
        fprintf(stderr, "warning: %s\n", line);
}

/* Where most inferences were not persistent; the first of a graph that has persistent kernels is begun so. */
static void warn_of_launches(gputune_graph *graph) {
    gputune_counters total;
    gputune_counters_of(graph, &total, NULL);
    unsigned long long others = total.launches + total.recorded + total.aborted;
    if (total.persistent + total.aborted && total.persistent < others)
        fprintf(stderr, "warning: %llu of %llu inferences ran or ended by launches one by one, because persistent "
                "kernels were slower: other programs probably use the processors that they need. If this machine is "
                "always so busy, generate the context with \"persistent_kernels\": false in the config file\n",
                others, total.persistent + others);
}

/* Says how to name the files of inputs. */
static int refuse_files(const run *run, size_t named) {
    const size_t count = run->inputs;
    const char *first = count ? run->takes[0].name : "";
    if (named || !count)
        return failed(BAD_OPTION, "the graph takes %zu file%s, not %zu; see --help", count, count == 1 ? "" : "s",
                      named);
    return failed(BAD_OPTION, "--input_list is missing: each line has %.64s:=FILE%s; or name a file for each input "
                  "behind the options; see --help", first, count == 1 ? "" : " and the same for each other input");
}

/* Learns what is given and written: all, or what is not the state's where inferences are its steps. Those are so unless
 * there is a file for each input, or for one of the state. */
static int choose_tensors(run *run, gputune_graph *graph, size_t named) {
    gputune_error error;
    size_t given;
    bool whole = false;
    run->takes = tensors_of(graph, false, true, &run->inputs);
    run->input_stems = file_stems(run->takes, run->inputs);
    const gputune_tensor *beside = tensors_of(graph, false, false, &given);
    if (given < run->inputs && run->input_list == NULL) whole = named == run->inputs;
    else if (given < run->inputs && find_state(run, graph, &whole)) return BAD_OPTION;
    const bool steps = given < run->inputs && !whole;
    if (steps && (gputune_open_state(graph, &run->state, &error) || gputune_use_state(graph, run->state, &error)))
        return refused(&error);
    if (steps) run->takes = beside, run->inputs = given, run->input_stems = file_stems(beside, given);
    run->makes = tensors_of(graph, true, !steps, &run->outputs);
    run->stems = file_stems(run->makes, run->outputs);
    return 0;
}

/* Tells whether each of some tensors is among others, with as many bytes. */
static bool are_among(const gputune_tensor *tensors, size_t count, const gputune_tensor *others, size_t other_count) {
    size_t found = 0;
    for (size_t place = 0; place < count; place++)
        for (size_t other = 0; other < other_count; other++)
            found += tensors[place].nbytes == others[other].nbytes && !strcmp(tensors[place].name, others[other].name);
    return found == count;
}

/* Loads the graphs that take the same as the first one in fewer rows, of which the state chooses one for each step. */
static int load_others(run *run, gputune_device *device, const gputune_file *file, gputune_graph *first) {
    gputune_error error;
    gputune_graph_info info;
    gputune_graph *graph;
    const size_t count = gputune_graph_count(file, 0);
    while (gputune_state_graph(run->state, run->tokens, &graph, &error)) run->tokens++; /* only the first one is here */
    run->others = more(NULL, count, sizeof *run->others);
    for (size_t number = 0; number < count; number++) {
        gputune_load_options how = run->load;
        if (gputune_graph_info_of(file, 0, number, &info, &error)) return refused(&error);
        how.graph = info.name;
        if (!strcmp(info.name, gputune_info(first)->name) || info.input_count != gputune_info(first)->input_count ||
            !are_among(run->takes, run->inputs, info.inputs, info.input_count) ||
            !are_among(run->makes, run->outputs, info.outputs, info.output_count))
            continue;
        if (gputune_load(device, file, &how, &graph, &error)) return refused(&error);
        if (gputune_use_state(graph, run->state, &error)) gputune_unload(graph); /* it remembers something else */
        else run->others[run->other_count++] = graph;
    }
    return 0;
}

/* Learns what the graph takes and gives, and reads the input list. */
static int prepare(run *run, gputune_graph *graph) {
    size_t named = run->inputs;
    int code = choose_tensors(run, graph, named);
    if (code) return code;
    run->values = values_of(run->takes, run->inputs);
    run->results = values_of(run->makes, run->outputs);
    if (run->input_list == NULL && named != run->inputs) code = refuse_files(run, named);
    if (run->input_list != NULL && run->inputs) code = read_list(run);
    if (run->lines == 0) run->lines = 1;
    return code ? code : check_outputs(run);
}

static int infer_all(run *run, gputune_graph *graph, gputune_error *error) {
    int code = 0;
    size_t count = run->count ? run->count : run->lines;
    uint64_t begun_ns = now_ns();
    while (!code && (run->seconds > 0 ? run->done == 0 || (double)(now_ns() - begun_ns) < run->seconds * 1e9
                                      : run->done < count))
        code = infer(run, graph, error);
    warn(run, graph);
    if (!code) warn_of_launches(graph);
    return code;
}

static int ascending(const void *one, const void *other) {
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

/* A percentile may lie between two inferences, as with numpy.percentile. A few inferences have none but the median. */
static void tell(const run *run, const gputune_device *device, uint64_t load_ns) {
    static const double percents[] = {50, 90, 99, 99.9};
    const size_t told = run->done == 1 ? 0 : run->done < FEW ? 1 : sizeof percents / sizeof *percents;
    printf("%zu inference%s on %s: load %.2f ms, first %.3f ms", run->done, run->done == 1 ? "" : "s",
           gputune_device_name(device), (double)load_ns / 1e6, (double)run->took_ns[0] / 1e6);
    qsort(run->took_ns, run->done, sizeof *run->took_ns, ascending);
    for (size_t number = 0; number < told; number++) {
        double place = percents[number] / 100 * (double)(run->done - 1);
        size_t below = (size_t)place, above = below + (below + 1 < run->done);
        double low = (double)run->took_ns[below], high = (double)run->took_ns[above];
        const double ms = (low + (high - low) * (place - (double)below)) / 1e6;
        if (told == 1) printf(", median %.3f ms", ms);
        else printf(", p%g %.3f ms", percents[number], ms);
    }
    printf("\n");
}

int main(int argc, char **argv) {
    static run run = {.output_dir = "output"};
    gputune_error error;
    gputune_file *file = NULL;
    gputune_device *device = NULL;
    gputune_graph *graph = NULL;
    gputune_profile *profile = NULL;
    int code = parse(&run, argc, argv);
    if (code || run.help) return run.help && fputs(HELP, stdout) < 0 ? BAD_OUTPUT : code;
    setenv("POCL_AFFINITY", "1", 0); /* as contexts are measured; drivers read it when they are loaded */
    setenv("POCL_KERNEL_CACHE", "0", 0);
    if (gputune_open(run.context, &file, &error) ||
        gputune_open_device(&(gputune_device_options){.device = run.device, .file = file}, &device, &error))
        code = refused(&error);
    const bool several = !code && run.load.graph == NULL && gputune_graph_count(file, 0) > 1;
    if (several && gputune_open_group(device, (const gputune_file *[]){file}, 1, 1, &run.load.group, &error))
        code = refused(&error);
    uint64_t begun_ns = now_ns();
    if (!code && gputune_load(device, file, &run.load, &graph, &error)) code = refused(&error);
    uint64_t load_ns = now_ns() - begun_ns;
    if (!code) warn(&run, graph);
    if (!code) code = prepare(&run, graph);
    if (!code && several && run.state && gputune_state_capacity(run.state) && run.profile == NULL)
        code = load_others(&run, device, file, graph);
    gputune_close(file);
    if (!code && run.profile != NULL &&
        (gputune_open_profile(device, run.profile, GPUTUNE_DETAILED, &profile, &error) ||
         gputune_record(graph, profile, &error)))
        code = refused(&error);
    if (!code) code = infer_all(&run, graph, &error);
    if (!code) tell(&run, device, load_ns);
    gputune_close_state(run.state);
    gputune_unload(graph);
    for (size_t number = 0; number < run.other_count; number++) gputune_unload(run.others[number]);
    gputune_close_group(run.load.group);
    if (profile != NULL && gputune_close_profile(profile, &error) && !code) code = refused(&error);
    gputune_close_device(device);
    return code;
}
