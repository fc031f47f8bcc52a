// Where the largest or smallest element of each row is, or a row of zeros with a one there.
//
//   output[row] = the first (LAST: the last) i at which input[row, i] is the extreme
//   ONE_HOT: output[row, i] = 1 at that i, else 0
//
// As in numpy, NaN is the extreme, and equal to itself.
//
// Work split: as in reduce_rows.cl. Of equal elements the nearer index wins wherever two are compared, so it does not
// matter in which order vectors, lanes and work-items are.
// Preconditions: LANES is a power of two, fewer than 2^31 elements, TYPE is a float with ONE_HOT.

#ifndef EXTENT
#define EXTENT 10            // elements of the innermost loop
#define ALONG 1              // 1: it is the axis, 0: it is behind the axis
#define COUNT 10             // elements of the axis
#define LARGEST 1            // 1: where the largest is, 0: the smallest
#define LAST 0
#define ONE_HOT 0
#endif
#ifndef VW
#define VW 4                 // elements of a vector
#define LANES 1              // work-items of a row
#define DIMY 1               // rows of a work-group
#endif
#ifndef ROWS
#define ROWS 4               // how many there are, and where one begins
#define ROW_OFFSET(row) ((row) * EXTENT)
#define STEPS BLOCKS         // vectors of a row, and where one lies in it
#define STEP_OFFSET(step) ((step) * VW)
#define WORST -INFINITY
#endif

#include "rows.cl"

#if VW == 1
typedef int indices;
#define INT(condition) (condition)
#else
typedef CAT(int, VW) indices;
#define INT CAT(convert_int, VW)
#endif
#if ALONG
typedef int place;
#define SCALAR_INT(condition) (condition)
#else
typedef indices place;
#define SCALAR_INT INT
#endif

#if LARGEST
#define BETTER(a, b) ((a) > (b) || ((a) != (a) && (b) == (b)))
#else
#define BETTER(a, b) ((a) < (b) || ((a) != (a) && (b) == (b)))
#endif
#if LAST
#define NEARER(a, b) ((a) > (b))
#define NOWHERE (-1)
#else
#define NEARER(a, b) ((a) < (b))
#define NOWHERE INT_MAX
#endif
// Keeps in (best, at) the better of it and (value, index).
#define KEEP_BETTER(AS_INT, value, index, best, at)                                                               \
    at = AS_INT(BETTER(value, best)) | (AS_INT(!BETTER(best, value)) & NEARER(index, at)) ? (index) : (at);       \
    best = BETTER(value, best) ? (value) : (best);


#if ONE_HOT
__kernel __attribute__((reqd_work_group_size(LANES, DIMY, 1)))
void arg_rows(__global const TYPE *restrict input, __global TYPE *restrict output LOCAL_POOL)
#else
__kernel __attribute__((reqd_work_group_size(LANES, DIMY, 1)))
void arg_rows(__global const TYPE *restrict input, __global long *restrict output LOCAL_POOL)
#endif
{
    const int lane = get_local_id(0);
    const int row = get_global_id(1);
    // Every work-item reaches the barriers: those beyond the last row have no steps.
    const uint steps = row < ROWS ? STEPS : 0;
    const uint start = ROW_OFFSET(row);
    int count[VW];
    for (int i = 0; i < VW; ++i)
        count[i] = ALONG ? i : 0;
    const indices inside = OWN_LOAD(count, 0);

    vec bests = (vec)(WORST);
    indices places = (indices)(NOWHERE);
    for (uint step = lane; step < steps; step += LANES) {
        const vec value = READ(step, (vec)(WORST));
        indices index = (indices)((int)step * (ALONG ? VW : 1)) + inside;
#if ALONG && RAGGED
        index = index < (indices)(COUNT) ? index : (indices)(NOWHERE);
#endif
        KEEP_BETTER(INT, value, index, bests, places)
    }
#if ALONG
    SUM values[VW];
    OWN_STORE(bests, values, 0);
    OWN_STORE(places, count, 0);
    one best = values[0];
    place at = count[0];
    for (int i = 1; i < VW; ++i) {
        KEEP_BETTER(SCALAR_INT, values[i], count[i], best, at)
    }
#else
    one best = bests;
    place at = places;
#endif
#if LANES > 1
    LOCAL(one, shared_best, DIMY * LANES);
    LOCAL(place, shared_at, DIMY * LANES);
    const int slot = get_local_id(1) * LANES + lane;
    shared_best[slot] = best;
    shared_at[slot] = at;
    for (int half_ = LANES / 2; half_ > 0; half_ /= 2) {
        barrier(CLK_LOCAL_MEM_FENCE);
        if (lane < half_) {
            KEEP_BETTER(SCALAR_INT, shared_best[slot + half_], shared_at[slot + half_], best, at)
            shared_best[slot] = best;
            shared_at[slot] = at;
        }
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    at = shared_at[slot - lane];
#endif
    at = at == (place)(NOWHERE) ? (place)(0) : at;

#if ONE_HOT
    for (uint step = lane; step < steps; step += LANES) {
        const indices index = (indices)((int)step * (ALONG ? VW : 1)) + inside;
        const vec value = index == (indices)(at) ? (vec)(1.0f) : (vec)(0.0f);
        store(value, output + start + STEP_OFFSET(step), ELEMENTS(row, step));
    }
#else
    if (lane == 0 && row < ROWS) {
#if ALONG
        output[row] = at;
#else
        OWN_STORE(at, count, 0);
        const int offset = row / BLOCKS * EXTENT + row % BLOCKS * VW;
        for (int i = 0; i < ELEMENTS(row, 0); ++i)
            output[offset + i] = count[i];
#endif
    }
#endif
}
