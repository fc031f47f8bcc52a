/* What people are shown of controls: what they contain, what a vote would write, and what is brought back. */
#include "power.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

enum { MOST_TURNS = 15 /* milliseconds, as votes are waited for */ };

static const char *kept(gputune_power *power, const char *text) {
    const char *copy = pool_text(&power->shown, text, strlen(text));
    return copy ? copy : "";
}

/* The errno that a write would fail with now, or 0; nothing is written. What is no file takes root. */
static int refusal_of(const char *path) {
    struct statvfs system;
    if (access(path, F_OK)) return geteuid() ? EPERM : 0;
    if (!access(path, W_OK)) return 0;
    return !statvfs(path, &system) && system.f_flag & ST_RDONLY ? EROFS : EACCES;
}

static gputune_control described(gputune_power *power, const char *actuator, const char *path, const char *content) {
    char advice[256] = "";
    const int error = refusal_of(path);
    if (error) advise(error, "", advice, sizeof advice);
    return (gputune_control){actuator, path, content ? kept(power, content) : NULL, error ? errno_name(error) : "",
                             kept(power, advice)};
}

gputune_code gputune_read_power(gputune_power *power, gputune_power_state *state, gputune_error *error) {
    enum { MOST_CLOCKS = 1024 };
    TRY(check_power(power, error));
    mutex_lock(&power->settling);
    pool_free(&power->shown);
    steering *steering = &power->steering;
    gputune_control *controls = pool_take(&power->shown, steering->file_count + 1, sizeof *controls);
    gputune_clock *clocks = pool_take(&power->shown, MOST_CLOCKS, sizeof *clocks);
    *state = (gputune_power_state){.controls = controls, .clocks = clocks};
    for (const file *each = controls ? steering->files : NULL; each; each = each->next) {
        char text[4096];
        const bool readable = each->lock ? snprintf(text, sizeof text, "%s", each->now) > 0
                                         : content_of(each->path, text, sizeof text);
        controls[state->control_count++] = described(power, each->actuator->name, each->path, readable ? text : NULL);
    }
    for (const actuator *each = steering->actuators; each; each = each->next) state->honoured |= each->honoured;
    if (controls && steering->latency_path) {
        char text[16];
        const int32_t now = latency_now(steering);
        snprintf(text, sizeof text, "%d", now == NO_LATENCY ? 2000000000 : now);
        controls[state->control_count++] = described(power, steering->latency.name, steering->latency_path, text);
        state->honoured |= steering->latency.honoured;
    }
    if (clocks) state->clock_count = steering_clocks(steering, &power->in_force, clocks, MOST_CLOCKS);
    mutex_unlock(&power->settling);
    return controls && clocks ? GPUTUNE_OK : NO_MEMORY;
}

size_t gputune_live_clocks(gputune_power *power, gputune_clock *clocks, size_t most) {
    bool good = !check_power(power, NULL) && mutex_try(&power->settling);
    for (int turn = 0; !good && turn < MOST_TURNS && !check_power(power, NULL); turn++) {
        nanosleep(&(struct timespec){0, 1000000}, NULL);
        good = mutex_try(&power->settling);
    }
    if (!good) return 0; /* a control is slow just now */
    const size_t count = is_vote(&power->held) ? steering_clocks(&power->steering, &power->in_force, clocks, most) : 0;
    mutex_unlock(&power->settling);
    return count;
}

/* Adds the writes for a vote, and has files contain them from then on. */
static void add_step_of(gputune_power *power, const vote *vote, size_t step, gputune_write *writes, size_t most,
                        size_t *found) {
    steering *steering = &power->steering;
    steering_plan(steering, vote, false);
    for (size_t i = 0; i < steering->planned; i++) {
        file *file = steering->plan[i];
        if (*found < most)
            writes[(*found)++] = (gputune_write){step, file->path, kept(power, file->wanted)};
        strcpy(file->now, file->wanted);
    }
    const int32_t wanted_us = vote->at[LATENCY_US];
    char value[16] = "";
    if (wanted_us == steering->latency_us || !steering->latency_path || *found == most) return;
    if (wanted_us != NO_LATENCY) snprintf(value, sizeof value, "%d", wanted_us);
    writes[(*found)++] = (gputune_write){step, steering->latency_path, kept(power, value)};
    steering->latency_us = wanted_us;
}

