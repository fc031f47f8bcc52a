/* The programs of a graph, from the binaries of its file, or from source where the driver refuses one or the device is
 * another; beside them its weights, whose checksums and copies take as long. As runtime/execution/programs.py. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "graph.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_THREADS = 8, LOG_BYTES = 1 << 14 };

typedef enum job_kind { PROGRAM, UPLOAD, CHECK } job_kind; /* of a program, of weights, of a section's bytes */
typedef struct job {
    job_kind kind;
    bool known, refused;
    size_t index;
    char *key; /* equal programs and equal weights have equal ones */
    cl_mem memory;
    cl_program program;
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
    if (!sched_getaffinity(0, sizeof allowed, &allowed)) count = CPU_COUNT(&allowed);
#endif
    return count > 1 ? (size_t)count : 1;
}

/* What the compiler says, from its first error on. */
static gputune_code build_failed(const gputune_device *device, cl_program program, cl_int status,
                                 gputune_error *error) {
    char *log = calloc(1, LOG_BYTES);
    if (log) device->cl.GetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, LOG_BYTES - 1, log, NULL);
    const char *from = log ? (strstr)(log, "error") : NULL; /* in brackets: no macro, which would be C11 */
    fail(error, GPUTUNE_BUILD_FAILED, "building a program failed: OpenCL's error %d: %.400s", status,
         from ? from : log ? log : "");
    free(log);
    return GPUTUNE_BUILD_FAILED;
}

static gputune_code build(const gputune_graph *graph, size_t index, bool binary, cl_program *program,
                          gputune_error *error) {
    const program_entry *entry = &graph->context->programs[index];
    const gputune_device *device = graph->device;
    const uint8_t *data;
    size_t nbytes;
    cl_int status = 0, loaded = 0;
    TRY(section_bytes(graph->context, binary ? entry->binary : entry->source, &data, &nbytes, error));
    const char *text = (const char *)data;
    *program = binary ? device->cl.CreateProgramWithBinary(device->context, 1, &device->id, &nbytes, &data, &loaded,
                                                           &status)
                      : device->cl.CreateProgramWithSource(device->context, 1, &text, &nbytes, &status);
    if (!*program || status || loaded)
        return fail(error, GPUTUNE_BUILD_FAILED, "OpenCL's error %d", status ? status : loaded);
    status = device->cl.BuildProgram(*program, 1, &device->id, binary ? "" : entry->options, NULL, NULL);
    if (!status) return GPUTUNE_OK;
    build_failed(device, *program, status, error);
    device->cl.ReleaseProgram(*program);
    *program = NULL;
    return GPUTUNE_BUILD_FAILED;
}

static gputune_code done(const jobs *jobs, job *job, gputune_error *error) {
    const gputune_graph *graph = jobs->graph;
    const context *context = graph->context;
    const uint8_t *data;
    size_t nbytes;
    if (job->kind == CHECK) return section_bytes(context, job->index, &data, &nbytes, error);
    if (job->kind == UPLOAD) { /* while another thread checks them, which takes as long */
        const section *section = &context->sections[context->weights[job->index]];
        return allocate(graph->device, CL_MEM_COPY_HOST_PTR, section->nbytes, section->data, &job->memory, error);
    }
    if (graph->from_binaries) {
        const gputune_code code = build(graph, job->index, true, &job->program, error);
        job->refused = code == GPUTUNE_BUILD_FAILED;
        if (!job->refused || jobs->strict) return code;
    }
    return build(graph, job->index, false, &job->program, error);
}

static void *work(void *argument) {
    jobs *jobs = argument;
    size_t i;
    while ((i = __atomic_fetch_add(&jobs->next, 1, __ATOMIC_RELAXED)) < jobs->count)
        if (!jobs->all[i].known) jobs->all[i].code = done(jobs, &jobs->all[i], &jobs->all[i].error);
    return NULL;
}

static void work_together(jobs *jobs) {
    thread threads[MOST_THREADS];
    size_t count = 0, most = processors() < MOST_THREADS ? processors() : MOST_THREADS;
    while (count + 1 < most && count + 1 < jobs->count && thread_start(&threads[count], work, jobs)) count++;
    work(jobs);
    while (count) thread_join(threads[--count]);
}

