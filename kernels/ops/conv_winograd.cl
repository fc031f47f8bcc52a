// Winograd convolution of NHWC maps: 3x3 filters with stride 1 as F(2x2) or F(4x4), with stride 2 as F(2x2).
//
//   output = EPILOGUE(bias + A^T [ (G weight G^T) * (B^T input B) summed over the input channels ] A)
//
// A window of SIDE x SIDE inputs gives a tile of ALG x ALG outputs. Both are transformed along rows and columns, which
// turns nine products per output into SIDE^2 / ALG^2: 4 for ALG 2, 2.25 for ALG 4, 6.25 for ALG 2 with stride 2. With
// stride 2 the even and the odd inputs are two filters of two taps and one tap, and only the former saves a product:
// (d0 - d2) w0 + d2 (w0 + w2) and d2 (w0 + w2) + (d4 - d2) w2.
//
//   input   SIDE            transformed   [block][frequency]     product  [frequency] in private memory
//   +---+---------+                       +----- channels        +----+----+
//   |   | window  | SIDE       -->        | MR*RB tiles    -->   | VW | VW |  MR*RB tiles   -->  ALG x ALG pixels each
//   +---+---------+                       +-----                 +----+----+
//       step of ALG * SH                  times packed, [column tile][frequency][channel][NW]
//
// winograd_transform: a work-item transforms CHANNELS channels of one window, IW at a time; dimension 0 of the grid
// runs over the channels, TC work-items of them to a work-group, dimension 1 over the tiles, TT to a work-group. An
// element of a window outside the map is read from the zeros, chosen once for all channels.
// winograd_multiply: a work-item computes a block of MR*RB tiles by NW = NV*VW channels of the output: SIDE^2 products
// of matrices, each in RB register tiles of MR x NV vectors, then its pixels. With ORDER 0 column tiles are dimension 0
// of the grid.
// KEEP: all products of a block are kept, then transformed. They stay in a CPU's cache, and so do the filters of a
// frequency for all register tiles. Without, each product is added to the pixels that it is a part of, and only these
// are kept: there are fewer of them, so that they stay in a GPU's registers.
//   packed = [column tile][frequency][channel][NW], then the bias, then a pixel of zeros; output channels from OUTPUTS
//   on are zero.
// Tiles beyond the last are computed from what the buffer holds and not stored.
// Preconditions: IW divides INPUTS; fewer than 2^31 elements in each buffer.

#ifndef BATCH
#define BATCH 1
#define HEIGHT 8             // of the input
#define WIDTH 8
#define OUT_HEIGHT 8
#define OUT_WIDTH 8
#define INPUTS 4             // input channels
#define OUTPUTS 4            // output channels
#define SH 1                 // stride, of rows and columns
#define PT 1                 // padding: top, left
#define PL 1
#define IW 4                 // input channels of a vector
#define CHANNELS 4           // input channels of a work-item that transforms
#define SKEW 16              // elements between the frequencies of a block, so that they do not share a set of the cache
#endif
#ifndef KEEP
#define KEEP 1               // 1: products are kept, 0: they are added to the pixels
#define TC 1                 // work-group of the transform: along the channels, along the tiles
#define TT 1
#endif
#ifndef ALG
#define ALG 2                // rows and columns of a tile
#define MR 4                 // tiles of a register tile
#define RB 1                 // register tiles of a block
#define NV 1                 // vectors of a register tile's row
#define VW 4                 // output channels of a vector
#define KU 1                 // unrolling of the channel loop
#define PF 0                 // packed is prefetched so many channels ahead; 0: it is not
#define LM 1                 // work-group along the tiles
#define LN 1                 // work-group along the channels
#define ORDER 0              // 0: column tiles are dimension 0 of the grid, 1: blocks are
#endif
#ifndef EPILOGUE
#define OPERAND_PARAMETERS   // ", __global const TYPE *restrict operand0, ..."
#define EPILOGUE(value, T, LOAD, offset)
#endif

#define PASSES RB                  // of register tiles over the filters of a frequency
#define NW (NV * VW)
#define PANEL NW                   // a tile's columns for themselves
#define RIGHT(c, v) HELD_LOAD(columns, (c) * NW + v * VW)
#include "register_tile.cl"

