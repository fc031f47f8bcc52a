"""Know from which model files a context was made, whether a file is one of them, and whether the context is tuned."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol

from gputune.client.device_errors import device_errors
from gputune.client.errors import ModelError
from gputune.client.model.importer import data_files
from gputune.core.files import sha256_of
from gputune.runtime.context.contents import contexts_in
from gputune.runtime.context.records import ContextHeader, FileRecord, GraphRecord, ModelRecord, Tuning
from gputune.runtime.loading.in_parts import ModelInParts

Match = Literal["same", "other", "unknown"]
"""Whether contexts were made from a file; unknown: a context does not say from which."""

SHOWN = 12
"""Digits of a digest in messages."""
TOLD = 3
"""Files that a message names."""

IN_WORDS: Mapping[Tuning, str] = {
    "tuned": "tuned",
    "untuned": "untuned, because tuning found nothing faster for certain",
    "none": "untuned, of tuning effort none",
    "unknown": "made without saying whether it is tuned",
}


def records_of(paths: Iterable[tuple[str, Path]]) -> tuple[ModelRecord, ...]:
    """Return what a context keeps of its models. paths: the file of each graph, by its name. Raises ModelError for a
    file that cannot be read any more."""
    graphs: dict[Path, list[str]] = {}
    for graph, path in paths:
        graphs.setdefault(path, []).append(graph)
    return tuple(_record(path, tuple(names)) for path, names in graphs.items())


def headers_of(path: Path) -> list[ContextHeader]:
    """Return the headers of a context, of all contexts in a package, or of those of an ONNX file. Raises
    DeviceOrContextError."""
    with device_errors(path):
        return [file.header for file in contexts_in(path)]


class Opened(Protocol):
    """A graph that is loaded here or on a target, or a model in parts."""

    @property
    def graph(self) -> GraphRecord: ...
    @property
    def header(self) -> ContextHeader: ...


@dataclass(frozen=True)
class Origin:
    """Which files a context, a package or an ONNX file with contexts was made from, beside a model file."""

    context: Path
    model: Path
    headers: tuple[ContextHeader, ...]
    given: ModelRecord

    @classmethod
    def of(cls, context: Path, model: Path) -> Origin:
        """Read both. Raises DeviceOrContextError, ModelError."""
        return cls(context, model, tuple(headers_of(context)), _record(model, ()))

    @property
    def match(self) -> Match:
        """Return whether all contexts were made from the model, its weights included."""
        if not all(header.models for header in self.headers):
            return "unknown"
        return "other" if self._others else "same"

    @property
    def words(self) -> str:
        """Return which file the context was made from."""
        if self.match != "other":
            return f"{self.context} {made_from(max(self.headers, key=lambda header: len(header.models)))}"
        for one in (one for header in self._others for one in header.models if one.sha256 == self.given.sha256):
            before = {each.name: each.sha256 for each in one.weights}
            names = ", ".join(each.name for each in self.given.weights if before.get(each.name) != each.sha256)
            return f"{self.context} was made from {self.model} with other weights: {names or 'a file'} has changed"
        return (
            f"{self.context} {made_from(self._others[0])}, and {self.model} is another file "
            f"(SHA-256 {self.given.sha256[:SHOWN]})"
        )

    @property
    def _others(self) -> list[ContextHeader]:
        """Return the headers of contexts that were not made from the model."""
        own = _content(self.given)
        return [header for header in self.headers if own not in map(_content, header.models)]


def made_from(header: ContextHeader) -> str:
    """Return which files a context was made from, in words that follow its name."""
    names = header.configuration.get("models")
    if not header.models:
        files = list(map(str, names)) if isinstance(names, list) else []
        return f"was made from {_few(files)}, of unknown content" if files else "does not say what it was made from"
    files = [f"{one.name} (SHA-256 {one.sha256[:SHOWN]})" for one in header.models]
    return f"was made from {_few(files)}"


def tuning_in_words(header: ContextHeader) -> str:
    """Return whether the graphs of a context are tuned, in words that follow "is"."""
    by_graph = {graph.name: IN_WORDS[header.tuning_of(graph.name)] for graph in header.graphs}
    if len(set(by_graph.values())) == 1:
        return next(iter(by_graph.values()))
    return "; ".join(f"in graph {name!r} {words}" for name, words in by_graph.items())


def tuning_of(model: Opened) -> Tuning:
    """Return whether what is loaded is tuned: a graph, or one of the parts of a model."""
    return model.header.tuning_of(*graph_names(model))


def graph_names(model: Opened) -> list[str]:
    """Return the names of the graphs that run for what is loaded."""
    return [graph.name for graph in (model.parts if isinstance(model, ModelInParts) else (model.graph,))]


def _few(files: Sequence[str]) -> str:
    return ", ".join(files[:TOLD]) + (f" and {len(files) - TOLD} more" if len(files) > TOLD else "")


def _record(path: Path, graphs: tuple[str, ...]) -> ModelRecord:
    weights = tuple(FileRecord(one.name, _digest(one)) for one in data_files(path))
    return ModelRecord(path.name, _digest(path), weights, graphs)


def _digest(path: Path) -> str:
    try:
        return sha256_of(path)
    except OSError as error:
        raise ModelError(f"model {path} cannot be read: {error.strerror or error}") from None


def _content(record: ModelRecord) -> tuple[str, ...]:
    """Return what two equal models have alike, whatever their files are called."""
    return record.sha256, *(one.sha256 for one in record.weights)
