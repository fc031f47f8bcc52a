// Vectors of bfloat16 and of float, behind elements.cl in texts whose TYPE is ushort and holds bfloat16, which is the upper
// half of a float. So floats4(bits) and halves4(v) convert by arithmetic on bits, and no device needs an extension.
//
// Numbers are rounded to the nearest, in the middle to the even one. What is too large becomes infinite, and a NaN stays
// one.

#undef ELEMENT
#undef STORE_ELEMENT
#undef LOAD_BITS
#undef STORE_BITS
#define ELEMENT(p, i) as_float((uint)(p)[i] << 16)
#define STORE_ELEMENT(v, p, i) ((p)[i] = halves1(v))
#define LOAD_BITS(n, p, i) LOAD_OF(ushort, n, p, i)
#define STORE_BITS(n, v, p, i) STORE_OF(ushort, n, v, p, i)

static inline ushort halves1(float v)
{
    const uint bits = as_uint(v);
    return (isnan(v) ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

static inline float2 floats2(ushort2 bits) { return as_float2(convert_uint2(bits) << 16); }
static inline ushort2 halves2(float2 v)
{
    const uint2 bits = as_uint2(v);
    return convert_ushort2((isnan(v) ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float3 floats3(ushort3 bits) { return as_float3(convert_uint3(bits) << 16); }
static inline ushort3 halves3(float3 v)
{
    const uint3 bits = as_uint3(v);
    return convert_ushort3((isnan(v) ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float4 floats4(ushort4 bits) { return as_float4(convert_uint4(bits) << 16); }
static inline ushort4 halves4(float4 v)
{
    const uint4 bits = as_uint4(v);
    return convert_ushort4((isnan(v) ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float8 floats8(ushort8 bits) { return as_float8(convert_uint8(bits) << 16); }
static inline ushort8 halves8(float8 v)
{
    const uint8 bits = as_uint8(v);
    return convert_ushort8((isnan(v) ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline float16 floats16(ushort16 bits) { return as_float16(convert_uint16(bits) << 16); }
static inline ushort16 halves16(float16 v)
{
    const uint16 bits = as_uint16(v);
    return convert_ushort16((isnan(v) ? bits | 0x400000 : bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
