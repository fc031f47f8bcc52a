// Small kernels that show whether a device computes what a feature promises: each is built alone, with -DPROBE_<name>.
// Numbers come from a[], results go to d[]; facts.py knows what must be there.

// An address in local memory as PTX takes it: the offset, whether or not the compiler gives a generic address.
#define SHARED(p) ((uint)(ulong)(p) & 0xffffffu)

#ifdef PROBE_half_arithmetic
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
__kernel void probe(__global const float *a, __global float *d) {
    const int i = get_global_id(0);
    const half x = (half)a[i], y = (half)a[i + 64];
    d[i] = (float)fma(x, y, x);
}
#endif

#ifdef PROBE_half_storage
__kernel void probe(__global const half *a, __global half *d) {
    const int i = get_global_id(0);
    vstore_half4(vload_half4(i, a) * 2.0f, i, d);
}
#endif

#ifdef PROBE_half_cast
// one load of 64 bits, then vload_half from private memory
__kernel void probe(__global const uint2 *a, __global float *d) {
    const int i = get_global_id(0);
    const uint2 bits = a[i];
    const float4 x = vload_half4(0, (const half *)&bits);
    vstore4(x * 2.0f, i, d);
}
#endif

#ifdef PROBE_subgroups
#pragma OPENCL EXTENSION cl_khr_subgroups : enable
__kernel void probe(__global const float *a, __global float *d) {
    const int i = get_global_id(0);
    d[i] = sub_group_reduce_add(a[i]);
    d[64 + i] = (float)get_sub_group_size();
}
#endif

#ifdef PROBE_subgroup_shuffle
#pragma OPENCL EXTENSION cl_khr_subgroup_shuffle : enable
__kernel void probe(__global const float *a, __global float *d) {
    const int i = get_global_id(0);
    d[i] = sub_group_shuffle_xor(a[i], 1u);
}
#endif

#ifdef PROBE_ptx_shuffle
__kernel void probe(__global const float *a, __global float *d) {
    const int i = get_global_id(0);
    uint r;
    __asm__ volatile("shfl.sync.bfly.b32 %0, %1, 1, 0x1f, 0xffffffff;" : "=r"(r) : "r"(as_uint(a[i])));
    d[i] = as_float(r);
}
#endif

// D[16, 8] = A[16, 8] * B[8, 8], A and B by rows of floats that are whole numbers
#ifdef PROBE_ptx_mma_tf32
__kernel void probe(__global const float *a, __global float *d) {
    const int l = get_local_id(0), g = l / 4, q = l % 4;
    __global const float *b = a + 128;
    const uint x[4] = {as_uint(a[g * 8 + q]), as_uint(a[(g + 8) * 8 + q]), as_uint(a[g * 8 + q + 4]),
                       as_uint(a[(g + 8) * 8 + q + 4])};
    uint y[2];
    __asm__ volatile("cvt.rna.tf32.f32 %0, %1;" : "=r"(y[0]) : "f"(b[q * 8 + g]));
    __asm__ volatile("cvt.rna.tf32.f32 %0, %1;" : "=r"(y[1]) : "f"(b[(q + 4) * 8 + g]));
    float c[4] = {0, 0, 0, 0};
    __asm__ volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                     : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(y[0]), "r"(y[1]));
    d[g * 8 + 2 * q] = c[0];
    d[g * 8 + 2 * q + 1] = c[1];
    d[(g + 8) * 8 + 2 * q] = c[2];
    d[(g + 8) * 8 + 2 * q + 1] = c[3];
}
#endif

// D[16, 8] = A[16, 16] * B[16, 8], A by rows and B by columns of 16-bit numbers; LDMATRIX: A by way of local memory
#if defined(PROBE_ptx_mma_f16) || defined(PROBE_ptx_mma_bf16) || defined(PROBE_ptx_ldmatrix)
#ifdef PROBE_ptx_mma_bf16
#define MMA(c, a, b)                                                                                                   \
    __asm__ volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                  \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
#else
#define MMA(c, a, b)                                                                                                   \
    __asm__ volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
                     : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])                                                  \
                     : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]))
#endif
__kernel void probe(__global const uint *a, __global float *d) {
    const int l = get_local_id(0), g = l / 4, q = l % 4;
    __global const uint *b = a + 128;
    uint x[4] = {a[g * 8 + q], a[(g + 8) * 8 + q], a[g * 8 + q + 4], a[(g + 8) * 8 + q + 4]};
#ifdef PROBE_ptx_ldmatrix
    __local uint tile[128] __attribute__((aligned(16)));
    for (int i = l; i < 128; i += 32)
        tile[i] = a[i];
    barrier(CLK_LOCAL_MEM_FENCE);
    const uint address = SHARED(tile + (l % 8 + l / 8 % 2 * 8) * 8 + l / 16 * 4);
    __asm__ volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(address));
#endif
    float c[4] = {0, 0, 0, 0};
    const uint y[2] = {b[g * 8 + q], b[g * 8 + q + 4]};
    MMA(c, x, y);
    d[g * 8 + 2 * q] = c[0];
    d[g * 8 + 2 * q + 1] = c[1];
    d[(g + 8) * 8 + 2 * q] = c[2];
    d[(g + 8) * 8 + 2 * q + 1] = c[3];
}
#endif

