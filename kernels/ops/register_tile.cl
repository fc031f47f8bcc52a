// The reduction of a work-item's tile in registers: MR rows by NV vectors of VW columns; behind factors.cl, held_rows.cl and
// prefetch.cl.
//
// REDUCE(length) adds up the products of each k, from where the loop's `k` is to the length: KU * KA at a time, so that KA
// sets of accumulators take turns. The text before defines RIGHT(k, v), vector v of row k of the right side, AHEAD(k), where
// that row begins if it is packed, and STEP, how far such rows are apart. `rows` are the MR rows of the left side (LEFT in
// held_rows.cl), and `next` is the pass's share of the next panel (prefetch.cl).

#ifndef KA
#define KA 1
#endif

// One k: each row's element times the tile's row of the right side, added to accumulator set s.
#define ACCUMULATE(s, k)                                                                       \
    {                                                                                          \
        factors right[NV];                                                                     \
        UNROLL for (int v = 0; v < NV; ++v) {                                                  \
            right[v] = RIGHT(k, v);                                                            \
            PREFETCH_AHEAD(AHEAD((k) + PF), v * VW);                                           \
        }                                                                                      \
        UNROLL for (int r = 0; r < MR; ++r) {                                                  \
            const factors left = LEFT(rows, r, k);                                             \
            UNROLL for (int v = 0; v < NV; ++v)                                                \
                BLOCK_SUM(s, r, v) = MULTIPLY_ADD(left, right[v], BLOCK_SUM(s, r, v));         \
        }                                                                                      \
    }

#define REDUCE(length)                                                 \
    EACH_BLOCK(k, length) {                                            \
        HOLD_BLOCK(rows, k, length)                                    \
        BEGIN_BLOCK(KA)                                                \
        for (; k + KU * KA <= BLOCK_END(length); k += KU * KA) {       \
            PREFETCH_SHARE(next, STEP, KU * KA)                        \
            UNROLL for (int u = 0; u < KU; ++u)                        \
                UNROLL for (int s = 0; s < KA; ++s)                    \
                    ACCUMULATE(s, k + u * KA + s)                      \
        }                                                              \
        if ((length) % (KU * KA) || HELD % (KU * KA))                  \
            for (; k < BLOCK_END(length); ++k)                         \
                ACCUMULATE(0, k)                                       \
        END_BLOCK(KA)                                                  \
    }
