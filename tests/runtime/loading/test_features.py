"""Test that a device which computes nothing runs contexts whatever features their graphs need."""

from dataclasses import replace
from pathlib import Path

from gputune.runtime.backends import open_backend
from gputune.runtime.context.format import open_context, write_context
from gputune.runtime.context.records import Context
from gputune.runtime.devices.discovery import NULL_REPORT
from gputune.runtime.loading.executors import executor_on


def test_a_device_that_computes_nothing_needs_nothing(context: Context, tmp_path: Path) -> None:
    (program,) = context.programs
    programs = (replace(program, needs=("half", "sorcery")),)
    write_context(tmp_path / "needing.bin", replace(context, programs=programs, computes=True))
    with open_context(tmp_path / "needing.bin") as file:
        executor_on(open_backend(NULL_REPORT), file, "other", strict=False).close()
