"""List the kernel tests that fail on other drivers, and why that is no fault of our kernels."""

from collections.abc import Mapping

PREFETCH = "the translator of LLVM 15 to SPIR-V ends the process at a prefetch (llvm.prefetch)"
TWICE = "Mesa 22.3 counts local memory twice, 21504 bytes as 43008 of 32768"
KNOWN: Mapping[str, Mapping[str, str]] = {
    "intel": {},
    "rusticl": {
        "test_local_tiles.py::test_tiles_in_local_memory_compute_the_reference[MatMul-parts]": TWICE,
        "test_local_tiles.py::test_tiles_in_local_memory_compute_the_reference[MatMul-whole-tiles]": TWICE,
        "test_reduce.py::test_a_long_sum": "llvmpipe leaves a loop after 65535 rounds, and the sum has a million",
        "test_tiled.py::test_tiles_and_groups_that_divide_nothing[MatMul]": PREFETCH,
        "test_tiled.py::test_tiles_and_groups_that_divide_nothing[MatMul-row-of-parts]": PREFETCH,
        "test_winograd.py::test_every_algorithm_computes_the_reference[no-pads-strided]": PREFETCH,
        "test_winograd.py::test_transforms_cost_less_than_half_of_what_is_tolerated[16]": PREFETCH,
    },
}
"""By driver and by the beginning of a test's name."""
