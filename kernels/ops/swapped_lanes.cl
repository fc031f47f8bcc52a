// SWAPPED(v, i): the vector whose lane j is lane j ^ i of v, for i below GROUP. In front of a template whose vectors have VW
// lanes; i is a constant there when loops are unrolled, so that all this is one permutation.

#ifndef GROUP
#define GROUP 4
#define VW 8
#endif
#if VW == 16
#define SWAP1(v) (v).s1032547698badcfe
#define SWAP2(v) (v).s23016745ab89efcd
#define SWAP4(v) (v).s45670123cdef89ab
#elif VW == 8
#define SWAP1(v) (v).s10325476
#define SWAP2(v) (v).s23016745
#define SWAP4(v) (v).s45670123
#elif VW == 4
#define SWAP1(v) (v).s1032
#define SWAP2(v) (v).s2301
#else
#define SWAP1(v) (v).s10
#endif
#define SWAPPED1(v, i) ((i) & 1 ? SWAP1(v) : (v))
#if GROUP > 2
#define SWAPPED2(v, i) ((i) & 2 ? SWAP2(SWAPPED1(v, i)) : SWAPPED1(v, i))
#else
#define SWAPPED2 SWAPPED1
#endif
#if GROUP > 4
#define SWAPPED(v, i) ((i) & 4 ? SWAP4(SWAPPED2(v, i)) : SWAPPED2(v, i))
#else
#define SWAPPED SWAPPED2
#endif
