/* A fork of a process that uses all objects of gputune.h: every use is refused there at once, and closing touches
 * neither the driver nor votes nor files.
 *
 * forks LIBRARY CONTEXT FOLDER: the OpenCL library, a context of tests/native/stateful.py, and where a log may lie. */
#define _GNU_SOURCE /* memfd_create */
#include "profiling/profile.c" /* into whose stream this writes */

#include <dlfcn.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ELEMENTS = 64, NBYTES = 4 * ELEMENTS, LONGEST_S = 60 };

static long (*alive)(void), (*calls)(void);
static float input[ELEMENTS], output[ELEMENTS];
static gputune_file *file;
static gputune_device *device;
static gputune_group *group;
static gputune_graph *graphs[2];
static gputune_profile *profile;
static gputune_memory *memories[3];
static gputune_state *states[2];
static atomic_int ended;
static int descriptor;

static void check(bool good, const char *what) {
    if (good) return;
    printf("%s\n", what);
    fflush(stdout);
    _exit(1);
}

static void done(void *user, gputune_code code, const gputune_error *error) {
    (void)user, (void)error;
    atomic_fetch_add(&ended, code == GPUTUNE_OK);
}

static gputune_code infer(gputune_graph *graph, bool later, gputune_error *error) {
    const gputune_value in = {"x", input, NULL}, out = {"y", output, NULL};
    return later ? gputune_run_async(graph, &in, 1, &out, 1, done, NULL, error)
                 : gputune_run(graph, &in, 1, &out, 1, error);
}

static void open_all(const char *library, const char *context, const char *log) {
    gputune_error error = {GPUTUNE_OK, ""};
    const gputune_device_options options = {.library = library};
    gputune_load_options load = {.perf_profile = "burst"};
    descriptor = memfd_create("memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    check(!ftruncate(descriptor, NBYTES) && !fcntl(descriptor, F_ADD_SEALS, F_SEAL_SHRINK), "no memory file");
    bool good = !gputune_open(context, &file, &error) && !gputune_open_device(&options, &device, &error);
    good = good && !gputune_open_group(device, (const gputune_file *const *)&file, 1, 2, &group, &error);
    good = good && !gputune_load(device, file, &load, &graphs[0], &error);
    load = (gputune_load_options){.group = group};
    good = good && !gputune_load(device, file, &load, &graphs[1], &error);
    good = good && !gputune_open_profile(device, log, GPUTUNE_DETAILED, &profile, &error);
    good = good && !gputune_record(graphs[1], profile, &error);
    good = good && !gputune_allocate(device, NBYTES, &memories[0], &error);
    good = good && !gputune_wrap(device, input, NBYTES, &memories[1], &error);
    good = good && !gputune_import(device, descriptor, 0, NBYTES, &memories[2], &error);
    for (int i = 0; i < 2 && good; i++) good = !gputune_open_state(graphs[i], &states[i], &error);
    for (int i = 0; i < 2 && good; i++) good = !gputune_use_state(graphs[i], states[i], &error);
    for (int i = 0; i < 2 && good; i++) good = !infer(graphs[i], false, &error) && !infer(graphs[i], true, &error);
    check(good, error.message);
    while (atomic_load(&ended) < 2) usleep(1000);
}

static void close_all(void) {
    for (int i = 0; i < 3; i++) gputune_free(memories[i]);
    for (int i = 0; i < 2; i++) gputune_close_state(states[i]);
    for (int i = 0; i < 2; i++) gputune_unload(graphs[i]);
    check(gputune_close_profile(profile, NULL) == GPUTUNE_OK, "the profile is not closed");
    gputune_close_group(group);
    gputune_close_device(device);
    gputune_close(file);
}

/* What each function that uses the device says. */
static void use_all(const char *log) {
    gputune_error error;
    gputune_graph *graph;
    gputune_group *opened;
    gputune_memory *memory;
    gputune_state *state;
    gputune_profile *recorded;
    gputune_counters total, last;
    gputune_importer importers[GPUTUNE_IMPORTERS];
    size_t nbytes = 0;
    const gputune_code codes[] = {
        infer(graphs[0], false, &error), infer(graphs[0], true, &error), gputune_load(device, file, NULL, &graph, &error),
        gputune_open_group(device, (const gputune_file *const *)&file, 1, 2, &opened, &error),
        gputune_allocate(device, NBYTES, &memory, &error), gputune_wrap(device, input, NBYTES, &memory, &error),
        gputune_import(device, descriptor, 0, NBYTES, &memory, &error),
        gputune_import_cl_mem(device, input, NBYTES, &memory, &error),
        gputune_import_hardware_buffer(device, input, NBYTES, &memory, &error),
        gputune_begin_host(memories[0], true, &error), gputune_end_host(memories[0], &error),
        gputune_importers(device, importers, &error), gputune_record(graphs[0], profile, &error),
        gputune_record(graphs[1], NULL, &error), gputune_open_profile(device, log, GPUTUNE_BASIC, &recorded, &error),
        gputune_record_marked(graphs[0], profile, &error), gputune_write_marks(profile, &error),
        gputune_profile_take(profile, NULL, &nbytes, &error), gputune_set_perf_profile(graphs[0], "balanced", &error),
        gputune_set_perf_profile(graphs[0], NULL, &error), gputune_open_state(graphs[0], &state, &error),
        gputune_use_state(graphs[0], NULL, &error), gputune_copy_state(states[0], &state, &error),
        gputune_reset_state(states[0], &error), gputune_rewind_state(states[0], 0, &error),
        gputune_state_graph(states[0], 0, &graph, &error),
        gputune_read_state(states[0], "a", output, NBYTES, &error)};
    for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
        printf("%zu: %s\n", i, gputune_code_name(codes[i]));
        check(codes[i] == GPUTUNE_FORKED_PROCESS, "a fork may use the device");
    }
    check(gputune_is_lost(device), "a fork may ask the device");
    check(strstr(error.message, "cannot be used in its fork") != NULL, error.message);
    gputune_counters_of(graphs[0], &total, &last); /* what needs no device is as it was */
    check(total.inferences == 2 && gputune_warning(graphs[1], 0) == NULL, "a fork has forgotten what was");
    check(strcmp(gputune_info(graphs[0])->name, "main") == 0, "a fork has forgotten the graph");
}

