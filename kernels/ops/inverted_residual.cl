// An inverted residual block of NHWC maps: a 1x1 convolution that expands the channels, a depthwise convolution, and a
// 1x1 convolution that projects them.
//
//   expanded[q, c] = EXPAND_EPILOGUE(bias[c] + sum over i of input[q, i] * weight[i, c])
//   middle[p, c]   = DEPTHWISE_EPILOGUE(bias[c] + sum over ky, kx of expanded[window of p at them, c] * tap[c, ky, kx])
//   output[p, o]   = EPILOGUE(bias[o] + sum over c of middle[p, c] * weight[c, o])
//
//        input              expanded                middle               output
//     +---------+         +-----------+         +-------------+        +---------+
//     | rows    | INPUTS  | NW of the |  taps   | STEP rows,  | packed | STEP    |
//     | that a  | ------> | channels, | ------> | all of the  | -----> | rows,   |
//     | step    |  by MR  | the same  |  by MR  | channels    |  by MR | OUTPUTS |
//     | sees    |         | rows      |         |             |        |         |
//     +---------+         +-----------+         +-------------+        +---------+
//
// Work split: a work-group computes a strip of ROWS whole rows of the output, which is dimension 1 of the grid, STEP of
// them at a time; its LN work-items take turns at tiles, each MR pixels by NW = NV * VW columns in registers. Rows that
// two strips see are expanded for both; those that two steps see are kept, so that a strip of several steps is long, and
// its middle short. Rows of expanded lie in a ring, where a new one takes the place of the oldest: of one tile of the
// channels where the strip is one step, else of all of them. Neither expanded nor middle leaves the work-group: with LN 1
// they are the work-item's own, in a CPU's caches, otherwise they are in local memory.
//   expansion = [channel tile][input][NW], then bias as [channel tile][NW]; columns from CHANNELS on are zero
//   filters   = [ky][kx][channel], then bias as [channel], with zeros up to a multiple of VW channels
//   packed    = [output tile][channel][NW], then bias as [output tile][NW]; columns from OUTPUTS on are zero
// Pixels beyond the last of a strip are computed from the last one and not stored; the last tile of a row starts
// earlier, so that it ends with the row, and writes some of the middle again.
// Preconditions: MR <= OUT_WIDTH, fewer than 2^31 elements in each buffer.

#ifndef MAPS
#define MAPS 1               // batch
#define HEIGHT 8             // of the input
#define WIDTH 8
#define INPUTS 8             // channels of the input
#define CHANNELS 8           // of expanded and the middle
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
#define MR 4                 // pixels of a tile
#define ROWS 2               // rows of a strip
#define STEP 2               // rows of it that are computed at a time
#define NV 1                 // vectors of a tile's pixel
#define VW 4                 // channels of a vector
#define KU 1                 // unrolling of the reductions
#define PF 0                 // packed weights are prefetched so many channels ahead; 0: they are not
#define LN 1                 // work-items of a work-group, which share a strip
#endif
#ifndef EXPAND_EPILOGUE
#define EXPAND_EPILOGUE(value, T)
#define DEPTHWISE_EPILOGUE(value, T)
#endif

#define NW (NV * VW)
#define PANEL NW             // each tile's columns for themselves
#define COLUMNS OUTPUTS
#include "register_tile.cl"
#include "row_span.cl"
#define OFFSET(pixel, channel) ((first_pixel + pixel) * OUTPUTS + channel)
#include "finish.cl"

#define CHANNEL_TILES ((CHANNELS + NW - 1) / NW)
#define TILES ((OUTPUTS + NW - 1) / NW)
#define STRIPS ((OUT_HEIGHT + ROWS - 1) / ROWS)
#define ROW_TILES ((OUT_WIDTH + MR - 1) / MR)
#define RING (((STEP - 1) * SH + (KH - 1) * DH + 1) * WIDTH) // pixels of expanded
#define KEPT_TILES (STEP < ROWS ? CHANNEL_TILES : 1)
#define LAST_TILE (OUT_WIDTH - MR)
#define WHOLE ((CHANNELS + VW - 1) / VW * VW)
// A pixel of the middle; pixels that lie a multiple of 1 KiB apart would share few places of a cache.
#define PITCH (WHOLE % 256 ? WHOLE : WHOLE + 16)

#if LN == 1
#define MIDDLE               // private
#define KEEP(name, n) SUM name[n]
#define TOGETHER
#else
#define MIDDLE __local
#define KEEP(name, n) LOCAL(SUM, name, n)
#define TOGETHER barrier(CLK_LOCAL_MEM_FENCE)
#endif

// A tile of [rows, length] times packed columns, plus their bias, by one of the ways to read rows.
#define PRODUCT(REDUCTION)                                                 \
    vec total[MR][NV];                                                     \
    UNROLL for (int r = 0; r < MR; ++r)                                    \
        UNROLL for (int v = 0; v < NV; ++v)                                \
            total[r][v] = LOAD(bias, v * VW);                              \
    int k = 0;                                                             \
    REDUCTION