// Inputs are MAP_LOADed. Transformed numbers, and the bias with them, are SUMs that are HELD in memory.
#if IW == 1
typedef SUM map_vec;
#define MAP_LOAD ELEMENT
#define HELD_STORE(v, p, i) (p)[i] = (v)
#else
typedef CAT(SUM, IW) map_vec;
#define MAP_LOAD(p, i) LOAD_WIDE(IW, p, i)
#define HELD_STORE(v, p, i) STORE_OF(SUM, IW, v, p, i)
#endif
#if VW == 1
#define HELD_LOAD OWN_ELEMENT
#else
#define HELD_LOAD(p, i) LOAD_OF(SUM, VW, p, i)
#endif

#define SIDE (ALG * SH + 3 - SH)   // of a window, and of its transform
#define FREQUENCIES (SIDE * SIDE)
#define TILES_DOWN ((OUT_HEIGHT + ALG - 1) / ALG)
#define TILES_ACROSS ((OUT_WIDTH + ALG - 1) / ALG)
#define TILES (BATCH * TILES_DOWN * TILES_ACROSS)
#define BLOCK (MR * RB)
#define BLOCKS ((TILES + BLOCK - 1) / BLOCK)
#define SLICE (BLOCK * INPUTS + SKEW) // of a block of the transformed input, for one frequency
#define COLUMN_TILES ((OUTPUTS + NW - 1) / NW)
#define BIAS (COLUMN_TILES * (FREQUENCIES * INPUTS * NW)) // where it begins in packed
#define ZEROS (BIAS + COLUMN_TILES * NW)
#define TAIL (OUTPUTS % VW)       // channels of a vector that reaches beyond the last one; they are stored one by one

// Whether the lines of a tile are unrolled, too: the smaller tiles gain a little, the larger ones take long to compile.
// ALL: the loops that are unrolled where nothing is kept, so that every private array is in registers.
#if ALG == 2 || !KEEP
#define LINES UNROLL
#else
#define LINES
#endif
#if KEEP
#define ALL
#else
#define ALL UNROLL
#endif

// A^T in row r and column f: the r-th power of the point at which the transforms evaluate polynomials. The last point is
// infinite, where only the highest power counts. With stride 2 it is what RESULT says.
#if SH == 2
#define WEIGHT(r, f) (SUM)((r) == 0 ? (f) != 2 && (f) != 4 : (f) != 0 && (f) != 3)
#elif ALG == 2 // 1, 1, 1, 0 and 0, 1, -1, -1
#define WEIGHT(r, f) ((r) == 0 ? (SUM)((f) < 3) : (SUM)((f) == 1) - (SUM)((f) > 1))
#else
#define POINT(f) ((f) == 0 ? 0 : (f) == 1 ? 1 : (f) == 2 ? -1 : (f) == 3 ? 2 : -2)
#define POWER(r, p) ((r) == 0 ? 1 : (r) == 1 ? (p) : (r) == 2 ? (p) * (p) : (p) * (p) * (p))
#define WEIGHT(r, f) (SUM)((f) < SIDE - 1 ? POWER(r, POINT(f)) : (r) == ALG - 1 ? 1 : 0)
#endif

// One dimension: B^T times the SIDE elements of d, in place; and y = A^T times P(0), P(1) ...
#if SH == 2
#define TRANSFORM(d)                                                                                     \
    {                                                                                                    \
        const map_vec d1 = d[1], d2 = d[2], d3 = d[3];                                                   \
        d[0] -= d2, d[1] = d2, d[2] = d[4] - d2, d[3] = d1, d[4] = d3;                                   \
    }
#define RESULT(y, P)                                                                                     \
    {                                                                                                    \
        const vec m1 = P(1);                                                                             \
        y[0] = P(0) + m1 + P(3);                                                                         \
        y[1] = m1 + P(2) + P(4);                                                                         \
    }
#elif ALG == 2
#define TRANSFORM(d)                                                                                     \
    {                                                                                                    \
        const map_vec d1 = d[1], d2 = d[2];                                                              \
        d[0] -= d2, d[1] = d1 + d2, d[2] = d2 - d1, d[3] = d1 - d[3];                                    \
    }
