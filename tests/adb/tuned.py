"""Tune a small model on a device over adb, and look what is left of that."""

import re
from pathlib import Path

import numpy as np
import onnx
import onnxruntime

from tests.client import models
from tests.client.commands import Gputune, config_file
from tests.devices import few_rounds

from .conftest import Adb
from .phone import Phone


def small_model() -> onnx.ModelProto:
    """An operation with a small tuning space."""
    return models.build("(float[1,3,9,7] x) => (float[1,3] y)", "y = ReduceMean<axes=[2,3], keepdims=0>(x)")


def tune_and_run(gputune: Gputune, phone: Phone, folder: Path, *options: str) -> str:
    """Tunes a small model on the device and runs it there, by the command line; what the commands said."""
    models.save(small_model(), folder)
    np.random.default_rng(3).standard_normal((1, 3, 9, 7)).astype(np.float32).tofile(folder / "x.raw")
    (folder / "inputs.txt").write_text(f"x:={folder / 'x.raw'}\n", encoding="utf-8")
    connect = ("--adb", phone.serial, *options, "--log_level", "info")
    with few_rounds():
        tuned = gputune(
            *("context-binary-generator", "--model", folder / "model.onnx", "--binary_file", "small"),
            *("--output_dir", folder, "--config_file", config_file(folder), "--tuning_effort", "quick", *connect),
            *("--summary_json", folder / "tuned.json"),
        )
    assert tuned.code == 0, tuned.err
    assert re.search("copying the (target server|agent) to device", tuned.out + tuned.err)
    ran = gputune(
        *("net-run", "--retrieve_context", folder / "small.bin", "--input_list", folder / "inputs.txt"),
        *("--output_dir", folder / "results", *connect),
    )
    assert ran.code == 0, ran.err
    assert "to device" not in ran.out + ran.err
    return tuned.out + tuned.err + ran.out + ran.err


def check_results(folder: Path) -> None:
    """Compare what tune_and_run has left in a folder with onnxruntime."""
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    (name,) = (output.name for output in session.get_outputs())
    x = np.fromfile(folder / "x.raw", np.float32).reshape(1, 3, 9, 7)
    (want,) = session.run(None, {"x": x})
    got = np.fromfile(folder / "results" / "Result_0" / f"{name}.raw", np.float32).reshape(want.shape)
    np.testing.assert_allclose(got, want, rtol=0, atol=1e-4 * np.abs(want).max())


def is_left_as_it_was(adb: Adb, phone: Phone) -> bool:
    """No forwarded port, no token, no process; only the program."""
    files = [path.name for path in phone.path("/data/local/tmp/gputune").rglob("*") if path.is_file()]
    running = [path for path in Path("/proc").glob("[0-9]*/cmdline") if str(phone.root).encode() in _bytes(path)]
    return len(files) == 1 and files[0].startswith(("server-", "agent-")) and not running and not adb.forwards()


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
