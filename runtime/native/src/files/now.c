/* The times that all others are compared with. */
#include "context.h" /* first: it says which functions of the system there are */

#include "threads.h"

uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

double processor_ns(void) { return (double)clock() * (1e9 / CLOCKS_PER_SEC); }
