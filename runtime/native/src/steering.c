/* Clocks and sleep by the kernel's files: cpufreq, devfreq, kgsl and PM QoS. They get the same contents as by
 * runtime/power/actuators/, which name the sources. */
#include "power.h"

#include <errno.h>
#include <fcntl.h>
#include <glob.h>
#include <math.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { UPPER, LOWER, MOST_FREQUENCIES = 256, LIST_BYTES = 4096, AWAKE_US = 1000 };

typedef struct control {
    enum { RANGE, GOVERNOR, PREFERENCE, AWAKE, BUS_ON } kind;
    size_t corners;   /* BUS or CORE */
    const char *word; /* of a switch that is on; of a governor those that its driver has */
    int64_t hz[MOST_FREQUENCIES], unit_hz; /* of a range, ascending */
    size_t hz_count;
    bool counts_down; /* the files have levels, of which 0 is the fastest */
    bool continuous;  /* any frequency between the ends will do */
    file files[2];    /* one, or the two ends of a range */
    struct control *next;
} control;

/* The controls of a folder: its frequencies and their unit, a governor and those there are, and the ends of its range. */
static const struct family {
    const char *name, *folders, *listed, *governor, *governors, *ends[2];
    int64_t unit_hz;
} FAMILIES[] = {
    {"kgsl", "sys/class/kgsl/kgsl-3d0", "gpu_available_frequencies", "devfreq/governor", "devfreq/available_governors",
     {"max_pwrlevel", "min_pwrlevel"}, 1},
    {"kgsl", "", "devfreq/available_frequencies", "devfreq/governor", "devfreq/available_governors",
     {"devfreq/max_freq", "devfreq/min_freq"}, 1},
    {"devfreq", "sys/class/devfreq/*", "available_frequencies", "governor", "available_governors",
     {"max_freq", "min_freq"}, 1},
    {"cpufreq", "sys/devices/system/cpu/cpufreq/policy[0-9]*", "scaling_available_frequencies", "scaling_governor",
     "scaling_available_governors", {"scaling_max_freq", "scaling_min_freq"}, 1000},
};

bool content_of(const char *path, char *content, size_t size) {
    const int opened = open(path, O_RDONLY | O_CLOEXEC);
    const ssize_t length = opened < 0 ? -1 : read(opened, content, size);
    if (opened >= 0) close(opened);
    content[length >= 0 && (size_t)length < size ? length : 0] = 0;
    return length >= 0 && (size_t)length < size;
}

static bool matches(const char *text, const char *pattern) {
    regex_t regex;
    if (regcomp(&regex, pattern, REG_EXTENDED | REG_ICASE | REG_NOSUB)) return false;
    const bool found = regexec(&regex, text, 0, NULL, 0) == 0;
    regfree(&regex);
    return found;
}

/* Whether two contents are the same but for blanks behind them. */
static bool same(const char *a, const char *b) {
    size_t i = strlen(a), j = strlen(b);
    while (i && a[i - 1] <= ' ') i--;
    while (j && b[j - 1] <= ' ') j--;
    return i == j && memcmp(a, b, i) == 0;
}

/* --- what votes mean --- */

static bool is_held(const control *control, const vote *vote) { return vote->at[HELD] && vote->at[control->corners + 1]; }

static int32_t cap_of(const vote *vote) {
    return vote->at[MODE] == SAVER ? SVS2 : vote->at[MODE] == SAVER_AGGRESSIVE ? CORNER_MIN : 0;
}

/* The frequency of a corner: the nearest, the higher one of two, or the nearest that is not below. */
static int64_t hz_at(const control *control, int32_t corner, bool at_least) {
    static const double SHARES[] = {0, 0, 0.15, 0.3, 0.4, 0.55, 0.65, 0.85, 0.95, 1};
    const int64_t lowest = control->hz[0], highest = control->hz[control->hz_count - 1], unit = control->unit_hz;
    const double wanted = rint((double)lowest + SHARES[corner] * (double)(highest - lowest));
    if (control->continuous) {
        const int64_t hz = (int64_t)(at_least ? ceil(wanted / (double)unit) : rint(wanted / (double)unit)) * unit;
        return at_least && hz > highest ? highest : hz;
    }
    size_t found = 0;
    for (size_t i = 1; i < control->hz_count; i++) {
        const double off = fabs((double)control->hz[i] - wanted), before = fabs((double)control->hz[found] - wanted);
        if (at_least ? (double)control->hz[i - 1] < wanted : off <= before) found = i;
    }
    return control->hz[found];
}

