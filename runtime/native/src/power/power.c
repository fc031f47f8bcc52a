/* Votes for clocks and power by presets, in force with those of other processes, Python's included: the files and rules
 * of runtime/power/{journal,arbiter,voter}.py. What a killed process leaves is brought back by the next that looks.
 *
 * A thread of its own reads and writes all files. An inference waits for it no longer than LIMIT_NS, and not at all
 * where its vote is in force already. */
#include "power.h"
#include "../graphs/graph.h"
#include "../profiling/profile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef POWER_ROOT
#define POWER_ROOT "/" /* tests have the controls below a folder of their own */
#endif
#define LOOK_NS 250000000u
#define AGAIN_NS 50000000u
#define LIMIT_NS 15000000u
#define LOCK_NS 1000000000u
enum { NAME_BYTES = 48, TEXT_BYTES = 1024, MOST_OTHERS = 256, MOST_BYTES = 1 << 20, MOST_WARNINGS = 8, TRIES = 3 };

static const struct preset {
    const char *name;
    int32_t start, held, latency_us, done[3], after_deinit[3], mode, high;
    uint64_t hysteresis_ns;
} PRESETS[] = {
    {"burst", CORNER_MAX, 1, 40, {SVS2, SVS, SVS}, {1, 1, 1}, UP_DOWN, 1, 300000000},
    {"sustained_high_performance", TURBO, 1, 100, {SVS2, SVS, SVS}, {1, 1, 1}, UP_DOWN, 1, 300000000},
    {"high_performance", TURBO, 1, 100, {SVS2, SVS, SVS}, {1, 1, 1}, UP_DOWN, 1, 0},
    {"balanced", NOM_PLUS, 0, 1000, {SVS2, SVS, SVS}, {1, 1, 1}, UP_DOWN, 0, 0},
    {"low_balanced", NOM, 0, 1000, {SVS2, SVS, SVS}, {1, 1, 1}, UP_DOWN, 0, 0},
    {"high_power_saver", SVS_PLUS, 0, 1000, {SVS2, SVS, SVS}, {1, 1, 1}, UP_DOWN, 0, 0},
    {"power_saver", SVS, 0, 1000, {SVS2, SVS, SVS}, {1, 1, 1}, UP_DOWN, 0, 0},
    {"low_power_saver", SVS2, 0, 1000, {SVS2, SVS2, SVS2}, {1, 1, 1}, UP_DOWN, 0, 0},
    {"extreme_power_saver", 0, 0, 1000, {0, 0, 0}, {0, 0, 0}, SAVER, 0, 0},
    {"system_settings", 0, 0, 0, {0, 0, 0}, {0, 0, 0}, UP_DOWN, 0, 0}, /* never votes */
};
enum { PRESET_COUNT = sizeof PRESETS / sizeof *PRESETS };
static const char *const MODE_NAMES[MODES] = {"POWER_SAVER_AGGRESSIVE_MODE", "POWER_SAVER_MODE", "DUTY_CYCLE_MODE",
                                              "ADJUST_UP_DOWN", "ADJUST_ONLY_UP", "PERFORMANCE_MODE"};
static const vote NOTHING = {{0, 0, 0, 0, 0, 0, 0, 0, UP_DOWN, NO_LATENCY}};

typedef struct other { /* a live instance of this or another process */
    char name[NAME_BYTES];
    bool busy; /* slow writes go on, so that the journal is needed */
    vote vote;
} other;

struct votes {
    const struct preset *preset;
    mutex lock; /* of what follows, up to the thread */
    condition changed;
    vote wanted, cast, dropped;
    uint64_t drop_at_ns;
    int running;
    bool closing;
    char warnings[MOST_WARNINGS + 1][TEXT_BYTES / 4];
    size_t warning_count, told;
    thread thread; /* which alone uses the rest */
    steering steering;
    char name[NAME_BYTES], boot[NAME_BYTES], folder[TEXT_BYTES], stem[64];
    bool behind, again; /* the lock was not free; what was before could not be brought back */
    vote held;
    other others[MOST_OTHERS];
    size_t other_count;
    struct stat stamp;
};

static bool equal(const vote *a, const vote *b) { return memcmp(a, b, sizeof *a) == 0; }

