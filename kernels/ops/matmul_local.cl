// Products of matrices, in tiles of a work-group whose factors lie in local memory.
//
//   output[g, m, n] = EPILOGUE(sum over k < K of a[g, m, k] * b[g, k, n] + bias[n])
//
//                            BN columns
//                          +-------------+
//                       b  |             |  K rows, BK at a time
//              K           +-------------+
//         +-----------+    +-------------+
//       a |           | BM |             |  a work-group's tile, MR x NV * VW of it to a work-item (tile_local.cl)
//         +-----------+    +-------------+
//
// Work split: a work-group of LM * LN work-items has a tile and a share of the reduction. Dimension 0 of the grid runs over
// the tiles in bands, dimension 1 over the SPLIT shares, dimension 2 over the products. With several shares the sums go to
// `shares`, [share][product][M][N], and add_shares adds them up in a fixed order. So no order of work-groups changes a bit
// of the output.
//
// b was packed before, or it is read where it lies (product.cl). Vectors lie along the axis on which neighbours lie side by
// side, whichever that is in each factor, and those along the reduction are turned over on their way into local memory:
//
//   LEFT_DEEP 1   a as it is: A_K is 1       RIGHT_DEEP 0   b as it is: B_N is 1; or packed
//   LEFT_DEEP 0   a transposed: A_M is 1     RIGHT_DEEP 1   b transposed, as in scores of attention: B_K is 1
//
// Where nothing lies side by side vectors have one element. Rows beyond M are computed from the last rows, and columns
// beyond N from the last columns, and they are not stored.
// Preconditions: fewer than 2^31 elements in each buffer, shares included; LEFT_WIDTH and RIGHT_WIDTH divide the size of
// the axis along which vectors lie, and the width of each part of a; RIGHT_WIDTH is VW if b is packed or SB is 0; with
// OUT_VECTORS, OUT_N is 1.

#ifndef LEFT_WIDTH
#define LEFT_WIDTH 4         // elements of a that are read at once
#define LEFT_DEEP 1          // 1: along a row, 0: along a column
#define RIGHT_WIDTH 4        // elements of b that are read at once
#define RIGHT_DEEP 0         // 1: along a column, 0: along a row
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
#define PAD 4                // elements behind each step of a factor that is turned over
#define SA 1                 // whether a goes through local memory
#define SB 1                 // whether b does
#define SPLIT 1              // shares of the reduction
#define BAND 1               // rows of tiles that take turns
#endif

#include "product.cl"
#include "tile_sizes.cl"

// A vector that would begin beyond the last row or column is the last one.
#define LEFT_ROW(across, height) min(row + (across), M - (height))
#define LEFT_LOAD(p, i) READ_OF(LEFT_WIDTH, p, i)
#define LEFT(across, k) PART_LOAD(LEFT_ROW(across, LEFT_DEEP ? 1 : LEFT_WIDTH), k, LEFT_LOAD)
#define LEFT_ONE(across, k) PART_LOAD(LEFT_ROW(across, 1), k, FACTOR_ELEMENT)
#if WEIGHTS
#define RIGHT(across, k) PACKED_FACTORS(panel, (k) * BN + (across))
#else
#define RIGHT_COLUMN(across) min(column + (across), N - (RIGHT_DEEP ? 1 : RIGHT_WIDTH))
#define RIGHT(across, k) READ_OF(RIGHT_WIDTH, b, RIGHT_COLUMN(across) * B_N + (k) * B_K)
#endif

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void matmul_local(PART_PARAMETERS __global const TYPE *restrict b, RESULT_PARAMETERS LOCAL_POOL)
{
    const int item = get_local_id(0), tile = get_group_id(0), share = get_group_id(1);
    const int product = BATCH > 1 ? get_group_id(2) : 0;
    const int row = TILE_ROW(tile) * BM, column = TILE_COLUMN(tile) * BN;
    const int begin = SHARE_BEGIN(share), end = SHARE_END(share);
#if WEIGHTS
    __global const TYPE *panel = b + column * K;
#else
    a += A_AT(product);
    b += B_AT(product);
#endif
#if SPLIT > 1
    shares += product * (M * N);
#endif

#include "tile_local.cl"
#include "tile_store.cl"
}
