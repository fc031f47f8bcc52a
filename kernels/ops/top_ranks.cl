// The places of the K largest or smallest elements along an axis, in order.
//
//   output[o, rank(a), i] = a            for every a with rank(a) < K
//   rank(a) = how many elements of (o, :, i) come before a: better ones, and equal ones with a lower index
//
// Ranks differ, since no two elements come before each other, so every output is written, and once. NaN is larger than
// all else, and equal to itself.
//
// Work split: a work-item ranks EACH elements of the axis, NEXT apart, and reads all of it once:
//
//   axis  | a        a        a        |     the a of one work-item, EACH = 3; its neighbours rank what is beside them
//
// Preconditions: fewer than 2^31 elements.

#ifndef OUTER
#define OUTER 2
#define AXIS 10              // elements of the axis
#define INNER 1              // elements behind the axis
#define K 3                  // how many are wanted
#define LARGEST 1            // 1: the largest, 0: the smallest
#endif
#ifndef EACH
#define EACH 1               // elements of a work-item
#define DIMX 1               // work-items of a work-group
#endif

#include "elements.cl"

#define NEXT ((AXIS + EACH - 1) / EACH)

static inline int above(SUM a, SUM b)
{
    return a > b || (a != a && b == b);
}

#if LARGEST
#define BETTER(a, b) above(a, b)
#else
#define BETTER(a, b) above(b, a)
#endif

__kernel __attribute__((reqd_work_group_size(DIMX, 1, 1)))
void top_ranks(__global const TYPE *restrict input, __global long *restrict output)
{
    const int id = get_global_id(0);
    if (id >= OUTER * NEXT * INNER)
        return;
    const int i = id % INNER;
    const int first = id / INNER % NEXT;
    const int o = id / INNER / NEXT;
    __global const TYPE *line = input + o * AXIS * INNER + i;

    SUM own[EACH];
    int rank[EACH];
    for (int e = 0; e < EACH; ++e) {
        own[e] = ELEMENT(line, min(first + e * NEXT, AXIS - 1) * INNER);
        rank[e] = 0;
    }
    for (int b = 0; b < AXIS; ++b) {
        const SUM other = ELEMENT(line, b * INNER);
        UNROLL
        for (int e = 0; e < EACH; ++e)
            rank[e] += BETTER(other, own[e]) || (b < first + e * NEXT && !BETTER(own[e], other));
    }
    for (int e = 0; e < EACH; ++e)
        if (first + e * NEXT < AXIS && rank[e] < K)
            output[(o * K + rank[e]) * INNER + i] = first + e * NEXT;
}
