"""Test the plugin from C: an application, each verdict, the exported names, and versions that are too old."""

import ctypes
import dataclasses
import re
import subprocess
from pathlib import Path

import pytest

from gputune.client.generation.ep_context import EpContextFile
from gputune.runtime.context.ep_context import compatibility_info
from gputune.runtime.context.format import read_header
from tests.client.contexts import small_context
from tests.native.compiling import INCLUDE, compiled, library, sanitizers
from tests.native.fake import DEVICE, STAGES, compact_context, doubling_context
from tests.onnxruntime.sessions import Onnxruntime, plugin
from tests.project.sources import ROOT


@pytest.fixture(scope="module")
def application(c_compiler: str) -> Path:
    source = Path(__file__).with_name("application.c")
    flags = ("-O2", "-g", f"-I{INCLUDE}", *sanitizers())
    return compiled("application", [source, library()], flags)


def ends_well(application: Path, ort: Onnxruntime, model: Path, context: Path, *more: str) -> list[str]:
    """The lines of the application."""
    command = [str(one) for one in (application, ort.library(), plugin(), model, context, 3, *more)]
    ran = subprocess.run(command, env=ort.environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout.splitlines()


def test_an_application_runs_and_ends(application: Path, ort: Onnxruntime, tmp_path: Path) -> None:
    """A GPU that onnxruntime does not know becomes hardware of ours where it allows that, else ours is the CPU's."""
    binary = doubling_context(tmp_path / "a.bin")
    EpContextFile(tmp_path / "a.onnx", False).write(binary)
    device, outputs, *_ = ends_well(application, ort, tmp_path / "a.onnx", binary)
    assert device == ("device cpu" if ort.is_oldest else "device gpu")
    assert outputs == "equal"


def test_the_verdict_on_a_model_is_that_on_its_context(application: Path, ort: Onnxruntime, tmp_path: Path) -> None:
    """0: not ours, 1: optimal, 2: it would be built from source, 3: unsupported."""
    binary = doubling_context(tmp_path / "a.bin")
    EpContextFile(tmp_path / "a.onnx", False).write(binary)
    other = dataclasses.replace(DEVICE, driver_version="0.9")
    line = compatibility_info(read_header(binary))
    for text, verdict in (
        (line, 1),
        (compatibility_info(read_header(compact_context(tmp_path / "b.bin", [1.0]))), 1),
        (compatibility_info(read_header(doubling_context(tmp_path / "c.bin", device=other))), 2),
        (compatibility_info(read_header(small_context(tmp_path / "d.bin"))), 3),
        (re.sub("format [34]", "format 5", line), 3),
        ("made by others", 0),
        ("", 0),
    ):
        assert ends_well(application, ort, tmp_path / "a.onnx", binary, text)[1] == f"verdict {verdict}", text


def test_without_opencl_there_is_no_device_and_a_line(newest: Onnxruntime, tmp_path: Path) -> None:
    missing = tmp_path / "libOpenCL.so"
    ran = newest.with_variables(GPUTUNE_OPENCL_LIBRARY=str(missing)).do(("devices", {}))
    assert ran.results == [[]]
    assert f"gputune has no device: {missing} is no library with OpenCL 1.2" in ran.log
    assert len(ran.log.splitlines()) == 1


def test_the_device_is_described(ort: Onnxruntime) -> None:
    ((kind, about),) = ort.do(("devices", {})).results[0]
    assert kind == ("CPU" if ort.is_oldest else "GPU")
    assert about.items() >= {"opencl_device": "Fake GPU", "opencl_platform": "Fake", "driver_version": "1.0"}.items()


def test_two_names_are_exported(c_compiler: str) -> None:
    listed = subprocess.run(["nm", "-D", "--defined-only", plugin()], capture_output=True, text=True, check=True)
    names = [line.split()[-1] for line in listed.stdout.splitlines()]
    assert [name for name in names if not name.startswith(("__asan", "__ubsan"))] == [
        "CreateEpFactories",
        "ReleaseEpFactory",
    ]


def test_an_older_onnxruntime_is_refused_with_a_line(c_compiler: str) -> None:
    said: list[bytes] = []

    def say(code: int, line: bytes) -> int:
        said.append(line)
        return 1

    create_status = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)(say)
    first_table = (ctypes.c_void_p * 1)(ctypes.cast(create_status, ctypes.c_void_p))
    get_api = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_uint32)(
        lambda version: ctypes.addressof(first_table) if version <= 22 else None
    )
    version = ctypes.create_string_buffer(b"1.22.1")
    get_version = ctypes.CFUNCTYPE(ctypes.c_void_p)(lambda: ctypes.addressof(version))
    base = (ctypes.c_void_p * 2)(*(ctypes.cast(function, ctypes.c_void_p) for function in (get_api, get_version)))
    create = ctypes.CDLL(str(plugin())).CreateEpFactories
    create.restype = ctypes.c_void_p
    factories, count = (ctypes.c_void_p * 4)(), ctypes.c_size_t(9)
    assert create(b"gputune", base, None, factories, ctypes.c_size_t(4), ctypes.byref(count)) == 1
    assert said == [b"gputune needs onnxruntime 1.23 or newer, and this is 1.22.1"]
    assert count.value == 0 and not factories[0]


def test_the_example_in_c_runs(c_compiler: str, ort: Onnxruntime, tmp_path: Path) -> None:
    """It prints what the context computes, which is its numbers doubled several times."""
    source = ROOT / "examples" / "onnxruntime_session.c"
    example = compiled("onnxruntime_session", [source], ("-O2", *sanitizers()))
    binary = doubling_context(tmp_path / "a.bin")
    EpContextFile(tmp_path / "a.onnx", False).write(binary)
    (graph,) = read_header(binary).graphs
    shape = ",".join(map(str, graph.inputs[0].shape))
    words = (
        example,
        ort.library(),
        plugin(),
        tmp_path / "a.onnx",
        f"{graph.inputs[0].name}={shape}",
        graph.outputs[0].name,
    )
    ran = subprocess.run(list(map(str, words)), env=ort.environment, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    name, _, numbers = ran.stdout.splitlines()[-1].partition(": ")
    assert name == graph.outputs[0].name
    assert [float(each) for each in numbers.split()] == pytest.approx(
        [2**STAGES * (i * 37 % 101) / 101 for i in range(8)], rel=1e-4
    )
