// Max and average pooling of NHWC maps.
//
//   output[n, y, x, c] = EPILOGUE(reduce over ky < KH, kx < KW of input[n, y*SH - PT + ky, x*SW - PL + kx, c])
//
// Positions outside the map take no part; max passes over NaN. An average divides by the positions inside the map,
// with COUNT_INCLUDE_PAD by those inside map and padding. Global pooling is a window as large as the map.
//
// Work split: dimension 0 runs over vectors of VW channels, dimension 1 over strips of WPT neighbouring pixels of an
// output row. A window's row is reduced in ACC independent accumulators.
// Preconditions: VW <= CHANNELS, every window sees a part of the map, fewer than 2^31 elements.

#ifndef MAPS
#define MAPS 1               // batch
#define HEIGHT 8             // of the input
#define WIDTH 8
#define CHANNELS 8
#define OUT_HEIGHT 4
#define OUT_WIDTH 4
#define KH 3                 // window
#define KW 3
#define SH 2                 // strides
#define SW 2
#define PT 1                 // padding: top, left, bottom, right
#define PL 1
#define PB 1
#define PR 1
#define AVERAGE 0            // 1: average, 0: max
#define COUNT_INCLUDE_PAD 0
#endif
#ifndef VW
#define VW 4                 // channels of a vector
#define WPT 1                // pixels of a work-item
#define ACC 1                // accumulators
#define DIMX 1               // work-group
#define DIMY 1
#endif
#ifndef EPILOGUE
#define OPERAND_PARAMETERS   // ", __global const float *restrict operand0, ..."
#define EPILOGUE(value, T, LOAD, offset)
#endif

#include "vectors.cl"

#define VECTORS ((CHANNELS + VW - 1) / VW)
#define STRIPS ((OUT_WIDTH + WPT - 1) / WPT)
// Whether any window reaches out of the map.
#define CLIPPED (PT > 0 || PL > 0 || (OUT_HEIGHT - 1) * SH + KH > HEIGHT || (OUT_WIDTH - 1) * SW + KW > WIDTH)

#if AVERAGE
#define START 0.0f
#define REDUCE(total, value) ((total) + (value))
#else
#define START (-INFINITY)
#define REDUCE(total, value) ((value) > (total) ? (value) : (total))
#endif

__kernel __attribute__((reqd_work_group_size(DIMX, DIMY, 1)))
void pool_window(__global const float *restrict input, __global float *restrict output OPERAND_PARAMETERS)
{
    const int vector = get_global_id(0);
    const int strip = get_global_id(1);
    if (vector >= VECTORS || strip >= MAPS * OUT_HEIGHT * STRIPS)
        return;
    const int channel = min(vector * VW, CHANNELS - VW);
    const int row = strip / STRIPS;
    const int map = row / OUT_HEIGHT;
    const int top = row % OUT_HEIGHT * SH - PT;
    const int first = strip % STRIPS * WPT;
    const int last = min(first + WPT, OUT_WIDTH);

    for (int column = first; column < last; ++column) {
        const int left = column * SW - PL;
#if CLIPPED
        const int y_begin = max(top, 0), y_end = min(top + KH, HEIGHT);
        const int x_begin = max(left, 0), x_end = min(left + KW, WIDTH);
#else
        const int y_begin = top, y_end = top + KH;
        const int x_begin = left, x_end = left + KW;
#endif
        vec total[ACC];
        for (int i = 0; i < ACC; ++i)
            total[i] = (vec)(START);
        for (int y = y_begin; y < y_end; ++y) {
            __global const float *line = input + (map * HEIGHT + y) * WIDTH * CHANNELS + channel;
            int x = x_begin;
#if ACC > 1
            for (; x + ACC <= x_end; x += ACC) {
                #pragma unroll
                for (int i = 0; i < ACC; ++i) {
                    const vec value = LOAD(line, (x + i) * CHANNELS);
                    total[i] = REDUCE(total[i], value);
                }
            }
#endif
            for (; x < x_end; ++x) {
                const vec value = LOAD(line, x * CHANNELS);
                total[0] = REDUCE(total[0], value);
            }
        }
        vec result = total[0];
        for (int i = 1; i < ACC; ++i)
            result = REDUCE(result, total[i]);
#if AVERAGE && COUNT_INCLUDE_PAD
        result /= (vec)((min(top + KH, HEIGHT + PB) - top) * (min(left + KW, WIDTH + PR) - left));
#elif AVERAGE
        result /= (vec)((y_end - y_begin) * (x_end - x_begin));
#endif

        const int offset = (row * OUT_WIDTH + column) * CHANNELS + channel;
        EPILOGUE(result, vec, LOAD, offset)
#if CHANNELS % VW
        if (vector == VECTORS - 1) {
            float lanes[VW];
            STORE(result, lanes, 0);
            for (int i = VECTORS * VW - CHANNELS; i < VW; ++i)
                output[offset + i] = lanes[i];
            continue;
        }
#endif
        STORE(result, output, offset);
    }
}
