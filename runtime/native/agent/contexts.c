/* Contexts, which run here as in an application: the runtime loads them on a device of their own, whose queue has no
 * clock. */
#include "session.h"

#include "graph.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MOST_WARNINGS = 1000 };

/* --- loading ------------------------------------------------------------------------------------------------------ */

static gputune_code open_runner(session *session, gputune_error *error) {
    char place[24];
    snprintf(place, sizeof place, "%llu", (unsigned long long)session->place);
    const gputune_device_options options = {.device = place};
    return session->runner ? GPUTUNE_OK : gputune_open_device(&options, &session->runner, error);
}

static gputune_code tell_warnings(session *session, const gputune_graph *graph, loaded_message *loaded,
                                  gputune_error *error) {
    gputune_code code = GPUTUNE_OK;
    size_t count = 0;
    while (count < MOST_WARNINGS && gputune_warning(graph, count)) count++;
    const char **const texts = reply_rows(session, count, sizeof *texts, &code, error);
    for (size_t i = 0; i < count && !code; i++) texts[i] = gputune_warning(graph, i);
    loaded->warnings = texts, loaded->warnings_count = code ? 0 : count;
    return code;
}

gputune_code load_context(session *session, const void *asked, void *reply, gputune_error *error) {
    const load_context_message *const request = asked;
    loaded_message *const loaded = reply;
    const gputune_load_options options = {.graph = request->graph, .strict = request->strict};
    gputune_file *file = NULL;
    object *made;
    TRY(new_object(session, request->handle, CONTEXT, &made, error));
    gputune_code code = open_runner(session, error);
    if (!code) code = gputune_open_bytes(request->data.data, request->data.nbytes, &file, error);
    if (!code) code = gputune_load(session->runner, file, &options, &made->graph, error);
    gputune_close(file);
    if (!code) code = tell_warnings(session, made->graph, loaded, error);
    if (!code) loaded->load_ns = made->graph->load_ns;
    else forget(session, &(free_message){(const size_t[]){(size_t)request->handle}, 1}, NULL, NULL);
    return code;
}

/* --- running ------------------------------------------------------------------------------------------------------ */

/* Inputs are read where they have arrived. */
static gputune_code take_inputs(const gputune_graph_info *info, const run_context_message *request,
                                gputune_value *inputs, gputune_error *error) {
    if (request->inputs_count != info->input_count)
        return fail(error, GPUTUNE_INVALID_ARGUMENT, "%zu inputs for a graph with %zu", request->inputs_count,
                    info->input_count);
    for (size_t i = 0; i < info->input_count; i++) {
        const gputune_tensor *const tensor = &info->inputs[i];
        if (request->inputs[i].nbytes != tensor->nbytes)
            return fail(error, GPUTUNE_INVALID_ARGUMENT, "%zu bytes for input '%s', which has %zu",
                        request->inputs[i].nbytes, tensor->name, tensor->nbytes);
        inputs[i].data = (void *)(uintptr_t)request->inputs[i].data;
    }
    return GPUTUNE_OK;
}

static gputune_code place_outputs(session *session, const gputune_graph_info *info, gputune_value *outputs,
                                  slice *data, gputune_error *error) {
    size_t total = 0;
    for (size_t i = 0; i < info->output_count; i++) {
        if (info->outputs[i].nbytes > session->limits.frame_bytes - total)
            return fail(error, GPUTUNE_LIMIT_EXCEEDED, "outputs of more than %llu bytes",
                        (unsigned long long)session->limits.frame_bytes);
        total += info->outputs[i].nbytes;
    }
    TRY(take_contents(session, total, error));
    uint8_t *at = session->contents;
    memset(at, 0, total); /* so that the inference, which is timed, does not wait for the system's pages */
    for (size_t i = 0; i < info->output_count; at += data[i++].nbytes) {
        outputs[i].data = at;
        data[i] = (slice){at, info->outputs[i].nbytes};
    }
    return GPUTUNE_OK;
}

