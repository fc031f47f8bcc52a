"""Test weights in files next to a model: where they lie, and one clear line if they do not."""

from pathlib import Path

import numpy as np
import onnx
import onnx.external_data_helper
import pytest
from onnx import TensorProto, helper, numpy_helper

from gputune.client.model.importer import data_files, read_model
from tests.client import models
from tests.client.model.test_importer import refusal
from tests.client.models import build, numbers, save


def test_weights_in_another_file_are_read_and_missed_by_name(tmp_path: Path) -> None:
    model = models.conv_relu_gemm()
    want = numpy_helper.to_array(model.graph.initializer[0])
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert np.array_equal(read_model(path).constants[model.graph.initializer[0].name], want)
    (tmp_path / "weights.bin").unlink()
    assert "weights.bin" in refusal(path)


def test_weights_in_another_file_that_ends_too_early_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(models.conv_relu_gemm(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    with (tmp_path / "weights.bin").open("r+b") as file:
        file.truncate(100)
    assert "weights.bin does not hold" in refusal(path)


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        ({}, ""),
        ({"offset": "0", "length": "0"}, ""),
        ({"offset": "4", "length": "16"}, ""),
        ({"offset": "8"}, "w.bin does not hold 4 float32 numbers from byte 8 on"),
        ({"offset": str(10**30)}, f"w.bin does not hold 4 float32 numbers from byte {10**30} on"),
        ({"length": "15"}, "its length is 15 bytes, and 4 float32 numbers have 16"),
        ({"length": "17"}, "its length is 17 bytes, and 4 float32 numbers have 16"),
        ({"length": str(10**15)}, f"its length is {10**15} bytes, and 4 float32 numbers have 16"),
        *(
            ({key: text}, f"its {key} {text!r} is no number of bytes")
            for key in ("offset", "length")
            for text in ("x", "", "-8", "+8", " 8", "8.0", "1_6", "0x10", "²", "\u0668")
        ),
    ],
)
def test_where_a_weight_lies_in_its_file_is_checked(tmp_path: Path, entries: dict[str, str], words: str) -> None:
    (tmp_path / "w.bin").write_bytes(np.arange(5, dtype=np.float32).tobytes())
    weight = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, text in {"location": "w.bin", **entries}.items():
        weight.external_data.add(key=key, value=text)
    path = save(build("(float[4] x) => (float[4] y)", "y = Add(x, w)", {"w": numbers(4)}), tmp_path)
    model = onnx.load(path)
    model.graph.initializer[0].CopyFrom(weight)
    path.write_bytes(model.SerializeToString())
    if words:
        assert words in refusal(path)
    else:
        first = int(entries.get("offset", 0)) // 4
        assert read_model(path).constants["w"].tolist() == [first, first + 1, first + 2, first + 3]


def test_data_files_are_those_of_all_tensors(tmp_path: Path) -> None:
    """Of initializers, sparse ones, constants of nodes, subgraphs and functions."""

    def tensor(location: str) -> onnx.TensorProto:
        found = numpy_helper.from_array(np.zeros(2, np.float32), location)
        onnx.external_data_helper.set_external_data(found, location)
        return found

    def constant(location: str) -> onnx.NodeProto:
        return helper.make_node("Constant", [], ["c"], value=tensor(location))

    branch = helper.make_graph([constant("branch")], "b", [], [], [tensor("initializer of branch")])
    sparse = onnx.SparseTensorProto(values=tensor("values"), indices=tensor("indices"))
    nodes = [
        constant("node"),
        helper.make_node("If", ["x"], ["y"], then_branch=branch),
        helper.make_node("Constant", [], ["s"], sparse_value=sparse),
        helper.make_node("Several", [], ["t"], tensors=[tensor("first"), tensor("second")]),
    ]
    graph = helper.make_graph(nodes, "g", [], [], [tensor("initializer"), tensor("initializer")])
    graph.sparse_initializer.append(sparse)
    function = helper.make_function("mine", "F", [], ["c"], [constant("function")], [helper.make_opsetid("", 13)])
    path = save(helper.make_model(graph, functions=[function]), tmp_path)
    names = ("initializer", "values", "indices", "node", "branch", "initializer of branch", "first", "second")
    assert sorted(data_files(path)) == sorted(tmp_path / name for name in (*names, "function"))
    path.write_bytes(b"no model")
    assert data_files(path) == data_files(tmp_path / "missing.onnx") == []


def test_a_constant_nodes_data_lies_next_to_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not where the command was called from, though a file of that name is there."""
    for folder, first in (("model", 1), ("elsewhere", 2)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "w.bin").write_bytes(np.full(4, first, np.float32).tobytes())
    monkeypatch.chdir(tmp_path / "elsewhere")
    model = build("(float[4] x) => (float[4] y)", "c = Constant<value = float[4] {0, 0, 0, 0}>() y = Add(x, c)", {})
    value = model.graph.node[0].attribute[0].t
    value.CopyFrom(TensorProto(data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL))
    value.external_data.add(key="location", value="w.bin")
    path = save(model, tmp_path / "model")
    (found,) = read_model(path).constants.values()
    assert found.tolist() == [1, 1, 1, 1]
    (path.parent / "w.bin").unlink()
    assert "w.bin" in refusal(path)
