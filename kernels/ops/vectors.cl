// Vectors of VW elements and how they are loaded and stored, for the templates that include this file and define VW.
// The elements are floats unless TYPE says otherwise.

#ifndef TYPE
#define TYPE float
#endif
#define ELEMENT(p, i) ((p)[i])
#if VW == 1
typedef TYPE vec;
#define LOAD ELEMENT
#define STORE(v, p, i) ((p)[i] = (v))
#else
#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)
typedef CAT(TYPE, VW) vec;
#define LOAD(p, i) CAT(vload, VW)(0, (p) + (i))
#define STORE(v, p, i) CAT(vstore, VW)(v, 0, (p) + (i))
#endif
#define UNROLL __attribute__((opencl_unroll_hint))