static void strengthen(vote *vote, const struct vote *by) {
    const bool first = equal(vote, &NOTHING);
    for (int i = 0; i < VOTE_FIELDS && !equal(by, &NOTHING); i++)
        if (first || (i == LATENCY_US ? by->at[i] < vote->at[i] : by->at[i] > vote->at[i])) vote->at[i] = by->at[i];
}

static vote preset_vote(const struct preset *preset, const char *phase, bool start) {
    const int32_t starts[3] = {preset->start, preset->start, preset->start};
    const int32_t *corners = start ? starts : strcmp(phase, "deinit") == 0 ? preset->after_deinit : preset->done;
    vote made = NOTHING;
    memcpy(made.at + BUS, corners, sizeof starts);
    memcpy(made.at + CORE, corners, sizeof starts);
    made.at[HELD] = start && preset->held;
    made.at[HIGH] = start && preset->high;
    made.at[MODE] = preset->mode;
    made.at[LATENCY_US] = start ? preset->latency_us : 2000;
    return made;
}

/* Notes a line for gputune_warning, once. */
static void tell(void *user, const char *format, ...) {
    votes *votes = user;
    va_list values;
    va_start(values, format);
    mutex_lock(&votes->lock);
    size_t same = 0;
    write_text(votes->warnings[votes->warning_count], sizeof *votes->warnings, format, values);
    while (strcmp(votes->warnings[same], votes->warnings[votes->warning_count])) same++;
    votes->warning_count += same == votes->warning_count && same < MOST_WARNINGS;
    mutex_unlock(&votes->lock);
    va_end(values);
}

/* --- what files say: the JSON that journal.py writes, without blanks and with sorted keys --- */

static bool take(const char **at, const char *text) {
    const size_t length = strlen(text);
    const bool found = strncmp(*at, text, length) == 0;
    *at += found ? length : 0;
    return found;
}

static bool take_name(const char **at, char name[NAME_BYTES]) {
    int length = 0;
    const bool found = sscanf(*at, "\"%47[0-9:]\"%n", name, &length) == 1 && length;
    *at += found ? length : 0;
    return found;
}

static bool take_vote(const char **at, vote *vote) {
    char dcvs[6], high[6], mode[32], latency[12];
    int32_t *c = vote->at, length = 0;
    if (sscanf(*at, "{\"bus\":[%9d,%9d,%9d],\"core\":[%9d,%9d,%9d],\"dcvs\":%5[a-z],\"high_performance\":%5[a-z],"
               "\"power_mode\":\"%31[A-Z_]\",\"sleep_latency_us\":%10[a-z0-9]}%n",
               c, c + 1, c + 2, c + 3, c + 4, c + 5, dcvs, high, mode, latency, &length) != 10 || !length)
        return false;
    for (int i = BUS; i < HELD; i++)
        if (c[i] < 0 || c[i] > CORNER_MAX) return false;
    c[HELD] = strcmp(dcvs, "false") == 0;
    c[HIGH] = strcmp(high, "true") == 0;
    c[MODE] = 0;
    while (c[MODE] < MODES && strcmp(mode, MODE_NAMES[c[MODE]])) c[MODE]++;
    c[LATENCY_US] = *latency == 'n' ? NO_LATENCY : (int32_t)strtol(latency, NULL, 10);
    *at += length;
    return c[MODE] < MODES;
}

static void put_vote(FILE *out, const vote *vote) {
    const int32_t *c = vote->at;
    fprintf(out, "{\"bus\":[%d,%d,%d],\"core\":[%d,%d,%d],\"dcvs\":%s,\"high_performance\":%s,\"power_mode\":\"%s\","
            "\"sleep_latency_us\":", c[0], c[1], c[2], c[3], c[4], c[5], c[HELD] ? "false" : "true",
            c[HIGH] ? "true" : "false", MODE_NAMES[c[MODE]]);
    fprintf(out, c[LATENCY_US] == NO_LATENCY ? "null}" : "%d}", c[LATENCY_US]);
}

/* A text of printable characters, of which a line's end may be the last one. */
static bool take_text(const char **at, char *text, size_t size) {
    const size_t length = take(at, "\"") ? strcspn(*at, "\"\\") : size;
    if (length + 2 > size) return false;
    snprintf(text, size, "%.*s", (int)length, *at);
    *at += length;
    if (take(at, "\\n")) strcat(text, "\n");
    return take(at, "\"");
}

