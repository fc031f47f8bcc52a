// Packed weights are asked for before they are read, where PF is not 0 and the compiler knows how to.
//
//   PREFETCH(row, i, cache) the vector at row + i, for i from 0 on in steps of a vector, once for each line of a cache,
//                           into FIRST_CACHE or SECOND_CACHE
//   PREFETCH_AHEAD(row, i)  the same, where a panel is read once: row is PF rows ahead
//   PREFETCH_SHARE(next, pitch, steps)
//                           where a panel is read several times in turn, which a template says by PASSES in front of
//                           this file: each pass asks for its share of the next panel, so many rows of NW floats for
//                           so many steps of the reduction, and moves `next` on
//
// A core waits for memory in the first pass over a panel that was not asked for, and memory for the core in the others,
// which find the panel in a cache. A share is for later and goes to the second cache: in the first it would take the
// place of what is used now.

#define CACHE_LINE 16 // floats
#define FIRST_CACHE 3 // as __builtin_prefetch counts
#define SECOND_CACHE 2
#if PF && defined(__has_builtin)
#if __has_builtin(__builtin_prefetch)
#define PREFETCH(row, i, cache) ((i) % CACHE_LINE ? (void)0 : __builtin_prefetch((row) + (i), 0, cache))
#endif
#endif
#ifndef PREFETCH
#define PREFETCH(row, i, cache)
#endif

#if PF && PASSES > 1
#define PREFETCH_AHEAD(row, i)
#define PREFETCH_SHARE(next, pitch, steps)                                   \
    UNROLL for (int a = 0; a < ((steps) + PASSES - 1) / PASSES; ++a) {       \
        UNROLL for (int v = 0; v < NV; ++v)                                  \
            PREFETCH(next, v * VW, SECOND_CACHE);                            \
        next += (pitch);                                                     \
    }
#else
#define PREFETCH_AHEAD(row, i) PREFETCH(row, i, FIRST_CACHE)
#define PREFETCH_SHARE(next, pitch, steps)
#endif
