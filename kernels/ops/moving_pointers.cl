// Products of rows in memory, by pointers that move. This file follows register_tile.cl in the texts of matmul_tiled.cl
// and conv_direct.cl for other devices than CPUs.
//
// Compilers for GPUs of phones compute the 64-bit address of each access from its index: Adreno's takes 11 instructions
// for it. So all pointers move by one addition in a step of KU * KA elements of the reduction, and what differs inside of
// a step is a constant. Where rows are aligned, a step reads them in vectors of 4. Mali's compiler unrolls all steps of a
// short reduction and spills registers, whatever a hint says, so it is not told how many there are: END is the length.

#ifndef HALF_FACTORS
#define STEP (KU * KA)
#ifdef FIRST_PITCH
#define WIDE_ROWS (STEP % 4 == 0 && WEIGHTS && LEFT_STEP == 1 && FIRST_PITCH % 4 == 0)
#else
#define WIDE_ROWS (STEP % 4 == 0 && INPUTS % 4 == 0 && NW % 4 == 0)
#endif
#define KEPT(rows, r, k) kept[r][(k) % 4]

#if defined(PACK) && !PACK
#define MOVE_RIGHT(steps) UNROLL for (int v = 0; v < NV; ++v) vectors[v] += (steps) * B_K;
#else
#define MOVE_RIGHT(steps) columns += (steps) * PANEL;
#endif

#define END(length) (get_global_size(0) ? (length) : 0)

#undef REDUCE
#define REDUCE(length)                                                         \
    for (; k + STEP <= END(length); k += STEP) {                               \
        PREFETCH_SHARE(next, PANEL, STEP)                                      \
        if (WIDE_ROWS && (length) % 4 == 0) {                                  \
            UNROLL for (int q = 0; q < STEP; q += 4) {                         \
                SUM kept[MR][4];                                               \
                UNROLL for (int r = 0; r < MR; ++r)                            \
                    vstore4(LOAD_PACKED(4, rows[r], q), 0, kept[r]);           \
                UNROLL for (int i = 0; i < 4; ++i)                             \
                    ACCUMULATE(KEPT, (q + i) % KA, q + i)                      \
            }                                                                  \
        } else                                                                 \
            UNROLL for (int u = 0; u < STEP; ++u)                              \
                ACCUMULATE(LEFT, u % KA, u)                                    \
        UNROLL for (int r = 0; r < MR; ++r)                                    \
            rows[r] += STEP * LEFT_STEP;                                       \
        MOVE_RIGHT(STEP)                                                       \
    }                                                                          \
    if ((length) % STEP)                                                       \
        for (int u = 0; k < (length); ++k, ++u)                                \
            ACCUMULATE(LEFT, 0, u)                                             \
    MOVE_RIGHT((length) % STEP - (length))
#endif
