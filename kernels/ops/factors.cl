// What the factors of a product are multiplied in, for templates that may do so in half; behind vectors.cl.
//
// FACTOR is the type of a factor, and `factors` a vector of VW of them. They are numbers of SUM unless HALF_FACTORS is
// defined, as it is in texts for devices that compute in half. Then the products of BLOCK_STEPS steps of the reduction are
// added up in half, too, and these sums in SUM. With 16 steps a transformer was off by 2.4 % of its largest result, with 8
// steps by 1 %, which is what storing halves costs alone.
//   MULTIPLY_ADD(a, b, sum) is for factors, or vectors of them.
//   FACTOR_ELEMENT, LOAD_FACTORS and PACKED_FACTORS read TYPE as ELEMENT, LOAD and PACKED do, FACTORS_OF(n, p, i) reads n.
//   BEGIN_BLOCK(sets) ... END_BLOCK(sets) stand around the steps of a block, in which BLOCK_SUM(s, r, v) is the vector of
//   sums that they add to. The template defines TOTAL(s, r, v) as its own sums: of a set s < sets, a row r < MR and a
//   vector v < NV.

#ifdef HALF_FACTORS
#define FACTOR half
#define BLOCK_STEPS 8
#define MULTIPLY_ADD(a, b, sum) ((a) * (b) + (sum)) // some libraries have no fma for half, and compilers contract this
#ifdef ALIGNED_BUFFER
#define PACKED_BITS(n, p, i) VECTOR_OF(ushort, n, p, i)
#else
#define PACKED_BITS LOAD_BITS
#endif
#define FACTOR_ELEMENT(p, i) ((p)[i])
#define FACTORS_OF(n, p, i) CAT(as_half, n)(LOAD_BITS(n, p, i))
#if VW == 1
typedef half factors;
#define LOAD_FACTORS FACTOR_ELEMENT
#define PACKED_FACTORS FACTOR_ELEMENT
#define IN_SUM(v) ((SUM)(v))
#else
typedef CAT(half, VW) factors;
#define LOAD_FACTORS(p, i) FACTORS_OF(VW, p, i)
#define PACKED_FACTORS(p, i) CAT(as_half, VW)(PACKED_BITS(VW, p, i))
#define IN_SUM(v) CAT(floats, VW)(CAT(as_ushort, VW)(v))
#endif
#define EACH_SUM(sets, what)                       \
    UNROLL for (int s = 0; s < sets; ++s)          \
        UNROLL for (int r = 0; r < MR; ++r)        \
            UNROLL for (int v = 0; v < NV; ++v)    \
                what;
#define BLOCK_SUM(s, r, v) block[s][r][v]
#define BEGIN_BLOCK(sets)          \
    factors block[sets][MR][NV];   \
    EACH_SUM(sets, block[s][r][v] = (factors)((half)0))
#define END_BLOCK(sets) EACH_SUM(sets, TOTAL(s, r, v) += IN_SUM(block[s][r][v]))
#else
#define FACTOR SUM
#define BLOCK_STEPS BK // for templates with blocks of their own
#define MULTIPLY_ADD fma
typedef vec factors;
#define FACTOR_ELEMENT ELEMENT
#define FACTORS_OF LOAD_WIDE
#define LOAD_FACTORS LOAD
#define PACKED_FACTORS PACKED
#define BLOCK_SUM TOTAL
#define BEGIN_BLOCK(sets)
#define END_BLOCK(sets)
#endif
