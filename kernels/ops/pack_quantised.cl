// Rearranges a constant matrix of whole numbers with scales once, into the panels that tiled kernels read.
//
//   weight[input, output] = (numbers[input, output] - zeros[block, output]) * scales[block, output], with
//   block = input / block_steps
//
// WIDENED 0: packed has the numbers as bytes or halves of bytes, as quantised_factors.cl says, then from `begin` on
// elements of TYPE: scales, offsets -zero * scale, bias. WIDENED 1: packed has the weights in TYPE as pack_filter.cl makes
// them, then bias. Numbers of 4 bits lie in pairs in each row of the matrix, the first one in the lower half of a byte; in
// packed, columns c and c + width / 2 of `width` neighbours are a pair. What lies behind the last column is zero.
//
// A work-item writes RUN places of packed: bytes up to `begin`, then elements. Sizes are arguments, so that one build
// serves every problem; work-groups are of one work-item, which every device allows.

#ifndef RUN
#define RUN 16               // places of a work-item
#define Q_BITS 8             // of a number
#define Q_SCALES 1           // 0: weights are the numbers
#define Q_ZEROS 0            // 1: there are zero points
#define HAS_BIAS 0
#define WIDENED 0
#endif

#include "elements.cl"

static inline int number(__global const char *numbers, int input, int output, int outputs)
{
#if Q_BITS == 8
    return numbers[input * outputs + output];
#else
    const int pair = numbers[input * ((outputs + 1) / 2) + output / 2];
    return pair << (output % 2 ? 24 : 28) >> 28;
#endif
}

#if Q_BITS == 8
#define PER_BYTE 1
#else
#define PER_BYTE 2
#endif
#define SCALED (Q_SCALES + Q_ZEROS) // elements of a block and column

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void pack_quantised(__global const char *restrict numbers, __global const TYPE *restrict scales,
                    __global const char *restrict zeros, __global const TYPE *restrict bias,
                    __global uchar *restrict packed, int places, int begin, int outputs, int panel, int inputs,
                    int block_steps, int width)
{
    const int panels = (outputs + panel - 1) / panel, blocks = (inputs + block_steps - 1) / block_steps;
    const int weights = panels * inputs * panel, scaled = panels * blocks * panel;

    const int first = get_global_id(0) * RUN;
    for (int place = first; place < places && place - first < RUN; ++place) {
        if (place < begin) {
            int bits = 0;
            for (int part = 0; part < PER_BYTE; ++part) {
                const int apart = width / PER_BYTE;
                const int i = place / apart * width + place % apart + part * apart;
                const int input = i / panel % inputs, output = i / panel / inputs * panel + i % panel;
                if (i < weights && output < outputs)
                    bits |= (number(numbers, input, output, outputs) & (Q_BITS == 8 ? 255 : 15)) << (part * 4);
            }
            packed[place] = bits;
            continue;
        }
        const int i = place - begin;
        SUM value = 0.0f;
        if (WIDENED && i < weights) {
            const int input = i / panel % inputs, output = i / panel / inputs * panel + i % panel;
            const int block = input / block_steps * outputs + output;
            if (output < outputs) {
                value = number(numbers, input, output, outputs);
#if Q_ZEROS
                value -= zeros[block];
#endif
#if Q_SCALES
                value *= ELEMENT(scales, block);
#endif
            }
        } else if (!WIDENED && i < SCALED * scaled) {
            const int at = i % scaled;
            const int output = at / panel / blocks * panel + at % panel, block = at / panel % blocks * outputs + output;
#if Q_SCALES
            if (output < outputs)
                value = i < scaled ? ELEMENT(scales, block) : -zeros[block] * ELEMENT(scales, block);
#endif
        } else {
            const int output = i - (WIDENED ? weights : SCALED * scaled);
#if HAS_BIAS
            if (output < outputs)
                value = ELEMENT(bias, output);
#endif
        }
        STORE_ELEMENT(value, (__global TYPE *)packed, begin / (int)sizeof(TYPE) + i);
    }
}
