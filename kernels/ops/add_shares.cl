// Products whose reduction is split among work-groups, and the sums of their shares. Templates include this file behind
// finish.cl.
//
//   output[g, m, n] = FINISH(sum over s < SPLIT of shares[s][g][m][n])
//
// Work split: a work-item has a vector of VW columns of a row. Dimension 0 of the grid runs over a row's vectors, dimension
// 1 over rows, dimension 2 over the BATCH products; a work-group has ADD_X x ADD_Y work-items. Shares are added in their
// order, so bits stay. Sums beyond column N do not exist: the last vector's are added one by one.
// The text before defines what finish.cl wants; ADDED_PARAMETERS are the buffers that FINISH reads. BK is a block of the
// reduction. RESULT_PARAMETERS are the kernel's last parameters: output and operands, or the shares.

// Whole blocks of the reduction, shared out among SPLIT work-groups. No share is empty, as there are as many blocks, and
// only the last one may end with a part of a block.
#define BLOCKS ((K + BK - 1) / BK) // the last one may be a part
#define SHARE_BEGIN(share) (BLOCKS * (share) / SPLIT * BK)
#define SHARE_END(share) min(BLOCKS * ((share) + 1) / SPLIT * BK, K)

#if SPLIT == 1
#define RESULT_PARAMETERS __global TYPE *restrict output OPERAND_PARAMETERS
#else
#define RESULT_PARAMETERS __global SUM *restrict shares
#ifndef ADD_X
#define ADD_X 64
#define ADD_Y 1
#endif
#ifndef BATCH
#define BATCH 1
#endif
#ifndef ADDED_PARAMETERS
#define ADDED_PARAMETERS __global const TYPE *restrict packed,
#endif

// Shares begin at a multiple of a vector's size, and so do whole vectors of whole rows. A kernel's `shares` begin at those
// of its product.
#if N % VW == 0
#define SHARE_LOAD(p, i) (*(__global const vec *)((p) + (i)))
#define SHARE_STORE(v, p, i) (*(__global vec *)((p) + (i)) = (v))
#else
#define SHARE_LOAD OWN_LOAD
#define SHARE_STORE OWN_STORE
#endif
#define SHARE_AT(share, row, column) ((share) * (BATCH * M * N) + (row) * N + (column))

__kernel __attribute__((reqd_work_group_size(ADD_X, ADD_Y, 1)))
void add_shares(__global const SUM *restrict shares, ADDED_PARAMETERS
                __global TYPE *restrict output OPERAND_PARAMETERS)
{
    // neighbouring work-items read neighbouring vectors of each share
    const int column = get_global_id(0) * VW, row = get_global_id(1), product = get_global_id(2);
    if (row >= M || column >= N)
        return;
    shares += product * (M * N);
    if (N % VW == 0 || column + VW <= N) {
        vec value = SHARE_LOAD(shares, SHARE_AT(0, row, column));
        UNROLL for (int s = 1; s < SPLIT; ++s)
            value += SHARE_LOAD(shares, SHARE_AT(s, row, column));
        FINISH_VECTOR(value, row, column)
    }
#if N % VW
    else
        for (int i = 0; i < N % VW; ++i) {
            SUM value = shares[SHARE_AT(0, row, column + i)];
            UNROLL for (int s = 1; s < SPLIT; ++s)
                value += shares[SHARE_AT(s, row, column + i)];
            FINISH_ELEMENT(value, row, column + i)
        }
#endif
}
#endif
