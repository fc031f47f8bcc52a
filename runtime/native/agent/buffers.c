/* Objects that a connection has made, and what is done with buffers. */
#include "session.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_OBJECTS = 1 << 16 };

gputune_code object_of(session *session, uint64_t handle, object_kind kind, object **found, gputune_error *error) {
    static const char *const names[] = {"nothing", "buffer", "program", "bound kernel", "kept data", "context",
                                        "state"};
    const bool known = handle && handle <= session->object_count;
    *found = known ? &session->objects[handle - 1] : NULL;
    if (known && (*found)->kind == kind) return GPUTUNE_OK;
    return fail(error, GPUTUNE_INVALID_ARGUMENT, "handle %llu is no %s", (unsigned long long)handle, names[kind]);
}

gputune_code new_object(session *session, uint64_t handle, object_kind kind, object **made, gputune_error *error) {
    if (!handle || handle > MOST_OBJECTS)
        return fail(error, GPUTUNE_LIMIT_EXCEEDED, "handle %llu, those from 1 to %d are known",
                    (unsigned long long)handle, MOST_OBJECTS);
    if (handle > session->object_count) {
        const size_t count = 2 * (size_t)handle;
        object *const larger = realloc(session->objects, count * sizeof *larger);
        if (!larger) return NO_MEMORY;
        for (size_t i = session->object_count; i < count; i++) larger[i] = (object){.kind = NOTHING};
        session->objects = larger, session->object_count = count;
    }
    *made = &session->objects[handle - 1];
    if ((*made)->kind)
        return fail(error, GPUTUNE_INVALID_ARGUMENT, "handle %llu is in use", (unsigned long long)handle);
    (*made)->kind = kind;
    return GPUTUNE_OK;
}

void *reply_rows(session *session, size_t count, size_t nbytes, gputune_code *code, gputune_error *error) {
    void *made = pool_take(&session->pool, count, nbytes);
    if (!made) *code = NO_MEMORY;
    return made;
}

gputune_code take_contents(session *session, size_t nbytes, gputune_error *error) {
    session->contents = malloc(nbytes + 1);
    return session->contents ? GPUTUNE_OK : NO_MEMORY;
}

void leave_buffer(session *session, storage *buffer) {
    if (--buffer->users) return;
    session->device->cl.ReleaseMemObject(buffer->memory);
    free(buffer);
}

void release_prepared(session *session, prepared *prepared) {
    const opencl *const cl = &session->device->cl;
    if (prepared->kernel) cl->ReleaseKernel(prepared->kernel); /* first: PoCL does not bear its buffers going */
    for (size_t i = 0; i < prepared->part_count; i++) cl->ReleaseMemObject(prepared->parts[i]);
    for (size_t i = 0; i < prepared->buffer_count; i++) leave_buffer(session, prepared->buffers[i]);
    free(prepared->buffers);
    free(prepared->parts);
    free(prepared);
}

static void drop(session *session, object *gone) {
    switch (gone->kind) {
    case NOTHING: break;
    case BUFFER: leave_buffer(session, gone->buffer); break;
    case PROGRAM: session->device->cl.ReleaseProgram(gone->program); break;
    case BOUND: release_prepared(session, gone->prepared); break;
    case KEPT: free((void *)(uintptr_t)gone->kept.data); break;
    case CONTEXT: gputune_unload(gone->graph); break;
    case STATE: gputune_close_state(gone->state); break;
    }
    *gone = (object){.kind = NOTHING};
}

void forget_all(session *session) {
    for (object_kind kind = STATE; kind > NOTHING; kind--) /* kernels before what they have */
        for (size_t i = 0; i < session->object_count; i++)
            if (session->objects[i].kind == kind) drop(session, &session->objects[i]);
    free(session->objects);
    session->objects = NULL;
    session->object_count = 0;
}

/* --- requests ----------------------------------------------------------------------------------------------------- */

gputune_code forget(session *session, const void *asked, void *reply, gputune_error *error) {
    const free_message *const request = asked;
    (void)reply, (void)error;
    for (size_t i = 0; i < request->handles_count; i++) {
        const size_t handle = request->handles[i];
        if (handle && handle <= session->object_count) drop(session, &session->objects[handle - 1]);
    }
    return GPUTUNE_OK;
}

gputune_code allocate_buffer(session *session, const void *asked, void *reply, gputune_error *error) {
    const allocate_message *const request = asked;
    object *holder;
    (void)reply;
    storage *const made = calloc(1, sizeof *made);
    if (!made) return NO_MEMORY;
    gputune_code code = allocate(session->device, 0, (size_t)request->nbytes, NULL, &made->memory, error);
    if (code) {
        free(made);
        return code;
    }
    *made = (storage){made->memory, (size_t)request->nbytes, 1};
    code = new_object(session, request->handle, BUFFER, &holder, error);
    if (code) leave_buffer(session, made);
    else holder->buffer = made;
    return code;
}

