// Vectors of VW elements and how they are loaded and stored, for the templates that include this file and define VW.
// A vec has numbers of SUM. LOAD and STORE are for what holds TYPE, OWN_LOAD and OWN_STORE for what a kernel keeps.
// PACKED reads packed weights, in vectors that begin at multiples of their size.
// LOCAL_LOAD and LOCAL_STORE access arrays of LOCAL by pointers to vectors, so `i` is a multiple of VW.

#include "elements.cl"

#if VW == 1
typedef SUM vec;
#define LOAD ELEMENT
#define PACKED ELEMENT
#define STORE STORE_ELEMENT
#define OWN_LOAD OWN_ELEMENT
#define OWN_STORE(v, p, i) ((p)[i] = (v))
#define LOCAL_LOAD OWN_LOAD
#define LOCAL_STORE OWN_STORE
#else
typedef CAT(SUM, VW) vec;
#define LOAD(p, i) LOAD_WIDE(VW, p, i)
#define PACKED(p, i) LOAD_PACKED(VW, p, i)
#define STORE(v, p, i) STORE_WIDE(VW, v, p, i)
#define OWN_LOAD(p, i) CAT(vload, VW)(0, (p) + (i))
#define OWN_STORE(v, p, i) CAT(vstore, VW)(v, 0, (p) + (i))
#define LOCAL_LOAD(p, i) (*(__local const vec *)((p) + (i)))
#define LOCAL_STORE(v, p, i) (*(__local vec *)((p) + (i)) = (v))
#endif
