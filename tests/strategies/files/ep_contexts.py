"""Change ONNX files with EPContext nodes, and read them.

A third of the files are well formed with other values, a third have other fields of protobuf's wire format, some with
wrong lengths, and a third are flipped, cut and spliced. Each must be refused with a MalformedEpContext of one printable
line, or lead to files in its own folder or bytes of its own, within 4 GiB of address space; where protobuf reads the
file, too, both must read the same.
"""

import functools
import os
import random
from pathlib import Path
from typing import Any

import onnx

from gputune.client.generation.ep_context import EpContextFile
from gputune.core.errors import ContextError, MalformedEpContext
from gputune.runtime.context.ep_context import EpContext, ep_contexts, read_ep_model
from gputune.runtime.context.stored import Extent
from tests.strategies.changes import Broken, check_line, mutated_bytes, mutated_value
from tests.strategies.files import contexts

NESTED: dict[int, Any] = {7: {1: {5: {}}}}
"""The fields that are messages: a model's graph, its nodes, their attributes."""
TEXTS = (
    b"context.bin", b"sub/context.bin", b"sub/../context.bin", b"../outside.bin", b"link", b"inside", b"fifo",
    b"circle", b"sub", b"/etc/hosts", b"C:\\context.bin", b"missing", b"a\0b", b"\xff\xfe", b"", b"x" * 300,
    b"x" * 5000, b"QNN", b"gputune", b"EPContext", b"com.microsoft", b"main_context", b"embed_mode",
    b"ep_cache_context", b"max_size", b"source", b"partition_name", b"notes", b"\x1b[31m\n",
)  # fmt: skip
NUMBERS = (0, 1, 2, 3, 5, 20, 4096, 2**31, 2**63 - 1, 2**63, 2**64 - 1)
LENGTHS = (0, 1, 127, 2**31 - 1, 2**31, 2**32, 2**63, 2**64 - 1)


def prepared(folder: Path) -> Path:
    """Return a folder with what a node's path can meet: a context, links to it and out of the folder, and no files."""
    home = folder / "home"
    (home / "sub").mkdir(parents=True)
    for place in (home, home / "sub", folder):
        (place / ("outside.bin" if place == folder else "context.bin")).write_bytes(contexts.original())
    (home / "link").symlink_to(folder / "outside.bin")
    (home / "inside").symlink_to("context.bin")
    (home / "circle").symlink_to("circle")
    os.mkfifo(home / "fifo")
    return home


def examine(chance: random.Random, folder: Path) -> str:
    """Return how one changed file ends. Raises Broken, and whatever else is raised that must not be."""
    whole = chance.choice(originals(folder))
    form = chance.randrange(3)
    if form == 0:
        content = encoded(well_formed(decoded(whole, NESTED), chance), None)
    elif form == 1:
        content = encoded(mutated_value(decoded(whole, NESTED), chance, (*TEXTS, *NUMBERS)), chance)
    else:
        content = mutated_bytes(whole, chance)
    path = folder / "model.onnx"
    path.write_bytes(content)
    try:
        model = read_ep_model(path)
        found = model.nodes if model.others else ep_contexts(path)
    except MalformedEpContext as error:
        return check_line(error)
    check_contents(found, content, folder)
    compared = same_as_protobuf(found, model.others, content)
    for node in found:
        try:
            node.open().close()
        except ContextError as error:
            check_line(error)
    return compared


def check_contents(found: list[EpContext], content: bytes, folder: Path) -> None:
    """Check that contexts are the file's own bytes, or files in its folder that are read without waiting."""
    if not any(node.main for node in found):
        raise Broken("no node is a main one")
    for node in found:
        if isinstance(node.content, Extent):
            if not node.content.nbytes or bytes(node.content.read()) not in content:
                raise Broken("a context is no part of the file")
        elif not node.content.is_relative_to(folder.resolve()) or not node.content.is_file():
            raise Broken(f"a context leads to {node.content}")