gputune_code run_context(session *session, const void *asked, void *reply, gputune_error *error) {
    const run_context_message *const request = asked;
    ran_message *const ran = reply;
    object *context;
    TRY(object_of(session, request->context, CONTEXT, &context, error));
    gputune_graph *const graph = context->graph;
    const gputune_graph_info *const info = gputune_info(graph);
    gputune_code code = GPUTUNE_OK;
    gputune_value *const inputs = reply_rows(session, info->input_count, sizeof *inputs, &code, error);
    gputune_value *const outputs = reply_rows(session, info->output_count, sizeof *outputs, &code, error);
    slice *const data = reply_rows(session, info->output_count, sizeof *data, &code, error);
    if (!code) code = take_inputs(info, request, inputs, error);
    if (!code) code = place_outputs(session, info, outputs, data, error);
    if (!code) code = finish(session->device, error); /* what was asked before does not run meanwhile */
    if (code) return code;
    recorder *const recorder = graph->recorder;
    persistent *const persistent = graph->persistent;
    if (!request->recorded) graph->recorder = NULL;
    if (!request->persistent) graph->persistent = NULL;
    const uint64_t begun_ns = now_ns();
    code = gputune_run(graph, inputs, info->input_count, outputs, info->output_count, error);
    ran->elapsed_ns = now_ns() - begun_ns;
    graph->recorder = recorder, graph->persistent = persistent;
    const gputune_counters *const of = &graph->last;
    ran->form = of->persistent ? "persistent" : of->aborted ? "aborted" : of->recorded ? "recorded" : "launches";
    ran->outputs = data, ran->outputs_count = info->output_count;
    return code;
}

/* --- profiles ----------------------------------------------------------------------------------------------------- */

static gputune_code end_log(session *session, gputune_error *error) {
    const gputune_code code = gputune_close_profile(session->profile, error);
    session->profile = NULL;
    return code;
}

gputune_code begin_profile(session *session, const void *asked, void *reply, gputune_error *error) {
    const begin_profile_message *const request = asked;
    const gputune_level level = strcmp(request->level, "basic") ? GPUTUNE_DETAILED : GPUTUNE_BASIC;
    char path[40];
    object *context;
    (void)reply;
    TRY(object_of(session, request->context, CONTEXT, &context, error));
    if (session->profile) return fail(error, GPUTUNE_INVALID_ARGUMENT, "a profile is open already");
    session->log = (int)syscall(SYS_memfd_create, "profile", 0);
    if (session->log < 0) return fail(error, GPUTUNE_IO_ERROR, "memory for a profile: %s", strerror(errno));
    snprintf(path, sizeof path, "/proc/self/fd/%d", session->log);
    gputune_code code = gputune_open_profile(session->runner, path, level, &session->profile, error);
    if (!code) code = gputune_record(context->graph, session->profile, error);
    if (!code) return code;
    end_log(session, NULL);
    close(session->log);
    return code;
}

gputune_code end_profile(session *session, const void *asked, void *reply, gputune_error *error) {
    contents_message *const contents = reply;
    gputune_code code = GPUTUNE_OK;
    slice *const data = reply_rows(session, 1, sizeof *data, &code, error);
    (void)asked;
    if (!session->profile) return fail(error, GPUTUNE_INVALID_ARGUMENT, "no profile is open");
    if (!code) code = end_log(session, error);
    const off_t nbytes = lseek(session->log, 0, SEEK_END);
    if (!code && (nbytes < 0 || (uint64_t)nbytes > session->limits.frame_bytes))
        code = fail(error, GPUTUNE_LIMIT_EXCEEDED, "a profile of %lld bytes", (long long)nbytes);
    if (!code) code = take_contents(session, (size_t)nbytes, error);
    if (!code && pread(session->log, session->contents, (size_t)nbytes, 0) != nbytes)
        code = fail(error, GPUTUNE_IO_ERROR, "reading a profile: %s", strerror(errno));
    close(session->log);
    if (!code) *data = (slice){session->contents, (size_t)nbytes};
    contents->data = data, contents->data_count = 1;
    return code;
}

void close_runner(session *session) {
    if (session->profile) end_log(session, NULL), close(session->log);
    gputune_close_device(session->runner);
}
