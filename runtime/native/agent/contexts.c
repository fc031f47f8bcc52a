/* Contexts, which run here as in an application: the runtime loads them on a device of their own, whose queue has no
 * clock. */
#include "session.h"

#include "graphs/graph.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    const gputune_load_options options = {.graph = request->graph, .strict = request->strict,
                                          .features = request->features,
                                          .feature_count = request->features_count};
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

/* Has inferences use the state that is asked for, behind so many rows of it, or none. */
static gputune_code choose_state(session *session, gputune_graph *graph, const run_context_message *request,
                                 gputune_error *error) {
    object *holder;
    gputune_state *state = NULL;
    if (request->state) {
        TRY(object_of(session, request->state, STATE, &holder, error));
        state = holder->state;
        if (gputune_state_length(state) != request->length)
            TRY(gputune_rewind_state(state, (size_t)request->length, error));
    }
    return graph->state == state ? GPUTUNE_OK : gputune_use_state(graph, state, error);
}

/* Names the inputs or outputs that a state leaves; returns how many there are. */
static size_t name_values(const gputune_graph *graph, bool output, gputune_value *values, size_t *nbytes) {
    const gputune_graph_info *const info = gputune_info(graph);
    size_t count = 0;
    for (size_t i = 0; i < (output ? info->output_count : info->input_count); i++) {
        const gputune_tensor *const tensor = (output ? info->outputs : info->inputs) + i;
        if (graph->tensors[output ? info->input_count + i : i].remembered) continue;
        values[count].name = tensor->name;
        nbytes[count++] = tensor->nbytes;
    }
    return count;
}

/* Inputs are read where they have arrived. */
static gputune_code take_inputs(const run_context_message *request, gputune_value *inputs, const size_t *nbytes,
                                size_t count, gputune_error *error) {
    if (request->inputs_count != count)
        return fail(error, GPUTUNE_INVALID_ARGUMENT, "%zu inputs for a graph with %zu", request->inputs_count, count);
    for (size_t i = 0; i < count; i++) {
        if (request->inputs[i].nbytes != nbytes[i])
            return fail(error, GPUTUNE_INVALID_ARGUMENT, "%zu bytes for input '%s', which has %zu",
                        request->inputs[i].nbytes, inputs[i].name, nbytes[i]);
        inputs[i].data = (void *)(uintptr_t)request->inputs[i].data;
    }
    return GPUTUNE_OK;
}

static gputune_code place_outputs(session *session, gputune_value *outputs, const size_t *nbytes, size_t count,
                                  slice *data, gputune_error *error) {
    size_t total = 0;
    for (size_t i = 0; i < count; i++) {
        if (nbytes[i] > session->limits.frame_bytes - total)
            return fail(error, GPUTUNE_LIMIT_EXCEEDED, "outputs of more than %llu bytes",
                        (unsigned long long)session->limits.frame_bytes);
        total += nbytes[i];
    }
    TRY(take_contents(session, total, error));
    uint8_t *at = session->contents;
    memset(at, 0, total); /* so that the inference, which is timed, does not wait for the system's pages */
    for (size_t i = 0; i < count; at += nbytes[i++]) {
        outputs[i].data = at;
        data[i] = (slice){at, nbytes[i]};
    }
    return GPUTUNE_OK;
}

gputune_code run_context(session *session, const void *asked, void *reply, gputune_error *error) {
    const run_context_message *const request = asked;
    ran_message *const ran = reply;
    gputune_graph *const graph = session->named->graph;
    const gputune_graph_info *const info = gputune_info(graph);
    gputune_code code = GPUTUNE_OK;
    gputune_value *const inputs = reply_rows(session, info->input_count, sizeof *inputs, &code, error);
    gputune_value *const outputs = reply_rows(session, info->output_count, sizeof *outputs, &code, error);
    slice *const data = reply_rows(session, info->output_count, sizeof *data, &code, error);
    size_t *const taken = reply_rows(session, info->input_count, sizeof *taken, &code, error);
    size_t *const given = reply_rows(session, info->output_count, sizeof *given, &code, error);
    if (!code) code = choose_state(session, graph, request, error);
    const size_t input_count = code ? 0 : name_values(graph, false, inputs, taken);
    const size_t output_count = code ? 0 : name_values(graph, true, outputs, given);
    if (!code) code = take_inputs(request, inputs, taken, input_count, error);
    if (!code) code = place_outputs(session, outputs, given, output_count, data, error);
    if (!code) code = finish(&session->device->stream, error); /* what was asked before does not run meanwhile */
    if (code) return code;
    recorder *const recorder = graph->recorder;
    persistent *const persistent = graph->persistent;
    if (!request->recorded) graph->recorder = NULL;
    if (!request->persistent) graph->persistent = NULL;
    const uint64_t begun_ns = now_ns();
    code = gputune_run(graph, inputs, input_count, outputs, output_count, error);
    ran->elapsed_ns = now_ns() - begun_ns;
    graph->recorder = recorder, graph->persistent = persistent;
    const gputune_counters *const of = &graph->last;
    ran->form = of->persistent ? "persistent" : of->aborted ? "aborted" : of->recorded ? "recorded" : "launches";
    ran->outputs = data, ran->outputs_count = output_count;
    return code;
}

