"""Test that known indices, lengths and divisors are checked before anything runs; onnxruntime refuses them, too."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper

from gputune.client.errors import ModelError
from gputune.client.model.importer import SUPPORTED_OPS
from gputune.client.model.importer.bounds import CHECKS
from gputune.core.dtypes import ELEMENT_TYPES
from gputune.kernels.family import Array
from tests.client.plans import Lowered

DATA = np.arange(24, dtype=np.float32).reshape(3, 4, 2)
ONES = np.ones((1, 2, 2), np.float32)
NONE = np.zeros(2, np.float32)


def model_of(op: str, computed: Array | None, known: Sequence[Array | None], **attributes: Any) -> onnx.ModelProto:
    """One node, whose first input is computed, or known where `computed` is None."""
    constants = {f"c{place}": value for place, value in enumerate(known) if value is not None}
    names = [f"c{place}" if value is not None else "" for place, value in enumerate(known)]
    node = helper.make_node(op, [*(["x"] if computed is not None else []), *names], ["y"], name="it", **attributes)
    inputs = [] if computed is None else [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, computed.shape)]
    weights = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph([node], "one", inputs, [onnx.ValueInfoProto(name="y")], weights)
    opset = 10 if op == "Scatter" else 18
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)


WEIGHT = np.ones((1, 8, 2), np.float32)
LONG = np.array([4, 1, 2, 3])
"""For four sequences of three elements."""
LONG_32 = LONG.astype(np.int32)


@pytest.mark.parametrize(
    ("op", "known", "attributes", "complaint"),
    [
        ("Gather", [np.array([2, 3])], {}, "index 3 in 'c0'; axis 0 of 'x' has 3 elements: -3 to 2"),
        ("Gather", [np.array([[-5]])], {"axis": 1}, "index -5 in 'c0'; axis 1 of 'x' has 4 elements: -4 to 3"),
        ("Gather", [np.array(2)], {"axis": -1}, "index 2 in 'c0'; axis 2 of 'x' has 2 elements: -2 to 1"),
        ("GatherElements", [np.array([[[0], [7]]])], {"axis": 1}, "index 7 in 'c0'; axis 1 of 'x'"),
        ("GatherElements", [np.zeros((4, 1, 1), int)], {"axis": 1}, "axis 0 is too long"),
        ("GatherND", [np.array([[2, -5]])], {}, "index -5 in 'c0'; axis 1 of 'x'"),
        ("GatherND", [np.array([[0], [1], [4]])], {"batch_dims": 1}, "index 4 in 'c0'; axis 1 of 'x'"),
        ("ScatterND", [np.array([[0, 4]]), ONES[0, :1]], {}, "index 4 in 'c0'; axis 1 of 'x'"),
        ("ScatterND", [np.array([[0, 0, 0, 0]]), ONES[0, 0, :1]], {}, "its data has only 3 dimensions"),
        ("ScatterElements", [np.full((1, 2, 2), -4), ONES], {}, "index -4 in 'c0'; axis 0 of 'x'"),
        ("ScatterElements", [np.zeros((1, 2, 3), int), np.ones((1, 2, 3), np.float32)], {}, "axis 2 is too long"),
        ("Scatter", [np.full((1, 2, 2), 3), ONES], {}, "index 3 in 'c0'; axis 0 of 'x'"),
        ("ReverseSequence", [LONG], {}, "length 4 in 'c0'; sequences have 3 elements at most"),
        ("ReverseSequence", [-LONG], {}, "length -4 in 'c0'"),
        ("ReverseSequence", [LONG[1:]], {}, "4 sequences, but its lengths 'c0' have the shape (3,)"),
        (
            "LSTM",
            [WEIGHT, WEIGHT, None, LONG_32],
            {"hidden_size": 2},
            "length 4 in 'c3'; sequences have 3 elements at most",
        ),
        ("GRU", [WEIGHT[:, :6], WEIGHT[:, :6], None, -LONG_32], {"hidden_size": 2}, "length -4 in 'c3'"),
        ("RNN", [WEIGHT[:, :2], WEIGHT[:, :2], None, LONG_32], {"hidden_size": 2}, "length 4 in 'c3'"),
    ],
)
def test_what_lies_outside_is_refused_by_the_name_of_the_node(
    lowered: Lowered, op: str, known: list[Array], attributes: dict[str, Any], complaint: str
) -> None:
    model = model_of(op, DATA, known, **attributes)
    with pytest.raises(ModelError) as caught:
        lowered(model)
    assert f"{op} node 'it' of model" in caught.value.message and complaint in caught.value.message
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    with pytest.raises(Exception, match=op):
        onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, {"x": DATA})


@pytest.mark.parametrize("indices", [[0, 2], [-3, -1]])
def test_the_first_and_the_last_element_are_inside(lowered: Lowered, indices: list[int]) -> None:
    lowered(model_of("Gather", DATA, [np.array(indices)]))
    lowered(model_of("GatherND", DATA, [np.array([indices[::-1]])]))


def test_what_is_computed_beforehand_is_looked_at_too(lowered: Lowered) -> None:
    with pytest.raises(ModelError, match=r"Gather node 'it' of model .* index 3 in 'c1'; axis 0 of 'c0'"):
        lowered(model_of("Gather", None, [DATA, np.array([3])]))
    with pytest.raises(ModelError, match="index 0 in 'c1'; axis 0 of 'c0' has no elements"):
        lowered(model_of("Gather", None, [DATA[:0], np.array([0])]))


@pytest.mark.parametrize("dtype", [name for name in ELEMENT_TYPES if np.dtype(name).kind in "iu"])
@pytest.mark.parametrize(("op", "attributes"), [("Div", {}), ("Mod", {}), ("Mod", {"fmod": 1})])
def test_whole_numbers_are_not_divided_by_a_known_zero(
    lowered: Lowered, op: str, attributes: dict[str, int], dtype: str
) -> None:
    """Also where the quotient is known, and where only some of the divisors are zero."""
    dividends, divisors = np.array([7, 0, 3]).astype(dtype), np.array([2, 0, 1]).astype(dtype)
    known = model_of(op, None, [dividends, divisors], **attributes)
    computed = model_of(op, dividends, [divisors], **attributes)
    computed.graph.input[0].type.tensor_type.elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    for model, name in ((known, "c1"), (computed, "c0")):
        with pytest.raises(ModelError, match=rf"{op} node 'it' of model .* divides whole numbers by a 0 in '{name}'"):
            lowered(model)
        model.graph.initializer[-1].CopyFrom(numpy_helper.from_array(np.maximum(divisors, 1), name))
        lowered(model)
    lowered(model_of(op, DATA, [NONE], fmod=1) if op == "Mod" else model_of(op, DATA, [NONE]))


DEFINED_OUTSIDE = frozenset(("OneHot",))
"""ONNX says what these make of indices outside: nothing is on."""


def test_every_operator_with_indices_or_lengths_is_looked_at() -> None:
    names = ("indices", "sequence_lens")
    schemas = [schema for schema in onnx.defs.get_all_schemas() if not schema.domain and schema.name in SUPPORTED_OPS]
    found = {schema.name for schema in schemas for each in schema.inputs if each.name in names}
    assert found - DEFINED_OUTSIDE == set(CHECKS) - {"Div", "Mod", "DequantizeLinear", "QuantizeLinear"}
