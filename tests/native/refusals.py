"""Make files that are wrong in one way each, with the name of the error by which both readers refuse them."""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import msgpack
from onnx import helper

from gputune.runtime.context.deflate import deflated
from gputune.runtime.context.format import aligned
from gputune.runtime.context.package import KINDS
from gputune.runtime.context.records import LARGEST_ARENA_BYTES
from stress.native import files
from tests.strategies.files import packages
from tests.strategies.files.contexts import FRONT_BYTES, head_of, need_of, with_head, with_section

HEADER_BYTES_AT, BLOCK_BYTES_AT = 12, 48
MAIN = {"main_context": 1, "embed_mode": 0, "ep_cache_context": "context.bin", "source": "gputune"}
Made = Callable[[Path], None]
"""Makes the file."""


def refusals() -> Iterator[tuple[str, str, Made]]:
    """Yield what is wrong with a file, in words that end with the suffix it has; the name of the error; and what makes
    it. A few are right after all."""
    for table, suffix in ((_contexts(), ".bin"), (_packages(), ".gtpkg"), (_nodes(), ".onnx"), (_no_files(), ".bin")):
        for what, (name, made) in table.items():
            yield f"{what}{suffix}", name, made if callable(made) else _written(made)


def _written(content: bytes) -> Made:
    def write(path: Path) -> None:
        path.write_bytes(content)

    return write


def _at(whole: bytes, place: int, content: bytes) -> bytes:
    return whole[:place] + content + whole[place + len(content) :]


def _flipped(whole: bytes, place: int) -> bytes:
    return _at(whole, place, bytes([whole[place] ^ 1]))


def _with(*path: str | int, value: Any, whole: bytes | None = None) -> bytes:
    """A context, the rich one unless it is given, with another value in its header."""
    whole = files.rich() if whole is None else whole
    memory, header = head_of(whole)
    fields = msgpack.unpackb(header)
    into = fields
    for step in path[:-1]:
        into = into[step]
    into[path[-1]] = value
    return with_head(whole, need_of(fields, memory), fields)


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def _contexts() -> Mapping[str, tuple[str, bytes]]:
    return {
        **_broken_contexts(),
        **_wrong_headers(),
        **_wrong_packings(),
        **_requirements(),
        **_models(),
        **_states(),
        **_compressed(),
    }


def _broken_contexts() -> Mapping[str, tuple[str, bytes]]:
    """Return files that are cut short or changed in front of their header's fields."""
    whole = files.rich()
    memory, header = head_of(whole)
    fields, need = msgpack.unpackb(header), msgpack.unpackb(memory)
    front = FRONT_BYTES
    starts = {
        one["kind"]: aligned(front + len(memory) + len(header)) + one["offset"]
        for one in fields["sections"]
        if one["length"]
    }
    malformed, damaged, cut = "malformed_header", "checksum_mismatch", "truncated"
    less = {**need, "graphs": [*need["graphs"][:-1]]}
    return {
        "as it was": ("ok", whole),
        "nothing": ("not_a_context", b""),
        "a program": ("not_a_context", b"\x7fELF" + whole[4:]),
        "cut within the magic": (cut, whole[:5]),
        "cut within the prefix": (cut, whole[:47]),
        "cut within the lengths": (cut, whole[:83]),
        "cut within the memory block": (cut, whole[: front + 3]),
        "cut within the header": (cut, whole[: front + len(memory) + 5]),
        "cut before the last byte": (cut, whole[:-1]),
        "a byte more": (malformed, whole + b"\0"),
        "version 5": ("unsupported_format_version", _at(whole, 8, struct.pack("<I", 5))),
        "version 0": ("unsupported_format_version", _at(whole, 8, struct.pack("<I", 0))),
        "a longer header": (cut, _at(whole, HEADER_BYTES_AT, struct.pack("<I", 64 << 20))),
        "too long a header": (malformed, _at(whole, HEADER_BYTES_AT, struct.pack("<I", (64 << 20) + 1))),
        "a longer memory block": (cut, _at(whole, BLOCK_BYTES_AT, struct.pack("<I", 1 << 20))),
        "too long a memory block": (malformed, _at(whole, BLOCK_BYTES_AT, struct.pack("<I", (1 << 20) + 1))),
        "a flipped bit of the memory block": (damaged, _flipped(whole, front)),
        "a flipped bit of the header": (damaged, _flipped(whole, front + len(memory))),
        **{f"a flipped bit of a {kind}": (damaged, _flipped(whole, start)) for kind, start in starts.items()},
        "a memory block of another context": (malformed, with_head(whole, less, header)),
        "an arena without bytes": (malformed, _with("graphs", 0, "arena_bytes", 0, value=0)),
        "too large an arena": (malformed, _with("graphs", 0, "arena_bytes", 0, value=LARGEST_ARENA_BYTES + 1)),
        "too large a bound": (malformed, _with("graphs", 2, "arena_bound_bytes", value=1 << 60)),
    }


