/* A session's execution provider: its options, and what it compiles, which is loading graphs of contexts. */
#include "plugin.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#define RUN_PROFILE "gputune.perf_profile"
#define WORKLOAD "ep.dynamic.workload_type"
enum { LONGEST_NAME = 64 };

/* --- options ------------------------------------------------------------------------------------------------------ */

static const struct known {
    const char *name, *values; /* values: the words that are allowed; NULL: any text */
    size_t at;
} KNOWN[] = {
    {OPTION_PREFIX "perf_profile", NULL, offsetof(options, perf_profile)}, /* gputune_preset knows them */
    {OPTION_PREFIX "profiling_level", "off, basic, detailed", offsetof(options, profiling_level)},
    {OPTION_PREFIX "profiling_file_path", NULL, offsetof(options, profiling_file_path)},
    {OPTION_PREFIX "cache_compatibility_mode", "permissive, strict", offsetof(options, cache_compatibility_mode)},
    {OPTION_PREFIX "device", NULL, offsetof(options, device)},
    {OPTION_PREFIX "opencl_library", NULL, offsetof(options, opencl_library)},
    {"ep.context_enable", "0, 1", offsetof(options, context_enable)},
    {"ep.context_file_path", NULL, offsetof(options, context_file_path)},
    {"ep.share_ep_contexts", "0, 1", offsetof(options, share)},
    {"ep.stop_share_ep_contexts", "0, 1", offsetof(options, stop)},
};
enum { KNOWN_COUNT = sizeof KNOWN / sizeof *KNOWN };

/* Whether a word is one of several, which have ", " between them. */
static bool is_among(const char *word, const char *words) {
    const size_t length = strlen(word);
    for (; words; words = strstr(words, ", ") ? strstr(words, ", ") + 2 : NULL)
        if (!strncmp(words, word, length) && (!words[length] || words[length] == ',')) return length;
    return false;
}

/* How many letters to change, add or leave out make one word of the other. */
static size_t distance(const char *one, const char *other) {
    size_t row[LONGEST_NAME + 1];
    const size_t length = strlen(other) < LONGEST_NAME ? strlen(other) : LONGEST_NAME;
    for (size_t j = 0; j <= length; j++) row[j] = j;
    for (size_t i = 1; *one && i <= LONGEST_NAME; one++, i++) {
        size_t before = row[0]++;
        for (size_t j = 1; j <= length; j++) {
            size_t least = before + (*one != other[j - 1]);
            before = row[j];
            if (row[j] + 1 < least) least = row[j] + 1;
            if (row[j - 1] + 1 < least) least = row[j - 1] + 1;
            row[j] = least;
        }
    }
    return row[length];
}

static gputune_code unknown(const char *key, gputune_error *error) {
    const size_t front = strlen(OPTION_PREFIX);
    const char *nearest = NULL;
    char all[256] = "";
    for (size_t i = 0; i < KNOWN_COUNT && !strncmp(KNOWN[i].name, OPTION_PREFIX, front); i++) {
        const char *name = KNOWN[i].name + front;
        if (!nearest || distance(key, name) < distance(key, nearest)) nearest = name;
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? ", " : "", name);
    }
    const bool near = 2 * distance(key, nearest) < strlen(nearest);
    return fail(error, GPUTUNE_INVALID_ARGUMENT, "there is no option '%.80s'; %s %s", key,
                near ? "the nearest is" : "the options are", near ? nearest : all);
}

static gputune_code read_option(provider *provider, const char *key, const char *value, gputune_error *error) {
    const size_t front = strlen(OPTION_PREFIX);
    for (size_t i = 0; i < KNOWN_COUNT; i++) {
        const struct known *known = &KNOWN[i];
        if (strcmp(known->name, key)) continue;
        if (*value && known->values && !is_among(value, known->values))
            return fail(error, GPUTUNE_INVALID_ARGUMENT, "%s is '%.80s', expected one of %s",
                        key + (strncmp(key, OPTION_PREFIX, front) ? 0 : front), value, known->values);
        const char *copy = pool_text(&provider->pool, value, strlen(value));
        if (!copy) return NO_MEMORY;
        *(const char **)(void *)((char *)&provider->options + known->at) = copy;
        return GPUTUNE_OK;
    }
    return strncmp(key, OPTION_PREFIX, front) ? GPUTUNE_OK : unknown(key + front, error);
}

