// Transposed convolution of NHWC maps with packed filters, in groups, as a convolution to sub-pixels.
//
//   output[n, y, x, o] = EPILOGUE(bias[o] + sum over i, j, c of input[n, i, j, c] * weight[c, o, ky, kx])
//                        where i*SH + ky*DH = y + PT and j*SW + kx*DW = x + PL
//
// Position (q, s) stands for the SH x SW output pixels (q*SH + py - PT, s*SW + px - PL), one of each phase (py, px). All
// of them see the input pixels (q - ty, s - tx), ty < TH and tx < TW, so a group's channels of all phases are the columns
// [py][px][o] of one matrix product; pack_transposed.cl puts zeros where a phase has fewer taps.
//
//                          NW = NV * VW columns
//                        +----+----+-- --+----+
//                 packed | VW | VW |     | VW |  channels of the input, KU at a time, for one tap after the other
//                        +----+----+-- --+----+
//      channels
//       +------+         +----+----+-- --+----+
//       |      | MR      | accumulators in    |  a work-item's tile: MR positions in a row of all positions
//       +------+         | registers          |
//                        +----+----+-- --+----+
//
// Work split: one grid dimension runs over the groups' column tiles, LN of them to a work-group, the other over tiles of positions, LM
// to a work-group; with ORDER 0 column tiles are dimension 0. The tiles of a work-group lie interleaved in packed, as one
// panel:
//   packed = [group][panel][ty][tx][channel][tile of the panel][NW], then bias as [group][panel][tile][NW], then a pixel of
//   zeros.
// The columns of one row phase, [px][o], lie in the output as they lie in the tile if there is one group, else those of
// one pixel do; a vector is stored whole unless it spans two such runs or reaches out of the output, and then lane by lane.
// Preconditions: fewer than 2^31 elements in each buffer.

#ifndef MAPS
#define MAPS 1               // batch
#define HEIGHT 4             // of the input
#define WIDTH 4
#define GROUPS 1
#define INPUTS 4             // input channels of a group
#define OUTPUTS 4            // output channels of a group
#define OPERANDS 0           // tensors that the epilogue reads
#define FINITE 1             // 0: some weights are infinite or NaN
#define OUT_HEIGHT 8
#define OUT_WIDTH 8
#define DOWN 4               // positions
#define ACROSS 4
#define TH 1                 // taps
#define TW 1
#define SH 2                 // strides
#define SW 2
#define PT 0                 // padding: top, left
#define PL 0
#endif
#ifndef MR
#define MR 4                 // positions of a tile
#define NV 1                 // vectors of a tile's position
#define VW 4                 // columns of a vector
#define KU 1                 // unrolling of the channel loop
#define LM 1                 // work-group along the positions
#define LN 1                 // work-group along the columns
#define ORDER 0              // 0: column tiles are dimension 0 of the grid, 1: tiles of positions are
#endif
#ifndef EPILOGUE
#define OPERAND_PARAMETERS   // ", __global const TYPE *restrict operand0, ..."
#define EPILOGUE(value, T, LOAD, offset)
#endif

#define COLUMNS (SH * SW * OUTPUTS)
#include "tile_grid.cl"
#include "small_tiles.cl"
#define PHASE_ROW (SW * OUTPUTS)  // columns of one row phase
#define RUN (GROUPS == 1 ? PHASE_ROW : OUTPUTS)  // columns that are neighbours in the output
#define TAPS (TH * TW)
#define POSITIONS (MAPS * DOWN * ACROSS)

// Outside of the map a position sees a pixel of zeros, whose products with weights that are not finite would be NaN.
#if !FINITE
#define ADD_PRODUCT(r, left, right, sum) (rows[r] == zeros ? (sum) : fma(left, right, sum))
#endif
#define READ_ROW(rows, r, c) ELEMENT(rows[r], c)
#include "register_tile.cl"

// Where position i lies: its map, and its row and column in it.
#define MAP(i) ((i) / (DOWN * ACROSS))
#define ROW(i) (PT / SH + (i) / ACROSS % DOWN)
#define COLUMN(i) (PL / SW + (i) % ACROSS)
// Where a column of a position at (q, s) lies in the output: its row, and its element in that row. Both may be outside.
#define OUTPUT_ROW(q, column) ((q) * SH + (column) / PHASE_ROW - PT)
#define IN_ROW(s, column) \
    (((s) * SW - PL + (column) % PHASE_ROW / OUTPUTS) * (GROUPS * OUTPUTS) + group * OUTPUTS + (column) % OUTPUTS)
