#include "log.h"

#include "../graphs/states.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LEAST_ROOM = 1 << 12 };

/* --- MsgPack --- */

enum { BIN = 0xc6, REAL = 0xcb, UINT = 0xcf, INT = 0xd3, TEXT = 0xdb, ARRAY = 0xdd, MAP = 0xdf, YES = 0xc3, NO = 0xc2 };

static void add(profile_log *log, const void *bytes, size_t nbytes) {
    if (log->full) return;
    if (log->room - log->nbytes < nbytes) {
        size_t room = log->room > LEAST_ROOM ? log->room : LEAST_ROOM;
        while (room - log->nbytes < nbytes && room <= SIZE_MAX / 2) room *= 2;
        uint8_t *data = room - log->nbytes < nbytes ? NULL : realloc(log->data, room);
        log->full = !data;
        if (!data) return;
        log->data = data, log->room = room;
    }
    memcpy(log->data + log->nbytes, bytes, nbytes);
    log->nbytes += nbytes;
}

static void put(profile_log *log, int kind, uint64_t value) {
    uint8_t bytes[9] = {(uint8_t)kind};
    size_t count = 1;
    const bool is_number = kind == UINT || kind == INT || kind == REAL;
    for (int bits = is_number ? 64 : kind == YES || kind == NO ? 0 : 32; bits; bits -= 8)
        bytes[count++] = (uint8_t)(value >> (bits - 8) & 255);
    add(log, bytes, count);
}

static void put_text(profile_log *log, const char *text) {
    put(log, TEXT, strlen(text));
    add(log, text, strlen(text));
}

static void put_field(profile_log *log, const char *name, int kind, uint64_t value) {
    put_text(log, name);
    put(log, kind, value);
}

static void put_text_field(profile_log *log, const char *name, const char *text) {
    put_text(log, name);
    put_text(log, text);
}

static void put_real_field(profile_log *log, const char *name, double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    put_field(log, name, REAL, bits);
}

static void put_sizes(profile_log *log, const char *name, const size_t *sizes, size_t count) {
    put_field(log, name, ARRAY, count);
    for (size_t i = 0; i < count; i++) put(log, UINT, sizes[i]);
}

/* 64-bit integers, the lowest byte first. */
static void put_block(profile_log *log, const char *name, const int64_t *numbers, size_t count) {
    put_field(log, name, BIN, count * 8);
    for (size_t i = 0; i < count; i++) {
        uint8_t bytes[8];
        for (int j = 0; j < 8; j++) bytes[j] = (uint8_t)((uint64_t)numbers[i] >> 8 * j & 255);
        add(log, bytes, sizeof bytes);
    }
}

static void put_tensors(profile_log *log, const char *name, const gputune_tensor *tensors, size_t count) {
    put_field(log, name, MAP, count);
    for (size_t i = 0; i < count; i++) put_field(log, tensors[i].name, UINT, tensors[i].nbytes);
}

static void begin_record(profile_log *log, const char *kind, size_t fields) {
    mutex_lock(&log->turn);
    log->begun = log->nbytes;
    put(log, ARRAY, 2);
    put_text(log, kind);
    put(log, MAP, fields);
}

static gputune_code cannot_write(gputune_error *error) {
    return fail(error, GPUTUNE_IO_ERROR, "the profile log cannot be written: %s", strerror(errno));
}

/* What was measured survives this process. */
static gputune_code write_record(profile_log *log, gputune_error *error) {
    const bool full = log->full;
    const size_t nbytes = log->nbytes;
    log->full = false;
    if (full || log->file) log->nbytes = log->begun;
    if (full) return NO_MEMORY;
    if (!log->file) return GPUTUNE_OK;
    return fwrite(log->data, 1, nbytes, log->file) < nbytes || fflush(log->file) ? cannot_write(error) : GPUTUNE_OK;
}

static gputune_code end_record(profile_log *log, gputune_error *error) {
    const gputune_code code = write_record(log, error);
    mutex_unlock(&log->turn);
    return code;
}

/* --- records --- */