def same_as_protobuf(found: list[EpContext], others: int, content: bytes) -> str:
    """Compare with what protobuf reads. It refuses more files: it looks into every field."""
    try:
        whole = onnx.ModelProto.FromString(content).graph.node
    except Exception:  # protobuf's DecodeError, which onnx does not export
        return "read, not by protobuf"
    nodes = [node for node in whole if (node.op_type, node.domain) == ("EPContext", "com.microsoft")]
    if (len(nodes), len(whole)) != (len(found), len(found) + others):
        raise Broken(f"{len(found)} nodes and {others} others, protobuf reads {len(nodes)} of {len(whole)}")
    for node, one in zip(nodes, found, strict=True):
        value = {
            attribute.name: attribute.i if attribute.type == onnx.AttributeProto.INT else attribute.s
            for attribute in node.attribute
            if attribute.type in (onnx.AttributeProto.INT, onnx.AttributeProto.STRING)
        }
        read = value.get("partition_name", b"").decode(), value.get("max_size", 0), value.get("main_context", 1) == 1
        if value["source"] != b"gputune":
            raise Broken("a node of another source was taken")
        if read != (one.name, one.max_size, one.main):
            raise Broken(f"{(one.name, one.max_size, one.main)}, protobuf reads {read}")
        if one.main and isinstance(one.content, Extent) and value["ep_cache_context"] != one.content.read():
            raise Broken("another context than protobuf reads")
    return "read in parts" if others else "read"


@functools.cache
def originals(folder: Path) -> tuple[bytes, ...]:
    """Return files as they are written, with the context and with its path, and one of two main contexts."""
    binary, path = folder / "context.bin", folder / "original.onnx"
    written = []
    for embed in (True, False):
        EpContextFile(path, embed).write(binary)
        written.append(path.read_bytes())
    model = onnx.ModelProto.FromString(written[1])
    for attribute in model.graph.node[1].attribute:
        if attribute.name == "main_context":
            attribute.i = 1
    model.graph.node[1].attribute.append(onnx.helper.make_attribute("ep_cache_context", "sub/context.bin"))
    return *written, model.SerializeToString()


def decoded(message: bytes, nested: dict[int, Any]) -> list[list[Any]]:
    """Return the fields of a message that is in order: number, wire type and value, a list for a message."""
    fields: list[list[Any]] = []
    place = 0
    while place < len(message):
        tag, place = _number(message, place)
        value: Any
        length, place = _number(message, place)
        if tag & 7 == 0:
            value = length
        else:
            value, place = message[place : place + length], place + length
            if tag >> 3 in nested:
                value = decoded(value, nested[tag >> 3])
        fields.append([tag >> 3, tag & 7, value])
    return fields


def well_formed(fields: list[list[Any]], chance: random.Random) -> list[list[Any]]:
    """Return the fields after one to three changes of their values, their number and their order."""
    messages, waiting = [fields], [fields]
    while waiting:
        inner = [field[2] for field in waiting.pop() if isinstance(field[2], list)]
        messages += inner
        waiting += inner
    for _ in range(chance.choice((1, 1, 2, 3))):
        message = chance.choice([message for message in messages if message])
        place = chance.randrange(len(message))
        kind, value = chance.randrange(8), message[place][2]
        if kind == 0:
            del message[place]
        elif kind == 1:
            message.insert(chance.randrange(len(message)), list(message[place]))
        elif kind == 2:
            chance.shuffle(message)
        elif isinstance(value, int):
            message[place][2] = chance.choice(NUMBERS)
        elif isinstance(value, bytes):
            message[place][2] = chance.choice(TEXTS)
        else:
            continue
        messages = [message for message in messages if message]
    return fields


def encoded(fields: Any, chance: random.Random | None) -> bytes:
    """Return a message of fields, whatever has become of them; by chance some lengths are wrong."""
    if not isinstance(fields, list):
        return fields if isinstance(fields, bytes) else str(fields).encode("utf-8", "replace")
    message = bytearray()
    for field in fields:
        if not isinstance(field, list) or len(field) != 3 or not all(isinstance(part, int) for part in field[:2]):
            message += encoded(field, chance) if isinstance(field, bytes | list) else b""
            continue
        number, kind, value = field
        message += _varint((number << 3 | kind & 7) % 2**64)
        if kind & 7 == 0:
            message += _varint((value if isinstance(value, int) else 1) % 2**64)
        else:
            content = encoded(value, chance)
            length = len(content)
            if chance is not None and chance.random() < 0.005:
                length = chance.choice((*LENGTHS, length + 1))
            message += _varint(length) + content
    return bytes(message)


def _varint(number: int) -> bytes:
    parts = bytearray()
    while number > 0x7F:
        parts.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*parts, number])


def _number(message: bytes, place: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        number |= (message[place] & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if message[place - 1] < 0x80:
            return number, place
