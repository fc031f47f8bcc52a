// Rearranges a constant operand once: filters or matrix columns into the panels that the tiled kernels read.
//
//   packed = [group][panel][tap][input][column of the panel], then bias as [group][panel][column], then zeros
//
// Column c of panel p of a group is its output p * panel + c; its source is
//   weight[(group * outputs + output) * output_stride + input * input_stride + tap]
// Columns from `outputs` on are zero, and so is the bias without has_bias. A work-item writes RUN elements of packed.
// Sizes are arguments, so that one build serves every problem and configuration; work-groups are of one work-item, which
// every device allows.

#ifndef RUN
#define RUN 16               // elements of a work-item
#endif

#include "elements.cl"

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void pack_filter(__global const TYPE *restrict weight, __global const TYPE *restrict bias,
                 __global TYPE *restrict packed, int size, int groups, int outputs, int panel, int taps, int inputs,
                 int output_stride, int input_stride, int has_bias)
{
    const int panels = (outputs + panel - 1) / panel;
    const int filters = groups * panels * taps * inputs * panel;
    const int biases = groups * panels * panel;

    const int first = get_global_id(0) * RUN;
    for (int i = first; i < size && i - first < RUN; ++i) {
        SUM value = 0.0f;
        if (i < filters) {
            const int output = i / (inputs * taps * panel) % panels * panel + i % panel;
            const int group = i / (inputs * taps * panel) / panels;
            const int input = i / panel % inputs;
            const int tap = i / (panel * inputs) % taps;
            if (output < outputs)
                value = ELEMENT(weight, (group * outputs + output) * output_stride + input * input_stride + tap);
        } else if (has_bias && i < filters + biases) {
            const int output = (i - filters) % (panels * panel);
            const int group = (i - filters) / (panels * panel);
            if (output < outputs)
                value = ELEMENT(bias, group * outputs + output);
        }
        STORE_ELEMENT(value, packed, i);
    }
}
