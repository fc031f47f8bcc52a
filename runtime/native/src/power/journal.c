/* The files that a user's processes share for a device: votes of live processes, and the journal of what controls
 * contained before any vote, which is on the disk before any control is written. Both go with the last vote. They are
 * replaced as a whole, so a process that is killed leaves the old content or the new. Their form is JSON without blanks
 * and with sorted keys, the same since version 1. A process is named with the time of its start, since process numbers
 * are used again. A file from before the last boot says nothing. */
#include "power.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define NOT_SHARED \
    "votes are not shared with other processes, and clocks stay as they are if this process is killed: "
enum { MOST_BYTES = 1 << 20, FILE_NAME_BYTES = 96 };
static const uint64_t LOCK_NS = 1000000000;
static const char *const MODE_NAMES[MODES] = {"POWER_SAVER_AGGRESSIVE_MODE", "POWER_SAVER_MODE", "DUTY_CYCLE_MODE",
                                              "ADJUST_UP_DOWN", "ADJUST_ONLY_UP", "PERFORMANCE_MODE"};

/* --- JSON --- */

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

/* Takes a character of a text; -1 for one that no control has, which is taken, too. */
static int take_character(const char **at) {
    static const char ESCAPES[] = "nrtbf\"\\/", MEANT[] = "\n\r\t\b\f\"\\/";
    const char *from = (*at)++;
    const char *found = *from == '\\' && from[1] ? strchr(ESCAPES, from[1]) : NULL;
    unsigned code;
    int length = 0;
    if (*from != '\\') return (unsigned char)*from;
    if (found) return ++*at, MEANT[found - ESCAPES];
    if (sscanf(from, "\\u%4x%n", &code, &length) != 1 || length != 6) return -1;
    *at = from + length;
    return code && code < 128 ? (int)code : -1;
}

/* Takes a text; one that no control has or that is too long becomes "". */
static bool take_text(const char **at, char *text, size_t size) {
    size_t length = 0;
    bool good = true;
    if (!take(at, "\"")) return false;
    while (**at && **at != '"') {
        const int character = take_character(at);
        good = good && character > 0 && length + 1 < size;
        if (good) text[length++] = (char)character;
    }
    text[good ? length : 0] = 0;
    return take(at, "\"");
}

static void put_text(FILE *out, const char *text) {
    fputc('"', out);
    for (; *text; text++) {
        if (*text == '\n') fputs("\\n", out);
        else if (*text == '"' || *text == '\\' || (unsigned char)*text < ' ') fprintf(out, "\\u%04x", (unsigned)*text);
        else fputc(*text, out);
    }
    fputc('"', out);
}

/* Only ASCII is written: what is in another encoding could not be read back by every reader. */
static bool is_plain(const char *text) {
    while (*text && (unsigned char)*text < 127) text++;
    return !*text;
}

/* --- processes --- */

