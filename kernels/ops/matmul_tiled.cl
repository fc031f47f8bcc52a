// Products of matrices, in tiles of which a work-item has one in its registers.
//
//   output[g, m, n] = EPILOGUE(sum over k < K of a[g, m, k] * b[g, k, n] + bias[n])
//
//                       NW = NV * VW columns
//                     +----+----+-- --+----+
//                  b  | VW | VW |     | VW |  K rows, read KU * KA at a time
//                     +----+----+-- --+----+
//           K
//       +-------+     +----+----+-- --+----+
//    a  |       | MR  | accumulators in    |  a work-item's tile of the output; KA sets of accumulators
//       +-------+     | registers          |  take turns along k and are added at the end
//                     +----+----+-- --+----+
//
// Work split: one grid dimension runs over the column tiles of all products, LN of them to a work-group, each product's
// rounded up to whole work-groups; the other over row tiles, LM to a work-group. With ORDER 0 column tiles are dimension 0.
//
// b was packed before (product.cl), or with PACK a stage does so, with zeros for columns from N on; PACKED_AT(g) is the
// number of its matrix there and PACKED_FROM(p) where matrix p lies in b, since products may share one. The tiles of a
// work-group lie interleaved, so that neighbouring work-items read neighbouring memory:
//   packed = [matrix][panel][k][tile of the panel][NW]
// Without, vectors are read from b itself: one that would reach beyond column N starts earlier, and its first lanes,
// which another vector has, are not stored. Rows beyond M are computed from the last row and not stored.
//
// The reduction runs over one part of a after the other, and packed runs on.
// Preconditions: fewer than 2^31 elements in each buffer; without PACK, B_N is 1 and VW is at most N.

#ifndef MR
#define MR 4                 // rows of a tile
#define NV 1                 // vectors of a tile's row
#define VW 4                 // columns of a vector
#define KU 1                 // unrolling of the reduction, on top of KA
#define LM 1                 // work-group along the rows
#define LN 1                 // work-group along the columns
#define ORDER 0              // 0: column tiles are dimension 0 of the grid, 1: row tiles are
#endif
#ifndef KA
#define KA 1                 // sets of accumulators
#endif
#ifndef PF
#define PF 0                 // packed is prefetched so many k ahead; 0: it is not
#endif
#ifndef PACK
#define PACK 1               // 1: b is packed first, 0: it is read where it lies
#define RUN 1                // rows of b that a work-item packs
#define MATRICES 1           // different ones in b
#endif

#define BIASED               // sums begin with it
#if OUT_N == 1
#define OUT_COLUMN(column) column // without brackets, as in finish.cl
#endif
#include "product.cl"

#define ROW_TILES ((M + MR - 1) / MR)
#define PASSES (ORDER ? ROW_TILES : LM) // of row tiles over a panel

#define LEFT_STEP A_K
#if PACK
#define START(v) (tile * NW + (v) * VW) // the first column of a vector
#else
#define START(v) starts[v]
#define RIGHT(k, v) LOAD_FACTORS(vectors[v], (k) * B_K)
#define FIRST_LANE (VW - N % VW)
#endif
#define TOTAL(s, r, v) total[s][r][v]
#include "register_tile.cl"
#include "small_tiles.cl"
#include "finish.cl"

// Goes on with another part; k is the width of the last one.
#define PART(part, width)                                  \
    UNROLL for (int r = 0; r < MR; ++r)                    \
        rows[r] = part + min(first + r, M - 1) * (width);  \
    columns += k * PANEL;                                  \
    k = 0;                                                 \
    REDUCE(width)

#if PACK && !WEIGHTS
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
    __global TYPE *target = packed + panel * K * PANEL + tile * NW;
    const int first = (panel % PANELS * LN + tile) * NW;
    const int columns = clamp(N - first, 0, NW);
    for (int k = start; k < min(start + RUN, K); ++k) {
        for (int i = 0; i < columns; ++i)
            STORE_ELEMENT(ELEMENT(source, k * B_K + (first + i) * B_N), target, k * PANEL + i);
        for (int i = columns; i < NW; ++i)
            STORE_ELEMENT(0.0f, target, k * PANEL + i);
    }
}
#endif

__kernel __attribute__((reqd_work_group_size(GROUP_SIZE)))
void matmul_tiled(PART_PARAMETERS __global const TYPE *restrict b,
                  __global TYPE *restrict output OPERAND_PARAMETERS)
{
    const int product = BATCH > 1 ? get_global_id(ORDER) / (PANELS * LN) : 0;
    const int tile = get_global_id(ORDER) - product * (PANELS * LN);
    const int first = get_global_id(1 - ORDER) * MR;
    if (product >= BATCH || tile >= TILES || first >= M)
        return;

#if PACK
    __global const TYPE *columns = b + ((PACKED_AT(product) * PANELS + tile / LN) * K * LN + tile % LN) * NW;
    const int share = first / MR % PASSES * ((K + PASSES - 1) / PASSES); // of the next panel, this pass's first row
    __global const TYPE *next = columns + (K + share) * PANEL;
#else
    __global const TYPE *vectors[NV]; // start where their columns do
    int starts[NV];
    UNROLL for (int v = 0; v < NV; ++v) {
        starts[v] = min(tile * NW + v * VW, N - VW);
        vectors[v] = b + B_AT(product) + starts[v];
    }
#endif

    __global const TYPE *bias = b + BIAS_AT(tile * NW);
    __global const TYPE *rows[MR];
    UNROLL for (int r = 0; r < MR; ++r)
        rows[r] = FIRST_PART + A_AT(product) + min(first + r, M - 1) * FIRST_PITCH;

    vec total[KA][MR][NV];
    UNROLL for (int s = 0; s < KA; ++s)
        UNROLL for (int r = 0; r < MR; ++r)
            UNROLL for (int v = 0; v < NV; ++v)
                total[s][r][v] = WEIGHTS && s == 0 ? LOAD(bias, v * VW) : (vec)(0.0f);

    HELD_ROWS
    int k = 0;
    REDUCE(FIRST_WIDTH)
    OTHER_PARTS

#if OUT_N == 1
#define STORED_ROWS M
#if SMALL_TILE
#define LAST_ROWS UNROLL for (int r = 0; r < MR; ++r) if (first + r < M) UNROLL
#endif
#include "register_store.cl"
#else
    SUM lanes[MR * NW];
    UNROLL for (int r = 0; r < MR; ++r)
        UNROLL for (int v = 0; v < NV; ++v)
            OWN_STORE(TOTAL(0, r, v), lanes, r * NW + v * VW);
    TAILS for (int r = 0; r < MR; ++r)
        TAILS for (int v = 0; v < NV; ++v)
            TAILS for (int i = 0; i < VW; ++i) {
                const int column = tile * NW + v * VW, n = START(v) + i;
                if (first + r < M && n >= column && n < N)
                    FINISH_ELEMENT(lanes[r * NW + v * VW + i], first + r, n)
            }
#endif
}
