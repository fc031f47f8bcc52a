"""Test --adb: the bundle goes to a device with a bare Python, a model is tuned there, and its context runs there."""

import functools
import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from gputune.client.target.adb.bundle import bundle_bytes
from tests.client import models
from tests.client.commands import Gputune, config_file, read_json
from tests.devices import few_rounds

from .bare import bare_python, driver_settings
from .conftest import Adb
from .phone import Phone

Make = Callable[..., Phone]


@pytest.fixture
def gputune(capfd: pytest.CaptureFixture[str]) -> Gputune:
    return Gputune(capfd)


@pytest.fixture
def bare(make_phone: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Makes devices that have a Python with numpy and pyopencl only, for a bundle that does not change meanwhile."""
    monkeypatch.setattr("gputune.client.target.adb.target.bundle_bytes", functools.cache(bundle_bytes))
    python = bare_python(tmp_path / "bare")

    def make(**environment: str) -> Phone:
        phone = make_phone(environment=environment)
        phone.program("/data/local/py", f'#!/bin/sh\nexec {python} "$@"\n')
        return phone

    return make


def small_model() -> onnx.ModelProto:
    """An operation with a small tuning space."""
    return models.build("(float[1,3,9,7] x) => (float[1,3] y)", "y = ReduceMean<axes=[2,3], keepdims=0>(x)")


def tune_and_run(gputune: Gputune, phone: Phone, folder: Path) -> None:
    """Tunes a small model on the device and runs it there, by the command line."""
    models.save(small_model(), folder)
    np.random.default_rng(3).standard_normal((1, 3, 9, 7)).astype(np.float32).tofile(folder / "x.raw")
    (folder / "inputs.txt").write_text(f"x:={folder / 'x.raw'}\n", encoding="utf-8")
    connect = ("--adb", phone.serial, "--adb_python", "/data/local/py", "--log_level", "info")
    with few_rounds():
        tuned = gputune(
            *("context-binary-generator", "--model", folder / "model.onnx", "--binary_file", "small"),
            *("--output_dir", folder, "--config_file", config_file(folder), "--tuning_effort", "quick", *connect),
            *("--summary_json", folder / "tuned.json"),
        )
    assert tuned.code == 0, tuned.err
    assert "copying the target server to device" in tuned.out + tuned.err
    ran = gputune(
        *("net-run", "--retrieve_context", folder / "small.bin", "--input_list", folder / "inputs.txt"),
        *("--output_dir", folder / "results", *connect),
    )
    assert ran.code == 0, ran.err
    assert "copying the target server to device" not in ran.out + ran.err


def is_left_as_it_was(adb: Adb, phone: Phone) -> bool:
    """No forwarded port, no token, no process; only the bundle."""
    files = [path.name for path in phone.path("/data/local/tmp/gputune").rglob("*") if path.is_file()]
    running = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(phone.root).encode() in _bytes(path)]
    return len(files) == 1 and files[0].endswith(".pyz") and not running and not adb.forwards()


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


@pytest.mark.slow
def test_a_model_is_tuned_and_run_on_a_null_device(adb: Adb, bare: Make, gputune: Gputune, tmp_path: Path) -> None:
    phone = bare(GPUTUNE_DEVICE="null")
    tune_and_run(gputune, phone, tmp_path)
    assert read_json(tmp_path / "tuned.json")["tasks"]
    assert is_left_as_it_was(adb, phone)


@pytest.mark.opencl
@pytest.mark.slow
def test_a_model_is_tuned_and_run_on_a_device(adb: Adb, bare: Make, gputune: Gputune, tmp_path: Path) -> None:
    phone = bare(**driver_settings())
    tune_and_run(gputune, phone, tmp_path)
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    (name,) = (output.name for output in session.get_outputs())
    x = np.fromfile(tmp_path / "x.raw", np.float32).reshape(1, 3, 9, 7)
    (want,) = session.run(None, {"x": x})
    got = np.fromfile(tmp_path / "results" / "Result_0" / f"{name}.raw", np.float32).reshape(want.shape)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-4 * np.abs(want).max())
    assert is_left_as_it_was(adb, phone)


def test_a_phone_without_a_python_is_one_clear_line(make_phone: Make, gputune: Gputune, tmp_path: Path) -> None:
    phone = make_phone()
    models.save(small_model(), tmp_path)
    ran = gputune(
        *("context-binary-generator", "--model", tmp_path / "model.onnx", "--binary_file", "small"),
        *("--output_dir", tmp_path, "--config_file", config_file(tmp_path), "--adb"),
    )
    assert ran.code == 4
    assert re.search(rf"no Python of device {phone.serial} can run the target server .*\[adb_python\]$", ran.last_line)
