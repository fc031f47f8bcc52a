"""Provide a small context binary of the null device."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gputune.runtime.backends import open_backend
from gputune.runtime.context.format import write_context
from gputune.runtime.context.records import (
    BufferRef,
    Context,
    GraphRecord,
    LaunchRecord,
    ModelRecord,
    ProgramRecord,
    TensorRecord,
)
from gputune.runtime.devices.discovery import NULL_REPORT

DEVICE: dict[str, Any] = NULL_REPORT.identity.to_dict() if NULL_REPORT.identity else {}
SOURCE = "__kernel void f(__global float *a, __global float *b) {}"


def small_context(
    path: Path,
    arenas: tuple[int, ...] = (),
    names: tuple[str, ...] = ("main",),
    bound: int = 0,
    device: dict[str, Any] = DEVICE,
    tensors: tuple[tuple[str, ...], tuple[str, ...]] = (("x",), ("y",)),
    made_from: Sequence[ModelRecord] = (),
    shape: tuple[int, ...] = (8,),
    **config: Any,
) -> Path:
    """Writes the graph main, or those of other names: x[2, 4] to y[8] in one operation, called double.
    bound: of the arenas; device: which made it, whose name is its tier; tensors: the names of inputs and outputs;
    made_from: the files of its models; shape: of y."""
    program = open_backend(NULL_REPORT).build(SOURCE, "")
    arguments = (BufferRef("input", 0, 0, 32), BufferRef("output", 0, 0, 32))
    launch = LaunchRecord("double", "0" * 64, 0, "f", (8,), (4,), arguments)
    graphs = [
        GraphRecord(
            name,
            tuple(TensorRecord(tensor, (2, 4)) for tensor in tensors[0]),
            tuple(TensorRecord(tensor, shape) for tensor in tensors[1]),
            (launch,),
            arenas,
            arena_bound_bytes=bound,
        )
        for name in names
    ]
    programs = (ProgramRecord(program.binary or b"", SOURCE, ""),)
    tier, computes = device["name"], device is not DEVICE
    made = Context(graphs, programs, (), device, tier, config, {"gputune": "0.1.0"}, computes, models=made_from)
    write_context(path, made)
    return path
