"""Define what a context binary holds and the form of its header: plain maps and lists, checked field by field."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, get_args

from gputune.core.bounds import Amount, CText, Scalar, Stored, Within, in_files
from gputune.core.decoder import record_of
from gputune.core.dtypes import ELEMENT_TYPES, FLOAT
from gputune.core.errors import InvalidLaunch, LimitExceeded, MalformedHeader, UnsupportedFormatVersion, shortened
from gputune.core.identity import DeviceIdentity
from gputune.core.json_text import DEEPEST
from gputune.core.launches import OFFSET_BYTES, ArgumentForm, Launch, Stage, check_sizes
from gputune.runtime.context.states import LARGEST_RANK, StateRecord, check_states

FileKind = Literal["input", "output", "arena", "weights", "packed", "counters", "status"]
BufferKind = Literal[FileKind, "marks"]
"""marks: memory of a profiler, which no file names."""
PERSISTENT_KINDS = ("counters", "status")
"""What persistent kernels alone have."""
CONSTANT_KINDS = ("weights", "packed")
"""What is there before the first inference, and no inference changes."""
COUNTER_BYTES = 4
COUNTER_LINE_BYTES = 64
"""A persistent kernel has so much of the counters for its arrivals, and for each launch that it stands for: a line of a
CPU's cache."""
TICKS = "GPUTUNE_TICKS"
"""A macro: built with it as the name of a function that reads a clock of the device, a persistent kernel has marks as
its last argument, zeros at first. There each group leaves when it took its first portion of each launch, and when it
had finished its last one: 64-bit ticks, a pair for each launch, the pairs of a group together. Both are 0 where it had
no portion."""
STATUS_BYTES, FLAG, ROUNDS, LONGEST = 64, 0, 1, 2
"""The status that persistent kernels share with the host: a line of a CPU's cache, of 32-bit integers. The one at FLAG
is 0 until a group has waited too long, and then 1 + the place among the graph's launches from which these have to run;
at ROUNDS it says for how many rounds a group may wait at a time; at LONGEST the most that one has waited for."""
MemoryType = Literal["raw", "memhandle"]
MEMORY_TYPES: tuple[MemoryType, ...] = get_args(MemoryType)
"""What an application is going to give for a tensor: arrays, which are copied as a rule, or memory that the device uses
itself. It decides what is allocated when a context is loaded; either may be given to either."""
LARGEST_TENSOR_BYTES = 1 << 40
MOST_INFLATED = 1032
"""A byte of DEFLATE becomes so many at most, which bounds what a reader allocates by the size of the file."""
LARGEST_ARENA_BYTES = 1 << 56
MOST_DIMENSIONS = 3
"""A launch has at most so many."""
OFFSETS = "offset_arguments"
"""The feature of contexts with launches that have `offsets`."""
NEEDS = "device_features"
"""The feature of contexts with programs that have `needs`."""
COMPRESSED = "compressed_sections"
"""The feature of contexts with sections that have `inflated`."""
STATES = "states"
"""The feature of contexts with graphs that have `states`."""
WHOLE = "whole_chunks"
"""The feature of contexts with graphs whose states are `whole`."""
FEATURES: tuple[str, ...] = (OFFSETS, NEEDS, COMPRESSED, STATES, WHOLE)
"""The names that a context may have in `requires`. Add a name together with its readers in Python and C."""
DEEPEST_CONFIGURATION = DEEPEST
"""How many levels of maps and lists the configuration may have."""
Tuning = Literal["tuned", "untuned", "none", "unknown"]
"""tuned: winners run; untuned: tuning has found nothing that is faster for certain; none: of tuning effort none, which
is untuned, too; unknown: the file does not say it."""
UNTUNED: tuple[Tuning, ...] = ("untuned", "none")
"""What has default configurations only."""


def _json(value: object) -> object:
    """Return the configuration, which is shown as JSON. Raises ValueError."""
    level: list[Any] = [value]
    for _ in range(DEEPEST_CONFIGURATION):
        if not all(math.isfinite(item) for item in level if isinstance(item, float)):
            raise ValueError("it has a number that is not finite")
        lists = [item.values() if isinstance(item, dict) else item for item in level if isinstance(item, dict | list)]
        level = [item for each in lists for item in each]
    if level:
        raise ValueError(f"it has more than {DEEPEST_CONFIGURATION} levels")
    return value


