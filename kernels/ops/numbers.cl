// Vectors of VW whole numbers with a sign, of Q_BITS each, in memory that a kernel knows as TYPE; behind vectors.cl.
//
//   NUMBERS(p, i) reads those from number i on behind `p`, a multiple of VW, as floats.
//   PAIRED_NUMBERS(p, i, upper) reads the lower or upper halves of VW bytes, from byte i on.
// Two numbers of 4 bits share a byte. NUMBERS takes the one in the lower half for number c of a vector and the other one
// for c + VW / 2; single numbers follow each other.

#ifndef Q_BITS
#define Q_BITS 8
#endif
// By a pointer on each device, since vectors of packed begin at multiples of their size, and vload reads bytes one by one.
#define NUMBER_BYTES(n, p, i) (*(__global const CAT(char, n) *)((__global const char *)(p) + (i)))
#define NUMBER_BYTE(p, i) ((int)((__global const char *)(p))[i])
#if Q_BITS == 8 && VW == 1
#define NUMBERS(p, i) ((SUM)NUMBER_BYTE(p, i))
#elif Q_BITS == 8
#define NUMBERS(p, i) CAT(convert_float, VW)(CAT(convert_int, VW)(NUMBER_BYTES(VW, p, i)))
#elif VW == 1
#define NUMBERS(p, i) ((SUM)(NUMBER_BYTE(p, (uint)(i) / 2) << ((i) % 2 ? 24 : 28) >> 28))
#else
#if VW == 2
#define PAIR_TYPE int
#define READ_PAIRS NUMBER_BYTE
#else
#if VW == 4
#define PAIRS 2
#elif VW == 8
#define PAIRS 4
#else
#define PAIRS 8
#endif
#define PAIR_TYPE CAT(int, PAIRS)
#define READ_PAIRS(p, i) CAT(convert_int, PAIRS)(NUMBER_BYTES(PAIRS, p, i))
#endif
#define NUMBERS(p, i) CAT(convert_float, VW)(both_halves(READ_PAIRS(p, (uint)(i) / 2)))
static inline CAT(int, VW) both_halves(PAIR_TYPE pairs)
{
    return (CAT(int, VW))(pairs << 28 >> 28, pairs >> 4);
}
#endif
#if VW == 1
#define PAIRED_NUMBERS(p, i, upper) ((SUM)(NUMBER_BYTE(p, i) << ((upper) ? 24 : 28) >> 28))
#else
#define PAIRED_NUMBERS(p, i, upper) \
    CAT(convert_float, VW)(CAT(convert_int, VW)(NUMBER_BYTES(VW, p, i)) << ((upper) ? 24 : 28) >> 28)
#endif
