// Factors of a product whose packed right side keeps whole numbers of Q_BITS, and scales. This file is in the place of
// factors.cl in texts for such weights (kernels/template.py), behind product.cl.
//
//   weight[k, n] = numbers[k, n] * scales[k / Q_BLOCK, n] + offsets[k / Q_BLOCK, n]
//
// `b` has the numbers in the order of packed weights, from SCALES_AT on elements of TYPE: the scales as
// [panel][block][PANEL], with Q_OFFSETS 1 as many offsets, then bias. Without Q_SCALES there are none of both. Numbers have
// a sign. Two numbers of 4 bits share a byte: columns c and c + VW / 2 of a vector, the former in the lower half.
// Numbers of 8 bits are asked for Q_AHEAD rows before they are read, once for each row of a panel (prefetch.cl says more).
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
#define SCALES_AT (((Q_NUMBERS * Q_BITS + 7) / 8 + 63) / 64 * 64 / (int)sizeof(TYPE)) // begins at a multiple of any vector
#define OFFSETS_AT (SCALES_AT + Q_SCALES * PANELS * Q_BLOCKS * PANEL)
#undef BIAS_AT
#define BIAS_AT(column) (OFFSETS_AT + Q_OFFSETS * PANELS * Q_BLOCKS * PANEL + (column))

// By a pointer on each device, since vectors of packed begin at multiples of their size, and vload reads bytes one by one.
#define Q_BYTES(n, i) (*(__global const CAT(char, n) *)((__global const char *)b + (i)))
#define Q_BYTE(i) ((int)((__global const char *)b)[i])
#if Q_BITS == 8 && VW == 1
#define Q_AT(i) ((SUM)Q_BYTE(i))
#elif Q_BITS == 8
#define Q_AT(i) CAT(convert_float, VW)(CAT(convert_int, VW)(Q_BYTES(VW, i)))
#elif VW == 1
#define Q_AT(i) ((SUM)(Q_BYTE((uint)(i) / 2) << ((i) % 2 ? 24 : 28) >> 28))
#else
#if VW == 2
#define Q_PAIRS int
#define Q_READ Q_BYTE
#else
#if VW == 4
#define Q_HALF 2
#elif VW == 8
#define Q_HALF 4
#else
#define Q_HALF 8
#endif
#define Q_PAIRS CAT(int, Q_HALF)
#define Q_READ(i) CAT(convert_int, Q_HALF)(Q_BYTES(Q_HALF, i))
#endif
#define Q_AT(i) CAT(convert_float, VW)(both_halves(Q_READ((uint)(i) / 2)))
static inline CAT(int, VW) both_halves(Q_PAIRS pairs)
{
    return (CAT(int, VW))(pairs << 28 >> 28, pairs >> 4);
}
#endif

// Where a panel's scales of a block lie. The panel follows from `p`, which a loop does not move, so it is computed once.
#define Q_PLACE(p) (int)((p) - b)
#define Q_PANEL_OF(p) (Q_PLACE(p) / (PANEL * K) * (Q_BLOCKS * PANEL) + Q_PLACE(p) % PANEL)
#define Q_SCALES_OF(p, k) (Q_PANEL_OF(p) + (Q_BLOCKS == 1 ? 0 : (int)((uint)(k) / Q_BLOCK) * PANEL))
#if Q_AHEAD && defined(__has_builtin)
#if __has_builtin(__builtin_prefetch)
#define Q_ASK(p, k, i) ((i) == 0 ? __builtin_prefetch((__global const char *)b + Q_PLACE(p) + ((k) + Q_AHEAD) * PANEL) : (void)0)
#endif
#endif
#ifdef Q_ASK
#define Q_NUMBERS_AT(p, k, i) (Q_ASK(p, k, i), Q_AT(Q_PLACE(p) + (k) * PANEL + (i)))
#else
#define Q_NUMBERS_AT(p, k, i) Q_AT(Q_PLACE(p) + (k) * PANEL + (i))
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
