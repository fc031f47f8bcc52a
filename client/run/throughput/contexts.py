"""Load the contexts of a throughput run on one device.

Groups share arenas; instances share only weights and programs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial

from gputune.client.errors import ConfigError
from gputune.client.input_lists import NO_INPUTS, constants_in, read_input_list, read_inputs
from gputune.client.run.inferences import Array, Infer
from gputune.client.run.throughput.config import PRIORITIES, ContextPlan, Plan
from gputune.client.run.throughput.turns import Turns
from gputune.core.identity import DeviceIdentity
from gputune.runtime import ContextGroup, Executor
from gputune.runtime.context.format import ContextFile
from gputune.runtime.context.records import GraphRecord
from gputune.runtime.contexts.device import OpenDevice
from gputune.runtime.loading.executors import arenas_on
from gputune.runtime.loading.groups import group_on
from gputune.runtime.loading.model import ContextSource, open_any, open_together
from gputune.runtime.loading.verdict import Compatibility, is_strict


@dataclass(frozen=True)
class Instance:
    """One thread of a context. name: CONTEXT.NUMBER; inputs: arrays of its own for each line of the input list; turns:
    those that it waits for before an inference, at its priority."""

    name: str
    context: ContextPlan
    infer: Infer
    inputs: list[dict[str, Array]]
    turns: Turns

    @property
    def priority(self) -> int:
        return PRIORITIES[self.context.priority]


@dataclass(frozen=True)
class LoadedContext:
    """executed: how many inferences its executors have counted, warm-up included."""

    plan: ContextPlan
    graph: GraphRecord
    instances: list[Instance]
    executed: Callable[[], int]
    warnings: list[str]


@dataclass
class Loaded:
    """What a plan has become on a device."""

    device: DeviceIdentity
    computes: bool
    contexts: dict[str, LoadedContext] = field(default_factory=dict)
    groups: dict[str, ContextGroup] = field(default_factory=dict)

    @property
    def instances(self) -> list[Instance]:
        return [instance for context in self.contexts.values() for instance in context.instances]


def load(plan: Plan, stack: ExitStack, compatibility: Compatibility) -> Loaded:
    """Load a plan on the device of its first context, or the one that it names; `stack` closes everything. Each group,
    and each instance without one, has a queue of its own. Raises ConfigError, and as load_group does."""
    with ExitStack() as opened:
        backend, _, files = open_together([_source(context) for context in plan.contexts], plan.device, opened)
        return _loaded(plan, _Loading(backend, files, stack, is_strict(compatibility), alone=_queues(plan) == 1))


def _loaded(plan: Plan, loading: _Loading) -> Loaded:
    loaded = Loaded(loading.backend.identity, loading.backend.computes)
    for name, streams in plan.streams.items():
        members = [context for context in plan.contexts if context.group == name]
        loaded.groups[name] = loading.group(members, streams)
        turns = Turns(streams)
        for context in members:
            loaded.contexts[context.name] = loading.member(loaded.groups[name], context, turns)
    for context in plan.contexts:
        if context.group is None:
            loaded.contexts[context.name] = loading.apart(context)
    loaded.contexts = {context.name: loaded.contexts[context.name] for context in plan.contexts}
    return loaded


def _queues(plan: Plan) -> int:
    return sum(plan.streams.values()) + sum(each.instances for each in plan.contexts if each.group is None)


def _source(context: ContextPlan) -> ContextSource:
    """Return the source of a context. Raises ConfigError for an ONNX file that stands for several; ContextError,
    OSError."""
    sources = open_any(context.path).contexts(context.name)
    if len(sources) > 1:
        raise ConfigError(
            f"context {context.name!r}: {context.path} stands for {len(sources)} contexts; name their own files"
        )
    return sources[0]


@dataclass(frozen=True)
class _Loading:
    """files: of contexts by their names; alone: whether there is only one queue, so that persistent kernels may have
    all processors."""

    backend: OpenDevice
    files: Mapping[str, ContextFile]
    stack: ExitStack
    strict: bool
    alone: bool

    def group(self, members: list[ContextPlan], streams: int) -> ContextGroup:
        files = {each.name: self.files[each.name] for each in members}
        group = self.stack.enter_context(group_on(self._queue(), files, streams, self.strict))
        if not self.alone:
            for name in group:
                group[name].persistent_kernels = False
        return group

    def member(self, group: ContextGroup, context: ContextPlan, turns: Turns) -> LoadedContext:
        name = context.name if context.graph is None else f"{context.name}/{context.graph}"
        if name not in group:
            known = [graph.name for graph in group[context.name].header.graphs]
            raise ConfigError(f"context {context.name!r}: there is no graph {context.graph!r}; the graphs are {known}")
        executor = group[name]
        if context.perf_profile is not None:
            group.set_perf_profile(context.perf_profile, name)
        infers: list[Infer] = [partial(group.run_timed, name)] * context.instances
        instances = _instances(context, executor, infers, [turns] * context.instances)
        return LoadedContext(context, executor.graph, instances, lambda: group.inferences(name), executor.warnings)

    def apart(self, context: ContextPlan) -> LoadedContext:
        executors = self._executors(context)
        if context.perf_profile is not None:
            for executor in executors:
                executor.set_perf_profile(context.perf_profile)
        infers: list[Infer] = [executor.run_timed for executor in executors]
        graph = executors[0].graph
        instances = _instances(context, executors[0], infers, [Turns() for _ in executors])

        def executed() -> int:
            return sum(executor.counters.inferences for executor in executors)

        return LoadedContext(context, graph, instances, executed, executors[0].warnings)

    def _executors(self, context: ContextPlan) -> list[Executor]:
        """Return an executor for each instance, on a queue and arenas of its own."""
        file = self.files[context.name]
        arenas = arenas_on(self._queue(), context.instances)
        self.stack.callback(arenas.close)
        executors = arenas.load(file, file.graph_named(context.graph), self.strict, 0)
        for executor in executors:
            self.stack.enter_context(executor)
            executor.persistent_kernels = self.alone
        return executors

    def _queue(self) -> OpenDevice:
        return self.backend if self.alone else self.backend.another_queue()


def _instances(context: ContextPlan, executor: Executor, infers: list[Infer], turns: list[Turns]) -> list[Instance]:
    """Return the instances of a context. Raises ConfigError for its input list."""
    graph = executor.graph
    if context.input_list is not None:
        lines = read_input_list(context.input_list, graph.inputs, constants_in(executor.header.configuration))
    elif graph.inputs:
        names = ", ".join(repr(tensor.name) for tensor in graph.inputs)
        raise ConfigError(f'context {context.name!r}: its graph has inputs ({names}); give it an "input_list"')
    else:
        lines = [NO_INPUTS]
    return [
        Instance(f"{context.name}.{number}", context, infer, [read_inputs(line, graph.inputs) for line in lines], turn)
        for number, (infer, turn) in enumerate(zip(infers, turns, strict=True))
    ]