#define RESULT(y, P)                                                                                     \
    {                                                                                                    \
        const vec m1 = P(1), m2 = P(2);                                                                  \
        y[0] = P(0) + m1 + m2;                                                                           \
        y[1] = m1 - m2 - P(3);                                                                           \
    }
#else
#define TRANSFORM(d)                                                                                     \
    {                                                                                                    \
        const map_vec d1 = d[1], d2 = d[2], d3 = d[3], d4 = d[4];                                        \
        const map_vec even = d4 - 4.0f * d2, odd = d3 - 4.0f * d1, far = d4 - d2, twice = 2.0f * (d3 - d1); \
        d[0] = 4.0f * d[0] - 5.0f * d2 + d4;                                                             \
        d[1] = even + odd, d[2] = even - odd, d[3] = far + twice, d[4] = far - twice;                    \
        d[5] = 4.0f * d1 - 5.0f * d3 + d[5];                                                             \
    }
#define RESULT(y, P)                                                                                     \
    {                                                                                                    \
        const vec near = P(1) + P(2), near_odd = P(1) - P(2), far = P(3) + P(4), far_odd = P(3) - P(4);  \
        y[0] = P(0) + near + far;                                                                        \
        y[1] = near_odd + 2.0f * far_odd;                                                                \
        y[2] = near + 4.0f * far;                                                                        \
        y[3] = near_odd + 8.0f * far_odd + P(5);                                                         \
    }
#endif

__kernel __attribute__((reqd_work_group_size(TC, TT, 1)))
void winograd_transform(__global const TYPE *restrict input, __global const SUM *restrict packed,
                        __global SUM *restrict transformed)
{
    const int start = get_global_id(0) * CHANNELS;
    const int tile = get_global_id(1);
    if (tile >= TILES)
        return;
    const int top = tile / TILES_ACROSS % TILES_DOWN * (ALG * SH) - PT;
    const int left = tile % TILES_ACROSS * (ALG * SH) - PL;
    const int corner = ((tile / (TILES_ACROSS * TILES_DOWN) * HEIGHT + top) * WIDTH + left) * INPUTS;
    __global SUM *slice = transformed + tile / BLOCK * (FREQUENCIES * SLICE) + tile % BLOCK * INPUTS;

    __global const TYPE *zeros = (__global const TYPE *)(packed + ZEROS);
    __global const TYPE *sources[FREQUENCIES];
    ALL for (int i = 0; i < SIDE; ++i)
        ALL for (int j = 0; j < SIDE; ++j) {
            const bool inside = (uint)(top + i) < HEIGHT && (uint)(left + j) < WIDTH;
            sources[i * SIDE + j] = inside ? input + (corner + (i * WIDTH + j) * INPUTS) : zeros;
        }

    for (int c = start; c < INPUTS && c < start + CHANNELS; c += IW) {
        map_vec window[FREQUENCIES];
        LINES for (int j = 0; j < SIDE; ++j) {
            map_vec line[SIDE];
            UNROLL for (int i = 0; i < SIDE; ++i)
                line[i] = MAP_LOAD(sources[i * SIDE + j], c);
            TRANSFORM(line)
            UNROLL for (int i = 0; i < SIDE; ++i)
                window[i * SIDE + j] = line[i];
        }
        LINES for (int i = 0; i < SIDE; ++i) {
            map_vec line[SIDE];
            UNROLL for (int j = 0; j < SIDE; ++j)
                line[j] = window[i * SIDE + j];
            TRANSFORM(line)
            UNROLL for (int j = 0; j < SIDE; ++j)
                HELD_STORE(line[j], slice, (i * SIDE + j) * SLICE + c);
        }
    }
}

#define OF_TILE(rows, r, c) OWN_ELEMENT(rows, (r) * INPUTS + (c))

