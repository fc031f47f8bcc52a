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
#ifndef EPILOGUE
#define OPERAND_PARAMETERS   // ", __global const TYPE *restrict operand0, ..."
#define EPILOGUE(value, T, LOAD, offset)
#endif

#define PIXEL_TILES ((PIXELS + MR - 1) / MR)
#define PASSES (ORDER ? PIXEL_TILES : LM) // of pixel tiles over a panel

#include "vectors.cl"
#include "factors.cl"
#include "held_rows.cl"
#include "prefetch.cl"

#define NW (NV * VW)
#define TILES ((OUTPUTS + NW - 1) / NW)
#define TAIL (OUTPUTS % VW)       // channels of a vector that reaches beyond the last one; they are stored one by one
#define PANELS ((TILES + LN - 1) / LN)
#define TAPS (KH * KW)
#define TOTAL(s, r, v) total[r][v]

// One input channel: each pixel's element times the tile's row of packed.
#define ACCUMULATE(c)                                                      \
    {                                                                      \
        factors right[NV];                                                 \
        UNROLL for (int v = 0; v < NV; ++v) {                              \
            right[v] = LOAD_FACTORS(filter, (c) * (LN * NW) + v * VW);     \
            PREFETCH_AHEAD(filter + ((c) + PF) * (LN * NW), v * VW);       \
        }                                                                  \
        UNROLL for (int r = 0; r < MR; ++r) {                              \
            const factors left = LEFT(pixels, r, c);                       \
            UNROLL for (int v = 0; v < NV; ++v)                            \
                BLOCK_SUM(0, r, v) = MULTIPLY_ADD(left, right[v], BLOCK_SUM(0, r, v)); \
        }                                                                  \
    }

__kernel
#if ORDER
__attribute__((reqd_work_group_size(LM, LN, 1)))
#else
__attribute__((reqd_work_group_size(LN, LM, 1)))
#endif
void conv_direct(__global const TYPE *restrict input, __global const TYPE *restrict packed,
                 __global TYPE *restrict output OPERAND_PARAMETERS)
{
    const int column = get_global_id(ORDER);
    const int group = column / (PANELS * LN);
    const int tile = column % (PANELS * LN);
    const int first = get_global_id(1 - ORDER) * MR;
    if (tile >= TILES || first >= PIXELS)
        return;
    __global const TYPE *filter = packed + (column / LN * (TAPS * INPUTS) * LN + column % LN) * NW;
    const int share = first / MR % PASSES * ((TAPS * INPUTS + PASSES - 1) / PASSES); // of the next panel, the first row
    __global const TYPE *next = filter + (TAPS * INPUTS + share) * (LN * NW);
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
            __global const TYPE *pixels[MR];
            UNROLL for (int r = 0; r < MR; ++r) {
                const bool inside = (uint)(top[r] + ky * DH) < HEIGHT && (uint)(left_edge[r] + kx * DW) < WIDTH;
                pixels[r] = inside ? input + (corner[r] + (ky * DH * WIDTH + kx * DW) * (GROUPS * INPUTS)) : zeros;
            }
            int c = 0;
            EACH_BLOCK(c, INPUTS) {
                HOLD_BLOCK(pixels, c, INPUTS)
                BEGIN_BLOCK(1)
                for (; c + KU <= BLOCK_END(INPUTS); c += KU) {
                    PREFETCH_SHARE(next, LN * NW, KU)
                    UNROLL for (int u = 0; u < KU; ++u)
                        ACCUMULATE(c + u)
                }
#if INPUTS % KU || HELD % KU
                for (; c < BLOCK_END(INPUTS); ++c)
                    ACCUMULATE(c)
#endif
                END_BLOCK(1)
            }
            filter += INPUTS * LN * NW;
        }

#if TAIL
    SUM lanes[MR * VW];
#endif
    UNROLL for (int r = 0; r < MR; ++r)
        if (first + r < PIXELS)
            UNROLL for (int v = 0; v < NV; ++v) {
                const int channel = tile * NW + v * VW;
                const int offset = (first + r) * (GROUPS * OUTPUTS) + group * OUTPUTS + channel;
                vec value = total[r][v];
                if (OUTPUTS % NW == 0 || channel + VW <= OUTPUTS) {
                    EPILOGUE(value, vec, LOAD, offset)
                    STORE(value, output, offset);
                }
#if TAIL
                else if (v == OUTPUTS % NW / VW)
                    OWN_STORE(value, lanes, r * VW);
#endif
            }
#if TAIL
    if (tile == TILES - 1)
        for (int r = 0; r < MR && first + r < PIXELS; ++r)
            for (int i = 0; i < TAIL; ++i) {
                const int offset = (first + r) * (GROUPS * OUTPUTS) + group * OUTPUTS + (OUTPUTS - TAIL) + i;
                SUM value = lanes[r * VW + i];
                EPILOGUE(value, SUM, ELEMENT, offset)
                STORE_ELEMENT(value, output, offset);
            }
#endif
}
