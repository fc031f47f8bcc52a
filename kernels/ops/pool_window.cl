// Max, average and Lp pooling of NHWC maps.
//
//   output[n, y, x, c] = EPILOGUE(reduce over ky < KH, kx < KW of input[n, y*SH - PT + ky*DH, x*SW - PL + kx*DW, c])
//
// Positions outside the map take no part; the maximum of a window with NaN is NaN. An average divides by the positions
// inside the map, with COUNT_INCLUDE_PAD by those inside map and padding; Lp is (sum |input|^NORM)^(1/NORM). Global
// pooling is a window as large as the map.
//
// Work split: dimension 0 runs over vectors of VW channels, dimension 1 over strips of WPT neighbouring pixels of an
// output row. A window's row is reduced in ACC independent accumulators. A sum of many positions is one of short sums,
// to which each addition of the next one adds what the last one has lost: so it keeps its digits however long it is.
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
#define DH 1                 // dilations
#define DW 1
#define KIND 0               // 0: max, 1: average, 2: Lp
#define NORM 0               // of Lp
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
#define OPERAND_PARAMETERS   // ", __global const TYPE *restrict operand0, ..."
#define EPILOGUE(value, T, LOAD, offset)
#endif

#include "vectors.cl"

#define VECTORS ((CHANNELS + VW - 1) / VW)
#define STRIPS ((OUT_WIDTH + WPT - 1) / WPT)
// The first tap of a window at `start` that is not before the map, and the first that is behind `size` elements.
#define FIRST_TAP(start, dilation) (max(-(start) + (dilation) - 1, 0) / (dilation))
#define END_TAP(start, dilation, taps, size) min(taps, ((size) - (start) + (dilation) - 1) / (dilation))
// Whether any window reaches out of the map.
#define LAST_ROW ((OUT_HEIGHT - 1) * SH + (KH - 1) * DH)
#define LAST_COLUMN ((OUT_WIDTH - 1) * SW + (KW - 1) * DW)
#define CLIPPED (PT > 0 || PL > 0 || LAST_ROW >= HEIGHT || LAST_COLUMN >= WIDTH)

// What is reduced at once: the window, or of a long sum as many positions of a row, or rows, as lose few digits.
#define LONG (KIND != 0 && KH * KW > 128)
#if LONG
#define BLOCK_COLUMNS (32 * ACC)
#define BLOCK_ROWS (BLOCK_COLUMNS < KW ? 1 : BLOCK_COLUMNS / KW)
#else
#define BLOCK_COLUMNS KW
#define BLOCK_ROWS KH
#endif

#if KIND == 0
#define START (-INFINITY)
#define TERM(value) (value)
#define REDUCE(total, value) ((value) > (total) || (value) != (value) ? (value) : (total))
#else
#define START 0.0f
#define REDUCE(total, value) ((total) + (value))
#if KIND == 1
#define TERM(value) (value)
#elif NORM == 1
#define TERM(value) fabs(value)
#elif NORM == 2
#define TERM(value) ((value) * (value))
#else
#define TERM(value) pow(fabs(value), (vec)(NORM))
#endif
#endif

__kernel __attribute__((reqd_work_group_size(DIMX, DIMY, 1)))
void pool_window(__global const TYPE *restrict input, __global TYPE *restrict output OPERAND_PARAMETERS)
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
        const int y_begin = FIRST_TAP(top, DH), y_end = END_TAP(top, DH, KH, HEIGHT);
        const int x_begin = FIRST_TAP(left, DW), x_end = END_TAP(left, DW, KW, WIDTH);
#else
        const int y_begin = 0, y_end = KH;
        const int x_begin = 0, x_end = KW;
#endif
        vec result = (vec)(START);
#if LONG
        vec lost = (vec)(0.0f);
#endif
        for (int y_block = y_begin; y_block < y_end; y_block += BLOCK_ROWS) {
            for (int x_block = x_begin; x_block < x_end; x_block += BLOCK_COLUMNS) {
                const int y_stop = min(y_block + BLOCK_ROWS, y_end), x_stop = min(x_block + BLOCK_COLUMNS, x_end);
                vec total[ACC];
                for (int i = 0; i < ACC; ++i)
                    total[i] = (vec)(START);
                for (int y = y_block; y < y_stop; ++y) {
                    __global const TYPE *line = input + ((map * HEIGHT + top + y * DH) * WIDTH + left) * CHANNELS + channel;
                    int x = x_block;
#if ACC > 1
                    for (; x + ACC <= x_stop; x += ACC) {
                        #pragma unroll
                        for (int i = 0; i < ACC; ++i) {
                            const vec value = LOAD(line, (x + i) * DW * CHANNELS);
                            total[i] = REDUCE(total[i], TERM(value));
                        }
                    }
#endif
                    for (; x < x_stop; ++x) {
                        const vec value = LOAD(line, x * DW * CHANNELS);
                        total[0] = REDUCE(total[0], TERM(value));
                    }
                }
                for (int i = 1; i < ACC; ++i)
                    total[0] = REDUCE(total[0], total[i]);
#if LONG
                const vec next = total[0] - lost, sum = result + next;
                lost = fabs(sum) < (vec)(INFINITY) ? (sum - result) - next : (vec)(0.0f);
                result = sum;
#else
                result = total[0];
#endif
            }
        }
#if KIND == 1 && COUNT_INCLUDE_PAD
        result /= (vec)(END_TAP(top, DH, KH, HEIGHT + PB) * END_TAP(left, DW, KW, WIDTH + PR));
#elif KIND == 1
        result /= (vec)((y_end - y_begin) * (x_end - x_begin));
#elif KIND == 2 && NORM == 2
        result = sqrt(result);
#elif KIND == 2 && NORM > 2
        result = pow(result, (vec)(1.0f / NORM));
#endif

        const int offset = (row * OUT_WIDTH + column) * CHANNELS + channel;
        EPILOGUE(result, vec, LOAD, offset)
#if CHANNELS % VW
        if (vector == VECTORS - 1) {
            SUM lanes[VW];
            OWN_STORE(result, lanes, 0);
            for (int i = VECTORS * VW - CHANNELS; i < VW; ++i)
                STORE_ELEMENT(lanes[i], output, offset + i);
            continue;
        }
#endif
        STORE(result, output, offset);
    }
}
