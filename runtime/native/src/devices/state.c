#define _GNU_SOURCE /* strcasestr */
#include "state.h"

#include "../files/threads.h"

#include <ctype.h>
#include <dirent.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#define LEAST_LIMIT_C 40.0 /* where trip points make sense: what a firmware does not use lies far outside */
#define MOST_LIMIT_C 150.0
enum { PATH_BYTES = 512, CONTENT_BYTES = 1 << 16 }; /* the content: enough of /proc/cpuinfo for some dozens of cores */

/* A number, of two the second, busy of total, what is left up to a limit. */
typedef enum parse { FIRST, SECOND, SHARE, BELOW } parse;
typedef struct source {
    char name[STATE_NAME_BYTES], path[PATH_BYTES];
    parse parse;
    double factor; /* of the number, or the limit */
} source;
struct state_files {
    char root[PATH_BYTES];
    source *sources;
    size_t count, throttles;
};

/* Values of one name, which are combined. */
typedef struct found {
    const char *name;
    double least, greatest, sum;
    size_t count;
} found;

/* --- one file --- */

/* Reads what a file begins with, which ends with 0; false where it cannot be read. */
static bool read_file(const char *path, char *text, size_t room) {
    FILE *file = fopen(path, "re");
    const size_t length = file ? fread(text, 1, room - 1, file) : 0;
    const bool good = file && !ferror(file);
    if (file) fclose(file);
    text[length] = 0;
    return good;
}

static bool read_number(const char **text, double *number) {
    char *end;
    *number = strtod(*text, &end);
    const bool good = end != *text && isfinite(*number);
    *text = end + (*end == '%');
    return good && (!**text || isspace((unsigned char)**text));
}

static bool read_source(const source *source, double *value) {
    char text[256];
    const char *at = text;
    double second = 0;
    if (!read_file(source->path, text, sizeof text) || !read_number(&at, value)) return false;
    if ((source->parse == SECOND || source->parse == SHARE) && !read_number(&at, &second)) return false;
    switch (source->parse) {
    case FIRST: *value *= source->factor; break;
    case SECOND: *value = second * source->factor; break;
    case SHARE: *value = second != 0 ? 100 * *value / second : 0; break; /* both are 0 while the GPU sleeps */
    case BELOW: *value = source->factor - *value * 1e-3; break;
    }
    return isfinite(*value);
}

/* --- which files there are --- */

typedef void (*visit)(void *user, const char *path);
static void each_path(const char *folder, const char *pattern, visit visit, void *user);

/* Goes on with an entry of a folder: the rest of a pattern is for what is below it. */
static void enter(const char *folder, const char *name, const char *rest, visit visit, void *user) {
    char path[PATH_BYTES];
    if (snprintf(path, sizeof path, "%s/%s", folder, name) >= PATH_BYTES - 64) return;
    if (*rest) each_path(path, rest, visit, user);
    else visit(user, path);
}

/* Visits each path below a folder that a pattern matches. Bionic has no glob(3) before Android 9. */
static void each_path(const char *folder, const char *pattern, visit visit, void *user) {
    char part[64];
    const size_t length = strcspn(pattern, "/");
    const char *const rest = pattern + length + (pattern[length] == '/');
    snprintf(part, sizeof part, "%.*s", (int)length, pattern);
    if (!strpbrk(part, "*[")) {
        enter(folder, part, rest, visit, user);
        return;
    }
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries && (entry = readdir(entries));)
        if (*entry->d_name != '.' && !fnmatch(part, entry->d_name, 0)) enter(folder, entry->d_name, rest, visit, user);
    if (entries) closedir(entries);
}

static void add_source(state_files *files, const char *name, const char *path, parse parse, double factor) {
    struct stat status;
    if (stat(path, &status) || !S_ISREG(status.st_mode)) return;
    source *grown = realloc(files->sources, (files->count + 1) * sizeof *grown);
    if (!grown) return;
    files->sources = grown;
    source *made = &grown[files->count++];
    *made = (source){.parse = parse, .factor = factor};
    snprintf(made->name, sizeof made->name, "%s", name);
    snprintf(made->path, sizeof made->path, "%s", path);
    files->throttles += !strcmp(name, "throttles");
}

