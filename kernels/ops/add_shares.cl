// The sum of the shares of a product whose reduction was split among work-groups. Templates include this file.
//
//   output[m, n] = EPILOGUE(sum over s < SPLIT of shares[s][m][n] + bias[n])
//
// Work split: a work-item has a vector of VW columns of a row. Dimension 0 of the grid runs over a row's vectors, dimension
// 1 over rows; a work-group has ADD_X x ADD_Y work-items. Shares are added in their order, so bits stay.
// BIAS_AT(column) is the bias's place in packed. Sums beyond column N do not exist: the last vector's are added one by one.

#ifndef ADD_X
#define ADD_X 64
#define ADD_Y 1
#endif

// Shares begin at a multiple of a vector's size, and so do whole vectors of whole rows.
#if N % VW == 0
#define SHARE_LOAD(p, i) (*(__global const vec *)((p) + (i)))
#define SHARE_STORE(v, p, i) (*(__global vec *)((p) + (i)) = (v))
#else
#define SHARE_LOAD OWN_LOAD
#define SHARE_STORE OWN_STORE
#endif

__kernel __attribute__((reqd_work_group_size(ADD_X, ADD_Y, 1)))
void add_shares(__global const SUM *restrict shares, __global const TYPE *restrict packed,
                __global TYPE *restrict output OPERAND_PARAMETERS)
{
    const int column = get_global_id(0) * VW, row = get_global_id(1);
    if (row >= M || column >= N)
        return;
    const int first = row * N + column;
    if (N % VW == 0 || column + VW <= N) {
        vec value = SHARE_LOAD(shares, first);
        UNROLL for (int s = 1; s < SPLIT; ++s)
            value += SHARE_LOAD(shares, s * (M * N) + first);
        value += LOAD(packed, BIAS_AT(column));
        EPILOGUE(value, vec, LOAD, first)
        STORE(value, output, first);
    }
#if N % VW
    else
        for (int i = 0; i < N % VW; ++i) {
            SUM value = shares[first + i];
            UNROLL for (int s = 1; s < SPLIT; ++s)
                value += shares[s * (M * N) + first + i];
            value += ELEMENT(packed, BIAS_AT(column + i));
            EPILOGUE(value, SUM, ELEMENT, first + i)
            STORE_ELEMENT(value, output, first + i);
        }
#endif
}
