// Reduction of a tensor over some of its loops, to one number for each index of the others.
//
//   output[row] = EPILOGUE(FINISH(COMBINE over all x of the row of MAP(x)))
//
// With SHIFTED the row is reduced once before, to a `shift` that MAP may use: the maximum under an exponential, or the
// mean under a square. With RELATIVE each x is less the row's first element.
//
// Work split: dimension 1 runs over rows as rows.cl has them, the LANES work-items of dimension 0 share one and reduce
// through local memory; with LANES == 1 there is neither local memory nor a barrier. Each work-item reduces in ACC
// independent accumulators.
// Preconditions: LANES is a power of two, fewer than 2^31 elements.

#ifndef EXTENT
#define EXTENT 10            // elements of the innermost loop
#define ALONG 1              // 1: it is reduced, 0: it is kept
#define COUNT 10             // elements of a row
#endif
#ifndef VW
#define VW 4                 // elements of a vector
#define ACC 1                // accumulators
#define LANES 1              // work-items of a row
#define DIMY 1               // rows of a work-group
#endif
#ifndef ROWS
#define ROWS 4               // how many there are, and where one begins
#define ROW_OFFSET(row) ((row) * EXTENT)
#define STEPS BLOCKS         // vectors of a row, and where one lies in it
#define STEP_OFFSET(step) ((step) * VW)
#endif
#ifndef COMBINE
#define SHIFTED 0
#define RELATIVE 0
#define COMBINE ADD
#define MAP(x) (x)
#define START 0
#define FILL (vec)(0)        // what MAP makes START of
#define FINISH(x) (x)
#endif
#ifndef EPILOGUE
#define OPERAND_PARAMETERS   // ", __global const TYPE *restrict operand0, ..."
#define EPILOGUE(value, T, LOAD, offset)
#endif

#include "rows.cl"

#define SAME(x) (x)
#define OPERAND(p, offset) load((p) + (offset), elements, (vec)(0))

__kernel __attribute__((reqd_work_group_size(LANES, DIMY, 1)))
void reduce_rows(__global const TYPE *restrict input, __global TYPE *restrict output OPERAND_PARAMETERS LOCAL_POOL)
{
    const int lane = get_local_id(0);
    const int row = get_global_id(1);
    // Every work-item reaches the barriers: those beyond the last row have no steps.
    const uint steps = row < ROWS ? STEPS : 0;
    const uint start = ROW_OFFSET(row);
    SHARED

    ORIGIN
#if SHIFTED
    REDUCE(shift, SHIFT_COMBINE, SAME, SHIFT_START, (vec)(SHIFT_START))
    shift = SHIFT_FINISH(shift);
#endif
    REDUCE(result, COMBINE, MAP, START, FILL)
    result = FINISH(result);

    if (lane == 0 && row < ROWS) {
#if ALONG
        EPILOGUE(result, SUM, ELEMENT, row)
        STORE_ELEMENT(result, output, row);
#else
        const int offset = row / BLOCKS * EXTENT + row % BLOCKS * VW;
        const int elements = ELEMENTS(row, 0);
        EPILOGUE(result, vec, OPERAND, offset)
        store(result, output + offset, elements);
#endif
    }
}
