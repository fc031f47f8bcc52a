// Vectors of 1, 2 or 4 factors, and their elements one by one, for templates that read vectors of other widths than VW;
// behind factors.cl.
// A macro is not expanded inside itself, so CAT is not used.
// VEC_OF(n) is the type, READ_OF reads from a tensor, SPREAD_OF writes a vector's elements to a private array.

#define VEC_OF(n) VEC_OF_(n)
#define VEC_OF_(n) VEC_##n
#define VEC_1 FACTOR
#define VEC_2 CAT(FACTOR, 2)
#define VEC_4 CAT(FACTOR, 4)
#define READ_OF(n, p, i) READ_OF_(n, p, i)
#define READ_OF_(n, p, i) READ_##n(p, i)
#define READ_1(p, i) FACTOR_ELEMENT(p, i)
#define READ_2(p, i) FACTORS_OF(2, p, i)
#define READ_4(p, i) FACTORS_OF(4, p, i)
#define SPREAD_OF(n, lanes, i, v) SPREAD_OF_(n, lanes, i, v)
#define SPREAD_OF_(n, lanes, i, v) SPREAD_##n(lanes, i, v)
#define SPREAD_1(lanes, i, v) (lanes)[i] = (v)
#define SPREAD_2(lanes, i, v) vstore2(v, 0, (lanes) + (i))
#define SPREAD_4(lanes, i, v) vstore4(v, 0, (lanes) + (i))
