// Local response normalisation over the middle axis of a tensor [OUTER, AXIS, INNER].
//
//   output[o, a, i] = input[o, a, i] / (BIAS + FACTOR * sum of input[o, b, i]^2)^BETA
//   for a - BEFORE <= b < a - BEFORE + SIZE inside the axis
//
// Work split: dimension 0 runs over vectors. With INNER == 1 a vector is VW neighbouring a of one o, and b moves all of
// it; else VW neighbouring i of one o and a, of which dimension 1 runs over the a.
// Preconditions: VW <= AXIS or INNER, fewer than 2^31 elements.

#ifndef OUTER
#define OUTER 4
#define AXIS 10
#define INNER 1
#define SIZE 5
#endif
#ifndef VW
#define VW 4                 // elements of a vector
#define DIMX 1               // work-group
#endif
#ifndef BIAS
#define BIAS 1.0f
#define FACTOR 1e-4f
#define POWER(x) sqrt(x) * sqrt(sqrt(x))  // to the power of BETA
#endif
#define BEFORE ((SIZE - 1) / 2)

#include "vectors.cl"

#if INNER == 1
#define EXTENT AXIS
#define LINES OUTER
#else
#define EXTENT INNER
#define LINES (OUTER * AXIS)
#endif
#define VECTORS ((EXTENT + VW - 1) / VW)

// Elements of an axis from `first` on, zeros outside of the axis.
static inline vec around(__global const TYPE *line, int first)
{
    if (first >= 0 && first + VW <= AXIS)
        return LOAD(line, first);
    SUM lanes[VW];
    for (int i = 0; i < VW; ++i)
        lanes[i] = first + i >= 0 && first + i < AXIS ? ELEMENT(line, first + i) : 0.0f;
    return OWN_LOAD(lanes, 0);
}

__kernel __attribute__((reqd_work_group_size(DIMX, 1, 1)))
void lrn_channels(__global const TYPE *restrict input, __global TYPE *restrict output)
{
    const int vector = get_global_id(0) % VECTORS;
    const int line = get_global_id(0) / VECTORS;
    if (line >= LINES)
        return;
    // The last vector ends with the axis, and computes once more what it shares with the one before.
    const int x = min(vector * VW, EXTENT - VW);
    const int offset = line * EXTENT + x;

    vec sum = (vec)(0.0f);
#if INNER == 1
    for (int tap = -BEFORE; tap < SIZE - BEFORE; ++tap) {
        const vec value = around(input + line * AXIS, x + tap);
        sum += value * value;
    }
#else
    const int place = line % AXIS;
    for (int tap = max(-BEFORE, -place); tap < min(SIZE - BEFORE, AXIS - place); ++tap) {
        const vec value = LOAD(input, offset + tap * INNER);
        sum += value * value;
    }
#endif
    const vec base = (vec)(BIAS) + (vec)(FACTOR) * sum;
    const vec value = LOAD(input, offset) / (POWER(base));
#if EXTENT % VW
    if (vector == VECTORS - 1) {
        SUM lanes[VW];
        OWN_STORE(value, lanes, 0);
        for (int i = VECTORS * VW - EXTENT; i < VW; ++i)
            STORE_ELEMENT(lanes[i], output, offset + i);
        return;
    }
#endif
    STORE(value, output, offset);
}
