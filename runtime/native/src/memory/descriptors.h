/* What a file descriptor stands for, so that its memory cannot vanish while a device uses it. */
#ifndef GPUTUNE_DESCRIPTORS_H
#define GPUTUNE_DESCRIPTORS_H

#include "../files/context.h"

typedef struct described {
    bool dma_buf;    /* else a memfd that cannot shrink */
    uint64_t nbytes; /* of all of it */
} described;

/* Returns a descriptor of the caller's own, and what it stands for. Everything but a memfd that cannot shrink and a
 * dma-buf is GPUTUNE_UNUSABLE_MEMORY: when a file is cut short, what has it mapped ends with SIGBUS. */
gputune_code duplicate(int descriptor, int *own, described *found, gputune_error *error);
/* Returns a descriptor of new, zeroed memory that cannot change its size any more; -1 where there is none. */
int sealed_memfd(size_t nbytes);
/* Tells a dma-buf's exporter that the host begins or ends to use its memory, and if it writes, so that caches agree. */
gputune_code synchronise(int descriptor, bool begins, bool writes, gputune_error *error);
/* Whether two descriptors stand for the same memory. */
bool same_memory(int one, int other);

#endif
