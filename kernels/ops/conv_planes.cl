// Direct convolution that reads planes (NCHW), as models get their input, and writes NHWC maps.
//
//   output[n, y, x, o] = EPILOGUE(bias[o] + sum over ky, kx, c of
//                                 input[n, c, y*SH - PT + ky*DH, x*SW - PL + kx*DW] * weight[o, c, ky, kx])
//
//     a row of each plane                        MR pixels of a row of the output
//     +--+--+--+--+-- --+--+                     +----+-- --+
//     |  SPAN elements     |  x packed   -->     | NW |     |  accumulators in registers
//     +--+--+--+--+-- --+--+                     +----+-- --+
//
// It is for few input channels, where a conversion of the map and finding each pixel's window cost more than the sums:
// the pixels of a tile are neighbours in a row, so all of their elements lie at distances from one place that are known
// when this is compiled. Only a tile that reaches beyond the sides of the map asks for each where it lies, and a large one
// copies its rows first, with zeros around.
// Work split: one grid dimension runs over channel tiles of NW = NV * VW, LN of them to a work-group, the other over
// strips of MR pixels, LM to a work-group; with ORDER 0 channel tiles are dimension 0.
//   packed = [panel][ky][kx][channel][tile of the panel][NW], then bias as [panel][tile][NW]; output channels beyond
//   the last are zero.
// Preconditions: one group, fewer than 2^31 elements in each buffer.

#ifndef MAPS
#define MAPS 1               // batch
#define HEIGHT 8             // of the input
#define WIDTH 8
#define OUT_HEIGHT 8
#define OUT_WIDTH 8
#define INPUTS 3             // channels of the input
#define OUTPUTS 4            // channels of the output
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
#define LM 1                 // work-group along the strips
#define LN 1                 // work-group along the channels
#define ORDER 0              // 0: channel tiles are dimension 0 of the grid, 1: strips are
#endif

#define COLUMNS OUTPUTS
#include "tile_grid.cl"
#define RIGHT(c, v) LOAD(filter, (kx * INPUTS + (c)) * PANEL + v * VW)
#include "register_tile.cl"
#define OFFSET(x, channel) ((line * OUT_WIDTH + x) * OUTPUTS + channel)
#include "finish.cl"

#ifndef PLANE_TYPE           // the input may be of another type than all else
#define PLANE_TYPE TYPE
#define PLANE_ELEMENT ELEMENT
#if defined(CONVERTED) && !defined(ALIGNED_BUFFER)
#define CONVERTS             // a CPU converts each element of a row once, and not for each tap and tile
#endif
#endif

#include "small_tiles.cl"
#define TAPS (KH * KW)
#define STRIPS ((OUT_WIDTH + MR - 1) / MR)
#define SPAN ((MR - 1) * SW + (KW - 1) * DW + 1)
#define PLANE (HEIGHT * WIDTH)

// Of a channel's row of the map, counted from the tile's first element, what pixel r sees; zeros around the map.
#define SEEN(r) ((r) * SW + kx * DW)
#define INSIDE(rows, r, c) PLANE_ELEMENT(rows, (c) * PLANE + SEEN(r))
#define AROUND(rows, r, c) WITHIN_MAP(rows, SEEN(r), c)
#define WITHIN_MAP(rows, x, c) ((uint)(left_edge + (x)) < WIDTH ? PLANE_ELEMENT(rows, (c) * PLANE + (x)) : (SUM)0)
#define COPIED(rows, r, c) OWN_ELEMENT(copied, (c) * SPAN + SEEN(r))

// The taps of one row of the kernel, in all channels.
#define ACCUMULATE_ROW(HINT, READ)           \
    HINT for (int kx = 0; kx < KW; ++kx) {   \
        int k = 0;                           \
        REDUCE_AT_ONCE(READ, INPUTS)         \
    }

__kernel __attribute__((reqd_work_group_size(GROUP_SIZE)))
void conv_planes(__global const PLANE_TYPE *restrict input, __global const TYPE *restrict packed,
                 __global TYPE *restrict output OPERAND_PARAMETERS)
{
    const int tile = get_global_id(ORDER);
    const int strip = get_global_id(1 - ORDER);
    if (tile >= TILES || strip >= MAPS * OUT_HEIGHT * STRIPS)
        return;
    const int line = strip / STRIPS;
    const int first = strip % STRIPS * MR;
    const int top = line % OUT_HEIGHT * SH - PT;
    const int left_edge = first * SW - PL;
    const bool between = left_edge >= 0 && left_edge + SPAN <= WIDTH;
    __global const TYPE *bias = packed + (PANELS * LN * (TAPS * INPUTS) + tile) * NW;

    vec total[MR][NV];
    UNROLL for (int r = 0; r < MR; ++r)
        UNROLL for (int v = 0; v < NV; ++v)
            total[r][v] = LOAD(bias, v * VW);

    for (int ky = 0; ky < KH; ++ky) {
        const int y = top + ky * DH;
        if ((uint)y >= HEIGHT)
            continue;
        __global const TYPE *filter
            = packed + ((tile / LN * TAPS + ky * KW) * INPUTS * LN + tile % LN) * NW;
        __global const PLANE_TYPE *rows = input + ((line / OUT_HEIGHT * INPUTS * HEIGHT + y) * WIDTH + left_edge);
#ifndef CONVERTS
        if (between)
            ACCUMULATE_ROW(, INSIDE)
        else
#endif
        {
#if SMALL_TILE && !defined(CONVERTS)
            ACCUMULATE_ROW(__attribute__((opencl_unroll_hint(1))), AROUND)
#else
            SUM copied[INPUTS * SPAN];
            for (int c = 0; c < INPUTS; ++c) {
                int i = 0;
#ifdef CONVERTS
                for (; between && i + 16 <= SPAN; i += 16)
                    vstore16(LOAD_WIDE(16, rows, c * PLANE + i), 0, copied + c * SPAN + i);
#endif
                for (; i < SPAN; ++i)
                    copied[c * SPAN + i] = WITHIN_MAP(rows, i, c);
            }
            ACCUMULATE_ROW(, COPIED)
#endif
        }
    }

#define STORED_ROWS OUT_WIDTH
#include "register_store.cl"
}
