// Matrix product of few rows with a constant right side that was packed before. All of packed is read once, and the product
// takes about as long as that.
//
//   output[m, n] = EPILOGUE(sum over k < K of a[m, k] * b[k, n] + bias[n])
//
//                      a panel of LN * NV * VW columns
//                    +---------+---------+-- --+
//            packed  |         |         |     |  LEFT_WIDTH rows: work-items with lm = 0
//                    + ln = 0  + ln = 1  +     +
//             K      |         |         |     |  LEFT_WIDTH rows: work-items with lm = 1
//         +-------+  +---------+---------+-- --+
//     a   |       |                               and so on, LM of them, and then lm = 0 again
//         +-------+  +---------+---------+-- --+
//             MR     |   sums of work-items    |  for each lm, added through local memory at the end
//                    +---------+---------+-- --+
//
// Work split: a work-group of LN x LM work-items has a panel, MR rows and a share of the reduction. Dimension 0 of the grid
// runs over panels, dimension 1 over row tiles, dimension 2 over the SPLIT shares. A work-item reads KU * NV vectors at a
// time, which do not wait for each other. With LEFT_WIDTH 1 a warp reads neighbouring rows of packed, all of each line;
// with more, it reads rows of a in vectors. The LM sums of an output are added in the order of lm, and those of several
// shares in theirs (add_shares.cl), so bits stay.
//   packed = [panel][k][LN * NV * VW], then bias as [panel][LN * NV * VW]; columns from N on are zero.
// Rows beyond M are computed from the last row and not stored.
//
// a may be there in parts that lie side by side in it; the text before says then in which part an element is.
// Preconditions: fewer than 2^31 elements in each buffer, shares included; LEFT_WIDTH divides KU, and the width of each
// part of a; SUMMED divides MR; packed begins at a multiple of a vector's size.

#ifndef LEFT_WIDTH
#define LEFT_WIDTH 4         // elements of a row that a work-item reads at once
#endif
#ifndef MR
#define MR 4                 // rows of a work-item's tile
#define NV 1                 // vectors of a tile's row
#define VW 4                 // columns of a vector
#define KU 4                 // rows of packed that a work-item reads at once
#define LM 4                 // work-items of a work-group along the reduction
#define LN 2                 // and across the columns
#define SPLIT 1              // shares of the reduction
#define SUMMED 4             // rows whose sums are in local memory at once
#endif
#include "product.cl"
#include "vectors.cl"
#include "factors.cl"
#include "short_vectors.cl"
#include "finish.cl"
#define BK (LM * KU)         // steps of a work-group
#include "add_shares.cl"

#define PITCH (LN * VW)      // from a work-item's vector to its next
#define LEFT_LOAD(p, i) READ_OF(LEFT_WIDTH, p, i)

// A work-item's next `count` rows of packed, from k on: the elements of each row of a times their vectors.
#define STEP(u) (k + (u) / LEFT_WIDTH * (LM * LEFT_WIDTH) + (u) % LEFT_WIDTH)
#define TOTAL(s, r, v) total[r][v]
#define ACCUMULATE(count)                                                                     \
    {                                                                                         \
        factors right[count][NV];                                                             \
        UNROLL for (int u = 0; u < count; ++u)                                                \
            UNROLL for (int v = 0; v < NV; ++v)                                               \
                right[u][v] = PACKED_FACTORS(columns, STEP(u) * PANEL + v * PITCH);           \
        BEGIN_BLOCK(1)                                                                        \
        UNROLL for (int r = 0; r < MR; ++r) {                                                 \
            FACTOR left[count];                                                               \
            UNROLL for (int u = 0; u < count; u += LEFT_WIDTH)                                \
                SPREAD_OF(LEFT_WIDTH, left, u, PART_LOAD(min(row + r, M - 1), STEP(u), LEFT_LOAD)); \
            UNROLL for (int u = 0; u < count; ++u)                                            \
                UNROLL for (int v = 0; v < NV; ++v)                                           \
                    BLOCK_SUM(0, r, v) = MULTIPLY_ADD((factors)(left[u]), right[u][v], BLOCK_SUM(0, r, v)); \
        }                                                                                     \
        END_BLOCK(1)                                                                          \
    }

__kernel __attribute__((reqd_work_group_size(LN, LM, 1)))
void matmul_skinny(PART_PARAMETERS __global const TYPE *restrict b, RESULT_PARAMETERS LOCAL_POOL)
{
    const int lane = get_local_id(0) * VW, lm = get_local_id(1), share = get_group_id(2), product = 0;
    const int row = MR < M ? get_group_id(1) * MR : 0;
    const int column = get_group_id(0) * PANEL + lane;
    __global const TYPE *columns = b + get_group_id(0) * (PANEL * K) + lane;

    vec total[MR][NV];
    UNROLL for (int r = 0; r < MR; ++r)
        UNROLL for (int v = 0; v < NV; ++v)
            total[r][v] = (vec)(0.0f);

    const int end = SHARE_END(share);
    int k = SHARE_BEGIN(share) + lm * LEFT_WIDTH;
    for (; k + LM * (KU - LEFT_WIDTH) < end; k += BK)
        ACCUMULATE(KU)
#if K % BK
    for (; k < end; k += LM * LEFT_WIDTH)
        ACCUMULATE(LEFT_WIDTH)
#endif

#if LM > 1
    LOCAL(SUM, sums, LM * SUMMED * PANEL);
    UNROLL for (int first = 0; first < MR; first += SUMMED) {
        if (first > 0)
            barrier(CLK_LOCAL_MEM_FENCE); // all have read what is overwritten now
        UNROLL for (int r = 0; r < SUMMED; ++r)
            UNROLL for (int v = 0; v < NV; ++v)
                LOCAL_STORE(total[first + r][v], sums, (lm * SUMMED + r) * PANEL + v * PITCH + lane);
        barrier(CLK_LOCAL_MEM_FENCE);
        // The work-items share out the vectors: each adds its LM sums.
        for (int i = lm; i < SUMMED * NV; i += LM) {
            vec value = LOCAL_LOAD(sums, i * PITCH + lane);
            UNROLL for (int other = 1; other < LM; ++other)
                value += LOCAL_LOAD(sums, other * (SUMMED * PANEL) + i * PITCH + lane);
            const int own_row = row + first + i / NV, own_column = column + i % NV * PITCH;
            if (M % MR == 0 || own_row < M)
                PUT(value, own_row, own_column)
        }
    }
#else
    UNROLL for (int r = 0; r < MR; ++r)
        if (M % MR == 0 || row + r < M)
            UNROLL for (int v = 0; v < NV; ++v)
                PUT(total[r][v], row + r, column + v * PITCH)
#endif
}
