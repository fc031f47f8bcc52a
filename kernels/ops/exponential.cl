// The exponential of a vector, for the templates that include this file behind vectors.cl: EXPONENTIAL(x), for x up to 0.
//
// With EXP 0 it is OpenCL's, which a GPU has as an instruction. With EXP 1 it is
//   e^x = 2^turns * e^rest    turns: the whole number next to x / ln 2
//                             rest:  x - turns * ln 2, with ln 2 in two parts (Cody and Waite)
// where 2^turns is put together from its bits, and e^rest is a polynomial, within 1e-9 of it (least squares, weighted anew
// by the errors). From -87 on it is within 1 unit in the last place; below, and so for -INFINITY, it is 0, where e^x is
// hardly a normal number any more. NaN stays.

#if EXP
#if VW == 1
#define BITS(x) as_int(x)
#define OF_BITS(i) as_float(i)
#else
#define BITS(x) CAT(as_int, VW)(x)
#define OF_BITS(i) CAT(as_float, VW)(i)
#endif
// What is added to it becomes a whole number in its last bits, in front of which the exponent of 1 stands already.
#define WHOLE (vec)(12582912.0f + 127.0f)
#define EXPONENTIAL exponential

static inline vec exponential(vec x)
{
    const vec shifted = fma(x, (vec)(1.44269504f), WHOLE);
    const vec turns = shifted - WHOLE;
    vec rest = fma(turns, (vec)(-0.693145752f), x);
    rest = fma(turns, (vec)(-1.42860682e-6f), rest);
    vec value = fma((vec)(1.97903457e-4f), rest, (vec)(1.39446603e-3f));
    value = fma(value, rest, (vec)(8.33349675e-3f));
    value = fma(value, rest, (vec)(4.16662954e-2f));
    value = fma(value, rest, (vec)(1.66666657e-1f));
    value = fma(value, rest, (vec)(0.5f));
    value = fma(value, rest * rest, rest) + (vec)(1.0f);
    value *= OF_BITS(BITS(shifted) << 23);
    return x < (vec)(-87.0f) ? (vec)(0.0f) : value;
}
#else
#define EXPONENTIAL(x) exp(x)
#endif
