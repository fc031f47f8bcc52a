// Rearranges the filters of a transposed convolution once into the panels that conv_transpose_tiled.cl reads.
//
//   packed = [group][panel][tap][input][column of the panel], then bias as [group][panel][column], then zeros
//
// Column i of panel p is column p * panel + i of the group's [phase row][phase column][output channel]; tap (ty, tx) of phase (py, px)
// is the filter's row ky with ky * dh = py + ty * sh and its column likewise. Where the filter has none it is zero, and so
// are columns beyond the last, and the bias without has_bias. A work-item writes RUN elements of packed. Sizes are
// arguments, so that one build serves every problem and configuration; work-groups are of one work-item, which every
// device allows.

#ifndef RUN
#define RUN 16               // elements of a work-item
#endif

#include "elements.cl"

__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void pack_transposed(__global const TYPE *restrict weight, __global const TYPE *restrict bias,
                     __global TYPE *restrict packed, int size, int panel, int groups, int inputs, int outputs, int kh, int kw,
                     int sh, int sw, int dh, int dw, int th, int tw, int has_bias)
{
    const int columns = sh * sw * outputs;
    const int panels = (columns + panel - 1) / panel;
    const int taps = th * tw;
    const int filters = groups * panels * taps * inputs * panel;
    const int biases = groups * panels * panel;

    const int first = get_global_id(0) * RUN;
    for (int i = first; i < size && i - first < RUN; ++i) {
        SUM value = 0.0f;
        if (i < filters) {
            const int group = i / (panel * inputs * taps) / panels;
            const int column = i / (panel * inputs * taps) % panels * panel + i % panel;
            const int input = group * inputs + i / panel % inputs;
            const int tap = i / (panel * inputs) % taps;
            const int y = column / (outputs * sw) + tap / tw * sh;
            const int x = column / outputs % sw + tap % tw * sw;
            if (column < columns && y % dh == 0 && x % dw == 0 && y / dh < kh && x / dw < kw)
                value = ELEMENT(weight, ((input * outputs + column % outputs) * kh + y / dh) * kw + x / dw);
        } else if (has_bias && i < filters + biases) {
            const int column = (i - filters) % (panels * panel);
            if (column < columns)
                value = ELEMENT(bias, (i - filters) / (panels * panel) * outputs + column % outputs);
        }
        STORE_ELEMENT(value, packed, i);
    }
}
