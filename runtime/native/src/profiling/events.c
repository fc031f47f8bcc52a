#define _GNU_SOURCE /* syscall */
#include "events.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { HARDWARE, SOFTWARE, KINDS };
enum { FORMAT = 1 | 2 | 8 /* TOTAL_TIME_ENABLED, TOTAL_TIME_RUNNING, GROUP */, DISABLED = 1,
       EXCLUDE_KERNEL = 1 << 5 | 1 << 6 /* and the hypervisor */, CLOSE_ON_EXEC = 8, ENABLE = 0x2400 };
enum { PATH_BYTES = 512, REASON_BYTES = 200, STATUS_BYTES = 4096 };

/* kernel_only: it happens in the kernel, so a process that may count its own code only counts none. */
static const struct event {
    const char *name;
    uint32_t kind;
    uint64_t config;
    bool kernel_only;
} ALL[EVENTS] = {
    {"task_clock_ns", SOFTWARE, 1, false}, {"page_faults", SOFTWARE, 2, false}, {"context_switches", SOFTWARE, 3, true},
    {"cpu_migrations", SOFTWARE, 4, true}, {"cycles", HARDWARE, 0, false}, {"instructions", HARDWARE, 1, false},
    {"cache_references", HARDWARE, 2, false}, {"cache_misses", HARDWARE, 3, false},
    {"branch_misses", HARDWARE, 5, false}, {"stalled_cycles_frontend", HARDWARE, 7, false},
    {"stalled_cycles_backend", HARDWARE, 8, false}};

/* perf_event_attr of the first version; no sampling. */
typedef struct attributes {
    uint32_t kind, nbytes;
    uint64_t config, unused[2], format, flags, unused_too[2];
} attributes;

/* The counters of one thread that are read together. before: their raw values at the last reading, behind the ns for
 * which they were wanted and did count; counted: what follows from all readings so far. */
typedef struct group {
    int descriptors[EVENTS];
    size_t count;
    uint64_t before[2 + EVENTS], counted[EVENTS];
} group;

typedef struct thread_events {
    int id;
    bool seen, counted; /* counted: all of it is, or nothing */
    group groups[KINDS];
} thread_events;

struct events {
    event_calls calls;
    char proc[PATH_BYTES];
    size_t layout[KINDS][EVENTS], counts[KINDS]; /* the events of each kind that are counted */
    uint64_t excluded[EVENTS], ended[EVENTS];    /* ended: what threads had counted that are gone */
    char reasons[EVENTS][REASON_BYTES];
    thread_events *threads;
    size_t thread_count;
};

const char *event_name(size_t event) { return ALL[event].name; }

static int open_counter(const void *attributes, int thread, int group) {
#ifdef SYS_perf_event_open
    const long descriptor = syscall(SYS_perf_event_open, attributes, thread, -1, group, (unsigned long)CLOSE_ON_EXEC);
    return descriptor < 0 ? -errno : (int)descriptor;
#else
    (void)attributes, (void)thread, (void)group;
    return -ENOSYS;
#endif
}

static int enable_counter(int descriptor) { return ioctl(descriptor, ENABLE, 0) ? -errno : 0; }

/* --- why an event is not counted --- */

static size_t read_text(const events *own, const char *name, char *text, size_t room) {
    char path[2 * PATH_BYTES];
    snprintf(path, sizeof path, "%s/%s", own->proc, name);
    FILE *file = fopen(path, "re");
    const size_t length = file ? fread(text, 1, room - 1, file) : 0;
    if (file) fclose(file);
    text[length] = 0;
    return length;
}

