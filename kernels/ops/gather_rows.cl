// Parts of a tensor that indices point at.
//
//   output[row, x] = input[place(row) + sum over k < DEPTH of at(indices[look(row) + k], extent k) * step k + x]
//
// The text before this file says where: PLACE(row) is where a row's part of the input begins, LOOK(row) where its
// indices begin, and FIND adds AT(k, extent, step) for each of them. A negative index counts from the end; one that is
// out of range is cut, so that nothing outside of the input is ever read.
//
// Work split: dimension 0 runs over vectors of VW elements, WPTX to a work-item; dimension 1 over rows, WPTY to a
// work-item. Neighbouring work-items take neighbouring vectors and rows.
// Preconditions: VW <= INNER, fewer than 2^31 elements.

#ifndef INNER
#define INNER 64             // elements of a row of the output
#define ROWS 16
#endif
#ifndef VW
#define VW 4                 // elements of a vector
#define WPTX 1               // vectors of a work-item along a row
#define WPTY 1               // rows of a work-item
#define DIMX 1               // work-group
#define DIMY 1
#endif
#ifndef FIND
#define INDEX_TYPE long
#define PLACE(row) 0
#define LOOK(row) (row)
#define FIND AT(0, 100, INNER)
#endif

#include "vectors.cl"

#define VECTORS ((INNER + VW - 1) / VW)
#define AT(k, extent, step) base += at(indices[look + k], extent) * (step);

static int at(INDEX_TYPE index, int extent)
{
    const long wanted = index;
    return (int)clamp(wanted < 0 ? wanted + extent : wanted, 0L, (long)extent - 1);
}

__kernel __attribute__((reqd_work_group_size(DIMX, DIMY, 1)))
void gather_rows(
    __global const TYPE *restrict input, __global const INDEX_TYPE *restrict indices, __global TYPE *restrict output)
{
    const int first_vector = get_group_id(0) * DIMX * WPTX + get_local_id(0);
    const int first_row = get_group_id(1) * DIMY * WPTY + get_local_id(1);

    for (int j = 0; j < WPTY; ++j) {
        const int row = first_row + j * DIMY;
        if (row >= ROWS)
            break;
        const int look = LOOK(row);
        int base = PLACE(row);
        FIND
        for (int i = 0; i < WPTX; ++i) {
            const int vector = first_vector + i * DIMX;
            if (vector >= VECTORS)
                break;
            const int x = min(vector * VW, INNER - VW);
#if INNER % VW
            if (vector == VECTORS - 1) {
                for (int k = vector * VW; k < INNER; ++k)
                    STORE_ELEMENT(ELEMENT(input, base + k), output, row * INNER + k);
                continue;
            }
#endif
            STORE(LOAD(input, base + x), output, row * INNER + x);
        }
    }
}
