/* A process that votes as it is told, a command a line: `open N PRESET`, `begin N PHASE`, `end N PHASE`, `close N`,
 * `told N` for the next warning, `storm N` for several threads that vote at once; it answers each with a line. Controls
 * are found once: `power 0 ROOT` looks for those of the device below a root.
 *
 * voting TYPE VENDOR NAME: of a device; TYPE all: everything that is there. WRITES names a file that gets each write to
 * a control. `sync` waits until all votes are cast. `fail ERRNO NAME` has writes to files of a name fail, `stall
 * MILLISECONDS NAME` has them wait, `clamp VALUE NAME` writes another value, `kill N` ends the process at a write. */
#define _DEFAULT_SOURCE /* POSIX beside C99 */
#include "gputune.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { MOST = 8, THREADS = 4, TURNS = 100 };
#define NOTHING {{0, 0, 0, 0, 0, 0, 0, 0, 3, INT32_MAX}}
static const char *const PHASES[] = {"init", "execute", "deinit"};
static struct fault {
    char name[64]; /* a part of a file's */
    int number;
} failing, stalling, clamping;
static int writes_left = -1;

static bool meets(const struct fault *fault, const char *name) { return *fault->name && strstr(name, fault->name); }

/* In front of the library's: it notes orders, and makes faults. */
ssize_t write(int descriptor, const void *bytes, size_t count) {
    char link[64], path[1024], other[16];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    const ssize_t length = readlink(link, path, sizeof path - 1);
    path[length > 0 ? length : 0] = 0;
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path, *log = getenv("WRITES");
    const bool is_control = strstr(path, "/sys/") != NULL;
    if (is_control && writes_left >= 0 && writes_left-- == 0) kill(getpid(), SIGKILL);
    if (meets(&failing, name)) return errno = failing.number, -1;
    if (meets(&stalling, name))
        nanosleep(&(struct timespec){stalling.number / 1000, stalling.number % 1000 * 1000000}, NULL);
    FILE *out = is_control && log ? fopen(log, "ae") : NULL;
    if (out) fprintf(out, "%s=%.*s ", name, (int)count, (const char *)bytes), fclose(out);
    if (!meets(&clamping, name)) return (ssize_t)syscall(SYS_write, descriptor, bytes, count);
    syscall(SYS_write, descriptor, other, snprintf(other, sizeof other, "%d", clamping.number));
    return (ssize_t)count;
}

static gputune_phase phase_of(const char *word) {
    int phase = 0;
    while (phase < 2 && strcmp(word, PHASES[phase])) phase++;
    return (gputune_phase)phase;
}

static void *storm(void *argument) {
    for (int i = 0; i < TURNS; i++) {
        gputune_begin_phase(argument, GPUTUNE_EXECUTE, NULL);
        gputune_end_phase(argument, GPUTUNE_EXECUTE, NULL);
    }
    return NULL;
}

static int storm_all(gputune_votes *votes) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        if (pthread_create(&threads[i], NULL, storm, votes)) return 4;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    return 0;
}

/* Settings by a preset's name, or by the places of one vote for all phases. */
static gputune_code settings_of(const char *word, gputune_perf_settings *settings, gputune_error *error) {
    gputune_vote vote;
    int32_t *at = vote.at;
    if (sscanf(word, "%d,%d,%d,%d,%d,%d,%d,%d,%d,%d", at, at + 1, at + 2, at + 3, at + 4, at + 5, at + 6, at + 7,
               at + 8, at + 9) != GPUTUNE_VOTE_FIELDS)
        return gputune_preset(word, settings, error);
    *settings = (gputune_perf_settings){.hysteresis_us = 0};
    for (int i = 0; i < 3; i++) settings->start[i] = settings->done[i] = vote;
    return GPUTUNE_OK;
}

static struct fault *fault_of(const char *command) {
    return !strcmp(command, "fail") ? &failing : !strcmp(command, "stall") ? &stalling
           : !strcmp(command, "clamp") ? &clamping : NULL;
}

int main(int argc, char **argv) {
    gputune_votes *opened[MOST] = {NULL};
    gputune_power *power = NULL;
    size_t told = 0;
    char line[1280], command[16], word[1024];
    int number;
    if (argc != 4) return 2;
    const bool all = strcmp(argv[1], "all") == 0;
    while (fgets(line, sizeof line, stdin)) {
        gputune_error error = {GPUTUNE_OK, ""};
        gputune_perf_settings settings;
        const char *warning;
        struct fault *fault;
        *word = 0;
        if (sscanf(line, "%15s %d %1023s", command, &number, word) < 2) return 3;
        const bool fits = number >= 0 && number < MOST;
        if (!strcmp(command, "power")) {
            gputune_close_power(power);
            gputune_open_power(all ? NULL : argv[1], argv[2], argv[3], word, &power, &error);
        } else if ((fault = fault_of(command))) {
            fault->number = number;
            snprintf(fault->name, sizeof fault->name, "%.63s", word);
        } else if (!strcmp(command, "sync")) {
            const gputune_perf_settings none = {.start = {NOTHING, NOTHING, NOTHING},
                                                .done = {NOTHING, NOTHING, NOTHING}};
            gputune_votes *silent = NULL;
            if (!gputune_open_votes(power, &none, &silent, &error)) gputune_close_votes(silent);
        } else if (!strcmp(command, "kill")) {
            writes_left = number;
        } else if (!strcmp(command, "told")) {
            if ((warning = gputune_power_warning(power, told)))
                told++, snprintf(error.message, sizeof error.message, "%s", warning);
        } else if (!fits) {
            return 3;
        } else if (!strcmp(command, "open")) {
            if (!settings_of(word, &settings, &error)) gputune_open_votes(power, &settings, &opened[number], &error);
        } else if (!strcmp(command, "set")) {
            if (!settings_of(word, &settings, &error)) gputune_set_votes(opened[number], &settings, &error);
        } else if (!strcmp(command, "begin")) {
            gputune_begin_phase(opened[number], phase_of(word), &error);
        } else if (!strcmp(command, "end")) {
            gputune_end_phase(opened[number], phase_of(word), &error);
        } else if (!strcmp(command, "close")) {
            gputune_close_votes(opened[number]);
            opened[number] = NULL;
        } else if (!strcmp(command, "storm") && storm_all(opened[number])) {
            return 4;
        }
        puts(error.message);
        fflush(stdout);
    }
    for (int i = 0; i < MOST; i++) gputune_close_votes(opened[i]);
    gputune_close_power(power);
    return 0;
}
