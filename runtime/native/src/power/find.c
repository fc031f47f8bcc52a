/* What steers a device: the files of cpufreq, devfreq, kgsl, i915, xe, amdgpu and PM QoS, and NVIDIA's library. */
#include "power.h"

#include <dirent.h>
#include <limits.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BIT(place) ((uint64_t)1 << (place))
#define CLOCKS (BIT(CORE) | BIT(HELD) | BIT(MODE))

static bool matches(const char *text, const char *pattern) {
    regex_t regex;
    if (regcomp(&regex, pattern, REG_EXTENDED | REG_ICASE | REG_NOSUB)) return false;
    const bool found = regexec(&regex, text, 0, NULL, 0) == 0;
    regfree(&regex);
    return found;
}

static const char *below(steering *steering, const char *folder, const char *name) {
    char path[PATH_BYTES];
    const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    const char *kept = length < (int)sizeof path ? pool_text(&steering->pool, path, (size_t)length) : NULL;
    return kept ? kept : "";
}

static bool is_there(const char *path) { return access(path, F_OK) == 0; }

/* The last actuator of a kind, if the controls of a folder go to one that is there. */
static actuator *actuator_of(steering *steering, const char *kind, uint64_t honoured) {
    actuator *found = NULL;
    for (actuator *each = steering->actuators; each; each = each->next)
        if (strcmp(each->kind, kind) == 0) found = each;
    if (!found) return add_actuator(steering, kind, honoured);
    found->honoured |= honoured;
    return found;
}

/* Takes an actuator back that no control has come to. */
static void drop_empty(steering *steering, actuator **place) {
    bool used = false;
    for (const file *each = steering->files; each; each = each->next) used |= each->actuator == *place;
    if (used || !*place) return;
    steering->actuator_end = place;
    *place = NULL;
}

/* Adds the frequencies that a file lists. */
static void list_steps(steering *steering, control *range, const char *folder, const char *name) {
    char text[LIST_BYTES];
    content_of(below(steering, folder, name), text, sizeof text);
    for (char *each = text, *end; range->step_count < MOST_FREQUENCIES; each = end) {
        const int64_t step = strtoll(each, &end, 10);
        if (end == each) break;
        add_step(range, step);
    }
}

/* How a driver calls the files of a clock. */
struct names {
    const char *governor, *governors, *upper, *lower, *now;
};

/* Adds the governor and the range of a clock. */
static bool add_clock(steering *steering, control range, actuator *actuator, const char *folder,
                      const struct names *names) {
    char words[LIST_BYTES];
    if (!range.step_count || !is_there(below(steering, folder, names->lower))) return false;
    const char *governor = below(steering, folder, names->governor), *now = below(steering, folder, names->now);
    content_of(below(steering, folder, names->governors), words, sizeof words);
    control made = {.kind = GOVERNOR, .corners = range.corners};
    made.word = pool_text(&steering->pool, words, strlen(words));
    if (made.word && content_of(governor, words, sizeof words) && !same_words(words, ""))
        add_control(steering, made, actuator, governor, NULL);
    range.now_path = is_there(now) ? now : NULL;
    return add_control(steering, range, actuator, below(steering, folder, names->upper),
                       below(steering, folder, names->lower)) != NULL;
}

static void add_cpufreq(steering *steering, const char *folder) {
    static const struct names NAMES = {"scaling_governor", "scaling_available_governors", "scaling_max_freq",
                                       "scaling_min_freq", "scaling_cur_freq"};
    control range = {.kind = RANGE, .corners = CORE, .unit_hz = 1e3, .label = strrchr(folder, '/') + 1};
    list_steps(steering, &range, folder, "scaling_available_frequencies");
    if ((range.continuous = !range.step_count)) {
        list_steps(steering, &range, folder, "cpuinfo_min_freq");
        list_steps(steering, &range, folder, "cpuinfo_max_freq");
    }
    if (!range.step_count || !is_there(below(steering, folder, NAMES.lower))) return;
    actuator *actuator = actuator_of(steering, "cpufreq", CLOCKS | BIT(HIGH));
    /* The governor `performance` refuses any other preference, so it comes first. */
    if (actuator && add_clock(steering, range, actuator, folder, &NAMES))
        add_control(steering, (control){.kind = PREFERENCE, .corners = CORE}, actuator,
                    below(steering, folder, "energy_performance_preference"), NULL);
}

