"""Make files for both readers to agree on: good files of every form, and changed files under right checksums."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import json
import random
import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

from gputune.runtime.context.deflate import deflated
from gputune.runtime.context.format import REQUIRING_VERSION, aligned, context_of, write_context
from gputune.runtime.context.package import KINDS, PREFIX
from gputune.runtime.context.packing import write_package
from gputune.runtime.context.records import (
    NEEDS,
    OFFSETS,
    STATES,
    STATUS_BYTES,
    WHOLE,
    BufferRef,
    Context,
    FileRecord,
    GraphRecord,
    LaunchRecord,
    ModelRecord,
    ProgramRecord,
    TensorRecord,
)
from gputune.runtime.context.states import FIXED, StatePair, StateRecord, TokenAxis
from gputune.runtime.devices.discovery import NULL_REPORT
from tests.strategies.changes import mutated_bytes, mutated_leaves, mutated_value
from tests.strategies.files import contexts, ep_contexts, packages
from tests.strategies.files.contexts import FRONT_BYTES, head_of, need_of, with_head, with_section

ODD: tuple[Any, ...] = (0, -1, 3, 2**63 - 1, 2**64 - 1, float("nan"), "a\0b", "main", "status", b"x", True, [], [0],
    [2**62, 2**62], {"a": 1}, {b"a": 1})  # fmt: skip
"""What takes the place of a field."""
Change = Callable[[random.Random], bytes]


@functools.cache
def rich() -> bytes:
    """A context with everything that a header can say."""
    assert NULL_REPORT.identity is not None
    device = replace(NULL_REPORT.identity, extensions=("cl_khr_fp16", "cl_khr_größe"), driver="pocl.icd")
    shapes: Mapping[str, tuple[int, ...]] = {
        "float32": (2, 4), "int64": (), "int32": (1,) * 16, "int16": (3,), "int8": (5, 1), "uint64": (1, 1),
        "uint32": (7,), "uint16": (2, 3, 2), "uint8": (1 << 40,), "bool": (9,),
    }  # fmt: skip
    inputs = tuple(TensorRecord(f"in {dtype}", shape, dtype) for dtype, shape in shapes.items())
    outputs = (TensorRecord("out é", (64,), memory_type="memhandle"), TensorRecord("second", (1, 2, 1), "uint8"))

    def launch(name: str, sizes: tuple[tuple[int, ...], tuple[int, ...]], *arguments: BufferRef | int) -> LaunchRecord:
        digest = hashlib.sha256(name.encode()).hexdigest()
        buffers = [place for place, each in enumerate(arguments) if isinstance(each, BufferRef)]
        return LaunchRecord(name, digest, len(sizes[0]) % 2, "f", *sizes, arguments, tuple(buffers[-1:]))

    plain = tuple(BufferRef("input", place, 0, tensor.nbytes) for place, tensor in enumerate(inputs))
    launches = (
        launch("first", ((64, 4, 2), (8, 2, 1)), *plain, -(2**31), 2**31 - 1, BufferRef("arena", 1, 4096, 128)),
        launch("sëcond", ((300,), (300,)), BufferRef("weights", 1, 128, 1), 127, 128, -32, -33, 65536, -32769),
        launch("third", ((6, 6), (3, 2)), BufferRef("weights", 0, 0, 160), BufferRef("output", 0, 0, 256)),
    )
    waiting = BufferRef("counters", 0, 0, 192), BufferRef("status", 0, 0, STATUS_BYTES)
    persistent = launch("all", ((16,), (16,)), *waiting, BufferRef("weights", 1, 0, 128), BufferRef("output", 1, 0, 2))
    old = replace(persistent, arguments=(waiting[0], 3), writes=(0,))
    graphs = (
        GraphRecord(
            "größer", inputs, outputs, launches, (1 << 33, 8192), (persistent, old), 192, (1 << 33) + 17, "svm"
        ),
        GraphRecord("empty", (), (), (), ()),
        GraphRecord("last", inputs[:1], outputs, launches[1:], (1 << 34, 1), arena_bound_bytes=1),
    )
    content = Context(
        graphs=graphs,
        programs=(ProgramRecord(bytes(range(160)), "kernel", "-DN=8"), ProgramRecord(b"", "kernel", "")),
        weights=(np.arange(40, dtype=np.float32), np.arange(256, dtype=np.uint8)),
        device=device.to_dict(),
        tier="null-cu1",
        configuration={"a": [1, 2.5, None, True, {"b": -3}], "é": {}},
        versions={"gputune": "0.1.0"},
        models=(
            ModelRecord("größe.onnx", "0" * 64, (FileRecord("größe.data", "1" * 64),), ("größer", "last")),
            ModelRecord("b.onnx", "2" * 64, (), ("empty",)),
        ),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rich.bin"
        write_context(path, content)
        return path.read_bytes()


@functools.cache
def compact() -> bytes:
    """The same with packings, of which graphs read one each, with offsets, needs and states, with a compressed program,
    and with the features of these."""
    _, header = head_of(rich())
    fields = msgpack.unpackb(header)
    first, second = (fields["graphs"][place]["launches"][0] for place in (0, 2))
    for launch, place in ((first, 1), (second, 0)):
        launch["arguments"].append({"kind": "packed", "index": place, "offset": 128, "nbytes": 64})
    fields["graphs"][0]["persistent"][0]["arguments"].append({"kind": "packed", "index": 1, "offset": 0, "nbytes": 8})
    graph = {**fields["graphs"][1], "arena_bytes": [192], "name": "0" * 64}
    buffers = [("weights", 1, 128, 4), ("arena", 0, 0, 192), ("weights", 0, 0, 160)]
    arguments = [dict(zip(("kind", "index", "offset", "nbytes"), one, strict=True)) for one in buffers]
    pack = {**second, "operation": "pack", "arguments": [*arguments, 7]}
    fields["packing"] = [{**graph, "launches": [pack]}, {**graph, "name": "f" * 64, "launches": [pack, pack]}]
    first["offsets"], fields["requires"] = True, [OFFSETS, NEEDS, STATES, WHOLE]
    _remember(fields["graphs"][2], StateRecord(*GROWING))
    _remember(fields["graphs"][1], StateRecord("", 0, 0, (), (), (StatePair("cell", "new cell", FIXED),)))
    fields["programs"][0]["needs"] = ["half", "größer"]
    whole = rich()[:8] + struct.pack("<I", REQUIRING_VERSION) + rich()[12:]
    return compressed(with_head(whole, need_of(fields, b""), fields), PROGRAM)


GROWING = (
    "length", 2, 8, (TokenAxis("ids", 0),), (TokenAxis("logits", 1),),
    (StatePair("keys", "new keys", 1), StatePair("cell", "new cell", FIXED)), True,
)  # fmt: skip
TENSORS: Mapping[str, tuple[str, list[int]]] = {
    "length": ("int32", [1]), "ids": ("int64", [2]), "logits": ("float32", [1, 2, 3]),
    "keys": ("float32", [1, 8, 4]), "cell": ("uint8", [3]),
}  # fmt: skip


def _remember(graph: Any, states: StateRecord) -> None:
    """Add states, and the inputs and outputs of them, to a graph."""
    tokens = [token.name for token in states.token_inputs], [token.name for token in states.token_outputs]
    inputs = [*sorted(states.inputs), *tokens[0]]
    for which, names in (("inputs", inputs), ("outputs", [*sorted(states.outputs), *tokens[1]])):
        forms = [(name, *TENSORS[name.removeprefix("new ")]) for name in names]
        added = [{"name": name, "dtype": dtype, "shape": shape, "memory_type": "raw"} for name, dtype, shape in forms]
        graph[which] = [*graph[which], *added]
    graph["states"] = json.loads(json.dumps(dataclasses.asdict(states)))


PROGRAM = b"\x7fELF" * 400 + bytes(range(200)) + b"\x7fELF"


def compressed(whole: bytes, program: bytes) -> bytes:
    """A context whose first section is another program, which is compressed."""
    return with_section(whole, 0, deflated(memoryview(program)), len(program))


@functools.cache
def packed() -> bytes:
    """A package of three contexts, which share all sections but their heads, and a program that two have."""
    files = []
    memory, header = head_of(rich())
    for number in range(3):
        fields = msgpack.unpackb(header)
        fields["device"]["driver_version"] = str(number)
        fields["tier"] = f"tier-{number}"
        whole = with_head(rich(), memory, fields)
        files.append(context_of(memoryview(compressed(whole, PROGRAM) if number else whole), f"{number}.bin"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.gtpkg"
        write_package(path, files)
        return path.read_bytes()


def originals(folder: Path) -> list[Path]:
    """Good files of every form in a folder that is empty."""
    home = ep_contexts.prepared(folder)
    contents = {"small.bin": contexts.original(), "rich.bin": rich(), "compact.bin": compact(), "m.gtpkg": packed()}
    for number, content in enumerate(ep_contexts.originals(home)):
        contents[f"{number}.onnx"] = content
    for name, content in contents.items():
        (home / name).write_bytes(content)
    return [home / name for name in contents]


def changed(folder: Path, chance: random.Random) -> Path:
    """A changed file in the folder of originals()."""
    home = folder / "home"
    name, change = chance.choice(
        (
            (
                "changed.bin",
                lambda chance: changed_context(chance.choice((contexts.original(), rich(), compact())), chance),
            ),
            ("changed.gtpkg", changed_package),
            ("changed.onnx", lambda chance: changed_nodes(chance.choice(ep_contexts.originals(home)), chance)),
        )
    )
    path = home / name
    path.write_bytes(change(chance))
    return path


def changed_context(whole: bytes, chance: random.Random) -> bytes:
    """A context with other bytes; or with another memory block or header, in bytes or in values."""
    memory, header = head_of(whole)
    try:
        match chance.randrange(8):
            case 7:
                return changed_section(whole, chance)
            case 0:
                return mutated_bytes(whole, chance)
            case 1:
                return with_head(whole, mutated_bytes(memory, chance), header)
            case 2:
                return with_head(whole, memory, mutated_bytes(header, chance))
            case 3:
                return with_head(whole, mutated_value(msgpack.unpackb(memory), chance, contexts.ODD), header)
            case 4:
                fields = mutated_leaves(msgpack.unpackb(header), chance, contexts.ODD)
            case _:
                fields = mutated_value(msgpack.unpackb(header), chance, contexts.ODD)
        return with_head(whole, need_of(fields, memory), fields)
    except OverflowError:  # MsgPack has no larger numbers
        return whole


def changed_section(whole: bytes, chance: random.Random) -> bytes:
    """A context with a program that was compressed and then changed, or of another length than it is said to have."""
    ((stored, nbytes),) = deflates(chance, 1)
    if chance.random() < 0.8:
        stored = mutated_bytes(stored, chance)
    return with_section(whole, 0, stored, nbytes + chance.choice((0, 0, 0, 1, -1)))


def deflates(chance: random.Random, count: int) -> Iterator[tuple[bytes, int]]:
    """Bytes that were compressed in every way that zlib knows, and how many they were."""
    for _ in range(count):
        zeros, noise = bytes(chance.randrange(1, 9999)), chance.randbytes(chance.randrange(1, 999))
        content = chance.choice((PROGRAM, contexts.SOURCE.encode() * 9, zeros, noise, noise + zeros + noise))
        machine = zlib.compressobj(chance.randrange(10), zlib.DEFLATED, -15, 9, chance.randrange(5))
        yield machine.compress(content) + machine.flush(), len(content)


def exchanged(whole: bytes) -> Iterator[tuple[str, bytes]]:
    """A context with each field of its header removed, and exchanged for each of some odd values, of lists in their
    first items; which one, and the file."""
    memory, header = head_of(whole)
    fields = msgpack.unpackb(header)
    waiting: list[tuple[str, Any]] = [("", fields)]
    while waiting:
        where, holder = waiting.pop()
        for key in list(holder) if isinstance(holder, dict) else range(min(1, len(holder))):
            place, kept = f"{where}/{key}", holder[key]
            for value in ODD:
                holder[key] = value
                yield f"{place} = {value!r:.40}", with_head(whole, need_of(fields, memory), fields)
            del holder[key]
            yield f"no {place}", with_head(whole, need_of(fields, memory), fields)
            if isinstance(holder, list):
                holder.insert(key, kept)
            else:
                holder[key] = kept
            if isinstance(kept, dict | list):
                waiting.append((place, kept))


def changed_package(chance: random.Random) -> bytes:
    """A package with other bytes; with another index, in bytes or in values; or with another head of a context."""
    whole = packed()
    kind = chance.randrange(4)
    if kind == 0:
        return mutated_bytes(whole, chance)
    if kind == 1:
        return packages.changed_index(whole, chance)
    if kind == 2:
        return _with_index(whole, chance)
    fields, sections = packages.parts(whole)
    entry = chance.choice(fields["contexts"])
    place = entry["head"]
    head = changed_context(sections[place], chance)
    if chance.random() < 0.9:
        head = head[: FRONT_BYTES + sum(map(len, head_of(head)))]  # without what fills it up to a section area
    entry["nbytes"] += aligned(len(head)) - aligned(len(sections[place]))
    sections[place] = head
    fields["sections"][place] = [KINDS.index("head"), len(head), hashlib.sha256(head).digest()]
    return packages.joined(fields, sections)


def _with_index(whole: bytes, chance: random.Random) -> bytes:
    """A package whose index has other bytes under the right checksum."""
    _, _, length, _ = PREFIX.unpack(whole[: PREFIX.size])
    index = mutated_bytes(whole[PREFIX.size : PREFIX.size + length], chance)
    start = whole[:12] + struct.pack("<I", len(index)) + hashlib.sha256(index).digest() + index
    return start + bytes(aligned(len(start)) - len(start)) + whole[aligned(PREFIX.size + length) :]


def changed_nodes(whole: bytes, chance: random.Random) -> bytes:
    """An ONNX file with other values, other fields or other bytes."""
    form = chance.randrange(3)
    if form == 0:
        return mutated_bytes(whole, chance)
    fields = ep_contexts.decoded(whole, ep_contexts.NESTED)
    if form == 1:
        return ep_contexts.encoded(ep_contexts.well_formed(fields, chance), None)
    odd = (*ep_contexts.TEXTS, *ep_contexts.NUMBERS)
    return ep_contexts.encoded(mutated_value(fields, chance, odd), chance)