/* When a process was started, in clock ticks; 0 where there is none, or only what its parent has not asked for yet. */
static unsigned long long started_at(unsigned process) {
    char path[64], text[TEXT_BYTES], state = 0;
    unsigned long long threads = 0, started = 0;
    snprintf(path, sizeof path, "/proc/%u/stat", process);
    const char *after = content_of(path, text, sizeof text) ? strrchr(text, ')') : NULL; /* the name may have blanks */
    if (!after || sscanf(after, ") %c %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %*s %llu %*s %llu",
                         &state, &threads, &started) != 3)
        return 0;
    return (state == 'Z' || state == 'X') && threads <= 1 ? 0 : started;
}

static bool is_alive(const char *name) {
    unsigned process = 0;
    unsigned long long started = 0;
    return sscanf(name, "%9u:%llu", &process, &started) == 2 && started && started_at(process) == started;
}

/* The row of an instance that is not this one and is alive. */
static other *other_of(votes *votes, const char *name) {
    for (size_t i = 0; i < votes->other_count; i++)
        if (strcmp(votes->others[i].name, name) == 0) return &votes->others[i];
    if (votes->other_count == MOST_OTHERS || strcmp(name, votes->name) == 0 || !is_alive(name)) return NULL;
    other *made = &votes->others[votes->other_count++];
    *made = (other){.vote = NOTHING};
    return strcpy(made->name, name), made;
}

