/* The programs of a graph, from the binaries of its file, or from source where the driver refuses one or the device is
 * another; and its weights, whose checksums and copies take as long. As runtime/execution/programs.py. */
#include "graph.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_THREADS = 8, LOG_BYTES = 1 << 14 };

typedef struct job { /* a program, or weights, and what became of it */
    bool is_weights, known, refused;
    size_t index;
    const char *key;
    held made;
    gputune_code code;
    gputune_error error;
} job;

typedef struct jobs {
    gputune_graph *graph;
    bool strict;
    job *all;
    size_t count, next; /* next: with atomics */
} jobs;

size_t processors(void) {
    long count = sysconf(_SC_NPROCESSORS_ONLN);
#ifdef CPU_COUNT
    cpu_set_t allowed;
    if (!sched_getaffinity(0, sizeof allowed, &allowed))
        count = CPU_COUNT(&allowed);
#endif
    return count > 1 ? (size_t)count : 1;
}

/* A log without what comes before its first error. */
static gputune_code build_failed(const gputune_device *device, cl_program program, cl_int status, gputune_error *error) {
    char *log = calloc(1, LOG_BYTES);
    if (log)
        device->cl.GetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, LOG_BYTES - 1, log, NULL);
    const char *from = log ? strstr(log, "error") : NULL;
    fail(error, GPUTUNE_BUILD_FAILED, "building a program failed: OpenCL's error %d: %.400s", status,
         from ? from : log ? log : "");
    free(log);
    return GPUTUNE_BUILD_FAILED;
}

static gputune_code build(const gputune_graph *graph, const program_entry *entry, bool binary, cl_program *program,
                          gputune_error *error) {
    const gputune_device *device = graph->device;
    const uint8_t *data;
    size_t nbytes;
    cl_int status = CL_SUCCESS, loaded = CL_SUCCESS;
    gputune_code code = section_bytes(graph->context, binary ? entry->binary : entry->source, &data, &nbytes, error);
    if (code)
        return code;
    const char *text = (const char *)data;
    *program = binary ? device->cl.CreateProgramWithBinary(device->context, 1, &device->id, &nbytes, &data, &loaded,
                                                           &status)
                      : device->cl.CreateProgramWithSource(device->context, 1, &text, &nbytes, &status);
    if (!*program || status || loaded)
        return fail(error, GPUTUNE_BUILD_FAILED, "OpenCL's error %d", status ? status : loaded);
    status = device->cl.BuildProgram(*program, 1, &device->id, binary ? "" : entry->options, NULL, NULL);
    if (!status)
        return GPUTUNE_OK;
    code = build_failed(device, *program, status, error);
    device->cl.ReleaseProgram(*program);
    *program = NULL;
    return code;
}

static void do_job(const jobs *jobs, job *job) {
    const gputune_graph *graph = jobs->graph;
    const context *context = graph->context;
    if (job->known)
        return;
    if (job->is_weights) {
        const uint8_t *data;
        size_t nbytes;
        job->code = section_bytes(context, context->weights[job->index], &data, &nbytes, &job->error);
        if (!job->code)
            job->code = allocate(graph->device, nbytes, data, &job->made.memory, &job->error);
        return;
    }
    const program_entry *entry = &context->programs[job->index];
    if (graph->from_binaries) {
        job->code = build(graph, entry, true, &job->made.program, &job->error);
        job->refused = job->code == GPUTUNE_BUILD_FAILED;
        if (!job->refused || jobs->strict)
            return;
    }
    job->code = build(graph, entry, false, &job->made.program, &job->error);
}

static void *work(void *argument) {
    jobs *jobs = argument;
    size_t place;
    while ((place = __atomic_fetch_add(&jobs->next, 1, __ATOMIC_RELAXED)) < jobs->count)
        do_job(jobs, &jobs->all[place]);
    return NULL;
}

static void do_all(jobs *jobs) {
    thread threads[MOST_THREADS];
    size_t count = 0, most = processors() < MOST_THREADS ? processors() : MOST_THREADS;
    while (count + 1 < most && count + 1 < jobs->count && thread_start(&threads[count], work, jobs))
        count++;
    work(jobs);
    while (count)
        thread_join(threads[--count]);
}

