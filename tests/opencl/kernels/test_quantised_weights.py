"""Test products whose weights stay whole numbers with scales, in every way to compute them."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from gputune.kernels.catalogue import family_of
from gputune.kernels.space import Configuration
from tests.kernels.drawing import shared_out
from tests.kernels.problems import CPU, GPU
from tests.kernels.quantised_weights import PRODUCTS
from tests.opencl.conftest import KernelBench

FAMILY = family_of("MatMul")


@functools.cache
def chosen() -> Mapping[str, Sequence[tuple[str, Configuration]]]:
    """Return configurations of each product; to find them takes a second, which collecting does not."""
    return shared_out(FAMILY, PRODUCTS, {"cpu": (CPU,), "gpu": (GPU,)})


@pytest.mark.parametrize("name", PRODUCTS)
def test_numbers_with_scales_are_multiplied_as_what_they_stand_for(bench: KernelBench, name: str) -> None:
    problem = PRODUCTS[name]
    inputs = FAMILY.sample_inputs(problem, np.random.default_rng(3))
    for kind in ("cpu", "gpu"):
        able = replace(bench, limits=replace(bench.limits, device_type=kind))
        tried = [one for device, one in chosen()[name] if device == kind]
        default = FAMILY.default(problem, replace(CPU if kind == "cpu" else GPU))
        able.compare(FAMILY, problem, [default, *tried], inputs)


def test_packed_numbers_take_as_many_bits_as_they_have() -> None:
    packed = {}
    for name in ("one row of blocks", "one row of blocks of 4 bits"):
        problem = PRODUCTS[name]
        packed[name] = FAMILY.render(problem, FAMILY.default(problem, CPU)).packed["packed"]
    scales = 256 * 192 // 32 * 4 + 192 * 4
    assert packed == {"one row of blocks": 256 * 192 + scales, "one row of blocks of 4 bits": 256 * 96 + scales}
