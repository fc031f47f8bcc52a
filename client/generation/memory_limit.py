"""Choose other configurations for some tasks to keep a memory limit, and say what that costs in time.

A configuration decides the size of packed weights, which may be several times as large for one algorithm as for
another, and of scratch memory in the arenas. Configurations are exchanged one after the other, always the exchange that
loses least time for each byte saved. Exchanges that prove unnecessary are undone at the end.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gputune.client.context.builder import PORTABLE_ALIGNMENT
from gputune.client.context.choice import Decision
from gputune.client.context.memory.memory_planner import Lifetime
from gputune.client.context.memory.storage import arena_lifetimes, placed
from gputune.client.model.plan import Operation, Plan, Task
from gputune.client.tuning.search.task_search import task_key
from gputune.core.identity import DeviceIdentity
from gputune.core.launches import ArgumentForm
from gputune.kernels.catalogue import family_of
from gputune.kernels.family import Instance
from gputune.kernels.space import Configuration, configuration_key

Measured = Callable[[Task], Sequence[tuple[Configuration, float, float]]]
"""The configurations of a task that work, each with the time by which they compare and its median; nanoseconds."""


@dataclass(frozen=True)
class Fitted:
    """What is written under a limit. Bytes are those of all graphs' arenas and of the weights that they share;
    cost_ns: the time that kernels of one inference of each graph take more, together; kernels_ns: what those of all
    tasks that were measured take without a limit; changed: tasks that run another configuration."""

    decisions: Sequence[Decision]
    limit_bytes: int
    unlimited_bytes: int
    needed_bytes: int
    cost_ns: float
    kernels_ns: float
    changed: int

    @property
    def met(self) -> bool:
        """Whether that is within the limit."""
        return self.needed_bytes <= self.limit_bytes

    @property
    def summary(self) -> dict[str, Any]:
        """As --summary_json has it."""
        return {
            "limit_bytes": self.limit_bytes,
            "met": self.met,
            "unlimited_bytes": self.unlimited_bytes,
            "needed_bytes": self.needed_bytes,
            "cost_ns": self.cost_ns,
            "kernels_ns": self.kernels_ns,
            "changed_tasks": self.changed,
        }

    @property
    def line(self) -> str:
        """What a generation says of it."""
        need, limit, before = map(_told, self._sizes)
        if not self.met:
            return f"memory_limit_hint of {limit} is not met: the smallest context found needs {need} and is written"
        if not self.changed:
            return f"memory_limit_hint of {limit}: arenas and weights need {need}"
        tasks = "1 task runs" if self.changed == 1 else f"{self.changed} tasks run"
        price = f"{self.cost_ns / 1e6:+.2f} ms ({self.cost_ns / self.kernels_ns:+.1%}) of kernel time"
        return f"memory_limit_hint of {limit}: {need} instead of {before}; {tasks} another configuration, {price}"

    @property
    def _sizes(self) -> tuple[int, int, int]:
        return self.needed_bytes, self.limit_bytes, self.unlimited_bytes


def _told(nbytes: int) -> str:
    """Return a size in words, of which small ones are exact."""
    return f"{nbytes / 1e6:.1f} MB" if nbytes >= 1e6 else f"{nbytes:,} bytes"


def fit(
    decisions: Sequence[Decision],
    limit_bytes: int,
    measured: Measured,
    device: DeviceIdentity,
    form: ArgumentForm,
    steps: int,
) -> Fitted:
    """Return the decisions, changed as far as the limit needs it and what was measured allows. form: how launches are
    given what lies in arenas; steps: of the search for arenas. Raises MemoryPlanError, CacheError."""
    fitting = _Fitting(decisions, measured, device, form, steps)
    unlimited = fitting.needed_bytes({})
    chosen = fitting.within(limit_bytes)
    return Fitted(
        decisions=[fitting.changed(decision, chosen) for decision in decisions],
        limit_bytes=limit_bytes,
        unlimited_bytes=unlimited,
        needed_bytes=fitting.needed_bytes(chosen),
        cost_ns=sum(fitting.cost_ns(key, option) for key, option in chosen.items()),
        kernels_ns=fitting.kernels_ns,
        changed=len(chosen),
    )


@dataclass(frozen=True)
class _Option:
    """A configuration that a task may run, and what hangs on it: nbytes are those of packed weights and of scratch, of
    all operations of the task, by which options are ranked."""

    configuration: Configuration
    cost_ns: float
    median_ns: float
    nbytes: int


Chosen = Mapping[str, _Option]
"""By task digest, what it runs instead of what was decided."""


class _Fitting:
    """Changes to some decisions. What a task runs instead it runs in all graphs, which share its weights."""

    def __init__(
        self,
        decisions: Sequence[Decision],
        measured: Measured,
        device: DeviceIdentity,
        form: ArgumentForm,
        steps: int,
    ) -> None:
        self._decisions = decisions
        self._form = form
        self._alignment = max(device.base_address_alignment_bytes, PORTABLE_ALIGNMENT)
        self._largest = device.max_allocation_bytes
        self._steps = steps
        self._instances: dict[tuple[str, str], Instance] = {}
        self._digests: dict[int, bytes] = {}
        self._arenas: dict[tuple[Lifetime, ...], int] = {}
        self._tasks = {task_key(task).digest: task for one in decisions for task in one.plan.tasks}
        self._runs = {key: self._runs_of(key) for key in self._tasks}
        self._measured = {key: measured(task) for key, task in self._tasks.items()}
        self._options = {key: self._front(key) for key in self._tasks}

    def within(self, limit_bytes: int) -> Chosen:
        """Return what runs instead for the limit to be respected, or as little as possible to be needed."""
        chosen: dict[str, _Option] = {}
        order: list[tuple[str, _Option | None]] = []
        while self.needed_bytes(chosen) > limit_bytes:
            steps = [
                ((self.cost_ns(key, option) - self._lost_ns(key, chosen)) / (nbytes - option.nbytes), key, option)
                for key, nbytes in ((key, self._nbytes(key, chosen)) for key in self._options)
                for option in self._options[key]
                if option.nbytes < nbytes
            ]
            if not steps:
                break
            _, key, option = min(steps, key=lambda step: (step[0], step[1], step[2].nbytes))
            order.append((key, chosen.get(key)))
            chosen[key] = option
        for key, before in reversed(order):
            fewer = {other: option for other, option in chosen.items() if other != key}
            fewer |= {} if before is None else {key: before}
            if self._lost_ns(key, fewer) < self._lost_ns(key, chosen) and self.needed_bytes(fewer) <= limit_bytes:
                chosen = fewer
        return chosen

    def needed_bytes(self, chosen: Chosen) -> int:
        """Of the arenas of all graphs and of the weights, of which equal ones are kept once."""
        weights: dict[object, int] = {}
        arenas = 0
        for decision in self._decisions:
            instances = [self._instance(decision, each, chosen) for each in decision.plan.operations]
            for operation, instance in zip(decision.plan.operations, instances, strict=True):
                weights |= self._constants(decision.plan, operation, instance)
            arenas += self._arena_bytes(tuple(arena_lifetimes(decision.plan, instances)))
        return arenas + sum(map(self._aligned, weights.values()))

    def changed(self, decision: Decision, chosen: Chosen) -> Decision:
        """Return a decision with what runs instead. The times of whole contexts are not its own then."""
        outcomes = {
            key: replace(one, configuration=chosen[key].configuration, tuned_ns=chosen[key].median_ns)
            if key in chosen
            else one
            for key, one in decision.outcomes.items()
        }
        own = {task_key(task).digest for task in decision.plan.tasks}
        if own.isdisjoint(chosen):
            return replace(decision, outcomes=outcomes)
        return replace(decision, outcomes=outcomes, end_to_end=None)

    @property
    def kernels_ns(self) -> float:
        """The time of what was decided, in all graphs, as far as it was measured."""
        return sum(
            self._decided_ns(decision, key)
            for key, runs in self._runs.items()
            if self._measured[key]
            for decision, _ in runs
        )

    def cost_ns(self, key: str, option: _Option) -> float:
        """Return what an option costs in all graphs beside what was decided."""
        return sum(option.cost_ns - self._decided_ns(decision, key) for decision, _ in self._runs[key])

    def _front(self, key: str) -> list[_Option]:
        """Return what a task may run: no option needs as much as a faster one."""
        front: list[_Option] = []
        for configuration, cost_ns, median_ns in self._measured[key]:
            bare = _Option(configuration, cost_ns, median_ns, 0)
            option = replace(bare, nbytes=self._nbytes(key, {key: bare}))
            if not front or option.nbytes < front[-1].nbytes:
                front.append(option)
        return front

    def _lost_ns(self, key: str, chosen: Chosen) -> float:
        return self.cost_ns(key, chosen[key]) if key in chosen else 0.0

    def _decided_ns(self, decision: Decision, key: str) -> float:
        """Return the time of what was decided; that of the fastest where it was not measured."""
        decided = configuration_key(decision.outcomes[key].configuration)
        options = self._measured[key]
        return next((cost for one, cost, _ in options if configuration_key(one) == decided), options[0][1])

    def _runs_of(self, key: str) -> list[tuple[Decision, Operation]]:
        """Return the operations of a task, in all graphs."""
        return [
            (decision, operation)
            for decision in self._decisions
            for operation in decision.plan.operations
            if task_key(operation.task).digest == key
        ]

    def _nbytes(self, key: str, chosen: Chosen) -> int:
        """Return what hangs on what a task runs."""
        weights: dict[object, int] = {}
        scratch = 0
        for decision, operation in self._runs[key]:
            instance = self._instance(decision, operation, chosen)
            weights |= self._constants(decision.plan, operation, instance)
            scratch = max(scratch, sum(instance.scratch.values()))
        return scratch + sum(map(self._aligned, weights.values()))

    def _constants(self, plan: Plan, operation: Operation, instance: Instance) -> dict[object, int]:
        """Return the bytes of the constants that an operation reads, by what tells different ones apart."""
        values = {name: plan.constants[t] for name, t in operation.inputs.items() if plan.is_constant(t)}
        read = {argument for kernel in instance.main.sequence for argument in kernel.arguments}
        digests = {name: self._digest(value) for name, value in values.items()}
        found: dict[object, int] = {digests[name]: value.nbytes for name, value in values.items() if name in read}
        needed = {argument for kernel in instance.prepare for argument in kernel.arguments}
        made = instance.prepare, tuple(digest for name, digest in digests.items() if name in needed)
        return found | {(name, made): nbytes for name, nbytes in instance.packed.items()}

    def _digest(self, value: Any) -> bytes:
        if id(value) not in self._digests:  # plans keep their constants
            self._digests[id(value)] = hashlib.sha256(value.tobytes()).digest()
        return self._digests[id(value)]

    def _instance(self, decision: Decision, operation: Operation, chosen: Chosen) -> Instance:
        key = task_key(operation.task).digest
        configuration = chosen[key].configuration if key in chosen else decision.outcomes[key].configuration
        return self._rendered(key, configuration)

    def _rendered(self, key: str, configuration: Configuration) -> Instance:
        identity = key, configuration_key(configuration)
        if identity not in self._instances:
            task = self._tasks[key]
            self._instances[identity] = family_of(task.op).render(task.problem, configuration)
        return self._instances[identity]

    def _arena_bytes(self, tensors: tuple[Lifetime, ...]) -> int:
        if tensors not in self._arenas:
            plan = placed(tensors, self._alignment, self._largest, self._steps, self._form)
            self._arenas[tensors] = plan.total_bytes
        return self._arenas[tensors]

    def _aligned(self, nbytes: int) -> int:
        return -(-nbytes // self._alignment) * self._alignment
