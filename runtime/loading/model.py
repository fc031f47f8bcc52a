"""Open any file that holds contexts: a context binary, a package, an ONNX file with EPContext nodes, a model in parts.

`open_any` asks once of which kind a file is. What it returns opens the device, the contexts and their graphs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from gputune.core.errors import UnknownGraph
from gputune.core.identity import DeviceIdentity
from gputune.core.statuses import ContextChoice
from gputune.runtime.context.ep_context import EpModel, is_ep_context, node_named, read_ep_model, whole_contexts
from gputune.runtime.context.format import (
    ContextFile,
    context_of,
    memory_need_of,
    open_context,
    read_header,
    read_memory_need,
)
from gputune.runtime.context.memory_need import MemoryNeed
from gputune.runtime.context.package import is_package, open_package, open_packed
from gputune.runtime.context.records import GraphRecord
from gputune.runtime.context.stored import Extent
from gputune.runtime.contexts.device import OpenDevice
from gputune.runtime.devices.discovery import SIMULATED
from gputune.runtime.executor import Executor
from gputune.runtime.loading.checks import Compatibility, check_trusted, graph_named, is_strict
from gputune.runtime.loading.devices import open_timed
from gputune.runtime.loading.executors import voted_executor
from gputune.runtime.loading.in_parts import ModelInParts, open_in_parts
from gputune.runtime.loading.verdict import open_chosen
from gputune.runtime.power.profiles.perf_profile import PerfProfile


@dataclass(frozen=True)
class ContextSource:
    """A context that is going to be loaded: its name in a group, the file that was given, and where it is: a file or a
    part of that. package: whether that file is a package; choice: the context of it that is meant, once `on` has chosen
    it."""

    name: str
    path: Path
    content: Path | Extent
    package: bool = False
    choice: ContextChoice | None = None

    def open_device(self, device: str | None) -> tuple[OpenDevice, int]:
        """Return the device of the context, or of one of the package, as load() opens it, and the ns that this took.
        Raises as load() does."""
        backend, device_open_ns, file = self.open_on(device, None)
        file.close()
        return backend, device_open_ns

    def open_on(self, device: str | None, graph: str | None) -> tuple[OpenDevice, int, ContextFile]:
        """Return the device, the ns to open it, and the context, of a package the one that fits the device best. graph:
        the one that is going to run, None for any. Raises UnknownGraph, and as load() does."""
        self._check()
        if self.package:
            assert isinstance(self.content, Path)
            with open_package(self.content) as package:
                backend, device_open_ns = open_timed(package, device)
                return backend, device_open_ns, open_chosen(package, backend.identity, backend.computes, graph)
        file = self.open()
        try:
            graph_named(file, graph)
            return *open_timed(file, device), file
        except BaseException:
            file.close()
            raise

    def on(self, device: DeviceIdentity, graph: str | None = None) -> ContextSource:
        """Return the same source; of a package the context that fits a device best. graph: the one that is going to
        run, None for all. Raises ContextError, OSError."""
        if not self.package:
            return self
        self._check()
        assert isinstance(self.content, Path)
        with (
            open_package(self.content) as package,
            open_chosen(package, device, device.platform not in SIMULATED, graph) as file,
        ):
            return replace(self, choice=file.choice)

    def need(self) -> MemoryNeed:
        """Return what it needs. Raises ContextError, OSError."""
        if isinstance(self.content, Extent):
            return memory_need_of(self.content, str(self.path))
        if self.choice is None:
            return read_memory_need(self.content)
        with open_packed(self.content, self.choice) as file:
            return MemoryNeed.of(file.header.device, file.header.graphs)

    def open(self) -> ContextFile:
        """Return the file. Raises ContextError, OSError."""
        self._check()
        if isinstance(self.content, Extent):
            return context_of(self.content, str(self.path))
        return open_context(self.content) if self.choice is None else open_packed(self.content, self.choice)

    def _check(self) -> None:
        check_trusted(self.path)
        if isinstance(self.content, Path) and self.content != self.path:
            check_trusted(self.content)


@dataclass(frozen=True)
class Model:
    """Describe what a file holds. ep_model: the EPContext nodes of an ONNX file; package: whether it is a package."""

    path: Path
    package: bool = False
    ep_model: EpModel | None = None

    @property
    def in_parts(self) -> bool:
        """Return whether it is a model in parts, which onnxruntime runs."""
        return self.ep_model is not None and self.ep_model.others > 0

    def contexts(self, name: str | None = None) -> list[ContextSource]:
        """Return its contexts under a name, by default the file's without the ending; of several, the second is called
        NAME.1. Raises OnlyParts for a model in parts, ValueError for a name that cannot be one."""
        name = self.path.stem if name is None else name
        if not name or "/" in name:
            raise ValueError(
                f"{self.path}: {name!r} cannot be the name of a context: it must not be empty or have a slash"
            )
        if self.ep_model is None:
            return [ContextSource(name, self.path, self.path, self.package)]
        contents = [node.content for node in whole_contexts(self.path, self.ep_model) if node.main]
        names = [f"{name}.{number}" if number else name for number in range(len(contents))]
        return [ContextSource(each, self.path, content) for each, content in zip(names, contents, strict=True)]

    def files(self) -> list[ContextSource]:
        """Return each of its context binaries once, also of a model in parts."""
        if self.ep_model is None:
            return self.contexts()
        return [ContextSource(self.path.stem, self.path, node.content) for node in self.ep_model.contexts]

    def graph_names(self) -> list[str]:
        """Return the names of its graphs, of an ONNX file those of its nodes. Raises ContextError, OSError."""
        if self.ep_model is not None:
            return [node.name for node in whole_contexts(self.path, self.ep_model)]
        if self.package:  # whose contexts have the same graphs
            with open_package(self.path) as package, package.open(0) as file:
                return [graph.name for graph in file.header.graphs]
        return [graph.name for graph in read_header(self.path).graphs]

    def source_of(self, graph: str | None) -> tuple[ContextSource, str | None]:
        """Return the context that holds a graph, and the graph's name in there: of an ONNX file that of its node. None
        is the first; of an ONNX file that of its first main node. Raises UnknownGraph, OnlyParts."""
        if self.ep_model is None:
            return ContextSource(self.path.stem, self.path, self.path, self.package), graph
        node = node_named(self.path, self.ep_model, graph)
        return ContextSource(self.path.stem, self.path, node.content), graph or node.name or None

    def open_graph(self, graph: str | None, device: DeviceIdentity) -> tuple[ContextFile, GraphRecord]:
        """Open the context that runs on a device, and find a graph in it, as `source_of`. The caller closes the file.
        Raises ContextError, OSError; UnknownGraph, a ValueError."""
        source, name = self.source_of(graph)
        file = source.on(device, name).open()
        try:
            return file, graph_named(file, name)
        except ValueError:
            file.close()
            raise

    def load(
        self,
        device: str | None = None,
        cache_compatibility_mode: Compatibility = "permissive",
        graph: str | None = None,
        perf_profile: PerfProfile | str | None = None,
    ) -> Executor | ModelInParts:
        """Return what runs a graph on a device, which may be any; a model in parts runs as a whole. The caller reads
        `warnings` and `computes`. Raises as load() does, and as open_in_parts does."""
        if self.ep_model is not None and self.in_parts:
            if graph is not None:
                raise UnknownGraph(
                    f"{self.path}: a model in parts runs as a whole, so there is no graph {graph!r} to choose"
                )
            return open_in_parts(self.path, self.ep_model, device, cache_compatibility_mode, perf_profile)
        return self.executor(device, cache_compatibility_mode, graph, perf_profile)

    def executor(
        self,
        device: str | None = None,
        cache_compatibility_mode: Compatibility = "permissive",
        graph: str | None = None,
        perf_profile: PerfProfile | str | None = None,
    ) -> Executor:
        """Return the same of a whole context. Raises OnlyParts for a model in parts."""
        strict = is_strict(cache_compatibility_mode)
        source, name = self.source_of(graph)
        backend, device_open_ns, file = source.open_on(device, name)
        with file:
            return voted_executor(backend, file, name, strict, device_open_ns, perf_profile)


def open_any(path: Path | str) -> Model:
    """Find out what a file holds that is going to run. Raises UntrustedFile, MalformedEpContext, OSError."""
    path = Path(path)
    check_trusted(path)
    if is_ep_context(path):
        return Model(path, ep_model=read_ep_model(path))
    return Model(path, package=is_package(path))


def context_sources(models: Sequence[Model], names: Sequence[str] | None = None) -> list[ContextSource]:
    """Return the contexts of files under names, by default the files' without the ending: one for each file, and for an
    ONNX file one for each main EPContext node, the second of which is called NAME.1.

    Raises ValueError for no files, and for names that are too few, too many or not distinct; ContextError, OSError."""
    given: Sequence[str | None] = [None] * len(models) if names is None else names
    if not models or len(given) != len(models):
        raise ValueError(
            f"{len(models)} contexts and {len(given)} names; give one context or more, and a name for each"
        )
    sources = [source for model, name in zip(models, given, strict=True) for source in model.contexts(name)]
    if repeated := [name for name, count in Counter(source.name for source in sources).items() if count > 1]:
        raise ValueError(f"contexts of a group need different names, two are called {repeated[0]!r}; give names")
    return sources