/* Both ends of a range in Hz, -1 for one without a vote; the lower end never above the upper one. */
static void voted_ends(const control *control, const vote *vote, int64_t ends[2]) {
    const int32_t *corners = vote->at + control->corners, cap = cap_of(vote);
    int32_t least = corners[0], most = corners[2];
    if (is_held(control, vote)) least = most = corners[1];
    else if (vote->at[MODE] == ONLY_UP) least = least > corners[1] ? least : corners[1];
    else if (vote->at[MODE] == PERFORMANCE && !least) least = TURBO;
    else if (cap && !most) most = cap > least ? cap : least;
    ends[LOWER] = least ? hz_at(control, least, true) : -1;
    ends[UPPER] = most ? hz_at(control, most, false) : -1;
    if (most && ends[UPPER] < ends[LOWER]) ends[UPPER] = ends[LOWER];
}

/* What a file's content means in Hz; -1 where it means nothing. */
static int64_t hz_of(const control *control, const char *content) {
    char *end;
    const long long number = strtoll(content, &end, 10);
    if (end == content || *end > ' ' || number < 0 || number > INT64_MAX / 1000) return -1;
    if (!control->counts_down) return number * control->unit_hz;
    return (size_t)number < control->hz_count ? control->hz[control->hz_count - 1 - (size_t)number] : -1;
}

/* The content for a switch; NULL for what it was before. */
static const char *chosen(const control *control, const vote *vote) {
    if (control->kind == AWAKE) return vote->at[LATENCY_US] <= AWAKE_US ? control->word : NULL;
    if (control->kind == BUS_ON) return vote->at[BUS] >= NOM || vote->at[BUS + 1] >= NOM ? "1" : NULL;
    if (control->kind == PREFERENCE) return vote->at[HIGH] || is_held(control, vote) ? "performance" : NULL;
    if (is_held(control, vote) || vote->at[MODE] == PERFORMANCE)
        return matches(control->word, "(^|[[:space:]])performance([[:space:]]|$)") ? "performance" : NULL;
    const bool saves = cap_of(vote) && !vote->at[control->corners + 2];
    return saves && matches(control->word, "(^|[[:space:]])powersave([[:space:]]|$)") ? "powersave" : NULL;
}

/* Adds a write of a file, unless it contains that. */
static void add_write(file ***end, file *file, const char *content) {
    char now[CONTENT_BYTES];
    if (content == NULL || (content_of(file->path, now, sizeof now) && same(now, content))) return;
    if (content != file->wanted) snprintf(file->wanted, CONTENT_BYTES, "%s", content);
    file->next = NULL;
    **end = file;
    *end = &file->next;
}

static void plan_range(control *control, const vote *vote, file ***end) {
    char now[CONTENT_BYTES];
    const char *wanted[2] = {NULL, NULL};
    int64_t voted[2];
    voted_ends(control, vote, voted);
    for (int which = UPPER; which <= LOWER; which++) {
        file *file = &control->files[which];
        const int64_t before = file->known ? hz_of(control, file->original) : -1, other = voted[1 - which];
        int64_t hz = voted[which] >= 0 ? voted[which] : before;
        if (voted[which] < 0 && before >= 0 && other >= 0 && (which == UPPER ? other > before : other < before))
            hz = other; /* the other end's vote lies beyond it */
        if ((voted[UPPER] < 0 && voted[LOWER] < 0) || (hz >= 0 && hz == before)) { /* as it was, exactly */
            wanted[which] = file->known ? file->original : NULL;
        } else if (hz >= 0) {
            int64_t word = hz / control->unit_hz;
            for (size_t i = 0; control->counts_down && i < control->hz_count; i++)
                if (control->hz[i] == hz) word = (int64_t)(control->hz_count - 1 - i);
            snprintf(file->wanted, CONTENT_BYTES, "%lld", (long long)word);
            wanted[which] = file->wanted;
        }
    }
    /* the upper end is raised before the lower one, and lowered after it */
    const int64_t high = wanted[UPPER] ? hz_of(control, wanted[UPPER]) : -1;
    const int64_t high_now = content_of(control->files[UPPER].path, now, sizeof now) ? hz_of(control, now) : -1;
    const int first = high_now >= 0 && high > high_now ? UPPER : LOWER;
    add_write(end, &control->files[first], wanted[first]);
    add_write(end, &control->files[1 - first], wanted[1 - first]);
}