static gputune_code read_options(provider *provider, const ort_session_options *given, gputune_error *error) {
    const ort_api *api = provider->factory->api;
    options *options = &provider->options;
    const char *const *keys, *const *values;
    gputune_code code = GPUTUNE_OK;
    ort_pairs *pairs;
    size_t count;
    gputune_perf_settings settings;
    for (size_t i = 0; i < KNOWN_COUNT; i++) *(const char **)(void *)((char *)options + KNOWN[i].at) = "";
    ORT(provider->factory, GetSessionOptionsConfigEntries(given, &pairs));
    api->GetKeyValuePairs(pairs, &keys, &values, &count);
    for (size_t i = 0; i < count && !code; i++) code = read_option(provider, keys[i], values[i], error);
    api->ReleaseKeyValuePairs(pairs);
    if (!code && *options->perf_profile) code = gputune_preset(options->perf_profile, &settings, error);
    const bool profiles = *options->profiling_level && strcmp(options->profiling_level, "off");
    if (!code && profiles != (bool)*options->profiling_file_path)
        code = fail(error, GPUTUNE_INVALID_ARGUMENT, "profiling_level and profiling_file_path need each other");
    return code;
}

/* --- compiling ---------------------------------------------------------------------------------------------------- */

static const char *name_of(const ort_ep *table) { return (void)table, EP_NAME; }

static ort_status *capability(ort_ep *table, const ort_graph *graph, ort_support *support) {
    provider *provider = (struct provider *)table;
    gputune_error error = {GPUTUNE_OK, ""};
    claim_nodes(provider, graph, support, &error);
    return status_of(provider->factory, &error);
}

static gputune_code open_profile(provider *provider, gputune_error *error) {
    const options *options = &provider->options;
    if (provider->profile || !*options->profiling_file_path) return GPUTUNE_OK;
    return gputune_open_profile(provider->device->device, options->profiling_file_path,
                                strcmp(options->profiling_level, "basic") ? GPUTUNE_DETAILED : GPUTUNE_BASIC,
                                &provider->profile, error);
}

/* Arenas for all graphs of these files, which graphs of this sharing have from now on. small: others, if there are. */
static gputune_code add_group(provider *provider, const gputune_file *const *files, size_t count,
                              const gputune_group *small, gputune_error *error) {
    sharing *sharing = provider->sharing;
    struct shared_group *made = calloc(1, sizeof *made);
    if (!made) return NO_MEMORY;
    const gputune_code code = gputune_open_group(provider->device->device, files, count, 1, &made->group, error);
    if (code) return free(made), code;
    made->device = provider->device;
    made->device->users++;
    made->next = sharing->groups;
    if (small)
        say(provider->factory, provider->logger, LEVEL_WARNING, "the shared arenas have %zu bytes, too few for this "
            "session: it gets %zu bytes more; create the session that needs most first", gputune_group_bytes(small),
            gputune_group_bytes(made->group));
    sharing->groups = made;
    return GPUTUNE_OK;
}

/* Loads a graph in arenas that are there. Where they are too small, others are added, which are left as they are. */
static gputune_code load_shared(provider *provider, const claimed *claimed, const gputune_file *const *files,
                                size_t count, segment **made, gputune_error *error) {
    sharing *sharing = provider->sharing;
    const gputune_group *small = NULL;
    for (bool added = false;; added = true) {
        for (const struct shared_group *each = sharing->groups; each; each = each->next) {
            if (each->device != provider->device) continue;
            const gputune_code code = load_segment(provider, claimed, each->group, made, error);
            if (code == GPUTUNE_ARENA_TOO_SMALL && !added) {
                small = each->group;
                continue;
            }
            if (!code && sharing->is_public)
                say(provider->factory, provider->logger, LEVEL_INFO, "graph '%s' runs in arenas of %zu bytes, which "
                    "%zu sessions share", gputune_info((*made)->graph)->name, gputune_group_bytes(each->group),
                    sharing->owners);
            return code;
        }
        TRY(add_group(provider, files, count, small, error));
    }
}

