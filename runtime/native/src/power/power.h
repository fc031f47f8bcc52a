/* What is voted for, and what brings a device there. A thread of each gputune_power uses all of it but `lock`'s. */
#ifndef GPUTUNE_POWER_H
#define GPUTUNE_POWER_H

#include "votes.h"
#include "../files/threads.h"

#include <sys/stat.h>

enum { CORNER_MIN = 1, SVS2, SVS, SVS_PLUS, NOM, NOM_PLUS, TURBO, TURBO_PLUS, CORNER_MAX };
enum { SAVER_AGGRESSIVE, SAVER, DUTY_CYCLE, UP_DOWN, ONLY_UP, PERFORMANCE, MODES };
enum { BUS = GPUTUNE_BUS, CORE = GPUTUNE_CORE, HELD = GPUTUNE_HELD, HIGH = GPUTUNE_HIGH_PERFORMANCE };
enum { MODE = GPUTUNE_POWER_MODE, LATENCY_US = GPUTUNE_LATENCY_US, VOTE_FIELDS = GPUTUNE_VOTE_FIELDS };
enum { NO_LATENCY = INT32_MAX, CONTENT_BYTES = 128 /* no control's content is as long */, PATH_BYTES = 1024 };
typedef gputune_vote vote;
extern const vote NO_VOTE; /* controls.c, as what follows */
bool is_vote(const vote *vote);
bool equal_votes(const vote *one, const vote *other);

/* presets.c; NULL ends it. */
typedef struct preset {
    const char *name;
    gputune_perf_settings settings;
} preset;
extern const preset PRESETS[];

/* --- notes.c: lines for people, each once --- */

enum { MOST_NOTES = 16, NOTE_BYTES = 384 };
typedef struct notes {
    mutex lock;
    char lines[MOST_NOTES + 1][NOTE_BYTES];
    size_t count;
} notes;
void note(notes *notes, const char *format, ...) LIKE_PRINTF(2, 3);
/* The line of a number; NULL behind the last. */
const char *noted(notes *notes, size_t number);

/* --- controls --- */

typedef struct actuator { /* what steers a device, or one kind of control of it */
    struct actuator *next;
    const char *kind;
    char name[24];     /* the kind, and a number where there are several */
    uint64_t honoured; /* bits, as in gputune_power_state */
    uint64_t told;     /* bits of the errors that were noted */
} actuator;

typedef struct file {
    struct file *next;
    const char *path;
    actuator *actuator;
    const struct lock *lock; /* nvml.c: it is no file, but this library's */
    bool write_only;         /* it reads otherwise than what is written to it */
    bool known;              /* what it contained before any vote */
    char original[CONTENT_BYTES], wanted[CONTENT_BYTES], now[CONTENT_BYTES];
} file;

enum { UPPER, LOWER, MOST_FREQUENCIES = 256, LIST_BYTES = 4096 };
enum { END_LOWER, END_UPPER, NOW, CLOCK_ROWS };

typedef struct control {
    struct control *next;
    enum kind { RANGE, GOVERNOR, PREFERENCE, AWAKE, BUS_ON, BOOST, FORCED, MANUAL, LEVEL, LOCK } kind;
    size_t corners;                  /* BUS or CORE */
    uint64_t domains;                /* of MANUAL: a bit for each that has levels */
    const char *word;                /* of a switch that is on; of a governor those that its driver has; of LEVEL all */
    int64_t steps[MOST_FREQUENCIES]; /* of a clock, ascending */
    size_t step_count;
    double unit_hz;   /* of steps, and of the frequency now */
    bool counts_down; /* its files have levels, of which 0 is the fastest */
    bool continuous;  /* any frequency between the ends will do */
    file *files[2];   /* one, or the two ends of a range */
    const file *mode; /* of LEVEL: that of its card */
    const char *label, *now_path;  /* of a clock; now_path: NULL for none */
    const char *names[CLOCK_ROWS]; /* of its rows in what is shown */
} control;

/* controls.c: what a vote means. The content that each file of a control shall have; of one that stays nothing. */
void choose(control *control, const vote *vote);
/* The frequency of a file's content in steps; -1 for what means nothing. */
int64_t step_of(const control *control, const char *content);
/* Both ends of a clock in steps, -1 for one without a vote; the lower end never above the upper one. */
void voted_ends(const control *control, const vote *vote, int64_t ends[2]);
/* The next level in a list of `0: 500Mhz *`; false behind the last. */
bool next_level(const char **at, int *number, int64_t *mhz, bool *in_use);

typedef struct steering {
    pool pool;
    notes *notes;
    char key[PATH_BYTES + 320]; /* names the controls, the same in all processes */
    actuator *actuators, **actuator_end, latency; /* latency: not among them */
    control *controls, **control_end;
    file *files, **end; /* of all controls that outlive this process */
    file **plan;        /* those to be written, in this order */
    size_t file_count, planned;
    struct nvml *nvml; /* NULL: the library is not used */
    const char *latency_path;
    int latency_file; /* open while there is a request of this process; else -1 */
    int32_t latency_us;
} steering;