@in_files()
@dataclass(frozen=True)
class BufferRef:
    """`nbytes` bytes at `offset` of the index-th graph input, graph output, arena or weights section, of what the
    index-th packing makes, or of the graph's counters or status. Inputs and outputs have offset 0; other offsets are
    multiples of the device's base address alignment."""

    kind: Annotated[BufferKind, Stored(FileKind, str)]
    index: Amount
    offset: Amount
    nbytes: Amount


@in_files("writes", "offsets")
@dataclass(frozen=True)
class LaunchRecord:
    """One launch of a graph; `task` is the digest of its task's key, `program` an index into the programs. writes: the
    places of the arguments that it writes, in order; empty in older files, which do not say it. offsets: whether its
    kernel takes each buffer as two arguments, the whole memory that it is a part of and its offset there in units of
    OFFSET_BYTES; no place counts the offsets."""

    operation: CText
    task: CText
    program: Amount
    entry: CText
    global_size: Annotated[tuple[Amount, ...], Within(0, MOST_DIMENSIONS)]
    local_size: Annotated[tuple[Amount, ...], Within(0, MOST_DIMENSIONS)]
    arguments: tuple[BufferRef | Scalar, ...]
    writes: tuple[Amount, ...] = ()
    offsets: bool = False

    @classmethod
    def of(
        cls, kernel: Stage | Launch, refs: Mapping[str, BufferRef], own: Collection[str], **names: Any
    ) -> LaunchRecord:
        """Return a kernel of an operation on the buffers that its arguments name. own: the names of what it may write,
        which a kernel whose family declares nothing writes all. names: operation, task, program and offsets."""
        writes = own if kernel.writes is None else kernel.writes
        return cls(
            entry=kernel.entry,
            global_size=kernel.global_size,
            local_size=kernel.local_size,
            arguments=tuple(refs[each] if isinstance(each, str) else each for each in kernel.arguments),
            writes=tuple(place for place, each in enumerate(kernel.arguments) if each in writes),
            **names,
        )

    @property
    def counts(self) -> bool:
        """Whether it is a persistent kernel: its groups wait for each other."""
        return self._reads("counters")

    @property
    def stands_for(self) -> int:
        """For how many launches, by the lines of its counters: one is that of arrivals, each group has one for each. Of
        an older context's kernel it may say less."""
        lines = sum(ref.nbytes for ref in self.refs if ref.kind == "counters") // COUNTER_LINE_BYTES
        return (lines - 1) // math.prod(self.global_size) if lines else 1

    @property
    def yields(self) -> bool:
        """Whether its groups leave when one has waited too long, which older contexts have no kernels for."""
        return self._reads("status")

    @property
    def refs(self) -> tuple[BufferRef, ...]:
        """The arguments that are buffers."""
        return tuple(argument for argument in self.arguments if isinstance(argument, BufferRef))

    def _reads(self, kind: BufferKind) -> bool:
        return any(ref.kind == kind for ref in self.refs)


@in_files()
@dataclass(frozen=True)
class TensorRecord:
    """A graph input or output with shape and order as the model has them."""

    name: CText
    shape: Annotated[tuple[Amount, ...], Within(0, LARGEST_RANK)]
    dtype: CText = "float32"
    memory_type: MemoryType = "raw"

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * ELEMENT_TYPES[self.dtype].nbytes


@in_files()
@dataclass(frozen=True)
class FileRecord:
    """A file by its name, without folders, and the SHA-256 of its content in hex."""

    name: CText
    sha256: CText


@in_files()
@dataclass(frozen=True)
class ModelRecord:
    """A model file from which graphs of a context were made, as it was then. weights: the files of its weights; graphs:
    the names of the graphs."""

    name: CText
    sha256: CText
    weights: tuple[FileRecord, ...]
    graphs: tuple[CText, ...]


