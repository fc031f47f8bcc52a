"""Hold the plans of a graph: some operations may be fused into one kernel, and measurement decides whether that pays.

A task that only alternatives need may fail without failing the model.
"""

from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cached_property

from gputune.client.model.fusion_groups import FusionGroup, fusion_groups
from gputune.client.model.graph import Graph
from gputune.client.model.lowering import lower
from gputune.client.model.plan import Plan, Task, weighted
from gputune.kernels.catalogue import family_of
from gputune.kernels.family import DeviceLimits


class Alternatives:
    """A graph's plan without optional fusion, and the groups of its operations that could be one operation each."""

    def __init__(self, graph: Graph, fusion: bool = True) -> None:
        """fusion: whether there are such groups. Raises ModelError that names every node which cannot be lowered."""
        self.plan = lower(graph)
        self.node_ops = graph.node_ops
        found = tuple(fusion_groups(self.plan)) if fusion else ()
        fused = weighted([group.fused for group in found])
        self.groups = tuple(replace(group, fused=one) for group, one in zip(found, fused, strict=True))

    @cached_property
    def tasks(self) -> tuple[Task, ...]:
        """The distinct tasks of all alternatives: what must be tuned before one can be chosen.

        A task's weight is how many operations run it in a plan with all that can be of its kind. A fused task comes
        behind the last that it replaces.
        """
        fused: dict[str, list[Task]] = {}
        for group in self.groups:
            fused.setdefault(group.names[-1], []).append(group.task)
        found = ((each.task, *fused.get(each.name, ())) for each in self.plan.operations)
        return tuple(dict.fromkeys(task for tasks in found for task in tasks))

    @cached_property
    def nodes_of(self) -> Mapping[Task, tuple[str, ...]]:
        """The names of the model's nodes that run each of `tasks` in one of the plans."""
        nodes = self.plan.nodes_of
        for group in self.groups:
            nodes[group.task] = (*nodes.get(group.task, ()), *group.fused.nodes)
        return nodes

    def gainful(self, time_ns: Callable[[Task], float | None], launch_ns: float) -> tuple[FusionGroup, ...]:
        """Return the groups that are faster fused, in the order of the plan: of those that share operations, the
        greater gain.

        `time_ns` is asked for members of `tasks` only; a group with an unknown time (None) is left out. `launch_ns` is
        what a launch costs beside its kernel's running time.

        Looked through from the greatest gain on, which finds the best plan where at most two groups share operations.
        """
        gains = {group: group.gain_ns(time_ns, launch_ns) or 0.0 for group in self.groups}
        taken: set[str] = set()
        chosen: set[FusionGroup] = set()
        for group in sorted(self.groups, key=lambda each: -gains[each]):
            if gains[group] > 0 and taken.isdisjoint(group.names):
                taken.update(group.names)
                chosen.add(group)
        return tuple(group for group in self.groups if group in chosen)

    def likely(self, limits: DeviceLimits) -> tuple[FusionGroup, ...]:
        """Return the groups that are expected to be faster fused with default configurations: of those that share
        operations, the one that saves more launches."""
        fused = {group.task: _pays(group.task, limits) for group in self.groups}
        return self.gainful(lambda task: 1.0 if task not in fused else 0.0 if fused[task] else None, 0.0)

    def inference_ns(self, time_ns: Callable[[Task], float], launch_ns: float) -> float:
        """Return what an inference takes with the gainful groups fused."""
        plain_ns = sum(time_ns(each.task) + launch_ns for each in self.plan.operations)
        return plain_ns - sum(group.gain_ns(time_ns, launch_ns) or 0.0 for group in self.gainful(time_ns, launch_ns))

    def plan_with(self, chosen: Collection[FusionGroup]) -> Plan:
        """Return the plan in which the chosen ones of `groups` are fused. Its tasks have the weights that they have in
        it.

        Raises ValueError for groups of another plan, and for two that share an operation.
        """
        if unknown := [group.fused.name for group in chosen if group not in self.groups]:
            raise ValueError(f"not groups of model {self.plan.name!r}: {', '.join(unknown)}")
        times = Counter(name for group in chosen for name in group.names)
        if shared := [name for name, count in times.items() if count > 1]:
            raise ValueError(f"operations of model {self.plan.name!r} would be fused twice: {', '.join(shared)}")
        place = {group.names[-1]: group.fused for group in chosen}
        gone = {name for group in chosen for name in group.names[:-1]}
        kept = [place.get(each.name, each) for each in self.plan.operations if each.name not in gone]
        unwritten = {self.plan.root(each.output) for each in self.plan.operations if each.name in gone}
        unseen = unwritten | {view for view, root in self.plan.aliases.items() if root in unwritten}
        return replace(
            self.plan,
            operations=weighted(kept),
            tensors={name: spec for name, spec in self.plan.tensors.items() if name not in unseen},
            aliases={view: root for view, root in self.plan.aliases.items() if view not in unseen},
        )


def _pays(task: Task, limits: DeviceLimits) -> bool:
    family = family_of(task.op)
    if not family.pays(task.problem, limits):
        return False
    try:
        family.default(task.problem, limits)
    except ValueError:  # it does not fit on the device
        return False
    return True
