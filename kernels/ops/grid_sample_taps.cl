// Elements of NHWC maps at places that a grid says, between them, and beyond their borders.
//
//   output[n, y, x, c] = sum over i, j < TAPS of weight_i * weight_j * input[n, row + i, column + j, c]
//
// where (column, row) is grid[n, y, x], scaled from -1 ... 1 to the map. PADDING says what lies beyond the map: nothing
// (0), the nearest element (1), or the map mirrored (2). TAPS is 1 for the nearest element, 2 for linear and 4 for cubic
// weights. Whatever the grid holds, nothing outside of the map is read.
//
// Work split: dimension 0 runs over vectors of VW channels, WPTX to a work-item; dimension 1 over output pixels, WPTY to
// a work-item. Neighbouring work-items take neighbouring vectors and pixels.
// Preconditions: VW <= INNER, fewer than 2^31 elements.

#ifndef INNER
#define INNER 8              // channels
#define ROWS 64              // output pixels of the whole batch
#define PIXELS 64            // of one map
#define HEIGHT 8             // of the input
#define WIDTH 8
#define TAPS 2
#define PADDING 0
#define ALIGNED 0            // 1: -1 and 1 are the centres of the outer elements, 0: their outer borders
#endif
#ifndef VW
#define VW 4                 // channels of a vector
#define WPTX 1               // vectors of a work-item
#define WPTY 1               // pixels of a work-item
#define DIMX 1               // work-group
#define DIMY 1
#endif

#include "vectors.cl"

#define VECTORS ((INNER + VW - 1) / VW)
#define LOW (ALIGNED ? 0.0f : -0.5f)
#define HIGH(size) (ALIGNED ? (size) - 1.0f : (size) - 0.5f)
#define A -0.75f             // of the cubic kernel

static SUM mirrored(SUM x, int size)
{
    const SUM low = LOW, high = HIGH(size), range = high - low;
    if (!(x < low || x > high))
        return x;
    if (range <= 0.0f)
        return low;
    const SUM beyond = x < low ? low - x : x - high;
    const SUM turns = floor(beyond / range);
    const SUM rest = beyond - turns * range;
    return (fmod(turns, 2.0f) != 0.0f) == (x < low) ? high - rest : low + rest;
}

// A number of the grid as a place on the map.
static SUM place(SUM g, int size)
{
    SUM x = ALIGNED ? (g + 1.0f) / 2.0f * (size - 1) : ((g + 1.0f) * size - 1.0f) / 2.0f;
    if (TAPS == 1)
        x = rint(x);
    if (PADDING == 2)
        x = mirrored(x, size);
    return fmin(fmax(x, -4.0f), size + 4.0f);  // what is further away is the same as that, and so is NaN
}

// Element i of the map, or -1 where nothing is.
static int element(int i, int size)
{
    if (PADDING == 0)
        return i >= 0 && i < size ? i : -1;
    return clamp(PADDING == 2 ? (int)mirrored(i, size) : i, 0, size - 1);
}

static SUM cubic(SUM distance)
{
    const SUM d = fabs(distance);
    return d <= 1.0f ? ((A + 2.0f) * d - (A + 3.0f)) * d * d + 1.0f : ((A * d - 5.0f * A) * d + 8.0f * A) * d - 4.0f * A;
}

// The taps around a place: which elements they are, and what they weigh.
static void taps(SUM x, int size, int *elements, SUM *weights)
{
    const int base = (int)floor(x) - (TAPS == 4 ? 1 : 0);
    UNROLL
    for (int i = 0; i < TAPS; ++i) {
        const SUM distance = x - (base + i);
        elements[i] = element(base + i, size);
        weights[i] = TAPS == 1 ? 1.0f : TAPS == 2 ? 1.0f - fabs(distance) : cubic(distance);
    }
}

__kernel __attribute__((reqd_work_group_size(DIMX, DIMY, 1)))
void grid_sample_taps(
    __global const TYPE *restrict input, __global const TYPE *restrict grid, __global TYPE *restrict output)
{
    const int first_vector = get_group_id(0) * DIMX * WPTX + get_local_id(0);
    const int first_row = get_group_id(1) * DIMY * WPTY + get_local_id(1);

    for (int j = 0; j < WPTY; ++j) {
        const int row = first_row + j * DIMY;
        if (row >= ROWS)
            break;
        int rows[TAPS], columns[TAPS];
        SUM row_weights[TAPS], column_weights[TAPS];
        taps(place(ELEMENT(grid, 2 * row), WIDTH), WIDTH, columns, column_weights);
        taps(place(ELEMENT(grid, 2 * row + 1), HEIGHT), HEIGHT, rows, row_weights);
        for (int i = 0; i < WPTX; ++i) {
            const int vector = first_vector + i * DIMX;
            if (vector >= VECTORS)
                break;
            const int channel = min(vector * VW, INNER - VW);
            __global const TYPE *map = input + row / PIXELS * (HEIGHT * WIDTH * INNER) + channel;
            vec value = (vec)(0.0f);
            UNROLL
            for (int y = 0; y < TAPS; ++y) {
                UNROLL
                for (int x = 0; x < TAPS; ++x)
                    if (rows[y] >= 0 && columns[x] >= 0)
                        value += row_weights[y] * column_weights[x] * LOAD(map, (rows[y] * WIDTH + columns[x]) * INNER);
            }
#if INNER % VW
            if (vector == VECTORS - 1) {
                SUM lanes[VW];
                OWN_STORE(value, lanes, 0);
                for (int lane = VECTORS * VW - INNER; lane < VW; ++lane)
                    STORE_ELEMENT(lanes[lane], output, row * INNER + channel + lane);
                continue;
            }
#endif
            STORE(value, output, row * INNER + channel);
        }
    }
}
