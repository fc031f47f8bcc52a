// Rows of the left side of a product, for templates whose work-items read them element by element; behind vectors.cl, and
// behind factors.cl if the template has it. LEFT_STEP is from one element of a row to the next; 1 if it is not defined.
//
// A CPU takes three instructions to load, convert and spread an element of half, and one for float. So HELD elements of each
// of MR rows are converted together, and read again as floats from the cache. Float rows, and those of GPUs, whose
// private arrays are slow, are read where they lie. Factors in half are as well, in blocks of BLOCK_STEPS.
//   EACH_BLOCK(k, width) HOLD_BLOCK(rows, k, width) begin a loop's body in which LEFT(rows, r, k) is for each k up to
//   BLOCK_END(width), and the loop goes on until k is the width. ALL_AT_ONCE, HOLD_NOTHING, ALL_OF and OWN_LEFT stand in
//   their places for rows that a kernel keeps, which are floats.

#ifndef LEFT_STEP
#define LEFT_STEP 1
#endif
#ifdef HALF_FACTORS
#define HELD BLOCK_STEPS
#define HELD_ROWS
#define EACH_BLOCK(k, width) while (k < (width))
#define HOLD_BLOCK(rows, k, width) const int held_end = min(k + HELD, (int)(width));
#define BLOCK_END(width) held_end
#define LEFT(rows, r, k) FACTOR_ELEMENT(rows[r], (k) * LEFT_STEP)
#elif defined(CONVERTED) && !defined(ALIGNED_BUFFER) && LEFT_STEP == 1
#define HELD 16
#define HELD_ROWS SUM held[MR][HELD] __attribute__((aligned(64)));
#define EACH_BLOCK(k, width) while (k < (width))
#define HOLD_BLOCK(rows, k, width)                                   \
    const int held_from = k, held_end = min(k + HELD, (int)(width)); \
    if (held_end - held_from == HELD)                                \
        UNROLL for (int r = 0; r < MR; ++r)                          \
            vstore16(LOAD_WIDE(16, rows[r], k), 0, held[r]);         \
    else                                                             \
        UNROLL for (int r = 0; r < MR; ++r)                          \
            for (int i = 0; i < held_end - held_from; ++i)           \
                held[r][i] = ELEMENT(rows[r], k + i);
#define BLOCK_END(width) held_end
#define LEFT(rows, r, k) held[r][(k) - held_from]
#else
#define HELD 0
#define HELD_ROWS
#define EACH_BLOCK ALL_AT_ONCE
#define HOLD_BLOCK HOLD_NOTHING
#define BLOCK_END ALL_OF
#define LEFT(rows, r, k) ELEMENT(rows[r], (k) * LEFT_STEP)
#endif
#define ALL_AT_ONCE(k, width)
#define HOLD_NOTHING(rows, k, width)
#define ALL_OF(width) (width)
#define OWN_LEFT(rows, r, k) OWN_ELEMENT(rows[r], k)
