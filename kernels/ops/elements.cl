// One element of a tensor: what it is in memory, what it is computed in, and how it is read and written. Templates that
// compute with elements include this file, or vectors.cl, which includes it.
//
// TYPE is what tensors hold, and all else that kernels hand to each other. SUM is what a kernel computes and sums up
// in, and what it keeps to itself, in whichever memory. Both are float unless they are defined.
// ELEMENT and LOAD_WIDE read TYPE as SUM, STORE_ELEMENT and STORE_WIDE write SUM as TYPE. If CONVERTED is defined, TYPE is
// half and SUM is float; halves.cl comes first then. LOAD_OF and STORE_OF access vectors of another type, which they do not
// convert. OWN_ELEMENT reads what a kernel keeps. LOAD_PACKED reads vectors of packed weights of which each begins at a
// multiple of its size.
//
// LOCAL declares `n` elements of local memory at the scope of a kernel, which has LOCAL_POOL behind its parameters. A text
// in front of this one may define both: then a kernel is a function and takes its local memory from a pool that another
// kernel hands on (offset_arguments.py). Each array begins at a multiple of 16 bytes; vectors of more come first.

#ifndef TYPE
#define TYPE float
#endif
#ifndef SUM
#define SUM TYPE
#endif
#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
#ifdef CONVERTED
#define ELEMENT(p, i) vload_half(0, (p) + (i))
#define STORE_ELEMENT(v, p, i) vstore_half_rte(v, 0, (p) + (i))
#define LOAD_WIDE(n, p, i) CAT(floats, n)(LOAD_BITS(n, p, i))
#define STORE_WIDE(n, v, p, i) STORE_BITS(n, CAT(halves, n)(v), p, i)
#define LOAD_BITS(n, p, i) CAT(load_bits, n)((p) + (i))
#define STORE_BITS(n, v, p, i) CAT(store_bits, n)(v, (p) + (i))
#else
#define ELEMENT(p, i) ((p)[i])
#define STORE_ELEMENT(v, p, i) ((p)[i] = (v))
#define LOAD_WIDE(n, p, i) LOAD_OF(TYPE, n, p, i)
#define STORE_WIDE(n, v, p, i) STORE_OF(TYPE, n, v, p, i)
#endif
#define LOAD_OF(type, n, p, i) CAT(vload, n)(0, (p) + (i))
#define STORE_OF(type, n, v, p, i) CAT(vstore, n)(v, 0, (p) + (i))
#define LOAD_PACKED LOAD_WIDE
#define OWN_ELEMENT(p, i) ((p)[i])
#ifndef LOCAL
#define LOCAL(type, name, n) __local type name[n] __attribute__((aligned(sizeof(type) > 16 ? sizeof(type) : 16)))
#define LOCAL_POOL
#endif
#define UNROLL __attribute__((opencl_unroll_hint))
