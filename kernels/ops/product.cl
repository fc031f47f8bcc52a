// Where the factors and the results of products lie, for their templates; behind the sizes of a tile and in front of all
// else. The text before says A_AT, B_AT, OUT_AT and EPILOGUE, and the parts if a is there in parts.
//
//   a[g, m, k]       A_AT(g) + m * A_M + k * A_K
//   b[g, k, n]       B_AT(g) + k * B_K + n * B_N
//   output[g, m, n]  OUT_AT(g) + m * OUT_M + n * OUT_N; EPILOGUE(value, T, LOAD, g, m, n) knows where its operands lie
//
// With WEIGHTS 1 there is one product, whose b is constant. It was packed before, and bias behind it:
//   b = [panel of PANEL columns][k][PANEL], then bias as [panel][PANEL]; columns from N on are zero.
// Its a may be there in parts: tensors [M, width] that lie side by side in it. PART_LOAD(row, k, LOAD) reads from row `row`
// of a, in whichever part k is. A template that goes through one part after the other begins with FIRST_PART, which has
// FIRST_WIDTH columns and rows FIRST_PITCH apart, and goes on with OTHER_PARTS.
//
// FINISH makes a result of a sum, or of a vector of them (finish.cl), in product g = `product`. A template whose sums begin
// with the bias defines BIASED. OUT_VECTORS 0: output and operands are accessed in elements.

#ifndef M
#define M 8                  // rows of a and output
#define K 8                  // columns of a
#define N 8                  // columns of output
#define BATCH 1              // products
#define WEIGHTS 1            // 1: b is constant, 0: it is computed
#define A_M 8                // from one row of a to the next
#define A_K 1                // from one column of a to the next
#define B_K 8
#define B_N 1
#define OUT_M 8
#define OUT_N 1
#endif
#ifndef EPILOGUE
#define A_AT(g) 0
#define B_AT(g) 0
#define OUT_AT(g) 0
#define PACKED_AT(g) 0
#define OPERAND_PARAMETERS   // ", __global const TYPE *restrict operand0, ..."
#define EPILOGUE(value, T, LOAD, g, m, n)
#endif
#ifndef PART_PARAMETERS
#define PART_PARAMETERS __global const TYPE *restrict a,
#define PART_LOAD(row, k, LOAD) LOAD(a, (row) * A_M + (k) * A_K)
#define FIRST_PART a
#define FIRST_WIDTH K
#define FIRST_PITCH A_M
#define OTHER_PARTS          // "PART(name, width) ..." for the parts behind it
#endif
#ifndef OUT_VECTORS
#define OUT_VECTORS (OUT_N == 1)
#endif

#define COLUMNS N
#include "tile_grid.cl"
#define BIAS_AT(column) (PANELS * PANEL * K + (column))

#ifndef OUT_COLUMN
#define OUT_COLUMN(column) (column) * OUT_N
#endif
#if WEIGHTS && !defined(BIASED)
#define WITH_BIAS(value, LOAD, column) ((value) + LOAD(b, BIAS_AT(column)))
#else
#define WITH_BIAS(value, LOAD, column) (value)
#endif
#define FINISH(value, T, LOAD, STORE, row, column)                                 \
    {                                                                              \
        T result = WITH_BIAS(value, LOAD, column);                                 \
        EPILOGUE(result, T, LOAD, product, row, column)                            \
        STORE(result, output, OUT_AT(product) + (row) * OUT_M + OUT_COLUMN(column)); \
    }
#if !OUT_VECTORS
#define FINISH_VECTOR(value, row, column)             \
    {                                                 \
        SUM own[VW];                                  \
        OWN_STORE(value, own, 0);                     \
        UNROLL for (int j = 0; j < VW; ++j)           \
            FINISH_ELEMENT(own[j], row, (column) + j) \
    }
#endif

// What add_shares reads beside the shares.
#if WEIGHTS
#define ADDED_PARAMETERS __global const TYPE *restrict b,
#else
#define ADDED_PARAMETERS
#endif