#define ROW_LENGTH (OUT_WIDTH * GROUPS * OUTPUTS)
#define IS_INSIDE(y, x, width) ((uint)(y) < OUT_HEIGHT && (x) >= 0 && (x) + (width) <= ROW_LENGTH)
#define IS_WHOLE(column) ((column) < COLUMNS && (column) % RUN + VW <= RUN)

__kernel __attribute__((reqd_work_group_size(GROUP_SIZE)))
void conv_transpose_tiled(__global const TYPE *restrict input, __global const TYPE *restrict packed,
                          __global TYPE *restrict output OPERAND_PARAMETERS)
{
    const int column_tile = get_global_id(ORDER);
    const int group = column_tile / (PANELS * LN);
    const int tile = column_tile % (PANELS * LN);
    const int first = get_global_id(1 - ORDER) * MR;
    if (tile >= TILES || first >= POSITIONS)
        return;
    __global const TYPE *columns = packed + (column_tile / LN * (TAPS * INPUTS) * LN + column_tile % LN) * NW;
    __global const TYPE *bias = packed + (GROUPS * PANELS * LN * (TAPS * INPUTS) + column_tile) * NW;
    __global const TYPE *zeros = packed + GROUPS * PANELS * LN * (TAPS * INPUTS + 1) * NW;

    int map[MR], down[MR], across[MR];
    vec total[MR][NV];
    UNROLL for (int r = 0; r < MR; ++r) {
        const int position = min(first + r, POSITIONS - 1);
        map[r] = MAP(position);
        down[r] = ROW(position);
        across[r] = COLUMN(position);
        UNROLL for (int v = 0; v < NV; ++v)
            total[r][v] = LOAD(bias, v * VW);
    }

    for (int ty = 0; ty < TH; ++ty)
        for (int tx = 0; tx < TW; ++tx) {
            __global const TYPE *rows[MR];
            UNROLL for (int r = 0; r < MR; ++r) {
                const int y = down[r] - ty, x = across[r] - tx;
                const bool inside = (uint)y < HEIGHT && (uint)x < WIDTH;
                rows[r] = inside ? input + (((map[r] * HEIGHT + y) * WIDTH + x) * GROUPS + group) * INPUTS : zeros;
            }
            int k = 0;
            REDUCE_AT_ONCE(READ_ROW, INPUTS)
            columns += INPUTS * PANEL;
        }

    SUM lanes[MR * NW];
    UNROLL for (int r = 0; r < MR; ++r)
        if (first + r < POSITIONS)
            UNROLL for (int v = 0; v < NV; ++v) {
                const int column = tile * NW + v * VW;
                const int y = OUTPUT_ROW(down[r], column), x = IN_ROW(across[r], column);
                const int offset = (map[r] * OUT_HEIGHT + y) * ROW_LENGTH + x;
                vec value = total[r][v];
#if !OPERANDS
                EPILOGUE(value, vec, LOAD, 0)
#endif
                if (IS_WHOLE(column) && IS_INSIDE(y, x, VW)) {
#if OPERANDS
                    EPILOGUE(value, vec, LOAD, offset)
#endif
                    STORE(value, output, offset);
                } else
                    OWN_STORE(value, lanes, r * NW + v * VW);
            }
    TAILS for (int r = 0; r < MR; ++r)
        TAILS for (int v = 0; v < NV; ++v) {
            const int q = ROW(first + r), s = COLUMN(first + r);
            const int begin = tile * NW + v * VW;
            const bool is_stored = IS_WHOLE(begin) && IS_INSIDE(OUTPUT_ROW(q, begin), IN_ROW(s, begin), VW);
            if (first + r < POSITIONS && !is_stored)
                TAILS for (int i = 0; i < VW; ++i) {
                    const int column = begin + i;
                    const int y = OUTPUT_ROW(q, column), x = IN_ROW(s, column);
                    if (column < COLUMNS && IS_INSIDE(y, x, 1)) {
                        const int offset = (MAP(first + r) * OUT_HEIGHT + y) * ROW_LENGTH + x;
                        SUM value = lanes[r * NW + v * VW + i];
#if OPERANDS
                        EPILOGUE(value, SUM, ELEMENT, offset)
#endif
                        STORE_ELEMENT(value, output, offset);
                    }
                }
        }
}