def _wrong_headers() -> Mapping[str, tuple[str, bytes]]:
    """Return files whose header is no MsgPack, or has a field that is not as it should be."""
    whole = files.rich()
    memory, header = head_of(whole)
    twice = msgpack.packb("tier") + msgpack.packb("the last one")
    again = header[:1] + bytes([header[1]]) if header[0] == 0xDE else bytes([header[0] + 1]) + header[1:] + twice
    launch: tuple[str | int, ...] = ("graphs", 0, "launches", 0)
    weights: tuple[str | int, ...] = ("graphs", 0, "launches", 1, "arguments", 0)
    tensor: tuple[str | int, ...] = ("graphs", 0, "inputs", 0)
    malformed = "malformed_header"
    return {
        "no MsgPack": (malformed, with_head(whole, memory, b"\xc1" + header[1:])),
        "MsgPack and a byte more": (malformed, with_head(whole, memory, header + b"\0")),
        "a key that is there twice": ("ok", with_head(whole, memory, again)),
        "an unknown field": ("ok", _with("later", value={"a": [1]})),
        "an unknown field of a launch": ("ok", _with(*launch, "later", value=1)),
        "an unknown field of the device": (malformed, _with("device", "later", value=1)),
        "32 levels of configuration": ("ok", _with("configuration", "a", value=_nested(30))),
        "33 levels of configuration": (malformed, _with("configuration", "a", value=_nested(31))),
        "no number in the configuration": (malformed, _with("configuration", "a", value=float("nan"))),
        "a name with a 0": (malformed, _with("graphs", 0, "name", value="a\0b")),
        "a name that is no UTF-8": (malformed, with_head(whole, memory, header.replace(b"empty", b"empt\xff"))),
        "no graph": (malformed, _with("graphs", value=[])),
        "two graphs of a name": (malformed, _with("graphs", 1, "name", value="last")),
        "two inputs of a name": (malformed, _with(*tensor, "name", value="in int64")),
        "a tensor without elements": (malformed, _with(*tensor, "shape", value=[2, 0])),
        "too large a tensor": (malformed, _with(*tensor, "shape", value=[1 << 40, 2])),
        "a tensor of too many dimensions": (malformed, _with(*tensor, "shape", value=[1] * 17)),
        "an unknown type": (malformed, _with(*tensor, "dtype", value="float16")),
        "a launch of no program": (malformed, _with(*launch, "program", value=2)),
        "a launch of no size": (malformed, _with(*launch, "global_size", value=[])),
        "sizes that do not divide": (malformed, _with(*launch, "global_size", value=[63, 4, 2])),
        "too large a work-group": (malformed, _with("device", "max_work_group_size", value=299)),
        "too large a number": (malformed, _with(*launch, "arguments", value=[1 << 31])),
        "a write to a number": (malformed, _with(*launch, "writes", value=[10])),
        "a write to no argument": (malformed, _with(*launch, "writes", value=[99])),
        "a part outside of its buffer": (malformed, _with(*weights, "offset", value=1 << 20)),
        "a part that begins where none may": (malformed, _with(*weights, "offset", value=64)),
        "a form of arguments without a name": (malformed, _with("graphs", 0, "argument_form", value="images")),
        "a part without bytes": (malformed, _with(*weights, "nbytes", value=0)),
        "counters in a plain launch": (malformed, _with(*weights, "kind", value="counters")),
        "weights that no plain launch reads": (malformed, _with("graphs", 0, "launches", value=[])),
        "half a counter": (malformed, _with("graphs", 0, "counter_bytes", value=194)),
        "a section that is not aligned": (malformed, _with("sections", 1, "offset", value=1)),
        "sections over each other": (malformed, _with("sections", 1, "offset", value=0)),
        "a section of another kind": (malformed, _with("weights", 0, value=0)),
        "a section that is not there": (malformed, _with("weights", 0, value=99)),
        "another digest of a section": ("checksum_mismatch", _with("sections", 0, "sha256", value="0" * 64)),
        "an alignment of 96": (malformed, _with("device", "base_address_alignment_bytes", value=96)),
    }


