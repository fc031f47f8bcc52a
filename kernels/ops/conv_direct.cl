// Direct convolution of NHWC maps with packed filters, in groups.
//
//   output[n, y, x, o] = EPILOGUE(bias[o] + sum over ky, kx, c of
//                                 input[n, y*SH - PT + ky*DH, x*SW - PL + kx*DW, c] * weight[o, c, ky, kx])
//
//                          NW = NV * VW output channels
//                        +----+----+-- --+----+
//                 packed | VW | VW |     | VW |  channels of the input, KU at a time, for one tap after the other
//                        +----+----+-- --+----+
//      channels
//       +------+         +----+----+-- --+----+
//       |      | MR      | accumulators in    |  a work-item's tile of the output: MR pixels in a row of all pixels
//       +------+ pixels  | registers          |  of the batch, so that small maps leave nothing idle
//                        +----+----+-- --+----+
//
// Work split: one grid dimension runs over the groups' channel tiles, LN of them to a work-group, the other over pixel
// tiles, LM to a work-group; with ORDER 0 channel tiles are dimension 0. The tiles of a work-group lie interleaved in
// packed, as one panel, so that neighbouring work-items read neighbouring memory:
//   packed = [group][panel][ky][kx][channel][tile of the panel][NW], then bias as [group][panel][tile][NW], then a pixel
//   of zeros; output channels beyond a group's are zero.
// A tap outside the map reads the pixel of zeros: it is chosen once per tap, so the channel loop has no branch.
// Pixels beyond the last are computed from the last one and not stored.
// Preconditions: fewer than 2^31 elements in each buffer.

#ifndef PIXELS
#define PIXELS 64            // of the output, over the whole batch
#define HEIGHT 8             // of the input
#define WIDTH 8
#define OUT_HEIGHT 8
#define OUT_WIDTH 8
#define GROUPS 1
#define INPUTS 4             // input channels of a group
#define OUTPUTS 4            // output channels of a group
#define KH 3                 // kernel
#define KW 3
#define SH 1                 // strides
#define SW 1
#define PT 1                 // padding: top, left
#define PL 1
#define DH 1                 // dilations
#define DW 1
#endif
#ifndef MR
#define MR 4                 // pixels of a tile
#define NV 1                 // vectors of a tile's pixel
#define VW 4                 // channels of a vector
#define KU 1                 // unrolling of the channel loop
#define PF 0                 // packed is prefetched so many channels ahead; 0: it is not
#define LM 1                 // work-group along the pixels
#define LN 1                 // work-group along the channels
#define ORDER 0              // 0: channel tiles are dimension 0 of the grid, 1: pixel tiles are
#endif

#define PIXEL_TILES ((PIXELS + MR - 1) / MR)
#define PASSES (ORDER ? PIXEL_TILES : LM) // of pixel tiles over a panel
#define COLUMNS OUTPUTS
#include "tile_grid.cl"
#include "register_tile.cl"
#define OFFSET(pixel, channel) ((pixel) * (GROUPS * OUTPUTS) + group * OUTPUTS + channel)
#include "finish.cl"

#define TAPS (KH * KW)

__kernel __attribute__((reqd_work_group_size(GROUP_SIZE)))
void conv_direct(__global const TYPE *restrict input, __global const TYPE *restrict packed,
                 __global TYPE *restrict output OPERAND_PARAMETERS)
{
    const int column = get_global_id(ORDER);
    const int group = column / (PANELS * LN);
    const int tile = column % (PANELS * LN);
    const int first = get_global_id(1 - ORDER) * MR;
    if (tile >= TILES || first >= PIXELS)
        return;
    __global const TYPE *columns = packed + (column / LN * (TAPS * INPUTS) * LN + column % LN) * NW;
    const int share = first / MR % PASSES * ((TAPS * INPUTS + PASSES - 1) / PASSES); // of the next panel, the first row
    __global const TYPE *next = columns + (TAPS * INPUTS + share) * PANEL;
    __global const TYPE *bias = packed + (GROUPS * PANELS * LN * (TAPS * INPUTS) + column) * NW;
    __global const TYPE *zeros = packed + GROUPS * PANELS * LN * (TAPS * INPUTS + 1) * NW;

    // Where each pixel's window starts; the corner may lie outside the map, even before the input.
    int top[MR], left_edge[MR], corner[MR];
    vec total[MR][NV];
    UNROLL for (int r = 0; r < MR; ++r) {
        const int pixel = min(first + r, PIXELS - 1);
        top[r] = pixel / OUT_WIDTH % OUT_HEIGHT * SH - PT;
        left_edge[r] = pixel % OUT_WIDTH * SW - PL;
        corner[r] = ((pixel / (OUT_WIDTH * OUT_HEIGHT) * HEIGHT + top[r]) * WIDTH + left_edge[r]) * (GROUPS * INPUTS)
                    + group * INPUTS;
        UNROLL for (int v = 0; v < NV; ++v)
            total[r][v] = LOAD(bias, v * VW);
    }

    HELD_ROWS
    for (int ky = 0; ky < KH; ++ky)
        for (int kx = 0; kx < KW; ++kx) {
            __global const TYPE *rows[MR];
            UNROLL for (int r = 0; r < MR; ++r) {
                const bool inside = (uint)(top[r] + ky * DH) < HEIGHT && (uint)(left_edge[r] + kx * DW) < WIDTH;
                rows[r] = inside ? input + (corner[r] + (ky * DH * WIDTH + kx * DW) * (GROUPS * INPUTS)) : zeros;
            }
            int k = 0;
            REDUCE(INPUTS)
            columns += INPUTS * PANEL;
        }

#define STORED_ROWS PIXELS
#include "register_store.cl"
}
