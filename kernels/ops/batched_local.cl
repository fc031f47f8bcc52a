// Products of two computed matrices, as many as there are in a batch, each read where it lies, in tiles whose factors lie
// in local memory.
//
//   output[g, m, n] = EPILOGUE(sum over k < K of a[g, m, k] * b[g, k, n])
//
//                            BN columns
//                          +-------------+
//                       b  |             |  K rows, BK at a time
//              K           +-------------+
//         +-----------+    +-------------+
//       a |           | BM |             |  a work-group's tile, MR x NV * VW of it to a work-item (tile_local.cl)
//         +-----------+    +-------------+
//
// Where an element lies: A_AT(g) + m * A_M + k * A_K, B_AT(g) + k * B_K + n * B_N, OUT_AT(g) + m * OUT_M + n * OUT_N.
//
// Work split: a work-group of LM * LN work-items has a tile and a share of the reduction. Dimension 0 of the grid runs over
// the tiles in bands, dimension 1 over the SPLIT shares, dimension 2 over the products. With several shares the sums go to
// `shares`, [share][product][M][N], and add_shares adds them up in a fixed order, so bits stay.
//
// Vectors lie along the axis on which neighbours lie side by side, whichever that is in each factor, and those along the
// reduction are turned over on their way into local memory:
//
//   LEFT_DEEP 1   a as it is: A_K is 1       RIGHT_DEEP 0   b as it is: B_N is 1
//   LEFT_DEEP 0   a transposed: A_M is 1     RIGHT_DEEP 1   b transposed, as in scores of attention: B_K is 1
//
// Where nothing lies side by side vectors have one element. Rows beyond M are computed from the last rows, and columns
// beyond N from the last columns, and they are not stored.
// Preconditions: fewer than 2^31 elements in each buffer, shares included; LEFT_WIDTH and RIGHT_WIDTH divide the size of
// the axis along which vectors lie; RIGHT_WIDTH is VW if SB is 0; with OUT_VECTORS, OUT_N is 1.

#ifndef M
#define M 8                  // rows of a and output
#define K 8                  // columns of a
#define N 8                  // columns of output
#define BATCH 1              // products
#define A_M 8                // from one row of a to the next
#define A_K 1                // from one column of a to the next
#define B_K 8
#define B_N 1
#define OUT_M 8
#define OUT_N 1
#define LEFT_WIDTH 4         // elements of a that are read at once
#define LEFT_DEEP 1          // 1: along a row, 0: along a column
#define RIGHT_WIDTH 4        // elements of b that are read at once
#define RIGHT_DEEP 0         // 1: along a column, 0: along a row
#define OUT_VECTORS 1        // 1: output and operands are accessed in vectors, 0: in elements
#endif
#ifndef A_AT
#define A_AT(g) ((g) * 64)
#define B_AT(g) ((g) * 64)
#define OUT_AT(g) ((g) * 64)
#define OPERAND_PARAMETERS   // ", __global const TYPE *restrict operand0, ..."
#define EPILOGUE(value, T, LOAD, g, m, n)
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

#define FINISH(value, T, LOAD, STORE, row, column)                                 \
    {                                                                              \
        T result = value;                                                          \
        EPILOGUE(result, T, LOAD, product, row, column)                            \
        STORE(result, output, OUT_AT(product) + (row) * OUT_M + (column) * OUT_N); \
    }
#if !OUT_VECTORS
#define FINISH_VECTOR(value, row, column)              \
    {                                                  \
        SUM lanes[VW];                                 \
        OWN_STORE(value, lanes, 0);                    \
        UNROLL for (int i = 0; i < VW; ++i)            \
            FINISH_ELEMENT(lanes[i], row, column + i)  \
    }
#endif
#include "tile_sizes.cl"

// A vector that would begin beyond the last row or column is the last one.
#define A_PLACE(across, k, width) (min(row + (across), M - (width)) * A_M + (k) * A_K)
#define B_PLACE(across, k, width) (min(column + (across), N - (width)) * B_N + (k) * B_K)
#define LEFT(across, k) READ_OF(LEFT_WIDTH, a, A_PLACE(across, k, LEFT_DEEP ? 1 : LEFT_WIDTH))
#define LEFT_ONE(across, k) FACTOR_ELEMENT(a, A_PLACE(across, k, 1))
#define RIGHT(across, k) READ_OF(RIGHT_WIDTH, b, B_PLACE(across, k, RIGHT_DEEP ? 1 : RIGHT_WIDTH))

#if SPLIT > 1
#define ADDED_PARAMETERS
#include "add_shares.cl"
#define RESULT_PARAMETERS __global SUM *restrict shares
#else
#define RESULT_PARAMETERS __global TYPE *restrict output OPERAND_PARAMETERS
#endif

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void batched_local(__global const TYPE *restrict a, __global const TYPE *restrict b, RESULT_PARAMETERS LOCAL_POOL)
{
    const int item = get_local_id(0), tile = get_group_id(0), share = get_group_id(1), product = get_group_id(2);
    const int row = TILE_ROW(tile) * BM, column = TILE_COLUMN(tile) * BN;
    const int begin = SHARE_BEGIN(share), end = SHARE_END(share);
    a += A_AT(product);
    b += B_AT(product);
#if SPLIT > 1
    shares += product * (M * N);
#endif

#include "tile_local.cl"
#include "tile_store.cl"
}
