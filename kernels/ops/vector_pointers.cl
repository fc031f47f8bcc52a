// Vectors of tensors accessed by pointers to vectors, in the place of vload and vstore. This file follows elements.cl in
// the texts for devices on which all buffers begin at multiples of every vector's size.
//
// vload and vstore take any element's address, so compilers for GPUs access each element by itself. A pointer to a vector
// promises a multiple of the vector's size. With ALIGNED_VECTORS all vectors of a launch keep that promise, and those that
// are read by PACKED always do. A vector of 3 elements has the size of 4, so it keeps vload and vstore.
//
// ALIGNED_BUFFER stands behind each buffer among a kernel's parameters. From where buffers begin, compilers find out
// which neighbouring elements they may read together, such as those of a row.

#ifdef CONVERTED
#define VECTOR_AT(n, p, i) CAT(floats, n)(*(__global const CAT(ushort, n) *)((p) + (i)))
#define STORE_VECTOR(n, v, p, i) (*(__global CAT(ushort, n) *)((p) + (i)) = CAT(halves, n)(v))
#define LOAD_3(n, p, i) floats3(load_bits3((p) + (i)))
#define STORE_3(n, v, p, i) store_bits3(halves3(v), (p) + (i))
#else
#define VECTOR_AT(n, p, i) (*(__global const CAT(TYPE, n) *)((p) + (i)))
#define STORE_VECTOR(n, v, p, i) (*(__global CAT(TYPE, n) *)((p) + (i)) = (v))
#define LOAD_3(n, p, i) vload3(0, (p) + (i))
#define STORE_3(n, v, p, i) vstore3(v, 0, (p) + (i))
#endif
#undef LOAD_PACKED
#define LOAD_PACKED VECTOR_AT
#if ALIGNED_VECTORS
#undef LOAD_WIDE
#undef STORE_WIDE
#define LOAD_WIDE(n, p, i) CAT(LOAD_, n)(n, p, i)
#define STORE_WIDE(n, v, p, i) CAT(STORE_, n)(n, v, p, i)
#define LOAD_2 VECTOR_AT
#define LOAD_4 VECTOR_AT
#define LOAD_8 VECTOR_AT
#define LOAD_16 VECTOR_AT
#define STORE_2 STORE_VECTOR
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
