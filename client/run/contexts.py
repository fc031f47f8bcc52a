"""Load several contexts on one device for net-run: each with its own arenas, or as a group that shares them."""

import logging
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from gputune.client.errors import ConfigError
from gputune.runtime import ContextGroup, Executor
from gputune.runtime.context.format import ContextFile
from gputune.runtime.context.packing import distinct
from gputune.runtime.loading.executors import executor_on
from gputune.runtime.loading.groups import group_on
from gputune.runtime.loading.model import Model, context_sources, open_together
from gputune.runtime.loading.verdict import Compatibility, is_strict

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
        self.sources = context_sources(models, distinct(model.path.stem for model in models))

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
        count, strict = len(graphs), is_strict(compatibility)
        if count not in (1, len(self.sources)):
            raise ConfigError(
                f"--graph: {count} names for {len(self.sources)} contexts; give one for all, or one for each"
            )
        paths = {source.name: source.path for source in self.sources}
        wanted = dict(zip(paths, graphs if count == len(paths) else [graphs[0]] * len(paths), strict=True))
        with ExitStack() as opened:
            backend, device_open_ns, files = open_together(self.sources, device, opened)
            if not (shares(files) if share is None else share):
                executors = {}
                for name, file in files.items():
                    executor = executor_on(backend, file, wanted[name], strict, device_open_ns)
                    executors[name] = stack.enter_context(executor)
                return Loaded(executors, paths, None)
            group = stack.enter_context(group_on(backend, files, 1, strict, device_open_ns))
            executors = {name: _member(group, file, name, wanted[name]) for name, file in files.items()}
            return Loaded(executors, paths, group)


def shares(files: Mapping[str, ContextFile]) -> bool:
    """Return whether all contexts were made to share their arenas. Where only some were, a message names one that was
    not."""
    without = [file for file in files.values() if file.header.configuration.get(SHARES) is not True]
    if without and len(without) < len(files):
        log.info(
            f"arenas are not shared: {without[0].path} was made without {SHARES}; --share_spill_fill shares them anyway"
        )
    return not without


def _member(group: ContextGroup, file: ContextFile, name: str, graph: str | None) -> Executor:
    """Return a graph of a context in a group. Raises UnknownGraph for one that there is not."""
    return group[name if graph is None else f"{name}/{file.graph_named(graph).name}"]
