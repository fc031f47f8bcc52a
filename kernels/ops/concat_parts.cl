// Tensors put one behind the other along an axis.
//
//                 part 0    part 1      part 2
//               +--------+-----------+----------+
//   output[row] |        |           |          |   LENGTH elements; row < ROWS
//               +--------+-----------+----------+
//
// The text before this file names the parts: PART(name, size, start) for rows of `size` elements of the input `name`,
// which begin at element `start` of the output's.
//
// Work split: dimension 0 runs over the vectors of VW elements of a row, part after part, dimension 1 over groups of WPT
// neighbouring rows. A part's last vector may be shorter and is then copied element by element.
// Preconditions: fewer than 2^31 elements.

#ifndef ROWS
#define ROWS 16
#define LENGTH 24            // elements of a row of the output
#endif
#ifndef VW
#define VW 4                 // elements of a vector
#define WPT 1                // rows of a work-item
#define DIMX 1               // work-group
#define DIMY 1
#endif
#ifndef PARTS
#define INPUT_PARAMETERS __global const TYPE *restrict input0, __global const TYPE *restrict input1,
#define PARTS PART(input0, 16, 0) PART(input1, 8, 16)
#endif

#include "vectors.cl"

// One vector of a part, of WPT rows from the first on.
static void copy(__global const TYPE *restrict part, __global TYPE *restrict output, int size, int start, int vector,
                 int first)
{
    const int x = vector * VW;
    const int last = min(first + WPT, ROWS);
    part += x;
    output += start + x;
    if (x + VW <= size)
        for (int row = first; row < last; ++row)
            STORE(LOAD(part, row * size), output, row * LENGTH);
    else
        for (int row = first; row < last; ++row)
            for (int i = 0; i < size - x; ++i)
                STORE_ELEMENT(ELEMENT(part, row * size + i), output, row * LENGTH + i);
}

// Copies when the vector is one of this part's, else makes it a vector of the parts behind.
#define PART(name, size, start)                         \
    if (vector < (size + VW - 1) / VW) {                \
        copy(name, output, size, start, vector, first); \
        return;                                         \
    }                                                   \
    vector -= (size + VW - 1) / VW;

__kernel __attribute__((reqd_work_group_size(DIMX, DIMY, 1)))
void concat_parts(INPUT_PARAMETERS __global TYPE *restrict output)
{
    const int first = get_global_id(1) * WPT;
    int vector = get_global_id(0);
    PARTS
}
