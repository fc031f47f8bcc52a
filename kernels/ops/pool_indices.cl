// Where the maximum of each window of NHWC maps lies, as ONNX counts the elements of [N, C, H, W].
//
//   output[n, c, y, x] = the index in input of the first largest input[n, y*SH - PT + ky*DH, x*SW - PL + kx*DW, c]
//
// Positions outside the map take no part; in a window with NaN the first of these counts. BY_COLUMNS counts the elements
// of each map column by column.
//
// Work split: dimension 0 runs over channels, dimension 1 over the pixels of the output.
// Preconditions: every window sees a part of the map, fewer than 2^31 elements.

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
#define PT 1                 // padding: top, left
#define PL 1
#define DH 1                 // dilations
#define DW 1
#define BY_COLUMNS 0
#endif
#ifndef DIMX
#define DIMX 1               // work-group
#define DIMY 1
#endif

#include "elements.cl"

__kernel __attribute__((reqd_work_group_size(DIMX, DIMY, 1)))
void pool_indices(__global const TYPE *restrict input, __global long *restrict output)
{
    const int channel = get_global_id(0);
    const int pixel = get_global_id(1);
    if (channel >= CHANNELS || pixel >= MAPS * OUT_HEIGHT * OUT_WIDTH)
        return;
    const int map = pixel / (OUT_HEIGHT * OUT_WIDTH);
    const int top = pixel / OUT_WIDTH % OUT_HEIGHT * SH - PT;
    const int left = pixel % OUT_WIDTH * SW - PL;

    SUM largest = 0.0f;
    int row = -1, column = -1;
    for (int ky = 0; ky < KH; ++ky)
        for (int kx = 0; kx < KW; ++kx) {
            const int y = top + ky * DH, x = left + kx * DW;
            if ((uint)y < HEIGHT && (uint)x < WIDTH) {
                const SUM value = ELEMENT(input, ((map * HEIGHT + y) * WIDTH + x) * CHANNELS + channel);
                if (row < 0 || value > largest || (value != value && largest == largest)) {
                    largest = value;
                    row = y;
                    column = x;
                }
            }
        }

    const int plane = map * CHANNELS + channel;
    const int place = BY_COLUMNS ? column * HEIGHT + row : row * WIDTH + column;
    output[plane * (OUT_HEIGHT * OUT_WIDTH) + pixel % (OUT_HEIGHT * OUT_WIDTH)] = plane * (HEIGHT * WIDTH) + place;
}
