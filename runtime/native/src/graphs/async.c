/* Inferences that are asked for now and run later: a thread of the graph runs them one after the other. */
#include "graph.h"
#include "../files/threads.h"

#include <stdlib.h>
#include <string.h>

typedef struct job {
    struct job *next;
    size_t input_count, output_count;
    gputune_callback callback;
    void *user;
    gputune_value values[]; /* inputs, then outputs */
} job;

struct async {
    gputune_graph *graph;
    run_one *run;
    mutex lock; /* of what is below */
    condition changed;
    job *first, **end;
    bool started, closing;
    thread thread;
};

static void *work(void *argument) {
    async *async = argument;
    mutex_lock(&async->lock);
    while (async->first || !async->closing) {
        job *job = async->first;
        if (!job) {
            condition_wait(&async->changed, &async->lock);
            continue;
        }
        async->first = job->next;
        if (!async->first) async->end = &async->first;
        mutex_unlock(&async->lock);
        gputune_error error = {GPUTUNE_OK, ""};
        const gputune_code code = async->run(async->graph, job->values, job->input_count,
                                             job->values + job->input_count, job->output_count, &error);
        if (job->callback) job->callback(job->user, code, &error);
        free(job);
        mutex_lock(&async->lock);
    }
    mutex_unlock(&async->lock);
    return NULL;
}

gputune_code gputune_run_async(gputune_graph *graph, const gputune_value *inputs, size_t input_count,
                               const gputune_value *outputs, size_t output_count, gputune_callback callback, void *user,
                               gputune_error *error) {
    async *async = graph->async;
    TRY(check_here(graph->device, error));
    job *job = calloc(1, sizeof *job + (input_count + output_count) * sizeof *inputs);
    if (!job) return NO_MEMORY;
    *job = (struct job){NULL, input_count, output_count, callback, user};
    if (input_count) memcpy(job->values, inputs, input_count * sizeof *inputs);
    if (output_count) memcpy(job->values + input_count, outputs, output_count * sizeof *outputs);
    mutex_lock(&async->lock);
    const bool runs = async->started || thread_start(&async->thread, work, async);
    async->started = runs;
    if (runs) {
        *async->end = job;
        async->end = &job->next;
        condition_tell(&async->changed);
    }
    mutex_unlock(&async->lock);
    if (runs) return GPUTUNE_OK;
    free(job);
    return fail(error, GPUTUNE_OUT_OF_MEMORY, "no thread can be started for inferences");
}

gputune_code async_open(gputune_graph *graph, run_one *run, gputune_error *error) {
    async *made = calloc(1, sizeof *made);
    if (!made || !mutex_open(&made->lock) || !condition_open(&made->changed)) {
        free(made);
        return NO_MEMORY;
    }
    made->graph = graph;
    made->run = run;
    made->end = &made->first;
    graph->async = made;
    return GPUTUNE_OK;
}

void async_close(async *async) {
    if (!async) return;
    if (is_here(async->graph->device)) {
        mutex_lock(&async->lock);
        async->closing = true;
        condition_tell(&async->changed);
        mutex_unlock(&async->lock);
        if (async->started) thread_join(async->thread);
        condition_close(&async->changed);
        mutex_close(&async->lock);
    }
    for (job *job = async->first, *next; job; job = next) { /* those of a fork */
        next = job->next;
        free(job);
    }
    free(async);
}