@in_files("persistent", "counter_bytes", "arena_bound_bytes", "argument_form", "states")
@dataclass(frozen=True)
class GraphRecord:
    """A graph: its tensors, its launches in order and the bytes of each arena for what lives between them.

    persistent: the same in fewer launches, for the context's own device only, or empty: each persistent kernel stands
    for several launches. They count in `counter_bytes` of memory, which is zero before the first of them runs, and
    share a status of STATUS_BYTES. arena_bound_bytes: what no plan of the arenas can do without, 0 where older files do
    not say it. argument_form: how launches are given what lies in the arenas; a device that cannot do that uses
    sub-buffers. states: what it remembers between inferences, which callers without a state give and take as arrays.
    """

    name: CText
    inputs: tuple[TensorRecord, ...]
    outputs: tuple[TensorRecord, ...]
    launches: tuple[LaunchRecord, ...]
    arena_bytes: tuple[Amount, ...]
    persistent: tuple[LaunchRecord, ...] = ()
    counter_bytes: Amount = 0
    arena_bound_bytes: Amount = 0
    argument_form: ArgumentForm = "sub_buffers"
    states: Annotated[StateRecord | None, Stored(StateRecord, lambda states: states)] = None

    @property
    def packed_bytes(self) -> int:
        """What it makes where it is a packing."""
        return self.arena_bytes[0] if self.arena_bytes else 0

    @property
    def beside_state(self) -> GraphRecord:
        """Return the same with those inputs and outputs that a state leaves to an application."""
        if self.states is None:
            return self
        inputs = tuple(tensor for tensor in self.inputs if tensor.name not in self.states.inputs)
        outputs = tuple(tensor for tensor in self.outputs if tensor.name not in self.states.outputs)
        return replace(self, inputs=inputs, outputs=outputs)

    def constants(self, kind: BufferKind) -> list[int]:
        """Return the indices of the constant buffers of a kind that its launches read."""
        return sorted({ref.index for launch in self.launches for ref in launch.refs if ref.kind == kind})


@dataclass(frozen=True)
class ProgramRecord:
    """A program: the binary for the context's own device, and source and options for any other. needs: the features
    without which a device must not run it, such as an instruction."""

    binary: bytes
    source: str
    options: str
    needs: tuple[str, ...] = ()


def required_by(graphs: Sequence[GraphRecord], programs: Iterable[ProgramRecord]) -> list[str]:
    """Return the features that a reader must know to run these graphs."""
    offsets = any(launch.offsets for graph in graphs for launch in (*graph.launches, *graph.persistent))
    needs = any(program.needs for program in programs)
    states = [graph.states for graph in graphs if graph.states is not None]
    whole = any(one.whole for one in states)
    required = {OFFSETS: offsets, NEEDS: needs, STATES: bool(states), WHOLE: whole}
    return [name for name in required if required[name]]


@dataclass(frozen=True)
class Context:
    """Everything that a context binary holds. `device` is DeviceIdentity.to_dict(); `computes` is False when it was
    made by the null backend; weights are anything with a contiguous buffer; packing, requires, models: as of
    ContextHeader."""

    graphs: Sequence[GraphRecord]
    programs: Sequence[ProgramRecord]
    weights: Sequence[Any]
    device: Mapping[str, Any]
    tier: str
    configuration: Mapping[str, Any]
    versions: Mapping[str, str]
    computes: bool = True
    packing: Sequence[GraphRecord] = ()
    requires: Sequence[str] = ()
    models: Sequence[ModelRecord] = ()


@in_files("inflated")
@dataclass(frozen=True)
class Section:
    """`length` bytes at `offset` of the section area, with their SHA-256 in hex. inflated: the bytes that raw DEFLATE
    makes of them; 0 if they are the content, as weights always are."""

    kind: CText
    offset: Amount
    length: Amount
    sha256: CText
    inflated: Amount = 0


@in_files("needs")
@dataclass(frozen=True)
class ProgramEntry:
    """Where a program's binary and source lie: indices of sections. needs: as of ProgramRecord."""

    binary: Amount
    source: Amount
    options: CText
    needs: tuple[CText, ...] = ()


@in_files("requires")
@dataclass(frozen=True)
class Requirements:
    """Name what a reader must know before it reads the rest of a header, which may have another form then."""

    requires: tuple[CText, ...] = ()

    def check(self) -> None:
        """Raise UnsupportedFormatVersion for a feature that is not in FEATURES."""
        for name in self.requires:
            if name not in FEATURES:
                raise UnsupportedFormatVersion(
                    f"it requires {name!r}, which this gputune does not know; use a newer gputune, or generate the "
                    "context again"
                )