static gputune_code compile_all(provider *provider, const ort_graph **graphs, const ort_node **fused, size_t count,
                                ort_compute **computes, gputune_error *error) {
    const ort_node *nodes[count + 1];
    claimed *found[count + 1];
    const gputune_file *files[count + 1];
    if (provider->wrong.code) return fail(error, provider->wrong.code, "%s", provider->wrong.message);
    if (count && !strcmp(provider->options.context_enable, "1"))
        return fail(error, GPUTUNE_INVALID_ARGUMENT, "ep.context_enable is 1, but the model's EPContext nodes are "
                    "compiled already");
    for (size_t i = 0; i < count; i++) {
        TRY(find_claimed(provider, graphs[i], &nodes[i], &found[i], error));
        files[i] = found[i]->file;
    }
    if (count && !provider->device)
        TRY(take_device(provider->factory, &provider->options, files[0], &provider->device, error));
    for (size_t i = 0; i < count; i++) {
        gputune_error wrong = {GPUTUNE_OK, ""};
        segment *made = NULL;
        TRY(open_profile(provider, error));
        gputune_code code = count > 1 || provider->sharing->is_public
                                ? load_shared(provider, found[i], files, count, &made, &wrong)
                                : load_segment(provider, found[i], NULL, &made, &wrong);
        if (!code) code = connect_segment(made, nodes[i], fused[i], &wrong);
        if (!code) say_warnings(made);
        if (code && made) close_segment(made);
        if (code) return fail(error, code, "EPContext node '%.80s': %s", found[i]->name, wrong.message);
        made->next = provider->segments;
        provider->segments = made;
        computes[i] = &made->table;
    }
    return GPUTUNE_OK;
}

static ort_status *compile(ort_ep *table, const ort_graph **graphs, const ort_node **fused, size_t count,
                           ort_compute **computes, ort_node **ep_contexts) {
    provider *provider = (struct provider *)table;
    gputune_error error = {GPUTUNE_OK, ""};
    (void)ep_contexts; /* nothing is written */
    mutex_lock(&provider->factory->lock);
    compile_all(provider, graphs, fused, count, computes, &error);
    forget_claims(provider);
    close_unused(provider->factory, provider->sharing); /* what was opened for nodes that did not load */
    mutex_unlock(&provider->factory->lock);
    return status_of(provider->factory, &error);
}

static void release_computes(ort_ep *table, ort_compute **computes, size_t count) {
    provider *provider = (struct provider *)table;
    mutex_lock(&provider->factory->lock);
    for (size_t i = 0; i < count; i++) {
        segment **at = &provider->segments;
        while (*at && &(*at)->table != computes[i]) at = &(*at)->next;
        segment *const released = *at;
        if (!released) continue;
        *at = released->next;
        close_segment(released);
    }
    close_unused(provider->factory, provider->sharing);
    mutex_unlock(&provider->factory->lock);
}

static const char *compatibility(ort_ep *table, const ort_graph *graph) {
    provider *provider = (struct provider *)table;
    const opened *device = provider->device ? provider->device : provider->factory->first;
    (void)graph;
    if (!provider->compatibility) provider->compatibility = compatibility_of(&device->device->identity);
    return provider->compatibility ? provider->compatibility : "";
}

/* --- clocks and power --------------------------------------------------------------------------------------------- */

/* Has all graphs vote for what is wanted now: the newest run that wants something, the workload, or the session. Votes
 * are for the device, so runs at the same time share them. The provider's lock is held. */
static gputune_code vote(const provider *provider, gputune_error *error) {
    const char *preset = provider->overriding ? provider->override
                         : provider->efficient ? "power_saver" : provider->options.perf_profile;
    for (const segment *each = provider->segments; each; each = each->next)
        TRY(gputune_set_perf_profile(each->graph, *preset ? preset : NULL, error));
    return GPUTUNE_OK;
}

