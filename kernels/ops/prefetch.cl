// PREFETCH(p) asks for the memory at p before it is read, where PF is not 0 and the compiler knows how to.

#if PF && defined(__has_builtin)
#if __has_builtin(__builtin_prefetch)
#define PREFETCH(p) __builtin_prefetch(p)
#endif
#endif
#ifndef PREFETCH
#define PREFETCH(p)
#endif
