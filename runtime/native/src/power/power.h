/* What is voted for, and what brings a device there: as runtime/power/records.py and runtime/power/actuators/. */
#ifndef GPUTUNE_POWER_H
#define GPUTUNE_POWER_H

#include "../files/context.h"

enum { CORNER_MIN = 1, SVS2, SVS, SVS_PLUS, NOM, NOM_PLUS, TURBO, TURBO_PLUS, CORNER_MAX };
enum { SAVER_AGGRESSIVE, SAVER, DUTY_CYCLE, UP_DOWN, ONLY_UP, PERFORMANCE, MODES }; /* the weakest first */
/* Places of a vote. Bus and core: corners least, target and most; 0 leaves an end alone. HELD: no governor scales. */
enum { BUS, CORE = 3, HELD = 6, HIGH, MODE, LATENCY_US, VOTE_FIELDS };
enum { NO_LATENCY = INT32_MAX, CONTENT_BYTES = 128 /* no control's content is as long */ };
typedef struct vote {
    int32_t at[VOTE_FIELDS];
} vote;

typedef struct file {
    struct file *next;
    const char *path;
    bool known; /* what it contained before any vote */
    char original[CONTENT_BYTES], wanted[CONTENT_BYTES];
} file;

typedef struct steering {
    pool pool;
    char key[256]; /* names the controls, the same in all processes */
    struct control *controls;
    file *files, **end; /* of all controls that outlive this process */
    const char *latency_path;
    int latency_file; /* open while there is a request of this process; else -1 */
    int32_t latency_us;
    void (*tell)(void *user, const char *format, ...); /* of what could not be done */
    void *user;
} steering;

/* What steers a device, found by its type and vendor and by the files below a root. */
void steering_find(steering *steering, const identity *device, const char *root);
/* Brings the device to a vote of all processes, and to this one's latency. Whether something was refused. */
bool steering_apply(steering *steering, const vote *vote, int32_t latency_us);
void steering_close(steering *steering);
/* Reads a file whole; false where it cannot be read or is longer. */
bool content_of(const char *path, char *content, size_t size);

#endif