/* A file below a folder, named after the folder. */
static void add_below(state_files *files, const char *folder, const char *unit, const char *file, parse parse,
                      double factor) {
    char name[STATE_NAME_BYTES], path[2 * PATH_BYTES];
    snprintf(name, sizeof name, "%.40s_%s", strrchr(folder, '/') + 1, unit);
    snprintf(path, sizeof path, "%s/%s", folder, file);
    add_source(files, name, path, parse, factor);
}

static void add_kgsl(void *files, const char *folder) { /* Adreno GPUs */
    add_below(files, folder, "mhz", "gpuclk", FIRST, 1e-6);
    add_below(files, folder, "busy_percent", "gpubusy", SHARE, 0);
    add_below(files, folder, "busy_percent", "gpu_busy_percentage", FIRST, 1);
    add_below(files, folder, "temperature_c", "temp", FIRST, 1e-3);
}

/* Mali and other GPUs whose clock is governed by devfreq, and memory controllers. */
static void add_devfreq(void *files, const char *folder) {
    add_below(files, folder, "mhz", "cur_freq", FIRST, 1e-6);
}

static void add_sensor(void *files, const char *folder) {
    char card[PATH_BYTES], path[2 * PATH_BYTES];
    snprintf(card, sizeof card, "%s", folder);
    char *const end = (strstr)(card, "/device/hwmon/");
    if (!end) return;
    *end = 0;
    snprintf(path, sizeof path, "%s/freq1_input", folder + strlen(card) + 1);
    add_below(files, card, "mhz", path, FIRST, 1e-6);
    snprintf(path, sizeof path, "%s/temp1_input", folder + strlen(card) + 1);
    add_below(files, card, "temperature_c", path, FIRST, 1e-3);
}

static void add_card(void *files, const char *folder) { /* AMD (amdgpu) and Intel (i915) GPUs */
    add_below(files, folder, "mhz", "gt_act_freq_mhz", FIRST, 1);
    add_below(files, folder, "busy_percent", "device/gpu_busy_percent", FIRST, 1);
}

static void add_temperature(void *files, const char *path) {
    add_source(files, "temperature_c", path, FIRST, 1e-3);
}

/* Lowers a limit, in degrees, to that of a trip point. The others, called active, turn fans on. */
static void add_limit(void *limit, const char *kind) {
    char text[64], path[PATH_BYTES];
    const char *at = text;
    double found = 0;
    if (!read_file(kind, text, sizeof text)) return;
    text[strcspn(text, " \n")] = 0;
    if (strcmp(text, "passive") && strcmp(text, "hot") && strcmp(text, "critical")) return;
    snprintf(path, sizeof path, "%.*stemp", (int)(strlen(kind) - strlen("type")), kind);
    if (!read_file(path, text, sizeof text) || !read_number(&at, &found)) return;
    found *= 1e-3;
    if (found >= LEAST_LIMIT_C && found <= MOST_LIMIT_C) *(double *)limit = fmin(*(double *)limit, found);
}

static void add_headroom(void *files, const char *zone) {
    char path[2 * PATH_BYTES];
    double limit = INFINITY;
    each_path(zone, "trip_point_*_type", add_limit, &limit);
    snprintf(path, sizeof path, "%s/temp", zone);
    if (isfinite(limit)) add_source(files, "temperature_headroom_c", path, BELOW, limit);
}

/* What cools by making a processor slower. Fans do not, and others, such as radios, do not matter. */
static void add_cooling(void *files, const char *folder) {
    static const char *const KINDS[] = {"cpu", "gpu", "devfreq", "processor", "powerclamp"};
    char path[2 * PATH_BYTES], text[256];
    snprintf(path, sizeof path, "%s/type", folder);
    if (!read_file(path, text, sizeof text)) return;
    size_t kind = 0;
    while (kind < sizeof KINDS / sizeof *KINDS && !(strcasestr)(text, KINDS[kind])) kind++;
    snprintf(path, sizeof path, "%s/cur_state", folder);
    if (kind < sizeof KINDS / sizeof *KINDS) add_source(files, "cooling_steps", path, FIRST, 1);
}

static void add_core(void *files, const char *path) { add_source(files, "cpu_mhz", path, FIRST, 1e-3); }
static void add_throttle(void *files, const char *path) { add_source(files, "throttles", path, FIRST, 1); }
static void add_load(void *files, const char *path) {
    add_source(files, "load_1_minute", path, FIRST, 1);
    add_source(files, "load_5_minutes", path, SECOND, 1);
}