def _wrong_packings() -> Mapping[str, tuple[str, bytes]]:
    """Return compact contexts with packings that are not as they should be."""
    whole = files.compact()
    malformed = "malformed_header"
    _, header = head_of(whole)
    fields = msgpack.unpackb(header)

    def having(*path: str | int, value: Any) -> tuple[str, bytes]:
        return malformed, _with(*path, value=value, whole=whole)

    def argument(place: int, **changes: str | int) -> tuple[str, bytes]:
        before = fields["packing"][1]["launches"][1]["arguments"][place]
        return having("packing", 1, "launches", 1, "arguments", place, value={**before, **changes})

    last = len(fields["graphs"][2]["launches"][0]["arguments"]) - 1
    read = fields["graphs"][2]["launches"][0]["arguments"][last]
    reading = ("graphs", 2, "launches", 0, "arguments", last)
    return {
        "compact": ("ok", whole),
        "no packing": having("packing", value=[]),
        "a packing in version 3": (malformed, _at(whole, 8, struct.pack("<I", 3))),
        "version 4 without a packing": (malformed, _at(files.rich(), 8, struct.pack("<I", 4))),
        "a packing that is none": having("packing", 0, value=1),
        "a packing without an arena": having("packing", 0, "arena_bytes", value=[]),
        "a packing with two arenas": having("packing", 0, "arena_bytes", value=[192, 192]),
        "a packing of nothing": having("packing", 0, "arena_bytes", value=[0]),
        "too large a packing": having("packing", 0, "arena_bytes", value=[LARGEST_ARENA_BYTES + 1]),
        "a packing with an input": having("packing", 0, "inputs", value=fields["graphs"][0]["inputs"][:1]),
        "a packing with an output": having("packing", 0, "outputs", value=fields["graphs"][0]["outputs"][:1]),
        "a packing with persistent kernels": having("packing", 0, "persistent", value=fields["packing"][0]["launches"]),
        "a packing with counters": having("packing", 0, "counter_bytes", value=4),
        "a packing that reads itself": argument(0, kind="packed", index=1, offset=0),
        "a packing that reads another": argument(0, kind="packed", index=0, offset=0),
        "a packing that reads an input": argument(0, kind="input", index=0, offset=0),
        "a packing that counts": argument(0, kind="counters", index=0, offset=0),
        "a packing that reads beyond weights": argument(0, nbytes=1 << 20),
        "a packing that writes beyond its arena": argument(1, nbytes=193),
        "a packing that begins where none may": argument(0, offset=1),
        "a packing of no program": having("packing", 0, "launches", 0, "program", value=2),
        "sizes of a packing that do not divide": having("packing", 0, "launches", 0, "local_size", value=[7]),
        "a launch that reads no packing": having(*reading, value={**read, "index": 2}),
        "a launch that reads beyond a packing": having(*reading, value={**read, "nbytes": 65}),
        "packed weights that no plain launch reads": having(
            "graphs", 0, "persistent", 0, "arguments", -1, value={**read, "index": 0}
        ),
        "a flipped bit of weights to pack": ("checksum_mismatch", _flipped(whole, len(whole) - 1)),
    }


