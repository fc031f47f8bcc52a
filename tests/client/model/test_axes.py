"""Test every operator with an axis, along each axis counted from either end: the result equals onnxruntime's.

One table holds the operators; a test compares it with onnx's schemas. If onnxruntime does not know an operator, ONNX's
own evaluator decides.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from gputune.client.errors import ModelError
from gputune.client.model.importer import SUPPORTED_OPS
from gputune.client.model.importer.opening.old_models import OLDEST_OPSET
from gputune.client.model.reference import evaluate
from gputune.kernels.family import Array
from tests.client.plans import Lowered

NUMBERS = np.random.default_rng(11)


@pytest.fixture(autouse=True)
def _same_numbers_every_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "NUMBERS", np.random.default_rng(11))


NAMES = ("axis", "axes", "batch_axis", "time_axis")
"""What axes are called; an input of that name or an attribute."""

SHAPES = ((2, 4, 3, 5), (4, 2, 3))
"""Maps, which lie in another order on the device, and what lies in ONNX's order."""


@dataclass(frozen=True)
class Made:
    """A node's inputs, computed and then known, "" where one is absent, and its attributes."""

    computed: list[Array]
    known: list[Array | str] = field(default_factory=list)
    attributes: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1


def data(shape: tuple[int, ...]) -> Array:
    return NUMBERS.uniform(0.5, 2, shape).astype(np.float32)


def whole(*values: int) -> Array:
    return np.array(values, np.int64)


def size_of(shape: tuple[int, ...], axis: int) -> int:
    """1 where there is no such axis, which is what a test refuses."""
    return shape[axis] if -len(shape) <= axis < len(shape) else 1


def with_size(shape: tuple[int, ...], axis: int, size: int) -> tuple[int, ...]:
    return tuple(size if place == axis % len(shape) else each for place, each in enumerate(shape))


Make = Callable[[tuple[int, ...], int], Made]


def plain(**attributes: Any) -> Make:
    """A node of one input, with its axis as attribute."""
    return lambda shape, axis: Made([data(shape)], [], {**attributes, "axis": axis})


def in_list(shape: tuple[int, ...], axis: int) -> Made:
    return Made([data(shape)], [], {"axes": [axis]})


def as_input(shape: tuple[int, ...], axis: int) -> Made:
    return Made([data(shape)], [whole(axis)])


def as_scalar(shape: tuple[int, ...], axis: int) -> Made:
    return Made([data(shape)], [np.array(axis)])


def concat(shape: tuple[int, ...], axis: int) -> Made:
    return Made([data(shape), data(with_size(shape, axis, 2))], [], {"axis": axis})


def looked_up(shape: tuple[int, ...], axis: int) -> Made:
    return Made([data(shape), NUMBERS.integers(-2, 2, (3, 2))], [], {"axis": axis})


def looked_up_one_by_one(shape: tuple[int, ...], axis: int) -> Made:
    return Made([data(shape), NUMBERS.integers(-2, 2, with_size(shape, axis, 6))], [], {"axis": axis})


def scattered(shape: tuple[int, ...], axis: int) -> Made:
    indices = np.broadcast_to(
        NUMBERS.permutation(2).reshape(with_size((1,) * len(shape), axis, 2)), with_size(shape, axis, 2)
    )
    return Made([data(shape), np.ascontiguousarray(indices), data(indices.shape)], [], {"axis": axis})


def normalised(shape: tuple[int, ...], axis: int) -> Made:
    return Made([data(shape)], [data(shape[axis:] if size_of(shape, axis) > 1 else (1,))], {"axis": axis})


def one_hot(shape: tuple[int, ...], axis: int) -> Made:
    indices = NUMBERS.integers(-6, 6, shape[1:])  # the result has one axis more
    return Made([indices], [np.array(6), np.array([2, 5], np.float32)], {"axis": axis})


def split(shape: tuple[int, ...], axis: int) -> Made:
    return Made([data(shape)], [whole(1, size_of(shape, axis) - 1)], {"axis": axis}, outputs=2)