/* As the system names the number, and what would allow it. */
static void write_reason(const events *own, int number, bool kernel_only, char reason[REASON_BYTES]) {
    static const struct { int number; const char *name, *hint; } KNOWN[] = {
        {EACCES, "EACCES", NULL}, {EPERM, "EPERM", NULL},
        {ENOENT, "ENOENT", "the processor shows no such counter, as in most virtual machines"},
        {EOPNOTSUPP, "ENOTSUP", "the processor does not count this"},
        {EINVAL, "EINVAL", "the processor cannot count this together with the others"},
        {ENOSYS, "ENOSYS", "the kernel has no perf_event_open, or a filter of system calls hides it"},
        {EMFILE, "EMFILE", "too many open files; a higher limit (ulimit -n) allows it"},
        {ENFILE, "ENFILE", "too many open files on this system"}};
    char name[32], level[32] = "";
    const char *hint = NULL;
    snprintf(name, sizeof name, "error %d", number);
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++)
        if (KNOWN[i].number == number) snprintf(name, sizeof name, "%s", KNOWN[i].name), hint = KNOWN[i].hint;
    if (number != EACCES && number != EPERM) {
        snprintf(reason, REASON_BYTES, "%s: %s", name, hint ? hint : strerror(number));
        return;
    }
    const int most = kernel_only ? 1 : 2;
    read_text(own, "sys/kernel/perf_event_paranoid", level, sizeof level);
    level[strcspn(level, " \n")] = 0;
    const bool is_number = isdigit((unsigned char)level[*level == '-']);
    if (is_number && strtol(level, NULL, 10) <= most)
        snprintf(reason, REASON_BYTES, "%s: a filter of system calls, such as a container's seccomp profile, refuses "
                 "perf_event_open", name);
    else
        snprintf(reason, REASON_BYTES, "%s: perf_event_paranoid is %s; %d or less, or the capability CAP_PERFMON, "
                 "allows it", name, *level ? level : "unknown", most);
}

const char *event_unavailable(const events *own, size_t event) {
    return *own->reasons[event] ? own->reasons[event] : NULL;
}

/* --- groups --- */

static int first_of(const group *group) { return group->count ? group->descriptors[0] : -1; }

static void close_group(group *group) {
    while (group->count) close(group->descriptors[--group->count]);
}

/* Adds a counter to a group; a descriptor less than 0 is -errno. */
static int add_counter(const events *own, group *group, size_t event, uint64_t excluded, int thread) {
    const int first = first_of(group);
    const attributes wanted = {.kind = ALL[event].kind, .nbytes = sizeof wanted, .config = ALL[event].config,
                               .format = FORMAT, .flags = excluded | (first < 0 ? DISABLED : 0)};
    const int descriptor = own->calls.open(&wanted, thread, first);
    if (descriptor >= 0) group->descriptors[group->count++] = descriptor;
    return descriptor;
}

static void read_group(group *group) {
    uint64_t values[3 + EVENTS];
    const size_t nbytes = (3 + group->count) * sizeof *values;
    if (!group->count || read(first_of(group), values, nbytes) != (ssize_t)nbytes) return; /* it could never run */
    const uint64_t wanted_ns = values[1] - group->before[0], ran_ns = values[2] - group->before[1];
    if (!ran_ns && !memcmp(values + 3, group->before + 2, group->count * sizeof *values)) return;
    for (size_t i = 0; i < group->count; i++) {
        const uint64_t count = values[3 + i] - group->before[2 + i];
        const long double share = (long double)wanted_ns / (long double)(ran_ns ? ran_ns : 1);
        group->counted[i] += wanted_ns <= ran_ns ? count : (uint64_t)((long double)count * share);
    }
    memcpy(group->before, values + 1, (2 + group->count) * sizeof *values);
}

static void add_groups(const events *own, thread_events *thread, uint64_t counts[EVENTS]) {
    for (int kind = 0; kind < KINDS && thread->counted; kind++) {
        read_group(&thread->groups[kind]);
        for (size_t i = 0; i < own->counts[kind]; i++) counts[own->layout[kind][i]] += thread->groups[kind].counted[i];
    }
}

/* --- events and threads --- */

/* Counts this thread for a moment; what a process may count of its own code only, it does. */
static void try_event(events *own, size_t event, group *probe) {
    const uint32_t kind = ALL[event].kind;
    int got = -EINVAL;
    for (int i = 0; i < (ALL[event].kernel_only ? 1 : 2); i++) {
        const uint64_t excluded = i ? EXCLUDE_KERNEL : 0;
        got = add_counter(own, probe, event, excluded, 0);
        if (got >= 0) {
            own->layout[kind][own->counts[kind]++] = event;
            own->excluded[event] = excluded;
            return;
        }
        if (got != -EACCES && got != -EPERM) break;
    }
    write_reason(own, -got, ALL[event].kernel_only, own->reasons[event]);
}

