// A fused chain of elementwise steps over broadcast inputs.
//
//   output[row, x] = CHAIN(VALUE(row, x))
//
// The broadcast shape is collapsed to ROWS x INNER; the text before this file says where each input's element of
// (row, x) lies: along x an input is either contiguous, read as a vector (LOAD), or constant (SPLAT).
//
// Work split: dimension 0 runs over vectors of VW elements, WPTX to a work-item; dimension 1 over rows, WPTY to a
// work-item. Neighbouring work-items take neighbouring vectors and rows.
// Preconditions: VW <= INNER, fewer than 2^31 elements.

#ifndef INNER
#define INNER 64             // elements of a row
#define ROWS 16
#endif
#ifndef VW
#define VW 4                 // elements of a vector
#define WPTX 1               // vectors of a work-item
#define WPTY 1               // rows of a work-item
#define DIMX 1               // work-group
#define DIMY 1
#endif
#ifndef CHAIN
#define OPERAND_PARAMETERS   // ", __global const TYPE *restrict operand0, ..."
#define VALUE(row, x) LOAD(input, (row) * INNER + (x))
#define CHAIN(value, row, x)
#endif

#include "vectors.cl"
#define SPLAT(p, i) ((vec)ELEMENT(p, i))

#define VECTORS ((INNER + VW - 1) / VW)

__kernel __attribute__((reqd_work_group_size(DIMX, DIMY, 1)))
void elementwise_chain(__global const TYPE *restrict input, __global TYPE *restrict output OPERAND_PARAMETERS)
{
    const int first_vector = get_group_id(0) * DIMX * WPTX + get_local_id(0);
    const int first_row = get_group_id(1) * DIMY * WPTY + get_local_id(1);

    for (int i = 0; i < WPTX; ++i) {
        const int vector = first_vector + i * DIMX;
        if (vector >= VECTORS)
            break;
        const int x = min(vector * VW, INNER - VW);
        for (int j = 0; j < WPTY; ++j) {
            const int row = first_row + j * DIMY;
            if (row >= ROWS)
                break;
            vec value = VALUE(row, x);
            CHAIN(value, row, x)
#if INNER % VW
            if (vector == VECTORS - 1) {
                SUM lanes[VW];
                OWN_STORE(value, lanes, 0);
                for (int lane = VECTORS * VW - INNER; lane < VW; ++lane)
                    STORE_ELEMENT(lanes[lane], output, row * INNER + x + lane);
                continue;
            }
#endif
            STORE(value, output, row * INNER + x);
        }
    }
}
