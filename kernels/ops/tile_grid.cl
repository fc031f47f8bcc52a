// Tiles of NW = NV * VW columns, of which a work-item has one at a time, across the COLUMNS columns of a right side that was
// packed in panels: the tiles of a work-group, LN of them, lie interleaved, so that neighbouring work-items read
// neighbouring memory.
//   [panel][row][tile of the panel][NW]
// GROUP_SIZE is the work-group of a kernel with column tiles in one dimension of the grid, in the first with ORDER 0.

#define NW (NV * VW)
#define TILES ((COLUMNS + NW - 1) / NW)
#define PANEL (LN * NW)
#define PANELS ((TILES + LN - 1) / LN)
#if ORDER
#define GROUP_SIZE LM, LN, 1
#else
#define GROUP_SIZE LN, LM, 1
#endif
