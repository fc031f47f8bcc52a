// What becomes of sums: FINISH makes a result of one, or of a vector of them, and stores it.
//
// A template whose sums begin with the bias defines OFFSET(row, column), where a result lies in output and operands. It
// ends with `+ column`, without brackets, so that compilers see how far the lanes of a vector are apart. PLACE computes it
// in front of FINISH. Otherwise the bias is at BIAS_AT(column) in packed, and the output is [M, N]. The text before may
// define FINISH itself, and FINISH_VECTOR.

#ifndef EPILOGUE
#define OPERAND_PARAMETERS   // ", __global const TYPE *restrict operand0, ..."
#define EPILOGUE(value, T, LOAD, offset)
#endif
#ifdef OFFSET
#define PLACE(row, column) const int offset = OFFSET(row, column);
#define FINISH(value, T, LOAD, STORE, row, column)               \
    {                                                            \
        EPILOGUE(value, T, LOAD, offset)                         \
        STORE(value, output, offset);                            \
    }
#else
#define PLACE(row, column)
#endif
#ifndef FINISH
#define FINISH(value, T, LOAD, STORE, row, column)               \
    {                                                            \
        T result = (value) + LOAD(packed, BIAS_AT(column));      \
        EPILOGUE(result, T, LOAD, (row) * N + (column))          \
        STORE(result, output, (row) * N + (column));             \
    }
#endif
#ifndef FINISH_VECTOR
#define FINISH_VECTOR(value, row, column) FINISH(value, vec, LOAD, STORE, row, column)
#endif
#define FINISH_ELEMENT(value, row, column) FINISH(value, SUM, ELEMENT, STORE_ELEMENT, row, column)

// A kernel whose work-groups have panels of NV * VW * LN columns puts a vector of sums: with SPLIT 1 they are finished, else
// they go to the product's shares as they are (add_shares.cl), which have no bias yet. Columns beyond the last are left
// out; of a vector that reaches beyond, which is at most one in a row, elements are stored one by one.
#if SPLIT > 1
#define PUT_VECTOR(value, row, column) SHARE_STORE(value, shares, SHARE_AT(share, row, column));
#define PUT_ELEMENT(value, row, column) shares[SHARE_AT(share, row, column)] = value;
#else
#define PUT_VECTOR FINISH_VECTOR
#define PUT_ELEMENT FINISH_ELEMENT
#endif
#define WITHIN(column) (N % (NV * VW * LN) == 0 || (column) + VW <= N)
#if N % VW
#define PUT(value, row, column)                                            \
    if (WITHIN(column))                                                    \
        PUT_VECTOR(value, row, column)                                     \
    else if ((column) < N) {                                               \
        SUM lanes[VW];                                                     \
        OWN_STORE(value, lanes, 0);                                        \
        UNROLL for (int i = 0; i < N % VW; ++i)                            \
            PUT_ELEMENT(lanes[i], row, (column) + i)                       \
    }
#else
#define PUT(value, row, column)      \
    if (WITHIN(column))              \
        PUT_VECTOR(value, row, column)
#endif
