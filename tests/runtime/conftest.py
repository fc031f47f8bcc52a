"""Provide the null device and a small context of it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gputune.runtime.backends import Backend, open_backend
from gputune.runtime.context.format import write_context
from gputune.runtime.context.records import BufferRef, Context, GraphRecord, LaunchRecord, ProgramRecord, TensorRecord
from gputune.runtime.devices.discovery import NULL_REPORT

BINARY_OPTIONS = "-DN=8"
SOURCE = "__kernel void f(__global float *a) {}"


@pytest.fixture
def null() -> Backend:
    return open_backend(NULL_REPORT)


@pytest.fixture
def context() -> Context:
    """x[2, 4] -> arena -> y[8] through two launches that share a program, with two weights in one section."""
    program = open_backend(NULL_REPORT).build(SOURCE, BINARY_OPTIONS)
    assert program.binary is not None and NULL_REPORT.identity is not None

    def launch(name: str, *arguments: BufferRef | int) -> LaunchRecord:
        return LaunchRecord(name, "0" * 64, 0, "f", (8,), (4,), arguments)

    between = BufferRef("arena", 0, 128, 32)
    first = launch("first", BufferRef("input", 0, 0, 32), BufferRef("weights", 0, 128, 32), between, 3)
    second = launch("second", between, BufferRef("weights", 0, 0, 32), BufferRef("output", 0, 0, 32), -1)
    graph = GraphRecord(
        "main", (TensorRecord("x", (2, 4)),), (TensorRecord("y", (8,)),), (first, second), arena_bytes=(256,)
    )
    return Context(
        graphs=(graph, replace(graph, name="other", launches=(first,))),
        programs=(ProgramRecord(program.binary, SOURCE, BINARY_OPTIONS),),
        weights=(np.arange(40, dtype=np.float32),),
        device=NULL_REPORT.identity.to_dict(),
        tier="null",
        configuration={"tuning_effort": "none"},
        versions={"gputune": "0.1.0"},
        computes=False,
    )


@pytest.fixture
def context_path(context: Context, tmp_path: Path) -> Path:
    path = tmp_path / "context.bin"
    write_context(path, context)
    return path
