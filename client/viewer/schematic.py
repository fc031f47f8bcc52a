"""Read and write the schematic, which says what a context's launches stand for.

The generator writes it. The viewer reads it together with a profile log, which has times but no model. It is a JSON
file, whatever its suffix.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from gputune.client.outputs import write_json
from gputune.core.bounds import Amount, CText, Stored, Within, in_files
from gputune.core.decoder import record_of
from gputune.core.errors import MalformedLog, shortened
from gputune.core.files import open_file
from gputune.core.json_text import json_value

KIND = "gputune-schematic"
VERSION = 1
LARGEST_BYTES = 1 << 28
MOST = 1 << 50
"""Of bytes, floating-point operations and ns of an operation or a tensor: sums of thousands fit into 64 bits."""
Number = Annotated[int, Within(0, MOST)]
Time = Annotated[float, Within(0, MOST)]
Rate = Annotated[float, Within(1e-9, 1e9)]


@in_files()
@dataclass(frozen=True)
class TensorPlan:
    """A tensor of a graph. kind: where it lies: memory of an input or output, an arena, or among the weights; arena,
    offset: in bytes, where it lies in one. first, last: the places of the operations between which it is needed, both
    included; -1 and the number of operations for what the application has before and keeps behind."""

    name: CText
    shape: tuple[Amount, ...]
    dtype: CText
    nbytes: Number
    kind: Annotated[str, Stored(Literal["input", "output", "arena", "constant"], str)]
    arena: Amount
    offset: Amount
    first: int
    last: int


@in_files()
@dataclass(frozen=True)
class OperationPlan:
    """An operation in the order in which they run. launches: the places of its launches; nodes: the ONNX nodes that it
    stands for; inputs: tensors by the kernel's names for them; flops, nbytes: what it computes and moves at least;
    configuration: what runs, and default: what would untuned; alone_ns, default_ns: what both took when they were tuned
    alone, None where that was not measured."""

    name: CText
    op: CText
    task: CText
    problem: Mapping[str, Any]
    configuration: Mapping[str, Any]
    default: Mapping[str, Any]
    alone_ns: Time | None
    default_ns: Time | None
    flops: Number
    nbytes: Number
    nodes: tuple[CText, ...]
    inputs: Mapping[str, str]
    output: CText
    launches: tuple[Amount, ...]


@in_files()
@dataclass(frozen=True)
class GraphPlan:
    """A graph. digest: of its launches, which a log names; nodes: the types of its ONNX nodes by their names; inputs,
    outputs: names of tensors; aliases: by its name, the tensor whose memory another one is."""

    name: CText
    digest: CText
    inputs: tuple[CText, ...]
    outputs: tuple[CText, ...]
    tensors: tuple[TensorPlan, ...]
    operations: tuple[OperationPlan, ...]
    aliases: Mapping[str, str]
    nodes: Mapping[str, str]
    arena_bytes: tuple[Number, ...]
    arena_bound_bytes: Number

    def edges(self) -> list[tuple[int, int, str]]:
        """From the place of an operation to that of one which reads its output, and the tensor."""
        writer: dict[str, int] = {}
        found: list[tuple[int, int, str]] = []
        for place, one in enumerate(self.operations):
            for tensor in dict.fromkeys(one.inputs.values()):
                if (before := writer.get(self._root(tensor))) is not None:
                    found.append((before, place, tensor))
            writer[self._root(one.output)] = place
        return found

    def held_bytes(self, arena: int | None = None) -> list[int]:
        """Bytes that tensors hold in an arena, or in all of them, while each operation runs. Memory that several names
        share counts once."""
        count = len(self.operations)
        changes = [0] * (count + 1)
        for tensor in self.tensors:
            first, last = max(tensor.first, 0), min(tensor.last, count - 1)
            here = tensor.kind == "arena" and arena in (None, tensor.arena)
            if here and tensor.name not in self.aliases and first <= last:
                changes[first] += tensor.nbytes
                changes[last + 1] -= tensor.nbytes
        return list(itertools.accumulate(changes[:count]))

    def _root(self, tensor: str) -> str:
        return self.aliases.get(tensor, tensor)


@in_files()
@dataclass(frozen=True)
class RooflinePeaks:
    """The best rates that were measured on the device; origin says by what, for people."""

    flops_per_ns: Rate
    bytes_per_ns: Rate
    origin: CText


@in_files("peaks")
@dataclass(frozen=True)
class Schematic:
    """Of a context. model: the ONNX file's name and its SHA-256, of several their names with commas between and the
    SHA-256 of theirs; context: the file's name; device:
    DeviceIdentity.to_dict(); peaks: None where none were measured."""

    model: CText
    model_sha256: CText
    context: CText
    software: CText
    tier: CText
    device: Mapping[str, Any]
    graphs: tuple[GraphPlan, ...]
    peaks: RooflinePeaks | None = None

    def graph(self, digest: str) -> GraphPlan | None:
        """Return the graph whose launches have this digest."""
        return next((one for one in self.graphs if one.digest == digest), None)


def write_schematic(path: Path, schematic: Schematic) -> None:
    """Write the file. Raises OutputError."""
    write_json(path, {"kind": KIND, "version": VERSION, **asdict(schematic)})


def read_schematic(path: Path) -> Schematic:
    """Read a schematic. Raises MalformedLog for a file that is none, or contradicts itself; OSError."""
    with open_file(path) as file:
        content = file.read(LARGEST_BYTES + 1)
    try:
        if len(content) > LARGEST_BYTES:
            raise ValueError(f"more than {LARGEST_BYTES} bytes")
        found = json_value(content)
        json.dumps(found, ensure_ascii=False).encode()  # halves of surrogate pairs, which no file takes, are escaped
    except ValueError as error:
        raise MalformedLog(f"{path} is no schematic: {str(error)[:200] or type(error).__name__}") from None
    if not isinstance(found, dict) or found.get("kind") != KIND:
        raise MalformedLog(f"{path} is no schematic")
    if (version := found.get("version")) != VERSION:
        raise MalformedLog(f"{path} is a schematic of version {version!r:.40}, this gputune reads version {VERSION}")
    schematic = record_of(Schematic, found, str(path), MalformedLog)
    for graph in schematic.graphs:
        _check(graph)
    return schematic


def _check(graph: GraphPlan) -> None:
    """Check what ties the fields together: names and places."""
    known = {tensor.name for tensor in graph.tensors}
    named = {
        *graph.inputs,
        *graph.outputs,
        *(name for one in graph.operations for name in (*one.inputs.values(), one.output)),
    }
    where = f"graph {shortened([graph.name])}"
    if missing := sorted(named - known):
        raise MalformedLog(f"{where} has no tensor {shortened(missing[:1])}, which it names")
    if unplaced := [one.name for one in graph.tensors if one.kind == "arena" and one.arena >= len(graph.arena_bytes)]:
        raise MalformedLog(f"{where}: tensor {shortened(unplaced[:1])} lies in an arena that does not exist")
