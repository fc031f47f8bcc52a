// Elements put elsewhere: a permutation, a part, a repetition, a border.
//
//   output[row, x] = EPILOGUE(input[base(row) + place(x) * STEP])
//
// The output's loops are collapsed to ROWS x INNER. The text before this file says where a row begins: PLACE_ROW(row)
// sets `base`, and `inside` to 0 where the row lies in a border that holds FILL. Along x the input is contiguous
// (STEP 1), constant (0), or read element by element:
//
//      BEFORE          EXTENT
//   +--------+------------------------+-------+
//   | border | input[base + i * STEP] | border|   INNER elements; BORDER says what is in the border
//   +--------+------------------------+-------+
//
// Work split: dimension 0 runs over vectors of VW elements of a row, dimension 1 over groups of WPT neighbouring rows.
// Preconditions: VW <= INNER, fewer than 2^31 elements.

#ifndef INNER
#define INNER 64             // elements of a row of the output
#define ROWS 16
#define STEP 1               // between the elements of a row in the input
#define BEFORE 0             // elements of the border before the row
#define EXTENT 64            // elements between the borders
#define BORDER 0             // 0: FILL, 1: the nearest element, 2: mirrored, 3: from the other end
#endif
#ifndef VW
#define VW 4                 // elements of a vector
#define WPT 1                // rows of a work-item
#define DIMX 1               // work-group
#define DIMY 1
#endif
#ifndef PLACE_ROW
#define FILL 0.0f
#define PLACE_ROW(row) base = (row) * INNER;
#define OPERAND_PARAMETERS   // ", __global const TYPE *restrict operand0, ..."
#define EPILOGUE(value, T, LOAD, offset)
#endif

#include "vectors.cl"

// Where position i, which may lie in a border, is found among `extent` elements.
static int edge(int i, int extent)
{
    return clamp(i, 0, extent - 1);
}

static int mirror(int i, int extent)
{
    const int period = max(2 * (extent - 1), 1);
    const int there = abs(i) % period;
    return min(there, period - there);
}

static int wrap(int i, int extent)
{
    const int there = i % extent;
    return there < 0 ? there + extent : there;
}

#if BORDER == 3
#define PLACE wrap
#elif BORDER == 2
#define PLACE mirror
#else
#define PLACE edge
#endif

__kernel __attribute__((reqd_work_group_size(DIMX, DIMY, 1)))
void move_rows(__global const TYPE *restrict input, __global TYPE *restrict output OPERAND_PARAMETERS)
{
    const int vector = get_global_id(0);
    const int first = get_global_id(1) * WPT;
    const int last = min(first + WPT, ROWS);
    if (vector * VW >= INNER)
        return;
    const int x = min(vector * VW, INNER - VW);
    const int from = x - BEFORE;

    for (int row = first; row < last; ++row) {
        int base = 0;
        int inside = 1;
        PLACE_ROW(row)
        vec value;
        if (!inside) {
            value = (vec)(FILL);
        } else if (STEP == 1 && from >= 0 && from + VW <= EXTENT) {
            value = LOAD(input, base + from);
        } else if (STEP == 0 && from >= 0 && from + VW <= EXTENT) {
            value = (vec)(ELEMENT(input, base));
        } else {
            SUM lanes[VW];
            UNROLL
            for (int i = 0; i < VW; ++i)
                lanes[i] = BORDER == 0 && (from + i < 0 || from + i >= EXTENT)
                    ? (SUM)(FILL) : ELEMENT(input, base + PLACE(from + i, EXTENT) * STEP);
            value = OWN_LOAD(lanes, 0);
        }
        const int offset = row * INNER + x;
        EPILOGUE(value, vec, LOAD, offset)
#if INNER % VW
        if (x != vector * VW) {
            SUM lanes[VW];
            OWN_STORE(value, lanes, 0);
            for (int i = vector * VW - x; i < VW; ++i)
                STORE_ELEMENT(lanes[i], output, offset + i);
            continue;
        }
#endif
        STORE(value, output, offset);
    }
}
