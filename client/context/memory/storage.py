"""Say where each tensor of a plan lies: a graph input or output has its own buffer, all else shares arenas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from gputune.client.context.memory.arena_search import search_arenas
from gputune.client.context.memory.memory_planner import Lifetime, Placement, plan_arenas, plan_shared_buffers
from gputune.client.model.plan import Plan
from gputune.core.launches import ArgumentForm
from gputune.kernels.family import Instance
from gputune.runtime.context.records import BufferRef


@dataclass(frozen=True)
class Storage:
    """Say where each tensor of a plan lies: a graph input or output has its own buffer, all else shares arenas.

    instances: of the plan's operations. uses: by the tensor whose memory it is, the places of the first and the last
    operation that need it. own: the buffers of inputs and outputs, by the same."""

    plan: Plan
    instances: Sequence[Instance]
    uses: Mapping[str, tuple[int, int]]
    own: Mapping[str, BufferRef]
    placement: Placement

    @staticmethod
    def of(
        plan: Plan,
        instances: Sequence[Instance],
        alignment: int,
        largest: int,
        search_steps: int,
        shared: bool,
        form: ArgumentForm,
    ) -> Storage:
        """Return a plan's storage. search_steps: of the search for smaller arenas, 0 for none. shared: False for a
        place of its own for each tensor. form: how launches are given what lies in arenas. Raises MemoryPlanError."""
        uses, own = _uses(plan), _own_buffers(plan)
        tensors = _lifetimes(plan, instances, uses, own)
        if not shared:
            tensors = [replace(tensor, first_use=0, last_use=len(plan.operations)) for tensor in tensors]
        placement = placed(tensors, alignment, largest, search_steps if shared else 0, form)
        return Storage(plan, instances, uses, own, placement)

    def ref(self, tensor: str) -> BufferRef:
        """Return the memory of a tensor that is no constant."""
        root = self.plan.root(tensor)
        if root in self.own:
            return self.own[root]
        arena, offset = self.placement.offsets[root]
        return BufferRef("arena", arena, offset, self.plan.tensors[root].nbytes)

    def scratch_ref(self, operation: int, name: str, nbytes: int) -> BufferRef:
        """Return a scratch buffer of the operation at that place."""
        arena, offset = self.placement.offsets[_scratch_name(operation, name)]
        return BufferRef("arena", arena, offset, nbytes)


def arena_lifetimes(plan: Plan, instances: Sequence[Instance]) -> list[Lifetime]:
    """Return what shares arenas, with the first and the last operation that needs it: the tensors between
    operations, and the scratch buffers of operations. instances: those of the plan's operations."""
    return _lifetimes(plan, instances, _uses(plan), _own_buffers(plan))


def placed(
    tensors: Sequence[Lifetime], alignment: int, largest: int, search_steps: int, form: ArgumentForm
) -> Placement:
    """Return a plan of the arenas in which tensors lie; arguments as of Storage.of. Raises MemoryPlanError."""
    if form == "buffers":
        return plan_shared_buffers(tensors, alignment, largest)
    if search_steps:
        return _searched(tuple(tensors), alignment, largest, search_steps)
    return plan_arenas(tensors, alignment, largest)


_searched = lru_cache(maxsize=32)(search_arenas)
"""What is compared is searched for once more when it ships."""


def _uses(plan: Plan) -> dict[str, tuple[int, int]]:
    """Return the places of the first and the last operation that name a tensor, or a view of it."""
    found: dict[str, tuple[int, int]] = {}
    for place, operation in enumerate(plan.operations):
        for tensor in (operation.output, *operation.inputs.values()):
            root = plan.root(tensor)
            found[root] = found.get(root, (place, place))[0], place
    return found


def _own_buffers(plan: Plan) -> dict[str, BufferRef]:
    """Return the buffers of the graph's inputs and outputs, by the tensor whose memory they are."""
    own: dict[str, BufferRef] = {}
    for index, tensor in enumerate(plan.inputs):
        own[plan.root(tensor.name)] = BufferRef("input", index, 0, tensor.nbytes)
    for index, tensor in enumerate(plan.outputs):
        own[plan.root(tensor.name)] = BufferRef("output", index, 0, tensor.nbytes)
    return own


def _lifetimes(
    plan: Plan, instances: Sequence[Instance], uses: Mapping[str, tuple[int, int]], own: Mapping[str, BufferRef]
) -> list[Lifetime]:
    return [
        Lifetime(root, plan.tensors[root].nbytes, first, last)
        for root, (first, last) in uses.items()
        if root not in own and not plan.is_constant(root)
    ] + [
        Lifetime(_scratch_name(place, name), nbytes, place, place)
        for place, instance in enumerate(instances)
        for name, nbytes in instance.scratch.items()
    ]


def _scratch_name(operation: int, name: str) -> str:
    """Return the name of a scratch buffer in a memory plan, which no tensor of a model may have."""
    return f"\0{operation} {name}"