// MR pixels from `first` on, of those before `end`: one tile of their channels.
static inline void expand(__global const TYPE *restrict source, __global const TYPE *restrict expansion, int tile,
                          int first, int end, MIDDLE SUM *ring)
{
    __global const TYPE *columns = expansion + tile * INPUTS * NW;
    __global const TYPE *bias = expansion + (CHANNEL_TILES * INPUTS + tile) * NW;
    __global const TYPE *rows[MR];
    UNROLL for (int r = 0; r < MR; ++r)
        rows[r] = source + min(first + r, end - 1) * INPUTS;
    HELD_ROWS
    PRODUCT(REDUCE(INPUTS))
    const int place = first % RING;
    UNROLL for (int r = 0; r < MR; ++r)
        if (first + r < end)
            UNROLL for (int v = 0; v < NV; ++v) {
                vec value = total[r][v];
                EXPAND_EPILOGUE(value, vec)
                OWN_STORE(value, ring, (place + r - (place + r < RING ? 0 : RING)) * NW + v * VW);
            }
}

// MR pixels of a row of the middle, a vector of channels; ring has that vector, y is the first row that they see.
static inline void depthwise(MIDDLE const SUM *ring, int y, int left, __global const TYPE *restrict filter,
                             MIDDLE SUM *target)
{
    vec total[MR];
    UNROLL for (int r = 0; r < MR; ++r)
        total[r] = LOAD(filter, KH * KW * WHOLE);
    for (int ky = 0; ky < KH; ++ky)
        if ((uint)(y + ky * DH) < HEIGHT) {
            MIDDLE const SUM *line = ring + ((y + ky * DH) * WIDTH % RING + left) * NW;
            vec span[SPAN];
            UNROLL for (int i = 0; i < SPAN; ++i)
                span[i] = PIXEL(OWN_LOAD, line, i, NW);
            UNROLL for (int kx = 0; kx < KW; ++kx) {
                const vec weight = LOAD(filter, (ky * KW + kx) * WHOLE);
                UNROLL for (int r = 0; r < MR; ++r)
                    total[r] = fma(span[r * SW + kx * DW], weight, total[r]);
            }
        }
    UNROLL for (int r = 0; r < MR; ++r) {
        vec value = total[r];
        DEPTHWISE_EPILOGUE(value, vec)
        OWN_STORE(value, target, r * PITCH);
    }
}

__kernel __attribute__((reqd_work_group_size(LN, 1, 1)))
void inverted_residual(__global const TYPE *restrict input, __global const TYPE *restrict expansion,
                       __global const TYPE *restrict filters, __global const TYPE *restrict packed,
                       __global TYPE *restrict output OPERAND_PARAMETERS LOCAL_POOL)
{
    KEEP(expanded, KEPT_TILES * RING * NW);
    KEEP(middle, STEP * OUT_WIDTH * PITCH);
    const int item = get_local_id(0);
    const int map = get_global_id(1) / STRIPS;
    const int first_row = get_global_id(1) % STRIPS * ROWS;
    const int last_row = min(first_row + ROWS, OUT_HEIGHT);
    __global const TYPE *source = input + map * HEIGHT * WIDTH * INPUTS;
    int expanded_rows = 0; // all that steps see of the rows before this one has been in the ring

    for (int out_row = first_row; out_row < last_row; out_row += STEP) {
        const int out_rows = min(STEP, last_row - out_row);
        const int top = max(max(out_row * SH - PT, 0), expanded_rows);
        const int bottom = min((out_row + out_rows - 1) * SH - PT + (KH - 1) * DH + 1, HEIGHT);
        for (int tile = 0; tile < CHANNEL_TILES; ++tile) {
            MIDDLE SUM *ring = expanded + tile % KEPT_TILES * RING * NW;
            for (int first = top * WIDTH + item * MR; first < bottom * WIDTH; first += LN * MR)
                expand(source, expansion, tile, first, bottom * WIDTH, ring);
            TOGETHER;
            for (int i = item; i < out_rows * ROW_TILES * NV; i += LN) {
                const int row = i / (ROW_TILES * NV);
                const int first = min(i / NV % ROW_TILES * MR, OUT_WIDTH - MR);
                const int channel = tile * NW + i % NV * VW;
                if (channel < CHANNELS)
                    depthwise(ring + i % NV * VW, (out_row + row) * SH - PT, first * SW - PL, filters + channel,
                              middle + (row * OUT_WIDTH + first) * PITCH + channel);
            }
            TOGETHER;
        }
        expanded_rows = bottom;

        const int count = out_rows * OUT_WIDTH;
        const int first_pixel = (map * OUT_HEIGHT + out_row) * OUT_WIDTH;
        for (int tile = item; tile < TILES; tile += LN)
            for (int first = 0; first < count; first += MR) {
                __global const TYPE *columns = packed + tile * CHANNELS * NW;
                __global const TYPE *bias = packed + (TILES * CHANNELS + tile) * NW;
                MIDDLE const SUM *rows[MR];
                UNROLL for (int r = 0; r < MR; ++r)
                    rows[r] = middle + min(first + r, count - 1) * PITCH;
                PRODUCT(REDUCE_AT_ONCE(OWN_LEFT, CHANNELS))
#define STORED_ROWS count
#include "register_store.cl"
            }
        TOGETHER;
    }
}