/* Adds a job unless it is there; one whose result is there, or will be, has nothing to do. */
static void add_job(jobs *jobs, job_kind kind, size_t index) {
    const context *context = jobs->graph->context;
    const program_entry *entry = kind == PROGRAM ? &context->programs[index] : NULL;
    job *job = &jobs->all[jobs->count];
    for (size_t i = 0; i < jobs->count; i++)
        if (jobs->all[i].kind == kind && jobs->all[i].index == index) return;
    jobs->count++;
    *job = (struct job){.kind = kind, .index = index};
    if (kind == CHECK) return;
    const char *first = context->sections[entry ? entry->binary : context->weights[index]].sha256,
               *second = entry ? context->sections[entry->source].sha256 : "", *third = entry ? entry->options : "";
    const size_t nbytes = strlen(first) + strlen(second) + strlen(third) + 3;
    job->key = pool_take(&jobs->graph->pool, nbytes, 1);
    if (!job->key) job->code = GPUTUNE_OUT_OF_MEMORY;
    job->known = !job->key;
    if (!job->key) return;
    snprintf(job->key, nbytes, "%d%d%s%s%s", kind, entry && jobs->graph->from_binaries, first, second, third);
    job->known = held_of(jobs->graph->shared, job->key);
    for (job--; job >= jobs->all && !jobs->all[jobs->count - 1].known; job--)
        jobs->all[jobs->count - 1].known = job->key && !strcmp(job->key, jobs->all[jobs->count - 1].key);
}

/* What the first failure was, with which nothing is kept. */
static gputune_code failure_of(const jobs *jobs, gputune_error *error) {
    const job *job = jobs->all, *end = job + jobs->count;
    const opencl *cl = &jobs->graph->device->cl;
    while (job < end && !job->code) job++;
    if (job == end) return GPUTUNE_OK;
    for (const struct job *each = jobs->all; each < end; each++) {
        if (each->program) cl->ReleaseProgram(each->program);
        if (each->memory) cl->ReleaseMemObject(each->memory);
    }
    if (!job->refused || !jobs->strict) return fail(error, job->code, "%s", job->error.message);
    return fail(error, GPUTUNE_WRONG_DEVICE, "%s: the driver refuses the binary of program %zu: %s",
                jobs->graph->context->path, job->index, job->error.message);
}

static gputune_code keep(const jobs *jobs, gputune_error *error) {
    gputune_graph *graph = jobs->graph;
    const job *end = jobs->all + jobs->count;
    TRY(failure_of(jobs, error));
    for (const job *job = jobs->all; job < end; job++) {
        held *held = job->program || job->memory ? hold(graph->shared, job->key) : NULL;
        if (held) *held = (struct held){held->next, held->key, job->memory, NULL, job->program};
        if (job->refused)
            warn(graph, "the driver refuses the binary of program %zu; building it from source", job->index);
    }
    for (const job *job = jobs->all; job < end; job++) {
        const held *held = job->key ? held_of(graph->shared, job->key) : NULL;
        if (job->key && !held) return NO_MEMORY;
        if (job->kind == UPLOAD) graph->places[WEIGHTS][job->index].memory = held->memory;
        if (job->kind == PROGRAM) graph->programs[job->index] = held->program;
    }
    return GPUTUNE_OK;
}

gputune_code load_programs(gputune_graph *graph, const launch *launches, size_t count, bool strict,
                           gputune_error *error) {
    const graph_record *record = graph->record;
    const context *context = graph->context;
    const size_t most = context->program_count + context->weight_count + context->section_count;
    jobs jobs = {graph, strict, calloc(most + 1, sizeof *jobs.all), 0, 0};
    if (!jobs.all) return NO_MEMORY;
    for (size_t i = 0; i < count; i++) add_job(&jobs, PROGRAM, launches[i].program);
    for (size_t i = 0; i < record->info.launch_count; i++) {
        const launch *launch = &record->launches[i];
        for (size_t j = 0; j < launch->argument_count; j++)
            if (launch->arguments[j].is_buffer && launch->arguments[j].kind == WEIGHTS) {
                add_job(&jobs, CHECK, context->weights[launch->arguments[j].index]);
                add_job(&jobs, UPLOAD, launch->arguments[j].index);
            }
        if (launches == record->launches) continue;
        add_job(&jobs, CHECK, context->programs[launch->program].binary); /* for when they are loaded */
        add_job(&jobs, CHECK, context->programs[launch->program].source);
    }
    work_together(&jobs);
    const gputune_code code = keep(&jobs, error);
    free(jobs.all);
    return code;
}
