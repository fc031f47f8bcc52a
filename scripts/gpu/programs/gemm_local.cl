// C[M, N] = A[M, K] * B[K, N] by tiles in local memory, all by rows; N a multiple of BN, K of BK.
//
// A group of LM x LN work-items computes BM x BN outputs, each work-item MR x NR of them in registers. Of every step of
// BK along K the group keeps its rows of A, transposed, and its columns of B in local memory; with STAGES 2 it fetches the
// next step while it multiplies. BAND tile rows that are neighbours run one after the other, so that they share B in the
// cache. Pointers are cast to vectors: memory must be aligned to VW floats.

#define MR (BM / LM)
#define NR (BN / LN)
#define T (LM * LN)
#define GLUE_(a, b) a##b
#define GLUE(a, b) GLUE_(a, b)
typedef GLUE(float, VW) vec;
#define UNROLL __attribute__((opencl_unroll_hint))
#define A_VECTORS (BM * BK / VW)
#define B_VECTORS (BK * BN / VW)
#define A_LOADS ((A_VECTORS + T - 1) / T)
#define B_LOADS ((B_VECTORS + T - 1) / T)

// Vector e of a tile that is `width` floats wide, and whether this work-item's i-th one exists.
#define PLACE(width) const int e = t + i * T, row = e / (width / VW), column = e % (width / VW) * VW
#define EXISTS(vectors) if (vectors % T == 0 || e < vectors)

#define FETCH(k)                                                                                                       \
    UNROLL for (int i = 0; i < A_LOADS; ++i) {                                                                         \
        PLACE(BK);                                                                                                     \
        EXISTS(A_VECTORS) next_a[i] = *(__global const vec *)(a + (size_t)min(m0 + row, M - 1) * K + (k) + column);    \
    }                                                                                                                  \
    UNROLL for (int i = 0; i < B_LOADS; ++i) {                                                                         \
        PLACE(BN);                                                                                                     \
        EXISTS(B_VECTORS) next_b[i] = *(__global const vec *)(b + (size_t)((k) + row) * N + n0 + column);              \
    }

#define STORE(s)                                                                                                       \
    UNROLL for (int i = 0; i < A_LOADS; ++i) {                                                                         \
        PLACE(BK);                                                                                                     \
        EXISTS(A_VECTORS)                                                                                              \
        {                                                                                                              \
            float parts[VW];                                                                                           \
            *(vec *)parts = next_a[i];                                                                                 \
            UNROLL for (int j = 0; j < VW; ++j) as[s][column + j][row] = parts[j];                                     \
        }                                                                                                              \
    }                                                                                                                  \
    UNROLL for (int i = 0; i < B_LOADS; ++i) {                                                                         \
        PLACE(BN);                                                                                                     \
        EXISTS(B_VECTORS) *(__local vec *)&bs[s][row][column] = next_b[i];                                             \
    }

__kernel __attribute__((reqd_work_group_size(T, 1, 1)))
void gemm(__global const float *restrict a, __global const float *restrict b, __global float *restrict c, const int M,
          const int N, const int K)
{
    __local float as[STAGES][BK][BM + PAD] __attribute__((aligned(16)));
    __local float bs[STAGES][BK][BN] __attribute__((aligned(16)));
    const int t = get_local_id(0), tn = t % LN, tm = t / LN;
    const int tiles_m = (M + BM - 1) / BM, tiles_n = N / BN, group = get_group_id(0);
    const int band = group / (BAND * tiles_n), within = group % (BAND * tiles_n), rows = min(BAND, tiles_m - band * BAND);
    const int m0 = (band * BAND + within % rows) * BM, n0 = within / rows * BN;
    vec next_a[A_LOADS], next_b[B_LOADS], sums[MR][NR / VW];
    UNROLL for (int r = 0; r < MR; ++r)
        UNROLL for (int v = 0; v < NR / VW; ++v) sums[r][v] = (vec)(0.0f);
    FETCH(0)
    STORE(0)
    barrier(CLK_LOCAL_MEM_FENCE);
    int s = 0;
    for (int k = 0; k < K; k += BK) {
        if (k + BK < K) {
            FETCH(k + BK)
        }
        UNROLL for (int step = 0; step < BK; ++step) {
            float left[MR];
            vec right[NR / VW];
            UNROLL for (int q = 0; q < MR / VW; ++q)
                *(vec *)(left + q * VW) = *(__local const vec *)&as[s][step][(q * LM + tm) * VW];
            UNROLL for (int v = 0; v < NR / VW; ++v)
                right[v] = *(__local const vec *)&bs[s][step][(v * LN + tn) * VW];
            UNROLL for (int r = 0; r < MR; ++r)
                UNROLL for (int v = 0; v < NR / VW; ++v) sums[r][v] = fma((vec)(left[r]), right[v], sums[r][v]);
        }
        if (k + BK < K) {
#if STAGES == 1
            barrier(CLK_LOCAL_MEM_FENCE);
#else
            s ^= 1;
#endif
            STORE(s)
            barrier(CLK_LOCAL_MEM_FENCE);
        }
    }
    UNROLL for (int r = 0; r < MR; ++r) {
        const int row = m0 + (r / VW * LM + tm) * VW + r % VW;
        if (row < M)
            UNROLL for (int v = 0; v < NR / VW; ++v)
                *(__global vec *)(c + (size_t)row * N + n0 + (v * LN + tn) * VW) = sums[r][v];
    }
}
