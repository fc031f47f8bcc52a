// output[r, c] = AMPLITUDE * sin(input[r, c]) + shift[c], a work-item for each element.
//
// Work split: dimension 0 runs over columns, dimension 1 over rows; what lies beyond does nothing.

#ifndef ROWS
#define ROWS 4
#define COLUMNS 8
#define AMPLITUDE 1.0f
#endif
#ifndef DIMX
#define DIMX 1               // work-items of a work-group across columns
#define DIMY 1               // and across rows
#endif

__kernel __attribute__((reqd_work_group_size(DIMX, DIMY, 1)))
void wave_elements(__global const float *restrict input, __global const float *restrict shift,
                   __global float *restrict output)
{
    const int c = get_global_id(0);
    const int r = get_global_id(1);
    if (c < COLUMNS && r < ROWS)
        output[r * COLUMNS + c] = AMPLITUDE * sin(input[r * COLUMNS + c]) + shift[c];
}
