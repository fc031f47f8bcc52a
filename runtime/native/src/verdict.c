/* How contexts fit a device: the verdict on one of them, and the choice among those of a package, by the same rules as
 * runtime/execution/verdict.py, but for one: which models are of one family is a long table in core/tier.py, which this
 * has not. Devices of one vendor and type are at one distance here, and those whose names begin alike come first. */
#include "device.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { FARTHEST = 6, TOLD = 4 };

/* Fills in the fields that make a device refuse another one's binaries; false where there are none. */
static bool differs(const identity *device, const identity *other, char reason[REASON_BYTES]) {
    const struct {
        const char *name, *mine, *theirs;
    } texts[] = {{"platform", device->platform, other->platform},
                 {"platform_version", device->platform_version, other->platform_version},
                 {"name", device->name, other->name},
                 {"driver_version", device->driver_version, other->driver_version},
                 {"device_version", device->device_version, other->device_version}};
    size_t length = 0;
    for (size_t i = 0; i < sizeof texts / sizeof *texts && length < REASON_BYTES; i++)
        if (strcmp(texts[i].mine, texts[i].theirs))
            length += (size_t)snprintf(reason + length, REASON_BYTES - length, "%s%s is '%s', not '%s'",
                                       length ? "; " : "", texts[i].name, texts[i].mine, texts[i].theirs);
    if (device->compute_units != other->compute_units && length < REASON_BYTES)
        length += (size_t)snprintf(reason + length, REASON_BYTES - length, "%scompute_units is %llu, not %llu",
                                   length ? "; " : "", (unsigned long long)device->compute_units,
                                   (unsigned long long)other->compute_units);
    return length;
}

/* What the device's limits alone rule out. */
static bool too_large(const context *context, const graph_record *graph, const identity *device, char *why,
                      size_t nbytes) {
    uint64_t largest = 0, offset = 0;
    for (size_t i = 0; i < graph->info.input_count; i++)
        largest = graph->info.inputs[i].nbytes > largest ? graph->info.inputs[i].nbytes : largest;
    for (size_t i = 0; i < graph->info.output_count; i++)
        largest = graph->info.outputs[i].nbytes > largest ? graph->info.outputs[i].nbytes : largest;
    for (size_t i = 0; i < graph->arena_count; i++)
        largest = graph->arenas[i] > largest ? graph->arenas[i] : largest;
    for (size_t i = 0; i < graph->info.launch_count; i++) {
        const launch *launch = &graph->launches[i];
        if (!sizes_fit(launch, device, why, nbytes))
            return true;
        for (size_t j = 0; j < launch->argument_count; j++) {
            const argument *argument = &launch->arguments[j];
            const bool weights = argument->is_buffer && argument->kind == WEIGHTS;
            const size_t of_weights = weights ? context->sections[context->weights[argument->index]].nbytes : 0;
            largest = of_weights > largest ? of_weights : largest;
            if (argument->is_buffer && argument->offset % device->base_address_alignment_bytes)
                offset = argument->offset;
        }
    }
    if (largest > device->max_allocation_bytes)
        snprintf(why, nbytes, "a buffer of %llu bytes, the device's largest allocation is %llu",
                 (unsigned long long)largest, (unsigned long long)device->max_allocation_bytes);
    else if (offset)
        snprintf(why, nbytes, "a buffer part at offset %llu, the device aligns parts to %llu bytes",
                 (unsigned long long)offset, (unsigned long long)device->base_address_alignment_bytes);
    return largest > device->max_allocation_bytes || offset;
}

verdict verdict_on(const context *context, const char *graph, const identity *device, char reason[REASON_BYTES]) {
    char why[REASON_BYTES / 2];
    if (!context->computes) {
        snprintf(reason, REASON_BYTES, "made by the null device: it holds no rearranged weights and cannot run on %s; "
                 "make it again on a real device", device->name);
        return UNSUPPORTED;
    }
    for (size_t i = 0; i < context->graph_count; i++) {
        const char *name = context->graphs[i].info.name;
        if ((!graph || !strcmp(graph, name)) && too_large(context, &context->graphs[i], device, why, sizeof why)) {
            snprintf(reason, REASON_BYTES, "%s cannot run graph '%s': %s", device->name, name, why);
            return UNSUPPORTED;
        }
    }
    return differs(device, &context->device, reason) ? PREFER_RECOMPILATION : OPTIMAL;
}

