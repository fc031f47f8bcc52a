// Vectors of VW elements and how they are loaded and stored, for the templates that include this file and define VW.
// A vec has numbers of SUM. LOAD and STORE are for what holds TYPE, OWN_LOAD and OWN_STORE for what a kernel keeps.

#include "elements.cl"

#if VW == 1
typedef SUM vec;
#define LOAD ELEMENT
#define STORE STORE_ELEMENT
#define OWN_LOAD OWN_ELEMENT
#define OWN_STORE(v, p, i) ((p)[i] = (v))
#else
typedef CAT(SUM, VW) vec;
#define LOAD(p, i) LOAD_WIDE(VW, p, i)
#define STORE(v, p, i) STORE_WIDE(VW, v, p, i)
#define OWN_LOAD(p, i) CAT(vload, VW)(0, (p) + (i))
#define OWN_STORE(v, p, i) CAT(vstore, VW)(v, 0, (p) + (i))
#endif
