// Layout conversion NCHW <-> NHWC: the transposition of one matrix per map.
//
//   output[n, column, row] = input[n, row, column]      row < ROWS, column < COLUMNS
//
// NCHW to NHWC has channels as rows and pixels as columns; the way back has them exchanged.
//
// Work split: a work-item reads a block of VR rows x VC columns, each row as one vector, and writes it column by
// column, each column as one vector. Dimension 0 runs over blocks of columns, dimension 1 over blocks of rows,
// dimension 2 over maps. With STAGED the work-group's blocks change hands in local memory, so that neighbouring
// work-items write neighbouring vectors too; PAD more elements per row spread a column over the memory banks.
// Blocks that reach out of the matrix are moved element by element; without STAGED the last block of a row lies within
// it instead and moves what its neighbour moves, too. Then dimension 0 also runs over maps, so that a work-group may
// have several: the channels of a pixel, which are shuffled, are a map of their own.
// Preconditions: fewer than 2^31 elements; STAGED needs local memory for the work-group's blocks.

#ifndef ROWS
#define ROWS 8
#define COLUMNS 64
#define MAPS 1
#endif
#ifndef VR
#define VR 4                 // rows of a block, and the width of writes
#define VC 4                 // columns of a block, and the width of reads
#define DIMX 1               // work-group
#define DIMY 1
#define STAGED 0             // 1: through local memory
#define PAD 0                // elements between the rows there
#define WHOLE 0              // VR * VC where a block's columns lie one behind the other and fit a vector, else 0
#endif

#include "elements.cl"

#if VC == 1
#define READ(p, i, lanes) (lanes)[0] = ELEMENT((p) + (i), 0)
#else
#define READ(p, i, lanes) CAT(vstore, VC)(LOAD_WIDE(VC, p, i), 0, lanes)
#endif
#if VR == 1
#define WRITE(lanes, p, i) STORE_ELEMENT((lanes)[0], (p) + (i), 0)
#else
#define WRITE(lanes, p, i) STORE_WIDE(VR, CAT(vload, VR)(0, lanes), p, i)
#endif

#define PITCH (DIMX * VC + PAD)

__kernel __attribute__((reqd_work_group_size(DIMX, DIMY, 1)))
void transpose_layout(__global const TYPE *restrict input, __global TYPE *restrict output LOCAL_POOL)
{
    int row = get_global_id(1) * VR;
#if STAGED
    int column = get_global_id(0) * VC;
    const int map = get_global_id(2);
#else
    const int across = (COLUMNS + VC - 1) / VC;
    const int column = min((int)get_global_id(0) % across * VC, COLUMNS - VC);
    const int map = get_global_id(0) / across;
    if (map >= MAPS)
        return;
#endif
    input += map * ROWS * COLUMNS;
    output += map * ROWS * COLUMNS;
    SUM block[VR][VC];

    if (row + VR <= ROWS && column + VC <= COLUMNS) {
        #pragma unroll
        for (int r = 0; r < VR; ++r)
            READ(input + (row + r) * COLUMNS, column, block[r]);
    } else {
        for (int r = 0; r < VR; ++r)
            for (int c = 0; c < VC; ++c)
                block[r][c] = row + r < ROWS && column + c < COLUMNS ? ELEMENT(input, (row + r) * COLUMNS + column + c)
                                                                          : (SUM)0;
    }

#if STAGED
    LOCAL(SUM, stage, DIMY * VR * PITCH);
    for (int r = 0; r < VR; ++r)
        for (int c = 0; c < VC; ++c)
            stage[(get_local_id(1) * VR + r) * PITCH + get_local_id(0) * VC + c] = block[r][c];
    barrier(CLK_LOCAL_MEM_FENCE);
    const int item = get_local_id(1) * DIMX + get_local_id(0);
    const int down = item % DIMY;
    const int beside = item / DIMY;
    for (int r = 0; r < VR; ++r)
        for (int c = 0; c < VC; ++c)
            block[r][c] = stage[(down * VR + r) * PITCH + beside * VC + c];
    row = (get_group_id(1) * DIMY + down) * VR;
    column = (get_group_id(0) * DIMX + beside) * VC;
#endif

#if WHOLE
    SUM lanes[WHOLE];
    #pragma unroll
    for (int c = 0; c < VC; ++c)
        #pragma unroll
        for (int r = 0; r < VR; ++r)
            lanes[c * VR + r] = block[r][c];
    STORE_WIDE(WHOLE, CAT(vload, WHOLE)(0, lanes), output, column * ROWS);
#else
    if (row + VR <= ROWS && column + VC <= COLUMNS) {
        #pragma unroll
        for (int c = 0; c < VC; ++c) {
            SUM lanes[VR];
            #pragma unroll
            for (int r = 0; r < VR; ++r)
                lanes[r] = block[r][c];
            WRITE(lanes, output + (column + c) * ROWS, row);
        }
    } else {
        for (int c = 0; c < VC; ++c)
            for (int r = 0; r < VR; ++r)
                if (row + r < ROWS && column + c < COLUMNS)
                    STORE_ELEMENT(block[r][c], output, (column + c) * ROWS + row + r);
    }
#endif
}
