/* Clocks, temperatures and load of the machine, as runtime/devices/state.py reads them from small files of Linux. */
#ifndef GPUTUNE_STATE_H
#define GPUTUNE_STATE_H

#include <stddef.h>
#include <stdint.h>

enum { STATE_NAME_BYTES = 64, MOST_STATE_VALUES = 64 };

typedef struct state_value {
    char name[STATE_NAME_BYTES]; /* with the unit at its end */
    double value;
} state_value;
typedef struct state_files state_files;

/* Finds out which files there are below a folder, "" for the system's; NULL where there is no memory. */
state_files *state_open(const char *root);
/* Reads the state now, as far as that can be read; the number of values. No file is begun after so long. */
size_t state_read(const state_files *files, uint64_t most_ns, state_value values[MOST_STATE_VALUES]);
void state_close(state_files *files);

#endif
