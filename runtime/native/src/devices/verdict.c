/* How contexts fit a device: the verdict on one of them, and the choice among those of a package, by the rules of
 * runtime/loading/verdict.py. Of contexts that are equally near, Python takes one of the same .icd file, whose name
 * OpenCL does not say; here the first one is taken. */
#include "device.h"
#include "tier.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { SAME_FAMILY = 3, SAME_VENDOR = 4, SAME_TYPE = 5, FARTHEST = 6, TOLD = 4, MOST_JUDGED = 256 };

/* Whether a device refuses the other one's binaries, and the fields that say so. */
static bool differs(const identity *device, const identity *other, char reason[REASON_BYTES]) {
    const struct {
        const char *name, *mine, *theirs;
    } texts[] = {{"platform", device->platform, other->platform},
                 {"platform_version", device->platform_version, other->platform_version},
                 {"name", device->name, other->name},
                 {"driver_version", device->driver_version, other->driver_version},
                 {"device_version", device->device_version, other->device_version}};
    const bool units = device->compute_units != other->compute_units;
    size_t length = 0;
    for (size_t i = 0; i < sizeof texts / sizeof *texts && length < REASON_BYTES; i++)
        if (strcmp(texts[i].mine, texts[i].theirs))
            length += (size_t)snprintf(reason + length, REASON_BYTES - length, "%s%s is '%s', not '%s'",
                                       length ? "; " : "", texts[i].name, texts[i].mine, texts[i].theirs);
    if (units && length < REASON_BYTES)
        snprintf(reason + length, REASON_BYTES - length, "%scompute_units is %llu, not %llu", length ? "; " : "",
                 (unsigned long long)device->compute_units, (unsigned long long)other->compute_units);
    return length || units;
}

/* What the device's limits alone rule out. */
static bool too_large(const context *context, const graph_record *graph, const identity *device, char *why,
                      size_t nbytes) {
    const gputune_graph_info *info = &graph->info;
    uint64_t largest = 0, offset = 0;
    for (size_t i = 0; i < info->input_count; i++)
        if (info->inputs[i].nbytes > largest) largest = info->inputs[i].nbytes;
    for (size_t i = 0; i < info->output_count; i++)
        if (info->outputs[i].nbytes > largest) largest = info->outputs[i].nbytes;
    for (size_t i = 0; i < graph->arena_count; i++)
        if (graph->arenas[i] > largest) largest = graph->arenas[i];
    for (size_t i = 0; i < info->launch_count; i++) {
        if (!sizes_fit(&graph->launches[i], device, why, nbytes)) return true;
        for (size_t j = 0; j < graph->launches[i].argument_count; j++) {
            const argument *one = &graph->launches[i].arguments[j];
            const bool weights = one->is_buffer && one->kind == WEIGHTS;
            const size_t has = weights ? context->sections[context->weights[one->index]].nbytes : 0;
            if (has > largest) largest = has;
            if (one->is_buffer && one->kind == PACKED &&
                too_large(context, &context->packing[one->index], device, why, nbytes))
                return true;
            if (one->is_buffer && one->offset % device->base_address_alignment_bytes) offset = one->offset;
        }
    }
    const bool large = largest > device->max_allocation_bytes;
    snprintf(why, nbytes, large ? "a buffer of %llu bytes, the device's largest allocation is %llu"
                                : "a buffer part at offset %llu, the device aligns parts to %llu bytes",
             (unsigned long long)(large ? largest : offset),
             (unsigned long long)(large ? device->max_allocation_bytes : device->base_address_alignment_bytes));
    return large || offset;
}

verdict verdict_on(const context *context, const char *graph, const identity *device, char reason[REASON_BYTES]) {
    char why[REASON_BYTES / 2];
    if (!context->computes)
        return snprintf(reason, REASON_BYTES, "made by the null device: it holds no rearranged weights and cannot run "
                        "on %s; make it again on a real device", device->name), UNSUPPORTED;
    for (size_t i = 0; i < context->graph_count; i++) {
        const char *name = context->graphs[i].info.name;
        if ((!graph || !strcmp(graph, name)) && too_large(context, &context->graphs[i], device, why, sizeof why))
            return snprintf(reason, REASON_BYTES, "%s cannot run graph '%s': %s", device->name, name, why), UNSUPPORTED;
    }
    return differs(device, &context->device, reason) ? PREFER_RECOMPILATION : OPTIMAL;
}

/* Takes a feature in place of one that was found if its name comes earlier, but behind the last one's. */
static void take_earlier(const char *name, const char *last, const char **found) {
    if ((!last || strcmp(name, last) > 0) && (!*found || strcmp(name, *found) < 0)) *found = name;
}

/* Of the features that a graph needs, the next one by name behind the last, or NULL. A persistent form and packings
 * count, too. */
static const char *next_need(const context *context, const graph_record *graph, const char *last) {
    const struct {
        const launch *launches;
        size_t count;
    } forms[] = {{graph->launches, graph->info.launch_count}, {graph->persistent, graph->persistent_count}};
    const char *found = NULL;
    for (size_t i = 0; i < 2; i++)
        for (const launch *one = forms[i].launches, *end = one + forms[i].count; one < end; one++) {
            const program_entry *program = &context->programs[one->program];
            for (size_t j = 0; j < program->need_count; j++) take_earlier(program->needs[j], last, &found);
            for (size_t j = 0; j < one->argument_count; j++) {
                const argument *read = &one->arguments[j];
                const bool packed = read->is_buffer && read->kind == PACKED;
                const char *need = packed ? next_need(context, &context->packing[read->index], last) : NULL;
                if (need) take_earlier(need, last, &found);
            }
        }
    return found;
}

