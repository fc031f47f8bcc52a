// SMALL_TILE: whether a tile of MR x NW accumulators is as small as those of GPUs. Such a tile is in registers as long as
// all indices are known, and memory is far away. A CPU has larger tiles, and its private arrays are in the first cache.
// TAILS: in front of loops over the elements of a tile that are stored one by one. They are unrolled in a small tile; the
// program of a large one would become long.

#ifndef MR
#define MR 1
#define NW 1
#endif
#define SMALL_TILE (MR * NW <= 64)
#if SMALL_TILE
#define TAILS UNROLL
#else
#define TAILS
#endif