/* What a device of the framework is, by its name, such as 13000000.mali, soc:qcom,gpubw or dmc. */
static void add_devfreq(steering *steering, const char *folder) {
    static const struct names NAMES = {"governor", "available_governors", "max_freq", "min_freq", "cur_freq"};
    const char *name = strrchr(folder, '/') + 1;
    const bool bus = matches(name, "dmc|ddr|mem|mif|emi|noc|bimc|(^|[-_.:])bus|bw(mon)?($|[-_.:0-9])");
    control range = {.kind = RANGE, .corners = bus ? BUS : CORE, .unit_hz = 1, .label = name};
    if (strstr(name, "kgsl-3d0")) return; /* kgsl's own GPU */
    if (!bus && !matches(name, "gpu|mali|bifrost|midgard|panfrost|panthor|adreno|kgsl|g3d|powervr|pvr")) return;
    list_steps(steering, &range, folder, "available_frequencies");
    if (!range.step_count || !is_there(below(steering, folder, NAMES.lower))) return;
    add_clock(steering, range, actuator_of(steering, "devfreq", bus ? BIT(BUS) : CLOCKS), folder, &NAMES);
}

/* Power levels count downwards from 0, the fastest. The rail comes before the clock that it feeds. */
static void add_kgsl(steering *steering, const char *folder) {
    static const struct {
        const char *name, *word;
        enum kind kind;
    } SWITCHES[] = {{"force_rail_on", "1", AWAKE}, {"force_clk_on", "1", AWAKE}, {"force_no_nap", "1", AWAKE},
                    {"idle_timer", "10000", AWAKE}, {"force_bus_on", "1", BUS_ON}};
#define GOVERNORS "devfreq/governor", "devfreq/available_governors"
    static const struct names LEVELS = {GOVERNORS, "max_pwrlevel", "min_pwrlevel", "gpuclk"},
                              FREQUENCIES = {GOVERNORS, "devfreq/max_freq", "devfreq/min_freq", "gpuclk"};
    control range = {.kind = RANGE, .corners = CORE, .unit_hz = 1, .label = "core"}, own = range;
    char count[16], levels[CONTENT_BYTES];
    actuator **place = steering->actuator_end;
    actuator *actuator = add_actuator(steering, "kgsl", CLOCKS | BIT(BUS) | BIT(LATENCY_US));
    list_steps(steering, &range, folder, "gpu_available_frequencies");
    list_steps(steering, &own, folder, "devfreq/available_frequencies");
    snprintf(count, sizeof count, "%zu", range.step_count);
    content_of(below(steering, folder, "num_pwrlevels"), levels, sizeof levels);
    range.counts_down = same_words(levels, count);
    if (!range.counts_down || !add_clock(steering, range, actuator, folder, &LEVELS)) {
        range.counts_down = false;
        add_clock(steering, own.step_count ? own : range, actuator, folder, &FREQUENCIES);
    }
    for (size_t i = 0; i < sizeof SWITCHES / sizeof *SWITCHES; i++)
        add_control(steering, (control){.kind = SWITCHES[i].kind, .word = SWITCHES[i].word}, actuator,
                    below(steering, folder, SWITCHES[i].name), NULL);
    drop_empty(steering, place);
}

/* How a driver of Intel's calls the files of a GT, all in MHz. */
struct gt_names {
    const char *upper, *lower, *now, *lowest, *highest, *boost;
};

/* Adds the range of one GT, and its boost frequency: that would pass an upper end. */
static void add_gt(steering *steering, actuator *actuator, const char *label, const char *folder,
                   const struct gt_names *names) {
    const struct names files = {"", "", names->upper, names->lower, names->now};
    control range = {.kind = RANGE, .corners = CORE, .unit_hz = 1e6, .continuous = true, .label = label};
    list_steps(steering, &range, folder, names->lowest);
    list_steps(steering, &range, folder, names->highest);
    if (!add_clock(steering, range, actuator, folder, &files) || !names->boost) return;
    range.kind = BOOST;
    range.label = NULL;
    add_control(steering, range, actuator, below(steering, folder, names->boost), NULL);
}

/* Calls a function for each folder of a folder whose name matches, in their order. */
static void each_folder(steering *steering, const char *folder, const char *pattern,
                        void (*visit)(struct steering *, const char *)) {
    struct dirent **found;
    for (int i = 0, count = scandir(folder, &found, NULL, alphasort); i < count; i++) {
        if (matches(found[i]->d_name, pattern)) visit(steering, below(steering, folder, found[i]->d_name));
        free(found[i]);
        if (i == count - 1) free(found);
    }
}

