"""Test that every reader of foreign files refuses a named pipe at once."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gputune.client.errors import ConfigError
from gputune.client.input_lists import InputLine, read_input_list, read_inputs
from gputune.client.strict_json import read_object
from gputune.client.viewer.schematic import read_schematic
from gputune.runtime.context.ep_context import ep_contexts
from gputune.runtime.context.records import TensorRecord
from gputune.runtime.devices.recording import BadRecording, lines_of
from gputune.runtime.power.profiles.yaml_form import read_yaml
from gputune.runtime.profiling.log import read_log

X = (TensorRecord("x", (2,)),)


def inputs(path: Path) -> object:
    return read_inputs(InputLine({"x": path}, "list:1"), X)


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    if not hasattr(os, "mkfifo"):
        pytest.skip("there are no named pipes")
    os.mkfifo(tmp_path / "pipe.npy")
    return tmp_path / "pipe.npy"


@pytest.mark.parametrize(
    ("read", "error"),
    [
        (lambda path: read_input_list(path, X), ConfigError),
        (inputs, ConfigError),
        (lambda path: inputs(path.rename(path.with_suffix(".raw"))), ConfigError),
        (read_object, ConfigError),
        (read_schematic, OSError),
        (read_log, OSError),
        (read_yaml, OSError),
        (ep_contexts, OSError),
        (lines_of, BadRecording),
    ],
)
def test_readers_do_not_wait_for_it(pipe: Path, read: Callable[[Path], object], error: type[Exception]) -> None:
    with pytest.raises(error, match="it is a named pipe and no file"):
        read(pipe)
