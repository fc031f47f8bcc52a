// Recurrent cells along sequences: RNN, GRU (as ONNX orders its gates: z r n) and LSTM (i o f g).
//
//   RNN   h' = F(x + R h)
//   GRU   z = F(x + R h), r = F(x + R h), h' = (1 - z) n + z h
//         n = G(x + R (r h)), or with AFTER_RESET n = G(x + r (R h + bias))
//   LSTM  i = F(x + R h + P c), f = F(x + R h + P c) or with COUPLED f = 1 - i, g = G(x + R h)
//         c' = f c + i g, o = F(x + R h + P c'), h' = o H(c')
//
// x is what the input brings to a gate, which `gates` holds for all steps: [step, batch entry, direction, gate, HIDDEN].
//
//                        LANES * NV vectors of VW
//                       +----+----+-- --+----+
//   packed, per gate    |    |    |     |    |  HIDDEN rows
//                       +----+----+-- --+----+
//           HIDDEN
//         +--------+    +----+----+-- --+----+
//    h    |        | MB | accumulators of a  |  a panel of the next h: every gate of an element is with one work-item
//         +--------+    | gate in registers  |
//                       +----+----+-- --+----+
//
// Work split: a work-group runs all steps of one direction for MB entries of the batch, and its LANES work-items share
// the panels of a step. What they hand to the next step lies in local memory or, without IN_LOCAL, in `states`.
//   packed = [direction][panel][HIDDEN][gate][PANEL], then the bias of n as [direction][PADDED]; the rest of the last
//   panel is zero
//   output = Y, the h of every step, at Y_AT; the last h at H_AT; the last c at C_AT; what is below zero is not wanted
// With BATCH_FIRST the batch is outside of the steps, and outside of the directions.
//
// With WHOLE, of LSTMs without LENGTHS, R holds whole numbers up to 255, and `scales` what makes numbers of each column.
// A step multiplies h as whole numbers, too: those of bytes over the range that h has in the whole batch, zero included.
// So a work-group has all entries, in tiles one after the other. Products of a run of K are exact in float, their sums in
// int. Until it is quantised, the next h lies in `next`.
// Preconditions: fewer than 2^31 elements in each buffer.

#ifndef GATES
#define GATES 4              // 1: RNN, 3: GRU, 4: LSTM
#define STEPS 3
#define BATCH 1
#define HIDDEN 4
#define DIRECTIONS 1
#define FORWARDS 1           // directions from this one on go backwards
#define BATCH_FIRST 0
#define AFTER_RESET 0        // see above
#define COUPLED 0
#define PEEPHOLES 0          // 1: P is there
#define INITIAL_H 0          // 1: the first h is there, else it is 0
#define INITIAL_C 0
#define LENGTHS 0            // 1: the entries' numbers of steps are there, else all have STEPS
#define WHOLE 0              // 1: products are of whole numbers
#define Y_AT 0
#define H_AT -1
#define C_AT -1
#endif
#ifndef MB
#define MB 1                 // entries of the batch in a work-group
#define NV 1                 // vectors of a work-item in a panel
#define VW 4                 // elements of a vector
#define LANES 1              // work-items of a work-group
#define IN_LOCAL 1           // 1: states lie in local memory, 0: in global memory
#endif
#if WHOLE && !defined(QUANTISED)
#define STEP_OF_RANGE(range) { range = range == 0.0f ? 1.0f : range / 255.0f; }
#define ZERO_POINT(value, step) { value = rint(value / step); }
#define QUANTISED(value, step, top) { value = rint(min(value / step, top)); }
#endif
#ifndef F
#define F(value, direction) { value = 1.0f / (1.0f + exp(-value)); }
#define G(value, direction) { value = tanh(value); }
#define H(value, direction) { value = tanh(value); }
#endif

#include "vectors.cl"

#define PANEL (NV * LANES * VW)
#define PANELS ((HIDDEN + PANEL - 1) / PANEL)
#define PADDED (PANELS * PANEL)
#define TILES ((BATCH + MB - 1) / MB)
#define OWN_TILES (WHOLE ? TILES : 1)             // of a work-group
#define STATE (OWN_TILES * MB * PADDED)
#define TWO_PHASES (GATES == 3 && !AFTER_RESET)   // n needs r of all elements
#define STATES (GATES == 4 || TWO_PHASES ? 3 : 2)
#define ENDS (WHOLE && LANES > 1 ? 2 * LANES : 0)  // of ranges, behind the states
#define RUN 256                                    // RUN * 255 * 255 < 2^24

