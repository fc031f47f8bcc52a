"""Open any file that holds contexts: a context binary, a package, an ONNX file with EPContext nodes, a model in parts.

`open_any` asks once of which kind a file is. What it returns opens the device, the contexts and their graphs.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from gputune.core.errors import DeviceNotFound, UnknownGraph, WrongDevice
from gputune.core.identity import DeviceIdentity
from gputune.core.ownership import check_trusted
from gputune.runtime.context.ep_context import EpModel, is_ep_context, node_named, read_ep_model, whole_contexts
from gputune.runtime.context.format import ContextFile, context_of, open_context, read_header
from gputune.runtime.context.package import Package, is_package, open_package
from gputune.runtime.context.records import GraphRecord
from gputune.runtime.context.stored import Extent
from gputune.runtime.contexts.device import OpenDevice
from gputune.runtime.devices.discovery import SIMULATED
from gputune.runtime.executor import Executor
from gputune.runtime.loading.devices import open_device_for
from gputune.runtime.loading.executors import executor_on
from gputune.runtime.loading.in_parts import ModelInParts, open_in_parts
from gputune.runtime.loading.verdict import Compatibility, is_strict, open_chosen

if TYPE_CHECKING:  # most loads do without
    from gputune.runtime.power.profiles.perf_profile import PerfProfile


@dataclass(frozen=True)
class ContextSource:
    """A context that is going to be loaded: its name in a group, the file that was given, and where it is: a file or a
    part of that. package: whether that file is a package, of which the context is taken that fits a device best."""

    name: str
    path: Path
    content: Path | Extent
    package: bool = False

    def open_on(self, device: str | None, graph: str | None = None) -> tuple[OpenDevice, int, ContextFile]:
        """Return the device of the context, or of one of the package, as load() opens it; the ns that this took; and
        the context. graph: the one that is going to run, None for any. Raises UnknownGraph, and as load() does."""
        opened = self._opened()
        try:
            if isinstance(opened, ContextFile):
                opened.graph_named(graph)
            backend, device_open_ns = open_device_for(opened, device)
            return backend, device_open_ns, _fitting(opened, backend.identity, graph)
        except BaseException:
            opened.close()
            raise

    def open(self, device: DeviceIdentity, graph: str | None = None) -> ContextFile:
        """Return the context that runs on a device. graph: the one that is going to run, None for all. Raises
        ContextError, OSError."""
        return _fitting(self._opened(), device, graph)

    def graphs(self) -> tuple[GraphRecord, ...]:
        """Return the graphs of the context; those in a package have the same. Raises ContextError, OSError."""
        with self._opened() as opened:
            if isinstance(opened, ContextFile):
                return opened.header.graphs
            with opened.open(0) as file:
                return file.header.graphs

    def _opened(self) -> ContextFile | Package:
        if isinstance(self.content, Extent):
            return context_of(self.content, str(self.path))
        if self.content != self.path:  # which open_any has checked
            check_trusted(self.content)
        return open_package(self.content) if self.package else open_context(self.content)


def _fitting(opened: ContextFile | Package, device: DeviceIdentity, graph: str | None) -> ContextFile:
    if isinstance(opened, ContextFile):
        return opened
    with opened:
        return open_chosen(opened, device, device.platform not in SIMULATED, graph)


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
        file = source.open(device, name)
        try:
            return file, file.graph_named(name)
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

        def made() -> Executor:
            return executor_on(backend, file, name, strict, device_open_ns)

        with file:
            return made() if perf_profile is None else _voted(perf_profile, backend.identity, made)


def load(
    path: Path | str,
    device: str | None = None,
    cache_compatibility_mode: Compatibility = "permissive",
    graph: str | None = None,
    perf_profile: PerfProfile | str | None = None,
) -> Executor:
    """Load a context binary and open its device.

    The file may also be an ONNX file (.onnx) with EPContext nodes, or a package. From a package, the context that fits
    best is loaded; `choice` of the executor says which and why. On another device or driver version, the programs are
    built from source with a warning, unless cache_compatibility_mode is "strict". A context of the null device runs on
    no other device, because nothing has rearranged its weights.

    A device that computes nothing gives zeros that look like results. It must therefore be named in this call: neither
    the environment nor the context can choose it.

    Args:
        path: the file.
        device: a number or part of a name from `gputune devices`, "null" or "waiting"; by default GPUTUNE_DEVICE, else
            the device for which the context was made, else the best device. For a package, a device for which one of
            its contexts was made, if there is any.
        cache_compatibility_mode: "permissive", or "strict" to refuse another device or driver version.
        graph: a name; by default the first graph.
        perf_profile: a profile or the name of a preset: the clocks and power to vote for while the context is loaded,
            around inferences and when it is closed. By default no vote is made.

    Raises:
        ContextError: its subclasses, such as WrongDevice in strict mode and for a context of the null device, or
            UntrustedFile for a file that another user could change (see ownership.py).
        DeviceNotFound: no usable device matches.
        BuildFailed: the driver refuses the source.
        ValueError: the graph, mode or perf profile is unknown.
        OSError: the file cannot be read.
        ForkedProcess: the process forked after it had opened a device.
    """
    executor = open_any(path).executor(device, cache_compatibility_mode, graph, perf_profile)
    refuse_zeros(path, executor, device)
    for reason in executor.warnings:
        warnings.warn(f"{path}: {reason}", stacklevel=2)
    return executor


def refuse_zeros(path: Path | str, executor: Executor, device: str | None) -> None:
    """Raise WrongDevice or DeviceNotFound if outputs are zeros that the call, which says `device`, did not request."""
    if executor.computes or device:
        return
    zeros = 'its outputs are zeros, not results; device="null" in the call to load() asks for that'
    if not executor.header.computes:
        raise WrongDevice(f"{path}: made by the null device; make it again on a real device: {zeros}")
    raise DeviceNotFound(f"GPUTUNE_DEVICE chooses {executor.device.platform!r}, which computes nothing: {zeros}")


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


def open_together(
    sources: Sequence[ContextSource], device: str | None, stack: ExitStack
) -> tuple[OpenDevice, int, dict[str, ContextFile]]:
    """Open the device of the first context as load() does, and all contexts for it, by their names; `stack` closes
    them. Return also the ns to open the device. Raises as load() does."""
    backend, device_open_ns, file = sources[0].open_on(device)
    files = {sources[0].name: stack.enter_context(file)}
    for source in sources[1:]:
        files[source.name] = stack.enter_context(source.open(backend.identity))
    return backend, device_open_ns, files


def _voted(profile: PerfProfile | str, device: DeviceIdentity, made: Callable[[], Executor]) -> Executor:
    """Return an executor, made and run with the votes of a profile."""
    from gputune.runtime.power.instances import Power  # what most loads do without

    power = Power(profile, device)
    try:
        with power.phase("init"):
            executor = made()
    except BaseException:
        power.close()
        raise
    executor.power = power
    return executor
