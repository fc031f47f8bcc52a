// Products of two computed matrices, as many as there are in a batch, each read where it lies.
//
//   output[g, m, n] = EPILOGUE(sum over k < K of a[g, m, k] * b[g, k, n])
//
//                       NW = NV * VW columns
//                     +----+----+-- --+----+
//                  b  | VW | VW |     | VW |  K rows, read KU at a time
//                     +----+----+-- --+----+
//           K
//       +-------+     +----+----+-- --+----+
//    a  |       | MR  | accumulators in    |  a work-item's tile of the output
//       +-------+     | registers          |
//                     +----+----+-- --+----+
//
// Where an element lies: A_AT(g) + m * A_M + k * A_K, B_AT(g) + k * B_K + n * B_N, OUT_AT(g) + m * OUT_M + n * OUT_N.
//
// Work split: one grid dimension runs over the column tiles of all products, LN of them to a work-group, each product's
// rounded up to whole work-groups; the other over row tiles, LM to a work-group. With ORDER 0 column tiles are dimension 0.
//
// With PACK a stage writes b as the tiles read it, with zeros for columns from N on; PACKED_AT(g) is the number of its
// matrix there and PACKED_FROM(p) where matrix p lies in b, since products may share one:
//   packed = [matrix][panel][k][tile of the panel][NW]
// Without, vectors are read from b itself: one that would reach beyond column N starts earlier, and its first lanes,
// which another vector has, are not stored. Rows beyond M are computed from the last row and not stored.
// Preconditions: fewer than 2^31 elements in each buffer; without PACK, B_N is 1 and VW is at most N.

#ifndef M
#define M 8                  // rows of a and output
#define K 8                  // columns of a
#define N 8                  // columns of output
#define BATCH 1              // products
#define A_M 8                 // from one row of a to the next
#define A_K 1                 // from one column of a to the next
#define B_K 8
#define B_N 1
#define OUT_M 8
#define OUT_N 1
#define MATRICES 1           // different ones in b
#endif
#ifndef A_AT
#define A_AT(g) ((g) * 64)
#define B_AT(g) ((g) * 64)
#define OUT_AT(g) ((g) * 64)
#define PACKED_AT(g) (g)
#define PACKED_FROM(p) ((p) * 64)
#define OPERAND_PARAMETERS   // ", __global const TYPE *restrict operand0, ..."
#define EPILOGUE(value, T, LOAD, g, m, n)
#endif
#ifndef MR
#define MR 4                 // rows of a tile
#define NV 1                 // vectors of a tile's row
#define VW 4                 // columns of a vector
#define KU 1                 // unrolling of the reduction
#define PACK 1               // 1: b is packed first, 0: it is read where it lies
#define RUN 1                // rows of b that a work-item packs
#define LM 1                 // work-group along the rows
#define LN 1                 // work-group along the columns
#define ORDER 0              // 0: column tiles are dimension 0 of the grid, 1: row tiles are
#endif

#include "vectors.cl"
#include "factors.cl"
#define LEFT_STEP A_K
#include "held_rows.cl"

#define NW (NV * VW)
#include "small_tiles.cl"
#define TILES ((N + NW - 1) / NW)
#define PANELS ((TILES + LN - 1) / LN)
#define TOTAL(s, r, v) total[r][v]

#if PACK
// RUN rows of a panel's tile.
__kernel __attribute__((reqd_work_group_size(LN, LM, 1)))
void pack_right(__global const TYPE *restrict b, __global TYPE *restrict packed)
{
    const int start = get_global_id(0) * RUN;
    const int panel = get_global_id(1) / LN;
    const int tile = get_global_id(1) % LN;
    if (panel >= MATRICES * PANELS)
        return;
    __global const TYPE *source = b + PACKED_FROM(panel / PANELS);
    __global TYPE *target = packed + panel * K * (LN * NW) + tile * NW;
    const int first = (panel % PANELS * LN + tile) * NW;
    const int columns = clamp(N - first, 0, NW);
    for (int k = start; k < min(start + RUN, K); ++k) {
        for (int i = 0; i < columns; ++i)
            STORE_ELEMENT(ELEMENT(source, k * B_K + (first + i) * B_N), target, k * (LN * NW) + i);
        for (int i = columns; i < NW; ++i)
            STORE_ELEMENT(0.0f, target, k * (LN * NW) + i);
    }
}
#endif

