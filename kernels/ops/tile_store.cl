// What becomes of a work-group's tile (tile_local.cl) of an output [M, N], in the body of a kernel: with SPLIT 1 its sums
// are finished (tile_sizes.cl), else they go to the product's shares as they are (add_shares.cl).
// Rows and columns beyond the last are left out; of a vector that reaches beyond, elements are stored one by one.

// A share's sums have no bias yet, and all of them are of the type of sums.
#if SPLIT > 1
#define PUT_VECTOR(value, row, column) SHARE_STORE(value, shares, SHARE_AT(share, row, column));
#define PUT_ELEMENT(value, row, column) shares[SHARE_AT(share, row, column)] = value;
#else
#define PUT_VECTOR FINISH_VECTOR
#define PUT_ELEMENT FINISH_ELEMENT
#endif

    // Neighbouring work-items have neighbouring vectors, so a warp stores whole lines.
    UNROLL for (int r = 0; r < MR; ++r) {
        const int own_row = row + ROW(r);
        if (M % BM == 0 || own_row < M)
            UNROLL for (int v = 0; v < NV; ++v) {
                // at most one vector of a row is cut off by the last column
                const int first_column = column + COLUMN(v);
                if (N % BN == 0 || first_column + VW <= N)
                    PUT_VECTOR(total[r][v], own_row, first_column)
#if N % VW
                else if (first_column < N) { // the last vector
                    SUM lanes[VW];
                    OWN_STORE(total[r][v], lanes, 0);
                    UNROLL for (int i = 0; i < N % VW; ++i)
                        PUT_ELEMENT(lanes[i], own_row, first_column + i)
                }
#endif
            }
    }
