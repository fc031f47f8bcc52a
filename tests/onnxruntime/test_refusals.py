"""Test that what cannot run is refused with a line of ours, which onnxruntime passes on."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import onnx
import pytest
from onnx import TensorProto, helper

from gputune.client.generation.ep_context import EpContextFile
from tests.client.contexts import small_context
from tests.native.fake import DEVICE, ELEMENTS, doubling_context, named_context
from tests.native.test_needs import FEATURE, needing
from tests.onnxruntime.models import node, save
from tests.onnxruntime.sessions import Onnxruntime, filled, opened, run
from tests.strategies.files.contexts import damaged

NEGATED = helper.make_node("Neg", ["x"], ["z"])


@pytest.fixture
def binary(tmp_path: Path) -> Path:
    return doubling_context(tmp_path / "a.bin")


def model_of(folder: Path, context: Path | bytes | str | None, **more: Any) -> Path:
    """Return a new model."""
    name = f"{len(list(folder.glob('*.onnx')))}.onnx"
    return save(folder / name, [node(["x"], ["y"], context, **more)], ["x"], ["y"])


OUTSIDE, NO_FILE = "must be a path in the folder of the ONNX file", "is no file in the folder of the ONNX file"
PATHS = (
    ("{folder}/a.bin", OUTSIDE),
    ("../{name}/a.bin", OUTSIDE),
    ("sub\\..\\a.bin", OUTSIDE),
    ("C:a.bin", OUTSIDE),
    ("", OUTSIDE),
    ("link.bin", NO_FILE),
    ("missing.bin", NO_FILE),
    ("sub", NO_FILE),
    ("x" * 4097, "ep_cache_context is no text of at most 4096 bytes"),
    ("a\0.bin", "ep_cache_context is no text of at most 4096 bytes"),
)
FIELDS: Sequence[tuple[dict[str, Any], str]] = (
    ({"partition_name": "other"}, "there is no graph 'other'; the graphs are 'main'"),
    ({"main_context": 2}, "main_context is 2, expected 0 or 1"),
    ({"embed_mode": -1}, "embed_mode is -1, expected 0 or 1"),
    ({"embed_mode": 1, "ep_cache_context": None}, "ep_cache_context holds no context"),
    ({"main_context": 0}, "no EPContext node with main_context = 1"),
)


def test_attributes_are_checked_and_paths_stay_in_the_folder(newest: Onnxruntime, tmp_path: Path) -> None:
    """A path needs a folder, which a model in memory does not have."""
    folder = tmp_path / "model"
    (folder / "sub").mkdir(parents=True)
    binary = doubling_context(folder / "a.bin")
    (folder / "link.bin").symlink_to(doubling_context(tmp_path / "outside.bin"))
    models = [model_of(folder, path.format(folder=folder, name=folder.name)) for path, _ in PATHS]
    models += [model_of(folder, binary, **fields) for fields, _ in FIELDS]
    in_memory = opened(model_of(folder, binary), memory=True)
    said = newest.refusals(*map(opened, models), in_memory)
    for line, (given, words) in zip(said, (*PATHS, *FIELDS), strict=False):
        assert "EPContext node 'node of y': " in line and words in line
        assert isinstance(given, dict) or "gputune: malformed_ep_context: " in line
    path = "gputune: malformed_ep_context: EPContext node 'node of y': ep_cache_context 'a.bin' is a path, but"
    assert path in said[-1]
    assert "name its file in ep.context_file_path, or embed the context" in said[-1]


def test_files_that_another_user_could_change_are_refused(newest: Onnxruntime, tmp_path: Path, binary: Path) -> None:
    cases = []
    for embed, open_to_all in ((False, "a.bin"), (False, "0.onnx"), (True, "0.onnx")):
        folder = tmp_path / f"{embed} {open_to_all}"
        folder.mkdir()
        context = doubling_context(folder / "a.bin")
        cases.append((model_of(folder, context.read_bytes() if embed else context), folder / open_to_all))
        cases[-1][1].chmod(0o666)
    said = newest.refusals(*(opened(model) for model, _ in cases))
    for line, (_, file) in zip(said, cases, strict=True):
        assert f"gputune: untrusted_file: EPContext node 'node of y': {file}: {file.parent}" in line
        assert "can be written by every user" in line


def test_contexts_are_checked(ort: Onnxruntime, tmp_path: Path, binary: Path) -> None:
    cases = []
    for content, code in (
        (damaged(binary.read_bytes()), "checksum_mismatch"),
        (binary.read_bytes()[:-1], "truncated"),
        (b"GPUTCTX" + bytes(100), "not_a_context"),
        (b"\x08\x08", "malformed_ep_context"),
    ):
        cases.append((model_of(tmp_path, content), f"gputune: {code}: EPContext node 'node of y': "))
        if code != "malformed_ep_context":  # an ONNX file is known by its name
            (changed := tmp_path / f"{code}.bin").write_bytes(content)
            cases.append((model_of(tmp_path, changed), f"{cases[-1][1]}{changed}: "))
    for said, (_, words) in zip(ort.refusals(*(opened(model) for model, _ in cases)), cases, strict=True):
        assert words in said


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


def test_tensors_must_be_those_of_the_context(newest: Onnxruntime, tmp_path: Path, binary: Path) -> None:
    two = named_context(tmp_path / "two.bin", ("y",), ("first", "second"))
    three = named_context(tmp_path / "three.bin", ("y",), ("first", "second", "third"))
    a, b, c = ((name, [ELEMENTS]) for name in "abc")
    x, y, floats, halves = ("x", [ELEMENTS]), ("y", [ELEMENTS]), TensorProto.FLOAT, TensorProto.FLOAT16
    one = node(["x"], ["y"], binary)
    cases: Sequence[tuple[Any, ...]] = (
        ([node(["x"], ["y"], two)], [x], [y], floats, "it has 1 inputs, and graph 'main' of the context has 2"),
        ([node(["x"], ["y", "z"], binary)], [x], [y, ("z", [ELEMENTS])], floats, "it has 2 outputs, and graph "),
        ([node(["x", ""], ["y"], two)], [x], [y], floats, "its input 1 is missing: graph 'main' takes 'second' there"),
        ([node(["", "b", "c"], ["y"], three)], [b, c], [y], floats, "input 0 is missing: graph 'main' takes 'first'"),
        ([node(["a", "", "c"], ["y"], three)], [a, c], [y], floats, "input 1 is missing: graph 'main' takes 'second'"),
        ([node(["a", "", ""], ["y"], three)], [a], [y], floats, "input 1 is missing: graph 'main' takes 'second'"),
        ([one], [("x", [1, "n"])], [y], floats, "'x' is float32 [1, ?] in the model, and float32 [64] in the context"),
        ([one], [x], [("y", [63])], floats, "'y' is float32 [63] in the model, and float32 [64] in the context"),
        ([one], [x], [y], halves, "'x' is float16 [64] in the model, and float32 [64] in the context"),
    )  # fmt: skip
    models = [
        save(tmp_path / f"{place}.onnx", nodes, inputs, outputs, kind=kind)
        for place, (nodes, inputs, outputs, kind, _) in enumerate(cases)
    ]
    for said, (*_, words) in zip(newest.refusals(*map(opened, models)), cases, strict=True):
        assert "gputune: invalid_argument: EPContext node 'node of y" in said and words in said, said


def test_a_context_must_fit_the_device_or_is_built_from_source(newest: Onnxruntime, tmp_path: Path) -> None:
    """Nodes of others are theirs."""
    null = small_context(tmp_path / "null.bin")
    EpContextFile(tmp_path / "null.onnx", False).write(null)
    others = model_of(tmp_path, null, source="QNN")
    binary = doubling_context(tmp_path / "a.bin", device=dataclasses.replace(DEVICE, driver_version="0.9"))
    EpContextFile(tmp_path / "a.onnx", False).write(binary)
    ran = newest.do(opened(tmp_path / "a.onnx"), run({"x": filled(1)}))
    assert set(ran.results[1]["y"]) == {8}
    assert "graph 'main': building from source on another device: driver_version is '1.0', not '0.9'" in ran.log
    strict = opened(tmp_path / "a.onnx", options={"cache_compatibility_mode": "strict"})
    *ours, theirs = newest.refusals(opened(tmp_path / "null.onnx"), strict, opened(others))
    for said, words in zip(ours, ("made by the null device", "made for another device"), strict=True):
        assert "gputune: wrong_device: EPContext node 'main': " in said and words in said
    assert "gputune:" not in theirs and "NOT_IMPLEMENTED" in theirs and "'node of y'" in theirs


def test_programs_that_need_a_feature_run_by_the_devices_own_binaries_alone(
    newest: Onnxruntime, tmp_path: Path
) -> None:
    """Sessions prove no features."""
    models = [tmp_path / name for name in ("own.onnx", "other.onnx")]
    for model, version in zip(models, (DEVICE.driver_version, "0.9"), strict=True):
        context = needing(model.with_suffix(".bin"), dataclasses.replace(DEVICE, driver_version=version))
        EpContextFile(model, False).write(context)
    own, other = map(opened, models)
    assert set(newest.do(own, run({"x": filled(1)})).results[1]["y"]) == {8}
    (said,) = newest.refusals(other)
    assert "gputune: wrong_device: EPContext node 'main': " in said
    words = f"graph 'main' needs features that {DEVICE.name} does not prove: half, because no proof of it is given; "
    assert words in said and f"{FEATURE}, because no proof of it is given; generate the context on this device" in said
