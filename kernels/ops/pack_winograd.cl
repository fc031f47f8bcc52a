// Transforms 3x3 filters for a Winograd convolution once, and lays them out as winograd_multiply reads them.
//
//   packed = [column tile][frequency][channel][NW], then the bias, then zeros
//   packed[.., row * side + column, ..] = sum over ky, kx of G[row][ky] * weight[o][c][ky][kx] * G[column][kx]
//
// G has `side` rows, the first of which is row `first` of ROWS. Output channels from `outputs` on are zero, and so is
// the bias without has_bias. A work-item writes RUN elements of packed; sizes are arguments, so that one build serves
// every problem and configuration, and work-groups are of one work-item, which every device allows.

#ifndef RUN
#define RUN 16               // elements of a work-item
#endif

#include "elements.cl"

__constant SUM ROWS[15][3] = {
    // F(2,3)
    {1.0f, 0.0f, 0.0f},
    {0.5f, 0.5f, 0.5f},
    {0.5f, -0.5f, 0.5f},
    {0.0f, 0.0f, 1.0f},
    // F(2,3) with stride 2
    {1.0f, 0.0f, 0.0f},
    {1.0f, 0.0f, 1.0f},
    {0.0f, 0.0f, 1.0f},
    {0.0f, 1.0f, 0.0f},
    {0.0f, 1.0f, 0.0f},
    // F(4,3)
    {1.0f / 4, 0.0f, 0.0f},
    {-1.0f / 6, -1.0f / 6, -1.0f / 6},
    {-1.0f / 6, 1.0f / 6, -1.0f / 6},
    {1.0f / 24, 1.0f / 12, 1.0f / 6},
    {1.0f / 24, -1.0f / 12, 1.0f / 6},
    {0.0f, 0.0f, 1.0f},
};

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void pack_winograd(__global const TYPE *restrict weight, __global const TYPE *restrict bias,
                   __global SUM *restrict packed, int size, int first, int side, int inputs, int outputs, int width,
                   int has_bias)
{
    const int filters = (outputs + width - 1) / width * width * (side * side * inputs);
    const int start = get_global_id(0) * RUN;
    for (int i = start; i < size && i - start < RUN; ++i) {
        SUM value = 0.0f;
        if (i < filters) {
            const int output = i / (width * inputs * side * side) * width + i % width;
            const int input = i / width % inputs;
            const int frequency = i / (width * inputs) % (side * side);
            if (output < outputs) {
                __global const TYPE *taps = weight + (output * inputs + input) * 9;
                for (int ky = 0; ky < 3; ++ky)
                    for (int kx = 0; kx < 3; ++kx)
                        value += ROWS[first + frequency / side][ky] * ROWS[first + frequency % side][kx]
                                 * ELEMENT(taps, ky * 3 + kx);
            }
        } else if (has_bias && i - filters < outputs) {
            value = ELEMENT(bias, i - filters);
        }
        packed[i] = value;
    }
}
