"""Hold register tiles: spaces, packing, prefetching and work-groups of the kernels that keep a tile in registers.

Register tiles decide on CPU devices. With explicit float16 register tiles and packed weights, convolution and matrix
products reach 93 to 99 % of the multiply-add limit on two cores with AVX-512. A kernel in the style of GPUs, with local
memory and barriers, reaches 3 %. So tile shapes and vector widths are parameters, and layout and packing belong to the
problem and the configuration.
"""
