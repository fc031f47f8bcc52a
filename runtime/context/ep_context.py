"""Read ONNX files whose EPContext nodes hold or name context binaries, as ONNX Runtime keeps compiled models.

If a file has other nodes, too, it is a model in parts: the EPContext nodes stand for the parts that run on the device,
and everything else runs in ONNX Runtime.

They are read without onnx and protobuf. The reader looks only at the fields of protobuf's wire format that lead to the
nodes and their attributes, each within a bound, and skips all others. For an embedded context, it keeps the position in
the file, so a context costs memory only when it is used.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PureWindowsPath

from gputune.core.errors import MalformedEpContext, OnlyParts, UnknownGraph, shortened
from gputune.core.files import TELLING_BYTES, mistaken
from gputune.runtime.context.format import FORMAT_VERSION, REQUIRING_VERSION, ContextFile, context_of, open_context
from gputune.runtime.context.records import ContextHeader
from gputune.runtime.context.stored import Extent, OpenFile

DOMAIN, OPERATOR, SOURCE = "com.microsoft", "EPContext", "gputune"
COMPATIBILITY_KEY = "ep_compatibility_info.GputuneExecutionProvider"
"""Of the model's metadata: where ONNX Runtime looks for compatibility_info."""
SUFFIX = ".onnx"
LARGEST_FILE_BYTES = 2**31 - 1
"""More has no message of protobuf."""
MOST_FIELDS = 1 << 17
"""Of a file, those that are stepped over included."""
MOST_NODES = 1024
"""EPContext nodes of a file."""
MOST_ATTRIBUTES = 64
"""Of a node."""
LONGEST_TEXT = 4096
"""Bytes of a name, a path or a note."""
QUOTED = 80
"""Characters of a name that an error quotes."""
_STANDARD_DOMAINS = ("", "ai.onnx")
_WITH_GRAPHS = ("If", "Loop", "Scan")

# Field numbers of onnx.proto, and its numbers for types of attributes
_GRAPH = 7
_NODE = 1
_NODE_NAME, _OP_TYPE, _ATTRIBUTE, _NODE_DOMAIN = 3, 4, 5, 7
_ATTRIBUTE_NAME, _INTEGER, _STRING, _INNER_GRAPH, _TYPE = 1, 3, 4, 6, 20
_OF_INTEGER, _OF_STRING = 2, 3

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_FIXED = {_FIXED64: 8, _FIXED32: 4}
_LONGEST_NUMBER, _LONGEST_SIZE = 10, 5
"""Bytes of a number, and of one that is a size or a field's tag."""
_NOTHING = Extent(memoryview(b""))


@dataclass(frozen=True)
class EpContext:
    """An EPContext node.

    path: the ONNX file. name: the graph of the context binary that the node stands for; empty where it does not say.
    max_size: bytes of arenas, of a main node those in which each graph of its context can run, else those of its own
    graph; 0 where the node does not say. It may only serve to choose: what is allocated is what the context binary
    says. main: whether the context is its own, else that of a main node. content: the context binary, a file's path or
    a part of the ONNX file.
    """

    path: Path
    name: str
    max_size: int
    main: bool
    content: Path | Extent

    def open(self) -> ContextFile:
        """Return the context binary. Raises as open_context does."""
        content = self.content
        return open_context(content) if isinstance(content, Path) else context_of(content, str(self.path))


@dataclass(frozen=True)
class EpModel:
    """The EPContext nodes of an ONNX file, in its order; at least one is a main node. others: how many other nodes the
    file has, which ONNX Runtime runs."""

    nodes: list[EpContext]
    others: int

    @property
    def contexts(self) -> list[EpContext]:
        """Return main nodes, one for each context."""
        return list({node.content: node for node in reversed(self.nodes) if node.main}.values())[::-1]


def is_ep_context(path: Path | str) -> bool:
    """Return whether a file is read as one with EPContext nodes, and not as a context binary: by its suffix."""
    return Path(path).suffix.lower() == SUFFIX


def ep_contexts(path: Path | str) -> list[EpContext]:
    """Return the EPContext nodes of an ONNX file that has no others. Raises as read_ep_model and whole_contexts do."""
    return whole_contexts(path, read_ep_model(path))


