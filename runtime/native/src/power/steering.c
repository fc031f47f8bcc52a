/* Brings the controls of a device to a vote and back. No file makes it fail. Drivers clamp values without an error, so
 * files are read again. */
#include "power.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ANY_LATENCY_US = 2000000000 /* what the kernel has while there is no request */, CLAMPED = 63, OTHER = 62 };

static const struct refusal {
    int error;
    const char *name, *advice;
} REFUSALS[] = {
    {EACCES, "EACCES", "not allowed; run as root, or give the file to a group by a udev rule"},
    {EPERM, "EPERM", "not allowed; run as root, or with CAP_SYS_ADMIN in a container"},
    {EROFS, "EROFS", "mounted read-only, as in most containers; run outside of it, or mount /sys writable"},
    {ENOENT, "ENOENT", "the control is gone; its device or driver was removed"},
    {ENODEV, "ENODEV", "the control is gone; its device or driver was removed"},
    {EBUSY, "EBUSY", "something else holds the control; stop the daemon that steers it"},
    {EINVAL, "EINVAL", NULL},
    {ENOTSUP, "ENOTSUP", "the driver cannot do that"},
    {EIO, "EIO", "the driver refuses it; the kernel's log may say more"},
};
enum { REFUSAL_COUNT = sizeof REFUSALS / sizeof *REFUSALS };

static const struct refusal *refusal_by(int error) {
    const struct refusal *found = REFUSALS;
    while (found->error != error && found < REFUSALS + REFUSAL_COUNT - 1) found++;
    return found;
}

const char *errno_name(int error) { return refusal_by(error)->name; }

void advise(int error, const char *value, char *text, size_t size) {
    if (error == EINVAL) snprintf(text, size, "the driver does not take '%.80s'", value);
    else snprintf(text, size, "%s", refusal_by(error)->advice);
}

static void read_now(file *file) {
    if (!file->write_only) content_of(file->path, file->now, CONTENT_BYTES);
}

void steering_read(steering *steering) {
    for (file *each = steering->files; each; each = each->next) read_now(each);
}

/* The upper end of a range is raised before the lower one and lowered after it. */
void steering_plan(steering *steering, const vote *vote, bool back) {
    steering->planned = 0;
    for (control *each = steering->controls; each; each = each->next) {
        choose(each, vote);
        const file *upper = each->files[UPPER];
        const int64_t high = each->files[LOWER] ? step_of(each, upper->wanted) : -1, now = step_of(each, upper->now);
        const bool raising = high >= 0 && now >= 0 && high > now;
        for (int turn = UPPER; turn <= LOWER; turn++) {
            file *file = each->files[each->files[LOWER] && !raising ? LOWER - turn : turn];
            const bool always = file && (each->kind == LEVEL || (back && each->kind == LOCK));
            if (file && *file->wanted && (always || !same_words(file->wanted, file->now)))
                steering->plan[steering->planned++] = file;
        }
    }
}

/* Notes what happened to a file, once for each actuator and error. */
static void tell(steering *steering, const file *file, int error, const char *name, const char *advice, size_t more) {
    const uint64_t bit = (uint64_t)1 << (error >= 0 && error < CLAMPED + 1 ? error : OTHER);
    char others[40] = "";
    if (file->actuator->told & bit) return;
    file->actuator->told |= bit;
    if (more) snprintf(others, sizeof others, " (and %zu more)", more);
    note(steering->notes, "%s: %s: %s: %s%s", file->actuator->name, file->path, name, advice, others);
}

static int written(const file *file) {
    if (file->lock) return nvml_write(file);
    const int opened = open(file->path, O_WRONLY | O_CLOEXEC | O_NONBLOCK);
    const ssize_t length = opened < 0 ? -1 : write(opened, file->wanted, strlen(file->wanted));
    const int error = length < 0 ? errno : (size_t)length == strlen(file->wanted) ? 0 : EIO;
    if (length > 0) (void)!ftruncate(opened, (off_t)length); /* for plain files, which are never empty meanwhile */
    if (opened >= 0) close(opened);
    return error;
}

/* Writes what is planned. A value that is refused as invalid is tried once more behind the others: another process may
 * have moved the other end of a range meanwhile. errors: one for each file of the plan. */
static void write_all(steering *steering, int *errors) {
    for (size_t i = 0; i < steering->planned; i++) errors[i] = written(steering->plan[i]);
    for (size_t i = 0; i < steering->planned; i++)
        if (errors[i] == EINVAL) errors[i] = written(steering->plan[i]);
    for (size_t i = 0; i < steering->planned; i++) {
        file *file = steering->plan[i];
        if (!errors[i] && file->write_only) strcpy(file->now, file->wanted);
        else read_now(file);
    }
}

