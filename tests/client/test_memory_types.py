"""Test what users say of inputs and outputs when a model is prepared: how it is written, and where it goes."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from gputune.client.errors import ConfigError
from gputune.client.memory_types import RAW, MemoryTypes
from gputune.client.run.onnx_backend import GputuneBackend
from gputune.runtime import MemHandle, load
from gputune.runtime.context.records import GraphRecord, TensorRecord
from gputune.runtime.context.states import FIXED, StatePair, StateRecord
from tests.client import models
from tests.client.commands import Generate, Generated

GRAPH = GraphRecord("g", (TensorRecord("x", (2,)), TensorRecord("a=b", (2,))), (TensorRecord("y", (2,)),), (), ())


def types_of(text: str) -> list[str]:
    graph = MemoryTypes.parse(text).applied(GRAPH)
    return [tensor.memory_type for tensor in (*graph.inputs, *graph.outputs)]


@pytest.mark.parametrize(
    ("text", "types"),
    [
        ("raw", ["raw", "raw", "raw"]),
        ("memhandle", ["memhandle"] * 3),
        ("x=memhandle", ["memhandle", "raw", "raw"]),
        ("x=memhandle, y=memhandle", ["memhandle", "raw", "memhandle"]),
        ("memhandle,y=raw", ["memhandle", "memhandle", "raw"]),
        ("a=b=memhandle", ["raw", "memhandle", "raw"]),
    ],
)
def test_types_are_of_all_tensors_or_of_single_ones(text: str, types: list[str]) -> None:
    assert types_of(text) == types
    assert types_of(str(MemoryTypes.parse(text))) == types
    assert replace(MemoryTypes.parse(text).applied(GRAPH), inputs=GRAPH.inputs, outputs=GRAPH.outputs) == GRAPH
    assert RAW.applied(GRAPH) == GRAPH


@pytest.mark.parametrize(("text", "types"), [("raw", ["memhandle", "raw", "memhandle"]), ("x=raw,y=raw", ["raw"] * 3)])
def test_what_a_state_keeps_counts_as_a_handle(text: str, types: list[str]) -> None:
    states = StateRecord("", 0, 0, (), (), (StatePair("x", "y", FIXED),))
    graph = MemoryTypes.parse(text).applied(replace(GRAPH, states=states))
    assert [tensor.memory_type for tensor in (*graph.inputs, *graph.outputs)] == types


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "'' is neither raw, memhandle, nor NAME=raw or NAME=memhandle"),
        ("dmabuf", "'dmabuf' is neither"),
        ("x=Raw", "'x=Raw' is neither"),
        ("=raw", "'=raw' names no tensor"),
        ("raw,memhandle", "'memhandle' repeats a tensor that has a type"),
        ("x=raw,x=memhandle", "'x=memhandle' repeats a tensor"),
        ("x=raw,", "'' is neither"),
    ],
)
def test_nonsense_is_quoted(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        MemoryTypes.parse(text)
    assert words in str(caught.value)


@pytest.fixture
def made(generate: Generate) -> Callable[[str], Generated]:
    model = models.build("(float[2,4] x) => (float[2,4] y)", "y = Relu(x)")
    return lambda kind: generate("--input_output_tensor_mem_type", kind, model=model)


def test_a_context_has_them_and_allocates_by_them(made: Callable[[str], Generated]) -> None:
    for kind, allocations in (("raw", [1, 1]), ("memhandle", [0, 0]), ("y=memhandle", [1, 0])):
        ran = made(kind)
        assert str(MemoryTypes.parse(kind)) == ran.header.configuration["input_output_tensor_mem_type"]
        executor = load(ran.context, "null")
        assert [executor.counters.load[name].allocations for name in "xy"] == allocations


def test_a_name_that_the_model_does_not_have_is_refused(made: Callable[[str], Generated]) -> None:
    ran = made("z=memhandle")
    assert ran.code == ConfigError.exit_code
    assert "--input_output_tensor_mem_type: there is no input or output 'z'; there are 'x', 'y'" in ran.last_line
    assert not ran.context.exists()


def test_a_model_that_is_prepared_in_process_takes_the_same_hint() -> None:
    model = models.build("(float[2,4] x) => (float[2,4] y)", "y = Relu(x)")
    prepared = GputuneBackend.prepare(model, "null", input_output_tensor_mem_type="memhandle")
    assert prepared.loaded is not None
    executor = prepared.loaded.executor
    assert executor is not None
    with MemHandle.allocate(32) as x, MemHandle.allocate(32) as y:
        (result,) = prepared.run([x], {"y": y})
        assert result.ctypes.data == y.address
        assert [executor.counters.total[name].allocations for name in "xy"] == [0, 0]
        assert [executor.counters.total[name].bytes_copied for name in "xy"] == [0, 0]
        executor.close()
    with pytest.warns(UserWarning, match="prepared for memory handles"):
        GputuneBackend.prepare(model, "null", input_output_tensor_mem_type="x=memhandle").run([np.zeros((2, 4), "f4")])
    with pytest.raises(ConfigError, match="no input or output 'z'"):
        GputuneBackend.prepare(model, "null", input_output_tensor_mem_type="z=raw")
    open_model = models.build("(float[n,4] x) => (float[n,4] y)", "y = Relu(x)")
    with MemHandle.allocate(32) as x, pytest.raises(ValueError, match="input 'x' must be an array"):
        GputuneBackend.prepare(open_model, "null").run([x])