static void add_rps(steering *steering, const char *folder) {
    static const struct gt_names NAMES = {"rps_max_freq_mhz", "rps_min_freq_mhz", "rps_act_freq_mhz",
                                          "rps_RPn_freq_mhz", "rps_RP0_freq_mhz", "rps_boost_freq_mhz"};
    add_gt(steering, actuator_of(steering, "i915", CLOCKS), strrchr(folder, '/') + 1, folder, &NAMES);
}

static void add_xe_gt(steering *steering, const char *folder) {
    static const struct gt_names NAMES = {"max_freq", "min_freq", "act_freq", "rpn_freq", "rp0_freq", NULL};
    const char *gt = strrchr(folder, '/'), *tile = gt - 1;
    char label[64];
    while (tile > folder && tile[-1] != '/') tile--;
    snprintf(label, sizeof label, "%.*s_%s", (int)(gt - tile), tile, gt + 1);
    add_gt(steering, actuator_of(steering, "xe", CLOCKS), pool_text(&steering->pool, label, strlen(label)),
           below(steering, folder, "freq0"), &NAMES);
}

static void add_xe_tile(steering *steering, const char *folder) {
    each_folder(steering, folder, "^gt[0-9]", add_xe_gt);
}

/* Adds a card: by its GTs, else by the files of older kernels, which stand for all GTs. */
static void add_i915(steering *steering, const char *folder) {
    static const struct gt_names OLD = {"gt_max_freq_mhz", "gt_min_freq_mhz", "gt_act_freq_mhz",
                                        "gt_RPn_freq_mhz", "gt_RP0_freq_mhz", "gt_boost_freq_mhz"};
    actuator **place = steering->actuator_end, *actuator = add_actuator(steering, "i915", CLOCKS);
    const size_t before = steering->file_count;
    each_folder(steering, below(steering, folder, "gt"), "^gt[0-9]", add_rps);
    if (steering->file_count == before) add_gt(steering, actuator, "core", folder, &OLD);
    drop_empty(steering, place);
}

static void add_xe(steering *steering, const char *folder) {
    actuator **place = steering->actuator_end;
    add_actuator(steering, "xe", CLOCKS);
    each_folder(steering, below(steering, folder, "device"), "^tile[0-9]", add_xe_tile);
    drop_empty(steering, place);
}

/* Reads the levels of a clock; they are refused in any state but `manual`. */
static control levels_of(steering *steering, size_t corners, const char *path) {
    char text[LIST_BYTES];
    int number;
    int64_t mhz;
    bool in_use;
    control made = {.kind = LEVEL, .corners = corners, .unit_hz = 1e6, .label = corners == CORE ? "core" : "bus"};
    content_of(path, text, sizeof text);
    for (const char *at = text; next_level(&at, &number, &mhz, &in_use);) add_step(&made, mhz);
    made.word = pool_text(&steering->pool, text, strlen(text));
    made.now_path = path;
    if (!made.word) made.step_count = 0;
    return made;
}

/* Adds a card by the levels of its clocks, else by the names of forced states. */
static void add_amdgpu(steering *steering, const char *card) {
    const char *mode = below(steering, card, "device/power_dpm_force_performance_level");
    const char *const paths[2] = {below(steering, card, "device/pp_dpm_sclk"),
                                  below(steering, card, "device/pp_dpm_mclk")};
    if (!is_there(mode)) return;
    control clocks[2] = {levels_of(steering, CORE, paths[0]), levels_of(steering, BUS, paths[1])};
    const bool core = clocks[0].step_count, bus = clocks[1].step_count;
    control state = {.kind = core || bus ? MANUAL : FORCED, .corners = CORE};
    state.domains = (core ? BIT(CORE) : 0) | (bus ? BIT(BUS) : 0);
    actuator *actuator = add_actuator(steering, "amdgpu", CLOCKS | (bus ? BIT(BUS) : 0));
    const control *added = add_control(steering, state, actuator, mode, NULL);
    for (int i = 0; added && i < 2; i++) {
        clocks[i].mode = added->files[0];
        const control *clock = add_control(steering, clocks[i], actuator, paths[i], NULL);
        if (clock) clock->files[0]->write_only = clock->files[0]->known = true;
    }
}