static int written(const char *path, const char *content) {
    const int opened = open(path, O_WRONLY | O_TRUNC | O_CLOEXEC);
    const ssize_t length = opened < 0 ? -1 : write(opened, content, strlen(content));
    const int error = length < 0 ? errno : (size_t)length == strlen(content) ? 0 : EIO;
    if (opened >= 0) close(opened);
    return error;
}

static void hold_latency(steering *steering, int32_t latency_us) {
    if (!steering->latency_path || latency_us == steering->latency_us) return;
    if (latency_us == NO_LATENCY) {
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
    file *first = NULL, **end = &first;
    bool refused = false;
    for (control *each = steering->first; each; each = each->next) {
        if (each->kind == RANGE) {
            plan_range(each, vote, &end);
            continue;
        }
        const char *word = chosen(each, vote);
        add_write(&end, each->files, word ? word : each->files->known ? each->files->original : NULL);
    }
    for (file *each = first; each; each = each->next) each->error = written(each->path, each->wanted);
    for (file *each = first; each; each = each->next) {
        char now[CONTENT_BYTES];
        if (each->error == EINVAL) /* another process may have moved the other end of a range meanwhile */
            each->error = written(each->path, each->wanted);
        refused |= each->error && each->error != ENOENT && each->error != ENODEV;
        if (each->error)
            steering->tell(steering->user, "%s: %s; run as root, or give the file to a group by a udev rule",
                           each->path, strerror(each->error));
        else if (content_of(each->path, now, sizeof now) && !same(now, each->wanted))
            steering->tell(steering->user, "%s: the driver or another process limits it", each->path);
    }
    hold_latency(steering, latency_us);
    return refused;
}

/* --- what there is --- */

static const char *below(steering *steering, const char *folder, const char *name) {
    char path[1024];
    const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    return length < (int)sizeof path ? pool_text(&steering->pool, path, (size_t)length) : "";
}

/* Adds the frequencies that a file lists, ascending, each once. */
static void list_hz(steering *steering, control *control, const char *folder, const char *name) {
    char text[LIST_BYTES];
    content_of(below(steering, folder, name), text, sizeof text);
    for (char *each = text, *end; control->hz_count < MOST_FREQUENCIES; each = end) {
        const int64_t hz = strtoll(each, &end, 10) * control->unit_hz;
        size_t place = 0;
        if (end == each) break;
        while (place < control->hz_count && control->hz[place] < hz) place++;
        if (hz <= 0 || (place < control->hz_count && control->hz[place] == hz)) continue;
        memmove(control->hz + place + 1, control->hz + place, (control->hz_count++ - place) * sizeof hz);
        control->hz[place] = hz;
    }
}

/* Adds a control with a file, of a range the upper end, and its lower end; nothing where they are not there. */
static bool add(steering *steering, const control *made, const char *folder, const char *name, const char *lower) {
    const char *path = below(steering, folder, name), *low = below(steering, folder, lower ? lower : name);
    control *added = access(low, F_OK) ? NULL : pool_take(&steering->pool, 1, sizeof *added);
    if (!added) return false;
    *added = *made;
    added->files[UPPER].path = path;
    added->files[LOWER].path = low;
    *steering->end = added;
    steering->end = &added->next;
    return true;
}

/* Adds the governor and the range of a folder, and a processor's preference. */
static bool add_clock(steering *steering, const struct family *family, const char *folder, size_t corners) {
    char words[LIST_BYTES], now[CONTENT_BYTES];
    control range = {.kind = RANGE, .corners = corners, .unit_hz = family->unit_hz};
    list_hz(steering, &range, folder, family->listed);
    if (family == FAMILIES) { /* levels, where there are as many as frequencies */
        content_of(below(steering, folder, "num_pwrlevels"), now, sizeof now);
        if (strtoull(now, NULL, 10) != range.hz_count) return false;
        range.counts_down = true;
    } else if (family == FAMILIES + 1 && !range.hz_count) {
        list_hz(steering, &range, folder, FAMILIES->listed);
    } else if (strcmp(family->name, "cpufreq") == 0 && !range.hz_count) {
        list_hz(steering, &range, folder, "cpuinfo_min_freq");
        list_hz(steering, &range, folder, "cpuinfo_max_freq");
        range.continuous = true;
    }
    if (!range.hz_count || access(below(steering, folder, family->ends[LOWER]), F_OK)) return false;
    content_of(below(steering, folder, family->governors), words, sizeof words);
    control governor = {.kind = GOVERNOR, .corners = corners, .word = pool_text(&steering->pool, words, strlen(words))};
    if (content_of(below(steering, folder, family->governor), now, sizeof now) && !same(now, ""))
        add(steering, &governor, folder, family->governor, NULL);
    add(steering, &range, folder, family->ends[UPPER], family->ends[LOWER]);
    control preference = {.kind = PREFERENCE, .corners = corners};
    if (range.unit_hz != 1) add(steering, &preference, folder, "energy_performance_preference", NULL);
    return true;
}

static void add_kgsl(steering *steering, const char *folder) {
    static const struct {
        const char *name, *word;
        int kind;
    } SWITCHES[] = {{"force_rail_on", "1", AWAKE}, {"force_clk_on", "1", AWAKE}, {"force_no_nap", "1", AWAKE},
                    {"idle_timer", "10000", AWAKE}, {"force_bus_on", "1", BUS_ON}};
    if (!add_clock(steering, &FAMILIES[0], folder, CORE)) add_clock(steering, &FAMILIES[1], folder, CORE);
    for (size_t i = 0; i < sizeof SWITCHES / sizeof *SWITCHES; i++) {
        control made = {.word = SWITCHES[i].word};
        made.kind = SWITCHES[i].kind == AWAKE ? AWAKE : BUS_ON;
        add(steering, &made, folder, SWITCHES[i].name, NULL);
    }
}

/* Adds what lies below a root, and its name to the key. */
static void add_family(steering *steering, const struct family *family, const char *root) {
    glob_t found;
    struct control **before = steering->end;
    const bool any = glob(below(steering, root, family->folders), 0, NULL, &found) == 0;
    for (size_t i = 0; any && i < found.gl_pathc; i++) {
        const char *folder = found.gl_pathv[i], *name = strrchr(folder, '/') + 1;
        const bool bus = matches(name, "dmc|ddr|mem|mif|emi|noc|bimc|(^|[-_.:])bus|bw(mon)?($|[-_.:0-9])");
        if (strcmp(family->name, "kgsl") == 0)
            add_kgsl(steering, folder);
        else if (strcmp(family->name, "cpufreq") == 0 ||
                 (!strstr(name, "kgsl-3d0") &&
                  (bus || matches(name, "gpu|mali|bifrost|midgard|panfrost|panthor|adreno|kgsl|g3d|powervr|pvr"))))
            add_clock(steering, family, folder, bus ? BUS : CORE);
    }
    globfree(&found);
    if (steering->end != before) snprintf(steering->key + strlen(steering->key), 32, "%s+", family->name);
}

void steering_find(steering *steering, const identity *device, const char *root) {
    char called[512];
    const char *below_root = strcmp(root, "/") ? root : "";
    snprintf(called, sizeof called, "%s %s", device->vendor, device->name);
    steering->end = &steering->first;
    steering->latency_file = -1;
    steering->latency_us = NO_LATENCY;
    const bool phone = matches(called, "qualcomm|adreno|(^|[^a-z0-9_])arm([^a-z0-9_]|$)|mali|imagination|powervr");
    if (strcmp(device->device_type, "cpu") == 0)
        add_family(steering, &FAMILIES[3], below_root);
    else if (!phone && matches(called, "intel|(^|[^a-z0-9_])amd([^a-z0-9_]|$)|advanced micro|radeon|gfx[0-9]|nvidia"))
        steering->tell(steering->user, "clocks stay as they are: the C runtime cannot steer %s", device->name);
    else if (matches(called, "qualcomm|adreno"))
        add_family(steering, &FAMILIES[0], below_root), add_family(steering, &FAMILIES[2], below_root);
    else
        add_family(steering, &FAMILIES[2], below_root);
    const char *latency = below(steering, below_root, "dev/cpu_dma_latency");
    if (access(latency, F_OK) == 0) strcat(steering->key, "cpu_latency+"), steering->latency_path = latency;
    if (!*steering->key) strcpy(steering->key, "none+");
    char *end = steering->key + strlen(steering->key) - 1; /* the last plus */
    snprintf(end, sizeof steering->key - (size_t)(end - steering->key), "%s%s", *below_root ? " " : "", below_root);
}

file *steering_file(const steering *steering, const file *before) {
    bool next = before == NULL;
    for (control *each = steering->first; each; each = each->next)
        for (int i = UPPER; i <= (each->kind == RANGE ? LOWER : UPPER); next |= &each->files[i++] == before)
            if (next) return &each->files[i];
    return NULL;
}

void steering_close(steering *steering) {
    if (steering->latency_file >= 0) close(steering->latency_file);
    pool_free(&steering->pool);
}
