// What becomes of a work-group's tile (tile_local.cl) of an output [M, N] that lies row by row, in the body of a kernel:
// with SPLIT 1 it goes through the epilogue to the output, else it goes to the shares [SPLIT][M][N] as it is.
// Rows and columns beyond the last are left out; of a vector that reaches beyond, elements are stored one by one.

#if SPLIT > 1
#define PUT_VECTOR(value, at) SHARE_STORE(value, shares, share * (M * N) + (at));
#define PUT_ELEMENT(value, at, column) shares[share * (M * N) + (at)] = value;
#else
#define PUT_VECTOR(value, at)                                            \
    {                                                                    \
        vec result = value + LOAD(packed, BIAS_AT(first_column));        \
        EPILOGUE(result, vec, LOAD, at)                                  \
        STORE(result, output, at);                                       \
    }
#define PUT_ELEMENT(value, at, column)                                   \
    {                                                                    \
        SUM result = value + ELEMENT(packed, BIAS_AT(column));           \
        EPILOGUE(result, SUM, ELEMENT, at)                               \
        STORE_ELEMENT(result, output, at);                               \
    }
#endif

    UNROLL for (int r = 0; r < MR; ++r) {
        const int own_row = row + ROW(r);
        if (M % BM == 0 || own_row < M)
            UNROLL for (int v = 0; v < NV; ++v) {
                const int first_column = column + COLUMN(v);
                if (N % BN == 0 || first_column + VW <= N)
                    PUT_VECTOR(total[r][v], own_row * N + first_column)
#if N % VW
                else if (first_column < N) {
                    SUM lanes[VW];
                    OWN_STORE(total[r][v], lanes, 0);
                    UNROLL for (int i = 0; i < N % VW; ++i)
                        PUT_ELEMENT(lanes[i], own_row * N + first_column + i, first_column + i)
                }
#endif
            }
    }