/* Equal programs and equal weights have equal ones. */
static const char *key_of(gputune_graph *graph, bool is_weights, size_t index) {
    const context *context = graph->context;
    if (is_weights)
        return context->sections[context->weights[index]].sha256;
    const program_entry *entry = &context->programs[index];
    const size_t nbytes = 2 * 64 + strlen(entry->options) + 2;
    char *key = pool_take(&graph->pool, nbytes, 1);
    if (key)
        snprintf(key, nbytes, "%d%s%s%s", graph->from_binaries, context->sections[entry->binary].sha256,
                 context->sections[entry->source].sha256, entry->options);
    return key;
}

static bool add_job(jobs *jobs, bool is_weights, size_t index) {
    for (size_t i = 0; i < jobs->count; i++)
        if (jobs->all[i].is_weights == is_weights && jobs->all[i].index == index)
            return true;
    job *job = &jobs->all[jobs->count];
    job->is_weights = is_weights;
    job->index = index;
    job->key = key_of(jobs->graph, is_weights, index);
    job->known = job->key && held_of(jobs->graph->shared, job->key);
    for (size_t i = 0; i < jobs->count && job->key; i++)
        job->known |= !strcmp(jobs->all[i].key, job->key);
    jobs->count++;
    return job->key;
}

/* Keeps what was made, all of it, and says what the first failure was. */
static gputune_code keep(jobs *jobs, gputune_error *error) {
    gputune_graph *graph = jobs->graph;
    gputune_code code = GPUTUNE_OK;
    for (size_t i = 0; i < jobs->count; i++) {
        job *job = &jobs->all[i];
        if (!code && job->code && job->refused && jobs->strict)
            code = fail(error, GPUTUNE_WRONG_DEVICE, "%s: the driver refuses the binary of program %zu: %s",
                        graph->context->path, job->index, job->error.message);
        else if (!code && job->code)
            code = fail(error, job->code, "%s", job->error.message);
        else if (job->refused && !jobs->strict)
            warn(graph, "the driver refuses the binary of program %zu; building it from source", job->index);
        job->made.key = pool_text(&graph->shared->pool, job->key, strlen(job->key));
        if ((job->made.program || job->made.memory) && !hold(graph->device, graph->shared, job->made, error))
            code = GPUTUNE_OUT_OF_MEMORY;
    }
    for (size_t i = 0; i < jobs->count && !code; i++) {
        const job *job = &jobs->all[i];
        const held *held = held_of(graph->shared, job->key);
        if (!held)
            code = fail(error, GPUTUNE_OUT_OF_MEMORY, "no memory for programs");
        else if (job->is_weights)
            graph->places[WEIGHTS][job->index].memory = held->memory;
        else
            graph->programs[job->index] = held->program;
    }
    return code;
}

gputune_code load_programs(gputune_graph *graph, const launch *launches, size_t count, bool strict, bool weights,
                           gputune_error *error) {
    const size_t most = graph->context->program_count + graph->context->weight_count;
    jobs jobs = {graph, strict, calloc(most + 1, sizeof *jobs.all), 0, 0};
    bool good = jobs.all;
    for (size_t i = 0; i < count && good; i++) {
        good = add_job(&jobs, false, launches[i].program);
    }
    for (size_t i = 0; i < graph->record->info.launch_count && weights; i++) {
        const launch *launch = &graph->record->launches[i];
        for (size_t j = 0; j < launch->argument_count && good; j++)
            if (launch->arguments[j].is_buffer && launch->arguments[j].kind == WEIGHTS)
                good = add_job(&jobs, true, launch->arguments[j].index);
    }
    gputune_code code = GPUTUNE_OK;
    if (good) {
        do_all(&jobs);
        code = keep(&jobs, error);
    } else {
        code = fail(error, GPUTUNE_OUT_OF_MEMORY, "no memory for %zu programs and weights", most);
    }
    free(jobs.all);
    return code;
}