/* --- states ------------------------------------------------------------------------------------------------------- */

gputune_code open_state(session *session, const void *asked, void *reply, gputune_error *error) {
    const open_state_message *const request = asked;
    gputune_graph *const graph = session->named->graph;
    gputune_state *made;
    object *holder;
    (void)reply;
    if (request->other) {
        TRY(object_of(session, request->other, STATE, &holder, error));
        TRY(gputune_copy_state(holder->state, &made, error));
    } else {
        TRY(gputune_open_state(graph, &made, error));
    }
    const gputune_code code = new_object(session, request->handle, STATE, &holder, error);
    if (code) gputune_close_state(made);
    else holder->state = made;
    return code;
}

gputune_code reset_state(session *session, const void *asked, void *reply, gputune_error *error) {
    (void)asked, (void)reply;
    return gputune_reset_state(session->named->state, error);
}

gputune_code read_state(session *session, const void *asked, void *reply, gputune_error *error) {
    const read_state_message *const request = asked;
    contents_message *const contents = reply;
    gputune_code code = GPUTUNE_OK;
    slice *const data = reply_rows(session, 1, sizeof *data, &code, error);
    if (code) return code;
    if (request->nbytes > session->limits.frame_bytes)
        return fail(error, GPUTUNE_LIMIT_EXCEEDED, "a reply of more than %llu bytes",
                    (unsigned long long)session->limits.frame_bytes);
    TRY(take_contents(session, (size_t)request->nbytes, error));
    *data = (slice){session->contents, (size_t)request->nbytes};
    contents->data = data, contents->data_count = 1;
    return gputune_read_state(session->named->state, request->input, session->contents, data->nbytes, error);
}

/* --- profiles ----------------------------------------------------------------------------------------------------- */

/* Ends the profile, if one is open; its log are the session's contents then. */
static gputune_code drop_profile(session *session, gputune_error *error) {
    const gputune_code code = gputune_close_profile(session->profile, error);
    session->contents = (uint8_t *)session->log;
    session->profile = NULL, session->log = NULL;
    return code;
}

gputune_code begin_profile(session *session, const void *asked, void *reply, gputune_error *error) {
    const begin_profile_message *const request = asked;
    const gputune_level level = strcmp(request->level, "basic") ? GPUTUNE_DETAILED : GPUTUNE_BASIC;
    (void)reply;
    FILE *const log = open_memstream(&session->log, &session->log_bytes);
    if (!log) return NO_MEMORY;
    gputune_code code = profile_to(log, session->runner, level, &session->profile, error);
    if (!code) code = gputune_record(session->named->graph, session->profile, error);
    if (code) drop_profile(session, NULL);
    return code;
}

gputune_code end_profile(session *session, const void *asked, void *reply, gputune_error *error) {
    contents_message *const contents = reply;
    gputune_code code = GPUTUNE_OK;
    slice *const data = reply_rows(session, 1, sizeof *data, &code, error);
    (void)asked;
    if (code) return code;
    TRY(drop_profile(session, error));
    *data = (slice){session->contents, session->log_bytes};
    contents->data = data, contents->data_count = 1;
    if (data->nbytes <= session->limits.frame_bytes) return GPUTUNE_OK;
    return fail(error, GPUTUNE_LIMIT_EXCEEDED, "a profile of %zu bytes", data->nbytes);
}

void close_runner(session *session) {
    drop_profile(session, NULL);
    free(session->contents);
    gputune_close_device(session->runner);
}
