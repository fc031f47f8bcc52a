// The reduction of a work-item's tile in registers: MR rows by NV vectors of VW columns.
//
// REDUCE(length) adds up the products of each k, from where the loop's `k` is to the length: KU * KA at a time, so that KA
// sets of accumulators, TOTAL(s, r, v), take turns. `rows` are the MR rows of the left side (held_rows.cl). A kernel that
// keeps its rows, or reads few at a time, says how: REDUCE_AT_ONCE(READ, length) reads element k of row r by
// READ(rows, r, k). `columns` are the packed right side, and `next` is this pass's share of the next panel (prefetch.cl).
// The text before may define RIGHT(k, v), the vector v of a row k that lies elsewhere, and ADD_PRODUCT.

#ifndef KA
#define KA 1
#endif
#ifndef TOTAL
#define TOTAL(s, r, v) total[r][v]
#endif
#ifndef RIGHT
#define RIGHT(k, v) LOAD_FACTORS(columns, (k) * PANEL + v * VW)
#endif
#ifndef ADD_PRODUCT
#define ADD_PRODUCT(r, left, right, sum) MULTIPLY_ADD(left, right, sum)
#endif

#include "vectors.cl"
#include "factors.cl"
#include "held_rows.cl"
#include "prefetch.cl"

// One k: each row's element times the tile's row of the right side, added to accumulator set s.
#define ACCUMULATE(READ, s, k)                                                          \
    {                                                                                   \
        factors right[NV];                                                              \
        UNROLL for (int v = 0; v < NV; ++v) {                                           \
            right[v] = RIGHT(k, v);                                                     \
            PREFETCH_AHEAD(columns + ((k) + PF) * PANEL, v * VW);                       \
        }                                                                               \
        UNROLL for (int r = 0; r < MR; ++r) {                                           \
            const factors left = READ(rows, r, k);                                      \
            UNROLL for (int v = 0; v < NV; ++v)                                         \
                BLOCK_SUM(s, r, v) = ADD_PRODUCT(r, left, right[v], BLOCK_SUM(s, r, v)); \
        }                                                                               \
    }
#if KA == 1
#define EACH_SET(READ, k) ACCUMULATE(READ, 0, k)
#else
#define EACH_SET(READ, k)                   \
    UNROLL for (int s = 0; s < KA; ++s)     \
        ACCUMULATE(READ, s, (k) + s)
#endif
#define REDUCE_BY(READ, EACH, HOLD, END, length)                       \
    EACH(k, length) {                                                  \
        HOLD(rows, k, length)                                          \
        BEGIN_BLOCK(KA)                                                \
        for (; k + KU * KA <= END(length); k += KU * KA) {             \
            PREFETCH_SHARE(next, PANEL, KU * KA)                       \
            UNROLL for (int u = 0; u < KU; ++u)                        \
                EACH_SET(READ, k + u * KA)                             \
        }                                                              \
        if ((length) % (KU * KA) || HELD % (KU * KA))                  \
            for (; k < END(length); ++k)                               \
                ACCUMULATE(READ, 0, k)                                 \
        END_BLOCK(KA)                                                  \
    }
#define REDUCE(length) REDUCE_BY(LEFT, EACH_BLOCK, HOLD_BLOCK, BLOCK_END, length)
#define REDUCE_AT_ONCE(READ, length) REDUCE_BY(READ, ALL_AT_ONCE, HOLD_NOTHING, ALL_OF, length)