/* A name's next letter or digit in lower case, without marks such as (R) and (TM); 0 at its end. */
static int next_of(const char **name) {
    static const char *const MARKS[] = {"(R)", "(TM)", "(C)"};
    for (;; ++*name) {
        for (size_t i = 0; i < 3; i++)
            if (!strncmp(*name, MARKS[i], strlen(MARKS[i])))
                *name += strlen(MARKS[i]);
        if (!**name || isalnum((unsigned char)**name))
            return **name ? tolower((unsigned char)*(*name)++) : 0;
    }
}

/* How many letters and digits names have in common from the beginning; all of them: SIZE_MAX. */
static size_t alike(const char *one, const char *other) {
    for (size_t count = 0;; count++) {
        const int mine = next_of(&one), theirs = next_of(&other);
        if (mine != theirs)
            return count;
        if (!mine)
            return SIZE_MAX;
    }
}

/* The exact model: an Adreno's name has no number, its version has. */
static const char *model_of(const identity *device) {
    const char *adreno = strstr(device->device_version, "Adreno");
    return adreno && strstr(device->name, "Adreno") ? adreno : device->name;
}

static int distance(const identity *device, const identity *made_for, char reason[REASON_BYTES]) {
    char difference[REASON_BYTES];
    const bool same_type = !strcmp(device->device_type, made_for->device_type);
    *reason = 0;
    if (!differs(device, made_for, difference))
        return 0;
    if (alike(model_of(device), model_of(made_for)) == SIZE_MAX) {
        if (device->compute_units == made_for->compute_units) {
            snprintf(reason, REASON_BYTES, "made for another driver: %.300s", difference);
            return 1;
        }
        snprintf(reason, REASON_BYTES, "made for %llu compute units, here are %llu",
                 (unsigned long long)made_for->compute_units, (unsigned long long)device->compute_units);
        return 2;
    }
    const bool same_vendor = *device->vendor && alike(device->vendor, made_for->vendor) == SIZE_MAX;
    snprintf(reason, REASON_BYTES, "made for %s, %s is %s%s", made_for->name, device->name,
             same_type && same_vendor ? "of the same vendor " : same_type ? "another " : "a ",
             same_type && same_vendor ? device->vendor : device->device_type);
    return !same_type ? FARTHEST : same_vendor ? 4 : 5;
}

/* Whether a device is nearer to the first of two contexts than to the second. */
static bool nearer(const gputune_file *file, size_t one, size_t other, const identity *device) {
    const identity *mine = context_identity(file, one), *theirs = context_identity(file, other);
    char reason[REASON_BYTES];
    const int near = distance(device, mine, reason), far = distance(device, theirs, reason);
    const size_t same = alike(model_of(device), model_of(mine)), others = alike(model_of(device), model_of(theirs));
    const double units = log2((double)device->compute_units), apart = fabs(units - log2((double)mine->compute_units)),
                 wider = fabs(units - log2((double)theirs->compute_units));
    if (context_computes(file, one) != context_computes(file, other))
        return context_computes(file, one);
    if (near != far)
        return near < far;
    if (same != others)
        return same > others;
    return apart != wider ? apart < wider : one < other;
}

gputune_code choose_context(const gputune_file *file, const identity *device, const char *graph, size_t *place,
                            char choice[REASON_BYTES], gputune_error *error) {
    const size_t count = gputune_context_count(file);
    char told[GPUTUNE_MESSAGE_BYTES] = "", reason[REASON_BYTES], words[REASON_BYTES];
    bool tried[256] = {false}; /* more has no package */
    for (size_t i = 0; i < count; i++) {
        size_t best = count;
        for (size_t j = 0; j < count; j++)
            if (!tried[j] && (best == count || nearer(file, j, best, device)))
                best = j;
        const context *context;
        const gputune_code code = context_at(file, best, &context, error);
        if (code)
            return code;
        const char *name = gputune_context_name(file, best);
        const verdict verdict = verdict_on(context, graph, device, reason);
        const int far = distance(device, &context->device, words);
        tried[*place = best] = true;
        if (verdict != UNSUPPORTED) {
            snprintf(choice, REASON_BYTES, "context '%.100s', of %zu in the package: %s", name, count,
                     verdict == OPTIMAL ? "optimal" : far < 3 ? "near" : "rebuilt");
            if (verdict != OPTIMAL)
                snprintf(choice + strlen(choice), REASON_BYTES - strlen(choice), ", distance %d of %d: %s", far,
                         FARTHEST, words);
            return GPUTUNE_OK;
        }
        if (i < TOLD)
            snprintf(told + strlen(told), sizeof told - strlen(told), "; %s: %s", name, reason);
    }
    return fail(error, GPUTUNE_WRONG_DEVICE, "none of %zu contexts runs on %s%s%s", count, device->name, told,
                count > TOLD ? "; ..." : "");
}