static ort_status *set_dynamic(ort_ep *table, const char *const *keys, const char *const *values, size_t count) {
    provider *provider = (struct provider *)table;
    gputune_error error = {GPUTUNE_OK, ""};
    for (size_t i = 0; i < count && !error.code; i++) {
        const bool known = !strcmp(keys[i], WORKLOAD), efficient = !strcmp(values[i], "Efficient");
        if (!known)
            fail(&error, GPUTUNE_INVALID_ARGUMENT, "there is no dynamic option '%.80s', only " WORKLOAD, keys[i]);
        else if (!efficient && strcmp(values[i], "Default"))
            fail(&error, GPUTUNE_INVALID_ARGUMENT, WORKLOAD " is '%.80s', expected one of Default, Efficient",
                 values[i]);
        if (error.code) break;
        mutex_lock(&provider->lock);
        provider->efficient = efficient;
        vote(provider, &error);
        mutex_unlock(&provider->lock);
    }
    return status_of(provider->factory, &error);
}

static ort_status *run_starts(ort_ep *table, const ort_run_options *options) {
    provider *provider = (struct provider *)table;
    const char *wanted = provider->factory->api->GetRunConfigEntry(options, RUN_PROFILE);
    gputune_error error = {GPUTUNE_OK, ""};
    gputune_perf_settings settings;
    if (!wanted) return NULL;
    if (!gputune_preset(wanted, &settings, &error)) {
        mutex_lock(&provider->lock);
        snprintf(provider->override, sizeof provider->override, "%s", wanted);
        provider->overriding++;
        if (vote(provider, &error)) provider->overriding--; /* onnxruntime does not end such a run */
        mutex_unlock(&provider->lock);
    }
    return status_of(provider->factory, &error);
}

static ort_status *run_ends(ort_ep *table, const ort_run_options *options, bool waits) {
    provider *provider = (struct provider *)table;
    gputune_error error = {GPUTUNE_OK, ""};
    (void)waits;
    if (!provider->factory->api->GetRunConfigEntry(options, RUN_PROFILE)) return NULL;
    mutex_lock(&provider->lock);
    if (!--provider->overriding) vote(provider, &error);
    mutex_unlock(&provider->lock);
    return status_of(provider->factory, &error);
}

/* --- making and releasing ----------------------------------------------------------------------------------------- */

static const ort_ep PROVIDER = {ORT_VERSION, name_of, capability, compile, release_computes, {NULL}, set_dynamic,
                                run_starts, run_ends, {NULL}, compatibility};

ort_status *create_provider(ort_factory *table, const ort_hardware *const *hardware, const ort_pairs *const *about,
                            size_t count, const ort_session_options *given, const ort_logger *logger, ort_ep **made) {
    factory *factory = (struct factory *)table;
    gputune_error error = {GPUTUNE_OK, ""};
    provider *provider = calloc(1, sizeof *provider);
    (void)hardware, (void)about, (void)count;
    *made = NULL;
    if (!provider || !mutex_open(&provider->lock))
        return free(provider), factory->api->CreateStatus(ORT_FAIL, "gputune: no memory");
    provider->table = PROVIDER;
    provider->factory = factory;
    provider->logger = logger;
    /* Said when a session needs the provider: an error here makes older versions for Python try without it, and say
     * nothing but that no provider is left. */
    if (read_options(provider, given, &provider->wrong))
        say(factory, logger, LEVEL_ERROR, "%s", provider->wrong.message);
    mutex_lock(&factory->lock);
    join_sharing(factory, &provider->options, &provider->sharing, &error);
    mutex_unlock(&factory->lock);
    if (error.code) release_provider(table, &provider->table);
    else *made = &provider->table;
    return status_of(factory, &error);
}

void release_provider(ort_factory *table, ort_ep *released) {
    factory *factory = (struct factory *)table;
    provider *provider = (struct provider *)released;
    gputune_error error;
    if (gputune_close_profile(provider->profile, &error))
        say(factory, provider->logger, LEVEL_WARNING, "the profile is not complete: %s", error.message);
    forget_claims(provider);
    mutex_lock(&factory->lock);
    leave_sharing(factory, provider->sharing);
    leave_device(factory, provider->device);
    mutex_unlock(&factory->lock);
    mutex_close(&provider->lock);
    free(provider->compatibility);
    pool_free(&provider->pool);
    free(provider);
}