def _states() -> Mapping[str, tuple[str, bytes]]:
    """Return contexts whose graph "last" has a state that does not fit its inputs and outputs."""
    whole = files.compact()
    graph = msgpack.unpackb(head_of(whole)[1])["graphs"][2]
    states = graph["states"]

    def having(*path: str | int, value: Any, base: bytes = whole) -> tuple[str, bytes]:
        return "malformed_header", _with("graphs", 2, "states", *path, value=value, whole=base)

    pair, ids = states["pairs"][0], states["token_inputs"][0]
    place = {tensor["name"]: at for at, tensor in enumerate(graph["inputs"])}
    two = _with("graphs", 2, "inputs", place["length"], "shape", value=[2], whole=whole)
    float_length = _with("graphs", 2, "inputs", place["length"], "dtype", value="float32", whole=whole)
    other = _with("graphs", 2, "inputs", place["keys"], "shape", value=[1, 8, 5], whole=whole)
    half = _with("graphs", 2, "inputs", place["keys"], "dtype", value="int32", whole=whole)
    packing = _with("packing", 0, "states", value=states, whole=whole)
    return {
        "states of a later version": ("ok", _with("graphs", 2, "states", "later", value=1, whole=whole)),
        "a state without a pair": having("pairs", value=[]),
        "a state that is nothing": having(value=None),
        "a state of no input": having("pairs", 0, "input", value="new keys"),
        "a state of no output": having("pairs", 0, "output", value="keys"),
        "a state of another shape": ("malformed_header", other),
        "a state of another type": ("malformed_header", half),
        "a pair that is there twice": having("pairs", value=[pair, pair]),
        "an output of two pairs": having("pairs", value=[pair, {**pair, "input": "cell"}]),
        "rows along another axis": having("pairs", 0, "axis", value=2),
        "rows along no axis": having("pairs", 0, "axis", value=3),
        "rows along axis 16": having("pairs", 0, "axis", value=16),
        "rows along axis -2": having("pairs", 0, "axis", value=-2),
        "another capacity": having("capacity", value=9),
        "too large a capacity": having("capacity", value=1 << 31),
        "no tokens": having("tokens", value=0),
        "more tokens than rows": having("tokens", value=9),
        "no length": having("length", value=""),
        "a length that is no input": having("length", value="logits"),
        "a length that is a token": having("token_inputs", value=[ids, {"name": "length", "axis": 0}]),
        "two lengths": ("malformed_header", two),
        "a length of floats": ("malformed_header", float_length),
        "tokens of no input": having("token_inputs", 0, "name", value="logits"),
        "tokens along no axis": having("token_inputs", 0, "axis", value=1),
        "tokens that are there twice": having("token_inputs", value=[ids, ids]),
        "tokens of no output": having("token_outputs", 0, "name", value="ids"),
        "tokens along another axis": having("token_outputs", 0, "axis", value=0),
        "a fixed state with a length": having("pairs", value=states["pairs"][1:]),
        "a packing with states": ("malformed_header", packing),
    }


def _requirements() -> Mapping[str, tuple[str, bytes]]:
    """Return contexts that require features, in files that are otherwise of version 4 or 3."""
    compact, unknown, malformed = files.compact(), "unsupported_format_version", "malformed_header"
    other = _with("graphs", value="of another form", whole=compact)
    return {
        "a feature that is not known": (unknown, _with("requires", value=["sampler"], whole=compact)),
        "a feature that changes the header": (unknown, _with("requires", value=["sampler"], whole=other)),
        "a feature in version 3": (unknown, _with("requires", value=["sampler"])),
        "no feature in version 3": ("ok", _with("requires", value=[])),
        "a feature that is no text": (malformed, _with("requires", value=["sampler", 1], whole=compact)),
        "a feature with a 0": (malformed, _with("requires", value=["a\0"], whole=compact)),
        "features that are no list": (malformed, _with("requires", value="sampler", whole=compact)),
    }


