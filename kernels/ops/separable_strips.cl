// A depthwise separable convolution of NHWC maps: a depthwise convolution and the 1x1 convolution behind it.
//
//   middle[p, c] = DEPTHWISE_EPILOGUE(sum over ky, kx of input[window of pixel p at ky, kx, c] * filter[ky, kx, c])
//   output[p, o] = EPILOGUE(bias[o] + sum over c of middle[p, c] * weight[c, o])         the filter's bias comes first
//
//      input                        middle, a strip             packed: NW = NV * VW columns
//     +----+----+-- --+----+       +--------------------+       +----+----+-- --+----+
//     | SPAN pixels of KH  |  -->  | MR pixels of a row | RT    | VW | VW |     | VW |  CHANNELS rows, KU at a time
//     | rows, VW channels  |       | all channels       | times +----+----+-- --+----+
//     +----+----+-- --+----+       +--------------------+       output: a register tile of MR x NV vectors
//
// Work split: grid dimension 1 runs over strips, each RT times MR neighbouring pixels of a row. In dimension 0 the LN
// work-items of a work-group compute a strip of the middle together, a vector of channels at a time, and then take
// turns at the columns' tiles; SPLIT work-groups share the tiles of a strip, and each of them computes the middle for
// itself. The middle never leaves the work-group: with LN 1 it is the work-item's own, in a CPU's caches, otherwise it
// is in local memory.
//   filters = [ky][kx][channel], then their bias as [channel]
//   packed  = [panel][channel][tile of the panel][NW], then bias as [panel][tile of the panel][NW]; columns from
//             OUTPUTS on are zero
// Pixels outside the map are zero and never read; pixels beyond a row's end are computed and not stored. Where VW
// does not divide the channels, the last vector starts earlier, so that it ends with them, and writes some again.
// Preconditions: VW <= CHANNELS, fewer than 2^31 elements in each buffer.

#ifndef MAPS
#define MAPS 1               // batch
#define HEIGHT 8             // of the input
#define WIDTH 8
#define CHANNELS 8           // of the input and the middle
#define OUTPUTS 8            // channels of the output
#define OUT_HEIGHT 8
#define OUT_WIDTH 8
#define KH 3                 // the depthwise kernel
#define KW 3
#define SH 1                 // strides
#define SW 1
#define PT 1                 // padding: top, left
#define PL 1
#define DH 1                 // dilations
#define DW 1
#endif
#ifndef MR
#define MR 4                 // pixels of a tile, neighbours in a row
#define RT 1                 // tiles of a strip, one after the other
#define NV 1                 // vectors of a tile's pixel
#define VW 4                 // channels of a vector
#define KU 1                 // unrolling of the loop over the middle's channels
#define PF 0                 // packed weights are prefetched so many channels ahead; 0: they are not
#define LN 1                 // work-items of a work-group, which share a strip
#define SPLIT 1              // work-groups among which the columns of a strip are divided
#endif
#ifndef DEPTHWISE_EPILOGUE
#define DEPTHWISE_EPILOGUE(value, T)
#endif

#define COLUMNS OUTPUTS
#include "tile_grid.cl"
#include "register_tile.cl"
#include "row_span.cl"
#define OFFSET(x, channel) ((line + x) * OUTPUTS + channel)
#include "finish.cl"

#define VECTORS ((CHANNELS + VW - 1) / VW)
#define ROW_TILES ((OUT_WIDTH + MR - 1) / MR)
#define ALL_TILES (MAPS * OUT_HEIGHT * ROW_TILES)
#define LAST_TILE ((ROW_TILES - 1) * MR)
// A pixel of the middle; pixels that lie a multiple of 4 KiB apart would share few places of a cache.
#define PITCH (CHANNELS % 256 ? CHANNELS : CHANNELS + 16)

#if LN == 1
#define MIDDLE               // private
#define KEEP(name, n) SUM name[n]
#else
#define MIDDLE __local
#define KEEP(name, n) LOCAL(SUM, name, n)
#endif

// The channels from `channel` on of MR pixels of the middle: a row's span is loaded once and shared by its taps.
static inline void depthwise(__global const TYPE *restrict input, __global const TYPE *restrict filters, int tile,
                             int channel, MIDDLE SUM *middle)
{
    const int out_row = tile / ROW_TILES;
    const int map = out_row / OUT_HEIGHT;
    const int top = out_row % OUT_HEIGHT * SH - PT;
    const int left = tile % ROW_TILES * MR * SW - PL;
    __global const TYPE *filter = filters + channel;

    vec total[MR];
    UNROLL for (int r = 0; r < MR; ++r)
        total[r] = LOAD(filter, KH * KW * CHANNELS);

    for (int ky = 0; ky < KH; ++ky) {
        const int y = top + ky * DH;
        if ((uint)y < HEIGHT) {
            __global const TYPE *line = input + ((map * HEIGHT + y) * WIDTH + left) * CHANNELS + channel;
            vec span[SPAN];
            UNROLL for (int i = 0; i < SPAN; ++i)
                span[i] = PIXEL(LOAD, line, i, CHANNELS);
            UNROLL for (int kx = 0; kx < KW; ++kx) {
                const vec weight = LOAD(filter, (ky * KW + kx) * CHANNELS);
                UNROLL for (int r = 0; r < MR; ++r)
                    total[r] = fma(span[r * SW + kx * DW], weight, total[r]);
            }
        }
    }

    UNROLL for (int r = 0; r < MR; ++r) {
        vec value = total[r];
        DEPTHWISE_EPILOGUE(value, vec)
        OWN_STORE(value, middle, r * PITCH + channel);
    }
}

#define OF_PIXEL(rows, r, k) OWN_ELEMENT(rows, (r) * PITCH + (k))

__kernel __attribute__((reqd_work_group_size(LN, 1, 1)))
void separable_strips(__global const TYPE *restrict input, __global const TYPE *restrict filters,
                      __global const TYPE *restrict packed, __global TYPE *restrict output OPERAND_PARAMETERS LOCAL_POOL)
{
    KEEP(middle, RT * MR * PITCH);
    const int strip = get_global_id(1) * RT;

    for (int t = 0; t < RT; ++t)
        if (strip + t < ALL_TILES)
            for (int vector = get_local_id(0); vector < VECTORS; vector += LN)
                depthwise(input, filters, strip + t, min(vector * VW, CHANNELS - VW), middle + t * MR * PITCH);
#if LN > 1
    barrier(CLK_LOCAL_MEM_FENCE);
#endif

    for (int tile = get_global_id(0); tile < TILES; tile += LN * SPLIT) {
        __global const TYPE *columns = packed + (tile / LN * CHANNELS * LN + tile % LN) * NW;
        __global const TYPE *bias = packed + (PANELS * LN * CHANNELS + tile) * NW;
        for (int t = 0; t < RT; ++t)
            if (strip + t < ALL_TILES) {
                MIDDLE const SUM *rows = middle + t * MR * PITCH;
                vec total[MR][NV];
                UNROLL for (int r = 0; r < MR; ++r)
                    UNROLL for (int v = 0; v < NV; ++v)
                        total[r][v] = LOAD(bias, v * VW);

                int k = 0;
                REDUCE_AT_ONCE(OF_PIXEL, CHANNELS)

                const int first = (strip + t) % ROW_TILES * MR;
                const int line = (strip + t) / ROW_TILES * OUT_WIDTH;
#define STORED_ROWS OUT_WIDTH
#include "register_store.cl"
            }
    }
}
