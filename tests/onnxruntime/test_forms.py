"""Test that every form of EPContext nodes runs in onnxruntime."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from gputune.client.generation.ep_context import EpContextFile
from tests.native.fake import ELEMENTS, STAGES, doubling_context, named_context, weighted_context
from tests.onnxruntime.models import node, save
from tests.onnxruntime.sessions import Onnxruntime, filled, opened, run

TIMES = 2.0**STAGES


def holds(found: object, **values: float) -> bool:
    """Whether outputs have these names, and these values everywhere."""
    assert isinstance(found, dict), found
    return {name: set(array.ravel()) for name, array in found.items()} == {
        name: {np.float32(value)} for name, value in values.items()
    }


@pytest.mark.parametrize("embed", [False, True])
@pytest.mark.parametrize("memory", [False, True])
def test_a_file_of_the_generator_runs(ort: Onnxruntime, tmp_path: Path, embed: bool, memory: bool) -> None:
    """Two graphs, the second of which is in the context of the first."""
    binary = doubling_context(tmp_path / "a.bin", ("one", "two"))
    EpContextFile(tmp_path / "a.onnx", embed).write(binary)
    entries = {"ep.context_file_path": str(tmp_path / "a.onnx")} if memory else {}
    inputs = {"one/x": filled(1), "two/x": filled(3)}
    found = ort.outputs(tmp_path / "a.onnx", inputs, memory=memory, entries=entries)
    assert holds(found, **{"one/y": TIMES, "two/y": 3 * TIMES})
    entries = {"ep.context_file_path": str(tmp_path)} if memory else {}
    assert holds(ort.outputs(tmp_path / "a.onnx", inputs, memory=memory, entries=entries), **{
        "one/y": TIMES, "two/y": 3 * TIMES
    })  # fmt: skip


def test_a_node_uses_the_main_node_before_it_and_else_the_first(ort: Onnxruntime, tmp_path: Path) -> None:
    """In the order of the file, whatever order the nodes run in."""
    one, two = weighted_context(tmp_path / "a.bin", 1), weighted_context(tmp_path / "b.bin", 2)
    nodes = [
        node(["x"], ["first"], None),
        node(["last"], ["a"], one),
        node(["x"], ["after a"], None),
        node(["x"], ["b"], two.read_bytes()),
        node(["x"], ["last"], None),
    ]
    names = ["first", "a", "after a", "b", "last"]
    model = save(tmp_path / "merged.onnx", nodes, ["x"], names)
    found = ort.outputs(model, {"x": filled(0)})
    assert holds(found, **dict(zip(names, (2, 2, 2, 4, 4), strict=True)))


def test_host_nodes_lie_between(either: Onnxruntime, tmp_path: Path) -> None:
    binary = doubling_context(tmp_path / "a.bin", ("one", "two"))
    nodes = [
        helper.make_node("Neg", ["x"], ["minus"]),
        node(["minus"], ["mine"], binary, "one"),
        helper.make_node("Abs", ["mine"], ["plus"]),
        node(["plus"], ["again"], None, "two"),
        helper.make_node("Add", ["again", "x"], ["y"]),
    ]
    model = save(tmp_path / "cut.onnx", nodes, ["x"], ["y"], ["mine", "again"])
    assert holds(either.outputs(model, {"x": filled(2)}), y=2 * TIMES * TIMES + 2)


def test_tensors_are_the_contexts_by_their_places(ort: Onnxruntime, tmp_path: Path) -> None:
    """y0 is twice the first input, y1 twice y0; names of the model are others, and an output is used by nobody."""
    binary = named_context(tmp_path / "a.bin", ("y0", "y1"), ("first", "second"))
    nodes = [node(["second", "first"], ["y1", "y0"], binary)]
    model = save(tmp_path / "a.onnx", nodes, ["first", "second"], ["y0", "y1"])
    assert holds(ort.outputs(model, {"first": filled(1), "second": filled(10)}), y1=20, y0=40)
    model = save(tmp_path / "b.onnx", [node(["x", "x"], ["unused", "y"], binary)], ["x"], ["y"], ["unused"])
    assert holds(ort.outputs(model, {"x": filled(3)}), y=12)


def test_an_input_may_be_a_constant_of_the_model(ort: Onnxruntime, tmp_path: Path) -> None:
    binary = named_context(tmp_path / "a.bin", ("y",), ("first", "second"))
    constant = numpy_helper.from_array(filled(5), "c")
    model = save(tmp_path / "a.onnx", [node(["c", "x"], ["y"], binary)], ["x"], ["y"], constants=[constant])
    assert holds(ort.outputs(model, {"x": filled(1)}), y=10)


def test_shapes_that_the_model_does_not_know_are_checked_in_each_run(newest: Onnxruntime, tmp_path: Path) -> None:
    binary = doubling_context(tmp_path / "a.bin")
    model = save(tmp_path / "a.onnx", [node(["x"], ["y"], binary)], [("x", ("n",))], ["y"])
    runs = [run({"x": filled(1, shape)}) for shape in ((ELEMENTS,), (ELEMENTS - 1,), (2 * ELEMENTS,))]
    nothing, good, *bad = newest.do(opened(model), *runs).results
    assert nothing is None and holds(good, y=TIMES)
    for said, count in zip(bad, (ELEMENTS - 1, 2 * ELEMENTS), strict=True):
        assert f"'x' is float32 [{count}], and float32 [{ELEMENTS}] in the context" in said
    shape = numpy_helper.from_array(np.array([8, 8], np.int64), "shape")
    nodes = [helper.make_node("Reshape", ["x", "given"], ["reshaped"]), node(["reshaped"], ["y"], binary)]
    graph = onnx.load(str(save(tmp_path / "b.onnx", nodes, ["x"], ["y"], constants=[shape])))
    graph.graph.input.append(helper.make_tensor_value_info("given", TensorProto.INT64, ["rank"]))
    onnx.save(graph, str(tmp_path / "b.onnx"))
    runs = [run({"x": filled(1), "given": np.array(shape, np.int64)}) for shape in ([64], [8, 8])]
    nothing, good, bad = newest.do(opened(tmp_path / "b.onnx"), *runs).results
    assert nothing is None and holds(good, y=TIMES)
    assert "'x' is float32 [8, 8], and float32 [64] in the context" in bad


def test_bodies_of_operators_have_nodes_of_their_own(newest: Onnxruntime, tmp_path: Path) -> None:
    """onnxruntime 1.23 gives the nodes of two graphs the same name and refuses them, whatever plugin has them."""
    binaries = [weighted_context(tmp_path / f"{value}.bin", value) for value in (1, 2)]
    m, z = (helper.make_tensor_value_info(name, TensorProto.FLOAT, (ELEMENTS,)) for name in "mz")
    bodies = [
        helper.make_graph([node(["x"], ["m"], one), node(["x"], ["z"], None)], "body", [], [z], value_info=[m])
        for one in binaries
    ]
    nodes = [
        helper.make_node("If", ["which"], ["mine"], then_branch=bodies[0], else_branch=bodies[1]),
        node(["mine"], ["y"], doubling_context(tmp_path / "a.bin")),
    ]
    path = save(tmp_path / "a.onnx", nodes, ["x"], ["y"], ["mine"])
    model = onnx.load(str(path))
    model.graph.input.append(helper.make_tensor_value_info("which", TensorProto.BOOL, ()))
    onnx.save(model, str(path))
    runs = [run({"x": filled(0), "which": np.array(which)}) for which in (True, False)]
    nothing, one, two = newest.do(opened(path), *runs).results
    assert nothing is None, nothing
    assert holds(one, y=2 * TIMES) and holds(two, y=4 * TIMES)
