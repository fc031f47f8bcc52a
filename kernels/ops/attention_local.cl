// Attention of rows of queries to keys, with rows, keys and values of a work-group in local memory.
//
//   score[g, m, n]  = EPILOGUE(sum over k < DEPTH of query[g, m, k] * key[g, n, k])
//   output[g, m, c] = sum over n < KEYS of share[g, m, n] * value[g, n, c]    share: softmax of score along n
//
//                      BN keys                       columns
//                    +---------+                   +---------+
//              DEPTH | others  |                BN | others  |  first keys, then their values
//                    +---------+                   +---------+
//      +---------+   +---------+     +---------+   +---------+
//   BM | queries |   | scores  | --> | shares  |   | totals  |  a work-item has MR x NR scores, LM and LN apart, and MR rows
//      +---------+   +---------+     +---------+   +---------+  of NV vectors of the output, LN vectors apart
//
// Work split: dimension 0 runs over blocks of BM = MR * LM rows, dimension 1 over the products g. A work-group goes through
// all keys for its rows, BN = NR * LN of them at a time. Each work-item keeps its rows' maxima and its own part of their
// sums of exponentials; where a block has a larger maximum, what was summed before is made smaller (Milakov and
// Gimelshein, 2018; Dao et al., FlashAttention, 2022).
//
// Queries and keys lie in local memory as they do outside, number by number, four more to a row, so that neighbouring rows
// begin at other banks: a work-item reads four numbers of each row at once. Numbers beyond DEPTH and COLUMNS are zeros, and
// so are rows that do not exist; a score of such a key is -INFINITY.
// Preconditions: fewer than 2^31 elements in each buffer; what is WIDE begins at multiples of 4 elements, as do all its
// rows, which have a multiple of 4.

#define VW 4                 // numbers that are read at once
#ifndef MR
#define MR 4                 // rows of a work-item
#define NR 4                 // keys of a work-item
#define LM 4                 // work-items along the rows
#define LN 8                 // work-items along the keys, and along the columns
#endif
#ifndef WIDE_QUERY
#define WIDE_QUERY 1         // whether it is read, or written, in vectors
#define WIDE_KEY 1
#define WIDE_VALUE 1
#define WIDE_OUT 1
#endif

#include "attention.cl"
#define EXP 0
#include "vectors.cl"

#define BM (MR * LM)
#define BN (NR * LN)
#define ITEMS (LM * LN)
#define DEEP ((DEPTH + 3) / 4 * 4)
#define PITCH (DEEP + 4)
#define NV ((COLUMNS + 4 * LN - 1) / (4 * LN))
#define ACROSS (NV * 4 * LN) // columns of all work-items
#define SHARE_PITCH (BN + 4)
#define ROW(r) ((r) * LM + item_row)
#define KEY(c) ((c) * LN + item_column)
#define COLUMN(v) (((v) * LN + item_column) * 4)

// Brings `count` rows of `length` numbers into local memory, those from `rows` on as zeros.
#define FILL(wide, target, pitch, count, whole, source, down, along, rows, length)                   \
    if (wide) {                                                                                      \
        for (int i = item; i < (count) * ((whole) / 4); i += ITEMS) {                                \
            const int row = i / ((whole) / 4), at = i % ((whole) / 4) * 4;                           \
            const bool there = row < (rows) && at < (length);                                        \
            LOCAL_STORE(there ? LOAD(source, row * (down) + at) : (vec)(0.0f), target, row * (pitch) + at); \
        }                                                                                            \
    } else                                                                                           \
        for (int i = item; i < (count) * (whole); i += ITEMS) {                                      \
            const int row = i / (whole), at = i % (whole);                                           \
            const bool there = row < (rows) && at < (length);                                        \
            target[row * (pitch) + at] = there ? ELEMENT(source, row * (down) + at * (along)) : 0.0f; \
        }