def _models() -> Mapping[str, tuple[str, bytes]]:
    """Return contexts that say which files they were made from."""
    malformed, good = "malformed_header", {"name": "a.onnx", "sha256": "0" * 64, "weights": [], "graphs": ["last"]}

    def having(*models: object) -> bytes:
        return _with("models", value=list(models))

    return {
        "no model, as in older files": ("ok", having()),
        "a model of a later version": ("ok", having({**good, "later": 1})),
        "a model without a digest": (malformed, having({name: good[name] for name in good if name != "sha256"})),
        "a model with a 0 in its name": (malformed, having({**good, "name": "a\0"})),
        "a model whose weights are texts": (malformed, having(good, {**good, "weights": ["a.data"]})),
        "a model whose graphs are numbers": (malformed, having({**good, "graphs": [1]})),
        "models that are a map": (malformed, _with("models", value=good)),
    }


def _compressed() -> Mapping[str, tuple[str, bytes]]:
    """Return contexts with a program of 160 bytes that is compressed."""
    program = b"ELF " * 40
    stored, malformed = deflated(memoryview(program)), "malformed_header"

    def having(stored: bytes, nbytes: int, place: int = 0) -> bytes:
        return with_section(files.rich(), place, stored, nbytes)

    whole = having(stored, len(program))
    return {
        "a compressed program": ("ok", whole),
        "a program that is said to be shorter": (malformed, having(stored, len(program) - 1)),
        "a program that is said to be longer": (malformed, having(stored, len(program) + 1)),
        "a program and a byte more": (malformed, having(stored + b"\0", len(program))),
        "a program that was cut": (malformed, having(stored[:-1], len(program))),
        "a program that is not compressed": (malformed, having(program, len(program))),
        "a program of no bytes": (malformed, having(b"", len(program))),
        "as many bytes as DEFLATE makes of those": (malformed, having(stored, len(stored) * 1032)),
        "more bytes than DEFLATE makes of those": (malformed, having(stored, len(stored) * 1032 + 1)),
        "compressed weights": (malformed, having(deflated(memoryview(bytes(160))), 160, 3)),
        "a flipped bit of a compressed program": (
            "checksum_mismatch",
            _with("sections", 0, "sha256", value="0" * 64, whole=whole),
        ),
        "a length that is no number": (malformed, _with("sections", 0, "inflated", value="160", whole=whole)),
        "a length below 0": (malformed, _with("sections", 0, "inflated", value=-1, whole=whole)),
        "a version that does not require it": (malformed, _at(whole, 8, struct.pack("<I", 3))),
    }


def _packages() -> Mapping[str, tuple[str, bytes]]:
    whole = files.packed()
    malformed = "malformed_package"

    def changed(change: Callable[[Any, list[bytes]], object]) -> bytes:
        fields, sections = packages.parts(whole)
        change(fields, sections)
        return packages.joined(fields, sections)

    def damaged(fields: Any, sections: list[bytes]) -> None:
        head = fields["contexts"][1]["head"]
        sections[head] = _flipped(sections[head], 100)

    def disagreeing(fields: Any, _: list[bytes]) -> None:
        fields["contexts"][0]["tier"] = "another"

    def requiring(fields: Any, sections: list[bytes]) -> None:
        place = fields["contexts"][1]["head"]
        memory, header = head_of(sections[place])
        head = with_head(sections[place], memory, {**msgpack.unpackb(header), "requires": ["sampler"]})
        sections[place] = head[: FRONT_BYTES + sum(map(len, head_of(head)))]
        digest = hashlib.sha256(sections[place]).digest()
        fields["sections"][place] = [KINDS.index("head"), len(sections[place]), digest]

    return {
        "as it was": ("ok", whole),
        "a context with a feature that is not known": ("unsupported_format_version", changed(requiring)),
        "cut within the prefix": ("truncated", whole[:40]),
        "cut within the index": ("truncated", whole[:60]),
        "cut before the last byte": ("truncated", whole[:-1]),
        "a byte more": (malformed, whole + b"\0"),
        "version 2": ("unsupported_format_version", _at(whole, 8, struct.pack("<I", 2))),
        "too long an index": (malformed, _at(whole, HEADER_BYTES_AT, struct.pack("<I", (64 << 20) + 1))),
        "a flipped bit of the index": ("checksum_mismatch", _flipped(whole, 60)),
        "a flipped bit of a head": ("checksum_mismatch", changed(damaged)),
        "an unknown field": ("ok", changed(lambda fields, _: fields.update(later=1))),
        "no context": (malformed, changed(lambda fields, _: fields["contexts"].clear())),
        "two contexts of a name": (
            malformed,
            changed(lambda fields, _: fields["contexts"].append(fields["contexts"][0])),
        ),
        "a name that leads elsewhere": (
            malformed,
            changed(lambda fields, _: fields["contexts"][0].update(name="../a")),
        ),
        "a section that is not there": (malformed, changed(lambda fields, _: fields["contexts"][0].update(head=99))),
        "a section of no context": (malformed, changed(lambda fields, _: fields["contexts"].pop())),
        "another tier than the header's": (malformed, changed(disagreeing)),
    }