gputune_code memory_of(session *session, const span *span, storage **found, gputune_error *error) {
    object *buffer;
    TRY(object_of(session, span->buffer, BUFFER, &buffer, error));
    *found = buffer->buffer;
    if (span->offset <= (*found)->nbytes && span->nbytes <= (*found)->nbytes - span->offset) return GPUTUNE_OK;
    return fail(error, GPUTUNE_INVALID_ARGUMENT, "%llu bytes at %llu of a buffer of %zu bytes",
                (unsigned long long)span->nbytes, (unsigned long long)span->offset, (*found)->nbytes);
}

gputune_code write_spans(session *session, const void *asked, void *reply, gputune_error *error) {
    const write_message *const request = asked;
    storage *buffer;
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
            TRY(write_buffer(&session->device->stream, buffer->memory, (size_t)span->offset, data.data, data.nbytes,
                             true, error));
    }
    return GPUTUNE_OK;
}

gputune_code fill_spans(session *session, const void *asked, void *reply, gputune_error *error) {
    const fill_message *const request = asked;
    storage *buffer;
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
                    session->device->cl.EnqueueFillBuffer(session->device->stream.queue, buffer->memory, &pattern, 1,
                                                          (size_t)span->offset, (size_t)span->nbytes, 0, NULL, NULL)));
    }
    return GPUTUNE_OK;
}

gputune_code copy_spans(session *session, const void *asked, void *reply, gputune_error *error) {
    const copy_message *const request = asked;
    storage *from, *to;
    (void)reply;
    if (request->spans_count != request->to_count)
        return fail(error, GPUTUNE_INVALID_ARGUMENT, "%zu spans for %zu", request->spans_count, request->to_count);
    for (size_t i = 0; i < request->spans_count; i++) {
        const span *const one = &request->spans[i], *const other = &request->to[i];
        TRY(memory_of(session, one, &from, error));
        TRY(memory_of(session, other, &to, error));
        if (one->nbytes != other->nbytes || !one->nbytes || from == to)
            return fail(error, GPUTUNE_INVALID_ARGUMENT, "a copy of %llu bytes to %llu, or inside a buffer",
                        (unsigned long long)one->nbytes, (unsigned long long)other->nbytes);
        TRY(checked(error, "copying a buffer",
                    session->device->cl.EnqueueCopyBuffer(session->device->stream.queue, from->memory, to->memory,
                                                          (size_t)one->offset, (size_t)other->offset,
                                                          (size_t)one->nbytes, 0, NULL, NULL)));
    }
    return GPUTUNE_OK;
}

gputune_code begin_read(session *session, const span *span, void *into, gputune_error *error) {
    storage *buffer;
    TRY(memory_of(session, span, &buffer, error));
    if (!span->nbytes) return GPUTUNE_OK;
    return checked(error, "reading a buffer",
                   session->device->cl.EnqueueReadBuffer(session->device->stream.queue, buffer->memory, false,
                                                         (size_t)span->offset, (size_t)span->nbytes, into, 0, NULL,
                                                         NULL));
}

gputune_code read_spans(session *session, const void *asked, void *reply, gputune_error *error) {
    const read_message *const request = asked;
    contents_message *const contents = reply;
    gputune_code code = GPUTUNE_OK;
    slice *const data = reply_rows(session, request->spans_count, sizeof *data, &code, error);
    storage *buffer;
    size_t total = 0, at = 0;
    for (size_t i = 0; i < request->spans_count && !code; i++) {
        code = memory_of(session, &request->spans[i], &buffer, error);
        if (!code && request->spans[i].nbytes > session->limits.frame_bytes - total)
            code = fail(error, GPUTUNE_LIMIT_EXCEEDED, "a reply of more than %llu bytes",
                        (unsigned long long)session->limits.frame_bytes);
        if (!code) total += (size_t)request->spans[i].nbytes;
    }
    if (!code) code = take_contents(session, total, error);
    if (code) return code;
    for (size_t i = 0; i < request->spans_count && !code; i++) {
        data[i] = (slice){session->contents + at, (size_t)request->spans[i].nbytes};
        code = begin_read(session, &request->spans[i], session->contents + at, error);
        at += data[i].nbytes;
    }
    contents->data = data, contents->data_count = request->spans_count;
    if (!code) return finish(&session->device->stream, error);
    session->device->cl.Finish(session->device->stream.queue); /* so that nothing is still copied there */
    return code;
}

gputune_code keep_data(session *session, const void *asked, void *reply, gputune_error *error) {
    const keep_message *const request = asked;
    object *holder;
    (void)reply;
    uint8_t *const copy = malloc(request->data.nbytes + 1);
    if (!copy) return NO_MEMORY;
    if (request->data.nbytes) memcpy(copy, request->data.data, request->data.nbytes);
    const gputune_code code = new_object(session, request->handle, KEPT, &holder, error);
    if (code) free(copy);
    else holder->kept = (slice){copy, request->data.nbytes};
    return code;
}