/* Notes what did not become as it was asked for; back: a control that has gone is no problem then. */
static bool tell_all(steering *steering, const int *errors, bool back) {
    char advice[256];
    bool refused = false;
    for (size_t i = 0; i < steering->planned; i++) {
        const file *file = steering->plan[i];
        size_t more = 0;
        if (back && (errors[i] == ENOENT || errors[i] == ENODEV)) continue;
        for (size_t j = i + 1; errors[i] && j < steering->planned; j++)
            more += errors[j] == errors[i] && steering->plan[j]->actuator == file->actuator;
        if (errors[i]) {
            refused = true;
            advise(errors[i], file->wanted, advice, sizeof advice);
            tell(steering, file, errors[i], errno_name(errors[i]), advice, more);
        } else if (*file->now && !same_words(file->now, file->wanted)) {
            snprintf(advice, sizeof advice, "reads '%.80s' after '%.80s' was written: the driver or another process "
                     "limits it", file->now, file->wanted);
            advice[6 + strcspn(advice + 6, "\n")] = 0;
            tell(steering, file, CLAMPED, "CLAMPED", advice, 0);
        }
    }
    return refused;
}

static void hold_latency(steering *steering, int32_t latency_us) {
    const int32_t wanted_us = latency_us == NO_LATENCY ? ANY_LATENCY_US : latency_us;
    const file named = {.path = steering->latency_path, .actuator = &steering->latency};
    char advice[128];
    if (!steering->latency_path || latency_us == steering->latency_us) return;
    if (steering->latency_file < 0)
        steering->latency_file = open(steering->latency_path, O_RDWR | O_CLOEXEC | O_NONBLOCK);
    const int error = steering->latency_file < 0 || pwrite(steering->latency_file, &wanted_us, 4, 0) != 4 ? errno : 0;
    if (error) {
        advise(error, "", advice, sizeof advice);
        tell(steering, &named, error, errno_name(error), advice, 0);
    }
    if (latency_us == NO_LATENCY && steering->latency_file >= 0) {
        close(steering->latency_file);
        steering->latency_file = -1;
    }
    if (!error || latency_us == NO_LATENCY) steering->latency_us = latency_us;
}

int32_t latency_now(const steering *steering) {
    char content[8];
    int32_t us = 0;
    if (!steering->latency_path || !content_of(steering->latency_path, content, sizeof content)) return NO_LATENCY;
    memcpy(&us, content, sizeof us);
    return us == ANY_LATENCY_US ? NO_LATENCY : us;
}

bool steering_apply(steering *steering, const vote *vote, int32_t latency_us, bool back) {
    bool refused = false;
    steering_read(steering);
    steering_plan(steering, vote, back);
    int *errors = calloc(steering->planned + 1, sizeof *errors);
    if (errors) {
        write_all(steering, errors);
        refused = tell_all(steering, errors, back);
    }
    free(errors);
    hold_latency(steering, latency_us);
    return refused || !errors;
}

static double frequency_now(const control *control) {
    char text[LIST_BYTES];
    const char *at = text;
    int number;
    int64_t mhz = 0;
    bool in_use = false;
    if (control->kind == LOCK) return nvml_now_hz(control->files[0]->lock);
    if (!control->now_path || !content_of(control->now_path, text, sizeof text)) return 0;
    if (control->kind != LEVEL) return strtod(text, NULL) * control->unit_hz;
    while (!in_use && next_level(&at, &number, &mhz, &in_use)) {}
    return in_use ? (double)mhz * control->unit_hz : 0;
}

size_t steering_clocks(const steering *steering, const vote *vote, gputune_clock *clocks, size_t most) {
    size_t count = 0;
    for (const control *each = steering->controls; each; each = each->next) {
        int64_t ends[2];
        char content[CONTENT_BYTES];
        if (!each->label || count + CLOCK_ROWS > most) continue;
        voted_ends(each, vote, ends);
        for (int row = END_LOWER; row < CLOCK_ROWS; row++) {
            const int end = row == END_LOWER ? LOWER : UPPER;
            gputune_clock *made = &clocks[count++];
            *made = (gputune_clock){each->names[row], 0, 0};
            if (row == NOW) made->effective = frequency_now(each);
            else if (ends[end] >= 0) made->requested = (double)ends[end] * each->unit_hz;
            if (row == NOW || each->kind != RANGE) continue;
            if (!content_of(each->files[end]->path, content, CONTENT_BYTES)) continue;
            const int64_t now = step_of(each, content);
            if (now > 0) made->effective = (double)now * each->unit_hz;
        }
    }
    if (steering->latency_path && count < most) {
        const int32_t now = latency_now(steering), asked = vote->at[LATENCY_US];
        clocks[count++] = (gputune_clock){"cpu_latency.latency_us", asked == NO_LATENCY ? 0 : asked,
                                          now == NO_LATENCY ? 0 : now};
    }
    return count;
}

void steering_close(steering *steering) {
    if (steering->latency_file >= 0) close(steering->latency_file);
    nvml_close(steering->nvml);
    pool_free(&steering->pool);
}
