// A tensor with updates put where indices point at.
//
//   output[line, place, x] = REDUCE over each c < COUNT whose indices are the place, in this order,
//                            of data[line, place, x] and updates[take(line) + c * UPDATE_STEP + x]
//
// A line is what a set of updates may reach: the places are PLACE_STEP elements apart, and the x of a row are INNER
// neighbouring lines, whose indices are neighbours, too (OWN), or the same. The text before this file says where:
// LINE(row), LOOK(row) and TAKE(row) are where a row begins in data, indices and updates, REACHED(row) whether it has
// updates, and FIND adds AT(k, extent) for each index of an update. A negative index counts from the end; what is out
// of range is nowhere.
//
// Work split: a work-item owns places of VW * WPTX neighbouring lines, as many as PARTS of them leave it. It copies
// them, and then goes through all updates of these lines and takes its own. So no two work-items write
// to one element, the order of updates is kept, and the work is linear in updates and in places.
//
//   places | part 0 : x x x x | x x x x |     VW * WPTX = 4 lines of a work-item; dimension 0 runs over x,
//          | part 1 : x x x x | x x x x |     dimension 1 over rows and parts, parts first
//
// Preconditions: VW <= INNER, fewer than 2^31 elements.

#ifndef INNER
#define INNER 64             // neighbouring lines
#define ROWS 16
#define PLACES 10            // of a line
#define PLACE_STEP 64        // between two places
#define COUNT 4              // updates of a line
#define INDEX_STEP 1         // between the indices of two updates
#define UPDATE_STEP 64       // between two updates
#define REACH 64             // how many of the neighbouring lines have updates
#endif
#ifndef VW
#define VW 4                 // elements of a vector
#define WPTX 1               // vectors of a work-item
#define PARTS 1              // work-items that share the places of a line
#define DIMX 1               // work-group
#define DIMY 1
#endif
#ifndef FIND
#define INDEX_TYPE long
#define LINE(row) ((row) * PLACES * PLACE_STEP)
#define LOOK(row) 0
#define TAKE(row) 0
#define OWN 0                // 1: neighbouring lines have indices of their own, 0: they share them
#define REACHED(row) 1
#define FIND AT(0, PLACES)
#define REDUCE(value, update) (update)
#endif

#include "vectors.cl"

#define RUN (VW * WPTX)
#define RUNS ((INNER + RUN - 1) / RUN)
#define EACH ((PLACES + PARTS - 1) / PARTS)
#define AT(k, extent)                                              \
    {                                                              \
        const long wanted = index[k];                              \
        const ulong found = wanted < 0 ? wanted + extent : wanted; \
        known &= found < extent;                                   \
        place = place * extent + (uint)found;                      \
    }

// The place that the indices of an update point at, PLACES or more where that is nowhere.
static inline uint find(__global const INDEX_TYPE *index)
{
    uint place = 0;
    int known = 1;
    FIND
    return known ? place : PLACES;
}

__kernel __attribute__((reqd_work_group_size(DIMX, DIMY, 1)))
void scatter_rows(
    __global const TYPE *restrict data, __global const INDEX_TYPE *restrict indices,
    __global const TYPE *restrict updates, __global TYPE *restrict output)
{
    const int run = get_global_id(0);
    const int part = get_global_id(1) % PARTS;
    const int row = get_global_id(1) / PARTS;
    if (run >= RUNS || row >= ROWS)
        return;
    const int x = run * RUN;
    const int begin = min(part * EACH, PLACES);
    const int end = min(begin + EACH, PLACES);

    const int elements = min(INNER - x, RUN);
    __global const TYPE *from = data + LINE(row) + x;
    __global TYPE *line = output + LINE(row) + x;
    for (int place = begin; place < end; ++place) {
        int i = 0;
        for (; i + VW <= elements; i += VW)
            STORE(LOAD(from, place * PLACE_STEP + i), line, place * PLACE_STEP + i);
        for (; i < elements; ++i)
            STORE_ELEMENT(ELEMENT(from, place * PLACE_STEP + i), line, place * PLACE_STEP + i);
    }

    const int reach = min(REACH - x, elements);
    __global const INDEX_TYPE *index = indices + LOOK(row) + x * OWN;
    __global const TYPE *update = updates + TAKE(row) + x;
    for (int c = 0; c < (REACHED(row) ? COUNT : 0); ++c) {
#if OWN
        for (int i = 0; i < reach; ++i) {
            const uint place = find(index + c * INDEX_STEP + i);
            if (place - begin < end - begin) {
                const int to = place * PLACE_STEP + i;
                STORE_ELEMENT(REDUCE(ELEMENT(line, to), ELEMENT(update, c * UPDATE_STEP + i)), line, to);
            }
        }
#else
        const uint place = find(index + c * INDEX_STEP);
        if (place - begin < end - begin) {
            const int to = place * PLACE_STEP;
            int i = 0;
            for (; i + VW <= reach; i += VW)
                STORE(REDUCE(LOAD(line, to + i), LOAD(update, c * UPDATE_STEP + i)), line, to + i);
            for (; i < reach; ++i)
                STORE_ELEMENT(REDUCE(ELEMENT(line, to + i), ELEMENT(update, c * UPDATE_STEP + i)), line, to + i);
        }
#endif
    }
}
