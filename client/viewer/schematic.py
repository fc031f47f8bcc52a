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
from typing import Any

from gputune.client.outputs import write_json
from gputune.core.errors import MalformedLog, shortened
from gputune.core.files import open_file
from gputune.core.json_text import json_value
from gputune.runtime.context.records import Fields

KIND = "gputune-schematic"
VERSION = 1
LARGEST_BYTES = 1 << 28
KINDS = ("input", "output", "arena", "constant")
MOST = 1 << 50
"""Of bytes, floating-point operations and ns of an operation or a tensor: sums of thousands fit into 64 bits."""
_RATES = 1e-9, 1e9


@dataclass(frozen=True)
class TensorPlan:
    """A tensor of a graph. kind: where it lies: memory of an input or output, an arena, or among the weights; arena,
    offset: in bytes, where it lies in one. first, last: the places of the operations between which it is needed, both
    included; -1 and the number of operations for what the application has before and keeps behind."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    kind: str
    arena: int
    offset: int
    first: int
    last: int


@dataclass(frozen=True)
class OperationPlan:
    """An operation in the order in which they run. launches: the places of its launches; nodes: the ONNX nodes that it
    stands for; inputs: tensors by the kernel's names for them; flops, nbytes: what it computes and moves at least;
    configuration: what runs, and default: what would untuned; alone_ns, default_ns: what both took when they were tuned
    alone, None where that was not measured."""

    name: str
    op: str
    task: str
    problem: Mapping[str, Any]
    configuration: Mapping[str, Any]
    default: Mapping[str, Any]
    alone_ns: float | None
    default_ns: float | None
    flops: int
    nbytes: int
    nodes: tuple[str, ...]
    inputs: Mapping[str, str]
    output: str
    launches: tuple[int, ...]


@dataclass(frozen=True)
class GraphPlan:
    """A graph. digest: of its launches, which a log names; nodes: the types of its ONNX nodes by their names; inputs,
    outputs: names of tensors; aliases: by its name, the tensor whose memory another one is."""

    name: str
    digest: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    tensors: tuple[TensorPlan, ...]
    operations: tuple[OperationPlan, ...]
    aliases: Mapping[str, str]
    nodes: Mapping[str, str]
    arena_bytes: tuple[int, ...]
    arena_bound_bytes: int

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


@dataclass(frozen=True)
class RooflinePeaks:
    """The best rates that were measured on the device; origin says by what, for people."""

    flops_per_ns: float
    bytes_per_ns: float
    origin: str


@dataclass(frozen=True)
class Schematic:
    """Of a context. model: the ONNX file's name and its SHA-256, of several their names with commas between and the
    SHA-256 of theirs; context: the file's name; device:
    DeviceIdentity.to_dict(); peaks: None where none were measured."""

    model: str
    model_sha256: str
    context: str
    software: str
    tier: str
    device: Mapping[str, Any]
    graphs: tuple[GraphPlan, ...]
    peaks: RooflinePeaks | None

    def graph(self, digest: str) -> GraphPlan | None:
        """The graph whose launches have this digest."""
        return next((one for one in self.graphs if one.digest == digest), None)


def write_schematic(path: Path, schematic: Schematic) -> None:
    """Writes the file. Raises OutputError."""
    write_json(path, {"kind": KIND, "version": VERSION, **asdict(schematic)})


def read_schematic(path: Path) -> Schematic:
    """Raises MalformedLog for a file that is none, or contradicts itself; OSError."""
    with open_file(path) as file:
        content = file.read(LARGEST_BYTES + 1)
    try:
        if len(content) > LARGEST_BYTES:
            raise ValueError(f"more than {LARGEST_BYTES} bytes")
        found = json_value(content)
        json.dumps(found, ensure_ascii=False).encode()  # halves of surrogate pairs, which no file takes, are escaped
    except ValueError as error:
        raise MalformedLog(f"{path} is no schematic: {str(error)[:200] or type(error).__name__}") from None
    fields = Fields(found, str(path), MalformedLog)
    if not fields.has("kind") or fields.text("kind") != KIND:
        raise MalformedLog(f"{path} is no schematic")
    if (version := fields.count("version")) != VERSION:
        raise MalformedLog(f"{path} is a schematic of version {version}, this gputune reads version {VERSION}")
    return Schematic(
        model=fields.text("model"),
        model_sha256=fields.text("model_sha256"),
        context=fields.text("context"),
        software=fields.text("software"),
        tier=fields.text("tier"),
        device=fields.map("device"),
        graphs=tuple(map(_graph, fields.maps("graphs"))),
        peaks=_peaks(found.get("peaks"), str(path)),
    )


def _peaks(value: object, place: str) -> RooflinePeaks | None:
    if value is None:
        return None
    fields = Fields(value, f"{place}: peaks", MalformedLog)
    rates = fields.number("flops_per_ns"), fields.number("bytes_per_ns")
    if not all(_RATES[0] <= rate <= _RATES[1] for rate in rates):
        raise MalformedLog(f"{place}: peaks must be from {_RATES[0]:g} to {_RATES[1]:g} per ns, they are {rates}")
    return RooflinePeaks(*rates, fields.text("origin"))


def _graph(fields: Fields) -> GraphPlan:
    graph = GraphPlan(
        name=fields.text("name"),
        digest=fields.text("digest"),
        inputs=fields.texts("inputs"),
        outputs=fields.texts("outputs"),
        tensors=tuple(map(_tensor, fields.maps("tensors"))),
        operations=tuple(map(_operation, fields.maps("operations"))),
        aliases=_by_text(fields, "aliases"),
        nodes=_by_text(fields, "nodes"),
        arena_bytes=fields.counts("arena_bytes"),
        arena_bound_bytes=fields.count("arena_bound_bytes"),
    )
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
    if max([*graph.arena_bytes, graph.arena_bound_bytes]) > MOST:
        raise MalformedLog(f"{where} has arenas of more than {MOST} bytes")
    return graph


def _tensor(fields: Fields) -> TensorPlan:
    kind = fields.text("kind")
    if kind not in KINDS:
        raise MalformedLog(f"tensor {shortened([fields.text('name')])} is of the unknown kind {kind[:40]!r}")
    return TensorPlan(
        name=fields.text("name"),
        shape=fields.counts("shape"),
        dtype=fields.text("dtype"),
        nbytes=_amount(fields, "nbytes"),
        kind=kind,
        arena=fields.count("arena"),
        offset=fields.count("offset"),
        first=fields.integer("first"),
        last=fields.integer("last"),
    )


def _operation(fields: Fields) -> OperationPlan:
    return OperationPlan(
        name=fields.text("name"),
        op=fields.text("op"),
        task=fields.text("task"),
        problem=fields.map("problem"),
        configuration=fields.map("configuration"),
        default=fields.map("default"),
        alone_ns=_time_ns(fields, "alone_ns"),
        default_ns=_time_ns(fields, "default_ns"),
        flops=_amount(fields, "flops"),
        nbytes=_amount(fields, "nbytes"),
        nodes=fields.texts("nodes"),
        inputs=_by_text(fields, "inputs"),
        output=fields.text("output"),
        launches=fields.counts("launches"),
    )


def _amount(fields: Fields, name: str) -> int:
    if (found := fields.count(name)) > MOST:
        raise MalformedLog(f"{name!r} is {found}, it can be {MOST} at most")
    return found


def _time_ns(fields: Fields, name: str) -> float | None:
    found = fields.number_or_none(name)
    if found is not None and not 0 <= found <= MOST:
        raise MalformedLog(f"{name!r} is {found:g}, it can be from 0 to {MOST}")
    return found


def _by_text(fields: Fields, name: str) -> dict[str, str]:
    found = fields.map(name)
    if not all(isinstance(value, str) for value in found.values()):
        raise MalformedLog(f"{name!r} must map texts to texts")
    return found
