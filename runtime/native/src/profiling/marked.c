/* Persistent kernels that mark when each launch that they stand for began and ended, for profilers: the text in the
 * context is built with a function that reads a clock of the device, which GPUTUNE_TICKS names, and has marks as its
 * last argument. The kernels that run at other times are separate and contain nothing of it. */
#include "marked.h"
#include "../graphs/persistent.h"
#include "../devices/programs.h"
#include "../files/reading.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TICKS "GPUTUNE_TICKS"
#define POCL "Portable Computing Language" /* whose compiler, Clang, makes an instruction of the function */
#define STANDARD "-cl-std="
enum { LINE_BYTES = 64 }; /* of the counters, for arrivals and for each launch of a group */

struct marked {
    uint8_t **texts;      /* by the index of their programs, those of persistent kernels, as they lie in the file */
    cl_program *programs; /* the same with marks */
    bound *kernels;
    bool is_open;
    gputune_error failed; /* why they could not be built; they are not tried again */
};

static size_t groups_of(const launch *launch) {
    size_t count = 1;
    for (size_t i = 0; i < launch->dimensions; i++) count *= launch->global_size[i];
    return count ? count : 1;
}

size_t stands_for(const launch *launch) {
    size_t lines = 0;
    for (size_t i = 0; i < launch->argument_count; i++)
        if (launch->arguments[i].is_buffer && launch->arguments[i].kind == COUNTERS)
            lines += launch->arguments[i].nbytes / LINE_BYTES;
    return lines ? (lines - 1) / groups_of(launch) : 1;
}

gputune_code marked_prepare(gputune_graph *graph, gputune_error *error) {
    const context *context = graph->context;
    marked *made = graph->marked = pool_take(&graph->pool, 1, sizeof *made);
    if (made) made->texts = pool_take(&graph->pool, context->program_count, sizeof *made->texts);
    if (made) made->programs = pool_take(&graph->pool, context->program_count, sizeof *made->programs);
    if (!made || !made->texts || !made->programs) return NO_MEMORY;
    for (size_t i = 0; i < graph->record->persistent_count; i++) {
        const launch *launch = &graph->record->persistent[i];
        const size_t source = context->programs[launch->program].source;
        uint8_t **text = &made->texts[launch->program];
        if (launch->counts && !*text) TRY(keep_section(context, source, text, error));
    }
    return GPUTUNE_OK;
}

/* What the driver calls a function that reads a clock; NULL where there is none. */
static const char *function_of(const gputune_device *device) {
    const identity *identity = &device->identity;
    bool has_clock = false;
#if defined __x86_64__ || defined _M_X64 /* on other processors it may need privileges */
    if (device->is_cpu && (strstr)(identity->platform, POCL)) return "__builtin_readcyclecounter";
#endif
    for (size_t i = 0; i < identity->extension_count; i++)
        has_clock |= !strcmp(identity->extensions[i], "cl_khr_kernel_clock");
    return has_clock ? "clock_read_device" : NULL;
}

/* The options that a text is built with, with marks; an extension's function asks for a version of the language. */
static void write_options(const char *options, const char *function, char *text, size_t room) {
    const bool of_extension = !strncmp(function, "clock_read", 10);
    size_t used = 0;
    while (*options) {
        const size_t length = strcspn(options, " ");
        const bool dropped = !length || (of_extension && !strncmp(options, STANDARD, sizeof STANDARD - 1));
        if (!dropped) used += (size_t)snprintf(text + used, room - used, "%.*s ", (int)length, options);
        options += length + (options[length] == ' ');
    }
    snprintf(text + used, room - used, "%s-D" TICKS "=%s", of_extension ? STANDARD "CL3.0 " : "", function);
}

static bool contains(const uint8_t *data, size_t nbytes, const char *text) {
    const size_t length = strlen(text);
    size_t at = 0;
    while (at + length <= nbytes && memcmp(data + at, text, length)) at++;
    return at + length <= nbytes;
}

/* Builds a text with marks. */
static gputune_code build_marked(gputune_graph *graph, size_t index, const char *function, gputune_error *error) {
    const gputune_device *device = graph->device;
    const program_entry *entry = &graph->context->programs[index];
    const size_t nbytes = content_bytes(&graph->context->sections[entry->source]), room = strlen(entry->options) + 128;
    uint8_t **text = &graph->marked->texts[index];
    cl_program *program = &graph->marked->programs[index];
    gputune_error refused = {GPUTUNE_OK, ""};
    cl_int status = 0;
    TRY(open_section(graph->context, entry->source, *text, text, error));
    if (!contains(*text, nbytes, TICKS))
        return fail(error, GPUTUNE_CANNOT_MARK, "the persistent kernels are of an older gputune");
    const char *source = (const char *)*text;
    char *options = malloc(room);
    if (!options) return NO_MEMORY;
    write_options(entry->options, function, options, room);
    *program = device->cl.CreateProgramWithSource(device->context, 1, &source, &nbytes, &status);
    if (*program) status = device->cl.BuildProgram(*program, 1, &device->id, options, NULL, NULL);
    free(options);
    if (*program && !status) return GPUTUNE_OK;
    if (*program) build_failed(device, *program, status, &refused);
    else checked(&refused, "making a program", status);
    return fail(error, GPUTUNE_CANNOT_MARK, "the driver refuses marks in persistent kernels (%s)", refused.message);
}

