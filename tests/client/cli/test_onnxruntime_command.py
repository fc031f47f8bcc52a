"""Test `gputune onnxruntime build`: it prints where the library is, and writes it elsewhere, too."""

import logging
import sys
from pathlib import Path

import pytest

from gputune.runtime.native import building
from gputune.runtime.native.building import NotBuilt
from tests.client.commands import Gputune


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "native" / "onnxruntime-0.so"
    path.parent.mkdir()
    path.write_bytes(b"machine code")

    def native_part(name: str) -> Path:
        assert name == "onnxruntime"
        logging.getLogger("gputune.runtime.native.building").info("building it")
        return path

    monkeypatch.setattr(building, "native_part", native_part)
    monkeypatch.delenv("GPUTUNE_ONNXRUNTIME_LIBRARY", raising=False)
    return path


def test_it_prints_the_path_alone(gputune: Gputune, library: Path) -> None:
    ran = gputune("onnxruntime", "build")
    assert (ran.code, ran.out, ran.err) == (0, f"{library}\n", "building it\n")


def test_the_library_is_written_elsewhere_too(gputune: Gputune, library: Path, tmp_path: Path) -> None:
    output = tmp_path / "new" / "lib.so"
    ran = gputune("onnxruntime", "build", "--output", output)
    assert (ran.code, ran.out) == (0, f"{output}\n")
    assert output.read_bytes() == library.read_bytes() == b"machine code"


def test_an_output_that_cannot_be_written_stops_it_before(gputune: Gputune, library: Path, tmp_path: Path) -> None:
    ran = gputune("onnxruntime", "build", "--output", library / "inner")
    assert (ran.code, "building" in ran.err) == (6, False)


def test_another_library_in_the_environment_is_named(
    gputune: Gputune, library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUTUNE_ONNXRUNTIME_LIBRARY", "/opt/lib.so")
    ran = gputune("onnxruntime", "build")
    assert ran.out == f"{library}\n"
    assert (
        ran.last_line == "note: GPUTUNE_ONNXRUNTIME_LIBRARY names the library that onnxruntime loads here: /opt/lib.so"
    )


def test_why_nothing_is_built_is_a_line(gputune: Gputune, monkeypatch: pytest.MonkeyPatch) -> None:
    def native_part(name: str) -> Path:
        raise NotBuilt("there is no C compiler")

    monkeypatch.setattr(building, "native_part", native_part)
    ran = gputune("onnxruntime", "build")
    assert (ran.code, ran.err) == (1, "error: the library for onnxruntime cannot be built: there is no C compiler\n")


def test_it_needs_no_onnxruntime(gputune: Gputune, library: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert gputune("onnxruntime", "build").code == 0