@in_files("packing", "requires", "models")
@dataclass(frozen=True)
class ContextHeader:
    """The header of a context binary; readable without its sections.

    packing: of a compact context, which has weights as the model has them: graphs without inputs and outputs. Each runs
    once, on an arena of zeros, when a graph is loaded that reads what it makes: the arena is the buffer of the kind
    "packed" of its index then. Its name is the SHA-256 of what is in there on the context's own device.
    requires: the names of features that a reader must know to run the context. FEATURES has them.
    models: the files that it was made from; empty in older files, and of a model that was no file."""

    graphs: tuple[GraphRecord, ...]
    programs: tuple[ProgramEntry, ...]
    weights: tuple[Amount, ...]
    sections: tuple[Section, ...]
    device: DeviceIdentity
    tier: CText
    configuration: Annotated[dict[str, Any], Stored(dict[str, Any], _json)]
    versions: dict[str, str]
    computes: bool
    packing: tuple[GraphRecord, ...] = ()
    requires: tuple[CText, ...] = ()
    models: tuple[ModelRecord, ...] = ()

    @property
    def precision_mode(self) -> str:
        """Return how its floats are stored and computed."""
        return str(self.configuration.get("precision_mode") or FLOAT)

    def tuning_of(self, *graphs: str) -> Tuning:
        """Return whether graphs, by their names, are tuned, as the configuration says it; of several whether one is."""
        effort, gains = self.configuration.get("tuning_effort"), self.configuration.get("end_to_end")
        if effort == "none":
            return "none"
        if not isinstance(effort, str):
            return "unknown"
        own = [gains.get(graph) if isinstance(gains, dict) else None for graph in graphs]
        untuned = all(isinstance(one, dict) and one.get("kept") == "untuned" for one in own)
        return "untuned" if own and untuned else "tuned"

    def needs_of(self, graph: GraphRecord) -> list[str]:
        """Return the features without which a device must not run a graph."""
        parts = (graph, *(self.packing[place] for place in graph.constants("packed")))
        programs = {launch.program for part in parts for launch in (*part.launches, *part.persistent)}
        return sorted({name for place in programs for name in self.programs[place].needs})

    def to_dict(self) -> dict[str, Any]:
        """Return maps, lists, texts, numbers and bools only, as they lie in the file; fit for JSON."""
        fields = {field.name: _plain(getattr(self, field.name)) for field in dataclasses.fields(self)}
        for record, name in (
            (fields, "packing"),
            (fields, "requires"),
            (fields, "models"),
            *((each, "states") for each in (*fields["graphs"], *fields["packing"])),
            *((each, "needs") for each in fields["programs"]),
            *((each, "inflated") for each in fields["sections"]),
        ):
            if not record[name]:  # present files lack them
                del record[name]
        return fields | {"device": self.device.to_dict()}

    @classmethod
    def from_dict(cls, fields: object) -> ContextHeader:
        """Return the checked header. Raises MalformedHeader that names the field; UnsupportedFormatVersion for a
        feature that is not known, whatever else there is."""
        record_of(Requirements, fields, "header", MalformedHeader).check()
        header = record_of(cls, fields, "header", MalformedHeader)
        _check(header)
        return header


def _plain(value: Any) -> Any:
    """Dataclasses as maps and tuples as lists, all the way down."""
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _check(header: ContextHeader) -> None:
    """Check what ties the fields together: indices, ranges within buffers, launch sizes."""
    for place, section in enumerate(header.sections):
        if section.inflated and (section.kind == "weights" or section.inflated > section.length * MOST_INFLATED):
            raise MalformedHeader(
                f"sections[{place}]: {section.length} bytes of {section.kind[:20]} cannot become {section.inflated}"
            )
    for place, program in enumerate(header.programs):
        for kind, index in (("binary", program.binary), ("source", program.source)):
            _check_section(header, index, kind, f"program {place}")
    for place, index in enumerate(header.weights):
        _check_section(header, index, "weights", f"weights {place}")
    names = [graph.name for graph in header.graphs]
    if not names or len(set(names)) != len(names):
        raise MalformedHeader(f"graphs must have different names, and there must be one: {shortened(names)}")
    for graph in (*header.packing, *header.graphs):
        _check_graph(header, graph)
    for part in header.packing:
        _check_packing(part)


def _check_section(header: ContextHeader, index: int, kind: str, owner: str) -> None:
    if index >= len(header.sections) or header.sections[index].kind != kind:
        raise MalformedHeader(f"{owner}: section {index} is no {kind} section")


