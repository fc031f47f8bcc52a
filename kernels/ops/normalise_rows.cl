// Rows of a tensor brought to one size: each element less its row's mean, divided by how large the elements are.
//
//   output[row, i] = EPILOGUE((input[row, i] - mean) * factor * scale[..] + bias[..])
//   mean   = mean of the row, 0 unless CENTRED; this and what it is taken from is measured from the row's first element
//   factor = FACTOR(sum over i of MAP(input[row, i])), such as 1 / sqrt(sum of (x - mean)^2 / COUNT + EPSILON)
//
// scale and bias lie as the input does, without the loops along which they do not vary.
//
// Work split: dimension 1 runs over rows as rows.cl has them, the LANES work-items of dimension 0 share one and reduce
// through local memory; with LANES == 1 there is neither local memory nor a barrier. A row is read two or three times,
// from the caches as a rule, so that its variance is that of distances and loses no digits.
// Preconditions: LANES is a power of two, fewer than 2^31 elements.

#ifndef EXTENT
#define EXTENT 10            // elements of the innermost loop
#define ALONG 1              // 1: it belongs to a row, 0: to neighbouring rows
#define COUNT 10             // elements of a row
#define CENTRED 1
#define SCALE 0              // 1: there is a scale
#define BIAS 0
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
#define SCALE_OFFSET(row, step) ((step) * VW)
#define VARIES 1             // whether scale and bias vary inside of a vector
#endif
#ifndef FACTOR
#define EPSILON 1e-5f
#define MAP(x) ((x) - (vec)(mean)) * ((x) - (vec)(mean))
#define FACTOR(sum) (one)(1.0f) / sqrt((sum) / (one)(COUNT) + (one)(EPSILON))
#endif
#ifndef EPILOGUE
#define OPERAND_PARAMETERS   // ", __global const TYPE *restrict operand0, ..."
#define EPILOGUE(value, T, LOAD, offset)
#endif
#ifndef SCALE_PARAMETERS
#define SCALE_PARAMETERS     // ", __global const TYPE *restrict scale, ..."
#endif

#define RELATIVE CENTRED
#include "rows.cl"

#define SAME(x) (x)
#define OPERAND(p, offset) load((p) + (offset), elements, (vec)(0))
#if VARIES
#define PARAMETER(p) load((p) + SCALE_OFFSET(row, step), elements, (vec)(0))
#else
#define PARAMETER(p) (vec)ELEMENT(p, SCALE_OFFSET(row, step))
#endif

__kernel __attribute__((reqd_work_group_size(LANES, DIMY, 1)))
void normalise_rows(__global const TYPE *restrict input,
                    __global TYPE *restrict output SCALE_PARAMETERS OPERAND_PARAMETERS LOCAL_POOL)
{
    const int lane = get_local_id(0);
    const int row = get_global_id(1);
    // Every work-item reaches the barriers: those beyond the last row have no steps.
    const uint steps = row < ROWS ? STEPS : 0;
    const uint start = ROW_OFFSET(row);
    SHARED

    ORIGIN
#if CENTRED
    REDUCE(mean, ADD, SAME, 0, (vec)(0))
    mean /= (one)(COUNT);
#else
    const one mean = (one)(0);
#endif
    REDUCE(sum, ADD, MAP, 0, (vec)(mean))
    const one factor = FACTOR(sum);

    for (uint step = lane; step < steps; step += LANES) {
        const int elements = ELEMENTS(row, step);
        const uint offset = start + STEP_OFFSET(step);
        vec value = (READ(step, (vec)(0)) - (vec)(mean)) * (vec)(factor);
#if SCALE
        value *= PARAMETER(scale);
#endif
#if BIAS
        value += PARAMETER(bias);
#endif
        EPILOGUE(value, vec, OPERAND, offset)
        store(value, output + offset, elements);
    }
}