def whole_contexts(path: Path | str, model: EpModel) -> list[EpContext]:
    """Return the nodes of a file that has no others. Raises OnlyParts for a model in parts, and MalformedEpContext for
    nodes with the same name, which only a model in parts may have."""
    if model.others:
        raise OnlyParts(
            f"{path}: this is a model in parts, of which gputune runs {len(model.nodes)} and onnxruntime the other "
            f"{model.others} nodes, but a whole context is needed here; gputune.load, net-run and compare run it"
        )
    names = [node.name for node in model.nodes if node.name]
    if len(set(names)) != len(names):
        raise MalformedEpContext(f"{path}: two EPContext nodes have the same partition_name")
    return model.nodes


def read_ep_model(path: Path | str) -> EpModel:
    """Read the nodes of an ONNX file.

    A node that is not main refers to the context of the nearest main node before it, else to that of the first. In a
    model in parts, a branch of an If has nodes of its own, which are behind those of the graph around it.

    Raises MalformedEpContext for anything that is no such file: damaged, too large, without EPContext nodes or with
    such of other sources, or with a path that leaves the folder of the file. Raises OSError when it cannot be read.
    """
    path = Path(path)
    whole = Extent(OpenFile(path))
    if other := mistaken(bytes(whole.part(0, TELLING_BYTES).read())):
        raise MalformedEpContext(f"{path}: it {other}")
    if not 0 < whole.nbytes <= LARGEST_FILE_BYTES:
        raise MalformedEpContext(f"{path}: {whole.nbytes} bytes, an ONNX file has 1 to {LARGEST_FILE_BYTES}")
    try:
        graphs, others = _graphs(whole)
        found = [one for nodes in graphs for one in _contexts(nodes, path)]
    except MalformedEpContext as error:
        raise MalformedEpContext(f"{path}: {error}") from None
    return EpModel(found, others)


def node_named(path: Path | str, model: EpModel, graph: str | None) -> EpContext:
    """Return the node of an ONNX file that stands for a graph; None is the first main node. Raises as whole_contexts
    does, and UnknownGraph, a ValueError, when there is none of this name."""
    contexts = whole_contexts(path, model)
    for context in contexts:
        if context.main if graph is None else context.name == graph:
            return context
    raise UnknownGraph(f"{path}: there is no graph {graph!r}; the graphs are {shortened(one.name for one in contexts)}")


def compatibility_info(header: ContextHeader) -> str:
    """Return the line by which our plugin for ONNX Runtime knows how a context fits a device without opening it."""
    version = REQUIRING_VERSION if header.packing or header.requires else FORMAT_VERSION
    made_for = "no device"
    if header.computes:
        it = header.device
        made_for = (
            f"{it.name}; {it.device_version}; driver {it.driver_version}; {it.platform} {it.platform_version}; "
            f"{it.compute_units} compute units"
        )
    line = f"gputune format {version}; {made_for}"
    return "".join("?" if letter < " " else letter for letter in line)


def leaves_folder(text: str) -> str:
    """Why a node's path could lead out of the folder of its file, in words that follow it; empty where it cannot. Paths
    of other systems count, too: a file is made on one and read on another."""
    if not text:
        return "is empty"
    if text[0] in "/\\" or PureWindowsPath(text).drive:
        return "is absolute; it must be relative to the ONNX file"
    if ".." in text.replace("\\", "/").split("/"):
        return 'has ".."; it must not lead out of the folder of the ONNX file'
    return ""


@dataclass(frozen=True)
class _Node:
    """An EPContext node as it lies in the file."""

    name: str
    attributes: Mapping[str, int | Extent]

    def text(self, name: str) -> str:
        value = self.attributes.get(name, _NOTHING)
        if isinstance(value, int):
            raise self.wrong(f"{name} is a number, expected a text")
        return _text(value, name)

    def number(self, name: str, default: int) -> int:
        value = self.attributes.get(name, default)
        if not isinstance(value, int):
            raise self.wrong(f"{name} is no number")
        return value

    def flag(self, name: str) -> bool:
        """Return a flag; both flags of the operator are 1 where they are missing."""
        value = self.number(name, 1)
        if value not in (0, 1):
            raise self.wrong(f"{name} is {value}, expected 0 or 1")
        return value == 1

    def wrong(self, what: str) -> MalformedEpContext:
        return MalformedEpContext(f"{OPERATOR} node {self.name[:QUOTED]!r}: {what}")