#if BATCH_FIRST
#define ROW(time, entry) ((entry) * STEPS + (time))
#define RESULT(time, entry, direction) ((ROW(time, entry) * DIRECTIONS + (direction)) * HIDDEN)
#define LAST(entry, direction) (((entry) * DIRECTIONS + (direction)) * HIDDEN)
#else
#define ROW(time, entry) ((time) * BATCH + (entry))
#define RESULT(time, entry, direction) ((((time) * DIRECTIONS + (direction)) * BATCH + (entry)) * HIDDEN)
#define LAST(entry, direction) (((direction) * BATCH + (entry)) * HIDDEN)
#endif

#if IN_LOCAL
#define SPACE __local
#else
#define SPACE __global
#endif
#if LANES > 1
#define MEET barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
#else
#define MEET
#endif

// The first `elements` of a vector, which may be none of them or more than it has; the others are zero.
static inline vec load_some(__global const TYPE *p, int elements)
{
#if HIDDEN % (LANES * NV * VW)
    if (elements < VW) {
        SUM lanes[VW];
        for (int i = 0; i < VW; ++i)
            lanes[i] = i < elements ? ELEMENT(p, i) : 0.0f;
        return OWN_LOAD(lanes, 0);
    }
#endif
    return LOAD(p, 0);
}

static inline void store_some(vec value, __global TYPE *p, int elements)
{
#if HIDDEN % (LANES * NV * VW)
    if (elements < VW) {
        SUM lanes[VW];
        OWN_STORE(value, lanes, 0);
        for (int i = 0; i < elements; ++i)
            STORE_ELEMENT(lanes[i], p, i);
        return;
    }
#endif
    STORE(value, p, 0);
}

// total[m][g][v] += R of the gates from `first` on times the elements of a state from `begin` to `end`.
#define PRODUCT(total, first, count, state, begin, end)                                            \
    for (int k = begin; k < (end); ++k) {                                                          \
        vec right[count][NV];                                                                      \
        UNROLL for (int g = 0; g < count; ++g)                                                     \
            UNROLL for (int v = 0; v < NV; ++v)                                                    \
                right[g][v] = LOAD(weights, (k * GATES + (first) + g) * PANEL + v * (LANES * VW)); \
        UNROLL for (int m = 0; m < MB; ++m) {                                                      \
            const vec left = OWN_ELEMENT(state, AT(m, k));                                         \
            UNROLL for (int g = 0; g < count; ++g)                                                 \
                UNROLL for (int v = 0; v < NV; ++v)                                                \
                    total[m][g][v] = fma(left, right[g][v], total[m][g][v]);                       \
        }                                                                                          \
    }

// The first entry of a tile, entry m of it, and where its element j lies in a state.
#define FIRST ((get_group_id(1) % (TILES / OWN_TILES) + tile) * MB)
#define ENTRY(m) min((int)(FIRST) + (m), BATCH - 1)
#define AT(m, j) ((tile * MB + (m)) * PADDED + (j))

// What the input brings to gate g of the vector that begins with element j.
#define INPUT(m, g, j) load_some(gates + ((ROW(time[m], entry[m]) * DIRECTIONS + direction) * GATES + (g)) * HIDDEN \
                                       + (j), HIDDEN - (j))
#define SCALE(g, j) load_some(scales + (direction * GATES + (g)) * HIDDEN + (j), HIDDEN - (j))
#define PEEPHOLE(g, j) load_some(peepholes + (direction * 3 + (g)) * HIDDEN + (j), HIDDEN - (j))

// The end of a step for one vector: what is behind an entry's last step stays as it is, and gives zeros.
#define CONCLUDE(m, j, from, to, value)                                                                               \
    {                                                                                                                 \
        const vec old = OWN_LOAD(from, AT(m, j));                                                                     \
        OWN_STORE(active[m] ? value : old, to, AT(m, j));                                                             \
        if (Y_AT >= 0 && FIRST + (m) < BATCH)                                                                         \
            store_some(active[m] ? value : (vec)(0.0f), output + Y_AT + RESULT(time[m], entry[m], direction) + (j),   \
                       HIDDEN - (j));                                                                                 \
    }

#if WHOLE
#if VW == 1
#define INTS int
#define FLOATS SUM
#else
#define INTS CAT(int, VW)
#define FLOATS CAT(SUM, VW)
#endif
#endif

