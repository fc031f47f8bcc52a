// Factors of a product whose packed right side keeps whole numbers of Q_BITS, and scales. This file is in the place of
// factors.cl in texts for such weights (kernels/template.py), behind product.cl.
//
//   weight[k, n] = numbers[k, n] * scales[k / Q_BLOCK, n] + offsets[k / Q_BLOCK, n]
//
// `b` has the numbers in the order of packed weights, as numbers.cl says. From SCALES_AT on it has elements of TYPE: the
// scales as [panel][block][PANEL], with Q_OFFSETS 1 as many offsets, then bias. Without Q_SCALES there are none of both.
// Pairs of 4 bits lie half a panel apart, if that is whole vectors: then a work-item reads both with one vector of bytes.
// Numbers of 8 bits are asked for Q_AHEAD rows before they are read, once for each row of a panel; prefetch.cl says why.
//   LOAD_FACTORS and PACKED_FACTORS read weights from `p`, which points as many elements behind b as numbers lie there.

#define FACTOR SUM
#define BLOCK_STEPS BK // for templates with blocks of their own
#define MULTIPLY_ADD fma
typedef vec factors;
#define FACTOR_ELEMENT ELEMENT
#define FACTORS_OF LOAD_WIDE
#define BLOCK_SUM TOTAL
#define BEGIN_BLOCK(sets)
#define END_BLOCK(sets)

#define Q_BLOCKS ((K + Q_BLOCK - 1) / Q_BLOCK)
#define Q_NUMBERS (PANELS * PANEL * K)
#if Q_BITS == 8
#define Q_BYTES Q_NUMBERS
#else
#define Q_BYTES ((Q_NUMBERS + 1) / 2)
#endif
#define SCALES_AT ((Q_BYTES + 63) / 64 * (64 / (int)sizeof(TYPE))) // begins at a multiple of any vector
#define OFFSETS_AT (SCALES_AT + Q_SCALES * PANELS * Q_BLOCKS * PANEL)
#undef BIAS_AT
#define BIAS_AT(column) (OFFSETS_AT + Q_OFFSETS * PANELS * Q_BLOCKS * PANEL + (column))

#include "numbers.cl"

// Where a panel's scales of a block lie. The panel follows from `p`, which a loop does not move, so it is computed once.
#define Q_PLACE(p) (int)((p) - b)
#define Q_PANEL_OF(p) (Q_PLACE(p) / (PANEL * K) * (Q_BLOCKS * PANEL) + Q_PLACE(p) % PANEL)
#define Q_SCALES_OF(p, k) (Q_PANEL_OF(p) + (Q_BLOCKS == 1 ? 0 : (int)((uint)(k) / Q_BLOCK) * PANEL))
#if Q_AHEAD && defined(__has_builtin)
#if __has_builtin(__builtin_prefetch)
#define Q_ASK(p, k, i) ((i) == 0 ? __builtin_prefetch((__global const char *)b + Q_PLACE(p) + ((k) + Q_AHEAD) * PANEL) : (void)0)
#endif
#endif
#if Q_BITS == 4 && NV * LN % 2 == 0
#define Q_COLUMN(p, i) ((LN == 1 ? 0 : Q_PLACE(p) % PANEL) + (i))
#define Q_PAIRS_AT(p, k, i) ((Q_PLACE(p) / PANEL + (k)) * (PANEL / 2) + Q_COLUMN(p, i) % (PANEL / 2))
#define Q_NUMBERS_AT(p, k, i) PAIRED_NUMBERS(b, Q_PAIRS_AT(p, k, i), Q_COLUMN(p, i) >= PANEL / 2)
#elif defined(Q_ASK)
#define Q_NUMBERS_AT(p, k, i) (Q_ASK(p, k, i), NUMBERS(b, Q_PLACE(p) + (k) * PANEL + (i)))
#else
#define Q_NUMBERS_AT(p, k, i) NUMBERS(b, Q_PLACE(p) + (k) * PANEL + (i))
#endif
#define Q_SCALED(at, p, k, i) LOAD(b, at + Q_SCALES_OF(p, k) + (i))
#if !Q_SCALES
#define FACTORS_AT Q_NUMBERS_AT
#elif Q_OFFSETS
#define FACTORS_AT(p, k, i) fma(Q_NUMBERS_AT(p, k, i), Q_SCALED(SCALES_AT, p, k, i), Q_SCALED(OFFSETS_AT, p, k, i))
#else
#define FACTORS_AT(p, k, i) (Q_NUMBERS_AT(p, k, i) * Q_SCALED(SCALES_AT, p, k, i))
#endif
#define LOAD_FACTORS(p, i) FACTORS_AT(p, (int)((uint)(i) / PANEL), (int)((uint)(i) % PANEL))
#define PACKED_FACTORS LOAD_FACTORS