/* What a file of ours contains, to be freed; NULL where there is none, or it is of an earlier boot. */
static char *ours(votes *votes, int folder, const char *kind, const char **at) {
    char name[96];
    struct stat status;
    snprintf(name, sizeof name, "%s.%s", votes->stem, kind);
    const int opened = folder < 0 ? -1 : openat(folder, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (opened < 0) return NULL;
    char *text = fstat(opened, &status) || status.st_size > MOST_BYTES ? NULL : calloc(1, (size_t)status.st_size + 1);
    const bool good = text && read(opened, text, (size_t)status.st_size) == (ssize_t)status.st_size;
    close(opened);
    *at = text;
    if (good && take(at, "{\"boot\":\"") && take(at, votes->boot) && take(at, "\",")) return text;
    free(text);
    return NULL;
}

/* Reads what others vote, what is in force and who brought that about. */
static void read_table(votes *votes, int folder, vote *in_force, char by[NAME_BYTES]) {
    char name[NAME_BYTES];
    const char *at;
    other *row;
    votes->other_count = 0;
    char *text = ours(votes, folder, "votes", &at);
    if (!text) return;
    bool good = take(&at, "\"busy\":[");
    while (good && take_name(&at, name)) {
        if ((row = other_of(votes, name))) row->busy = true;
        take(&at, ",");
    }
    good = good && take(&at, "],\"by\":") && (take(&at, "null") || take_name(&at, by)) && take(&at, ",\"in_force\":") &&
           take_vote(&at, in_force) && take(&at, ",\"version\":1,\"votes\":{");
    while (good && take_name(&at, name)) {
        vote cast = NOTHING;
        good = take(&at, ":") && take_vote(&at, &cast);
        if (good && (row = other_of(votes, name))) row->vote = cast;
        take(&at, ",");
    }
    if (!good || !take(&at, "}}")) {
        tell(votes, "%s/%s.votes is not a file of version 1; starting anew without the votes of others", votes->folder,
             votes->stem);
        votes->other_count = 0;
        *in_force = NOTHING;
    }
    free(text);
}

/* Replaces a file as a whole, unless it contains that; synced: it is on the disk when this returns. Takes the text. */
static void replace(votes *votes, int folder, const char *kind, char *text, size_t length, bool synced) {
    char name[96], fresh[128], *found;
    const char *at;
    snprintf(name, sizeof name, "%s.%s", votes->stem, kind);
    snprintf(fresh, sizeof fresh, "%s.new", name);
    if ((found = ours(votes, folder, kind, &at)) && strcmp(found, text) == 0) length = 0;
    free(found);
    if (length && folder >= 0) {
        const int opened = openat(folder, fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
        const bool good = opened >= 0 && write(opened, text, length) == (ssize_t)length && !(synced && fsync(opened));
        if (opened >= 0) close(opened);
        if (!good || renameat(folder, fresh, folder, name) || (synced && fsync(folder)))
            tell(votes, "%s/%s: %s; clocks stay as they are if this process is killed", votes->folder, name,
                 strerror(errno));
    }
    free(text);
}

static void write_table(votes *votes, int folder, const vote *own, const vote *in_force, const char *by) {
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (!out) return;
    const char *separator = "";
    fprintf(out, "{\"boot\":\"%s\",\"busy\":[", votes->boot);
    for (size_t i = 0; i < votes->other_count; i++)
        if (votes->others[i].busy) fprintf(out, "%s\"%s\"", separator, votes->others[i].name), separator = ",";
    fprintf(out, by ? "],\"by\":\"%s\",\"in_force\":" : "],\"by\":null,\"in_force\":", by);
    put_vote(out, in_force);
    fprintf(out, ",\"version\":1,\"votes\":{");
    separator = "";
    for (size_t i = 0; i <= votes->other_count; i++) {
        const vote *cast = i < votes->other_count ? &votes->others[i].vote : own;
        if (equal(cast, &NOTHING)) continue;
        fprintf(out, "%s\"%s\":", separator, i < votes->other_count ? votes->others[i].name : votes->name);
        put_vote(out, cast);
        separator = ",";
    }
    fprintf(out, "}}");
    if (fclose(out) == 0) replace(votes, folder, "votes", text, length, false);
}

/* Takes over what controls contained before any vote; false where there is no journal. */
static bool read_journal(votes *votes, int folder) {
    char path[TEXT_BYTES], content[CONTENT_BYTES];
    const char *at;
    char *text = ours(votes, folder, "originals", &at);
    bool good = text && take(&at, "\"originals\":{");
    while (good && !take(&at, "},\"version\":1}")) {
        good = take_text(&at, path, sizeof path) && take(&at, ":") && take_text(&at, content, sizeof content);
        for (file *each = votes->steering.files; good && each; each = each->next)
            if (strcmp(each->path, path) == 0) each->known = true, strcpy(each->original, content);
        take(&at, ",");
    }
    if (text && !good)
        tell(votes, "%s/%s.originals is not a file of version 1; what the controls contain now counts as original",
             votes->folder, votes->stem);
    free(text);
    return good;
}

/* Journals what they contain now, where there is no journal yet. What is not in one is never written. */
static void keep_originals(votes *votes, int folder) {
    char *text = NULL;
    size_t length = 0;
    FILE *out = read_journal(votes, folder) ? NULL : open_memstream(&text, &length);
    if (!out) return;
    const char *separator = "";
    fprintf(out, "{\"boot\":\"%s\",\"originals\":{", votes->boot);
    for (file *each = votes->steering.files; each; each = each->next) {
        each->known = each->known || content_of(each->path, each->original, CONTENT_BYTES);
        if (!each->known) continue;
        const int end = (int)strcspn(each->original, "\n");
        fprintf(out, "%s\"%s\":\"%.*s%s\"", separator, each->path, end, each->original,
                each->original[end] ? "\\n" : "");
        separator = ",";
    }
    fprintf(out, "},\"version\":1}");
    if (fclose(out) == 0) replace(votes, folder, "originals", text, length, true);
}

/* --- what is in force --- */

/* The user's folder of such files, which nobody else may use; -1 where there is none. */
static int open_folder(votes *votes) {
    struct stat status;
    mkdir(votes->folder, 0700);
    const int folder = open(votes->folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder >= 0 && !fstat(folder, &status) && status.st_uid == geteuid() && !(status.st_mode & 077)) return folder;
    if (folder >= 0) close(folder), errno = EACCES;
    tell(votes, "votes are not shared with other processes, and clocks stay as they are if this process is killed: "
         "%s: %s", votes->folder, strerror(errno));
    return -1;
}

/* A descriptor that holds the lock of the files; -1 where another process has it for long. */
static int lock_files(votes *votes, int folder) {
    char name[96];
    struct stat held, found;
    snprintf(name, sizeof name, "%s.lock", votes->stem);
    for (const uint64_t until = now_ns() + LOCK_NS;;) {
        const int lock = openat(folder, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (lock < 0) return -1;
        if (!flock(lock, LOCK_EX | LOCK_NB) && !fstat(lock, &held) && !fstatat(folder, name, &found, 0) &&
            held.st_ino == found.st_ino && held.st_dev == found.st_dev)
            return lock; /* and it has not been removed by what held it before */
        close(lock);
        if (now_ns() > until) return -1;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
}

static void bring(votes *votes, int folder, const vote *own, const vote *in_force, const vote *found, const char *by) {
    bool lives = strcmp(by, votes->name) == 0 && !equal(own, &NOTHING);
    for (size_t i = 0; i < votes->other_count; i++)
        lives |= strcmp(by, votes->others[i].name) == 0 && !equal(&votes->others[i].vote, &NOTHING);
    const bool same = lives && !votes->again && equal(found, in_force);
    write_table(votes, folder, own, in_force, same ? by : votes->name);
    keep_originals(votes, folder);
    votes->again = false;
    if (!same || !equal(&votes->held, own)) steering_apply(&votes->steering, in_force, own->at[LATENCY_US]);
    votes->held = *own;
}

/* Brings the originals back; the journal stays until all are, and no process writes any more. */
static void let_go(votes *votes, int folder) {
    static const char *const KINDS[] = {"originals", "votes", "originals.new", "votes.new", "lock"};
    char name[96], now[CONTENT_BYTES];
    bool any = read_journal(votes, folder) || !equal(&votes->held, &NOTHING), busy = false, differs = false;
    for (file *each = votes->steering.files; each; each = each->next) any |= each->known;
    const bool refused = any && steering_apply(&votes->steering, &NOTHING, NO_LATENCY);
    votes->held = NOTHING;
    for (file *each = votes->steering.files; each; each = each->next)
        differs |= each->known && content_of(each->path, now, sizeof now) && strcmp(now, each->original);
    votes->again = refused && differs;
    for (size_t i = 0; i < votes->other_count; i++) busy |= votes->others[i].busy;
    if (busy || votes->again) {
        write_table(votes, folder, &NOTHING, &NOTHING, NULL);
        return;
    }
    for (size_t i = 0; folder >= 0 && i < sizeof KINDS / sizeof *KINDS; i++) {
        snprintf(name, sizeof name, "%s.%s", votes->stem, KINDS[i]);
        unlinkat(folder, name, 0);
    }
}

/* Brings the device to what is in force with this vote. */
static void settle(votes *votes, const vote *own) {
    char by[NAME_BYTES] = "";
    vote found = NOTHING, in_force = *own;
    int folder = open_folder(votes);
    const int lock = folder < 0 ? -1 : lock_files(votes, folder);
    votes->behind = folder >= 0 && lock < 0;
    if (votes->behind) {
        tell(votes, "%s/%s.lock is held by another process; the vote is written later", votes->folder, votes->stem);
    } else {
        read_table(votes, folder, &found, by);
        for (size_t i = 0; i < votes->other_count; i++) strengthen(&in_force, &votes->others[i].vote);
        if (equal(&in_force, &NOTHING)) let_go(votes, folder);
        else bring(votes, folder, own, &in_force, &found, by);
        for (file *each = votes->steering.files; each && equal(own, &NOTHING) && !votes->again; each = each->next)
            each->known = false; /* others may bring them back from now on, unseen */
    }
    char name[96];
    snprintf(name, sizeof name, "%s.votes", votes->stem);
    if (folder < 0 || fstatat(folder, name, &votes->stamp, 0)) memset(&votes->stamp, 0, sizeof votes->stamp);
    if (lock >= 0) flock(lock, LOCK_UN), close(lock);
    if (folder >= 0) close(folder);
}

/* Whether another process has changed the votes, or has ended. */
static bool is_changed(votes *votes) {
    char path[TEXT_BYTES + 96];
    struct stat now;
    snprintf(path, sizeof path, "%s/%s.votes", votes->folder, votes->stem);
    if (stat(path, &now)) memset(&now, 0, sizeof now);
    if (now.st_ino != votes->stamp.st_ino || now.st_mtim.tv_nsec != votes->stamp.st_mtim.tv_nsec ||
        now.st_mtim.tv_sec != votes->stamp.st_mtim.tv_sec)
        return true;
    for (size_t i = 0; i < votes->other_count; i++)
        if (!is_alive(votes->others[i].name)) return true;
    return false;
}

static void *work(void *argument) {
    votes *votes = argument;
    bool due = true; /* something may be left by a process that was killed */
    mutex_lock(&votes->lock);
    for (int tries = 0; tries < TRIES;) {
        const uint64_t now = now_ns(), again = votes->behind || votes->again ? AGAIN_NS : LOOK_NS;
        if (votes->drop_at_ns <= now) votes->wanted = votes->dropped, votes->drop_at_ns = UINT64_MAX;
        const vote own = votes->wanted;
        const bool closing = votes->closing;
        if (due || closing || !equal(&own, &votes->cast)) {
            mutex_unlock(&votes->lock);
            settle(votes, &own);
            mutex_lock(&votes->lock);
            votes->cast = own;
            due = false;
            condition_tell(&votes->changed);
            if (closing) tries = votes->behind ? tries + 1 : TRIES;
        } else {
            condition_wait_until(&votes->changed, &votes->lock,
                                 votes->drop_at_ns < now + again ? votes->drop_at_ns : now + again);
            mutex_unlock(&votes->lock);
            due = now_ns() >= now + again && (votes->behind || votes->again || is_changed(votes));
            mutex_lock(&votes->lock);
        }
    }
    mutex_unlock(&votes->lock);
    return NULL;
}

/* --- for graph.c --- */

/* Has a vote be cast, and waits a little until it is. The lock is held. */
static void want(votes *votes, vote wanted) {
    votes->wanted = wanted;
    votes->drop_at_ns = UINT64_MAX;
    if (equal(&wanted, &votes->cast)) return;
    condition_tell(&votes->changed);
    for (const uint64_t until = now_ns() + LIMIT_NS; !equal(&wanted, &votes->cast) && now_ns() < until;)
        condition_wait_until(&votes->changed, &votes->lock, until);
}

void votes_begin(votes *votes, const char *phase) {
    if (!votes) return;
    mutex_lock(&votes->lock);
    votes->running++;
    want(votes, preset_vote(votes->preset, phase, true));
    mutex_unlock(&votes->lock);
}

void votes_end(votes *votes, const char *phase) {
    if (!votes) return;
    mutex_lock(&votes->lock);
    const vote done = preset_vote(votes->preset, phase, false);
    if (votes->running) votes->running--;
    if (!votes->running && votes->preset->hysteresis_ns && strcmp(phase, "execute") == 0) {
        votes->dropped = done; /* the thread looks earlier than that, and need not be told */
        votes->drop_at_ns = now_ns() + votes->preset->hysteresis_ns;
    } else if (!votes->running) {
        want(votes, done);
    }
    mutex_unlock(&votes->lock);
}

size_t votes_files(const votes *votes, const char **paths, size_t most) {
    size_t count = 0;
    for (const file *each = votes ? votes->steering.files : NULL; each && count < most; each = each->next)
        paths[count++] = each->path;
    return count;
}

bool votes_warning(votes *votes, char text[REASON_BYTES]) {
    if (!votes) return false;
    mutex_lock(&votes->lock);
    const bool more = votes->told < votes->warning_count;
    if (more) snprintf(text, REASON_BYTES, "power: %s", votes->warnings[votes->told++]);
    mutex_unlock(&votes->lock);
    return more;
}

void votes_close(votes *votes, bool here) {
    if (!votes) return;
    if (here) {
        mutex_lock(&votes->lock);
        votes->wanted = NOTHING;
        votes->drop_at_ns = UINT64_MAX;
        votes->closing = true;
        condition_tell(&votes->changed);
        mutex_unlock(&votes->lock);
        thread_join(votes->thread);
        condition_close(&votes->changed);
        mutex_close(&votes->lock);
    }
    steering_close(&votes->steering);
    free(votes);
}

/* Where the user's files lie: below XDG_RUNTIME_DIR, else below the folder for temporary files. */
static void name_files(votes *votes) {
    static const char *const FOLDERS[] = {"TMPDIR", "TEMP", "TMP", "/tmp", "/var/tmp", "/usr/tmp", "."};
    const char *runtime = getenv("XDG_RUNTIME_DIR"), *key = votes->steering.key;
    uint8_t digest[32];
    size_t length = 0;
    if (runtime && *runtime == '/') snprintf(votes->folder, sizeof votes->folder, "%s/gputune-power", runtime);
    for (size_t i = 0; !*votes->folder && i < sizeof FOLDERS / sizeof *FOLDERS; i++) {
        const char *each = i < 3 ? getenv(FOLDERS[i]) : FOLDERS[i];
        if (each && *each && access(each, W_OK | X_OK) == 0)
            snprintf(votes->folder, sizeof votes->folder, "%s/gputune-power-%u", each, (unsigned)geteuid());
    }
    for (const char *each = key; *each; each++) {
        const bool plain = (*each >= '0' && *each <= '9') || ((*each | 32) >= 'a' && (*each | 32) <= 'z');
        if (length < 40 && (plain || (length && votes->stem[length - 1] != '-')))
            votes->stem[length++] = plain ? *each : '-';
    }
    while (length && votes->stem[length - 1] == '-' && !key[40]) length--;
    sha256((const uint8_t *)key, strlen(key), digest);
    snprintf(votes->stem + length, sizeof votes->stem - length, "-%02x%02x%02x%02x", digest[0], digest[1], digest[2],
             digest[3]);
}

gputune_code find_preset(const char *name, size_t *place, gputune_error *error) {
    const size_t prefix = strlen("SNPE_PERFORMANCE_PROFILE_");
    const char *plain = strncasecmp(name, "SNPE_PERFORMANCE_PROFILE_", prefix) ? name : name + prefix;
    char all[GPUTUNE_MESSAGE_BYTES / 2] = "";
    for (*place = 0; *place < PRESET_COUNT; ++*place) {
        if (!strcasecmp(PRESETS[*place].name, plain)) return GPUTUNE_OK;
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", *place ? ", " : "", PRESETS[*place].name);
    }
    return fail(error, GPUTUNE_INVALID_ARGUMENT, "there is no perf profile '%.80s', only %s", name, all);
}

gputune_code votes_open_below(const char *root, const char *preset, const identity *device, votes **made,
                              gputune_error *error) {
    size_t place;
    *made = NULL;
    TRY(find_preset(preset, &place, error));
    if (place == PRESET_COUNT - 1) return GPUTUNE_OK;
    votes *opened = calloc(1, sizeof *opened);
    if (!opened || !mutex_open(&opened->lock) || !condition_open(&opened->changed)) {
        free(opened);
        return fail(error, GPUTUNE_OUT_OF_MEMORY, "no memory for votes");
    }
    opened->preset = &PRESETS[place];
    opened->wanted = opened->cast = opened->held = NOTHING;
    opened->drop_at_ns = UINT64_MAX;
    opened->steering.tell = tell;
    opened->steering.user = opened;
    steering_find(&opened->steering, device, root);
    name_files(opened);
    content_of("/proc/sys/kernel/random/boot_id", opened->boot, sizeof opened->boot);
    opened->boot[strcspn(opened->boot, "\n")] = 0;
    snprintf(opened->name, sizeof opened->name, "%u:%llu:%u", (unsigned)getpid(), started_at((unsigned)getpid()),
             1000000000u + (unsigned)((uintptr_t)opened / 16 % 1000000000u)); /* Python's numbers are small */
    if (thread_start(&opened->thread, work, opened)) return *made = opened, GPUTUNE_OK;
    steering_close(&opened->steering);
    free(opened);
    return fail(error, GPUTUNE_OUT_OF_MEMORY, "no thread can be started for votes");
}

gputune_code votes_open(const char *preset, const identity *device, votes **votes, gputune_error *error) {
    return votes_open_below(POWER_ROOT, preset, device, votes, error);
}

gputune_code gputune_set_perf_profile(gputune_graph *graph, const char *preset, gputune_error *error) {
    votes *fresh = NULL;
    TRY(check_here(graph->device, error));
    device_take(graph->device);
    gputune_code code = preset ? votes_open(preset, &graph->device->identity, &fresh, error) : GPUTUNE_OK;
    votes *const old = graph->votes;
    if (!code) graph->votes = fresh;
    if (!code && old) votes_end(fresh, "init"); /* its done vote, at once */
    if (!code) votes_close(old, true);
    device_leave(graph->device);
    return code;
}
