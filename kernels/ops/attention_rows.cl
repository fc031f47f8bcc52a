// Attention of rows of queries to keys, softmax by softmax, of which no matrix of scores lies in memory.
//
//   score[g, m, n]  = EPILOGUE(sum over k < DEPTH of query[g, m, k] * key[g, n, k])
//   output[g, m, c] = sum over n < KEYS of share[g, m, n] * value[g, n, c]    share: softmax of score along n
//
//                        keys: NW = NV * VW at a time            values, in vectors along their columns
//                      +----+----+-- --+                         +----+----+
//             DEPTH    | VW | VW |     |                         | VW | VW |  BLOCK
//                      +----+----+-- --+                         |    |    |  keys
//    query +-------+   +----+----+-- --+--------+   softmax      +----+----+
//          |       |   |    shares of BLOCK     | -- of MR -->   +----+----+
//          |       |MR |    keys, private       |    rows        |    |    |  MR rows of the output
//          +-------+   +----+----+-- --+--------+                +----+----+
//
// Work split: dimension 0 runs over tiles of MR rows, dimension 1 over the products g. A work-item goes through all keys
// for its rows, BLOCK of them at a time. It keeps each row's maximum and the sum of exponentials; where a block has a
// larger maximum, what was summed before is made smaller (Milakov and Gimelshein, 2018; Dao et al., FlashAttention, 2022).
//
// Where the last tile of keys, or of columns, is not full it starts earlier and computes some of another one again. Rows
// beyond ROWS are computed from the last one and not stored. With PACK a stage has turned keys over into packed =
// [matrix][tile][k][NW]; else they lie side by side.
// Preconditions: NW is at most KEYS and COLUMNS and divides BLOCK, columns of values and output lie side by side, fewer than
// 2^31 elements in each buffer.

#ifndef MR
#define MR 4                 // rows of a tile
#define NV 1                 // vectors of a tile
#define VW 4                 // elements of a vector
#define KU 1                 // unrolling of sums
#define BLOCK 8              // keys at a time
#define PACK 1               // 1: keys are packed first, 0: they are read where they lie
#endif
#include "attention.cl"
#define EXP 1
#define NW (NV * VW)
#define PANEL NW
#define LEFT_STEP QUERY_K
#define RIGHT(k, v) LOAD_FACTORS(columns, (k) * pitch + (v) * VW)
#include "register_tile.cl"
#include "exponential.cl"

#define KEY_TILES ((KEYS + NW - 1) / NW)
#define VALUE_TILES ((COLUMNS + NW - 1) / NW)
#define FRONT (KEYS > BLOCK ? NW : 0) // where the last tile of a block can begin
#define WIDTH (FRONT + ((KEYS < BLOCK ? KEYS : BLOCK) + VW - 1) / VW * VW)
// A row of shares; rows that lie a multiple of 1 KiB apart would share few places of a cache.
#define PITCH (WIDTH % 256 ? WIDTH : WIDTH + 16)

#define BEGIN_SUMS                                    \
    vec total[MR][NV];                                \
    UNROLL for (int r = 0; r < MR; ++r)               \
        UNROLL for (int v = 0; v < NV; ++v)           \
            total[r][v] = (vec)(0.0f);

#if PACK
// A tile of keys.
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void pack_keys(__global const TYPE *restrict key, __global TYPE *restrict packed)
{
    const int tile = get_global_id(0);
    const int matrix = get_global_id(1);
    __global const TYPE *source = key + PACKED_FROM(matrix) + min(tile * NW, KEYS - NW) * KEY_N;
    __global TYPE *target = packed + (matrix * KEY_TILES + tile) * (DEPTH * NW);
    for (int k = 0; k < DEPTH; ++k)
        for (int i = 0; i < NW; ++i)
            STORE_ELEMENT(ELEMENT(source, i * KEY_N + k * KEY_K), target, k * NW + i);
}
#endif