/* When a process was started, in clock ticks; 0 where there is none, or only what its parent has not asked for yet. */
static unsigned long long started_at(unsigned process) {
    char path[64], text[PATH_BYTES], state = 0;
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
static other *other_of(journal *journal, const char *name) {
    for (size_t i = 0; i < journal->other_count; i++)
        if (strcmp(journal->others[i].name, name) == 0) return &journal->others[i];
    if (journal->other_count == MOST_OTHERS || strcmp(name, journal->name) == 0 || !is_alive(name)) return NULL;
    other *made = &journal->others[journal->other_count++];
    *made = (other){.vote = NO_VOTE};
    return strcpy(made->name, name), made;
}

/* --- files --- */

static void name_file(const journal *journal, const char *kind, char name[FILE_NAME_BYTES]) {
    snprintf(name, FILE_NAME_BYTES, "%s.%s", journal->stem, kind);
}

/* Reads what a file of ours contains, to be freed. NONE: there is none, or it is of an earlier boot. */
static found ours(journal *journal, const char *kind, char **text, const char **at) {
    char name[FILE_NAME_BYTES];
    struct stat status;
    name_file(journal, kind, name);
    *text = NULL;
    if (journal->directory < 0) return NONE;
    const int opened = openat(journal->directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (opened < 0 && errno == ENOENT) return NONE;
    bool good = opened >= 0 && !fstat(opened, &status);
    const size_t nbytes = !good ? 0 : status.st_size > MOST_BYTES ? MOST_BYTES : (size_t)status.st_size;
    good = good && (*text = calloc(1, nbytes + 1)) && read(opened, *text, nbytes) >= 0;
    const int error = errno;
    if (opened >= 0) close(opened);
    *at = *text;
    if (!good) note(journal->notes, NOT_SHARED "%s/%s: %s", journal->folder, name, strerror(error));
    const bool form = good && take(at, "{\"boot\":\""), now = form && take(at, journal->boot) && take(at, "\",");
    if (now || (good && !form)) return FOUND;
    free(*text);
    *text = NULL;
    return good ? NONE : UNREADABLE;
}

found read_table(journal *journal, vote *in_force, char by[NAME_BYTES]) {
    char name[NAME_BYTES], *text;
    const char *at;
    other *row;
    journal->other_count = 0;
    const found found = ours(journal, "votes", &text, &at);
    if (found != FOUND) return found;
    bool good = take(&at, "\"busy\":[");
    while (good && take_name(&at, name)) {
        if ((row = other_of(journal, name))) row->busy = true;
        take(&at, ",");
    }
    good = good && take(&at, "],\"by\":") && (take(&at, "null") || take_name(&at, by)) && take(&at, ",\"in_force\":") &&
           take_vote(&at, in_force) && take(&at, ",\"version\":1,\"votes\":{");
    while (good && take_name(&at, name)) {
        vote cast = NO_VOTE;
        good = take(&at, ":") && take_vote(&at, &cast);
        if (good && (row = other_of(journal, name))) row->vote = cast;
        take(&at, ",");
    }
    if (!good || !take(&at, "}}")) {
        note(journal->notes, "%s/%s.votes is not a file of version 1; starting anew without the votes of others",
             journal->folder, journal->stem);
        journal->other_count = 0;
        *in_force = NO_VOTE;
        *by = 0;
    }
    free(text);
    return FOUND;
}

/* Replaces a file as a whole, unless it contains that; synced: it is on the disk when this returns. Takes the text. */
static void replace(journal *journal, const char *kind, char *text, size_t length, bool synced) {
    char name[FILE_NAME_BYTES], fresh[FILE_NAME_BYTES + 4], *found;
    const char *at;
    name_file(journal, kind, name);
    snprintf(fresh, sizeof fresh, "%s.new", name);
    ours(journal, kind, &found, &at);
    if (found && strcmp(found, text) == 0) length = 0;
    free(found);
    if (length && journal->directory >= 0) {
        const int how = O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, folder = journal->directory;
        const int opened = openat(folder, fresh, how, 0600);
        const bool good = opened >= 0 && write(opened, text, length) == (ssize_t)length && !(synced && fsync(opened));
        if (opened >= 0) close(opened);
        if (!good || renameat(folder, fresh, folder, name) || (synced && fsync(folder)))
            note(journal->notes, "%s/%s: %s; clocks stay as they are if this process is killed", journal->folder, name,
                 strerror(errno));
    }
    free(text);
}

void write_table(journal *journal, const vote *own, const vote *in_force, const char *by) {
    char *text = NULL;
    size_t length = 0;
    FILE *out = open_memstream(&text, &length);
    if (!out) return;
    const char *separator = "";
    fprintf(out, "{\"boot\":\"%s\",\"busy\":[", journal->boot);
    for (size_t i = 0; i < journal->other_count; i++)
        if (journal->others[i].busy) fprintf(out, "%s\"%s\"", separator, journal->others[i].name), separator = ",";
    fprintf(out, by ? "],\"by\":\"%s\",\"in_force\":" : "],\"by\":null,\"in_force\":", by);
    put_vote(out, in_force);
    fprintf(out, ",\"version\":1,\"votes\":{");
    separator = "";
    for (size_t i = 0; i <= journal->other_count; i++) {
        const bool is_own = i == journal->other_count;
        const vote *cast = is_own ? own : &journal->others[i].vote;
        if (!is_vote(cast)) continue;
        fprintf(out, "%s\"%s\":", separator, is_own ? journal->name : journal->others[i].name);
        put_vote(out, cast);
        separator = ",";
    }
    fprintf(out, "}}");
    if (fclose(out) == 0) replace(journal, "votes", text, length, false);
}

found read_originals(journal *journal, steering *steering) {
    char path[PATH_BYTES], content[CONTENT_BYTES], *text;
    const char *at;
    const found found = ours(journal, "originals", &text, &at);
    if (found != FOUND) return found;
    bool good = take(&at, "\"originals\":{");
    while (good && !take(&at, "},\"version\":1}")) {
        file *named = steering->files;
        good = take_text(&at, path, sizeof path) && take(&at, ":") && take_text(&at, content, sizeof content);
        while (good && named && strcmp(named->path, path)) named = named->next;
        if (good && named && *content && (named->lock || !named->write_only))
            named->known = true, strcpy(named->original, content);
        else if (good && access(path, F_OK) == 0)
            note(journal->notes, "%s: no control of this device; left as it is", path);
        take(&at, ",");
    }
    if (!good)
        note(journal->notes, "%s/%s.originals is not a file of version 1; what the controls contain now counts as "
             "original", journal->folder, journal->stem);
    free(text);
    return good ? FOUND : NONE;
}

void keep_originals(journal *journal, steering *steering) {
    char *text = NULL;
    size_t length = 0;
    bool complete = read_originals(journal, steering) == FOUND;
    for (file *each = steering->files; each; each = each->next) {
        if (each->known) continue;
        each->known = each->lock || (content_of(each->path, each->original, CONTENT_BYTES) && *each->original);
        if (each->known && !is_plain(each->original)) {
            each->known = false;
            note(steering->notes, "%s: %s: contains no text; left as it is", each->actuator->name, each->path);
        }
        complete = complete && !each->known;
    }
    FILE *out = complete ? NULL : open_memstream(&text, &length);
    if (!out) return;
    const char *separator = "";
    fprintf(out, "{\"boot\":\"%s\",\"originals\":{", journal->boot);
    for (const file *each = steering->files; each; each = each->next) {
        if (!each->known || (each->write_only && !each->lock)) continue;
        fputs(separator, out);
        put_text(out, each->path);
        fputc(':', out);
        put_text(out, each->original);
        separator = ",";
    }
    fprintf(out, "},\"version\":1}");
    if (fclose(out) == 0) replace(journal, "originals", text, length, true);
}

void clear_journal(journal *journal) {
    static const char *const KINDS[] = {"originals", "votes", "originals.new", "votes.new", "lock"};
    char name[FILE_NAME_BYTES];
    for (size_t i = 0; journal->directory >= 0 && i < sizeof KINDS / sizeof *KINDS; i++) {
        name_file(journal, KINDS[i], name);
        unlinkat(journal->directory, name, 0);
    }
}

/* --- the lock --- */

/* Opens the user's folder of such files, which no other user may use. */
static bool open_folder(journal *journal) {
    struct stat status;
    mkdir(journal->folder, 0700);
    const int folder = open(journal->folder, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    const char *why = folder < 0 ? strerror(errno) : NULL;
    if (!why && (fstat(folder, &status) || status.st_uid != geteuid() || status.st_mode & 077))
        why = "it can be used by others; remove it, or set XDG_RUNTIME_DIR to a folder of yours";
    if (why && folder >= 0) close(folder);
    if (why) note(journal->notes, NOT_SHARED "%s: %s", journal->folder, why);
    journal->directory = why ? -1 : folder;
    return !why;
}

found journal_lock(journal *journal) {
    char name[FILE_NAME_BYTES];
    struct stat held, found;
    name_file(journal, "lock", name);
    if (!open_folder(journal)) return UNREADABLE;
    for (const uint64_t until = now_ns() + LOCK_NS;;) {
        const int lock = openat(journal->directory, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (lock < 0) {
            note(journal->notes, NOT_SHARED "%s/%s: %s", journal->folder, name, strerror(errno));
            journal_unlock(journal);
            return UNREADABLE;
        }
        journal->lock = lock;
        if (!flock(lock, LOCK_EX | LOCK_NB) && !fstat(lock, &held) && !fstatat(journal->directory, name, &found, 0) &&
            held.st_ino == found.st_ino && held.st_dev == found.st_dev)
            return FOUND; /* and it has not been removed by what held it before */
        journal->lock = -1;
        close(lock);
        if (now_ns() > until) break;
        nanosleep(&(struct timespec){0, 1000000}, NULL);
    }
    note(journal->notes, "%s/%s is held by another process; the vote is written when it is free", journal->folder,
         name);
    journal_unlock(journal);
    return NONE;
}

void journal_unlock(journal *journal) {
    char name[FILE_NAME_BYTES];
    name_file(journal, "votes", name);
    if (journal->directory < 0 || fstatat(journal->directory, name, &journal->stamp, 0))
        memset(&journal->stamp, 0, sizeof journal->stamp);
    if (journal->lock >= 0) flock(journal->lock, LOCK_UN), close(journal->lock); /* a fork may have it, too */
    if (journal->directory >= 0) close(journal->directory);
    journal->lock = journal->directory = -1;
}

bool journal_changed(journal *journal) {
    char path[PATH_BYTES + FILE_NAME_BYTES], name[FILE_NAME_BYTES];
    struct stat now;
    name_file(journal, "votes", name);
    snprintf(path, sizeof path, "%s/%s", journal->folder, name);
    if (stat(path, &now)) memset(&now, 0, sizeof now);
    if (now.st_ino != journal->stamp.st_ino || now.st_mtim.tv_nsec != journal->stamp.st_mtim.tv_nsec ||
        now.st_mtim.tv_sec != journal->stamp.st_mtim.tv_sec)
        return true;
    for (size_t i = 0; i < journal->other_count; i++)
        if (!is_alive(journal->others[i].name)) return true;
    return false;
}

/* Names where the user's files lie: below XDG_RUNTIME_DIR, else below the folder for temporary files. */
static void name_folder(journal *journal) {
    static const char *const FOLDERS[] = {"TMPDIR", "TEMP", "TMP", "/tmp", "/var/tmp", "/usr/tmp", "."};
    const char *runtime = getenv("XDG_RUNTIME_DIR");
    if (runtime && *runtime == '/') snprintf(journal->folder, PATH_BYTES, "%s/gputune-power", runtime);
    for (size_t i = 0; !*journal->folder && i < sizeof FOLDERS / sizeof *FOLDERS; i++) {
        const char *each = i < 3 ? getenv(FOLDERS[i]) : FOLDERS[i];
        if (each && *each && access(each, W_OK | X_OK) == 0)
            snprintf(journal->folder, PATH_BYTES, "%s/gputune-power-%u", each, (unsigned)geteuid());
    }
}

/* Names the files of a key: readable, and different for different keys. */
static void name_stem(journal *journal, const char *key) {
    uint8_t digest[32];
    size_t length = 0;
    for (const char *each = key; *each; each++) {
        const bool plain = (*each >= '0' && *each <= '9') || ((*each | 32) >= 'a' && (*each | 32) <= 'z');
        if (length < 40 && (plain || (length && journal->stem[length - 1] != '-')))
            journal->stem[length++] = plain ? *each : '-';
    }
    while (length && journal->stem[length - 1] == '-' && !key[40]) length--;
    sha256((const uint8_t *)key, strlen(key), digest);
    snprintf(journal->stem + length, sizeof journal->stem - length, "-%02x%02x%02x%02x", digest[0], digest[1],
             digest[2], digest[3]);
}

void journal_open(journal *journal, const char *key, notes *notes) {
    journal->notes = notes;
    journal->directory = journal->lock = -1;
    name_folder(journal);
    name_stem(journal, key);
    content_of("/proc/sys/kernel/random/boot_id", journal->boot, sizeof journal->boot);
    journal->boot[strcspn(journal->boot, "\n")] = 0;
    snprintf(journal->name, sizeof journal->name, "%u:%llu:%u", (unsigned)getpid(), started_at((unsigned)getpid()),
             1000000000u + (unsigned)((uintptr_t)journal / 16 % 1000000000u)); /* unlike any other of this process */
}