def split_by_attribute(shape: tuple[int, ...], axis: int) -> Made:
    return Made([data(shape)], [], {"axis": axis, "split": [1, size_of(shape, axis) - 1]}, outputs=2)


def top(shape: tuple[int, ...], axis: int) -> Made:
    return Made([data(shape)], [whole(2)], {"axis": axis}, outputs=2)


def cropped_or_padded(shape: tuple[int, ...], axis: int) -> Made:
    return Made([data(shape)], [whole(3)], {"axes": [axis]})


def resized(shape: tuple[int, ...], axis: int) -> Made:
    return Made([data(shape)], ["", np.array([2], np.float32)], {"axes": [axis]})


def padded(shape: tuple[int, ...], axis: int) -> Made:
    return Made([data(shape)], [whole(1, 2), np.array(7, np.float32), whole(axis)])


def sliced(shape: tuple[int, ...], axis: int) -> Made:
    return Made([data(shape)], [whole(1), whole(9), whole(axis)])


def sliced_by_attributes(shape: tuple[int, ...], axis: int) -> Made:
    return Made([data(shape)], [], {"starts": [1], "ends": [9], "axes": [axis]})


def scales_of(shape: tuple[int, ...], axis: int) -> list[Array | str]:
    """A scale and a zero point for each element of an axis."""
    count = shape[axis] if -len(shape) <= axis < len(shape) else 2
    return [NUMBERS.uniform(0.01, 0.02, count).astype(np.float32), NUMBERS.integers(90, 110, count).astype(np.uint8)]


def quantised(shape: tuple[int, ...], axis: int) -> Made:
    return Made([data(shape)], scales_of(shape, axis), {"axis": axis})


def dequantised(shape: tuple[int, ...], axis: int) -> Made:
    return Made([NUMBERS.integers(0, 256, shape).astype(np.uint8)], scales_of(shape, axis), {"axis": axis})


def squeezed(make: Make) -> Make:
    return lambda shape, axis: make(with_size(shape, axis, 1), axis)


def reversed_up_to(shape: tuple[int, ...], axis: int) -> Made:
    """Only the first two axes are allowed, and no negative ones."""
    lengths = NUMBERS.integers(1, size_of(shape, axis) + 1, size_of(shape, 1 - axis))
    return Made([data(shape)], [lengths], {"time_axis": axis, "batch_axis": 1 - axis})


REDUCTIONS = tuple(
    f"Reduce{name}" for name in ("L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare")
)
FORMS: dict[tuple[str, int], Make] = {
    ("ArgMax", 13): plain(),
    ("ArgMin", 13): plain(keepdims=0),
    ("CenterCropPad", 18): cropped_or_padded,
    ("Concat", 13): concat,
    ("CumProd", 26): as_scalar,
    ("CumSum", 14): as_scalar,
    ("DequantizeLinear", 13): dequantised,
    ("Flatten", 13): plain(),
    ("Gather", 13): looked_up,
    ("GatherElements", 13): looked_up_one_by_one,
    ("Hardmax", 11): plain(),
    ("Hardmax", 13): plain(),
    ("LayerNormalization", 17): normalised,
    ("LogSoftmax", 11): plain(),
    ("LogSoftmax", 13): plain(),
    ("LpNormalization", 13): plain(),
    ("MeanVarianceNormalization", 13): in_list,
    ("OneHot", 11): one_hot,
    ("Pad", 18): padded,
    ("QuantizeLinear", 13): quantised,
    ("RMSNormalization", 23): normalised,
    **{(op, 12): in_list for op in REDUCTIONS},
    **{(op, 18): as_input for op in REDUCTIONS},
    ("Resize", 19): resized,
    ("ReverseSequence", 10): reversed_up_to,
    ("Scatter", 10): scattered,
    ("ScatterElements", 18): scattered,
    ("Slice", 9): sliced_by_attributes,
    ("Slice", 13): sliced,
    ("Softmax", 11): plain(),
    ("Softmax", 13): plain(),
    ("Split", 12): split_by_attribute,
    ("Split", 13): split,
    ("Squeeze", 11): squeezed(in_list),
    ("Squeeze", 13): squeezed(as_input),
    ("TopK", 11): top,
    ("Unsqueeze", 11): in_list,
    ("Unsqueeze", 13): as_input,
}
"""By operator and operator set, an input of this shape and this axis of it."""

