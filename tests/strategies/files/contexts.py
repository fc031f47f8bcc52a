"""Change context binaries, load and run them on the null device, and show their headers.

Half of the files have a changed header under the right checksum, persistent kernels included; the others are flipped,
cut and spliced. Each must be refused with a ContextError or DeviceError of one printable line, or do what its header
says within 4 GiB of address space; one whose bytes alone have changed must be refused or hold what it held.
"""

import functools
import hashlib
import json
import random
import struct
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import numpy as np

from gputune.core.errors import BuildFailed, ContextError, DeviceError
from gputune.runtime.backends import open_backend
from gputune.runtime.context.format import (
    REQUIRING_VERSION,
    ContextFile,
    aligned,
    context_of,
    read_header,
    write_context,
)
from gputune.runtime.context.memory_need import MemoryNeed
from gputune.runtime.context.records import (
    COMPRESSED,
    STATUS_BYTES,
    BufferRef,
    Context,
    ContextHeader,
    GraphRecord,
    LaunchRecord,
    ProgramRecord,
    TensorRecord,
)
from gputune.runtime.devices.discovery import NULL_REPORT
from gputune.runtime.loading.executors import executor_on
from tests.strategies.changes import Broken, check_line, mutated_bytes, mutated_value

SOURCE = "__kernel void f(__global float *a) {}"
FRONT_BYTES = 48 + 36  # before the memory block: of the file, and of the block
ODD = (b"bytes", msgpack.Timestamp(1, 2), msgpack.ExtType(5, b"a"), {1: 2}, "arena", "weights", "counters", "status",
       "input", "float64", "int8")  # fmt: skip


def examine(chance: random.Random, folder: Path) -> str:
    """Return how one changed context ends. Raises Broken, and whatever else is raised that must not be."""
    whole = chance.choice((original(), compact()))
    header = chance.random() < 0.5
    content = changed_header(whole, chance) if header else mutated_bytes(whole, chance)
    path = folder / "context.bin"
    path.write_bytes(content)
    try:
        check_shown(path)
        with context_of(memoryview(content), "context.bin") as file:
            if not header and contents(file) != contents(context_of(memoryview(whole), "original")):
                raise Broken("bytes of the file have changed, and it holds something else")
            return run_graphs(file)
    except (ContextError, DeviceError) as error:
        return check_line(error)


def changed_header(whole: bytes, chance: random.Random) -> bytes:
    """Return a file whose header has another value under the right checksum."""
    fields = header_of(whole)
    if chance.random() < 0.1:
        fields["requires"] = chance.choice(([], ["sampler"], ["\n\x1b", "é" * 400]))
    fields = mutated_value(fields, chance, ODD)
    return with_header(whole, fields)


def check_shown(path: Path) -> None:
    """Check that what context-binary-utility shows is JSON. Raises ContextError."""
    json.dumps(read_header(path).to_dict(), allow_nan=False)


def run_graphs(file: ContextFile) -> str:
    """Run each graph once; on a device that computes nothing outputs are zeros of the shapes and types that the header
    says."""
    for graph in file.header.graphs:
        try:
            executor = executor_on(device(), file, graph.name, strict=False)
        except BuildFailed as error:
            return check_line(error)
        outputs = executor.run({tensor.name: np.zeros(tensor.shape, tensor.dtype) for tensor in graph.inputs})
        for tensor in graph.outputs:
            found = outputs[tensor.name]
            if found.shape != tensor.shape or found.dtype != np.dtype(tensor.dtype) or found.any():
                raise Broken(f"output {tensor.name!r} is not what the header says")
    return "ran"


def contents(file: ContextFile) -> tuple[Any, ...]:
    """Return all that a context holds."""
    sections = [bytes(file.section(index)) for index in range(len(file.header.sections))]
    return file.header, sections


def header_of(whole: bytes) -> Any:
    """Return the header as plain values."""
    return msgpack.unpackb(head_of(whole)[1])


def with_header(whole: bytes, fields: Any) -> bytes:
    """Return a file with another header, its right checksum, the memory block that agrees with it where one can, and
    the same sections. fields: plain values, or the header's bytes."""
    try:
        return with_head(whole, need_of(fields, head_of(whole)[0]), fields)
    except OverflowError:  # MsgPack has no larger numbers
        return whole


def of_version(whole: bytes, version: int) -> bytes:
    """Return a file that says that it has another version of the format."""
    return whole[:8] + struct.pack("<I", version) + whole[12:]


def head_of(whole: bytes) -> tuple[bytes, bytes]:
    """Return memory block and header."""
    header_bytes, block_bytes = (int.from_bytes(whole[place : place + 4], "little") for place in (12, 48))
    end = FRONT_BYTES + block_bytes
    return whole[FRONT_BYTES:end], whole[end : end + header_bytes]


