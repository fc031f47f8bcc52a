/* Objects that a connection has made, and what is done with buffers. */
#include "session.h"

#include <stdlib.h>

enum { MOST_OBJECTS = 1 << 16 };

gputune_code object_of(session *session, uint64_t handle, object_kind kind, object **found, gputune_error *error) {
    static const char *const names[] = {"nothing", "buffer", "program", "bound kernel"};
    const bool known = handle && handle <= session->object_count;
    *found = known ? &session->objects[handle - 1] : NULL;
    if (known && (*found)->kind == kind) return GPUTUNE_OK;
    return fail(error, GPUTUNE_INVALID_ARGUMENT, "handle %llu is no %s", (unsigned long long)handle, names[kind]);
}

gputune_code new_object(session *session, object_kind kind, object **made, size_t *handle, gputune_error *error) {
    if (!session->device) return fail(error, GPUTUNE_INVALID_ARGUMENT, "no device is open");
    if (!session->first_free && session->object_count == session->object_room) {
        const size_t room = 2 * session->object_room + 64;
        if (room > MOST_OBJECTS) return fail(error, GPUTUNE_LIMIT_EXCEEDED, "more than %d objects", MOST_OBJECTS);
        object *const larger = realloc(session->objects, room * sizeof *larger);
        if (!larger) return NO_MEMORY;
        session->objects = larger, session->object_room = room;
    }
    *handle = session->first_free ? session->first_free : ++session->object_count;
    *made = &session->objects[*handle - 1];
    if (session->first_free) session->first_free = (*made)->next_free;
    **made = (object){.kind = kind, .users = 1};
    return GPUTUNE_OK;
}

void *reply_rows(session *session, size_t count, size_t nbytes, gputune_code *code, gputune_error *error) {
    void *made = pool_take(&session->pool, count, nbytes);
    if (!made) *code = NO_MEMORY;
    return made;
}

static void drop(session *session, size_t handle) {
    object *const gone = &session->objects[handle - 1];
    *gone = (object){.next_free = session->first_free};
    session->first_free = handle;
}