def _contexts(nodes: Sequence[_Node], path: Path) -> list[EpContext]:
    """Return what the nodes of a graph mean, checked. `path` is the file that they are in."""
    contents: list[Path | Extent | None] = []
    for node in nodes:
        if (source := node.text("source")) != SOURCE:
            raise node.wrong(f"its source is {source[:QUOTED]!r}, and only nodes of {SOURCE!r} can be loaded")
        contents.append(_content(node, path) if node.flag("main_context") else None)
    nearest = next((content for content in contents if content is not None), None)
    if nearest is None:
        raise MalformedEpContext("no EPContext node with main_context = 1" if nodes else "no EPContext node")
    found: list[EpContext] = []
    for node, content in zip(nodes, contents, strict=True):
        nearest = nearest if content is None else content
        for name in ("ep_sdk_version", "notes"):  # which say nothing to us, but as texts
            node.text(name)
        found.append(
            EpContext(
                path=path,
                name=node.text("partition_name"),
                max_size=node.number("max_size", 0),
                main=content is not None,
                content=nearest,
            )
        )
        if found[-1].max_size < 0:
            raise node.wrong(f"max_size is {found[-1].max_size}")
    return found


def _content(node: _Node, path: Path) -> Path | Extent:
    """Return the context of a main node."""
    if node.flag("embed_mode"):
        content = node.attributes.get("ep_cache_context")
        if not isinstance(content, Extent) or not content.nbytes:
            raise node.wrong("ep_cache_context holds no context")
        return content
    text = node.text("ep_cache_context")
    place = f"ep_cache_context {text[:200]!r}"
    if why := leaves_folder(text):
        raise node.wrong(f"{place} {why}")
    try:
        folder = path.parent.resolve()
        found = (folder / text).resolve(strict=True)
        file = found.is_file()
    except (OSError, RuntimeError, ValueError) as error:  # missing, a circle of links, or no path at all
        reason = error.strerror if isinstance(error, OSError) else "no file can have this name"
        raise node.wrong(f"{place} cannot be found next to the ONNX file: {reason}") from None
    if not found.is_relative_to(folder):
        raise node.wrong(f"{place} is a link that leads out of the folder of the ONNX file")
    if not file:
        raise node.wrong(f"{place} is no file")
    return found


# --- the wire format ---


class _Fields:
    """The fields of messages; all that it has looked at together are MOST_FIELDS at most."""

    def __init__(self) -> None:
        self._left = MOST_FIELDS

    def single(self, message: Extent, numbers: tuple[int, ...], texts: tuple[int, ...]) -> _Found:
        """Fields that a message has once at most, by their numbers: integers, and bytes. Raises MalformedEpContext for
        one that occurs twice, of which readers could take either."""
        found = _Found({}, {})
        for field, kind, value in self._each(message):
            if field in numbers or field in texts:
                if kind != (_VARINT if field in numbers else _BYTES) or field in found.numbers or field in found.texts:
                    raise MalformedEpContext(f"damaged: field {field} occurs twice, or is of another type")
                if isinstance(value, int):
                    found.numbers[field] = value
                else:
                    found.texts[field] = value
        return found

    def repeated(self, message: Extent, number: int) -> Iterator[Extent]:
        """Yield each of a message's fields with this number; they are messages themselves."""
        for field, _, value in self._each(message):
            if field == number:
                if isinstance(value, int):
                    raise MalformedEpContext(f"damaged: field {field} is of another type")
                yield value

    def _each(self, message: Extent) -> Iterator[tuple[int, int, int | Extent]]:
        """Yield number, wire type and value of each field; the value of one of fixed size is its bytes."""
        place = 0
        while place < message.nbytes:
            self._left -= 1
            if self._left < 0:
                raise MalformedEpContext(f"more than {MOST_FIELDS} fields")
            tag, place = _varint(message, place, _LONGEST_SIZE)
            field, kind = tag >> 3, tag & 7
            if not 0 < field < 1 << 29:
                raise MalformedEpContext(f"damaged: there is no field {field}")
            if kind == _VARINT:
                value, place = _varint(message, place, _LONGEST_NUMBER)
                yield field, kind, value
                continue
            if kind == _BYTES:
                length, place = _varint(message, place, _LONGEST_SIZE)
            elif kind in _FIXED:
                length = _FIXED[kind]
            else:
                raise MalformedEpContext(f"damaged: field {field} has the wire type {kind}")
            if length > message.nbytes - place:
                raise MalformedEpContext(
                    f"damaged: field {field} has {length} bytes, {message.nbytes - place} are there; "
                    "copy the file again"
                )
            yield field, kind, message.part(place, length)
            place += length


@dataclass(frozen=True)
class _Found:
    """Fields by number."""

    numbers: dict[int, int]
    texts: dict[int, Extent]

    def text(self, field: int, what: str) -> str:
        return _text(self.texts.get(field, _NOTHING), what)