def _nodes() -> Mapping[str, tuple[str, bytes]]:
    malformed = "malformed_ep_context"

    def model(*nodes: Mapping[str, Any], operator: str = "EPContext", domain: str = "com.microsoft") -> bytes:
        made = [helper.make_node(operator, [], ["y"], domain=domain) for _ in nodes]
        for node, attributes in zip(made, nodes, strict=True):
            node.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
        whole: bytes = helper.make_model(helper.make_graph(made, "graph", [], [])).SerializeToString()
        return whole

    def named(path: str) -> bytes:
        return model({**MAIN, "ep_cache_context": path})

    inner = files.rich()
    return {
        "beside it": ("ok", named("context.bin")),
        "in it": ("ok", model({"source": "gputune", "ep_cache_context": inner})),
        "a damaged one in it": (
            "checksum_mismatch",
            model({"source": "gputune", "ep_cache_context": inner[:-1] + b"!"}),
        ),
        "a package in it": ("not_a_context", model({"source": "gputune", "ep_cache_context": files.packed()})),
        "nothing in it": (malformed, model({"source": "gputune", "ep_cache_context": b""})),
        "nothing": (malformed, b""),
        "no ONNX": (malformed, b"\xff" * 40),
        "cut": (malformed, named("context.bin")[:-2]),
        "no node": (malformed, model()),
        "no main node": (malformed, model({**MAIN, "main_context": 0})),
        "another source": (malformed, model({**MAIN, "source": "QNN"})),
        "another operator": (malformed, model({**MAIN}, operator="Relu")),
        "another domain": (malformed, model({**MAIN}, domain="")),
        "a flag of 2": (malformed, model({**MAIN, "embed_mode": 2})),
        "two nodes of a name": (malformed, model(*[{**MAIN, "partition_name": "a"}] * 2)),
        "a path that leads out": (malformed, named("../outside.bin")),
        "a path from the root": (malformed, named("/etc/hosts")),
        "a link that leads out": (malformed, named("link")),
        "a link that stays inside": ("ok", named("inside")),
        "a circle of links": (malformed, named("circle")),
        "a pipe": (malformed, named("fifo")),
        "a folder": (malformed, named("sub")),
        "what is missing": (malformed, named("missing.bin")),
    }


def _no_files() -> Mapping[str, tuple[str, Made]]:
    return {
        "a named pipe": ("io_error", os.mkfifo),
        "a folder": ("io_error", Path.mkdir),
        "a link to a folder": ("io_error", lambda path: path.symlink_to(".")),
        "a link to nothing": ("io_error", lambda path: path.symlink_to("nothing")),
        "a circle of links": ("io_error", lambda path: path.symlink_to(path.name)),
        "what is missing": ("io_error", lambda path: None),
    }