static int run_child(const char *log) {
    const long had_alive = alive(), had_calls = calls();
    alarm(LONGEST_S); /* whose signal ends it where it hangs */
    use_all(log);
    close_all();
    check(alive() == had_alive && calls() == had_calls, "a fork has called the driver");
    return 0;
}

int main(int argc, char **argv) {
    char log[4096], other[4096];
    gputune_error error;
    if (argc != 4) return 2;
    void *library = dlopen(argv[1], RTLD_NOW);
    check(library != NULL, "no library");
    *(void **)&alive = dlsym(library, "fake_alive");
    *(void **)&calls = dlsym(library, "fake_calls");
    snprintf(log, sizeof log, "%s/profile.log", argv[3]);
    snprintf(other, sizeof other, "%s/other.log", argv[3]);
    open_all(argv[1], argv[2], log);
    fputs("not written yet", profile->log.file);
    device_take(device); /* as another thread may have it just now */
    fflush(stdout);
    const pid_t child = fork();
    if (child == 0) return run_child(other);
    int status = 0;
    waitpid(child, &status, 0);
    device_leave(device);
    check(status == 0, WIFSIGNALED(status) ? "the fork was killed by a signal" : "the fork has failed");
    check(access(other, F_OK) != 0, "a fork has made a log");
    check(infer(graphs[0], false, &error) == GPUTUNE_OK, error.message);
    check(infer(graphs[1], true, &error) == GPUTUNE_OK, error.message);
    close_all();
    check(alive() == 0, "something was not released");
    dlclose(library);
    puts("goes on");
    return 0;
}
