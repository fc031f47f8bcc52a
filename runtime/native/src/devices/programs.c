/* The programs of a graph, from the binaries of its file, or from source where the driver refuses one or the device is
 * another; beside them its weights, whose checksums and copies take as long. What is
 * needed only later is copied now: a loaded graph reads its file no more, whatever becomes of that. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "programs.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    MOST_THREADS = 8, LOG_BYTES = 1 << 14, LOG_CHARACTERS = 2000,
    PIECE_BYTES = 1 << 21 /* of weights, on their way to the device */
};

typedef enum job_kind { PROGRAM, UPLOAD, COPY } job_kind; /* of a program, of weights, of a section */
typedef struct job {
    job_kind kind;
    bool known, refused;
    size_t index;
    char *key; /* equal programs and equal weights have equal ones */
    cl_mem memory;
    cl_program program;
    uint8_t *bytes;
    gputune_code code;
    gputune_error error;
} job;

typedef struct jobs {
    gputune_graph *graph;
    bool strict;
    mutex queue; /* of who writes weights */
    job *all;
    size_t count, next; /* next: with atomics */
} jobs;

void drop_copies(gputune_graph *graph) {
    for (size_t i = 0; graph->copies && i < graph->context->section_count; i++) {
        free(graph->copies[i]);
        graph->copies[i] = NULL;
    }
}

size_t processors(void) {
    long count = sysconf(_SC_NPROCESSORS_ONLN);
#ifdef CPU_COUNT
    cpu_set_t allowed;
    if (!sched_getaffinity(0, sizeof allowed, &allowed)) count = CPU_COUNT(&allowed);
#endif
    return count > 1 ? (size_t)count : 1;
}

gputune_code check_proofs(const gputune_graph *graph, gputune_error *error) {
    if (!graph->lacking) return GPUTUNE_OK;
    return fail(error, GPUTUNE_WRONG_DEVICE, "%s: graph '%s' needs features that %s does not prove: %s; generate the "
                "context on this device, or give `features` of gputune_load_options", graph->context->path,
                graph->record->info.name, graph->device->identity.name, graph->lacking);
}

gputune_code build_failed(const gputune_device *device, cl_program program, cl_int status, gputune_error *error) {
    char *log = calloc(1, LOG_BYTES);
    if (log) device->cl.GetProgramBuildInfo(program, device->id, CL_PROGRAM_BUILD_LOG, LOG_BYTES - 1, log, NULL);
    const char *from = log ? (strstr)(log, "error") : NULL; /* in brackets: no macro, which would be C11 */
    char room[STATUS_CHARACTERS];
    for (char *each = log; each && *each; each++)
        if (*each == '\n' || *each == '\t') *each = ' ';
    fail(error, GPUTUNE_BUILD_FAILED, "building a program failed: %s: %.*s", status_text(status, room), LOG_CHARACTERS,
         from ? from : log ? log : "");
    free(log);
    return GPUTUNE_BUILD_FAILED;
}

static gputune_code build(const gputune_graph *graph, size_t index, bool binary, cl_program *program,
                          gputune_error *error) {
    const program_entry *entry = &graph->context->programs[index];
    const gputune_device *device = graph->device;
    const size_t place = binary ? entry->binary : entry->source;
    const size_t nbytes = content_bytes(&graph->context->sections[place]);
    uint8_t *copied = NULL;
    cl_int status = 0, loaded = 0;
    char room[STATUS_CHARACTERS];
    if (!binary && entry->need_count) TRY(check_proofs(graph, error));
    if (!graph->copies[place]) TRY(copy_section(graph->context, place, &copied, error));
    const uint8_t *data = copied ? copied : graph->copies[place];
    const char *text = (const char *)data;
    *program = binary ? device->cl.CreateProgramWithBinary(device->context, 1, &device->id, &nbytes, &data, &loaded,
                                                           &status)
                      : device->cl.CreateProgramWithSource(device->context, 1, &text, &nbytes, &status);
    free(copied);
    if (!*program || status || loaded)
        return fail(error, GPUTUNE_BUILD_FAILED, "loading a program failed: %s",
                    status_text(status ? status : loaded, room));
    status = device->cl.BuildProgram(*program, 1, &device->id, binary ? "" : entry->options, NULL, NULL);
    if (!status) return GPUTUNE_OK;
    build_failed(device, *program, status, error);
    device->cl.ReleaseProgram(*program);
    *program = NULL;
    return GPUTUNE_BUILD_FAILED;
}

