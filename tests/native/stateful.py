"""Write contexts for the library of fake_opencl.c whose graphs remember what they were given two inferences before."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from gputune.core.identity import DeviceIdentity
from gputune.runtime.context.format import write_context
from gputune.runtime.context.records import BufferRef, Context, GraphRecord, LaunchRecord, ProgramRecord, TensorRecord
from gputune.runtime.context.states import FIXED, StatePair, StateRecord, TokenAxis
from tests.native.fake import DEVICE, ELEMENTS, NBYTES, SOURCE

CAPACITY = 8
LATER = 8
"""y is so many times the x of two inferences before."""
PAIRS = ("a", "b")


def stateful_context(
    path: Path,
    graphs: Mapping[str, int],
    axis: int = 0,
    row: int = ELEMENTS // CAPACITY,
    capacity: int = CAPACITY,
    source: str = SOURCE,
    device: DeviceIdentity = DEVICE,
    pairs: Sequence[str] = PAIRS,
) -> Path:
    """Graphs, by name, that add so many rows to a state; 0: to a fixed one. Each computes next a = 2 x, next b = 2 a
    and y = 2 b. One that grows also gives twice the length on the device of the library. axis: of the rows, N
    of a graph "of N"; row: elements of one; source: of a kernel that doubles floats; pairs: in the order of the
    record."""
    records = []
    for name, tokens in graphs.items():
        rows = int(name[3:]) if name.startswith("of ") else capacity
        shape = (rows, row) if axis == 0 else (row, rows)
        records.append(_graph(name, tokens, axis, shape, pairs, device is DEVICE))
    programs = (ProgramRecord(source.encode(), source, ""),)
    write_context(path, Context(records, programs, (), device.to_dict(), "fake", {}, {}, True))
    return path


def _graph(
    name: str, tokens: int, axis: int, shape: tuple[int, int], order: Sequence[str], doubles_length: bool
) -> GraphRecord:
    rows = (tokens or 1, ELEMENTS // (tokens or 1))
    inputs = [TensorRecord("x", rows), *(TensorRecord(pair, shape, memory_type="memhandle") for pair in PAIRS)]
    outputs = [TensorRecord("y", rows)]
    outputs += [TensorRecord(f"next {pair}", shape, memory_type="memhandle") for pair in PAIRS]
    stages = [(0, 1), (1, 2), (2, 0)]  # from inputs to outputs
    if tokens:
        inputs.append(TensorRecord("length", (), "int32"))
    if tokens and doubles_length:
        outputs.append(TensorRecord("twice the length", (), "int32"))
        stages.append((3, 3))
    kept = 4 * shape[0] * shape[1]
    nbytes = [NBYTES, kept, kept, 4]
    launches = tuple(
        LaunchRecord(
            f"op {at}", "0" * 64, 0, "twice", (ELEMENTS,), (4,),
            (BufferRef("input", at, 0, nbytes[at]), BufferRef("output", to, 0, nbytes[to])),
        )
        for at, to in stages
    )  # fmt: skip
    pairs = tuple(StatePair(pair, f"next {pair}", axis if tokens else FIXED) for pair in order)
    states = StateRecord("", 0, 0, (), (), pairs)
    if tokens:
        states = StateRecord("length", tokens, shape[axis], (TokenAxis("x", 0),), (TokenAxis("y", 0),), pairs)
    return GraphRecord(name, tuple(inputs), tuple(outputs), launches, (), states=states)
