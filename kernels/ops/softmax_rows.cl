// Softmax over the middle axis of a tensor [OUTER, AXIS, INNER], shifted by the maximum so that nothing overflows.
//
//   output[o, a, i] = exp(input[o, a, i] - m) / sum over a of exp(input[o, a, i] - m)
//   m = max over a of input[o, a, i]
//   LOG: the logarithm of that, input[o, a, i] - m - log(sum)
//   MASKED: zeros for a row that has no such sum, since all of it is -INFINITY
//
// Work split: dimension 1 runs over rows. With INNER == 1 a row is the AXIS elements of one o, read in vectors along
// it; else a row is VW neighbouring i of one o, read in vectors across it, and each lane is a softmax of its own.
// The LANES work-items of dimension 0 share a row and reduce through local memory; with LANES == 1 there is neither
// local memory nor a barrier. With KEEP the exponentials wait in the output for their sum, else they are computed
// twice.
// Preconditions: LANES is a power of two, neither KEEP nor MASKED with LOG, fewer than 2^31 elements.

#ifndef OUTER
#define OUTER 4
#define AXIS 10
#define INNER 1
#define LOG 0
#define MASKED 0
#endif
#ifndef VW
#define VW 4                 // elements of a vector
#define LANES 1              // work-items of a row
#define DIMY 1               // rows of a work-group
#define KEEP 0               // 1: exponentials are kept in the output, 0: computed again
#define EXP 0                // 1: exponentials are computed by exponential.cl itself, 0: by OpenCL's function
#endif

#include "vectors.cl"
#include "exponential.cl"

// Along a row: how many vectors, how far apart, and how many elements of one there are.
#if INNER == 1
#define ROWS OUTER
#define STEPS ((AXIS + VW - 1) / VW)
#define STEP VW
#define ELEMENTS(step) min(AXIS - (step) * VW, VW)
#define RAGGED (AXIS % VW)
typedef SUM one;             // what a row is reduced to
#else
#define BLOCKS ((INNER + VW - 1) / VW)
#define ROWS (OUTER * BLOCKS)
#define STEPS AXIS
#define STEP INNER
#define ELEMENTS(step) elements
#define RAGGED (INNER % VW)
typedef vec one;
#endif

#if MASKED
#define RESULT(value) ((value) == (value) ? (value) : (vec)(0.0f))
#else
#define RESULT(value) (value)
#endif

#define MAX(a, b) ((b) > (a) ? (b) : (a))
#define ADD(a, b) ((a) + (b))

// A loop over a vector that is not whole: a GPU has its elements in registers if it is unrolled. The wide vectors of a CPU
// would take a branch for each.
#if VW <= 4
#define TAILS UNROLL
#define ENDS(elements) VW
#else
#define TAILS
#define ENDS(elements) (elements)
#endif

// The first `elements` of a vector; the others are -INFINITY, which no maximum and no sum of exponentials sees.
static inline vec load(__global const TYPE *p, int elements)
{
#if RAGGED
    if (elements < VW) {
        SUM lanes[VW];
        TAILS for (int i = 0; i < VW; ++i)
            lanes[i] = i < elements ? ELEMENT(p, i) : -INFINITY;
        return OWN_LOAD(lanes, 0);
    }
#endif
    return LOAD(p, 0);
}

static inline void store(vec value, __global TYPE *p, int elements)
{
#if RAGGED
    if (elements < VW) {
        SUM lanes[VW];
        OWN_STORE(value, lanes, 0);
        TAILS for (int i = 0; i < ENDS(elements); ++i)
            if (i < elements)
                STORE_ELEMENT(lanes[i], p, i);
        return;
    }
#endif
    STORE(value, p, 0);
}

// A vector's elements reduced to one where they belong to the same softmax.
#if INNER == 1
#define HORIZONTAL(OP, result, value)         \
    SUM result;                               \
    {                                         \
        SUM lanes[VW];                        \
        OWN_STORE(value, lanes, 0);           \
        result = lanes[0];                    \
        for (int i = 1; i < VW; ++i)          \
            result = OP(result, lanes[i]);    \
    }
#else
#define HORIZONTAL(OP, result, value) vec result = value;
#endif

// The same over the work-items of a row.
#if LANES > 1
#define SHARE(OP, result)                                                                              \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                      \
    scratch[slot] = result;                                                                            \
    for (int half_ = LANES / 2; half_ > 0; half_ /= 2) {                                               \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                  \
        if (lane < half_)                                                                              \
            scratch[slot] = OP(scratch[slot], scratch[slot + half_]);                                  \
    }                                                                                                  \
    barrier(CLK_LOCAL_MEM_FENCE);                                                                      \
    result = scratch[slot - lane];
#else
#define SHARE(OP, result)
#endif

__kernel __attribute__((reqd_work_group_size(LANES, DIMY, 1)))
void softmax_rows(__global const TYPE *restrict input, __global TYPE *restrict output LOCAL_POOL)
{
    const int lane = get_local_id(0);
    const int row = get_global_id(1);
    // Every work-item reaches the barriers: those beyond the last row have no steps.
    const int steps = row < ROWS ? STEPS : 0;
#if LANES > 1
    LOCAL(one, scratch, DIMY * LANES);
    const int slot = get_local_id(1) * LANES + lane;
#endif
#if INNER == 1
    const int start = row * AXIS;
#else
    const int block = row % BLOCKS * VW;
    const int start = row / BLOCKS * AXIS * INNER + block;
    const int elements = min(INNER - block, VW);
#endif

    vec maxima = (vec)(-INFINITY);
    for (int step = lane; step < steps; step += LANES) {
        const vec value = load(input + start + step * STEP, ELEMENTS(step));
        maxima = MAX(maxima, value);
    }
    HORIZONTAL(MAX, maximum, maxima)
    SHARE(MAX, maximum)

    vec sums = (vec)(0.0f);
    for (int step = lane; step < steps; step += LANES) {
        const int at = start + step * STEP;
        const vec value = EXPONENTIAL(load(input + at, ELEMENTS(step)) - (vec)(maximum));
#if KEEP
        store(value, output + at, ELEMENTS(step));
#endif
        sums += value;
    }
    HORIZONTAL(ADD, sum, sums)
    SHARE(ADD, sum)

#if LOG
    const vec rest = (vec)(log(sum));
#else
    const vec scale = (vec)(1.0f) / (vec)(sum);
#endif
    for (int step = lane; step < steps; step += LANES) {
        const int at = start + step * STEP;
#if LOG
        store(load(input + at, ELEMENTS(step)) - (vec)(maximum) - rest, output + at, ELEMENTS(step));
#elif KEEP
        const vec value = load(output + at, ELEMENTS(step)) * scale;
        store(RESULT(value), output + at, ELEMENTS(step));
#else
        const vec value = EXPONENTIAL(load(input + at, ELEMENTS(step)) - (vec)(maximum)) * scale;
        store(RESULT(value), output + at, ELEMENTS(step));
#endif
    }
}
