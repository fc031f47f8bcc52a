/* Clocks and sleep by the kernel's files: cpufreq, devfreq, kgsl and PM QoS. They get the same contents as by
 * runtime/power/actuators/, which name the sources. */
#include "power.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { UPPER, LOWER, MOST_FREQUENCIES = 256, LIST_BYTES = 4096, AWAKE_US = 1000 };

typedef struct control {
    struct control *next;
    enum kind { RANGE, GOVERNOR, PREFERENCE, AWAKE, BUS_ON } kind;
    size_t corners;                 /* BUS or CORE */
    const char *word;               /* of a switch that is on; of a governor those that its driver has */
    int64_t steps[MOST_FREQUENCIES]; /* of a range, ascending */
    size_t step_count;
    bool counts_down; /* its files have levels, of which 0 is the fastest */
    bool continuous;  /* any frequency between the ends will do */
    file *files[2];   /* one, or the two ends of a range */
} control;

bool content_of(const char *path, char *content, size_t size) {
    const int opened = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t length = opened < 0 ? -1 : read(opened, content, size);
    const bool good = length >= 0 && (size_t)length < size;
    if (opened >= 0) close(opened);
    content[good ? length : 0] = 0;
    return good;
}

static bool matches(const char *text, const char *pattern) {
    regex_t regex;
    if (regcomp(&regex, pattern, REG_EXTENDED | REG_ICASE | REG_NOSUB)) return false;
    const bool found = regexec(&regex, text, 0, NULL, 0) == 0;
    regfree(&regex);
    return found;
}

/* Whether a file contains a text, but for blanks behind them. */
static bool contains(const char *path, const char *text) {
    char now[CONTENT_BYTES];
    if (!content_of(path, now, sizeof now)) return false;
    size_t i = strlen(now), j = strlen(text);
    while (i && now[i - 1] <= ' ') i--;
    while (j && text[j - 1] <= ' ') j--;
    return i == j && memcmp(now, text, i) == 0;
}

/* --- what votes mean --- */

static bool is_held(const control *control, const vote *vote) {
    return vote->at[HELD] && vote->at[control->corners + 1];
}

static int32_t cap_of(const vote *vote) {
    return vote->at[MODE] == SAVER ? SVS2 : vote->at[MODE] == SAVER_AGGRESSIVE ? CORNER_MIN : 0;
}

/* The frequency of a corner: the nearest, the higher one of two, or the nearest that is not below. */
static int64_t frequency_at(const control *control, int32_t corner, bool at_least) {
    static const double SHARES[] = {0, 0, 0.15, 0.3, 0.4, 0.55, 0.65, 0.85, 0.95, 1};
    const int64_t *steps = control->steps, lowest = steps[0], highest = steps[control->step_count - 1];
    const double wanted = (double)lowest + SHARES[corner] * (double)(highest - lowest);
    if (control->continuous) return (int64_t)(at_least ? ceil(wanted - 1e-3) : rint(wanted));
    size_t found = 0;
    for (size_t i = 1; i < control->step_count; i++) {
        const double off = fabs((double)steps[i] - wanted), least = fabs((double)steps[found] - wanted);
        if (at_least ? (double)steps[i - 1] < wanted - 1e-3 : off <= least + 1e-3) found = i;
    }
    return steps[found];
}

/* Both ends of a range, -1 for one without a vote; the lower end never above the upper one. */
static void voted_ends(const control *control, const vote *vote, int64_t ends[2]) {
    const int32_t *corners = vote->at + control->corners, cap = cap_of(vote);
    int32_t least = corners[0], most = corners[2];
    if (is_held(control, vote)) least = most = corners[1];
    else if (vote->at[MODE] == ONLY_UP) least = least > corners[1] ? least : corners[1];
    else if (vote->at[MODE] == PERFORMANCE && !least) least = TURBO;
    else if (cap && !most) most = cap > least ? cap : least;
    ends[LOWER] = least ? frequency_at(control, least, true) : -1;
    ends[UPPER] = most ? frequency_at(control, most, false) : -1;
    if (most && ends[UPPER] < ends[LOWER]) ends[UPPER] = ends[LOWER];
}