void leave_buffer(session *session, size_t handle) {
    object *const buffer = &session->objects[handle - 1];
    if (--buffer->users) return;
    session->device->cl.ReleaseMemObject(buffer->memory);
    drop(session, handle);
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

gputune_code allocate_buffers(session *session, const void *asked, void *reply, gputune_error *error) {
    const allocate_message *const request = asked;
    made_message *const made = reply;
    gputune_code code = GPUTUNE_OK;
    size_t *const handles = reply_rows(session, request->nbytes_count, sizeof *handles, &code, error);
    object *buffer;
    for (size_t i = 0; i < request->nbytes_count && !code; i++) {
        code = new_object(session, BUFFER, &buffer, &handles[i], error);
        if (code) break;
        made->handles_count = i + 1;
        buffer->nbytes = request->nbytes[i];
        code = allocate(session->device, 0, buffer->nbytes, NULL, &buffer->memory, error);
        if (code) drop(session, handles[--made->handles_count]);
    }
    while (code && made->handles_count) leave_buffer(session, handles[--made->handles_count]);
    made->handles = handles;
    return code;
}

/* A buffer keeps its memory while kernels have it, but is no object for the host any more. */
gputune_code forget(session *session, const void *asked, void *reply, gputune_error *error) {
    const free_message *const request = asked;
    (void)reply, (void)error;
    for (size_t i = 0; i < request->handles_count; i++) {
        const size_t handle = request->handles[i];
        object *const gone = handle && handle <= session->object_count ? &session->objects[handle - 1] : NULL;
        if (!gone || gone->kind == NOTHING) continue;
        if (gone->kind == BUFFER) {
            gone->kind = NOTHING;
            leave_buffer(session, handle);
        } else {
            if (gone->kind == PROGRAM) session->device->cl.ReleaseProgram(gone->program);
            else release_prepared(session, gone->prepared);
            drop(session, handle);
        }
    }
    return GPUTUNE_OK;
}

void forget_all(session *session) {
    for (object_kind kind = BOUND; kind > NOTHING; kind--) /* kernels first, which have buffers */
        for (size_t handle = 1; handle <= session->object_count; handle++) {
            const free_message one = {&handle, 1};
            if (session->objects[handle - 1].kind == kind) forget(session, &one, NULL, NULL);
        }
    free(session->objects);
    session->objects = NULL;
    session->object_count = session->object_room = session->first_free = 0;
}

static gputune_code memory_of(session *session, const span *span, object **found, gputune_error *error) {
    TRY(object_of(session, span->buffer, BUFFER, found, error));
    if (span->offset <= (*found)->nbytes && span->nbytes <= (*found)->nbytes - span->offset) return GPUTUNE_OK;
    return fail(error, GPUTUNE_INVALID_ARGUMENT, "%llu bytes at %llu of a buffer of %zu bytes",
                (unsigned long long)span->nbytes, (unsigned long long)span->offset, (*found)->nbytes);
}

gputune_code write_spans(session *session, const void *asked, void *reply, gputune_error *error) {
    const write_message *const request = asked;
    object *buffer;
    (void)reply;
    if (request->spans_count != request->data_count)
        return fail(error, GPUTUNE_INVALID_ARGUMENT, "%zu spans, and data for %zu", request->spans_count,
                    request->data_count);
    for (size_t i = 0; i < request->spans_count; i++) {
        const span *const span = &request->spans[i];
        const slice data = request->data[i];
        TRY(memory_of(session, span, &buffer, error));
        if (data.nbytes != span->nbytes)
            return fail(error, GPUTUNE_INVALID_ARGUMENT, "%zu bytes for a span of %llu", data.nbytes,
                        (unsigned long long)span->nbytes);
        if (data.nbytes)
            TRY(write_buffer(session->device, buffer->memory, (size_t)span->offset, data.data, data.nbytes, true,
                             error));
    }
    return GPUTUNE_OK;
}

gputune_code fill_spans(session *session, const void *asked, void *reply, gputune_error *error) {
    const fill_message *const request = asked;
    object *buffer;
    (void)reply;
    if (request->spans_count != request->patterns_count)
        return fail(error, GPUTUNE_INVALID_ARGUMENT, "%zu spans, and patterns for %zu", request->spans_count,
                    request->patterns_count);
    for (size_t i = 0; i < request->spans_count; i++) {
        const span *const span = &request->spans[i];
        const uint8_t pattern = (uint8_t)request->patterns[i];
        TRY(memory_of(session, span, &buffer, error));
        if (!span->nbytes) continue;
        TRY(checked(error, "filling a buffer",
                    session->device->cl.EnqueueFillBuffer(session->device->queue, buffer->memory, &pattern, 1,
                                                          (size_t)span->offset, (size_t)span->nbytes, 0, NULL, NULL)));
    }
    return GPUTUNE_OK;
}

gputune_code read_spans(session *session, const void *asked, void *reply, gputune_error *error) {
    const read_message *const request = asked;
    contents_message *const contents = reply;
    gputune_code code = GPUTUNE_OK;
    slice *const data = reply_rows(session, request->spans_count, sizeof *data, &code, error);
    object *buffer;
    size_t total = 0, at = 0;
    for (size_t i = 0; i < request->spans_count && !code; i++) {
        code = memory_of(session, &request->spans[i], &buffer, error);
        if (!code && request->spans[i].nbytes > session->limits.frame_bytes - total)
            code = fail(error, GPUTUNE_LIMIT_EXCEEDED, "a reply of more than %llu bytes",
                        (unsigned long long)session->limits.frame_bytes);
        if (!code) total += (size_t)request->spans[i].nbytes;
    }
    if (code) return code;
    session->contents = malloc(total + 1);
    if (!session->contents) return NO_MEMORY;
    for (size_t i = 0; i < request->spans_count && !code; i++) {
        const span *const span = &request->spans[i];
        data[i] = (slice){session->contents + at, (size_t)span->nbytes};
        code = memory_of(session, span, &buffer, error);
        if (!code && span->nbytes)
            code = checked(error, "reading a buffer",
                           session->device->cl.EnqueueReadBuffer(session->device->queue, buffer->memory, false,
                                                                 (size_t)span->offset, (size_t)span->nbytes,
                                                                 session->contents + at, 0, NULL, NULL));
        at += (size_t)span->nbytes;
    }
    contents->data = data, contents->data_count = request->spans_count;
    if (!code) return at ? finish(session->device, error) : code;
    session->device->cl.Finish(session->device->queue); /* so that nothing is still copied there */
    return code;
}