/* A launch with marks as its last argument, which are memory of their own. */
static gputune_code add_marks(gputune_graph *graph, size_t index, launch *made, gputune_error *error) {
    place *place = &graph->places[MARKS][index];
    const size_t count = made->argument_count, nbytes = groups_of(made) * stands_for(made) * 2 * sizeof(int64_t);
    argument *arguments = pool_take(&graph->pool, count + 1, sizeof *arguments);
    if (!arguments) return NO_MEMORY;
    TRY(allocate(graph->device, 0, nbytes, NULL, &place->memory, error));
    place->nbytes = nbytes;
    if (count) memcpy(arguments, made->arguments, count * sizeof *arguments);
    arguments[count] = (argument){.is_buffer = true, .kind = MARKS, .index = index, .nbytes = nbytes};
    made->arguments = arguments, made->argument_count = count + 1;
    return GPUTUNE_OK;
}

static gputune_code bind_marked(gputune_graph *graph, gputune_error *error) {
    const graph_record *record = graph->record;
    cl_program *const usual = graph->programs;
    launch *launches = pool_take(&graph->pool, record->persistent_count, sizeof *launches);
    place *places = pool_take(&graph->pool, record->persistent_count, sizeof *places);
    cl_program *programs = pool_take(&graph->pool, graph->context->program_count, sizeof *programs);
    if (!launches || !places || !programs) return NO_MEMORY;
    graph->places[MARKS] = places, graph->place_counts[MARKS] = record->persistent_count;
    for (size_t i = 0; i < graph->context->program_count; i++)
        programs[i] = graph->marked->programs[i] ? graph->marked->programs[i] : usual[i];
    for (size_t i = 0; i < record->persistent_count; i++) {
        launches[i] = record->persistent[i];
        if (launches[i].counts) TRY(add_marks(graph, i, &launches[i], error));
    }
    graph->programs = programs;
    const gputune_code code = bind_launches(graph, launches, record->persistent_count, &graph->marked->kernels, error);
    graph->programs = usual;
    return code;
}

static gputune_code open_kernels(gputune_graph *graph, gputune_error *error) {
    const graph_record *record = graph->record;
    const char *function = function_of(graph->device);
    size_t count = 0;
    for (size_t i = 0; i < record->persistent_count; i++) count += stands_for(&record->persistent[i]);
    if (count != record->info.launch_count)
        return fail(error, GPUTUNE_CANNOT_MARK, "the persistent kernels do not say which launches they replace");
    if (!function) return fail(error, GPUTUNE_CANNOT_MARK, "this driver has no cl_khr_kernel_clock");
    for (size_t i = 0; i < graph->context->program_count; i++)
        if (graph->marked->texts[i]) TRY(build_marked(graph, i, function, error));
    return bind_marked(graph, error);
}

gputune_code marked_open(gputune_graph *graph, gputune_error *error) {
    marked *own = graph->marked;
    if (!own || !graph->persistent) return fail(error, GPUTUNE_CANNOT_MARK, "persistent kernels do not run here");
    if (!own->is_open && !own->failed.code) own->is_open = !open_kernels(graph, &own->failed);
    return own->is_open ? GPUTUNE_OK : fail(error, own->failed.code, "%s", own->failed.message);
}

const bound *marked_kernels(const gputune_graph *graph) { return graph->marked->kernels; }

gputune_code marked_begin(gputune_graph *graph, gputune_error *error) {
    for (size_t i = 0; i < graph->record->persistent_count; i++) {
        const place *place = &graph->places[MARKS][i];
        if (place->memory) TRY(fill_buffer(graph->stream, place->memory, 0, place->nbytes, error));
    }
    return persistent_prepare(graph, error);
}

/* From the first group's beginning to the last one's end; groups without a portion have zeros. */
static void merge_groups(const int64_t *marks, size_t groups, size_t launches, int64_t (*ticks)[2]) {
    for (size_t i = 0; i < launches; i++) {
        ticks[i][0] = INT64_MAX, ticks[i][1] = 0;
        for (size_t group = 0; group < groups; group++) {
            const int64_t *pair = marks + 2 * (group * launches + i);
            if (pair[0] && pair[0] < ticks[i][0]) ticks[i][0] = pair[0];
            if (pair[1] > ticks[i][1]) ticks[i][1] = pair[1];
        }
    }
}

gputune_code marked_take(gputune_graph *graph, int64_t (*ticks)[2], gputune_error *error) {
    gputune_code code = GPUTUNE_OK;
    for (size_t i = 0; i < graph->record->persistent_count && !code; i++) {
        const launch *launch = &graph->record->persistent[i];
        const place *place = &graph->places[MARKS][i];
        const size_t launches = stands_for(launch);
        int64_t *marks = launch->counts ? malloc(place->nbytes) : NULL;
        if (!launch->counts) ticks[0][0] = ticks[0][1] = 0;
        else if (!marks) code = NO_MEMORY;
        else code = read_buffer(graph->stream, place->memory, marks, place->nbytes, true, error);
        if (marks && !code) merge_groups(marks, groups_of(launch), launches, ticks);
        free(marks);
        ticks += launches;
    }
    return code;
}

void marked_close(gputune_graph *graph, bool here) {
    marked *own = graph->marked;
    const opencl *cl = &graph->device->cl;
    if (!own) return;
    for (bound *one = own->kernels; here && one && one->kernel; one++) cl->ReleaseKernel(one->kernel);
    for (size_t i = 0; own->texts && own->programs && i < graph->context->program_count; i++) {
        free(own->texts[i]);
        if (here && own->programs[i]) cl->ReleaseProgram(own->programs[i]);
    }
    for (size_t i = 0; here && i < graph->place_counts[MARKS]; i++)
        if (graph->places[MARKS][i].memory) cl->ReleaseMemObject(graph->places[MARKS][i].memory);
    graph->place_counts[MARKS] = 0;
    graph->marked = NULL;
}
