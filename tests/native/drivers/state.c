/* Calls state.c for Python: names and values of the files below a folder. */
#define _DEFAULT_SOURCE /* POSIX beside C99 */
#include "devices/state.h"

#include "files/threads.h"

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

size_t read_below(const char *root, uint64_t most_ns, state_value values[MOST_STATE_VALUES]) {
    state_files *files = state_open(root);
    const size_t count = state_read(files, most_ns, values);
    state_close(files);
    return count;
}
