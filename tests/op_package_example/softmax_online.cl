// output[o, a, i] = exp(input[o, a, i] - m) / sum over a of exp(input[o, a, i] - m), m = max over a of input[o, a, i]
//
// Work split: a work-item for each (o, i). Whenever the maximum grows, the sum so far is scaled to it, so that both are
// known after one pass.
// Preconditions: fewer than 2^31 elements.

#ifndef OUTER
#define OUTER 4
#define AXIS 10
#define INNER 1
#endif
#ifndef DIMX
#define DIMX 1               // softmaxes of a work-group
#endif

__kernel __attribute__((reqd_work_group_size(DIMX, 1, 1)))
void softmax_online(__global const float *restrict input, __global float *restrict output)
{
    const int row = get_global_id(0);
    if (row < OUTER * INNER) {
        const int start = row / INNER * AXIS * INNER + row % INNER;
        float maximum = -INFINITY, sum = 0.0f;
        for (int a = 0; a < AXIS; ++a) {
            const float value = input[start + a * INNER];
            const float larger = fmax(maximum, value);
            sum = sum * exp(maximum - larger) + exp(value - larger);
            maximum = larger;
        }
        for (int a = 0; a < AXIS; ++a)
            output[start + a * INNER] = exp(input[start + a * INNER] - maximum) / sum;
    }
}
