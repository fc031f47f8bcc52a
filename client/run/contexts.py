"""Load several contexts on one device for net-run: each with its own arenas, or as a group that shares them."""

import logging
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gputune.client.errors import ConfigError
from gputune.core.errors import UnknownGraph
from gputune.runtime import ContextGroup, Executor
from gputune.runtime.loading.checks import Compatibility, is_strict
from gputune.runtime.loading.executors import executor_on
from gputune.runtime.loading.groups import group_on
from gputune.runtime.loading.model import ContextSource, Model, context_sources

log = logging.getLogger(__name__)

SHARES = "enable_spill_fill_buffer"
"""The key of a context's configuration by which it shares its arenas with others where it can."""


@dataclass(frozen=True)
class Loaded:
    """Executors by the names of their contexts, the files that these are from, and the group that they are in."""

    executors: dict[str, Executor]
    paths: dict[str, Path]
    group: ContextGroup | None

    def memory(self) -> dict[str, Any] | None:
        """Return the group's figures in bytes, as --summary_json has them; None without a group."""
        return None if self.group is None else asdict(self.group.memory)


class Contexts:
    """Those of several files, not loaded yet. sources: where each of them is, in order.

    A context has the name of its file without the ending; the second of a name is called NAME.2. Of an ONNX file that
    stands for several contexts the others are NAME.1 and so on."""

    def __init__(self, models: Sequence[Model]) -> None:
        """Take the contexts of files, each under a name of its own. Raises ContextError, OSError; ValueError for names
        that are not distinct all the same."""
        self.sources = context_sources(models, names_of([model.path for model in models]))

    def load(
        self,
        stack: ExitStack,
        graphs: Sequence[str | None],
        share: bool | None,
        device: str | None,
        compatibility: Compatibility,
    ) -> Loaded:
        """Load them on one device; `stack` closes them. Raise ConfigError for graphs that are neither one nor as many
        as contexts; as load_group does.

        graphs: names, one for all contexts or one for each, None for the first of a context; share: whether arenas are
        shared, None as the contexts themselves say; the others as of load()."""
        sources, count = self.sources, len(graphs)
        if count not in (1, len(sources)):
            raise ConfigError(f"--graph: {count} names for {len(sources)} contexts; give one for all, or one for each")
        graphs = graphs if count == len(sources) else [graphs[0]] * len(sources)
        files = {source.name: source.path for source in sources}
        backend, device_open_ns = sources[0].open_device(device)
        sources, strict = [source.on(backend.identity) for source in sources], is_strict(compatibility)
        if not (shares(sources) if share is None else share):
            executors = {}
            for source, graph in zip(sources, graphs, strict=True):
                with source.open() as file:
                    executor = executor_on(backend, file, graph, strict, device_open_ns)
                executors[source.name] = stack.enter_context(executor)
            return Loaded(executors, files, None)
        needs = {source.name: source.need() for source in sources}
        group = group_on(backend, sources, needs, 1, strict, device_open_ns)
        stack.enter_context(group)
        executors = {source.name: _member(group, source, graph) for source, graph in zip(sources, graphs, strict=True)}
        return Loaded(executors, files, group)


def names_of(paths: Sequence[Path]) -> list[str]:
    """Return a different name for each file, after its own: a second a.bin is "a.2"."""
    names: list[str] = []
    for path in paths:
        name, number = path.stem, 1
        while name in names:
            number += 1
            name = f"{path.stem}.{number}"
        names.append(name)
    return names


def shares(sources: Sequence[ContextSource]) -> bool:
    """Return whether all contexts were made to share their arenas. Where only some were, a message names one that was
    not. Raises ContextError, OSError."""
    without = []
    for source in sources:
        with source.open() as file:
            if file.header.configuration.get(SHARES) is not True:
                without.append(source)
    if without and len(without) < len(sources):
        log.info(
            f"arenas are not shared: {without[0].path} was made without {SHARES}; --share_spill_fill shares them anyway"
        )
    return not without


def _member(group: ContextGroup, source: ContextSource, graph: str | None) -> Executor:
    """Return a graph of a context in a group. Raises UnknownGraph for one that there is not."""
    if graph is None:
        return group[source.name]
    if (name := f"{source.name}/{graph}") not in group:
        graphs = [known.name for known in group[source.name].header.graphs]
        raise UnknownGraph(f"{source.path}: there is no graph {graph!r}; the graphs are {graphs}")
    return group[name]
