// Matrix product with a constant right side that was packed before, in tiles whose factors lie in local memory.
//
//   output[m, n] = EPILOGUE(sum over k < K of a[m, k] * b[k, n] + bias[n])
//
//                            BN columns
//                          +-------------+
//                  packed  |             |  K rows, BK at a time
//              K           +-------------+
//         +-----------+    +-------------+
//       a |           | BM |             |  a work-group's tile, MR x NV * VW of it to a work-item (tile_local.cl)
//         +-----------+    +-------------+
//
// Work split: a work-group of LM * LN work-items has a tile and a share of the reduction. Dimension 0 of the grid runs over
// the tiles in bands, dimension 1 over the SPLIT shares. With several shares the sums go to `shares`, [share][M][N], and
// add_shares adds them up in a fixed order. So no order of work-groups changes a bit of the output.
//   packed = [panel of BN columns][k][BN], then bias; columns from N on are zero.
// Rows beyond M are computed from the last row and not stored.
//
// a may be there in parts that lie side by side in it; the text before says then in which part an element is.
// Preconditions: fewer than 2^31 elements in each buffer, shares included; vectors of LEFT_WIDTH elements of a row do not
// reach into another part.

#ifndef M
#define M 8                  // rows of a and output
#define K 8                  // columns of a
#define N 8                  // columns of output
#define LEFT_WIDTH 4         // elements of a row that are read at once
#endif
#ifndef MR
#define MR 4                 // rows of a work-item's tile
#define NV 1                 // vectors of a tile's row
#define VW 4                 // columns of a vector
#define LM 8                 // work-group along the rows
#define LN 8                 // work-group along the columns
#define KU 8                 // unrolling of a block
#define BK 8                 // steps of a block
#define STAGES 2             // blocks in local memory
#define PAD 4                // elements behind each step of a transposed factor
#define SA 1                 // whether a goes through local memory
#define SB 1                 // whether packed does
#define SPLIT 1              // shares of the reduction
#define BAND 1               // rows of tiles that take turns
#endif
#ifndef PART_PARAMETERS
#define PART_PARAMETERS __global const TYPE *restrict a,
#define PART_LOAD(row, k, LOAD) LOAD(a, (row) * K + (k))
#endif
#ifndef EPILOGUE
#define OPERAND_PARAMETERS   // ", __global const TYPE *restrict operand0, ..."
#define EPILOGUE(value, T, LOAD, offset)
#endif

#define LEFT_DEEP 1
#define RIGHT_DEEP 0
#define RIGHT_WIDTH VW
#include "tile_sizes.cl"

#define LEFT_LOAD(p, i) READ_OF(LEFT_WIDTH, p, i)
#define LEFT(across, k) PART_LOAD(min(row + (across), M - 1), k, LEFT_LOAD)
#define LEFT_ONE(across, k) PART_LOAD(min(row + (across), M - 1), k, FACTOR_ELEMENT)
#define RIGHT(across, k) PACKED_FACTORS(panel, (k) * BN + (across))
#define BIAS_AT(column) (TILES_ACROSS * BN * K + (column))

#if SPLIT > 1
#include "add_shares.cl"
#define RESULT_PARAMETERS __global SUM *restrict shares
#else
#define RESULT_PARAMETERS __global TYPE *restrict output OPERAND_PARAMETERS
#endif

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void matmul_local(PART_PARAMETERS __global const TYPE *restrict packed, RESULT_PARAMETERS LOCAL_POOL)
{
    const int item = get_local_id(0), tile = get_group_id(0), share = get_group_id(1);
    const int row = TILE_ROW(tile) * BM, column = TILE_COLUMN(tile) * BN;
    const int begin = SHARE_BEGIN(share), end = SHARE_END(share);
    __global const TYPE *panel = packed + column * K;

#include "tile_local.cl"
#include "tile_store.cl"
}