/* A frequency as a file has it, and the other way round; -1 for what means nothing. */
static int64_t level_of(const control *control, int64_t step) {
    size_t place = 0;
    while (control->counts_down && place < control->step_count && control->steps[place] != step) place++;
    return control->counts_down ? (int64_t)(control->step_count - 1 - place) : step;
}

static int64_t step_of(const control *control, const char *content) {
    char *end;
    const int64_t level = strtoll(content, &end, 10), count = (int64_t)control->step_count;
    if (end == content || *end > ' ' || level < 0 || (control->counts_down && level >= count)) return -1;
    return control->counts_down ? control->steps[count - 1 - level] : level;
}

/* The content for a switch; NULL for what it was before. */
static const char *chosen(const control *control, const vote *vote) {
    const bool held = is_held(control, vote), caps = cap_of(vote) && !vote->at[control->corners + 2];
    switch (control->kind) {
    case AWAKE: return vote->at[LATENCY_US] <= AWAKE_US ? control->word : NULL;
    case BUS_ON: return vote->at[BUS] >= NOM || vote->at[BUS + 1] >= NOM ? control->word : NULL;
    case PREFERENCE: return vote->at[HIGH] || held ? "performance" : NULL;
    default: break;
    }
    if (held || vote->at[MODE] == PERFORMANCE)
        return matches(control->word, "(^|[[:space:]])performance([[:space:]]|$)") ? "performance" : NULL;
    return caps && matches(control->word, "(^|[[:space:]])powersave([[:space:]]|$)") ? "powersave" : NULL;
}

/* What the files of a control shall contain; of one that stays as it is nothing. */
static void choose(const control *control, const vote *vote) {
    int64_t voted[2] = {-1, -1};
    const char *word = control->kind == RANGE ? NULL : chosen(control, vote);
    if (control->kind == RANGE) voted_ends(control, vote, voted);
    for (int end = UPPER; end <= LOWER && control->files[end]; end++) {
        file *file = control->files[end];
        const int64_t before = file->known && control->kind == RANGE ? step_of(control, file->original) : -1;
        int64_t step = voted[end], other = voted[1 - end];
        if (step < 0 && before >= 0 && other >= 0 && (end == UPPER ? other > before : other < before))
            step = other; /* the other end's vote lies beyond what it was */
        if (step >= 0 && step != before)
            snprintf(file->wanted, CONTENT_BYTES, "%lld", (long long)level_of(control, step));
        else
            strcpy(file->wanted, word ? word : file->original); /* as it was, exactly */
        if (!file->known) *file->wanted = 0;
    }
}

/* --- writing --- */

