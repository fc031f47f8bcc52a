// Vectors of tensors accessed by pointers to vectors, in the place of vload and vstore. This file follows elements.cl in
// the texts for devices on which all buffers begin at multiples of every vector's size.
//
// vload and vstore take any element's address, so compilers for GPUs access each element by itself. A pointer to a vector
// promises a multiple of the vector's size. With ALIGNED_VECTORS all vectors of a launch keep that promise, and those that
// are read by PACKED always do. A vector of 3 elements has the size of 4, so it keeps vload and vstore.
//
// ALIGNED_BUFFER stands behind each buffer among a kernel's parameters. From where buffers begin, compilers find out
// which neighbouring elements they may read together, such as those of a row.

#undef LOAD_PACKED
#define LOAD_PACKED(n, p, i) (*(__global const CAT(TYPE, n) *)((p) + (i)))
#if ALIGNED_VECTORS
#undef LOAD_WIDE
#undef STORE_WIDE
#define LOAD_WIDE(n, p, i) CAT(LOAD_, n)(n, p, i)
#define STORE_WIDE(n, v, p, i) CAT(STORE_, n)(n, v, p, i)
#define LOAD_2(n, p, i) (*(__global const CAT(TYPE, n) *)((p) + (i)))
#define LOAD_3(n, p, i) vload3(0, (p) + (i))
#define LOAD_4 LOAD_2
#define LOAD_8 LOAD_2
#define LOAD_16 LOAD_2
#define STORE_2(n, v, p, i) (*(__global CAT(TYPE, n) *)((p) + (i)) = (v))
#define STORE_3(n, v, p, i) vstore3(v, 0, (p) + (i))
#define STORE_4 STORE_2
#define STORE_8 STORE_2
#define STORE_16 STORE_2
#endif

#ifdef __has_attribute
#if __has_attribute(align_value)
#define ALIGNED_BUFFER __attribute__((align_value(64)))
#endif
#endif
#ifndef ALIGNED_BUFFER
#define ALIGNED_BUFFER
#endif
