// C[M, N] = A[M, K] * B[K, N] by NVIDIA's matrix units, all by rows; M a multiple of BM, N of BN, K of BK.
//
// WARPS_M x WARPS_N warps compute BM x BN outputs. cp.async keeps STAGES steps of BK along K on their way into local
// memory; PENDING = STAGES - 2 of them may still be under way when one is used. TERMS 1 multiplies in TF32. TERMS 3 adds
// the products of each factor's high and low part, and takes sums out of the matrix units after every BK, which keeps
// float32's accuracy. EMULATED does the same by plain C, for other devices.

#define UNROLL __attribute__((opencl_unroll_hint))
#define T (WARPS_M * WARPS_N * 32)
#define TILE_M (BM / WARPS_M)
#define TILE_N (BN / WARPS_N)
#define MT (TILE_M / 16)
#define NT (TILE_N / 8)

#ifdef EMULATED
inline uint tf32(float x) { return (as_uint(x) + 0x1000u) & 0xffffe000u; }
inline void copy_16(__local float *to, __global const float *from)
{
    for (int i = 0; i < 4; ++i)
        to[i] = from[i];
}
#define COMMIT
#define WAIT
#define MMA(c, a, b)                                                                                                   \
    {                                                                                                                  \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        for (int x = 0; x < 4; ++x)                                                                                    \
            shown_a[w][l][x] = a[x];                                                                                   \
        for (int x = 0; x < 2; ++x)                                                                                    \
            shown_b[w][l][x] = b[x];                                                                                   \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                                  \
        for (int x = 0; x < 4; ++x) {                                                                                  \
            float sum = c[x];                                                                                          \
            for (int k = 0; k < 8; ++k)                                                                                \
                sum = fma(as_float(shown_a[w][g * 4 + k % 4][x / 2 + k / 4 * 2]),                                      \
                          as_float(shown_b[w][(2 * q + x % 2) * 4 + k % 4][k / 4]), sum);                              \
            c[x] = sum;                                                                                                \
        }                                                                                                              \
    }
#else
inline uint tf32(float x)
{
    uint r;
    __asm__ volatile("cvt.rna.tf32.f32 %0, %1;" : "=r"(r) : "f"(x));
    return r;
}
inline void copy_16(__local void *to, __global const void *from)
{
    __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint)(ulong)to & 0xffffffu), "l"(from) : "memory");
}
#define COMMIT __asm__ volatile("cp.async.commit_group;" ::: "memory")
#if PENDING == 0
#define WAIT __asm__ volatile("cp.async.wait_group 0;" ::: "memory")
#elif PENDING == 1
#define WAIT __asm__ volatile("cp.async.wait_group 1;" ::: "memory")
#else
#error another number of pending steps
#endif
#define MMA(c, a, b)                                                                                                   \
    __asm__ volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                  \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
#endif

#define LOAD(stage, k)                                                                                                 \
    {                                                                                                                  \
        UNROLL for (int i = 0; i < BM * BK / 4 / T; ++i) {                                                             \
            const int e = t + i * T, row = e / (BK / 4), column = e % (BK / 4) * 4;                                    \
            copy_16(&as[stage][row][column], a + (size_t)(m0 + row) * K + (k) + column);                               \
        }                                                                                                              \
        UNROLL for (int i = 0; i < BK * BN / 4 / T; ++i) {                                                             \
            const int e = t + i * T, row = e / (BN / 4), column = e % (BN / 4) * 4;                                    \
            copy_16(&bs[stage][row][column], b + (size_t)((k) + row) * N + n0 + column);                               \
        }                                                                                                              \
        COMMIT;                                                                                                        \
    }

__kernel __attribute__((reqd_work_group_size(T, 1, 1)))
void gemm(__global const float *restrict a, __global const float *restrict b, __global float *restrict c, const int M,
          const int N, const int K)
{
    __local float as[STAGES][BM][BK + 4] __attribute__((aligned(16)));
    __local float bs[STAGES][BK][BN + 8] __attribute__((aligned(16)));
#ifdef EMULATED
    __local uint shown_a[WARPS_M * WARPS_N][32][4], shown_b[WARPS_M * WARPS_N][32][2];
#endif
    const int t = get_local_id(0), l = t % 32, w = t / 32, g = l / 4, q = l % 4;
    const int tiles_m = M / BM, tiles_n = N / BN, group = get_group_id(0);
    const int band = group / (BAND * tiles_n), within = group % (BAND * tiles_n), rows = min(BAND, tiles_m - band * BAND);
    const int m0 = (band * BAND + within % rows) * BM, n0 = within / rows * BN;
    const int wm = w / WARPS_N * TILE_M, wn = w % WARPS_N * TILE_N;
    float sums[MT][NT][4], part[MT][NT][4];
    UNROLL for (int i = 0; i < MT; ++i)
        UNROLL for (int j = 0; j < NT; ++j)
            UNROLL for (int x = 0; x < 4; ++x) sums[i][j][x] = part[i][j][x] = 0.0f;
    UNROLL for (int s = 0; s < STAGES - 1; ++s) LOAD(s, s * BK)
    for (int k = 0; k < K; k += BK) {
        WAIT;
        barrier(CLK_LOCAL_MEM_FENCE);
        const int s = k / BK % STAGES;
        if (k + (STAGES - 1) * BK < K)
            LOAD((k / BK + STAGES - 1) % STAGES, k + (STAGES - 1) * BK)
        else
            COMMIT;
        UNROLL for (int step = 0; step < BK; step += 8) {
            uint high_a[MT][4], low_a[MT][4];
            UNROLL for (int i = 0; i < MT; ++i)
                UNROLL for (int x = 0; x < 4; ++x) {
                    const float value = as[s][wm + i * 16 + g + x % 2 * 8][step + q + x / 2 * 4];
                    high_a[i][x] = tf32(value);
                    low_a[i][x] = tf32(value - as_float(high_a[i][x]));
                }
            UNROLL for (int j = 0; j < NT; ++j) {
                uint high_b[2], low_b[2];
                UNROLL for (int x = 0; x < 2; ++x) {
                    const float value = bs[s][step + q + x * 4][wn + j * 8 + g];
                    high_b[x] = tf32(value);
                    low_b[x] = tf32(value - as_float(high_b[x]));
                }
                UNROLL for (int i = 0; i < MT; ++i) {
#if TERMS == 3
                    MMA(part[i][j], low_a[i], high_b);
                    MMA(part[i][j], high_a[i], low_b);
#endif
                    MMA(part[i][j], high_a[i], high_b);
                }
            }
        }
#if TERMS == 3
        UNROLL for (int i = 0; i < MT; ++i)
            UNROLL for (int j = 0; j < NT; ++j)
                UNROLL for (int x = 0; x < 4; ++x) {
                    sums[i][j][x] += part[i][j][x];
                    part[i][j][x] = 0.0f;
                }
#endif
    }
    UNROLL for (int i = 0; i < MT; ++i)
        UNROLL for (int j = 0; j < NT; ++j)
            UNROLL for (int h = 0; h < 2; ++h) {
                const size_t row = m0 + wm + i * 16 + g + h * 8, column = n0 + wn + j * 8 + 2 * q;
                const float2 first = (float2)(sums[i][j][2 * h], sums[i][j][2 * h + 1]);
                const float2 second = (float2)(part[i][j][2 * h], part[i][j][2 * h + 1]);
                *(__global float2 *)(c + row * N + column) = first + second;
            }
}
