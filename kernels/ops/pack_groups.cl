// Rearranges the filters of a convolution in groups once: into the order in which depthwise_direct.cl reads them.
//
//   packed = [tap][i][channel], then bias as [channel]
//
// Row i has, for each channel, the weight of the input i ^ channel % group of its group; its source is
//   weight[(channel * group + input) * taps + tap]
// The bias is zero without has_bias. A work-item writes RUN elements of packed. Sizes are arguments, so that one build
// serves every problem and configuration; work-groups are of one work-item, which every device allows.

#ifndef RUN
#define RUN 16               // elements of a work-item
#endif

#include "elements.cl"

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void pack_groups(__global const TYPE *restrict weight, __global const TYPE *restrict bias,
                 __global TYPE *restrict packed, int size, int channels, int group, int taps, int has_bias)
{
    const int filters = taps * group * channels;
    const int first = get_global_id(0) * RUN;
    for (int i = first; i < size && i - first < RUN; ++i) {
        const int channel = i % channels;
        SUM value = 0.0f;
        if (i < filters) {
            const int input = i / channels % group ^ channel % group;
            value = ELEMENT(weight, (channel * group + input) * taps + i / (channels * group));
        } else if (has_bias)
            value = ELEMENT(bias, channel);
        STORE_ELEMENT(value, packed, i);
    }
}