/* parts.c */
/* Reads a file whole; false where it cannot be read or is longer. */
bool content_of(const char *path, char *content, size_t size);
/* Whether texts are equal but for blanks behind them. */
bool same_words(const char *one, const char *other);
/* Adds a control and its file, and of a range its lower end; nothing where they are not there. */
control *add_control(steering *steering, control made, actuator *actuator, const char *path, const char *lower);
actuator *add_actuator(steering *steering, const char *kind, uint64_t honoured);
void add_step(control *control, int64_t step);

/* find.c: what steers a device, by its type and vendor and by the files below a root; without a type all. */
enum { A_AMDGPU = 1, AN_INTEL = 2, A_KGSL = 4, AN_NVML = 8, A_DEVFREQ = 16, A_CPUFREQ = 32, ALL_KINDS = 63 };
unsigned kinds_of(const char *device_type, const char *vendor, const char *name);
void steering_find(steering *steering, unsigned kinds, const char *root);
/* nvml.c: adds the locked clocks of all GPUs of NVIDIA's library. */
void add_nvml(steering *steering);
void nvml_close(struct nvml *nvml);
/* Locks or resets clocks as a file of the library shall; 0 or an errno. */
int nvml_write(const file *file);
double nvml_now_hz(const struct lock *lock);

/* steering.c */
/* What files are to be written for a vote, as they contain `now`; back: what no process knows is written, too. */
void steering_plan(steering *steering, const vote *vote, bool back);
/* Brings the device to a vote of all processes, and to this one's latency. Whether something was refused. */
bool steering_apply(steering *steering, const vote *vote, int32_t latency_us, bool back);
/* Reads what all files contain now. */
void steering_read(steering *steering);
/* Writes what is requested of clocks for a vote, and what they are at; how many there are. */
size_t steering_clocks(const steering *steering, const vote *vote, gputune_clock *clocks, size_t most);
/* The latency in force, of all processes; NO_LATENCY for none. */
int32_t latency_now(const steering *steering);
void steering_close(steering *steering);
const char *errno_name(int error);
/* What an error means for a control, and what would allow a write of `value`. */
void advise(int error, const char *value, char *text, size_t size);

/* --- journal.c: the files that processes share --- */

enum { NAME_BYTES = 48, MOST_OTHERS = 256 };
typedef struct other { /* a live instance of this or another process */
    char name[NAME_BYTES];
    bool busy; /* slow writes go on, so that the journal is needed */
    vote vote;
} other;

typedef struct journal {
    notes *notes;
    char name[NAME_BYTES], boot[NAME_BYTES], folder[PATH_BYTES], stem[64]; /* name: of who votes here */
    int directory, lock; /* while they are held, else -1 */
    other others[MOST_OTHERS];
    size_t other_count;
    struct stat stamp;
} journal;

typedef enum found { NONE, FOUND, UNREADABLE } found;
void journal_open(journal *journal, const char *key, notes *notes);
/* Locks the files. NONE: another process holds them for long; UNREADABLE: they cannot be used. */
found journal_lock(journal *journal);
void journal_unlock(journal *journal);
/* Reads what others vote, what is in force and who brought that about. */
found read_table(journal *journal, vote *in_force, char by[NAME_BYTES]);
/* own: of this process; by: NULL for no process. */
void write_table(journal *journal, const vote *own, const vote *in_force, const char *by);
/* Takes over what controls contained before any vote. */
found read_originals(journal *journal, steering *steering);
/* Journals what they contain now, where that is not known yet. What is not known is never written. */
void keep_originals(journal *journal, steering *steering);
void clear_journal(journal *journal);
/* Whether another process has changed the votes since they were unlocked, or has ended. */
bool journal_changed(journal *journal);

/* --- power.c: votes in force --- */

struct gputune_power {
    long process;
    notes notes;
    mutex settling; /* of what follows, up to the next lock; held while controls are read and written */
    steering steering;
    journal journal;
    vote held, in_force; /* held: own, when the device was brought to it; in force: of all processes then */
    size_t looks_left;   /* until what could not be brought back is given up */
    bool behind;         /* the files were held by another process */
    pool shown;
    mutex lock; /* of the rest */
    condition changed;
    gputune_votes *first;
    vote aimed, cast; /* own, of what the thread does now, and when the files were written last */
    uint64_t sleeps_until;
    bool due, works, closing, abandoned, ended;
    thread thread;
};

/* Opens the controls of some kinds, as gputune_open_power does. */
gputune_code open_kinds(unsigned kinds, const char *root, gputune_power **power, gputune_error *error);
gputune_code check_power(const gputune_power *power, gputune_error *error);
/* Brings the device to what is in force with a vote of this process. `settling` is held. */
void settle(gputune_power *power, const vote *own);

#endif
