"""Test that wrong calls are refused by one line in the style of all errors, and change nothing."""

import shlex
import shutil
from pathlib import Path

import pytest

from gputune.client.run.packages import combine
from tests.client import models
from tests.client.commands import Gputune, config_file
from tests.client.contexts import DEVICE, small_context
from tests.client.viewer.made_up_profiles import NAMES
from tests.native.fake import doubling_context
from tests.native.stateful import stateful_context
from tests.onnxruntime.models import save_in_parts
from tests.runtime.profiling import made_up

LINES = Path(__file__).with_name("wrong_calls.txt").read_text(encoding="utf-8").splitlines()
CALLS = [line.split(" | ") for line in LINES if line and not line.startswith("#")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that calls may name."""
    made = tmp_path_factory.mktemp("wrong calls")
    models.save(models.conv_relu_gemm(), made).rename(made / "m.onnx")
    shutil.copy(made / "m.onnx", made / "renamed.bin")
    config_file(made, target="a:1").rename(made / "farm.json")
    small_context(made / "c.bin")
    for name in "ab":
        small_context(made / f"{name}.bin", device={**DEVICE, "name": name, "platform": "x"})
    small_context(made / "else.bin", names=("else",), device={**DEVICE, "name": "else", "platform": "x"})
    combine(made / "m.gtpkg", [made / "a.bin", made / "b.bin"])
    inferences = made_up.inferences(3, [40_000, 7_000, 90_000, 1_000])
    made_up.write_log(made / "a.log", [made_up.graph(NAMES)], inferences)
    (made / "on.json").write_text('{"features": {"htp_json": true}}')
    (made / "other.json").write_bytes(b"\x08\xff")
    (made / "x.raw").write_bytes(bytes(32))
    (made / "list.txt").write_text("x:=x.raw\n")
    (made / "token").touch(0o600)
    (made / "token").write_text("a token of many characters")
    (made / "conv.jsonl.gz").touch()
    save_in_parts(made / "parts.onnx", doubling_context(made / "parts.bin", ("one", "two")))
    (made / "parts.json").write_text('{"contexts": [{"path": "parts.onnx"}]}')
    stateful_context(made / "state.bin", {"step": 1})
    (made / "elsewhere").mkdir()
    (made / "link").symlink_to("elsewhere")
    return made


@pytest.mark.parametrize(("code", "call", "said"), CALLS, ids=[call for _, call, _ in CALLS])
def test_a_wrong_call_is_one_line_and_changes_nothing(
    gputune: Gputune, folder: Path, monkeypatch: pytest.MonkeyPatch, code: str, call: str, said: str
) -> None:
    monkeypatch.chdir(folder)
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    ran = gputune(*shlex.split(call))
    assert (ran.code, ran.out, ran.err.count("\n")) == (int(code), "", 1), ran.err
    assert said in ran.last_line
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
