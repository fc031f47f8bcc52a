// Vectors of tensors accessed by pointers to vectors, in the place of vload and vstore. This file follows elements.cl in
// the texts for devices on which all buffers begin at multiples of every vector's size.
//
// vload and vstore take any element's address, so compilers for GPUs access each element by itself. A pointer to a vector
// promises a multiple of the vector's size. With ALIGNED_VECTORS all vectors of a launch keep that promise, and those that
// are read by PACKED always do. A vector of 3 elements has the size of 4, so it keeps vload and vstore.
//
// ALIGNED_BUFFER stands behind each buffer among a kernel's parameters. From where buffers begin, compilers find out
// which neighbouring elements they may read together, such as those of a row.

#define VECTOR_OF(type, n, p, i) (*(__global const CAT(type, n) *)((p) + (i)))
#define STORE_VECTOR(type, n, v, p, i) (*(__global CAT(type, n) *)((p) + (i)) = (v))
#ifdef CONVERTED
#define VECTOR_AT(n, p, i) CAT(floats, n)(VECTOR_OF(ushort, n, p, i))
#else
#define VECTOR_AT(n, p, i) VECTOR_OF(TYPE, n, p, i)
#endif
#undef LOAD_PACKED
#define LOAD_PACKED VECTOR_AT
#if ALIGNED_VECTORS
#undef LOAD_OF
#undef STORE_OF
#define LOAD_OF(type, n, p, i) CAT(LOAD_, n)(type, n, p, i)
#define STORE_OF(type, n, v, p, i) CAT(STORE_, n)(type, n, v, p, i)
#ifdef CONVERTED
#undef LOAD_BITS
#undef STORE_BITS
#define LOAD_BITS(n, p, i) LOAD_OF(ushort, n, p, i)
#define STORE_BITS(n, v, p, i) STORE_OF(ushort, n, v, p, i)
#endif
#define LOAD_2 VECTOR_OF
#define LOAD_3(type, n, p, i) vload3(0, (__global const type *)((p) + (i)))
#define LOAD_4 VECTOR_OF
#define LOAD_8 VECTOR_OF
#define LOAD_16 VECTOR_OF
#define STORE_2 STORE_VECTOR
#define STORE_3(type, n, v, p, i) vstore3(v, 0, (__global type *)((p) + (i)))
#define STORE_4 STORE_VECTOR
#define STORE_8 STORE_VECTOR
#define STORE_16 STORE_VECTOR
#endif

#ifdef __has_attribute
#if __has_attribute(align_value)
#define ALIGNED_BUFFER __attribute__((align_value(64)))
#endif
#endif
#ifndef ALIGNED_BUFFER
#define ALIGNED_BUFFER
#endif