gputune_code log_header(profile_log *log, const gputune_device *device, const char *level, const events *events,
                        gputune_error *error) {
    struct timespec now;
    size_t missing = 0;
    for (size_t i = 0; events && i < EVENTS; i++) missing += event_unavailable(events, i) != NULL;
    clock_gettime(CLOCK_REALTIME, &now);
    begin_record(log, "gputune-profile", 8);
    put_field(log, "version", UINT, 1);
    put_text_field(log, "level", level);
    put_text_field(log, "software", "gputune's C runtime");
    put_field(log, "device", MAP, 5);
    put_text_field(log, "name", device->identity.name);
    put_text_field(log, "vendor", device->identity.vendor);
    put_text_field(log, "platform", device->identity.platform);
    put_text_field(log, "driver_version", device->identity.driver_version);
    put_text_field(log, "device_version", device->identity.device_version);
    put_field(log, "begun_ns", UINT, now_ns());
    put_field(log, "begun_unix_ns", UINT, (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec);
    put_field(log, "settings", MAP, 0);
    put_field(log, "unavailable", MAP, missing);
    for (size_t i = 0; events && i < EVENTS; i++)
        if (event_unavailable(events, i)) put_text_field(log, event_name(i), event_unavailable(events, i));
    return end_record(log, error);
}

gputune_code log_graph(profile_log *log, const gputune_graph *graph, const char *unmarked, gputune_error *error) {
    const graph_record *record = graph->record;
    char digest[65];
    TRY(digest_of(record, digest, error));
    begin_record(log, "graph", 12);
    put_text_field(log, "name", record->info.name);
    put_text_field(log, "context", graph->context->name);
    put_text_field(log, "digest", digest);
    put_field(log, "computes", graph->context->computes ? YES : NO, 0);
    put_field(log, "launches", ARRAY, record->info.launch_count);
    for (size_t i = 0; i < record->info.launch_count; i++) {
        const launch *launch = &record->launches[i];
        put(log, MAP, 5);
        put_text_field(log, "operation", launch->operation);
        put_text_field(log, "task", launch->task);
        put_text_field(log, "entry", launch->entry);
        put_sizes(log, "global_size", launch->global_size, launch->dimensions);
        put_sizes(log, "local_size", launch->local_size, launch->dimensions);
    }
    put_tensors(log, "inputs", record->info.inputs, record->info.input_count);
    put_tensors(log, "outputs", record->info.outputs, record->info.output_count);
    put_sizes(log, "arena_bytes", record->arenas, record->arena_count);
    put_field(log, "persistent", UINT, record->persistent_count);
    put_field(log, "load_ns", UINT, graph->load_ns);
    put_text_field(log, "unmarked", unmarked);
    put_field(log, "state_bytes", UINT, state_bytes_of(record));
    return end_record(log, error);
}

static void put_clock(profile_log *log, const clock_fit *clock) {
    put_field(log, "clock", ARRAY, 5);
    put(log, INT, (uint64_t)clock->at_ns);
    put(log, INT, (uint64_t)clock->offset_ns);
    put(log, INT, (uint64_t)clock->rate_ppb);
    put(log, INT, (uint64_t)clock->bound_ns);
    put_text(log, clock->by_timer ? "device_and_host_timer" : "bracketed");
}

static void put_counts(profile_log *log, const logged *inference) {
    put_field(log, "counters", MAP, inference->counter_count);
    for (size_t i = 0; i < inference->counter_count; i++)
        put_field(log, inference->counters[i].name, UINT, inference->counters[i].count);
    put_field(log, "preemptions", ARRAY, inference->preemption_count);
    for (size_t i = 0; i < inference->preemption_count; i++) {
        put(log, ARRAY, 2);
        put(log, UINT, (uint64_t)inference->preemptions[i].thread);
        put(log, UINT, inference->preemptions[i].count);
    }
}

gputune_code log_inference(profile_log *log, const logged *inference, gputune_error *error) {
    begin_record(log, inference->kind, 13);
    put_field(log, "graph", UINT, inference->graph);
    put_field(log, "number", UINT, inference->number);
    put_field(log, "thread", UINT, inference->thread);
    put_text_field(log, "form", inference->form);
    put_field(log, "begun_ns", UINT, inference->begun_ns);
    put_field(log, "ended_ns", UINT, inference->ended_ns);
    put_block(log, "parts", *inference->parts, 4 * inference->part_count);
    put_block(log, "launches", inference->launches, inference->launch_count * inference->columns);
    if (inference->launches) put_clock(log, &inference->clock);
    else put_field(log, "clock", ARRAY, 0);
    put_counts(log, inference);
    put_field(log, "observed", MAP, 0);
    put_field(log, "profiler_ns", UINT, inference->profiler_ns);
    return end_record(log, error);
}

gputune_code log_state(profile_log *log, uint64_t at_ns, const state_value *values, size_t count,
                       gputune_error *error) {
    begin_record(log, "state", 2);
    put_field(log, "at_ns", UINT, at_ns);
    put_field(log, "values", MAP, count);
    for (size_t i = 0; i < count; i++) put_real_field(log, values[i].name, values[i].value);
    return end_record(log, error);
}

gputune_code log_end(profile_log *log, gputune_error *error) {
    begin_record(log, "end", 0);
    return end_record(log, error);
}

/* --- where records go --- */

gputune_code open_log_file(const char *path, FILE **file, gputune_error *error) {
    char begin[8] = {0};
    struct stat status;
    FILE *there = !stat(path, &status) && S_ISREG(status.st_mode) ? fopen(path, "rbe") : NULL;
    if (there) {
        size_t length = fread(begin, 1, sizeof begin, there);
        fclose(there);
        if (length == 8 && (!memcmp(begin, "GPUTUNE", 8) || !memcmp(begin, "GPUTPKG", 8)))
            return fail(error, GPUTUNE_INVALID_ARGUMENT, "%s: a log would overwrite a context binary", path);
    }
    *file = fopen(path, "wbe");
    return *file ? GPUTUNE_OK : fail(error, GPUTUNE_IO_ERROR, "%s: %s", path, strerror(errno));
}

bool log_open(profile_log *log, FILE *file) {
    *log = (profile_log){.file = file};
    return mutex_open(&log->turn);
}

void log_take(profile_log *log, void *data, size_t *nbytes) {
    mutex_lock(&log->turn);
    const size_t left = log->nbytes - log->taken;
    if (!data || *nbytes > left) *nbytes = left;
    if (data && *nbytes) memcpy(data, log->data + log->taken, *nbytes);
    if (data) log->taken += *nbytes;
    if (log->taken == log->nbytes) log->taken = log->nbytes = 0;
    mutex_unlock(&log->turn);
}

gputune_code log_close(profile_log *log, bool here, gputune_error *error) {
    /* Of what the stream may still hold in a fork nothing gets into the file, which is another process's. */
    const int nowhere = here || !log->file ? -1 : open("/dev/null", O_WRONLY | O_CLOEXEC);
    const bool closes = log->file && (here || (nowhere >= 0 && dup2(nowhere, fileno(log->file)) >= 0));
    const bool failed = closes && fclose(log->file) && here;
    const gputune_code code = failed ? cannot_write(error) : GPUTUNE_OK;
    if (nowhere >= 0) close(nowhere);
    free(log->data);
    if (here) mutex_close(&log->turn);
    return code;
}