def _check_graph(header: ContextHeader, graph: GraphRecord) -> None:
    for tensors in (graph.inputs, graph.outputs):
        for tensor in tensors:
            _check_tensor(tensor)
        if len({tensor.name for tensor in tensors}) != len(tensors):
            raise MalformedHeader(f"graph {graph.name!r}: two tensors have the same name")
    if graph.states is not None:
        check_states(graph.states, graph.name, graph.inputs, graph.outputs)
    if not all(0 < nbytes <= LARGEST_ARENA_BYTES for nbytes in graph.arena_bytes):
        raise MalformedHeader(f"graph {graph.name!r}: an arena is empty or larger than any device")
    if graph.arena_bound_bytes > sum(graph.arena_bytes):
        raise MalformedHeader(
            f"graph {graph.name!r}: arenas of {sum(graph.arena_bytes)} bytes, below their bound of "
            f"{graph.arena_bound_bytes}"
        )
    sizes = {
        "input": [tensor.nbytes for tensor in graph.inputs],
        "output": [tensor.nbytes for tensor in graph.outputs],
        "arena": list(graph.arena_bytes),
        "weights": [header.sections[index].length for index in header.weights],
        "packed": [part.packed_bytes for part in header.packing],
        "counters": [graph.counter_bytes],
        "status": [STATUS_BYTES],
    }
    _check_persistent(graph)
    for launch in (*graph.launches, *graph.persistent):
        place = f"graph {graph.name!r}, operation {launch.operation!r}"
        if launch.program >= len(header.programs):
            raise MalformedHeader(f"{place}: there is no program {launch.program}")
        try:
            check_sizes(launch.global_size, launch.local_size, header.device)
        except (InvalidLaunch, LimitExceeded) as error:
            raise MalformedHeader(f"{place}: {error}") from None
        if not all(at < len(launch.arguments) and isinstance(launch.arguments[at], BufferRef) for at in launch.writes):
            raise MalformedHeader(f"{place}: it writes an argument that is no buffer")
        unit = math.lcm(header.device.base_address_alignment_bytes, OFFSET_BYTES if launch.offsets else 1)
        for ref in launch.refs:
            _check_ref(ref, sizes.get(ref.kind, []), unit, place)


def _check_tensor(tensor: TensorRecord) -> None:
    if tensor.dtype not in ELEMENT_TYPES:
        raise MalformedHeader(f"tensor {tensor.name!r}: dtype {tensor.dtype!r} is not supported")
    if not 0 < math.prod(tensor.shape) <= LARGEST_TENSOR_BYTES // ELEMENT_TYPES[tensor.dtype].nbytes:
        raise MalformedHeader(f"tensor {tensor.name!r}: shape {list(tensor.shape)} is empty or too large")


def _check_persistent(graph: GraphRecord) -> None:
    """Check that what the two forms of a graph share is uploaded for the launches, and what persistent kernels alone
    have is made with them."""
    if graph.counter_bytes % COUNTER_BYTES:
        raise MalformedHeader(
            f"graph {graph.name!r}: {graph.counter_bytes} bytes of counters, not a multiple of {COUNTER_BYTES}"
        )
    plain = {ref for launch in graph.launches for ref in launch.refs}
    if any(ref.kind in PERSISTENT_KINDS for ref in plain):
        raise MalformedHeader(f"graph {graph.name!r}: a launch that is not persistent reads counters or a status")
    known = {(ref.kind, ref.index) for ref in plain}
    constants = [ref for one in graph.persistent for ref in one.refs if ref.kind in CONSTANT_KINDS]
    if any((ref.kind, ref.index) not in known for ref in constants):
        raise MalformedHeader(f"graph {graph.name!r}: a persistent launch reads weights that no plain launch reads")


def _check_packing(part: GraphRecord) -> None:
    """Check that what packs runs once, alone and before everything else, so that it needs nothing that is not in the
    file."""
    own = part.inputs or part.outputs or part.persistent or part.counter_bytes or part.states
    if len(part.arena_bytes) != 1 or own:
        raise MalformedHeader(f"packing {part.name!r} must have one arena, and nothing that only graphs have")
    if any(ref.kind == "packed" for launch in part.launches for ref in launch.refs):
        raise MalformedHeader(f"packing {part.name!r} reads packed weights")


def _check_ref(ref: BufferRef, sizes: list[int], alignment: int, place: str) -> None:
    if ref.index >= len(sizes) or ref.nbytes < 1 or ref.offset + ref.nbytes > sizes[ref.index]:
        raise MalformedHeader(f"{place}: {ref} lies outside the {ref.kind} buffers of {sizes[:8]} bytes")
    if ref.offset % alignment or (ref.offset and ref.kind in ("input", "output")):
        raise MalformedHeader(f"{place}: {ref} has an offset that a {ref.kind} buffer must not have")
