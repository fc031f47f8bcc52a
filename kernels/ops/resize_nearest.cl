// Nearest-neighbour resizing of NHWC maps.
//
//   output[n, y, x, c] = EPILOGUE(input[n, row(y), column(x), c])
//
//   row(y) = (y * STEP_Y + OFFSET_Y) / DIVISOR_Y, rounded down and cut to the map; column(x) likewise
//
// Work split: dimension 0 runs over vectors of VW channels, dimension 1 over strips of WPT neighbouring pixels of an
// output row.
// Preconditions: VW <= CHANNELS, steps are not negative, fewer than 2^31 elements.

#ifndef MAPS
#define MAPS 1               // batch
#define HEIGHT 4             // of the input
#define WIDTH 4
#define CHANNELS 8
#define OUT_HEIGHT 8
#define OUT_WIDTH 8
#define STEP_Y 1
#define STEP_X 1
#define OFFSET_Y 0
#define OFFSET_X 0
#define DIVISOR_Y 2
#define DIVISOR_X 2
#endif
#ifndef VW
#define VW 4                 // channels of a vector
#define WPT 1                // pixels of a work-item
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
// What is below zero is cut before the division, which rounds towards zero.
#define PLACE(i, step, offset, divisor, size) min(max((i) * (step) + (offset), 0) / (divisor), (size) - 1)

__kernel __attribute__((reqd_work_group_size(DIMX, DIMY, 1)))
void resize_nearest(__global const TYPE *restrict input, __global TYPE *restrict output OPERAND_PARAMETERS)
{
    const int vector = get_global_id(0);
    const int strip = get_global_id(1);
    if (vector >= VECTORS || strip >= MAPS * OUT_HEIGHT * STRIPS)
        return;
    const int channel = min(vector * VW, CHANNELS - VW);
    const int row = strip / STRIPS;
    const int source = PLACE(row % OUT_HEIGHT, STEP_Y, OFFSET_Y, DIVISOR_Y, HEIGHT);
    __global const TYPE *line = input + (row / OUT_HEIGHT * HEIGHT + source) * (WIDTH * CHANNELS) + channel;
    const int first = strip % STRIPS * WPT;
    const int last = min(first + WPT, OUT_WIDTH);

    for (int x = first; x < last; ++x) {
        vec value = LOAD(line, PLACE(x, STEP_X, OFFSET_X, DIVISOR_X, WIDTH) * CHANNELS);
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