__kernel
#if ORDER
__attribute__((reqd_work_group_size(LM, LN, 1)))
#else
__attribute__((reqd_work_group_size(LN, LM, 1)))
#endif
void winograd_multiply(__global const SUM *restrict transformed, __global const SUM *restrict packed,
                       __global TYPE *restrict output OPERAND_PARAMETERS)
{
    const int column = get_global_id(ORDER);
    const int block = get_global_id(1 - ORDER);
    if (column >= COLUMN_TILES || block >= BLOCKS)
        return;
    __global const SUM *bias = packed + BIAS + column * NW;

#if KEEP
    vec product[FREQUENCIES][BLOCK][NV];
#else
    vec pixels[MR][NV][ALG][ALG];
    UNROLL for (int r = 0; r < MR; ++r)
        UNROLL for (int v = 0; v < NV; ++v)
            UNROLL for (int i = 0; i < ALG; ++i)
                UNROLL for (int j = 0; j < ALG; ++j)
                    pixels[r][v][i][j] = 0.0f;
#endif
    for (int f = 0; f < FREQUENCIES; ++f) {
        __global const SUM *columns = packed + (column * FREQUENCIES + f) * (INPUTS * NW);
        for (int first = 0; first < BLOCK; first += MR) {
            __global const SUM *rows = transformed + (block * FREQUENCIES + f) * SLICE + first * INPUTS;
            __global const SUM *next = columns + (INPUTS + first / MR * ((INPUTS + RB - 1) / RB)) * NW;
            vec total[MR][NV];
            UNROLL for (int r = 0; r < MR; ++r)
                UNROLL for (int v = 0; v < NV; ++v)
                    total[r][v] = 0.0f;
            int k = 0;
            REDUCE_AT_ONCE(OF_TILE, INPUTS)
            UNROLL for (int r = 0; r < MR; ++r)
                UNROLL for (int v = 0; v < NV; ++v) {
#if KEEP
                    product[f][first + r][v] = total[r][v];
#else
                    UNROLL for (int i = 0; i < ALG; ++i)
                        UNROLL for (int j = 0; j < ALG; ++j)
                            pixels[r][v][i][j] += WEIGHT(i, f / SIDE) * WEIGHT(j, f % SIDE) * total[r][v];
#endif
                }
        }
    }

    ALL for (int t = 0; t < BLOCK; ++t) {
        const int tile = block * BLOCK + t;
        const int top = tile / TILES_ACROSS % TILES_DOWN * ALG;
        const int left = tile % TILES_ACROSS * ALG;
        const int corner = (tile / (TILES_ACROSS * TILES_DOWN) * OUT_HEIGHT + top) * OUT_WIDTH + left;
        ALL for (int v = 0; v < NV; ++v) {
            const int channel = column * NW + v * VW;
#if KEEP
#define PRODUCT(k) product[i * SIDE + (k)][t][v]
#define BETWEEN(k) between[k][j]
#define PIXEL(i) line[i]
            vec between[SIDE][ALG];
            LINES for (int i = 0; i < SIDE; ++i)
                RESULT(between[i], PRODUCT)
#else
#define PIXEL(i) pixels[t][v][i][j]
#endif
            LINES for (int j = 0; j < ALG; ++j) {
#if KEEP
                vec line[ALG];
                RESULT(line, BETWEEN)
#endif
                UNROLL for (int i = 0; i < ALG; ++i)
                    if (tile < TILES && top + i < OUT_HEIGHT && left + j < OUT_WIDTH) {
                        const int offset = (corner + i * OUT_WIDTH + j) * OUTPUTS + channel;
                        vec value = PIXEL(i) + HELD_LOAD(bias, v * VW);
                        if (OUTPUTS % NW == 0 || channel + VW <= OUTPUTS) {
                            EPILOGUE(value, vec, LOAD, offset)
                            STORE(value, output, offset);
                        }
#if TAIL
                        else if (channel < OUTPUTS) {
                            SUM lanes[VW];
                            OWN_STORE(value, lanes, 0);
                            ALL for (int lane = 0; lane < TAIL; ++lane) {
                                SUM one = lanes[lane];
                                EPILOGUE(one, SUM, ELEMENT, offset + lane)
                                STORE_ELEMENT(one, output, offset + lane);
                            }
                        }
#endif
                    }
            }
        }
    }
}
