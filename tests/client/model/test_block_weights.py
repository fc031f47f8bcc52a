"""Compare products and gathers of weights of a few bits in blocks with onnxruntime."""

from typing import Any

import numpy as np
import pytest

from gputune.client.errors import UnsupportedNodes
from gputune.kernels.tiling.packing import Quantised
from tests.client.model.test_contrib_operators import model_of
from tests.client.models import Array
from tests.client.plans import Lowered, assert_agrees, assert_whole

RANDOM = np.random.default_rng(3)


def packed(*shape: int) -> Array:
    return RANDOM.integers(0, 256, shape).astype(np.uint8)


def floats(*shape: int) -> Array:
    return (RANDOM.standard_normal(shape) / 8).astype(np.float32)


def product(inner: int, rows: int, bits: int, size: int, **more: Any) -> tuple[list[Any], dict[str, Any]]:
    """The inputs and attributes of a MatMulNBits; more: further inputs by name, made of the number of blocks."""
    blocks = -(-inner // size)
    made = {name: make(blocks) for name, make in more.items()}
    inputs: list[Any] = [floats(2, 3, inner), packed(rows, blocks, size * bits // 8), floats(rows * blocks)]
    inputs += [made.get(name, "") for name in ("zeros", "order", "bias")]
    while isinstance(inputs[-1], str):
        inputs.pop()
    return inputs, {"K": inner, "N": rows, "bits": bits, "block_size": size}


PRODUCTS = {
    "4 bits": product(64, 24, 4, 32),
    "4 bits, a part of a block": product(80, 24, 4, 32),
    "4 bits, packed zero points": product(96, 24, 4, 32, zeros=lambda blocks: packed(24 * -(-blocks // 2))),
    "4 bits, zero points of floats": product(64, 24, 4, 16, zeros=lambda blocks: floats(24, blocks) * 50),
    "4 bits, a bias": product(64, 24, 4, 128, bias=lambda blocks: floats(24)),
    "8 bits": product(64, 24, 8, 32),
    "8 bits, zero points": product(64, 24, 8, 32, zeros=lambda blocks: packed(24 * blocks)),
    "4 bits, blocks in their order": product(80, 24, 4, 16, order=lambda _: (np.arange(80) // 16).astype(np.int32)),
    "4 bits, blocks in another order": product(
        64, 24, 4, 16, order=lambda blocks: RANDOM.permutation(np.arange(64) // 16).astype(np.int32)
    ),
}
FLOATS = ("4 bits, zero points of floats", "4 bits, blocks in another order")
"""Products whose weights are floats on the device."""


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_compute_what_onnxruntime_does(lowered: Lowered, name: str) -> None:
    inputs, attributes = PRODUCTS[name]
    model, given = model_of("MatMulNBits", inputs, attributes, "y")
    plan = lowered(model)
    assert_whole(plan)
    (operation,) = plan.operations
    assert operation.task.op == "MatMul"
    size, bits = attributes["block_size"], attributes["bits"]
    has_zeros = "zero" in name
    kept = None if name in FLOATS else Quantised(bits, min(size, attributes["K"]), has_zeros)
    assert operation.task.problem.quantised == kept
    assert_agrees(model, plan, given)


ROWS = np.array([[3, 0, 9], [1, 1, 7]])
GATHERS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "packed": ([packed(10, 32), ROWS, floats(10, 4)], {"block_size": 16, "bits": 4}),
    "packed, zero points": ([packed(10, 32), ROWS, floats(10, 4), packed(10, 2)], {"block_size": 16, "bits": 4}),
    "bytes": ([packed(10, 32), ROWS, floats(10, 2)], {"block_size": 16, "bits": 8}),
    "bytes, zero points": ([packed(10, 32), ROWS, floats(10, 2), packed(10, 2)], {"block_size": 16, "bits": 8}),
}


@pytest.mark.parametrize("name", GATHERS)
def test_gathers_compute_what_onnxruntime_does(lowered: Lowered, name: str) -> None:
    inputs, attributes = GATHERS[name]
    model, given = model_of("GatherBlockQuantized", inputs, attributes, "y")
    plan = lowered(model)
    assert_whole(plan)
    assert_agrees(model, plan, given)


def test_other_numbers_of_bits_are_refused(lowered: Lowered) -> None:
    model, _ = model_of("MatMulNBits", *product(64, 24, 2, 16), "y")
    with pytest.raises(UnsupportedNodes, match="its weights have 2 bits; 4 and 8 are supported"):
        lowered(model)