static void begin_thread(events *own, thread_events *thread) {
    bool good = true;
    for (int kind = 0; kind < KINDS && good; kind++) {
        group *group = &thread->groups[kind];
        for (size_t i = 0; i < own->counts[kind] && good; i++) {
            const size_t event = own->layout[kind][i];
            good = add_counter(own, group, event, own->excluded[event], thread->id) >= 0;
        }
        if (good && group->count) good = own->calls.enable(first_of(group)) >= 0; /* not before all have joined */
    }
    thread->counted = good;
    for (int kind = 0; kind < KINDS && !good; kind++) close_group(&thread->groups[kind]);
}

static void end_thread(events *own, thread_events *thread) {
    add_groups(own, thread, own->ended);
    for (int kind = 0; kind < KINDS; kind++) close_group(&thread->groups[kind]);
}

/* Has the thread of this number be known. */
static void meet(events *own, int id) {
    size_t place = 0;
    while (place < own->thread_count && own->threads[place].id != id) place++;
    if (place == own->thread_count) {
        thread_events *grown = realloc(own->threads, (place + 1) * sizeof *grown);
        if (!grown) return;
        own->threads = grown;
        grown[own->thread_count++] = (thread_events){.id = id};
        begin_thread(own, &grown[place]);
    }
    own->threads[place].seen = true;
}

/* Calls with each thread of the process. */
static void each_thread(const events *own, void (*called)(void *user, int id), void *user) {
    char path[PATH_BYTES + 16];
    snprintf(path, sizeof path, "%s/self/task", own->proc);
    DIR *folder = opendir(path);
    for (struct dirent *entry; folder && (entry = readdir(folder));)
        if (isdigit((unsigned char)*entry->d_name)) called(user, atoi(entry->d_name));
    if (folder) closedir(folder);
}

static void meet_thread(void *user, int id) { meet(user, id); }

void events_refresh(events *own) {
    if (!own->counts[HARDWARE] && !own->counts[SOFTWARE]) return;
    for (size_t i = 0; i < own->thread_count; i++) own->threads[i].seen = false;
    each_thread(own, meet_thread, own);
    for (size_t i = own->thread_count; i > 0; i--) {
        if (own->threads[i - 1].seen) continue;
        end_thread(own, &own->threads[i - 1]);
        own->threads[i - 1] = own->threads[--own->thread_count];
    }
}

events *events_open(const event_calls *calls, const char *proc) {
    events *made = calloc(1, sizeof *made);
    if (!made) return NULL;
    made->calls = calls ? *calls : (event_calls){open_counter, enable_counter};
    snprintf(made->proc, sizeof made->proc, "%s", proc);
    for (uint32_t kind = 0; kind < KINDS; kind++) { /* groups of their own: one counts while all of it fits */
        group probe = {.count = 0};
        for (size_t event = 0; event < EVENTS; event++)
            if (ALL[event].kind == kind) try_event(made, event, &probe);
        close_group(&probe);
    }
    events_refresh(made);
    return made;
}

void events_read(events *own, uint64_t counts[EVENTS]) {
    memcpy(counts, own->ended, sizeof own->ended);
    for (size_t i = 0; i < own->thread_count; i++) add_groups(own, &own->threads[i], counts);
}

typedef struct listing {
    const events *own;
    preemption *rows;
    size_t count, most;
} listing;

static void list_preemptions(void *user, int id) {
    static const char LINE[] = "\nnonvoluntary_ctxt_switches:";
    listing *const list = user;
    char name[64], text[STATUS_BYTES];
    snprintf(name, sizeof name, "self/task/%d/status", id);
    if (list->count == list->most || !read_text(list->own, name, text, sizeof text)) return;
    const char *const found = (strstr)(text, LINE);
    if (found) list->rows[list->count++] = (preemption){id, strtoull(found + sizeof LINE - 1, NULL, 10)};
}

size_t events_preemptions(const events *own, preemption *rows, size_t most) {
    listing list = {own, rows, 0, most};
    each_thread(own, list_preemptions, &list);
    return list.count;
}

void events_close(events *own) {
    if (!own) return;
    for (size_t i = 0; i < own->thread_count; i++) end_thread(own, &own->threads[i]);
    free(own->threads);
    free(own);
}
