/* The processes of connections, as the process that listens has them. */
#ifndef GPUTUNE_LISTENER_H
#define GPUTUNE_LISTENER_H

#include "keys.h"

#include <signal.h>

enum { MOST_CONNECTIONS = 8, ENDED_BYTES = 200, SESSION_DIGITS = 32 };
enum { STRANGER = 3 }; /* the exit code of a connection that has not proved that it knows the token */

/* The process of a connection says this once its other side has proved the token: the random names of its session and
 * of an earlier one, or "". */
typedef struct introduction {
    char session[SESSION_DIGITS + 1], earlier[SESSION_DIGITS + 1];
} introduction;

/* The answer to it: whether there is a place, and how the process of the earlier session ended, if that was not in
 * order. */
typedef struct admission {
    bool admitted;
    char ended[ENDED_BYTES];
} admission;

/* Serves connections at a descriptor that listens, until a signal, or the end of the input if `input` is a descriptor
 * and not -1. `stopping` is set by signals. */
void listen_until_stopped(int descriptor, int input, const uint8_t stretched[KEY_BYTES], const char *salt,
                          const volatile sig_atomic_t *stopping);

/* Tries to compile and run a kernel on each device, and says how that went, or only what fails if `quiet`. Each device
 * is tried by a process of its own, which a driver may end. Returns whether there are devices and all of them work. */
bool check_devices(bool quiet);

/* Has this process end with its parent, of which the id is given. */
void end_with_parent(long parent);

#endif
