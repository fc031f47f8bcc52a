// Matrix product with a constant right side that was packed before.
//
//   output[m, n] = EPILOGUE(sum over k < K of a[m, k] * b[k, n] + bias[n])
//
//                       NW = NV * VW columns
//                     +----+----+-- --+----+
//              packed | VW | VW |     | VW |  K rows, read KU * KA at a time
//                     +----+----+-- --+----+
//           K
//       +-------+     +----+----+-- --+----+
//    a  |       | MR  | accumulators in    |  a work-item's tile of the output; KA sets of accumulators
//       +-------+     | registers          |  take turns along k and are added at the end
//                     +----+----+-- --+----+
//
// Work split: one grid dimension runs over column tiles, LN of them to a work-group, the other over row tiles, LM to a
// work-group; with ORDER 0 column tiles are dimension 0. The tiles of a work-group lie interleaved in packed, as one
// panel, so that neighbouring work-items read neighbouring memory:
//   packed = [panel][k][tile of the panel][NW], then bias as [panel][tile of the panel][NW]; columns from N on are zero.
// Rows beyond M are computed from the last row and not stored.
//
// a may be there in parts, [M, width] each, that lie side by side in it. The text before this file names them then. The
// reduction runs over one part after the other, and packed runs on.
// Preconditions: fewer than 2^31 elements in each buffer.

#ifndef M
#define M 8                  // rows of a and output
#define K 8                  // columns of a
#define N 8                  // columns of output
#endif
#ifndef MR
#define MR 4                 // rows of a tile
#define NV 1                 // vectors of a tile's row
#define VW 4                 // columns of a vector
#define KU 1                 // unrolling of the reduction, on top of KA
#define KA 1                 // sets of accumulators
#define PF 0                 // packed is prefetched so many k ahead; 0: it is not
#define LM 1                 // work-group along the rows
#define LN 1                 // work-group along the columns
#define ORDER 0              // 0: column tiles are dimension 0 of the grid, 1: row tiles are
#endif
#ifndef FIRST_PART
#define PART_PARAMETERS __global const TYPE *restrict a,
#define FIRST_PART a
#define FIRST_WIDTH K
#define OTHER_PARTS          // "PART(name, width) ..." for the parts behind it
#endif
#ifndef EPILOGUE
#define OPERAND_PARAMETERS   // ", __global const TYPE *restrict operand0, ..."
#define EPILOGUE(value, T, LOAD, offset)
#endif

#define ROW_TILES ((M + MR - 1) / MR)
#define PASSES (ORDER ? ROW_TILES : LM) // of row tiles over a panel

#include "vectors.cl"
#include "factors.cl"
#include "held_rows.cl"
#include "prefetch.cl"

#define NW (NV * VW)
#define TILES ((N + NW - 1) / NW)
#define TAIL (N % VW)       // columns of a vector that reaches beyond the last one; they are stored one by one
#define PANELS ((TILES + LN - 1) / LN)
#define TOTAL(s, r, v) total[s][r][v]

// One k: each row's element times the tile's row of packed, added to accumulator set s.
#define ACCUMULATE(s, k)                                                   \
    {                                                                      \
        factors right[NV];                                                 \
        UNROLL for (int v = 0; v < NV; ++v) {                              \
            right[v] = LOAD_FACTORS(columns, (k) * (LN * NW) + v * VW);    \
            PREFETCH_AHEAD(columns + ((k) + PF) * (LN * NW), v * VW);      \
        }                                                                  \
        UNROLL for (int r = 0; r < MR; ++r) {                              \
            const factors left = LEFT(rows, r, k);                         \
            UNROLL for (int v = 0; v < NV; ++v)                            \
                BLOCK_SUM(s, r, v) = MULTIPLY_ADD(left, right[v], BLOCK_SUM(s, r, v)); \
        }                                                                  \
    }

// Every k of a part, from 0 to its width; its first one's row of packed is where columns is.
#define REDUCE(width)                                                      \
    EACH_BLOCK(k, width) {                                                 \
        HOLD_BLOCK(rows, k, width)                                         \
        BEGIN_BLOCK(KA)                                                    \
        for (; k + KU * KA <= BLOCK_END(width); k += KU * KA) {            \
            PREFETCH_SHARE(next, LN * NW, KU * KA)                         \
            UNROLL for (int u = 0; u < KU; ++u)                            \
                UNROLL for (int s = 0; s < KA; ++s)                        \
                    ACCUMULATE(s, k + u * KA + s)                          \
        }                                                                  \
        if ((width) % (KU * KA) || HELD % (KU * KA))                       \
            for (; k < BLOCK_END(width); ++k)                              \
                ACCUMULATE(0, k)                                           \
        END_BLOCK(KA)                                                      \
    }

// Goes on with another part; k is the width of the last one.
#define PART(part, width)                                                  \
    UNROLL for (int r = 0; r < MR; ++r)                                    \
        rows[r] = part + min(first + r, M - 1) * (width);                  \
    columns += k * (LN * NW);                                              \
    k = 0;                                                                 \
    REDUCE(width)

__kernel
#if ORDER
__attribute__((reqd_work_group_size(LM, LN, 1)))
#else
__attribute__((reqd_work_group_size(LN, LM, 1)))
#endif
void matmul_tiled(PART_PARAMETERS __global const TYPE *restrict packed,
                  __global TYPE *restrict output OPERAND_PARAMETERS)
{
    const int tile = get_global_id(ORDER);
    const int first = get_global_id(1 - ORDER) * MR;
    if (tile >= TILES || first >= M)
        return;
    __global const TYPE *columns = packed + (tile / LN * K * LN + tile % LN) * NW;
    const int share = first / MR % PASSES * ((K + PASSES - 1) / PASSES); // of the next panel, this pass's first row
    __global const TYPE *next = columns + (K + share) * (LN * NW);
    __global const TYPE *bias = packed + (PANELS * LN * K + tile) * NW;

    __global const TYPE *rows[MR];
    UNROLL for (int r = 0; r < MR; ++r)
        rows[r] = FIRST_PART + min(first + r, M - 1) * FIRST_WIDTH;

    vec total[KA][MR][NV];
    UNROLL for (int s = 0; s < KA; ++s)
        UNROLL for (int r = 0; r < MR; ++r)
            UNROLL for (int v = 0; v < NV; ++v)
                total[s][r][v] = s == 0 ? LOAD(bias, v * VW) : (vec)(0.0f);

    HELD_ROWS
    int k = 0;
    REDUCE(FIRST_WIDTH)
    OTHER_PARTS

#if TAIL
    SUM lanes[MR * VW];
#endif
    UNROLL for (int r = 0; r < MR; ++r)
        if (first + r < M)
            UNROLL for (int v = 0; v < NV; ++v) {
                const int column = tile * NW + v * VW;
                const int offset = (first + r) * N + column;
                vec value = total[0][r][v];
                UNROLL for (int s = 1; s < KA; ++s)
                    value += total[s][r][v];
                if (N % NW == 0 || column + VW <= N) {
                    EPILOGUE(value, vec, LOAD, offset)
                    STORE(value, output, offset);
                }
#if TAIL
                else if (v == N % NW / VW)
                    OWN_STORE(value, lanes, r * VW);
#endif
            }
#if TAIL
    if (tile == TILES - 1)
        for (int r = 0; r < MR && first + r < M; ++r)
            for (int i = 0; i < TAIL; ++i) {
                const int offset = (first + r) * N + (N - TAIL) + i;
                SUM value = lanes[r * VW + i];
                EPILOGUE(value, SUM, ELEMENT, offset)
                STORE_ELEMENT(value, output, offset);
            }
#endif
}
