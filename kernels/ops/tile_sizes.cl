// Sizes of a work-group's tile with factors in local memory, and how blocks of them get there: the macros of
// tile_local.cl, which has the picture. The text before defines MR, NV, VW, LM, LN, BK, STAGES, PAD, SA, SB, SPLIT, BAND.

#include "vectors.cl"
#include "factors.cl"
#include "short_vectors.cl"

#define BM (MR * LM)         // rows of the tile
#define BN (NV * VW * LN)    // columns of the tile
#define ITEMS (LM * LN)      // work-items of the group

// What a block has across the reduction, and how far apart its steps lie. Where vectors are turned over, neighbouring
// work-items write to different steps. Steps of a power of two would all begin at one bank, so they are PAD longer.
#define LEFT_TILE BM
#define RIGHT_TILE BN
#define LEFT_PITCH (BM + LEFT_DEEP * PAD)
#define RIGHT_PITCH (BN + RIGHT_DEEP * PAD)

// The rows of a work-item lie LW side by side, as many as a vector of local memory holds, and LM such vectors apart. Its
// columns lie VW side by side, and LN vectors apart. item_row and item_column are the place of the work-item.
#if MR % 4 == 0
#define LW 4
#elif MR % 2 == 0
#define LW 2
#else
#define LW 1
#endif
#define ROW(r) (((r) / LW * LM + item_row) * LW + (r) % LW)
#define COLUMN(v) (((v) * LN + item_column) * VW)

typedef VEC_OF(LEFT_WIDTH) left_vec;
typedef VEC_OF(RIGHT_WIDTH) right_vec;
typedef VEC_OF(LW) rows_vec;

// The vectors of a block, shared out among the work-items; `across` and `deep` say where vector e lies in it. Neighbouring
// work-items have neighbouring vectors of memory: the next along the reduction where vectors are deep, else the next
// across it. All numbers are powers of two but those of the problem, so the divisions are shifts.
#define VECTORS(SIDE) (BK * SIDE##_TILE / SIDE##_WIDTH)
#define LOADS(SIDE) ((VECTORS(SIDE) + ITEMS - 1) / ITEMS)
#define EACH_VECTOR(SIDE, what)                                                                                    \
    UNROLL for (int i = 0; i < LOADS(SIDE); ++i) {                                                                 \
        const int e = item + i * ITEMS;                                                                            \
        const int across = SIDE##_DEEP ? e / (BK / SIDE##_WIDTH) : e % (SIDE##_TILE / SIDE##_WIDTH) * SIDE##_WIDTH; \
        const int deep = SIDE##_DEEP ? e % (BK / SIDE##_WIDTH) * SIDE##_WIDTH : e / (SIDE##_TILE / SIDE##_WIDTH);   \
        if (VECTORS(SIDE) % ITEMS == 0 || e < VECTORS(SIDE)) {                                                     \
            what                                                                                                   \
        }                                                                                                          \
    }

// Memory to registers: block `first`, zeros beyond K. What lies there may be infinite, so it is not multiplied by zeros
// of the other factor. The condition is a constant where blocks divide the reduction.
#define INSIDE(k) (K % BK == 0 || (k) < K)
#define FETCH(SIDE, held, vector, first) \
    EACH_VECTOR(SIDE, held[i] = INSIDE((first) + deep) ? SIDE(across, (first) + deep) : (vector)((FACTOR)0);)

// Registers to local memory: the elements of a deep vector go to the same place of WIDTH steps, which turns the block over,
// and all other vectors stay vectors. `at` says which of the blocks in local memory it is.
#define STASH(SIDE, held, vector, memory, at)                                             \
    EACH_VECTOR(SIDE, if (SIDE##_DEEP) {                                                  \
        FACTOR lanes[SIDE##_WIDTH];                                                       \
        SPREAD_OF(SIDE##_WIDTH, lanes, 0, held[i]);                                       \
        UNROLL for (int j = 0; j < SIDE##_WIDTH; ++j)                                     \
            memory[((at) * BK + deep + j) * SIDE##_PITCH + across] = lanes[j];            \
    } else                                                                                \
        *(__local vector *)(memory + ((at) * BK + deep) * SIDE##_PITCH + across) = held[i];)

// The left factor of a step, MR numbers: from local memory, or from where it lies.
#if SA
#define FETCH_LEFT(first) FETCH(LEFT, left_held, left_vec, first)
#define STASH_LEFT(at) STASH(LEFT, left_held, left_vec, lefts, at)
#define READ_LEFT(left, at, first, step)                                                              \
    UNROLL for (int q = 0; q < MR / LW; ++q)                                                          \
        SPREAD_OF(LW, left, q * LW,                                                                   \
                  *(__local const rows_vec *)(lefts + ((at) * BK + (step)) * LEFT_PITCH + ROW(q * LW)));
#else
#define FETCH_LEFT(first)
#define STASH_LEFT(at)
#define READ_LEFT(left, at, first, step) \
    UNROLL for (int r = 0; r < MR; ++r)  \
        left[r] = INSIDE((first) + (step)) ? LEFT_ONE(ROW(r), (first) + (step)) : (FACTOR)0;
#endif

// The right factor of a step, NV vectors.
#if SB
#define FETCH_RIGHT(first) FETCH(RIGHT, right_held, right_vec, first)
#define STASH_RIGHT(at) STASH(RIGHT, right_held, right_vec, rights, at)
#define READ_RIGHT(right, at, first, step)   \
    UNROLL for (int v = 0; v < NV; ++v)      \
        right[v] = *(__local const factors *)(rights + ((at) * BK + (step)) * RIGHT_PITCH + COLUMN(v));
#else
#define FETCH_RIGHT(first)
#define STASH_RIGHT(at)
#define READ_RIGHT(right, at, first, step) \
    UNROLL for (int v = 0; v < NV; ++v)    \
        right[v] = INSIDE((first) + (step)) ? RIGHT(COLUMN(v), (first) + (step)) : (factors)((FACTOR)0);
#endif

// Nothing waits where nothing is shared.
#if SA || SB
#define TILE_BARRIER barrier(CLK_LOCAL_MEM_FENCE);
#else
#define TILE_BARRIER
#endif

// Which tile a work-group has. BAND rows of tiles take turns along the columns, so that work-groups that run at the same
// time read few different rows and columns, which stay in the second cache. With BAND 1 tiles lie row by row. The last
// band may have fewer rows.
#define TILES_DOWN ((M + BM - 1) / BM)   // rows of tiles
#define TILES_ACROSS ((N + BN - 1) / BN) // columns of tiles
#define BAND_OF(tile) ((tile) / (BAND * TILES_ACROSS))
#define BAND_HEIGHT(tile) (BAND == 1 ? 1 : min(BAND, TILES_DOWN - BAND_OF(tile) * BAND))
#define TILE_ROW(tile) (BAND_OF(tile) * BAND + (tile) % (BAND * TILES_ACROSS) % BAND_HEIGHT(tile))
#define TILE_COLUMN(tile) ((tile) % (BAND * TILES_ACROSS) / BAND_HEIGHT(tile))

#include "finish.cl"
#include "add_shares.cl"
