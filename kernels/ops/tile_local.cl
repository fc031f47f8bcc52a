// A work-group's tile of a product with its factors in local memory. Templates include this file in the body of their
// kernel, behind tile_sizes.cl.
//
//   total[r][v] = sum over begin <= k < end of left[row r, k] * right[k, vector v]
//
//                         BN = LN * NV * VW columns
//                       +-----------------------+
//               rights  |                       |  BK steps of the reduction, all columns of the tile
//                       +-----------------------+
//    BM     BK                                         a work-item's columns: NV vectors, LN vectors apart
//    rows +----+        +--+--------+--+--------+      a work-item's rows: LM apart, or vectors of LW rows
//         |    |        |xx|        |xx|        |
//         |    |        |  |        |  |        |      So neighbours read neighbouring vectors of rights, which
//         +----+        |xx|        |xx|        |      is free of conflicts, and all of them the same rows, which
//     lefts, transposed +--+--------+--+--------+      costs as much as reading it once.
//
// One block of BK steps is multiplied while the next is on its way from memory to registers (`held`). With STAGES 2 it goes
// to the other half of local memory, so that a block needs one barrier; with STAGES 1 to the same memory, between two.
// With SA or SB 0 a factor is read where it lies, by each work-item for itself.
//
// The text before says how factors are read: LEFT(across, k) is a vector of LEFT_WIDTH elements from row `across` of the
// tile, RIGHT(across, k) of RIGHT_WIDTH elements from a column. They lie along the reduction (DEEP 1) or across it
// (DEEP 0), LEFT_ONE(across, k) is one element. Each is asked for k < K only; beyond, blocks are filled with zeros. It
// also defines `begin` and `end`, multiples of BK but for an end of K, and `item`, the number of the work-item in its
// group.

#if SA
    LOCAL(FACTOR, lefts, STAGES * BK * LEFT_PITCH);
    left_vec left_held[LOADS(LEFT)];
#endif
#if SB
    LOCAL(FACTOR, rights, STAGES * BK * RIGHT_PITCH);
    right_vec right_held[LOADS(RIGHT)];
#endif
    const int item_row = item / LN, item_column = item % LN;

#define TOTAL(s, r, v) total[r][v]
    vec total[MR][NV];
    UNROLL for (int r = 0; r < MR; ++r)
        UNROLL for (int v = 0; v < NV; ++v)
            total[r][v] = (vec)(0.0f);

    if (begin < end) {
        FETCH_LEFT(begin)
        FETCH_RIGHT(begin)
        STASH_LEFT(0)
        STASH_RIGHT(0)
    }
    TILE_BARRIER

    int half_ = 0; // of local memory
    for (int first = begin; first < end; first += BK) {
        const bool more = first + BK < end;
        if (more) {
            FETCH_LEFT(first + BK)
            FETCH_RIGHT(first + BK)
        }
        // Each step: MR rows by NV vectors.
        for (int steps = 0; steps < BK; steps += BLOCK_STEPS) {
            BEGIN_BLOCK(1)
            __attribute__((opencl_unroll_hint(KU)))
            for (int step = steps; step < steps + BLOCK_STEPS; ++step) {
                FACTOR left[MR];
                factors right[NV];
                READ_LEFT(left, half_, first, step)
                READ_RIGHT(right, half_, first, step)
                UNROLL for (int r = 0; r < MR; ++r)
                    UNROLL for (int v = 0; v < NV; ++v)
                        BLOCK_SUM(0, r, v) = MULTIPLY_ADD((factors)(left[r]), right[v], BLOCK_SUM(0, r, v));
            }
            END_BLOCK(1)
        }
        if (more) {
#if STAGES == 1
            TILE_BARRIER // all have read what is overwritten now
#else
            half_ = 1 - half_;
#endif
            STASH_LEFT(half_)
            STASH_RIGHT(half_)
            TILE_BARRIER
        }
    }
