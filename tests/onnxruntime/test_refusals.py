"""Test that what cannot run is refused with a line of ours, which onnxruntime passes on."""

import dataclasses
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from gputune.client.generation.ep_context import EpContextFile
from tests.client.contexts import small_context
from tests.native.fake import DEVICE, ELEMENTS, doubling_context, named_context
from tests.onnxruntime.models import node, save
from tests.onnxruntime.sessions import Onnxruntime, filled, opened, run

NEGATED = helper.make_node("Neg", ["x"], ["z"])


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    return doubling_context(tmp_path / "a.bin")


def model_of(tmp_path: Path, context: Path | bytes | str | None, **more: Any) -> Path:
    return save(tmp_path / "a.onnx", [node(["x"], ["y"], context, **more)], ["x"], ["y"])


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("{folder}/a.bin", "must be a path in the folder of the ONNX file"),
        ("../{name}/a.bin", "must be a path in the folder of the ONNX file"),
        ("sub\\..\\a.bin", "must be a path in the folder of the ONNX file"),
        ("C:a.bin", "must be a path in the folder of the ONNX file"),
        ("", "must be a path in the folder of the ONNX file"),
        ("link.bin", "is no file in the folder of the ONNX file"),
        ("missing.bin", "is no file in the folder of the ONNX file"),
        ("sub", "is no file in the folder of the ONNX file"),
        ("x" * 4097, "ep_cache_context is no text of at most 4096 bytes"),
        ("a\0.bin", "ep_cache_context is no text of at most 4096 bytes"),
    ],
)
def test_paths_stay_in_the_folder_of_the_model(newest: Onnxruntime, tmp_path: Path, path: str, words: str) -> None:
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    doubling_context(folder / "a.bin")
    (folder / "link.bin").symlink_to(doubling_context(tmp_path / "outside.bin"))
    said = newest.refusal(model_of(folder, path.format(folder=folder, name=folder.name)))
    assert "gputune: malformed_ep_context: EPContext node 'node of y': " in said
    assert words in said


def test_a_path_needs_a_folder(newest: Onnxruntime, tmp_path: Path, binary: Path) -> None:
    said = newest.refusal(model_of(tmp_path, binary), memory=True)
    assert "gputune: malformed_ep_context: EPContext node 'node of y': ep_cache_context 'a.bin' is a path, but" in said
    assert "name its file in ep.context_file_path, or embed the context" in said


@pytest.mark.parametrize(("embed", "open_to_all"), [(False, "a.bin"), (False, "a.onnx"), (True, "a.onnx")])
def test_files_that_another_user_could_change_are_refused(
    newest: Onnxruntime, tmp_path: Path, binary: Path, embed: bool, open_to_all: str
) -> None:
    model = model_of(tmp_path, binary.read_bytes() if embed else binary)
    (tmp_path / open_to_all).chmod(0o666)
    said = newest.refusal(model)
    assert f"gputune: untrusted_file: EPContext node 'node of y': {tmp_path / open_to_all}: {tmp_path}" in said
    assert "can be written by every user" in said


def test_contexts_are_checked(ort: Onnxruntime, tmp_path: Path, binary: Path) -> None:
    damaged = binary.read_bytes().replace(b"twice(", b"Twice(")
    for content, code in (
        (damaged, "checksum_mismatch"),
        (binary.read_bytes()[:-1], "truncated"),
        (b"GPUTCTX" + bytes(100), "not_a_context"),
        (b"\x08\x08", "malformed_ep_context"),
    ):
        assert f"gputune: {code}: EPContext node 'node of y': " in ort.refusal(model_of(tmp_path, content)), code
        (tmp_path / "changed.bin").write_bytes(content)
        if code != "malformed_ep_context":  # an ONNX file is known by its name
            said = ort.refusal(model_of(tmp_path, tmp_path / "changed.bin"))
            assert f"gputune: {code}: EPContext node 'node of y': {tmp_path / 'changed.bin'}: " in said


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"partition_name": "other"}, "there is no graph 'other'; the graphs are 'main'"),
        ({"main_context": 2}, "main_context is 2, expected 0 or 1"),
        ({"embed_mode": -1}, "embed_mode is -1, expected 0 or 1"),
        ({"embed_mode": 1, "ep_cache_context": None}, "ep_cache_context holds no context"),
        ({"main_context": 0}, "no EPContext node with main_context = 1"),
    ],
)
def test_attributes_are_checked(
    newest: Onnxruntime, tmp_path: Path, binary: Path, fields: dict[str, Any], words: str
) -> None:
    said = newest.refusal(model_of(tmp_path, binary, **fields))
    assert "EPContext node 'node of y': " in said and words in said