static int written(const file *file) {
    const int opened = open(file->path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    const ssize_t length = opened < 0 ? -1 : write(opened, file->wanted, strlen(file->wanted));
    const int error = length < 0 ? errno : (size_t)length == strlen(file->wanted) ? 0 : EIO;
    if (opened >= 0) close(opened);
    return error;
}

static void hold_latency(steering *steering, int32_t latency_us) {
    if (!steering->latency_path || latency_us == steering->latency_us) return;
    if (latency_us == NO_LATENCY) { /* a fork that has the descriptor, too, would hold the request otherwise */
        const int32_t any_us = 2000000000;
        (void)!pwrite(steering->latency_file, &any_us, 4, 0);
        close(steering->latency_file);
        steering->latency_file = -1;
    } else if (steering->latency_file < 0) {
        steering->latency_file = open(steering->latency_path, O_RDWR | O_CLOEXEC);
    }
    if (latency_us != NO_LATENCY && pwrite(steering->latency_file, &latency_us, 4, 0) != 4)
        steering->tell(steering->user, "%s: %s; run as root", steering->latency_path, strerror(errno));
    else
        steering->latency_us = latency_us;
}

bool steering_apply(steering *steering, const vote *vote, int32_t latency_us) {
    bool refused = false;
    for (const control *each = steering->controls; each; each = each->next) choose(each, vote);
    /* Twice, because an end of a range is refused while the other one, which comes later, lies beyond it. */
    for (int turn = 0; turn < 2; turn++)
        for (file *each = steering->files; each; each = each->next) {
            const int error = *each->wanted && !contains(each->path, each->wanted) ? written(each) : 0;
            if (!turn || error == ENOENT || error == ENODEV) continue;
            if (error)
                steering->tell(steering->user, "%s: %s; run as root, or give the file to a group by a udev rule",
                               each->path, strerror(error));
            else if (*each->wanted && !contains(each->path, each->wanted))
                steering->tell(steering->user, "%s: the driver or another process limits it", each->path);
            refused |= error != 0;
        }
    hold_latency(steering, latency_us);
    return refused;
}

/* --- what there is --- */

static const char *below(steering *steering, const char *folder, const char *name) {
    char path[1024];
    const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    const char *kept = length < (int)sizeof path ? pool_text(&steering->pool, path, (size_t)length) : NULL;
    return kept ? kept : "";
}

/* Adds the frequencies that a file lists, ascending, each once. */
static void list_steps(steering *steering, control *range, const char *folder, const char *name) {
    char text[LIST_BYTES];
    content_of(below(steering, folder, name), text, sizeof text);
    for (char *each = text, *end; range->step_count < MOST_FREQUENCIES; each = end) {
        const int64_t step = strtoll(each, &end, 10);
        size_t place = 0;
        if (end == each) break;
        while (place < range->step_count && range->steps[place] < step) place++;
        if (step <= 0 || (place < range->step_count && range->steps[place] == step)) continue;
        memmove(range->steps + place + 1, range->steps + place, (range->step_count++ - place) * sizeof step);
        range->steps[place] = step;
    }
}

/* Adds a control with a file, of a range its upper end, and its lower end; nothing where they are not there. */
static bool add(steering *steering, control made, const char *folder, const char *name, const char *lower) {
    const char *const paths[2] = {below(steering, folder, name), lower ? below(steering, folder, lower) : NULL};
    control *added = pool_take(&steering->pool, 1, sizeof *added);
    if (!added || access(lower ? paths[LOWER] : paths[UPPER], F_OK) || (lower && !made.step_count)) return false;
    for (int end = UPPER; end <= LOWER && paths[end]; end++) {
        file *file = made.files[end] = *steering->end = pool_take(&steering->pool, 1, sizeof *file);
        if (!file) return false;
        file->path = paths[end];
        steering->end = &file->next;
    }
    made.next = steering->controls;
    *added = made;
    steering->controls = added;
    return true;
}

/* A clock's files: its governor and those there are, and both ends of its range. */
struct names {
    const char *governor, *governors, *upper, *lower;
};

/* Adds the governor and the range of a clock. */
static bool add_clock(steering *steering, const control *range, const char *folder, const struct names *names) {
    char words[LIST_BYTES];
    if (!range->step_count || access(below(steering, folder, names->lower), F_OK)) return false;
    const char *governor = below(steering, folder, names->governor);
    content_of(below(steering, folder, names->governors), words, sizeof words);
    control made = {.kind = GOVERNOR, .corners = range->corners};
    made.word = pool_text(&steering->pool, words, strlen(words));
    if (made.word && !contains(governor, "")) add(steering, made, folder, names->governor, NULL);
    return add(steering, *range, folder, names->upper, names->lower);
}

static void add_cpufreq(steering *steering, const char *folder) {
    static const struct names NAMES = {"scaling_governor", "scaling_available_governors", "scaling_max_freq",
                                       "scaling_min_freq"};
    control range = {.kind = RANGE, .corners = CORE};
    list_steps(steering, &range, folder, "scaling_available_frequencies");
    if ((range.continuous = !range.step_count)) {
        list_steps(steering, &range, folder, "cpuinfo_min_freq");
        list_steps(steering, &range, folder, "cpuinfo_max_freq");
    }
    if (add_clock(steering, &range, folder, &NAMES))
        add(steering, (control){.kind = PREFERENCE, .corners = CORE}, folder, "energy_performance_preference", NULL);
}

static void add_devfreq(steering *steering, const char *folder) {
    static const struct names NAMES = {"governor", "available_governors", "max_freq", "min_freq"};
    const char *name = strrchr(folder, '/') + 1;
    const bool bus = matches(name, "dmc|ddr|mem|mif|emi|noc|bimc|(^|[-_.:])bus|bw(mon)?($|[-_.:0-9])");
    control range = {.kind = RANGE, .corners = bus ? BUS : CORE};
    if (strstr(name, "kgsl-3d0")) return; /* kgsl's own GPU */
    if (!bus && !matches(name, "gpu|mali|bifrost|midgard|panfrost|panthor|adreno|kgsl|g3d|powervr|pvr")) return;
    list_steps(steering, &range, folder, "available_frequencies");
    add_clock(steering, &range, folder, &NAMES);
}

static void add_kgsl(steering *steering, const char *folder) {
    static const char *const AWAKE_ON[][2] = {
        {"force_rail_on", "1"}, {"force_clk_on", "1"}, {"force_no_nap", "1"}, {"idle_timer", "10000"}};
#define GOVERNORS "devfreq/governor", "devfreq/available_governors"
    static const struct names LEVELS = {GOVERNORS, "max_pwrlevel", "min_pwrlevel"},
                              FREQUENCIES = {GOVERNORS, "devfreq/max_freq", "devfreq/min_freq"};
    control range = {.kind = RANGE, .corners = CORE}, own = range;
    char count[16];
    list_steps(steering, &range, folder, "gpu_available_frequencies");
    list_steps(steering, &own, folder, "devfreq/available_frequencies");
    snprintf(count, sizeof count, "%zu", range.step_count);
    range.counts_down = contains(below(steering, folder, "num_pwrlevels"), count);
    if (!range.counts_down || !add_clock(steering, &range, folder, &LEVELS)) {
        range.counts_down = false;
        add_clock(steering, own.step_count ? &own : &range, folder, &FREQUENCIES);
    }
    for (size_t i = 0; i < sizeof AWAKE_ON / sizeof *AWAKE_ON; i++)
        add(steering, (control){.kind = AWAKE, .word = AWAKE_ON[i][1]}, folder, AWAKE_ON[i][0], NULL);
    add(steering, (control){.kind = BUS_ON, .word = "1"}, folder, "force_bus_on", NULL);
}

/* Adds the controls of a kind, which lie in some folders of a folder, and its name to the key. */
static void find(steering *steering, const char *kind, const char *folder, const char *pattern,
                 void (*add_folder)(struct steering *, const char *)) {
    const control *before = steering->controls;
    struct dirent **found;
    for (int i = 0, count = scandir(folder, &found, NULL, alphasort); i < count; i++) {
        if (matches(found[i]->d_name, pattern)) add_folder(steering, below(steering, folder, found[i]->d_name));
        free(found[i]);
        if (i == count - 1) free(found);
    }
    if (steering->controls != before) strcat(strcat(steering->key, *steering->key ? "+" : ""), kind);
}

void steering_find(steering *steering, const identity *device, const char *root) {
    char called[512];
    const char *at = strcmp(root, "/") ? root : "", *latency = below(steering, at, "dev/cpu_dma_latency");
    snprintf(called, sizeof called, "%s %s", device->vendor, device->name);
    steering->end = &steering->files;
    steering->latency_file = -1;
    steering->latency_us = NO_LATENCY;
    const bool adreno = matches(called, "qualcomm|adreno");
    if (strcmp(device->device_type, "cpu") == 0) {
        find(steering, "cpufreq", below(steering, at, "sys/devices/system/cpu/cpufreq"), "^policy[0-9]", add_cpufreq);
    } else if (!adreno && !matches(called, "(^|[^a-z0-9_])arm([^a-z0-9_]|$)|mali|imagination|powervr") &&
               matches(called, "intel|(^|[^a-z0-9_])amd([^a-z0-9_]|$)|advanced micro|radeon|gfx[0-9]|nvidia")) {
        steering->tell(steering->user, "clocks stay as they are: the C runtime cannot steer %s", device->name);
    } else {
        if (adreno) find(steering, "kgsl", below(steering, at, "sys/class/kgsl"), "^kgsl-3d0$", add_kgsl);
        find(steering, "devfreq", below(steering, at, "sys/class/devfreq"), "^[^.]", add_devfreq);
    }
    if (access(latency, F_OK) == 0)
        steering->latency_path = latency, strcat(steering->key, *steering->key ? "+cpu_latency" : "cpu_latency");
    const size_t length = strlen(steering->key);
    snprintf(steering->key + length, sizeof steering->key - length, "%s%s%s", length ? "" : "none", *at ? " " : "", at);
}

void steering_close(steering *steering) {
    if (steering->latency_file >= 0) close(steering->latency_file);
    pool_free(&steering->pool);
}
