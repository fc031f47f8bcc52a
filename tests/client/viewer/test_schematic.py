"""Test the schematic: it is read as written, and refused if it contradicts itself or the log."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gputune.client.options.viewer import Features
from gputune.client.progress import SILENT
from gputune.client.viewer.outputs import write_output
from gputune.client.viewer.profile import profile_of
from gputune.client.viewer.schematic import read_schematic, write_schematic
from gputune.core.errors import MalformedLog
from tests.client.viewer.made_up_profiles import rich_profile, schematic_of
from tests.runtime.profiling import made_up

NET = made_up.graph(["conv", "relu"])


def changed(path: Path, place: Sequence[str | int], value: Any) -> Path:
    """A schematic's file with another value in one place."""
    write_schematic(path, schematic_of(NET))
    whole = part = json.loads(path.read_text())
    for key in place[:-1]:
        part = part[key]
    part[place[-1]] = value
    path.write_text(json.dumps(whole))
    return path


def test_what_is_written_is_read(tmp_path: Path) -> None:
    write_schematic(tmp_path / "net_schematic.bin", schematic_of(NET))
    assert read_schematic(tmp_path / "net_schematic.bin") == schematic_of(NET)


OPERATION, TENSOR = ("graphs", 0, "operations", 0), ("graphs", 0, "tensors", 0)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("model",), "\ud800", "is no schematic: 'utf-8' codec can't encode"),
        ((*OPERATION, "flops"), 1 << 62, "flops: value 4611686018427387904 is outside 0..1125899906842624"),
        ((*OPERATION, "alone_ns"), 1e300, "alone_ns: value 1e+300 is outside 0.."),
        ((*OPERATION, "alone_ns"), float("nan"), "alone_ns: expected a finite number, got nan"),
        ((*OPERATION, "output"), "z" * 5000, "has no tensor 'z"),
        ((*TENSOR, "nbytes"), 1 << 62, "nbytes: value 4611686018427387904 is outside"),
        (("graphs", 0, "arena_bytes"), [1 << 62], "arena_bytes[0]: value 4611686018427387904 is outside"),
        (
            ("peaks",),
            {"flops_per_ns": 5e-324, "bytes_per_ns": 1.0, "origin": ""},
            "peaks.flops_per_ns: value 5e-324 is outside 1e-09..",
        ),
    ],
)
def test_what_cannot_be_is_refused(place: Sequence[str | int], value: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(MalformedLog) as refused:
        read_schematic(changed(tmp_path / "net_schematic.bin", place, value))
    assert said in str(refused.value) and len(str(refused.value)) < 500


def test_a_launch_that_the_log_has_not_is_refused(tmp_path: Path) -> None:
    schematic = read_schematic(changed(tmp_path / "net_schematic.bin", (*OPERATION, "launches"), [0, 10**9]))
    log = made_up.read(made_up.written([NET], made_up.inferences(1, [1, 2])))
    with pytest.raises(MalformedLog, match="operation 'conv' has a launch that graph 'net' does not have"):
        profile_of([log], schematic)


def test_the_models_name_names_files_in_their_own_folder_only(tmp_path: Path) -> None:
    profile = rich_profile()
    assert profile.schematic is not None
    for model in ("../../net.onnx", "C:\\net.onnx", "net\0.onnx", "n" * 500, ""):
        named = profile_of(profile.logs, replace(profile.schematic, model=model))
        written = write_output(named, Features(), tmp_path / "a.csv", SILENT)
        assert [path.parent for path in written] == [tmp_path, tmp_path]
        assert all(path.exists() for path in written)
