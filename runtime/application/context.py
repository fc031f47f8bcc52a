"""Represent a context for an application: all of its graphs as one object, built on Executor and ContextGroup.

A model in parts, which onnxruntime runs, has a single graph and the same object.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Self

from gputune.core.errors import ContextClosed, DeviceError, UnknownGraph
from gputune.core.identity import DeviceIdentity
from gputune.core.opened import Closing
from gputune.runtime.application.bench import Bench, bench
from gputune.runtime.application.inputs import Array, Inputs, given_in_words, named, takes, tensors_in_words
from gputune.runtime.application.states import State, most_rows, remembered
from gputune.runtime.context.records import TensorRecord
from gputune.runtime.executor import Executor
from gputune.runtime.loading.groups import group_of
from gputune.runtime.loading.in_parts import ModelInParts
from gputune.runtime.loading.model import Model, open_any, refuse_zeros
from gputune.runtime.loading.verdict import Compatibility, is_strict
from gputune.runtime.values import NOTHING, Values

if TYPE_CHECKING:  # most loads do without
    from gputune.runtime.power.profiles.perf_profile import PerfProfile

Runner = Executor | ModelInParts
"""Runs a graph."""

_NAME = "context"


def load(
    path: Path | str,
    device: str | None = None,
    *,
    graph: str | None = None,
    cache_compatibility_mode: Compatibility = "permissive",
    perf_profile: PerfProfile | str | None = None,
) -> Context:
    """Load a context binary with all of its graphs, or only the graph of the given name, and open its device.

    device, cache_compatibility_mode: as for gputune.runtime.load. perf_profile: the clocks and power for which
    inferences vote. A model in parts (`--unsupported host`) runs in onnxruntime. Raises as gputune.runtime.load does:
    ContextError, DeviceNotFound, BuildFailed, ValueError, OSError; for a model in parts also
    gputune.onnxruntime.PluginError.
    """
    model = open_any(path)
    if graph is None and not model.in_parts:
        loaded = load_all(model, device, cache_compatibility_mode)
    else:
        runner = model.load(device, cache_compatibility_mode, graph, perf_profile if model.in_parts else None)
        loaded = Context(model.path, {graph or runner.graph.name: runner}, runner.close)
    try:
        for executor in list(loaded.executors.values())[:1]:
            refuse_zeros(path, executor, device)
        for reason in loaded.warnings:
            warnings.warn(f"{path}: {reason}", stacklevel=2)
        if perf_profile is not None and loaded.executors:
            loaded.set_perf_profile(perf_profile)
    except BaseException:
        loaded.close()
        raise
    return loaded


class Context(Closing):
    """Run a loaded context: each inference uses the graph that takes the given inputs.

    path: its file. executors: by the names of its graphs, the objects that run them and hold all their details; close
    the context, not these. A model in parts has none, because onnxruntime runs it.

    Several threads may use it, one inference at a time. close() frees its device memory; so does `with`.
    """

    def __init__(self, path: Path, runners: Mapping[str, Runner], close: Callable[[], None]) -> None:
        """Make a context with load(). close: closes the runners."""
        self.path = path
        self.executors = {name: one for name, one in runners.items() if isinstance(one, Executor)}
        self._runners = dict(runners)
        self._close = close
        self._closed = False
        self._starting = threading.Lock()
        self._beside: ThreadPoolExecutor | None = None
        self._words = "".join(f"\n  {name}: {_in_words(one)}" for name, one in self._runners.items())

    # --- what it is -----------------------------------------------------------------------------------

    @property
    def graphs(self) -> tuple[str, ...]:
        """Return the names of the graphs."""
        return tuple(self._runners)

    @property
    def inputs(self) -> tuple[TensorRecord, ...]:
        """Return name, shape and dtype of each input of the first graph."""
        return self._first.graph.inputs

    @property
    def outputs(self) -> tuple[TensorRecord, ...]:
        """Return name, shape and dtype of each output of the first graph."""
        return self._first.graph.outputs

    @property
    def device(self) -> DeviceIdentity:
        """Return the open device."""
        return self._first.device

    @property
    def computes(self) -> bool:
        """Return False on a null device, whose outputs are zeros."""
        return self._first.computes

    @property
    def warnings(self) -> tuple[str, ...]:
        """Return each cause of unexpected cost once, such as programs that were built from source."""
        return tuple(dict.fromkeys(text for one in self._runners.values() for text in one.warnings))

    @property
    def device_bytes(self) -> int:
        """Return the device memory that the context holds now; 0 once it is closed. Raises DeviceError for a model in
        parts."""
        if isinstance(self._first, ModelInParts):
            raise DeviceError(
                f"{self.path}: onnxruntime runs this model in parts and does not say what memory it holds"
            )
        return self._first.device_bytes

    def __repr__(self) -> str:
        state = ", closed" if self._closed else ""
        return f"<gputune.Context {str(self.path)!r} on {self.device.name}{state}{self._words}>"

    # --- running --------------------------------------------------------------------------------------

    def run(
        self,
        inputs: Inputs = NOTHING,
        outputs: Values = NOTHING,
        *,
        graph: str | None = None,
        state: State | None = None,
    ) -> dict[str, Array]:
        """Run one inference.

        Args:
            inputs: by name an array of exactly the input's shape and dtype, or a memory handle; for a graph with one
                input, the array alone. Arrays without elements may be given for inputs that the graph does not have.
            outputs: by name, arrays or memory handles that receive the outputs; new arrays by default.
            graph: the graph's name; by default the graph whose inputs have these names, shapes and dtypes.
            state: what is remembered between inferences. Its inputs and outputs are neither given nor returned. If
                there are more tokens than a graph takes, several inferences run, by the graphs that need the fewest,
                each in the smallest capacity that it fits; the outputs have the rows of all tokens.

        Returns an array by each output's name, as Executor.run. Raises ValueError if no graph takes the inputs, or
        several do; LimitExceeded if the state has no room; DeviceError.
        """
        if state is not None:
            self._check_state(state)
            return state.run(inputs, outputs, graph=graph)
        executor = self._picked(inputs, graph)
        return executor.run(named(inputs, executor.graph, executor.graph.inputs), outputs)

    def run_async(
        self,
        inputs: Inputs = NOTHING,
        outputs: Values = NOTHING,
        *,
        graph: str | None = None,
        state: State | None = None,
    ) -> Future[dict[str, Array]]:
        """Begin an inference in a thread of the context, after those begun before, and return its future. Do not change
        inputs until it is done, nor use the state. Raises ValueError if no graph is found for the inputs; the future
        raises everything else that run raises."""
        if state is not None:
            self._check_state(state)
            run = functools.partial(state.run, inputs, outputs, graph=graph)
        else:
            executor = self._picked(inputs, graph)
            run = functools.partial(executor.run, named(inputs, executor.graph, executor.graph.inputs), outputs)
        with self._starting:
            self._check()
            if self._beside is None:
                self._beside = ThreadPoolExecutor(1, "gputune-inferences")
            return self._beside.submit(run)

    def state(self, graph: str | None = None) -> State:
        """Open memory for what graphs remember between inferences: of the graph with the most rows, or of `graph`, and
        of those that remember the same. A context may have many states. Raises ValueError if no graph remembers
        anything, DeviceError."""
        self._check()
        stateful = [one for one in self.executors.values() if one.graph.states is not None]
        if graph is not None:
            stateful = [one for one in stateful if one is self._of_name(graph)]
        if not stateful:
            what = "no graph has a state" if graph is None else f"graph {graph!r} has no state"
            raise ValueError(f"{self.path}: {what}; generate the context with --state")
        kept = remembered(most_rows(stateful).graph)
        alike = {name: one for name, one in self.executors.items() if remembered(one.graph) == kept}
        return State(alike, most_rows(alike.values()).open_state())

    def bench(
        self, inputs: Inputs | None = None, *, warmup: int = 10, inferences: int = 100, graph: str | None = None
    ) -> Bench:
        """Measure inferences one after the other, copies of inputs and outputs included: first `warmup` that do not
        count, then `inferences`. inputs: by default random inputs of the first graph, or of `graph`. Raises as run
        does."""
        if inputs is not None:
            executor = self._picked(inputs, graph)
            return bench(executor, named(inputs, executor.graph, executor.graph.inputs), warmup, inferences)
        return bench(self._of_name(graph or self.graphs[0]), None, warmup, inferences)

    def set_perf_profile(self, profile: PerfProfile | str) -> None:
        """Make the inferences of all graphs vote for clocks and power, as Executor.set_perf_profile does. Raises
        ValueError."""
        for runner in self._runners.values():
            runner.set_perf_profile(profile)

    def close(self) -> None:
        """Finish the inferences that were begun and free the memory. A second call does nothing."""
        with self._starting:
            beside, self._beside, self._closed = self._beside, None, True
        if beside is not None:
            beside.shutdown()
        self._close()

    def __enter__(self) -> Self:
        self._check()
        return self

    # --- inside ---------------------------------------------------------------------------------------

    @property
    def _first(self) -> Runner:
        return next(iter(self._runners.values()))

    def _check(self) -> None:
        if self._closed:
            raise ContextClosed(f"{self.path} was closed")

    def _check_state(self, state: State) -> None:
        self._check()
        if any(self.executors.get(name) is not one for name, one in state.executors.items()):
            raise ValueError(f"{self.path}: the state is of another context")

    def _of_name(self, graph: str) -> Runner:
        if graph not in self._runners:
            raise UnknownGraph(f"{self.path}: there is no graph {graph!r}; the graphs are {list(self.graphs)}")
        return self._runners[graph]

    def _picked(self, inputs: Inputs, graph: str | None) -> Runner:
        """Return the graph that takes these inputs; the only one says itself what is wrong with them."""
        self._check()
        if graph is not None:
            return self._of_name(graph)
        if len(self._runners) == 1:
            return self._first
        found = [name for name, one in self._runners.items() if takes(one.graph.inputs, inputs)]
        if len(found) == 1:
            return self._runners[found[0]]
        if found:
            raise ValueError(f"{self.path}: several graphs take these inputs: {found}; name one with graph=")
        known = "; ".join(f"{name}: {tensors_in_words(one.graph.inputs)}" for name, one in self._runners.items())
        raise ValueError(f"{self.path}: no graph takes {given_in_words(inputs)}; the graphs take {known}")


def load_all(model: Model, device: str | None, mode: Compatibility) -> Context:
    """Return all graphs of a file, which share arenas, weights and programs. The caller reads `warnings` and
    `computes`. Raises as load() does."""
    group = group_of(model.contexts(_NAME), device, 1, is_strict(mode))
    members = {member: group[member] for member in group if "/" in member}
    names = [executor.graph.name for executor in members.values()]
    distinct = len(set(names)) == len(names)
    keys: Sequence[str] = names if distinct else list(members)
    return Context(model.path, dict(zip(keys, members.values(), strict=True)), group.close)


def _in_words(executor: Runner) -> str:
    graph = executor.graph
    if isinstance(executor, ModelInParts):
        how = executor.in_words
    else:
        how = "persistent kernels" if executor.has_persistent else f"{len(graph.launches)} launches"
    return f"{tensors_in_words(graph.inputs)} -> {tensors_in_words(graph.outputs)}, {how}"
