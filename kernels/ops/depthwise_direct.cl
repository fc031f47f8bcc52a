// Depthwise convolution of NHWC maps: one filter per channel, or per channel of a group of few.
//
//   output[n, y, x, c] = EPILOGUE(bias[c] + sum over ky, kx, i of
//                         input[n, y*SH - PT + ky*DH, x*SW - PL + kx*DW, c - c % GROUP + i] * weight[c, i, ky, kx])
//
//      SPAN pixels of a row of the input       MR pixels of a row of the output
//     +----+----+----+----+-- --+----+          +----+----+-- --+----+
//     | VW |    |    |    |     |    |   -->    | VW |    |     |    |  accumulators in registers
//     +----+----+----+----+-- --+----+          +----+----+-- --+----+
//
// REUSE 1 loads each pixel of the span once per ky and adds it to all outputs that it is a tap of; REUSE 0 loads per tap.
// Work split: one grid dimension runs over vectors of VW channels, LN to a work-group, the other over strips of MR
// pixels, LM to a work-group; with ORDER 0 vectors are dimension 0.
// A vector holds whole groups, and every lane of a group needs each of its elements: in step i lane j has that of lane
// j ^ i, by a permutation of registers that all taps share.
//   packed = [ky][kx][i][channel], of input i ^ channel % GROUP, then bias as [channel]
// Pixels outside the map are zero and never read; pixels beyond a row's end are computed and not stored. Where VW does
// not divide the channels, the last vector starts earlier, so that it ends with them, and stores just the channels that
// no other vector stores.
// Preconditions: GROUP <= VW <= CHANNELS, GROUP a power of two that divides CHANNELS, fewer than 2^31 elements in each
// buffer.

#ifndef MAPS
#define MAPS 1               // batch
#define HEIGHT 8             // of the input
#define WIDTH 8
#define CHANNELS 8
#define GROUP 1              // channels of a group
#define OUT_HEIGHT 8
#define OUT_WIDTH 8
#define KH 3                 // kernel
#define KW 3
#define SH 1                 // strides
#define SW 1
#define PT 1                 // padding: top, left
#define PL 1
#define DH 1                 // dilations
#define DW 1
#endif
#ifndef MR
#define MR 2                 // pixels of a strip
#define VW 4                 // channels of a vector
#define REUSE 1              // 1: a row of the input is loaded once, 0: once per tap
#define LM 1                 // work-group along the strips
#define LN 1                 // work-group along the channels
#define ORDER 0              // 0: channels are dimension 0 of the grid, 1: strips are
#endif
#ifndef EPILOGUE
#define OPERAND_PARAMETERS   // ", __global const TYPE *restrict operand0, ..."
#define EPILOGUE(value, T, LOAD, offset)
#endif

#include "vectors.cl"
#include "row_span.cl"

#define VECTORS ((CHANNELS + VW - 1) / VW)
#define TAIL (CHANNELS % VW) // channels that only the last vector stores, one by one
#define STRIPS ((OUT_WIDTH + MR - 1) / MR)
#define LAST_TILE ((STRIPS - 1) * MR)

#ifndef SWAPPED              // swapped_lanes.cl is for groups
#define SWAPPED(v, i) (v)
#endif

__kernel
#if ORDER
__attribute__((reqd_work_group_size(LM, LN, 1)))
#else
__attribute__((reqd_work_group_size(LN, LM, 1)))
#endif
void depthwise_direct(__global const TYPE *restrict input, __global const TYPE *restrict packed,
                      __global TYPE *restrict output OPERAND_PARAMETERS)
{
    const int vector = get_global_id(ORDER);
    const int strip = get_global_id(1 - ORDER);
    if (vector >= VECTORS || strip >= MAPS * OUT_HEIGHT * STRIPS)
        return;
    const int channel = min(vector * VW, CHANNELS - VW);
    const int out_row = strip / STRIPS;
    const int first = strip % STRIPS * MR;
    const int map = out_row / OUT_HEIGHT;
    const int top = out_row % OUT_HEIGHT * SH - PT;
    const int left = first * SW - PL;
    __global const TYPE *filter = packed + channel;

    vec total[MR];
    UNROLL for (int r = 0; r < MR; ++r)
        total[r] = LOAD(filter, KH * KW * GROUP * CHANNELS);

    for (int ky = 0; ky < KH; ++ky) {
        const int y = top + ky * DH;
        if ((uint)y >= HEIGHT)
            continue;
        __global const TYPE *line = input + ((map * HEIGHT + y) * WIDTH + left) * CHANNELS + channel;
#if REUSE
        UNROLL for (int s = 0; s < SPAN; ++s) {
            const vec seen = PIXEL(LOAD, line, s, CHANNELS);
            UNROLL for (int i = 0; i < GROUP; ++i) {
                const vec value = SWAPPED(seen, i);
                UNROLL for (int kx = 0; kx < KW; ++kx) {
                    const int r = s - kx * DW;
                    if (r >= 0 && r % SW == 0 && r / SW < MR)
                        total[r / SW] = fma(value, LOAD(filter, ((ky * KW + kx) * GROUP + i) * CHANNELS), total[r / SW]);
                }
            }
        }
#else
        UNROLL for (int kx = 0; kx < KW; ++kx)
            UNROLL for (int i = 0; i < GROUP; ++i) {
                const vec weight = LOAD(filter, ((ky * KW + kx) * GROUP + i) * CHANNELS);
                UNROLL for (int r = 0; r < MR; ++r)
                    total[r] = fma(SWAPPED(PIXEL(LOAD, line, r * SW + kx * DW, CHANNELS), i), weight, total[r]);
            }
#endif
    }

#if TAIL
    SUM lanes[MR * VW];
#endif
    UNROLL for (int r = 0; r < MR; ++r)
        if (first + r < OUT_WIDTH) {
            const int offset = (out_row * OUT_WIDTH + first + r) * CHANNELS + channel;
            vec value = total[r];
            EPILOGUE(value, vec, LOAD, offset)
#if TAIL
            if (vector == VECTORS - 1)
                OWN_STORE(value, lanes, r * VW);
            else
#endif
                STORE(value, output, offset);
        }
#if TAIL
    if (vector == VECTORS - 1)
        for (int r = 0; r < MR && first + r < OUT_WIDTH; ++r)
            for (int i = VW - TAIL; i < VW; ++i)
                STORE_ELEMENT(lanes[r * VW + i], output, (out_row * OUT_WIDTH + first + r) * CHANNELS + channel + i);
#endif
}