state_files *state_open(const char *root) {
    state_files *made = calloc(1, sizeof *made);
    if (!made) return NULL;
    snprintf(made->root, sizeof made->root, "%s", root);
    each_path(root, "proc/loadavg", add_load, made);
    each_path(root, "sys/class/kgsl/kgsl-3d[0-9]*", add_kgsl, made);
    each_path(root, "sys/class/devfreq/*", add_devfreq, made);
    each_path(root, "sys/class/drm/card[0-9]*", add_card, made);
    each_path(root, "sys/class/drm/card[0-9]*/device/hwmon/hwmon[0-9]*", add_sensor, made);
    each_path(root, "sys/class/thermal/thermal_zone*/temp", add_temperature, made);
    each_path(root, "sys/class/thermal/thermal_zone*", add_headroom, made);
    each_path(root, "sys/class/thermal/cooling_device*", add_cooling, made);
    each_path(root, "sys/devices/system/cpu/cpu[0-9]*/cpufreq/scaling_cur_freq", add_core, made);
    each_path(root, "sys/devices/system/cpu/cpu[0-9]*/thermal_throttle/*_throttle_count", add_throttle, made);
    return made;
}

/* --- the state --- */

static void add_value(found *all, size_t *count, const char *name, double value) {
    size_t place = 0;
    while (place < *count && strcmp(all[place].name, name)) place++;
    if (place == MOST_STATE_VALUES - 4) return; /* what is left is for the clocks of cores */
    if (place == *count) all[(*count)++] = (found){name, value, value, 0, 0};
    all[place].least = fmin(all[place].least, value), all[place].greatest = fmax(all[place].greatest, value);
    all[place].sum += value, all[place].count++;
}

/* The clocks of the first cores where the kernel does not govern them, as in virtual machines. */
static void add_cpuinfo(const state_files *files, found *all, size_t *count) {
    char path[2 * PATH_BYTES], *text = malloc(CONTENT_BYTES);
    snprintf(path, sizeof path, "%s/proc/cpuinfo", files->root);
    const bool good = text && read_file(path, text, CONTENT_BYTES);
    for (const char *line = good ? text : NULL; line; line = (strchr)(line, '\n')) {
        line += *line == '\n';
        double mhz;
        if (strncmp(line, "cpu MHz", 7)) continue;
        const char *number = (strchr)(line, ':');
        if (number && number++ && read_number(&number, &mhz)) add_value(all, count, "cpu_mhz", mhz);
    }
    free(text);
}

/* As Python's round to two places. */
static void put_value(state_value *values, size_t *count, const char *name, double value) {
    char text[400];
    snprintf(text, sizeof text, "%.2f", value);
    snprintf(values[*count].name, STATE_NAME_BYTES, "%s", name);
    values[(*count)++].value = strtod(text, NULL);
}

size_t state_read(const state_files *files, uint64_t most_ns, state_value values[MOST_STATE_VALUES]) {
    const uint64_t until_ns = now_ns() + most_ns;
    found all[MOST_STATE_VALUES];
    size_t count = 0, written = 0;
    bool has_clocks = false;
    double value;
    for (const source *one = files->sources; one < files->sources + files->count && now_ns() <= until_ns; one++)
        if (read_source(one, &value)) add_value(all, &count, one->name, value);
    for (size_t i = 0; i < count; i++) has_clocks |= !strcmp(all[i].name, "cpu_mhz");
    if (!has_clocks) add_cpuinfo(files, all, &count);
    for (const found *one = all; one < all + count; one++) {
        const bool is_sum = !strcmp(one->name, "throttles"), is_least = !strcmp(one->name, "temperature_headroom_c");
        if (is_sum && one->count < files->throttles) continue; /* some of them would seem to rise when all are read */
        if (strcmp(one->name, "cpu_mhz")) {
            put_value(values, &written, one->name, is_sum ? one->sum : is_least ? one->least : one->greatest);
            continue;
        }
        put_value(values, &written, "cpu_mhz_min", one->least);
        put_value(values, &written, "cpu_mhz_max", one->greatest);
        put_value(values, &written, "cpu_mhz_mean", one->sum / (double)one->count);
    }
    return written;
}

void state_close(state_files *files) {
    if (!files) return;
    free(files->sources);
    free(files);
}
