// Rows of a tensor that LANES work-items read in vectors, for the templates that include this file.
//
// Along (ALONG) a row is the elements of one result, read in vectors along it; else a row is VW neighbouring results,
// read in vectors across them. A row's vectors lie EXTENT elements in all, BLOCKS of them, on the innermost loop.
// Wanted: TYPE, VW, LANES, ALONG, EXTENT. Given: vec, and `one`, what a row is reduced to.
// READ(step, fill) is a vector of the row that begins at `start` of `input`. With RELATIVE it is less the row's first
// element, the `origin`: a mean is rounded to the digits of what it is the mean of, and the distances of elements that
// lie close together have many more digits. Of a row of one value all of them are 0.

#include "vectors.cl"

#define BLOCKS ((EXTENT + VW - 1) / VW)
#define RAGGED (EXTENT % VW)
// How many elements of the vector there are.
#define ELEMENTS(row, step) min(EXTENT - (ALONG ? (int)(step) : (row)) % BLOCKS * VW, VW)

#if ALONG
typedef SUM one;
#else
typedef vec one;
#endif

// The first `elements` of a vector; the others are those of `fill`.
static inline vec load(__global const TYPE *p, int elements, vec fill)
{
#if RAGGED
    if (elements < VW) {
        SUM lanes[VW];
        OWN_STORE(fill, lanes, 0);
        for (int i = 0; i < elements; ++i)
            lanes[i] = ELEMENT(p, i);
        return OWN_LOAD(lanes, 0);
    }
#endif
    return LOAD(p, 0);
}

#if RELATIVE
// The same, less `origin`.
static inline vec load_from(__global const TYPE *p, int elements, vec origin, vec fill)
{
#if RAGGED
    if (elements < VW) {
        SUM lanes[VW], rest[VW];
        OWN_STORE(load(p, elements, origin) - origin, lanes, 0);
        OWN_STORE(fill, rest, 0);
        for (int i = elements; i < VW; ++i)
            lanes[i] = rest[i];
        return OWN_LOAD(lanes, 0);
    }
#endif
    return LOAD(p, 0) - origin;
}

#if ALONG
#define FIRST ELEMENT(input, start)
#else
#define FIRST load(input + start, ELEMENTS(row, 0), (vec)(0))
#endif
#define ORIGIN             \
    one origin = (one)(0); \
    if (row < ROWS)        \
        origin = FIRST;
#define READ(step, fill) load_from(input + start + STEP_OFFSET(step), ELEMENTS(row, step), (vec)(origin), fill)
#else
#define ORIGIN
#define READ(step, fill) load(input + start + STEP_OFFSET(step), ELEMENTS(row, step), fill)
#endif

static inline void store(vec value, __global TYPE *p, int elements)
{
#if RAGGED
    if (elements < VW) {
        SUM lanes[VW];
        OWN_STORE(value, lanes, 0);
        for (int i = 0; i < elements; ++i)
            STORE_ELEMENT(lanes[i], p, i);
        return;
    }
#endif
    STORE(value, p, 0);
}

// A vector's elements reduced to one where they belong to the same result.
#if ALONG
#define HORIZONTAL(OP, result, value)         \
    one result;                               \
    {                                         \
        SUM lanes[VW];                        \
        OWN_STORE(value, lanes, 0);           \
        result = lanes[0];                    \
        for (int i = 1; i < VW; ++i)          \
            result = OP(result, lanes[i]);    \
    }
#else
#define HORIZONTAL(OP, result, value) one result = value;
#endif

// The same over the work-items of a row, which all reach it; `scratch`, `slot` and `lane` are the kernel's.
#if LANES > 1
#define SHARED LOCAL(one, scratch, DIMY * LANES); const int slot = get_local_id(1) * LANES + lane;
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
#define SHARED
#define SHARE(OP, result)
#endif

// What all vectors of a row are reduced to: OP over MAP(vector), from START on, in ACC independent accumulators. CHUNK
// vectors are summed first, then CHUNK of these sums, then those, so that long rows lose no digits. `lane` and
// `steps` are the kernel's; MAP(FILL) must be START.
#define CHUNK 64u
#define REDUCE(result, OP, MAP, START, FILL)                                                           \
    vec result##_lanes = (vec)(START), result##_some = (vec)(START);                                   \
    uint result##_chunks = 0;                                                                          \
    for (uint first = lane; first < steps; first += CHUNK * ACC * LANES) {                             \
        const uint end = min(first + CHUNK * ACC * LANES, steps);                                      \
        vec parts[ACC];                                                                                \
        for (int i = 0; i < ACC; ++i)                                                                  \
            parts[i] = (vec)(START);                                                                   \
        uint step = first;                                                                             \
        for (; step + (ACC - 1) * LANES < end; step += ACC * LANES) {                                  \
            UNROLL for (int i = 0; i < ACC; ++i) {                                                     \
                const vec element = READ(step + i * LANES, FILL);                                      \
                parts[i] = OP(parts[i], MAP(element));                                                 \
            }                                                                                          \
        }                                                                                              \
        for (; step < end; step += LANES) {                                                            \
            const vec element = READ(step, FILL);                                                      \
            parts[0] = OP(parts[0], MAP(element));                                                     \
        }                                                                                              \
        for (int i = 0; i < ACC; ++i)                                                                  \
            result##_some = OP(result##_some, parts[i]);                                               \
        if (++result##_chunks % CHUNK == 0) {                                                          \
            result##_lanes = OP(result##_lanes, result##_some);                                        \
            result##_some = (vec)(START);                                                              \
        }                                                                                              \
    }                                                                                                  \
    result##_lanes = OP(result##_lanes, result##_some);                                                \
    HORIZONTAL(OP, result, result##_lanes)                                                             \
    SHARE(OP, result)

#define ADD(a, b) ((a) + (b))
#define MUL(a, b) ((a) * (b))
// NaN stays: nothing is larger or smaller, and of two the second is taken.
#define MAX(a, b) ((b) > (a) || (b) != (b) ? (b) : (a))
#define MIN(a, b) ((b) < (a) || (b) != (b) ? (b) : (a))
