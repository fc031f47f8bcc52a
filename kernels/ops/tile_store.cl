// What becomes of a work-group's tile (tile_local.cl) of an output [M, N], in the body of a kernel: its sums are put where
// they belong (finish.cl). Rows beyond the last are left out.

    // Neighbouring work-items have neighbouring vectors, so a warp stores whole lines.
    UNROLL for (int r = 0; r < MR; ++r)
        if (M % BM == 0 || row + ROW(r) < M)
            UNROLL for (int v = 0; v < NV; ++v)
                PUT(total[r][v], row + ROW(r), column + COLUMN(v))
