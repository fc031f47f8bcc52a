"""Compare operators that depend on indices and positions with onnxruntime, in value and type."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from gputune.client.errors import ModelError
from gputune.client.model.reference import evaluate
from gputune.kernels.family import Array

from .test_lowering import Lowered, lowered, ops

__all__ = ["lowered"]

NUMBERS = np.random.default_rng(5)
DATA = NUMBERS.standard_normal((4, 3, 5, 7), dtype=np.float32)


def model_of(op: str, computed: Sequence[Array], known: Sequence[Array] = (), **attributes: Any) -> onnx.ModelProto:
    """One node whose first inputs are computed, and whose others are known."""
    given = {f"x{k}": np.asarray(value) for k, value in enumerate(computed)}
    constants = {f"c{k}": np.asarray(value) for k, value in enumerate(known)}
    node = helper.make_node(op, [*given, *constants], ["y"], name="it", **attributes)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in given.items()
    ]
    weights = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph([node], "one", inputs, [onnx.ValueInfoProto(name="y")], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    return onnx.shape_inference.infer_shapes(model)


def check(
    lowered: Lowered,
    op: str,
    computed: Sequence[Array],
    known: Sequence[Array] = (),
    tolerance: float = 1e-6,
    **attributes: Any,
) -> str:
    """The result is onnxruntime's; says what ran."""
    model = model_of(op, computed, known, **attributes)
    feeds = {f"x{k}": np.asarray(value) for k, value in enumerate(computed)}
    (want,) = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"]).run(
        None, feeds
    )
    plan = lowered(model)
    got = evaluate(plan, feeds)["y"]
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=tolerance, atol=tolerance)
    return " ".join(ops(plan))


@pytest.mark.parametrize("axis", [0, 1, 2, 3, -1])
@pytest.mark.parametrize("shape", [(), (1,), (2, 3)])
def test_gather_along_every_axis(lowered: Lowered, axis: int, shape: tuple[int, ...]) -> None:
    indices = NUMBERS.integers(-3, 3, shape).astype(np.int32 if shape else np.int64)
    assert check(lowered, "Gather", [DATA, indices], axis=axis) == "Gather"


def test_gather_of_whole_numbers_from_a_table(lowered: Lowered) -> None:
    check(lowered, "Gather", [NUMBERS.integers(0, 99, (5, 3)), np.array([[4, -5]])])
    check(lowered, "Gather", [NUMBERS.integers(0, 2, (5, 3)) > 0, np.array(2)], axis=1)


@pytest.mark.parametrize("axis", [0, 1, 3])
def test_gather_elements_of_a_smaller_shape(lowered: Lowered, axis: int) -> None:
    shape = [2, 2, 4, 6]
    shape[axis] = 8
    assert check(lowered, "GatherElements", [DATA, NUMBERS.integers(-3, 3, shape)], axis=axis) == "Gather"


@pytest.mark.parametrize(
    ("batch_dims", "shape"), [(0, (2, 2, 3)), (0, (3, 4)), (1, (4, 6, 2)), (2, (4, 3, 1)), (2, (4, 3, 5, 2))]
)
def test_gather_nd(lowered: Lowered, batch_dims: int, shape: tuple[int, ...]) -> None:
    assert check(lowered, "GatherND", [DATA, NUMBERS.integers(-3, 3, shape)], batch_dims=batch_dims) == "Gather"


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_scatter_elements_where_many_meet(lowered: Lowered, axis: int, reduction: str) -> None:
    shape = [2, 3, 4]
    shape[axis] = 6
    indices, updates = NUMBERS.integers(-3, 3, shape), NUMBERS.standard_normal(shape, dtype=np.float32)
    assert check(lowered, "ScatterElements", [DATA[0], indices, updates], axis=axis, reduction=reduction) == "Scatter"


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.bool_])
def test_scatter_puts_updates_in_the_place_of_elements(lowered: Lowered, dtype: Any) -> None:
    data, updates = (NUMBERS.integers(0, 2, shape).astype(dtype) for shape in ((5, 3), (2, 3)))
    check(lowered, "ScatterElements", [data, np.array([[0, -1, 2], [1, 2, -4]]), updates])
    check(lowered, "ScatterND", [data, np.array([[4], [-4]]), updates])
    check(lowered, "ScatterND", [data, np.array([[4, 1], [-5, -2], [0, 0]]), updates.reshape(-1)[:3]])


@pytest.mark.parametrize("reduction", ["add", "mul", "max", "min"])
def test_scatter_nd_where_many_meet(lowered: Lowered, reduction: str) -> None:
    updates = NUMBERS.standard_normal((2, 6, 5, 7), dtype=np.float32)
    check(lowered, "ScatterND", [DATA, NUMBERS.integers(-3, 3, (2, 6, 2)), updates], reduction=reduction)


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("dtype", [np.int64, np.float32])
def test_one_hot_with_indices_from_both_ends_and_outside(lowered: Lowered, axis: int, dtype: Any) -> None:
    indices = NUMBERS.integers(-7, 8, (3, 4)).astype(dtype)
    ran = check(lowered, "OneHot", [indices], [np.array(6, dtype), np.array([2, 5], np.float32)], axis=axis)
    assert ran.endswith("Scatter")


@pytest.mark.parametrize("upper", [0, 1])
@pytest.mark.parametrize("diagonal", [None, -1, 2, 9])
def test_triangles(lowered: Lowered, upper: int, diagonal: int | None) -> None:
    known = [] if diagonal is None else [np.array(diagonal)]
    check(lowered, "Trilu", [DATA], known, upper=upper)
    check(lowered, "Trilu", [np.arange(6).reshape(2, 3)], known, upper=upper)


def test_diagonals(lowered: Lowered) -> None:
    check(lowered, "EyeLike", [DATA[0, 0]], k=1)
    check(lowered, "EyeLike", [DATA[0, 0]], k=-2, dtype=onnx.TensorProto.INT64)


@pytest.mark.parametrize("time", [0, 1])
def test_sequences_are_reversed_up_to_their_lengths(lowered: Lowered, time: int) -> None:
    data = DATA[0] if time else DATA[0].transpose(1, 0, 2)
    attributes: Mapping[str, int] = {"time_axis": time, "batch_axis": 1 - time}
    assert check(lowered, "ReverseSequence", [data], [np.array([1, 5, 3])], **attributes) == "Gather"


def test_lengths_must_be_known(lowered: Lowered) -> None:
    with pytest.raises(ModelError, match="its list of lengths 'x1' is computed at run time"):
        lowered(model_of("ReverseSequence", [DATA, np.array([1, 2, 3])]))


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize("aligned", [0, 1])
def test_grids_say_where_to_look_beyond_the_borders_too(
    lowered: Lowered, mode: str, padding: str, aligned: int
) -> None:
    grid = np.random.default_rng(3).uniform(-2.6, 2.6, (4, 6, 5, 2)).astype(np.float32)
    attributes: dict[str, Any] = {"mode": mode, "padding_mode": padding, "align_corners": aligned}
    ran = check(lowered, "GridSample", [DATA, grid], tolerance=3e-5, **attributes)
    assert ran == "Transpose GridSample Transpose"


def test_grids_of_volumes_are_refused(lowered: Lowered) -> None:
    volume, grid = np.zeros((1, 1, 2, 2, 2), np.float32), np.zeros((1, 2, 2, 2, 3), np.float32)
    with pytest.raises(ModelError, match="it has 3 spatial dimensions; 2 are supported"):
        lowered(model_of("GridSample", [volume, grid]))
