"""Register tiles: spaces, packing, prefetching and work-groups of the kernels that keep a tile in registers."""
