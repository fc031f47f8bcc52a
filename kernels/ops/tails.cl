// TAILS: in front of loops over the elements of a tile of MR x NW accumulators that are stored one by one. A GPU's tiles
// are small, and in registers as long as all indices are known; the program of a CPU's large tile would become long.

#ifndef MR
#define MR 1
#define NW 1
#endif
#if MR * NW <= 64
#define TAILS UNROLL
#else
#define TAILS
#endif
