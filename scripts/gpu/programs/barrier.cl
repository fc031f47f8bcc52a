// Work-groups that wait for each other. No wait is without a bound: a group that waits too long raises a flag, and then
// no group waits any more.
//
// FENCE  0: mem_fence, 1: PTX, 2: atomic_work_item_fence of OpenCL C 3.0
// READ   0: by an atomic addition of 0, 1: volatile, 2: PTX

#if FENCE == 1
#define DEVICE_FENCE __asm__ volatile("fence.acq_rel.gpu;" ::: "memory")
#elif FENCE == 2
#define DEVICE_FENCE atomic_work_item_fence(CLK_GLOBAL_MEM_FENCE, memory_order_acq_rel, memory_scope_device)
#else
#define DEVICE_FENCE mem_fence(CLK_GLOBAL_MEM_FENCE)
#endif

inline uint look(volatile __global uint *at)
{
#if READ == 2
    uint r;
    __asm__ volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(r) : "l"(at) : "memory");
    return r;
#elif READ == 1
    return *at;
#else
    return atomic_add(at, 0u);
#endif
}

// How many groups are there at once: each counts itself, looks so often how many there are, and leaves. LOCAL bytes of
// local memory make it as large as a kernel that uses them.
__kernel void census(volatile __global uint *present, __global uint *seen, const int limit)
{
#if LOCAL
    __local uint room[LOCAL / 4];
    room[get_local_id(0)] = get_global_id(0);
    barrier(CLK_LOCAL_MEM_FENCE);
#endif
    if (get_local_id(0) == 0) {
        uint most = atomic_inc(present) + 1;
        for (int turn = 0; turn < limit; ++turn)
            most = max(most, look(present));
#if LOCAL
        most += room[most % get_local_size(0)] == 0xffffffffu; // never, but that is not known
#endif
        seen[get_group_id(0)] = most;
    }
    barrier(CLK_GLOBAL_MEM_FENCE);
    if (get_local_id(0) == 0)
        atomic_dec(present);
}

// state: [0] arrivals, [1] flag, [2] what was read wrongly. Each round the last work-item of every group writes its cell,
// the first one meets the others, and behind that the last one reads the cells of two other groups, as kernels read what
// others have written: by plain loads. Cells are used in turns, so that one barrier a round is enough.
__kernel void rounds(volatile __global uint *state, __global uint *cells, const int count, const int limit)
{
    __local int stop;
    const int g = get_group_id(0), groups = get_num_groups(0), l = get_local_id(0), last = get_local_size(0) - 1;
    uint wrong = 0;
    for (int round = 1; round <= count; ++round) {
        __global uint *row = cells + round % 2 * groups;
        if (l == last)
            row[g] = round;
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
        if (l == 0) {
            DEVICE_FENCE;
            atomic_inc(state);
            int turn = 0;
            while (look(state) < (uint)(round * groups) && ++turn < limit)
                if (turn % 64 == 0 && look(state + 1))
                    turn = limit;
            if (turn >= limit)
                atomic_or(state + 1, 1u);
            stop = turn >= limit;
            DEVICE_FENCE;
        }
        barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
        if (stop)
            break;
        if (l == last)
            wrong += row[(g + 1) % groups] != (uint)round || row[(g + groups / 2) % groups] != (uint)round;
    }
    if (wrong)
        atomic_add(state + 2, wrong);
}

// What one work-item pays for each look at a word of global memory, one after the other.
__kernel void looks(volatile __global uint *at, __global uint *out, const int count)
{
    uint total = 0;
    for (int i = 0; i < count; ++i)
        total += look(at + (total & 1u));
    out[0] = total;
}