def with_head(whole: bytes, memory: Any, header: Any) -> bytes:
    """Return a context with another memory block and header, bytes or plain values, under right checksums."""
    sections = whole[aligned(FRONT_BYTES + sum(map(len, head_of(whole)))) :]
    block, content = (part if isinstance(part, bytes) else msgpack.packb(part) for part in (memory, header))
    prefix = whole[:12] + struct.pack("<I", len(content)) + hashlib.sha256(content).digest()
    start = prefix + struct.pack("<I", len(block)) + hashlib.sha256(block).digest() + block + content
    return start + bytes(aligned(len(start)) - len(start)) + sections


def with_section(whole: bytes, place: int, stored: bytes, inflated: int) -> bytes:
    """Return a context of which a section has other bytes, that are said to inflate to so many."""
    memory, header = head_of(whole)
    fields, starts = msgpack.unpackb(header), _starts(whole)
    contents = [whole[at : at + one["length"]] for at, one in zip(starts, fields["sections"], strict=True)]
    contents[place] = stored
    laid = b""
    for section, content in zip(fields["sections"], contents, strict=True):
        laid += bytes(aligned(len(laid)) - len(laid))
        section |= {"offset": len(laid), "length": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        laid += content
    fields["sections"][place]["inflated"] = inflated
    fields["requires"] = sorted({*fields.get("requires", ()), COMPRESSED})
    return with_head(of_version(whole[: starts[0]], REQUIRING_VERSION), memory, fields) + laid


def damaged(whole: bytes) -> bytes:
    """Return a context whose sections have other bytes than were written."""
    changed = bytearray(whole)
    for start in _starts(whole):
        changed[start] ^= 1
    return bytes(changed)


def _starts(whole: bytes) -> list[int]:
    """Return where sections begin."""
    memory, header = head_of(whole)
    area = aligned(FRONT_BYTES + len(memory) + len(header))
    return [area + section["offset"] for section in msgpack.unpackb(header)["sections"]]


def need_of(fields: Any, otherwise: bytes) -> Any:
    """Return the memory block that agrees with a header."""
    try:
        header = ContextHeader.from_dict(fields)
    except ContextError:
        return otherwise
    return MemoryNeed.of(header.device, header.graphs).to_fields()


@functools.cache
def device() -> Any:
    """Return the null device."""
    return open_backend(NULL_REPORT)


@functools.cache
def original() -> bytes:
    """Return a small context: two graphs that share a program, the first with persistent kernels."""
    return _written(BufferRef("weights", 0, 0, 32))


@functools.cache
def compact() -> bytes:
    """Return the same, whose first graph reads what is packed at loading."""
    return _written(BufferRef("packed", 0, 128, 32))


def _written(read: BufferRef) -> bytes:
    """Return a context whose second launch reads this."""
    program = device().build(SOURCE, "")

    def launch(name: str, *arguments: BufferRef | int) -> LaunchRecord:
        return LaunchRecord(name, "0" * 64, 0, "f", (8,), (4,), arguments)

    between = BufferRef("arena", 0, 128, 32)
    first = launch("first", BufferRef("input", 0, 0, 32), BufferRef("weights", 0, 128, 32), between, 3)
    second = launch("second", between, read, BufferRef("output", 0, 0, 32), -1)
    pack = launch("pack", BufferRef("weights", 0, 0, 160), BufferRef("arena", 0, 0, 256))
    waiting = BufferRef("counters", 0, 0, 192), BufferRef("status", 0, 0, STATUS_BYTES)
    persistent = replace(first, arguments=(*waiting, *second.refs), global_size=(1,), local_size=(1,))
    graph = GraphRecord(
        "main", (TensorRecord("x", (2, 4)),), (TensorRecord("y", (8,)),), (first, second), (256,), (persistent,), 192
    )
    plain = replace(graph, name="plain", launches=(first,), persistent=(), counter_bytes=0)
    context = Context(
        graphs=(graph, plain),
        programs=(ProgramRecord(program.binary, SOURCE, ""),),
        weights=(np.arange(40, dtype=np.float32),),
        device=device().identity.to_dict(),
        tier="null",
        configuration={"tuning_effort": "none", "in_chain": {"a": [1, 2.5, None, True]}},
        versions={"gputune": "0.1.0"},
        computes=False,
        packing=(GraphRecord("0" * 64, (), (), (pack,), (256,)),) if read.kind == "packed" else (),
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "context.bin"
        write_context(path, context)
        return path.read_bytes()
