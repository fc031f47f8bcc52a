// Convolution of NHWC maps with packed filters, as a product whose factors lie in local memory. No matrix of windows is
// ever written: its rows are read from the map, block by block.
//
//   output[p, o] = EPILOGUE(sum over k < K of window[p, k] * filter[k, o] + bias[o]),  k = (ky * KW + kx) * INPUTS + c
//
//                                                          BN channels
//                 one pixel's window                     +-------------+
//              ky=0 +--+--+--+                   packed  |             |  K rows, BK at a time
//                   |  |  |  |             K             +-------------+
//              ky=1 +--+--+--+  is a  +---------+    +-------------+
//                   |  |  |  |  row   | window  | BM |             |  a work-group's tile of pixels and channels
//                   +--+--+--+        +---------+    +-------------+
//
// Work split: as in matmul_local.cl, with the M pixels of the whole batch in the place of rows.
//   packed = [panel of BN channels][ky][kx][channel][BN], then bias; channels from N on are zero.
// For each pixel of the tile a table in local memory has the place of its window's corner, which may lie outside of the
// map, and two masks: bit ky says that row ky of the window is inside, bit 16 + kx that column kx is. A tap is inside if
// both are, so the division of a pixel into its row and column is done once in a work-group, and not for each tap.
// Pixels beyond the last are computed from the last one and not stored.
// Preconditions: fewer than 2^31 elements in each buffer, shares included; KH and KW of at most 16; LEFT_WIDTH divides
// INPUTS.

#ifndef M
#define M 64                 // pixels of the output, over the whole batch
#define K 36                 // taps times input channels
#define N 8                  // output channels
#define LEFT_WIDTH 4         // channels of a pixel that are read at once
#define LEFT_DEEP 1          // they lie along the reduction
#define RIGHT_WIDTH 4        // elements of packed that are read at once
#define RIGHT_DEEP 0
#define INPUTS 4             // input channels
#define HEIGHT 8             // of the input
#define WIDTH 8
#define OUT_HEIGHT 8
#define OUT_WIDTH 8
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
#define MR 4                 // pixels of a work-item's tile
#define NV 1                 // vectors of a tile's pixel
#define VW 4                 // channels of a vector
#define LM 8                 // work-group along the pixels
#define LN 8                 // work-group along the channels
#define KU 8                 // unrolling of a block
#define BK 8                 // steps of a block
#define STAGES 2             // blocks in local memory
#define PAD 4                // elements behind each step of the pixels
#define SA 1                 // pixels go through local memory: always
#define SB 1                 // whether packed does
#define SPLIT 1              // shares of the reduction
#define BAND 1               // rows of tiles that take turns
#endif

#define BIAS_AT(column) (TILES_ACROSS * BN * K + (column))
#include "tile_sizes.cl"

// The bits of the taps along an axis that lie inside of the map, for a window that begins at `first`.
#define INSIDE_BITS(first, size, taps, dilation, bits)                           \
    UNROLL for (int tap = 0; tap < taps; ++tap)                                  \
        if (first + tap * dilation >= 0 && first + tap * dilation < size)        \
            bits |= 1u << tap;

// Vector i of a work-item has the rows of the table that it read before the loop.
#define TAP(k) ((k) / INPUTS)
#define SEEN(k) (seen[i] >> TAP(k) / KW & seen[i] >> (16 + TAP(k) % KW) & 1u)
#define TAP_AT(k) ((TAP(k) / KW * (DH * WIDTH) + TAP(k) % KW * DW) * INPUTS + (k) % INPUTS)
#define LEFT(across, k) (SEEN(k) ? READ_OF(LEFT_WIDTH, input, corner[i] + TAP_AT(k)) : (left_vec)((FACTOR)0))
#define RIGHT(across, k) PACKED_FACTORS(panel, (k) * BN + (across))

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void conv_local(__global const TYPE *restrict input, __global const TYPE *restrict packed,
                RESULT_PARAMETERS LOCAL_POOL)
{
    const int item = get_local_id(0), tile = get_group_id(0), share = get_group_id(1);
    const int row = TILE_ROW(tile) * BM, column = TILE_COLUMN(tile) * BN;
    const int begin = SHARE_BEGIN(share), end = SHARE_END(share);
    __global const TYPE *panel = packed + column * K;

    LOCAL(int, corners, BM);
    LOCAL(uint, masks, BM);
    for (int each = item; each < BM; each += ITEMS) {
        const int pixel = min(row + each, M - 1);
        const int top = pixel / OUT_WIDTH % OUT_HEIGHT * SH - PT, left_edge = pixel % OUT_WIDTH * SW - PL;
        uint rows_inside = 0, columns_inside = 0;
        INSIDE_BITS(top, HEIGHT, KH, DH, rows_inside)
        INSIDE_BITS(left_edge, WIDTH, KW, DW, columns_inside)
        corners[each] = ((pixel / (OUT_WIDTH * OUT_HEIGHT) * HEIGHT + top) * WIDTH + left_edge) * INPUTS;
        masks[each] = rows_inside | columns_inside << 16;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    int corner[LOADS(LEFT)];
    uint seen[LOADS(LEFT)];
    EACH_VECTOR(LEFT, corner[i] = corners[across]; seen[i] = masks[across];)

#include "tile_local.cl"
#include "tile_store.cl"
}