def _graphs(model: Extent) -> tuple[list[list[_Node]], int]:
    """Return the EPContext nodes of a model's graph, then those of each graph inside that has such, and how many other
    nodes there are; functions are not looked into. Raises MalformedEpContext for a model without EPContext nodes."""
    fields = _Fields()
    waiting = [graph] if (graph := fields.single(model, (), (_GRAPH,)).texts.get(_GRAPH)) is not None else []
    if not waiting:
        raise MalformedEpContext("no ONNX model: it has no graph")
    graphs: list[list[_Node]] = []
    others, first = 0, ""
    for graph in waiting:  # which grows by the graphs inside
        nodes: list[_Node] = []
        for node in fields.repeated(graph, _NODE):
            name, domain, operator = _head(fields, node)
            if (domain, operator) == (DOMAIN, OPERATOR):
                if sum(map(len, graphs)) + len(nodes) == MOST_NODES:
                    raise MalformedEpContext(f"more than {MOST_NODES} EPContext nodes")
                nodes.append(_Node(name, _attributes(fields, node, name)))
                continue
            others += 1
            called = f"{domain}.{operator}" if domain else operator
            first = first or f"its node {name[:QUOTED]!r} is {called[: 2 * QUOTED]!r}"
            if not domain and operator in _WITH_GRAPHS:
                attributes = fields.repeated(node, _ATTRIBUTE)
                waiting += [inner for attribute in attributes for inner in fields.repeated(attribute, _INNER_GRAPH)]
        graphs += [nodes] if nodes else []
    if not graphs and others:
        raise MalformedEpContext(
            f"this is a model and no context: {first}, not {OPERATOR} of {DOMAIN!r}; `gputune "
            "context-binary-generator` or gputune.tune makes a context of it; what `--unsupported host` wrote without "
            "any part runs in onnxruntime alone"
        )
    return graphs or [[]], others


def _head(fields: _Fields, node: Extent) -> tuple[str, str, str]:
    """Return the name of a node, its domain, which is empty for ONNX's own, and its operator."""
    head = fields.single(node, (), (_NODE_NAME, _OP_TYPE, _NODE_DOMAIN))
    name, operator = head.text(_NODE_NAME, "a node's name"), head.text(_OP_TYPE, "a node's operator")
    domain = head.text(_NODE_DOMAIN, "a node's domain")
    return name, "" if domain in _STANDARD_DOMAINS else domain, operator


def _attributes(fields: _Fields, node: Extent, name: str) -> dict[str, int | Extent]:
    """Return the attributes of a node, by their names."""
    attributes: dict[str, int | Extent] = {}
    for attribute in fields.repeated(node, _ATTRIBUTE):
        key, value = _attribute(fields, attribute)
        if key in attributes or len(attributes) == MOST_ATTRIBUTES:
            raise MalformedEpContext(f"node {name[:QUOTED]!r} has an attribute twice, or more than {MOST_ATTRIBUTES}")
        attributes[key] = value
    return attributes


def _attribute(fields: _Fields, attribute: Extent) -> tuple[str, int | Extent]:
    """Return an attribute's name and value, which is empty where that is neither a number nor a text. Some writers
    leave out a number that is 0 and a text that is empty."""
    found = fields.single(attribute, (_INTEGER, _TYPE), (_ATTRIBUTE_NAME, _STRING))
    name, kind = found.text(_ATTRIBUTE_NAME, "an attribute's name"), found.numbers.get(_TYPE)
    if kind == _OF_INTEGER:
        value = found.numbers.get(_INTEGER, 0)
        return name, value - (1 << 64) if value >> 63 else value
    return name, found.texts.get(_STRING, _NOTHING) if kind == _OF_STRING else _NOTHING


def _text(value: Extent, what: str) -> str:
    if value.nbytes > LONGEST_TEXT:
        raise MalformedEpContext(f"{what} has {value.nbytes} bytes, at most {LONGEST_TEXT} are allowed")
    try:
        text = bytes(value.read()).decode()
    except UnicodeDecodeError:
        raise MalformedEpContext(f"{what} is not UTF-8") from None
    if "\0" in text:
        raise MalformedEpContext(f"{what} has a character 0")
    return text


def _varint(message: Extent, place: int, longest: int) -> tuple[int, int]:
    """Return the number at a place of a message, and the place behind it."""
    value = 0
    for count, byte in enumerate(message.part(place, longest).read()):
        value |= (byte & 0x7F) << 7 * count
        if byte < 0x80:
            if value >= 1 << (64 if longest == _LONGEST_NUMBER else 32):
                break
            return value, place + count + 1
    raise MalformedEpContext("damaged: a number is cut off or too large")
