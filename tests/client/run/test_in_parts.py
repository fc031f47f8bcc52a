"""Test what commands refuse to do with a model in parts, and how they show it; no device is needed."""

from pathlib import Path

import pytest

from gputune.client.errors import DeviceOrContextError
from tests.client.commands import Gputune
from tests.native.fake import doubling_context
from tests.onnxruntime.models import save_in_parts


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save_in_parts(tmp_path / "model.onnx", doubling_context(tmp_path / "parts.bin", ("one", "two")))


@pytest.mark.parametrize(
    "options",
    [
        ("--target", "localhost:1"), ("--adb",), ("--graph", "one"), ("--shared_buffer",), ("--keep_warm",),
    ],
)  # fmt: skip
def test_what_needs_a_context_alone_is_refused(gputune: Gputune, model: Path, options: tuple[str, ...]) -> None:
    done = gputune("net-run", "--retrieve_context", model, *options)
    assert done.code == 2
    what = f"{model} is a model in parts, which onnxruntime runs on this machine"
    assert done.last_line == f"error: {options[0]} is for contexts, but {what}; omit {options[0]}"


def test_it_runs_alone_and_at_levels_that_the_plugin_has(gputune: Gputune, model: Path) -> None:
    done = gputune("net-run", "--retrieve_context", f"{model.with_name('parts.bin')},{model}")
    assert done.code == 2 and done.last_line.endswith("; run it alone, without other files")
    done = gputune("net-run", "--retrieve_context", model, "--profiling_level", "qhas")
    assert done.code == 2 and done.last_line.endswith("; its levels are basic and detailed")


def test_other_commands_say_what_it_is(gputune: Gputune, model: Path) -> None:
    ran = gputune("context-binary-utility", "--context_binary", model)
    assert ran.code == 0 and "a model in parts: its other 3 nodes run in onnxruntime" in ran.out
    assert "EPContext node 'two': max_size" in ran.out
    ran = gputune("export", "--context_binary", model, "--output_dir", model.with_name("exported"))
    assert ran.code == DeviceOrContextError.exit_code and "but a whole context is needed here" in ran.last_line
    config = model.with_name("throughput.json")
    config.write_text(f'{{"contexts": [{{"path": "{model}"}}]}}')
    ran = gputune("throughput-net-run", "--config_file", config)
    assert ran.code == DeviceOrContextError.exit_code and "but a whole context is needed here" in ran.last_line
    binary = model.with_name("parts.bin")
    ran = gputune("net-run", "--retrieve_context", model, "--summary_json", binary)
    assert ran.code == 2 and f"{binary} would overwrite a file of --retrieve_context" in ran.last_line