// Exponentials of a row of `count` scores in their place, with the row's maximum and sum up to now. Returns by what all
// that was summed before is to be multiplied.
static inline SUM share(SUM *row, int count, SUM *maximum, SUM *sum)
{
    const int whole = (count + VW - 1) / VW * VW;
    for (int i = count; i < whole; ++i)
        row[i] = -INFINITY;
    vec maxima = (vec)(*maximum);
    for (int i = 0; i < whole; i += VW) {
        const vec value = OWN_LOAD(row, i);
        maxima = MAX(maxima, value);
    }
    SUM lanes[VW];
    OWN_STORE(maxima, lanes, 0);
    SUM largest = lanes[0];
    for (int i = 1; i < VW; ++i)
        largest = MAX(largest, lanes[i]);
    const SUM shift = SHIFT(largest);
    const SUM before = exp(*maximum - shift);

    vec sums = (vec)(0.0f);
    for (int i = 0; i < whole; i += VW) {
        const vec value = EXPONENTIAL(OWN_LOAD(row, i) - (vec)(shift));
        OWN_STORE(value, row, i);
        sums += value;
    }
    OWN_STORE(sums, lanes, 0);
    SUM added = lanes[0];
    for (int i = 1; i < VW; ++i)
        added += lanes[i];
    *maximum = largest;
    *sum = *sum * before + added;
    return before;
}

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void attention_rows(__global const TYPE *restrict query, __global const TYPE *restrict key,
                    __global const TYPE *restrict value, __global TYPE *restrict output OPERAND_PARAMETERS)
{
    const int first = get_global_id(0) * MR;
    const int product = get_global_id(1);
    __global const TYPE *queries = query + QUERY_AT(product);
#if PACK
    __global const TYPE *keys = key + PACKED_AT(product) * (KEY_TILES * DEPTH * NW);
#else
    __global const TYPE *keys = key + KEY_AT(product);
#endif
    SUM shares[MR * PITCH];
    SUM maxima[MR], sums[MR], before[MR];
#if KEYS > BLOCK
    SUM kept[VALUE_TILES * MR * NW];
#endif
    for (int r = 0; r < MR; ++r) {
        maxima[r] = -INFINITY;
        sums[r] = 0.0f;
    }

    for (int from = 0; from < KEYS; from += BLOCK) {
        const int count = min(BLOCK, KEYS - from);
        for (int tile = from / NW; tile * NW < from + count; ++tile) {
            const int start = min(tile * NW, KEYS - NW), pitch = PACK ? NW : KEY_K;
            __global const TYPE *columns = keys + (PACK ? tile * (DEPTH * NW) : start);
            __global const TYPE *rows[MR];
            UNROLL for (int r = 0; r < MR; ++r)
                rows[r] = queries + min(first + r, ROWS - 1) * QUERY_M;
            BEGIN_SUMS
            HELD_ROWS
            int k = 0;
            REDUCE(DEPTH)
            UNROLL for (int r = 0; r < MR; ++r)
                UNROLL for (int v = 0; v < NV; ++v) {
                    vec score = total[r][v];
                    EPILOGUE(score, vec, LOAD, product, min(first + r, ROWS - 1), start + v * VW)
                    OWN_STORE(score, shares, r * PITCH + FRONT + start - from + v * VW);
                }
#if HIDES
            for (int r = 0; r < MR; ++r)
                for (int i = 0; i < NW; ++i)
                    if (HIDDEN(product, min(first + r, ROWS - 1), start + i))
                        shares[r * PITCH + FRONT + start - from + i] = HIDDEN_SCORE;
#endif
        }
        for (int r = 0; r < MR; ++r)
            before[r] = share(shares + r * PITCH + FRONT, count, &maxima[r], &sums[r]);

        for (int tile = 0; tile < VALUE_TILES; ++tile) {
            const int start = min(tile * NW, COLUMNS - NW), pitch = VALUE_N;
            __global const TYPE *columns = value + VALUE_AT(product) + from * VALUE_N + start;
            const SUM *rows[MR];
            UNROLL for (int r = 0; r < MR; ++r)
                rows[r] = shares + r * PITCH + FRONT;
            BEGIN_SUMS
#if KEYS > BLOCK
            SUM *own = kept + tile * (MR * NW);
            if (from)
                UNROLL for (int r = 0; r < MR; ++r)
                    UNROLL for (int v = 0; v < NV; ++v)
                        total[r][v] = OWN_LOAD(own, r * NW + v * VW) * before[r];
#endif
            int k = 0;
            REDUCE_AT_ONCE(OWN_LEFT, count)
#if KEYS > BLOCK
            if (from + BLOCK < KEYS) {
                UNROLL for (int r = 0; r < MR; ++r)
                    UNROLL for (int v = 0; v < NV; ++v)
                        OWN_STORE(total[r][v], own, r * NW + v * VW);
                continue;
            }
#endif
            UNROLL for (int r = 0; r < MR; ++r)
                if (first + r < ROWS)
                    UNROLL for (int v = 0; v < NV; ++v) {
                        const vec result = RESULT(total[r][v], sums[r], first + r);
                        STORE(result, output, OUT_AT(product) + (first + r) * OUT_M + start + v * VW);
                    }
        }
    }
}