__kernel __attribute__((reqd_work_group_size(LANES, 1, 1)))
void recurrent_steps(__global const TYPE *restrict gates, __global const TYPE *restrict packed,
                     __global TYPE *restrict output
#if !IN_LOCAL
                     , __global SUM *all_states
#endif
#if INITIAL_H
                     , __global const TYPE *restrict initial_h
#endif
#if INITIAL_C
                     , __global const TYPE *restrict initial_c
#endif
#if LENGTHS
                     , __global const int *restrict lengths
#endif
#if PEEPHOLES
                     , __global const TYPE *restrict peepholes
#endif
#if WHOLE
                     , __global const TYPE *restrict scales
#endif
                     LOCAL_POOL)
{
    const int lane = get_local_id(0) * VW;
    const int direction = get_group_id(1) / (TILES / OWN_TILES);
#if IN_LOCAL
    LOCAL(SUM, states, STATES * STATE + ENDS);
#else
    __global SUM *states = all_states + get_group_id(1) * (STATES * STATE + ENDS);
#endif
    SPACE SUM *h = states;
    SPACE SUM *next = states + STATE;   // GRU in two phases: z
    SPACE SUM *third = states + (STATES - 1) * STATE;   // LSTM: c, GRU in two phases: r h

    int entry[MB], steps[MB], time[MB], active[MB];
    for (int tile = 0; tile < OWN_TILES; ++tile)
        UNROLL for (int m = 0; m < MB; ++m)
            for (int j = lane; j < PADDED; j += LANES * VW) {
                vec value = (vec)(0.0f);
#if INITIAL_H
                value = load_some(initial_h + LAST(ENTRY(m), direction) + j, HIDDEN - j);
#endif
                OWN_STORE(value, WHOLE ? next : h, AT(m, j));
#if GATES == 4
                value = (vec)(0.0f);
#if INITIAL_C
                value = load_some(initial_c + LAST(ENTRY(m), direction) + j, HIDDEN - j);
#endif
                OWN_STORE(value, third, AT(m, j));
#endif
            }
    MEET
#if WHOLE
    SUM scale;
#endif

    for (int turn = 0; turn < STEPS * OWN_TILES; ++turn) {
        const int step = turn / OWN_TILES, tile = turn % OWN_TILES;
#if WHOLE
        if (tile == 0) {   // h becomes the whole numbers of the state that lies in `next`
            SUM low = 0.0f, high = 0.0f;
            for (int row = 0; row < STATE; row += PADDED)
                for (int j = row + get_local_id(0); j < row + HIDDEN; j += LANES) {
                    low = next[j] < low ? next[j] : low;
                    high = next[j] > high ? next[j] : high;
                }
#if LANES > 1
            SPACE SUM *ends = states + STATES * STATE;
            ends[get_local_id(0)] = low;
            ends[LANES + get_local_id(0)] = high;
            MEET
            for (int i = 0; i < LANES; ++i) {
                low = ends[i] < low ? ends[i] : low;
                high = ends[LANES + i] > high ? ends[LANES + i] : high;
            }
#endif
            SUM zero = -low;
            scale = high - low;
            STEP_OF_RANGE(scale)
            ZERO_POINT(zero, scale)
            const vec divisor = (vec)(scale), top = (vec)(255.0f - zero);
            for (int i = lane; i < STATE; i += LANES * VW) {
                vec value = OWN_LOAD(next, i);
                QUANTISED(value, divisor, top)
                OWN_STORE(value, h, i);
            }
            MEET
        }
#endif
        UNROLL for (int m = 0; m < MB; ++m) {
            entry[m] = ENTRY(m);
#if LENGTHS
            steps[m] = clamp(lengths[entry[m]], 0, STEPS);
#else
            steps[m] = STEPS;
#endif
            active[m] = step < steps[m];
            time[m] = active[m] && direction >= FORWARDS ? steps[m] - 1 - step : step;
        }
        for (int panel = 0; panel < PANELS; ++panel) {
            __global const TYPE *weights = packed + (direction * PANELS + panel) * (HIDDEN * GATES * PANEL) + lane;
            const int start = panel * PANEL + lane;
#if TWO_PHASES
            vec total[MB][2][NV];
            UNROLL for (int m = 0; m < MB; ++m)
                UNROLL for (int g = 0; g < 2; ++g)
                    UNROLL for (int v = 0; v < NV; ++v)
                        total[m][g][v] = INPUT(m, g, start + v * (LANES * VW));
            PRODUCT(total, 0, 2, h, 0, HIDDEN)
            UNROLL for (int m = 0; m < MB; ++m)
                UNROLL for (int v = 0; v < NV; ++v) {
                    const int j = start + v * (LANES * VW);
                    vec z = total[m][0][v], r = total[m][1][v];
                    F(z, direction)
                    F(r, direction)
                    OWN_STORE(z, next, AT(m, j));
                    OWN_STORE(r * OWN_LOAD(h, AT(m, j)), third, AT(m, j));
                }
#else
            vec total[MB][GATES][NV];
#if WHOLE
            INTS whole[MB][GATES][NV];
            for (int begin = 0; begin < HIDDEN; begin += RUN) {
                UNROLL for (int m = 0; m < MB; ++m)
                    UNROLL for (int g = 0; g < GATES; ++g)
                        UNROLL for (int v = 0; v < NV; ++v)
                            total[m][g][v] = (vec)(0.0f);
                PRODUCT(total, 0, GATES, h, begin, min(begin + RUN, HIDDEN))
                UNROLL for (int m = 0; m < MB; ++m)
                    UNROLL for (int g = 0; g < GATES; ++g)
                        UNROLL for (int v = 0; v < NV; ++v) {
                            const INTS more = CAT(convert_, INTS)(total[m][g][v]);
                            whole[m][g][v] = begin ? whole[m][g][v] + more : more;
                        }
            }
            UNROLL for (int m = 0; m < MB; ++m)
                UNROLL for (int g = 0; g < GATES; ++g)
                    UNROLL for (int v = 0; v < NV; ++v) {
                        const int j = start + v * (LANES * VW);
                        const vec product = CAT(convert_, FLOATS)(whole[m][g][v]) * (scale * SCALE(g, j));
                        total[m][g][v] = product + INPUT(m, g, j);
                    }
#else
            UNROLL for (int m = 0; m < MB; ++m)
                UNROLL for (int g = 0; g < GATES; ++g)
                    UNROLL for (int v = 0; v < NV; ++v) {
                        const int j = start + v * (LANES * VW);
                        if (AFTER_RESET && g == 2)
                            total[m][g][v] = LOAD(packed, DIRECTIONS * PANELS * (HIDDEN * GATES * PANEL)
                                                              + direction * PADDED + j);
                        else
                            total[m][g][v] = INPUT(m, g, j);
                    }
            PRODUCT(total, 0, GATES, h, 0, HIDDEN)
#endif
            UNROLL for (int m = 0; m < MB; ++m)
                UNROLL for (int v = 0; v < NV; ++v) {
                    const int j = start + v * (LANES * VW);
#if GATES == 1
                    vec value = total[m][0][v];
                    F(value, direction)
#elif GATES == 3
                    vec z = total[m][0][v], r = total[m][1][v];
                    F(z, direction)
                    F(r, direction)
                    vec value = fma(r, total[m][2][v], INPUT(m, 2, j));
                    G(value, direction)
                    value = fma(z, OWN_LOAD(h, AT(m, j)) - value, value);
#else
                    const vec old_c = OWN_LOAD(third, AT(m, j));
                    vec i = total[m][0][v], o = total[m][1][v], f = total[m][2][v], c = total[m][3][v];
#if PEEPHOLES
                    i = fma(PEEPHOLE(0, j), old_c, i);
                    f = fma(PEEPHOLE(2, j), old_c, f);
#endif
                    F(i, direction)
#if COUPLED
                    f = (vec)(1.0f) - i;
#else
                    F(f, direction)
#endif
                    G(c, direction)
                    c = fma(f, old_c, i * c);
#if PEEPHOLES
                    o = fma(PEEPHOLE(1, j), c, o);
#endif
                    F(o, direction)
                    OWN_STORE(active[m] ? c : old_c, third, AT(m, j));
                    vec value = c;
                    H(value, direction)
                    value *= o;
#endif
                    CONCLUDE(m, j, h, next, value)
                }
#endif
        }
        MEET
#if TWO_PHASES
        for (int panel = 0; panel < PANELS; ++panel) {
            __global const TYPE *weights = packed + (direction * PANELS + panel) * (HIDDEN * GATES * PANEL) + lane;
            const int start = panel * PANEL + lane;
            vec total[MB][1][NV];
            UNROLL for (int m = 0; m < MB; ++m)
                UNROLL for (int v = 0; v < NV; ++v)
                    total[m][0][v] = INPUT(m, 2, start + v * (LANES * VW));
            PRODUCT(total, 2, 1, third, 0, HIDDEN)
            UNROLL for (int m = 0; m < MB; ++m)
                UNROLL for (int v = 0; v < NV; ++v) {
                    const int j = start + v * (LANES * VW);
                    vec value = total[m][0][v];
                    G(value, direction)
                    value = fma(OWN_LOAD(next, AT(m, j)), OWN_LOAD(h, AT(m, j)) - value, value);
                    CONCLUDE(m, j, h, h, value)
                }
        }
        MEET
#elif !WHOLE
        SPACE SUM *other = h;
        h = next;
        next = other;
#endif
    }

#if WHOLE
    h = next;
#endif
    for (int tile = 0; tile < OWN_TILES; ++tile)
        for (int m = 0; m < MB && FIRST + m < BATCH; ++m)
            for (int j = lane; j < HIDDEN; j += LANES * VW) {
#if H_AT >= 0
                store_some(OWN_LOAD(h, AT(m, j)), output + H_AT + LAST(ENTRY(m), direction) + j, HIDDEN - j);
#endif
#if C_AT >= 0
                store_some(OWN_LOAD(third, AT(m, j)), output + C_AT + LAST(ENTRY(m), direction) + j, HIDDEN - j);
#endif
            }
}
