// Where the tensors of attentions lie, for their templates; behind the sizes of a tile. The text before says QUERY_AT,
// KEY_AT, VALUE_AT, OUT_AT and EPILOGUE, for the product g of the batch.
//
//   query[g, m, k]   QUERY_AT(g) + m * QUERY_M + k * QUERY_K
//   key[g, n, k]     KEY_AT(g) + n * KEY_N + k * KEY_K
//   value[g, n, c]   VALUE_AT(g) + n * VALUE_N + c
//   output[g, m, c]  OUT_AT(g) + m * OUT_M + c
//
// EPILOGUE(value, T, LOAD, g, m, n) makes a score of a product, and knows where its operands lie. A row of shares is the
// softmax of a row of scores. Where a score is -INFINITY its share is 0. A row of nothing else has no shares: its output is
// NaN, or with MASKED zero. ZEROED(g, m) says which rows are zero in any case, and with HIDES 1 HIDDEN(g, m, n) which
// scores have another number in their place, HIDDEN_SCORE.

#ifndef ROWS
#define ROWS 8               // queries
#define KEYS 8
#define DEPTH 8              // numbers of a query and of a key
#define COLUMNS 8            // numbers of a value
#define QUERY_M 8
#define QUERY_K 1
#define KEY_N 8
#define KEY_K 1
#define VALUE_N 8
#define OUT_M 8
#define MASKED 0             // 1: rows without shares are zero
#define HIDES 0              // 1: bools hide scores
#endif
#ifndef EPILOGUE
#define QUERY_AT(g) 0
#define KEY_AT(g) 0
#define VALUE_AT(g) 0
#define OUT_AT(g) 0
#define PACKED_AT(g) 0
#define PACKED_FROM(p) 0
#define OPERAND_PARAMETERS   // ", __global const TYPE *restrict operand0, ..."
#define EPILOGUE(value, T, LOAD, g, m, n)
#define ZEROED(g, m) 0
#define HIDDEN(g, m, n) 0
#define HIDDEN_SCORE 0.0f
#endif

#define MAX(a, b) ((b) > (a) ? (b) : (a))
// What scores are made smaller by, so that no exponential is large: their maximum, unless all of them are -INFINITY.
#define SHIFT(maximum) ((maximum) == -INFINITY ? 0.0f : (maximum))
#if MASKED
#define RESULT(value, sum, row) (ZEROED(product, row) || !((sum) > 0.0f) ? (vec)(0.0f) : (value) / (sum))
#else
#define RESULT(value, sum, row) (ZEROED(product, row) ? (vec)(0.0f) : (value) / (sum))
#endif