/* Has the device read the very bytes that the checksum is made of, of which nothing else knows before it is right. */
static gputune_code upload(jobs *jobs, job *job, gputune_error *error) {
    const gputune_graph *graph = jobs->graph;
    const context *context = graph->context;
    const size_t place = context->weights[job->index], nbytes = context->sections[place].nbytes;
    reading reading = begin_reading(context->source, context->path, &context->sections[place], place);
    uint8_t *piece = malloc(PIECE_BYTES);
    if (!piece) return NO_MEMORY;
    gputune_code code = allocate(graph->device, 0, nbytes, NULL, &job->memory, error);
    for (size_t at = 0, count = 0; !code && (at < nbytes || !at); at += count) {
        code = read_piece(&reading, piece, PIECE_BYTES, &count, error);
        mutex_lock(&jobs->queue);
        if (!code) code = write_buffer(graph->stream, job->memory, at, piece, count, true, error);
        mutex_unlock(&jobs->queue);
    }
    free(piece);
    return code;
}

static gputune_code done(jobs *jobs, job *job, gputune_error *error) {
    const gputune_graph *graph = jobs->graph;
    if (job->kind == COPY) return copy_section(graph->context, job->index, &job->bytes, error);
    if (job->kind == UPLOAD) return upload(jobs, job, error);
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
    for (const struct job *each = jobs->all; each < job; each++)
        if (each->kind == kind && each->index == index) return;
    jobs->count++;
    *job = (struct job){.kind = kind, .index = index};
    if (kind == COPY) return;
    const char *first = context->sections[entry ? entry->binary : context->weights[index]].sha256,
               *second = entry ? context->sections[entry->source].sha256 : "", *third = entry ? entry->options : "";
    const size_t nbytes = strlen(first) + strlen(second) + strlen(third) + 3;
    job->key = pool_take(&jobs->graph->pool, nbytes, 1);
    if (!job->key) job->code = GPUTUNE_OUT_OF_MEMORY;
    else snprintf(job->key, nbytes, "%d%d%s%s%s", kind, entry && jobs->graph->from_binaries, first, second, third);
    job->known = !job->key || held_of(jobs->graph->shared, job->key);
    for (const struct job *each = jobs->all; each < job && !job->known; each++)
        job->known = each->key && !strcmp(each->key, job->key);
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
        free(each->bytes);
    }
    if (!job->refused || !jobs->strict) return fail(error, job->code, "%s", job->error.message);
    return fail(error, GPUTUNE_WRONG_DEVICE, "%s: the driver refuses the binary of program %zu: %s",
                jobs->graph->context->path, job->index, job->error.message);
}

static size_t uploaded_bytes(const context *context, const job *job) {
    return context->sections[context->weights[job->index]].nbytes;
}

static gputune_code keep(const jobs *jobs, gputune_error *error) {
    gputune_graph *graph = jobs->graph;
    const job *end = jobs->all + jobs->count;
    TRY(failure_of(jobs, error));
    for (const job *job = jobs->all; job < end; job++) {
        held *held = job->program || job->memory ? hold(graph->shared, job->key) : NULL;
        if (job->kind == COPY) graph->copies[job->index] = job->bytes;
        if (held) held->memory = job->memory, held->program = job->program;
        if (held && job->memory) count_held(graph->device, held, uploaded_bytes(graph->context, job));
        if (job->refused)
            warn(graph, "the driver refuses the binary of program %zu; building it from source", job->index);
    }
    for (const job *job = jobs->all; job < end; job++) {
        held *held = job->key ? held_of(graph->shared, job->key) : NULL;
        if (job->key && (!held || !use_held(graph, held))) return NO_MEMORY;
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
    jobs jobs = {.graph = graph, .strict = strict, .all = calloc(most + 1, sizeof *jobs.all)};
    if (!jobs.all || !mutex_open(&jobs.queue)) {
        free(jobs.all);
        return NO_MEMORY;
    }
    for (size_t i = 0; i < count; i++) add_job(&jobs, PROGRAM, launches[i].program);
    for (size_t i = 0; i < record->info.launch_count; i++) {
        const launch *launch = &record->launches[i];
        for (size_t j = 0; j < launch->argument_count; j++)
            if (launch->arguments[j].is_buffer && launch->arguments[j].kind == WEIGHTS)
                add_job(&jobs, UPLOAD, launch->arguments[j].index);
        if (launches == record->launches) continue;
        add_job(&jobs, COPY, context->programs[launch->program].binary); /* for when they are loaded */
        add_job(&jobs, COPY, context->programs[launch->program].source);
    }
    work_together(&jobs);
    const gputune_code code = keep(&jobs, error);
    mutex_close(&jobs.queue);
    free(jobs.all);
    return code;
}