UNKNOWN_TO_ONNXRUNTIME = ("CumProd",)


def axes_of(form: tuple[str, int], rank: int) -> Iterator[int]:
    """The axes that an operator takes: those of its input, of a result with one more, or places between them."""
    if form[0] == "ReverseSequence":
        yield from (0, 1)
    elif form[0] == "Flatten":
        yield from range(-rank, rank + 1)
    elif form[0] == "Unsqueeze":
        yield from range(-rank - 1, rank + 1)
    else:
        yield from range(-rank, rank)


def model_of(form: tuple[str, int], made: Made) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """One node, and what its inputs are fed with."""
    op, opset = form
    given = {f"x{place}": value for place, value in enumerate(made.computed)}
    known = {f"c{place}": value for place, value in enumerate(made.known) if not isinstance(value, str)}
    absent = ["" if isinstance(value, str) else f"c{place}" for place, value in enumerate(made.known)]
    outputs = [f"y{place}" for place in range(made.outputs)]
    node = helper.make_node(op, [*given, *absent], outputs, name="it", **made.attributes)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in given.items()
    ]
    weights = [numpy_helper.from_array(value, name) for name, value in known.items()]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph([node], "one", inputs, results, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10), given


def wanted(model: onnx.ModelProto, feeds: dict[str, Array]) -> list[Array]:
    if model.graph.node[0].op_type in UNKNOWN_TO_ONNXRUNTIME:
        return list(ReferenceEvaluator(model).run(None, feeds))
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return list(session.run(None, feeds))


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: f"rank {len(shape)}")
@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form[0]}-{form[1]}")
def test_an_axis_counts_from_either_end(lowered: Lowered, form: tuple[str, int], shape: tuple[int, ...]) -> None:
    for axis in axes_of(form, len(shape)):
        model, feeds = model_of(form, FORMS[form](shape, axis))
        got = evaluate(lowered(model), feeds)
        for result, want in zip(got.values(), wanted(model, feeds), strict=True):
            assert result.dtype == want.dtype
            np.testing.assert_allclose(result, want, rtol=1e-5, atol=1e-5, err_msg=f"axis {axis}")


@pytest.mark.parametrize("form", FORMS, ids=lambda form: f"{form[0]}-{form[1]}")
def test_an_axis_that_is_not_there_is_refused_by_the_name_of_the_node(lowered: Lowered, form: tuple[str, int]) -> None:
    for shape in SHAPES:
        for axis in (min(axes_of(form, len(shape))) - 1, max(axes_of(form, len(shape))) + 1):
            model, _ = model_of(form, FORMS[form](shape, axis))
            with pytest.raises(ModelError, match="node 'it'"):
                lowered(model)


def kinds_of(schema: onnx.defs.OpSchema) -> set[str]:
    found = {"attribute" for name in schema.attributes if name in NAMES}
    return found | {"input" for each in schema.inputs if each.name in NAMES}


def test_the_table_has_every_operator_with_an_axis() -> None:
    """In each of the two ways in which operator sets that are supported write it."""
    schemas: dict[str, list[onnx.defs.OpSchema]] = {}
    for schema in onnx.defs.get_all_schemas_with_history():
        if not schema.domain and schema.name in SUPPORTED_OPS:
            schemas.setdefault(schema.name, []).append(schema)
    missing = set()
    for op, versions in schemas.items():
        oldest = max((each.since_version for each in versions if each.since_version <= OLDEST_OPSET), default=0)
        needed = {kind for each in versions if each.since_version >= oldest for kind in kinds_of(each)}
        have = {kind for name, opset in FORMS if name == op for kind in kinds_of(onnx.defs.get_schema(op, opset))}
        missing |= {(op, kind) for kind in needed - have}
    assert missing == set()