bool lacks_features(const context *context, const graph_record *graph, const char *const *proved, size_t proved_count,
                    char lacking[LACKING_BYTES]) {
    size_t length = 0;
    *lacking = 0;
    for (const char *need = NULL; (need = next_need(context, graph, need));) {
        size_t i = 0;
        while (i < proved_count && strcmp(proved[i], need)) i++;
        if (i == proved_count && length < LACKING_BYTES)
            length += (size_t)snprintf(lacking + length, LACKING_BYTES - length,
                                       "%s%s, because no proof of it is given", length ? "; " : "", need);
    }
    cut_text(lacking);
    return length;
}

/* How far a device is from that of a context, from 0 to FARTHEST, and the reason in words. */
static int distance(const identity *device, const identity *made_for, char reason[REASON_BYTES]) {
    char difference[REASON_BYTES];
    const tier here = tier_of(device), there = tier_of(made_for);
    const bool units = device->compute_units == made_for->compute_units,
               model = !strcmp(here.model, there.model), type = !strcmp(device->device_type, made_for->device_type),
               family = !strcmp(here.family, there.family),
               vendor = type && !strcmp(here.vendor, there.vendor) && strcmp(here.vendor, "unknown");
    *reason = 0;
    if (!differs(device, made_for, difference)) return 0;
    if (model && units)
        snprintf(reason, REASON_BYTES, "made for another driver: %.350s", difference);
    else if (model)
        snprintf(reason, REASON_BYTES, "made for %llu compute units, here are %llu",
                 (unsigned long long)made_for->compute_units, (unsigned long long)device->compute_units);
    else
        snprintf(reason, REASON_BYTES, "made for %s, %s is %s %s", made_for->name, device->name,
                 family ? "of the same family" : vendor ? "of the same vendor" : type ? "another" : "a",
                 family ? here.family : vendor ? here.vendor : device->device_type);
    if (model) return units ? 1 : 2;
    return family ? SAME_FAMILY : vendor ? SAME_VENDOR : type ? SAME_TYPE : FARTHEST;
}

/* A context among those of a package: the nearer the earlier it is tried. apart: how far compute units are. */
typedef struct judged {
    int far;
    double apart;
    bool tried;
} judged;

static judged judge(const gputune_file *file, size_t place, const identity *device) {
    const identity *made_for = context_identity(file, place);
    char reason[REASON_BYTES];
    const double units = fmax((double)device->compute_units, 1) / fmax((double)made_for->compute_units, 1);
    const int last = context_computes(file, place) ? 0 : FARTHEST + 1; /* those that cannot run come last */
    return (judged){.far = last + distance(device, made_for, reason), .apart = fabs(log2(units))};
}

/* The nearest that was not tried, the first of equal ones. */
static size_t nearest(const judged *all, size_t count) {
    size_t best = count;
    for (size_t i = 0; i < count; i++) {
        if (all[i].tried) continue;
        const bool nearer = best == count || all[i].far < all[best].far ||
                            (all[i].far == all[best].far && all[i].apart < all[best].apart);
        if (nearer) best = i;
    }
    return best;
}

static void say_choice(const gputune_file *file, size_t place, verdict fit, const identity *device,
                       char choice[REASON_BYTES]) {
    char words[REASON_BYTES];
    const int far = distance(device, context_identity(file, place), words);
    const int length = snprintf(choice, REASON_BYTES, "context '%.100s', of %zu in the package: %s",
                                gputune_context_name(file, place), gputune_context_count(file),
                                fit == OPTIMAL ? "optimal" : far <= SAME_FAMILY ? "near" : "rebuilt");
    if (fit != OPTIMAL)
        snprintf(choice + length, REASON_BYTES - (size_t)length, ", distance %d of %d: %.200s", far, FARTHEST, words);
    cut_text(choice);
}

gputune_code choose_contexts(const gputune_file *file, const identity *device, const char *graph, size_t *place,
                             size_t *end, char choice[REASON_BYTES], gputune_error *error) {
    const size_t count = gputune_context_count(file);
    char told[GPUTUNE_MESSAGE_BYTES / 2] = "", reason[REASON_BYTES];
    judged all[MOST_JUDGED]; /* more has no package */
    *place = 0, *end = count;
    if (!*gputune_context_name(file, 0)) return GPUTUNE_OK;
    for (size_t i = 0; i < count; i++) all[i] = judge(file, i, device);
    for (size_t i = 0; i < count; i++) {
        const context *context;
        const size_t best = nearest(all, count);
        all[best].tried = true, *place = best, *end = best + 1;
        TRY(context_at(file, best, &context, error));
        const verdict fit = verdict_on(context, graph, device, reason);
        if (fit != UNSUPPORTED) return say_choice(file, best, fit, device, choice), GPUTUNE_OK;
        if (i < TOLD)
            snprintf(told + strlen(told), sizeof told - strlen(told), "; %.60s: %.100s",
                     gputune_context_name(file, best), reason);
    }
    return fail(error, GPUTUNE_WRONG_DEVICE, "none of %zu contexts runs on %s%s", count, device->name, told);
}
