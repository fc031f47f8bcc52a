// PREFETCH(row, i) asks for the memory at row + i before it is read, where PF is not 0 and the compiler knows how to:
// once for each line of a cache, for i from 0 on in steps of a vector.

#define CACHE_LINE 16 // floats
#if PF && defined(__has_builtin)
#if __has_builtin(__builtin_prefetch)
#define PREFETCH(row, i) ((i) % CACHE_LINE ? (void)0 : __builtin_prefetch((row) + (i)))
#endif
#endif
#ifndef PREFETCH
#define PREFETCH(row, i)
#endif
