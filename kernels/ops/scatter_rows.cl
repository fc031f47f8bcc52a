// A tensor with updates put where indices point at.
//
//   output[row, x] = REDUCE over each c < COUNT whose indices point at the row, in this order,
//                    of data[row, x] and updates[look(row) + c * UPDATE_STEP + x]
//
// Seen from the output: each row looks through the updates for its own, so that nothing is written twice, and the order
// of updates is kept. The text before this file says where: LOOK(row) is where a row's indices and updates begin,
// HERE(row) the number that indices must add up to, REACHED(row) whether there are any for the row, and FIND adds
// AT(k, extent, step) for each index of an update. A negative index counts from the end; what is out of range is
// nowhere.
//
// Work split: dimension 0 runs over vectors of VW elements, WPTX to a work-item; dimension 1 over rows, WPTY to a
// work-item. Neighbouring work-items take neighbouring vectors and rows.
// Preconditions: VW <= INNER, fewer than 2^31 elements.

#ifndef INNER
#define INNER 64             // elements of a row of the output
#define ROWS 16
#define COUNT 4              // updates that a row looks through
#define INDEX_STEP 1         // between the indices of two updates
#define UPDATE_STEP 64       // between two updates
#endif
#ifndef VW
#define VW 4                 // elements of a vector
#define WPTX 1               // vectors of a work-item along a row
#define WPTY 1               // rows of a work-item
#define DIMX 1               // work-group
#define DIMY 1
#endif
#ifndef FIND
#define TYPE float
#define INDEX_TYPE long
#define LOOK(row) 0
#define HERE(row) (row)
#define REACHED(row) 1
#define FIND AT(0, ROWS, 1)
#define REDUCE(value, update) (update)
#endif

#include "vectors.cl"

#define VECTORS ((INNER + VW - 1) / VW)
#define AT(k, extent, step)                                       \
    {                                                             \
        const long wanted = indices[look + c * INDEX_STEP + k];   \
        const long index = wanted < 0 ? wanted + extent : wanted; \
        known &= index >= 0 && index < extent;                    \
        place += index * (step);                                  \
    }

__kernel __attribute__((reqd_work_group_size(DIMX, DIMY, 1)))
void scatter_rows(
    __global const TYPE *restrict data, __global const INDEX_TYPE *restrict indices,
    __global const TYPE *restrict updates, __global TYPE *restrict output)
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
            vec value = LOAD(data, row * INNER + x);
            const int look = LOOK(row);
            for (int c = 0; c < (REACHED(row) ? COUNT : 0); ++c) {
                long place = 0;
                int known = 1;
                FIND
                if (known && place == HERE(row))
                    value = REDUCE(value, LOAD(updates, look + c * UPDATE_STEP + x));
            }
#if INNER % VW
            if (vector == VECTORS - 1) {
                TYPE lanes[VW];
                STORE(value, lanes, 0);
                for (int lane = VECTORS * VW - INNER; lane < VW; ++lane)
                    output[row * INNER + x + lane] = lanes[lane];
                continue;
            }
#endif
            STORE(value, output, row * INNER + x);
        }
    }
}