static const struct { /* in the order of keys */
    unsigned kind;
    const char *gpus, *folder, *names; /* gpus: their vendors and names; NULL: it is of no vendor */
    void (*add)(struct steering *, const char *);
} KINDS[] = {
    {A_AMDGPU, "(^|[^a-z0-9_])amd([^a-z0-9_]|$)|advanced micro|radeon|gfx[0-9]", "sys/class/drm", "^card[0-9]",
     add_amdgpu},
    {AN_INTEL, "intel", "sys/class/drm", "^card[0-9]", add_i915},
    {AN_INTEL, NULL, "sys/class/drm", "^card[0-9]", add_xe},
    {A_KGSL, "qualcomm|adreno", "sys/class/kgsl", "^kgsl-3d0$", add_kgsl},
    {AN_NVML, "nvidia", NULL, NULL, NULL},
    {A_DEVFREQ, NULL, "sys/class/devfreq", "^[^.]", add_devfreq},
    {A_CPUFREQ, NULL, "sys/devices/system/cpu/cpufreq", "^policy[0-9]", add_cpufreq},
};
enum { KIND_COUNT = sizeof KINDS / sizeof *KINDS };

unsigned kinds_of(const char *device_type, const char *vendor, const char *name) {
    char called[512];
    if (!device_type) return ALL_KINDS;
    if (strcmp(device_type, "cpu") == 0) return A_CPUFREQ;
    snprintf(called, sizeof called, "%s %s", vendor ? vendor : "", name ? name : "");
    for (size_t i = 0; i < KIND_COUNT; i++)
        if (KINDS[i].gpus && matches(called, KINDS[i].gpus))
            return KINDS[i].kind | (KINDS[i].kind == A_KGSL ? A_DEVFREQ : 0u);
    return A_DEVFREQ;
}

/* Names actuators, of which several of a kind have numbers, and the rows of their clocks. */
static void name_all(steering *steering) {
    static const char *const ROWS[CLOCK_ROWS] = {"_min_hz", "_max_hz", "_hz"};
    for (actuator *each = steering->actuators; each; each = each->next) {
        size_t before = 0, all = 0;
        bool found = false;
        for (const actuator *other = steering->actuators; other; other = other->next) {
            const bool same = strcmp(other->kind, each->kind) == 0;
            found |= other == each;
            all += same;
            before += same && !found;
        }
        if (all > 1) snprintf(each->name, sizeof each->name, "%s_%zu", each->kind, before);
        else snprintf(each->name, sizeof each->name, "%s", each->kind);
        const size_t length = strlen(steering->key);
        snprintf(steering->key + length, sizeof steering->key - length, "%s%s", length ? "+" : "", each->name);
    }
    for (control *each = steering->controls; each; each = each->next)
        for (int row = 0; each->label && row < CLOCK_ROWS; row++) {
            char text[128];
            const char *name = each->files[0]->actuator->name;
            snprintf(text, sizeof text, "%s.%.90s%s", name, each->label, ROWS[row]);
            each->names[row] = pool_text(&steering->pool, text, strlen(text));
        }
}

void steering_find(steering *steering, unsigned kinds, const char *root) {
    char whole[PATH_MAX];
    const char *at = !root || !strcmp(root, "/") ? "" : realpath(root, whole) ? whole : root;
    const char *latency = below(steering, at, "dev/cpu_dma_latency");
    steering->actuator_end = &steering->actuators;
    steering->control_end = &steering->controls;
    steering->end = &steering->files;
    steering->latency_file = -1;
    steering->latency_us = NO_LATENCY;
    steering->latency = (actuator){.name = "cpu_latency", .honoured = BIT(LATENCY_US)};
    for (size_t i = 0; i < KIND_COUNT; i++) {
        if (!(kinds & KINDS[i].kind)) continue;
        if (KINDS[i].add) each_folder(steering, below(steering, at, KINDS[i].folder), KINDS[i].names, KINDS[i].add);
        else if (!*at) add_nvml(steering);
    }
    name_all(steering);
    if (is_there(latency)) steering->latency_path = latency;
    const size_t length = strlen(steering->key);
    const char *last = steering->latency_path ? "cpu_latency" : length ? "" : "none";
    snprintf(steering->key + length, sizeof steering->key - length, "%s%s%s%s", length && *last ? "+" : "", last,
             *at ? " " : "", at);
    steering->plan = pool_take(&steering->pool, steering->file_count + 1, sizeof *steering->plan);
}
