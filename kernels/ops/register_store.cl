// What becomes of a work-item's tile in registers, in the body of a kernel: its sums are finished (finish.cl). Of a vector
// that reaches beyond the last column, of which a row has one at most, elements are stored one by one, in a loop of their
// own: with an epilogue in each of MR * VW places, the program of a CPU's tile would become long.
//
// The tile begins at row `first` of STORED_ROWS, and is number `tile` along STORED_COLUMNS columns; SUM_OF(r, v) is the
// vector v of its row r. The text before may define FIRST_LANE, the first lane of the last vector that no other vector has,
// and LAST_ROWS, the loop over the rows of that vector.

#ifndef FIRST_LANE
#define FIRST_LANE 0
#endif
#ifndef LAST_ROWS
#define LAST_ROWS for (int r = 0; r < MR && first + r < STORED_ROWS; ++r)
#endif
#define TAIL (STORED_COLUMNS % VW)

#if TAIL
    SUM lanes[MR * VW];
#endif
    UNROLL for (int r = 0; r < MR; ++r)
        if (first + r < STORED_ROWS)
            UNROLL for (int v = 0; v < NV; ++v) {
                const int column = tile * NW + v * VW;
                if (STORED_COLUMNS % NW == 0 || column + VW <= STORED_COLUMNS)
                    FINISH_VECTOR(SUM_OF(r, v), first + r, column)
#if TAIL
                else if (v == STORED_COLUMNS % NW / VW)
                    OWN_STORE(SUM_OF(r, v), lanes, r * VW);
#endif
            }
#if TAIL
    if (tile == TILES - 1)
        LAST_ROWS
            for (int i = 0; i < TAIL; ++i)
                FINISH_ELEMENT(lanes[r * VW + FIRST_LANE + i], first + r, STORED_COLUMNS - TAIL + i)
#endif
