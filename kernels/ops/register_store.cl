// What becomes of a work-item's tile in registers, in the body of a kernel: its sums are finished (finish.cl). Of a vector
// that reaches beyond the last column, of which a row has one at most, elements are stored one by one, in a loop of their
// own: with an epilogue in each of MR * VW places, the program of a CPU's tile would become long.
//
// The tile begins at row `first` of STORED_ROWS, and is number `tile` along COLUMNS columns; TOTAL(s, r, v) are the KA
// accumulators of a vector. The text before may define FIRST_LANE, the first lane of the last vector that no other vector
// has, and LAST_ROWS, the loop over the rows of that vector.

#ifndef FIRST_LANE
#define FIRST_LANE 0
#endif
#ifndef LAST_ROWS
#define LAST_ROWS for (int r = 0; r < MR && first + r < STORED_ROWS; ++r)
#endif
#define TAIL (COLUMNS % VW)

#if TAIL
    SUM lanes[MR * VW];
#endif
    UNROLL for (int r = 0; r < MR; ++r)
        if (first + r < STORED_ROWS)
            UNROLL for (int v = 0; v < NV; ++v) {
                const int column = tile * NW + v * VW;
                PLACE(first + r, column)
                vec value = TOTAL(0, r, v);
#if KA > 1
                UNROLL for (int s = 1; s < KA; ++s)
                    value += TOTAL(s, r, v);
#endif
                if (COLUMNS % NW == 0 || column + VW <= COLUMNS)
                    FINISH_VECTOR(value, first + r, column)
#if TAIL
                else if (v == COLUMNS % NW / VW)
                    OWN_STORE(value, lanes, r * VW);
#endif
            }
#if TAIL
    if (tile == TILES - 1)
        LAST_ROWS
            for (int i = 0; i < TAIL; ++i) {
                PLACE(first + r, (COLUMNS - TAIL) + i)
                SUM value = lanes[r * VW + FIRST_LANE + i];
                FINISH_ELEMENT(value, first + r, (COLUMNS - TAIL) + i)
            }
#endif
