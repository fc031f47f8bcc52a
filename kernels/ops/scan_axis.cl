// Running sums or products along the middle axis of a tensor [OUTER, AXIS, INNER].
//
//   output[o, a, i] = sum over b <= a (EXCLUSIVE: b < a) of input[o, b, i]; with REVERSE b >= a, b > a
//
// Work split: a work-item follows VW neighbouring i of one o along the axis.
// Preconditions: VW <= INNER, fewer than 2^31 elements.

#ifndef OUTER
#define OUTER 4
#define AXIS 10
#define EXTENT 4             // INNER
#define PRODUCT 0            // 1: products, 0: sums
#define EXCLUSIVE 0
#define REVERSE 0
#endif
#ifndef VW
#define VW 4                 // elements of a vector
#define DIMX 1               // work-group
#endif

#define ALONG 0
#define LANES 1
#include "rows.cl"

__kernel __attribute__((reqd_work_group_size(DIMX, 1, 1)))
void scan_axis(__global const TYPE *restrict input, __global TYPE *restrict output)
{
    const int row = get_global_id(0);
    if (row >= OUTER * BLOCKS)
        return;
    const int elements = ELEMENTS(row, 0);
    const int start = row / BLOCKS * AXIS * EXTENT + row % BLOCKS * VW;
    vec total = (vec)(PRODUCT);
    for (int step = 0; step < AXIS; ++step) {
        const int at = start + (REVERSE ? AXIS - 1 - step : step) * EXTENT;
        const vec value = load(input + at, elements, (vec)(PRODUCT));
#if EXCLUSIVE
        store(total, output + at, elements);
#endif
        total = PRODUCT ? total * value : total + value;
#if !EXCLUSIVE
        store(total, output + at, elements);
#endif
    }
}