__kernel
#if ORDER
__attribute__((reqd_work_group_size(LM, LN, 1)))
#else
__attribute__((reqd_work_group_size(LN, LM, 1)))
#endif
void batched_matmul_tiled(__global const TYPE *restrict a, __global const TYPE *restrict b,
                          __global TYPE *restrict output OPERAND_PARAMETERS)
{
    const int batch = get_global_id(ORDER) / (PANELS * LN);
    const int tile = get_global_id(ORDER) % (PANELS * LN);
    const int first = get_global_id(1 - ORDER) * MR;
    if (batch >= BATCH || tile >= TILES || first >= M)
        return;

    __global const TYPE *rows[MR];
    UNROLL for (int r = 0; r < MR; ++r)
        rows[r] = a + A_AT(batch) + min(first + r, M - 1) * A_M;

    // b is the stage's packed with PACK, and vectors start where their columns do
    __global const TYPE *columns[NV];
    int starts[NV];
    UNROLL for (int v = 0; v < NV; ++v) {
#if PACK
        starts[v] = tile * NW + v * VW;
        columns[v] = b + ((PACKED_AT(batch) * PANELS + tile / LN) * K * LN + tile % LN) * NW + v * VW;
#else
        starts[v] = min(tile * NW + v * VW, N - VW);
        columns[v] = b + B_AT(batch) + starts[v];
#endif
    }
#if PACK
#define STEP (LN * NW)
#else
#define STEP B_K
#endif

    vec total[MR][NV];
    UNROLL for (int r = 0; r < MR; ++r)
        UNROLL for (int v = 0; v < NV; ++v)
            total[r][v] = (vec)(0.0f);

#define ACCUMULATE(k)                                                  \
    {                                                                  \
        factors right[NV];                                             \
        UNROLL for (int v = 0; v < NV; ++v)                            \
            right[v] = LOAD_FACTORS(columns[v], (k) * STEP);           \
        UNROLL for (int r = 0; r < MR; ++r) {                          \
            const factors left = LEFT(rows, r, k);                     \
            UNROLL for (int v = 0; v < NV; ++v)                        \
                BLOCK_SUM(0, r, v) = MULTIPLY_ADD(left, right[v], BLOCK_SUM(0, r, v)); \
        }                                                              \
    }

    HELD_ROWS
    int k = 0;
    EACH_BLOCK(k, K) {
        HOLD_BLOCK(rows, k, K)
        BEGIN_BLOCK(1)
        for (; k + KU <= BLOCK_END(K); k += KU)
            UNROLL for (int u = 0; u < KU; ++u)
                ACCUMULATE(k + u)
#if K % KU || HELD % KU
        for (; k < BLOCK_END(K); ++k)
            ACCUMULATE(k)
#endif
        END_BLOCK(1)
    }

    // whole vectors first; what is left is stored one by one
#if OUT_N == 1
    UNROLL for (int r = 0; r < MR; ++r)
        if (first + r < M)
            UNROLL for (int v = 0; v < NV; ++v) {
                const int column = tile * NW + v * VW;
                vec value = total[r][v];
                if (N % NW == 0 || column + VW <= N) {
                    EPILOGUE(value, vec, LOAD, batch, first + r, column)
                    STORE(value, output, OUT_AT(batch) + (first + r) * OUT_M + column);
                }
            }
#endif
#if OUT_N != 1 || N % VW
    SUM lanes[MR * NW];
    UNROLL for (int r = 0; r < MR; ++r)
        UNROLL for (int v = 0; v < NV; ++v)
            OWN_STORE(total[r][v], lanes, r * NW + v * VW);
#if OUT_N == 1
    if (tile == TILES - 1)
#endif
        TAILS for (int r = 0; r < MR; ++r)
            TAILS for (int v = 0; v < NV; ++v)
                TAILS for (int i = 0; i < VW; ++i) {
                    const int column = tile * NW + v * VW;
                    const int n = starts[v] + i;
                    if (first + r < M && (OUT_N != 1 || column + VW > N) && n >= column && n < N) {
                        SUM value = lanes[r * NW + v * VW + i];
                        EPILOGUE(value, SUM, ELEMENT, batch, first + r, n)
                        STORE_ELEMENT(value, output, OUT_AT(batch) + (first + r) * OUT_M + n * OUT_N);
                    }
                }
#endif
}
