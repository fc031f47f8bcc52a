// One function of elements of any types, over broadcast inputs.
//
//   output[row, x] = COMPUTE(a, b, c at (row, x))
//
// The broadcast shape is collapsed to ROWS x INNER; the text before this file says where each input's element of
// (row, x) lies and what is computed. Vectors are read and written whole and computed lane by lane, since the types
// of a lane's values differ in width. Halves are computed as floats; functions that only move them take whole numbers.
//
// Work split: dimension 0 runs over vectors of VW elements, WPTX to a work-item; dimension 1 over rows, WPTY to a
// work-item. Neighbouring work-items take neighbouring vectors and rows.
// Preconditions: VW <= INNER, fewer than 2^31 elements.

#ifndef INNER
#define INNER 64             // elements of a row
#define ROWS 16
#endif
#ifndef VW
#define VW 4                 // elements of a vector
#define WPTX 1               // vectors of a work-item
#define WPTY 1               // rows of a work-item
#define DIMX 1               // work-group
#define DIMY 1
#endif
#ifndef COMPUTE
#define RESULT int
#define INPUT_PARAMETERS , __global const uchar *restrict input0
#define READ(row, x) uchar a[VW]; READ_AS_IS(uchar, a, input0, (row) * INNER + (x));
#define COMPUTE(lane) (int)a[lane]
#endif

#include "elements.cl"

#if VW == 1
#define READ_AS_IS(type, to, p, i) (to)[0] = (p)[i]
#define READ_HALVES(type, to, p, i) (to)[0] = ELEMENT(p, i)
#define WRITE_AS_IS(type, from, p, i) (p)[i] = (from)[0]
#define WRITE_HALVES(type, from, p, i) STORE_ELEMENT((from)[0], p, i)
#else
#define READ_AS_IS(type, to, p, i) CAT(vstore, VW)(LOAD_OF(type, VW, p, i), 0, to)
#define READ_HALVES(type, to, p, i) CAT(vstore, VW)(LOAD_WIDE(VW, p, i), 0, to)
#define WRITE_AS_IS(type, from, p, i) STORE_OF(type, VW, CAT(vload, VW)(0, from), p, i)
#define WRITE_HALVES(type, from, p, i) STORE_WIDE(VW, CAT(vload, VW)(0, from), p, i)
#endif
#ifdef HALF_RESULT
#define STORED half
#define WRITE WRITE_HALVES
#define WRITE_LANE STORE_ELEMENT
#else
#define STORED RESULT
#define WRITE WRITE_AS_IS
#define WRITE_LANE(v, p, i) (p)[i] = (v)
#endif
#define VECTORS ((INNER + VW - 1) / VW)

// The remainder of a division that rounds down, from that of one that rounds toward zero.
static RESULT floor_mod(RESULT remainder, RESULT divisor)
{
    return remainder != 0 && (remainder < 0) != (divisor < 0) ? remainder + divisor : remainder;
}

#ifdef EXPONENT
// Powers that wrap around. Of those with negative exponents only the ones of 1 and -1 are not zero.
static RESULT whole_power(RESULT base, long exponent)
{
    if (exponent < 0)
        return base == 1 ? 1 : base == (RESULT)-1 && (RESULT)-1 < 0 ? (exponent & 1 ? -1 : 1) : 0;
    ulong result = 1, square = (ulong)base;
    for (; exponent; exponent >>= 1, square *= square)
        if (exponent & 1)
            result *= square;
    return (RESULT)result;
}

static RESULT power(RESULT base, EXPONENT exponent)
{
#if EXPONENT_IS_FLOAT
    if (exponent != floor(exponent))
        return (RESULT)(long)pow((float)base, exponent);
#endif
    return whole_power(base, (long)exponent);
}
#endif

__kernel __attribute__((reqd_work_group_size(DIMX, DIMY, 1)))
void typed_elements(__global STORED *restrict output INPUT_PARAMETERS)
{
    const int first_vector = get_group_id(0) * DIMX * WPTX + get_local_id(0);
    const int first_row = get_group_id(1) * DIMY * WPTY + get_local_id(1);

    for (int i = 0; i < WPTX; ++i) {
        const int vector = first_vector + i * DIMX;
        if (vector >= VECTORS)
            break;
        const int x = min(vector * VW, INNER - VW);
        for (int j = 0; j < WPTY; ++j) {
            const int row = first_row + j * DIMY;
            if (row >= ROWS)
                break;
            READ(row, x)
            RESULT lanes[VW];
            UNROLL for (int lane = 0; lane < VW; ++lane)
                lanes[lane] = COMPUTE(lane);
#if INNER % VW
            if (vector == VECTORS - 1) {
                for (int lane = VECTORS * VW - INNER; lane < VW; ++lane)
                    WRITE_LANE(lanes[lane], output, row * INNER + x + lane);
                continue;
            }
#endif
            WRITE(RESULT, lanes, output, row * INNER + x);
        }
    }
}
