// Vectors of half and of float, in front of texts whose TYPE is half: floats4(bits) and halves4(v) convert, load_bits4 and
// store_bits4 access memory at any half. Every device that computes in float stores half.
//
// OpenCL's functions for vectors of half access each element by itself on some GPUs, and with PoCL 3.1 only multiples of a
// vector's size. So memory is accessed as vectors of ushort; PoCL would take those of vstore apart as well. No macro makes
// these functions, because texts that are built together must tell their names.
static inline float2 floats2(ushort2 bits) { return vload_half2(0, (const half *)&bits); }
static inline float3 floats3(ushort3 bits) { return vload_half3(0, (const half *)&bits); }
static inline float4 floats4(ushort4 bits) { return vload_half4(0, (const half *)&bits); }
static inline float8 floats8(ushort8 bits) { return vload_half8(0, (const half *)&bits); }
static inline float16 floats16(ushort16 bits) { return vload_half16(0, (const half *)&bits); }
static inline ushort2 halves2(float2 v) { ushort2 bits; vstore_half2_rte(v, 0, (half *)&bits); return bits; }
static inline ushort3 halves3(float3 v) { ushort3 bits; vstore_half3_rte(v, 0, (half *)&bits); return bits; }
static inline ushort4 halves4(float4 v) { ushort4 bits; vstore_half4_rte(v, 0, (half *)&bits); return bits; }
static inline ushort8 halves8(float8 v) { ushort8 bits; vstore_half8_rte(v, 0, (half *)&bits); return bits; }
static inline ushort16 halves16(float16 v) { ushort16 bits; vstore_half16_rte(v, 0, (half *)&bits); return bits; }
static inline ushort3 load_bits3(__global const half *p) { return vload3(0, (__global const ushort *)p); }
static inline void store_bits3(ushort3 v, __global half *p) { vstore3(v, 0, (__global ushort *)p); }
#ifdef __clang__
typedef __attribute__((aligned(2))) ushort2 bits2;
typedef __attribute__((aligned(2))) ushort4 bits4;
typedef __attribute__((aligned(2))) ushort8 bits8;
typedef __attribute__((aligned(2))) ushort16 bits16;
static inline ushort2 load_bits2(__global const half *p) { return *(__global const bits2 *)p; }
static inline void store_bits2(ushort2 v, __global half *p) { *(__global bits2 *)p = v; }
static inline ushort4 load_bits4(__global const half *p) { return *(__global const bits4 *)p; }
static inline void store_bits4(ushort4 v, __global half *p) { *(__global bits4 *)p = v; }
static inline ushort8 load_bits8(__global const half *p) { return *(__global const bits8 *)p; }
static inline void store_bits8(ushort8 v, __global half *p) { *(__global bits8 *)p = v; }
static inline ushort16 load_bits16(__global const half *p) { return *(__global const bits16 *)p; }
static inline void store_bits16(ushort16 v, __global half *p) { *(__global bits16 *)p = v; }
#else
static inline ushort2 load_bits2(__global const half *p) { return vload2(0, (__global const ushort *)p); }
static inline void store_bits2(ushort2 v, __global half *p) { vstore2(v, 0, (__global ushort *)p); }
static inline ushort4 load_bits4(__global const half *p) { return vload4(0, (__global const ushort *)p); }
static inline void store_bits4(ushort4 v, __global half *p) { vstore4(v, 0, (__global ushort *)p); }
static inline ushort8 load_bits8(__global const half *p) { return vload8(0, (__global const ushort *)p); }
static inline void store_bits8(ushort8 v, __global half *p) { vstore8(v, 0, (__global ushort *)p); }
static inline ushort16 load_bits16(__global const half *p) { return vload16(0, (__global const ushort *)p); }
static inline void store_bits16(ushort16 v, __global half *p) { vstore16(v, 0, (__global ushort *)p); }
#endif