#define TOGETHER barrier(CLK_LOCAL_MEM_FENCE)

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void attention_local(__global const TYPE *restrict query, __global const TYPE *restrict key,
                     __global const TYPE *restrict value, __global TYPE *restrict output OPERAND_PARAMETERS LOCAL_POOL)
{
    LOCAL(SUM, queries, BM * PITCH);
    LOCAL(SUM, others, BN * (PITCH > ACROSS ? PITCH : ACROSS));
    LOCAL(SUM, shares, BM * SHARE_PITCH);
    LOCAL(SUM, parts, BM * LN); // of work-items, for each row
    const int item = get_local_id(0), item_row = item / LN, item_column = item % LN;
    const int first = get_group_id(0) * BM;
    const int product = get_group_id(1);
    query += QUERY_AT(product) + first * QUERY_M;
    key += KEY_AT(product);
    value += VALUE_AT(product);

    FILL(WIDE_QUERY, queries, PITCH, BM, DEEP, query, QUERY_M, QUERY_K, ROWS - first, DEPTH)
    vec total[MR][NV];
    SUM maximum[MR], sum[MR];
    UNROLL for (int r = 0; r < MR; ++r) {
        maximum[r] = -INFINITY;
        sum[r] = 0.0f;
        UNROLL for (int v = 0; v < NV; ++v)
            total[r][v] = (vec)(0.0f);
    }

    for (int from = 0; from < KEYS; from += BN) {
        TOGETHER; // all have read the values
        FILL(WIDE_KEY, others, PITCH, BN, DEEP, key + from * KEY_N, KEY_N, KEY_K, KEYS - from, DEPTH)
        TOGETHER;
        SUM score[MR][NR];
        UNROLL for (int r = 0; r < MR; ++r)
            UNROLL for (int c = 0; c < NR; ++c)
                score[r][c] = 0.0f;
        for (int k = 0; k < DEEP; k += 4) {
            vec left[MR];
            UNROLL for (int r = 0; r < MR; ++r)
                left[r] = LOCAL_LOAD(queries, ROW(r) * PITCH + k);
            UNROLL for (int c = 0; c < NR; ++c) {
                const vec right = LOCAL_LOAD(others, KEY(c) * PITCH + k);
                UNROLL for (int r = 0; r < MR; ++r) {
                    score[r][c] = fma(left[r].x, right.x, score[r][c]);
                    score[r][c] = fma(left[r].y, right.y, score[r][c]);
                    score[r][c] = fma(left[r].z, right.z, score[r][c]);
                    score[r][c] = fma(left[r].w, right.w, score[r][c]);
                }
            }
        }
        UNROLL for (int r = 0; r < MR; ++r) {
            const int row = min(first + ROW(r), ROWS - 1);
            SUM largest = -INFINITY;
            UNROLL for (int c = 0; c < NR; ++c) {
                const int n = min(from + KEY(c), KEYS - 1);
                EPILOGUE(score[r][c], SUM, ELEMENT, product, row, n)
                if (HIDES && HIDDEN(product, row, n))
                    score[r][c] = HIDDEN_SCORE;
                score[r][c] = from + KEY(c) < KEYS ? score[r][c] : -INFINITY;
                largest = MAX(largest, score[r][c]);
            }
            parts[ROW(r) * LN + item_column] = largest;
        }
        TOGETHER;
        FILL(WIDE_VALUE, others, ACROSS, BN, ACROSS, value + from * VALUE_N, VALUE_N, 1, KEYS - from, COLUMNS)
        UNROLL for (int r = 0; r < MR; ++r) {
            SUM largest = maximum[r];
            UNROLL for (int i = 0; i < LN; ++i)
                largest = MAX(largest, parts[ROW(r) * LN + i]);
            const SUM before = exp(maximum[r] - SHIFT(largest));
            maximum[r] = largest;
            sum[r] *= before;
            UNROLL for (int v = 0; v < NV; ++v)
                total[r][v] *= before;
            UNROLL for (int c = 0; c < NR; ++c) {
                const SUM share = exp(score[r][c] - SHIFT(largest));
                sum[r] += share;
                shares[ROW(r) * SHARE_PITCH + KEY(c)] = share;
            }
        }
        TOGETHER;
        for (int n = 0; n < BN; n += 4) {
            vec left[MR];
            UNROLL for (int r = 0; r < MR; ++r)
                left[r] = LOCAL_LOAD(shares, ROW(r) * SHARE_PITCH + n);
            UNROLL for (int v = 0; v < NV; ++v) {
                vec right[4];
                UNROLL for (int i = 0; i < 4; ++i)
                    right[i] = LOCAL_LOAD(others, (n + i) * ACROSS + COLUMN(v));
                UNROLL for (int r = 0; r < MR; ++r) {
                    total[r][v] = fma((vec)(left[r].x), right[0], total[r][v]);
                    total[r][v] = fma((vec)(left[r].y), right[1], total[r][v]);
                    total[r][v] = fma((vec)(left[r].z), right[2], total[r][v]);
                    total[r][v] = fma((vec)(left[r].w), right[3], total[r][v]);
                }
            }
        }
    }

    UNROLL for (int r = 0; r < MR; ++r)
        parts[ROW(r) * LN + item_column] = sum[r];
    TOGETHER;
    UNROLL for (int r = 0; r < MR; ++r) {
        SUM all = 0.0f;
        UNROLL for (int i = 0; i < LN; ++i)
            all += parts[ROW(r) * LN + i];
        const int at = OUT_AT(product) + (first + ROW(r)) * OUT_M;
        if (first + ROW(r) < ROWS)
            UNROLL for (int v = 0; v < NV; ++v) {
                const vec result = RESULT(total[r][v], all, first + ROW(r));
                if (WIDE_OUT) {
                    if (COLUMN(v) < COLUMNS)
                        STORE(result, output, at + COLUMN(v));
                } else {
                    SUM lanes[4];
                    OWN_STORE(result, lanes, 0);
                    UNROLL for (int i = 0; i < 4; ++i)
                        if (COLUMN(v) + i < COLUMNS)
                            STORE_ELEMENT(lanes[i], output, at + COLUMN(v) + i);
                }
            }
    }
}
