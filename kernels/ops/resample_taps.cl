// Resizing of maps by weighted sums along both axes: linear, cubic, with or without antialiasing.
//
//   output[n, y, x, c] = EPILOGUE( sum over i < TAPS_Y, j < TAPS_X of
//                                  row_weights[y, i] * column_weights[x, j] * input[n, rows[y, i], columns[x, j], c] )
//
// What the weights of a pixel lack to one is OUTSIDE. Places are cut to the map, so that nothing outside of it is read.
//
// Work split: dimension 0 runs over vectors of VW channels, dimension 1 over strips of WPT neighbouring pixels of an
// output row.
// Preconditions: VW <= CHANNELS, fewer than 2^31 elements.

#ifndef MAPS
#define MAPS 1               // batch
#define HEIGHT 4             // of the input
#define WIDTH 4
#define CHANNELS 8
#define OUT_HEIGHT 8
#define OUT_WIDTH 8
#define TAPS_Y 2             // elements that are weighted
#define TAPS_X 2
#endif
#ifndef VW
#define VW 4                 // channels of a vector
#define WPT 1                // pixels of a work-item
#define DIMX 1               // work-group
#define DIMY 1
#endif
#ifndef EPILOGUE
#define OUTSIDE 0.0f
#define OPERAND_PARAMETERS   // ", __global const TYPE *restrict operand0, ..."
#define EPILOGUE(value, T, LOAD, offset)
#endif

#include "vectors.cl"

#define VECTORS ((CHANNELS + VW - 1) / VW)
#define STRIPS ((OUT_WIDTH + WPT - 1) / WPT)
#if TAPS_Y * TAPS_X <= 16    // more would take long to compile
#define UNROLL_TAPS UNROLL
#else
#define UNROLL_TAPS
#endif

__kernel __attribute__((reqd_work_group_size(DIMX, DIMY, 1)))
void resample_taps(
    __global const TYPE *restrict input, __global const int *restrict rows, __global const TYPE *restrict row_weights,
    __global const int *restrict columns, __global const TYPE *restrict column_weights,
    __global TYPE *restrict output OPERAND_PARAMETERS)
{
    const int vector = get_global_id(0);
    const int strip = get_global_id(1);
    if (vector >= VECTORS || strip >= MAPS * OUT_HEIGHT * STRIPS)
        return;
    const int channel = min(vector * VW, CHANNELS - VW);
    const int row = strip / STRIPS;
    const int y = row % OUT_HEIGHT;
    __global const TYPE *map = input + row / OUT_HEIGHT * (HEIGHT * WIDTH * CHANNELS) + channel;
    const int first = strip % STRIPS * WPT;
    const int last = min(first + WPT, OUT_WIDTH);

    for (int x = first; x < last; ++x) {
        vec value = (vec)(0.0f);
        SUM total = 0.0f;
        UNROLL_TAPS
        for (int i = 0; i < TAPS_Y; ++i) {
            __global const TYPE *line = map + clamp(rows[y * TAPS_Y + i], 0, HEIGHT - 1) * (WIDTH * CHANNELS);
            UNROLL_TAPS
            for (int j = 0; j < TAPS_X; ++j) {
                const SUM weight = ELEMENT(row_weights, y * TAPS_Y + i) * ELEMENT(column_weights, x * TAPS_X + j);
                value += weight * LOAD(line, clamp(columns[x * TAPS_X + j], 0, WIDTH - 1) * CHANNELS);
                total += weight;
            }
        }
        value += (vec)((1.0f - total) * OUTSIDE);
        const int offset = (row * OUT_WIDTH + x) * CHANNELS + channel;
        EPILOGUE(value, vec, LOAD, offset)
#if CHANNELS % VW
        if (vector == VECTORS - 1) {
            SUM lanes[VW];
            OWN_STORE(value, lanes, 0);
            for (int i = VECTORS * VW - CHANNELS; i < VW; ++i)
                STORE_ELEMENT(lanes[i], output, offset + i);
            continue;
        }
#endif
        STORE(value, output, offset);
    }
}