def branches(inner: onnx.NodeProto) -> list[onnx.NodeProto]:
    """Nodes of which one has this node in a branch."""
    z = [helper.make_tensor_value_info("z", TensorProto.FLOAT, [ELEMENTS])]
    bodies = [helper.make_graph([one], name, [], z) for name, one in (("yes", inner), ("no", NEGATED))]
    return [
        helper.make_node("ReduceSum", ["x"], ["sum"], keepdims=0),
        helper.make_node("Cast", ["sum"], ["which"], to=TensorProto.BOOL),
        helper.make_node("If", ["which"], ["y"], then_branch=bodies[0], else_branch=bodies[1]),
    ]


@pytest.mark.parametrize("form", ["plain", "branches", "ours"])
def test_a_session_without_a_node_of_ours_is_told_once(
    ort: Onnxruntime, request: pytest.FixtureRequest, tmp_path: Path, form: str
) -> None:
    nodes = {
        "plain": [helper.make_node("Relu", ["x"], ["y"])],
        "branches": branches(helper.make_node("Relu", ["x"], ["z"])),
        "ours": branches(node(["x"], ["z"], doubling_context(tmp_path / "a.bin"))),
    }[form]
    ran = ort.do(opened(save(tmp_path / "a.onnx", nodes, ["x"], ["y"])), run({"x": filled(1.0)}))
    told = form != "ours" and request.node.callspec.params["ort"] != "oldest"  # which does not tell branches apart
    assert ran.log.count("no EPContext node of gputune in this model") == told, ran.log


def test_nodes_of_others_are_theirs(newest: Onnxruntime, tmp_path: Path, binary: Path) -> None:
    said = newest.refusal(model_of(tmp_path, binary, source="QNN"))
    assert "gputune:" not in said and "NOT_IMPLEMENTED" in said and "'node of y'" in said


def test_tensors_must_be_those_of_the_context(newest: Onnxruntime, tmp_path: Path, binary: Path) -> None:
    two = named_context(tmp_path / "two.bin", ("y",), ("first", "second"))
    three = named_context(tmp_path / "three.bin", ("y",), ("first", "second", "third"))
    a, b, c = ((name, [ELEMENTS]) for name in "abc")
    x, y, floats, halves = ("x", [ELEMENTS]), ("y", [ELEMENTS]), TensorProto.FLOAT, TensorProto.FLOAT16
    one = node(["x"], ["y"], binary)
    for nodes, inputs, outputs, kind, words in (
        ([node(["x"], ["y"], two)], [x], [y], floats, "it has 1 inputs, and graph 'main' of the context has 2"),
        ([node(["x"], ["y", "z"], binary)], [x], [y, ("z", [ELEMENTS])], floats, "it has 2 outputs, and graph "),
        ([node(["x", ""], ["y"], two)], [x], [y], floats, "its input 1 is missing: graph 'main' takes 'second' there"),
        ([node(["", "b", "c"], ["y"], three)], [b, c], [y], floats, "input 0 is missing: graph 'main' takes 'first'"),
        ([node(["a", "", "c"], ["y"], three)], [a, c], [y], floats, "input 1 is missing: graph 'main' takes 'second'"),
        ([node(["a", "", ""], ["y"], three)], [a], [y], floats, "input 1 is missing: graph 'main' takes 'second'"),
        ([one], [("x", [1, "n"])], [y], floats, "'x' is float32 [1, ?] in the model, and float32 [64] in the context"),
        ([one], [x], [("y", [63])], floats, "'y' is float32 [63] in the model, and float32 [64] in the context"),
        ([one], [x], [y], halves, "'x' is float16 [64] in the model, and float32 [64] in the context"),
    ):  # fmt: skip
        model = save(tmp_path / "a.onnx", nodes, inputs, outputs, kind=kind)
        said = newest.refusal(model)
        assert "gputune: invalid_argument: EPContext node 'node of y" in said and words in said, said


def test_a_context_must_fit_the_device(newest: Onnxruntime, tmp_path: Path) -> None:
    EpContextFile(tmp_path / "null.onnx", False).write(small_context(tmp_path / "null.bin"))
    said = newest.refusal(tmp_path / "null.onnx")
    assert "gputune: wrong_device: EPContext node 'main': " in said and "made by the null device" in said


def test_another_drivers_context_is_built_from_source_or_refused(newest: Onnxruntime, tmp_path: Path) -> None:
    binary = doubling_context(tmp_path / "a.bin", device=dataclasses.replace(DEVICE, driver_version="0.9"))
    EpContextFile(tmp_path / "a.onnx", False).write(binary)
    ran = newest.do(opened(tmp_path / "a.onnx"), run({"x": filled(1)}))
    assert set(ran.results[1]["y"]) == {8}
    assert "graph 'main': building from source on another device: driver_version is '1.0', not '0.9'" in ran.log
    said = newest.refusal(tmp_path / "a.onnx", options={"cache_compatibility_mode": "strict"})
    assert "gputune: wrong_device: EPContext node 'main': " in said and "made for another device" in said