#ifdef PROBE_ptx_cp_async
__kernel void probe(__global const float *a, __global float *d) {
    const int l = get_local_id(0);
    __local float tile[128] __attribute__((aligned(16)));
    __asm__ volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(SHARED(tile + 4 * l)), "l"(a + 4 * l) : "memory");
    __asm__ volatile("cp.async.commit_group;" ::: "memory");
    __asm__ volatile("cp.async.wait_group 0;" ::: "memory");
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int i = 0; i < 4; ++i)
        d[l * 4 + i] = tile[127 - l * 4 - i];
}
#endif

#ifdef PROBE_ptx_local_address
__kernel void probe(__global const float *a, __global ulong *d) {
    __local float tile[128] __attribute__((aligned(16)));
    tile[get_local_id(0)] = a[0];
    barrier(CLK_LOCAL_MEM_FENCE);
    d[get_local_id(0)] = (ulong)(tile + get_local_id(0));
}
#endif

#ifdef PROBE_ptx_fence
__kernel void probe(__global const float *a, __global float *d) {
    const int i = get_global_id(0);
    d[i] = a[i];
    __asm__ volatile("fence.acq_rel.gpu;" ::: "memory");
    uint r;
    __asm__ volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(r) : "l"(d + i) : "memory");
    d[64 + i] = as_float(r);
}
#endif

#ifdef PROBE_device_fence
__kernel void probe(__global const float *a, __global float *d) {
    const int i = get_global_id(0);
    d[i] = a[i];
    atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_acq_rel, memory_scope_device);
    d[64 + i] = a[i];
}
#endif

#ifdef PROBE_device_atomics
__kernel void probe(__global const float *a, __global float *d) {
    volatile __global atomic_uint *count = (volatile __global atomic_uint *)(d + 64);
    atomic_fetch_add_explicit(count, 1u, memory_order_acq_rel, memory_scope_device);
    d[get_global_id(0)] = a[get_global_id(0)];
}
#endif

#ifdef PROBE_ptx_clock
__kernel void probe(__global const float *a, __global ulong *d) {
    ulong t, c;
    uint unit;
    __asm__ volatile("mov.u64 %0, %%globaltimer;" : "=l"(t));
    __asm__ volatile("mov.u64 %0, %%clock64;" : "=l"(c));
    __asm__ volatile("mov.u32 %0, %%smid;" : "=r"(unit));
    const int i = get_global_id(0);
    d[i * 3] = t;
    d[i * 3 + 1] = c;
    d[i * 3 + 2] = unit;
}
#endif

#ifdef PROBE_ptx_wgmma
__kernel void probe(__global const float *a, __global float *d) {
    __asm__ volatile("wgmma.fence.sync.aligned;" ::: "memory");
    d[get_global_id(0)] = a[get_global_id(0)];
}
#endif

#ifdef PROBE_ptx_tma
__kernel void probe(__global const float *a, __global float *d) {
    __asm__ volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __asm__ volatile("cp.async.bulk.commit_group;" ::: "memory");
    d[get_global_id(0)] = a[get_global_id(0)];
}
#endif

#ifdef PROBE_int_dot
__kernel void probe(__global const uint *a, __global int *d) {
    const int i = get_global_id(0);
    d[i] = dot_4x8packed_ss_int(a[i], a[i + 64]);
}
#endif

#ifdef PROBE_ptx_int_dot
__kernel void probe(__global const uint *a, __global int *d) {
    const int i = get_global_id(0);
    int r;
    __asm__ volatile("dp4a.s32.s32 %0, %1, %2, 0;" : "=r"(r) : "r"(a[i]), "r"(a[i + 64]));
    d[i] = r;
}
#endif

#ifdef PROBE_svm_interior
__kernel void probe(__global const float *a, __global float *d) {
    d[get_global_id(0)] = 2.0f * a[get_global_id(0)];
}
#endif

#ifdef PROBE_image_from_buffer
__kernel void probe(__read_only image2d_t a, __global float *d) {
    const sampler_t how = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_NONE | CLK_FILTER_NEAREST;
    const int i = get_global_id(0);
    vstore4(read_imagef(a, how, (int2)(i % 64, i / 64)), i, d);
}
#endif

#ifdef PROBE_local_memory
__kernel void probe(__global const float *a, __global float *d) {
    __local float tile[BYTES / 4];
    const int l = get_local_id(0);
    tile[BYTES / 4 - 1 - l] = a[l];
    barrier(CLK_LOCAL_MEM_FENCE);
    d[l] = tile[BYTES / 4 - 64 + l];
}
#endif

#ifdef PROBE_local_argument
__kernel void probe(__global const float *a, __global float *d, __local float *tile, const int size) {
    const int l = get_local_id(0);
    tile[size - 1 - l] = a[l];
    barrier(CLK_LOCAL_MEM_FENCE);
    d[l] = tile[size - 64 + l];
}
#endif

#ifdef PROBE_wide_access
__kernel void probe(__global const float4 *a, __global float4 *d) {
    d[get_global_id(0)] = 2.0f * a[get_global_id(0)];
}
#endif