gputune_code gputune_plan(gputune_power *power, const gputune_vote *votes, size_t count, gputune_write *writes,
                          size_t most, size_t *found, gputune_error *error) {
    TRY(check_power(power, error));
    mutex_lock(&power->settling);
    pool_free(&power->shown);
    steering *steering = &power->steering;
    *found = 0;
    for (file *each = steering->files; each; each = each->next) {
        if (each->write_only) continue;
        each->known = content_of(each->path, each->original, CONTENT_BYTES) && *each->original;
        strcpy(each->now, each->original);
    }
    for (file *each = steering->files; each; each = each->next) each->known = each->known || each->lock;
    for (size_t i = 0; i < count; i++) add_step_of(power, &votes[i], i, writes, most, found);
    add_step_of(power, &NO_VOTE, count, writes, most, found);
    for (file *each = steering->files; each; each = each->next) each->known = each->write_only && !each->lock;
    mutex_unlock(&power->settling);
    return GPUTUNE_OK;
}

/* --- what killed processes have left --- */

/* Brings back what is left, and says each control that contains something else than before. */
static void settle_and_tell(gputune_power *power, char (*before)[CONTENT_BYTES], gputune_line line, void *user) {
    char text[PATH_BYTES + 2 * CONTENT_BYTES + 8], now[CONTENT_BYTES];
    size_t place = 0;
    for (const file *each = power->steering.files; each; each = each->next)
        content_of(each->path, before[place++], CONTENT_BYTES);
    mutex_lock(&power->settling);
    settle(power, &NO_VOTE);
    mutex_unlock(&power->settling);
    place = 0;
    for (const file *each = power->steering.files; each; each = each->next) {
        const char *then = before[place++];
        if (each->write_only || !content_of(each->path, now, sizeof now) || !strcmp(now, then)) continue;
        snprintf(text, sizeof text, "%s: %.*s -> %.*s", each->path, (int)strcspn(then, "\n"), then,
                 (int)strcspn(now, "\n"), now);
        line(user, text);
    }
}

static gputune_code restore_one(gputune_power *power, gputune_line line, void *user, gputune_error *error) {
    char text[sizeof power->steering.key + 80];
    char (*before)[CONTENT_BYTES] = calloc(power->steering.file_count, sizeof *before);
    const char *noticed;
    if (!before) return NO_MEMORY;
    settle_and_tell(power, before, line, user);
    free(before);
    for (size_t i = 0; i < power->journal.other_count; i++) {
        if (!is_vote(&power->journal.others[i].vote)) continue;
        snprintf(text, sizeof text, "%s: process %d votes; nothing is restored before it ends", power->steering.key,
                 atoi(power->journal.others[i].name));
        line(user, text);
    }
    for (size_t i = 0; (noticed = noted(&power->notes, i)); i++) line(user, noticed);
    return GPUTUNE_OK;
}

gputune_code gputune_restore(const char *root, gputune_line line, void *user, gputune_error *error) {
    static const unsigned KNOWN[] = {A_CPUFREQ, A_AMDGPU, AN_INTEL, A_KGSL | A_DEVFREQ, AN_NVML, A_DEVFREQ};
    enum { COUNT = sizeof KNOWN / sizeof *KNOWN, BYTES_OF_KEY = sizeof ((steering *)NULL)->key };
    char keys[COUNT][BYTES_OF_KEY];
    for (size_t i = 0; i < COUNT; i++) {
        gputune_power *power;
        bool again = false;
        TRY(open_kinds(KNOWN[i], root, &power, error));
        gputune_code code = GPUTUNE_OK;
        strcpy(keys[i], power->steering.key);
        for (size_t j = 0; j < i; j++) again |= !strcmp(keys[j], keys[i]);
        if (!again && power->steering.files) code = restore_one(power, line, user, error);
        gputune_close_power(power);
        TRY(code);
    }
    return GPUTUNE_OK;
}
