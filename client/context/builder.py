"""Build a context from plans and the winners of their tasks: programs, packed weights, memory plan, launches.

The server packs the weights of each winner; a compact context has the sources and launches instead (weights.py).
Missing programs are requested together, the longest text first, and compiled on all cores. Tasks with the same launch
share a program; without a cache for programs all launches do, if the driver charges for each, or if that is asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np

from gputune.client.context.memory.storage import Storage
from gputune.client.context.memory.weights import Packing, PackingKernel, Packings, Weights
from gputune.client.context.persistent import Persistent, in_fewer_launches
from gputune.client.context.resuming import Access, accesses_of
from gputune.client.model.plan import Operation, Plan, Task
from gputune.client.progress import SILENT, Progress
from gputune.client.tuning.outcome import Outcome
from gputune.client.tuning.search.task_search import device_limits, task_key
from gputune.core.batches import Compiled
from gputune.core.identity import DeviceIdentity
from gputune.core.launches import MOST_STAGES, ArgumentForm, Launch, Needs, Sharing, Variant, as_stage
from gputune.core.quirks import device_fence, groups_at_once, quirks_of, usual_form
from gputune.kernels.catalogue import family_of
from gputune.kernels.family import DeviceLimits, Instance
from gputune.runtime.backends.merging import Merged, company, merged
from gputune.runtime.context.records import (
    STATUS_BYTES,
    BufferRef,
    GraphRecord,
    LaunchRecord,
    ProgramRecord,
    TensorRecord,
)
from gputune.server.protocol.messages import CompileKernel, ExecuteKernel

PORTABLE_ALIGNMENT = 4096
"""Offsets are multiples of this at least, so that a context can be loaded on a device with a larger alignment than that
of the device it was made on."""


KERNELS_TOGETHER = 32
"""The kernels in a program at most, if launches share programs because a driver charges for each. With PoCL a U-Net of
207 tasks takes 148 s of processor time, 163 s with 9 together, and 219 s with a program for each."""

CHARACTERS_TOGETHER = 1 << 19
"""The characters of sources in a program at most: half of what a server takes as one text."""

BYTES_TOGETHER = 64 << 20
"""Bytes of the buffers on which shared launches run once, for which a device has to have room."""

PROGRAMS_PER_UNIT = 3
"""At least, so that no compute unit waits long for another one's last program."""


class Maker(Protocol):
    """Who packs weights and compiles: a target, as TargetClient speaks to it, or a device of this process."""

    @property
    def device(self) -> dict[str, object]: ...
    def upload(self, data: Any) -> int: ...
    def free(self, *buffers: int) -> None: ...
    def compile_kernels(self, requests: Sequence[CompileKernel], compiled: Callable[[int, Compiled], object]) -> None:
        """Compiles, the first of them first, and several at a time where it can; tells each by its place."""

    def execute_kernel(self, request: ExecuteKernel) -> Mapping[str, memoryview]: ...


@dataclass(frozen=True)
class Wanted:
    """A plan and the outcomes of its tasks by key digest. persistent: whether the graph can also run in fewer launches,
    by persistent kernels; what the device does not allow is not done. shared_memory: whether tensors that are never
    alive together may have the same place. form: how launches are given what lies in arenas; None for the device's
    usual form."""

    plan: Plan
    outcomes: Mapping[str, Outcome]
    persistent: bool = False
    shared_memory: bool = True
    form: ArgumentForm | None = None


@dataclass(frozen=True)
class Built:
    """Graphs with the programs and weights that their launches refer to, and share; storages: of each graph. packing:
    of a compact context, see ContextHeader."""

    graphs: tuple[GraphRecord, ...]
    programs: tuple[ProgramRecord, ...]
    weights: tuple[bytes, ...]
    storages: tuple[Storage, ...]
    packing: tuple[GraphRecord, ...] = ()

    @property
    def graph(self) -> GraphRecord:
        """The only graph, or the first."""
        return self.graphs[0]


def build(
    plan: Plan,
    outcomes: Mapping[str, Outcome],
    target: Maker,
    persistent: bool = False,
    form: ArgumentForm | None = None,
    progress: Progress = SILENT,
    memory_search_steps: int = 0,
    shared_memory: bool = True,
) -> Built:
    """Return the graph of a plan; arguments and errors as those of Wanted and build_all."""
    wanted = Wanted(plan, outcomes, persistent, shared_memory, form)
    return build_all([wanted], target, progress, memory_search_steps)


def build_all(
    graphs: Sequence[Wanted],
    target: Maker,
    progress: Progress = SILENT,
    memory_search_steps: int = 0,
    sharing: Sharing = "each",
    compact: bool = False,
    growth: float = 0.0,
) -> Built:
    """Return all graphs of a context. memory_search_steps: of the search for smaller arenas, for each graph; with 0 of
    them the quick plan stays, which is enough where only launches are compared. sharing: which launches share a
    program; "auto" is for a context whose programs are kept for no other. compact: whether the context has the model's
    weights, which are packed when it is loaded; growth: only those that packing makes more than so many times as large.

    Weights are rearranged on the target; what is the same for several operations is kept once. Then all programs are
    compiled on the target together. Raises TargetError, MemoryPlanError, and whatever else the maker raises.
    """
    device = DeviceIdentity.from_dict(target.device)
    alignment = max(device.base_address_alignment_bytes, PORTABLE_ALIGNMENT)  # both are powers of two
    programs = _Programs(target)
    graphs = [replace(wanted, form=wanted.form or usual_form(device)) for wanted in graphs]
    apart = any(wanted.form in ("buffers", "svm") for wanted in graphs)
    weights = Weights(alignment, device.max_allocation_bytes, apart)
    packings = Packings(weights)
    constants = _Constants(target, weights, packings if compact else None, growth)
    laid = [_graph(wanted, programs, constants, device, memory_search_steps) for wanted in graphs]
    sections = weights.sections()
    packing_programs = programs.packing(packings.kernels)
    packing = packings.graphs(len(sections), packing_programs.__getitem__)
    sizes = {"weights": list(map(len, sections)), "packed": [part.packed_bytes for part in packing]}
    built = [
        _persistently(graph, accesses, programs, sizes, device)
        if wanted.persistent and wanted.form != "offsets" and groups_at_once(device)
        else graph
        for wanted, (graph, accesses, _) in zip(graphs, laid, strict=True)
    ]
    if sharing == "one":
        programs.share(MOST_STAGES + 1)
    elif sharing == "auto" and quirks_of(device).charges_per_program:
        programs.share(KERNELS_TOGETHER, PROGRAMS_PER_UNIT * device.compute_units)
    programs.compile(progress)
    placed = tuple(map(programs.placed, built))
    storages = tuple(storage for _, _, storage in laid)
    return Built(
        placed, programs.kept, (*sections, *packings.sources().values()), storages, tuple(map(programs.placed, packing))
    )


def _graph(
    wanted: Wanted,
    programs: _Programs,
    constants: _Constants,
    device: DeviceIdentity,
    memory_search_steps: int,
) -> tuple[GraphRecord, list[Access], Storage]:
    """Return the graph, what each of its launches reads and writes, and where its tensors lie."""
    plan, outcomes = wanted.plan, wanted.outcomes
    keys = {task: task_key(task).digest for task in plan.tasks}
    limits = device_limits(device, wanted.form)
    of_task = {task: programs.index(task, outcomes[key], limits) for task, key in keys.items()}
    instances = [
        family_of(each.task.op).render(each.task.problem, outcomes[keys[each.task]].configuration)
        for each in plan.operations
    ]
    largest = device.max_allocation_bytes
    alignment, form = constants.weights.alignment, limits.argument_form
    storage = Storage.of(plan, instances, alignment, largest, memory_search_steps, wanted.shared_memory, form)
    launches: list[LaunchRecord] = []
    accesses: list[Access] = []
    for place, (operation, instance) in enumerate(zip(plan.operations, instances, strict=True)):
        refs = {name: storage.ref(tensor) for name, tensor in operation.inputs.items() if not plan.is_constant(tensor)}
        own = {"output": storage.ref(operation.output)}
        own |= {name: storage.scratch_ref(place, name, nbytes) for name, nbytes in instance.scratch.items()}
        accesses += accesses_of(instance.main.sequence, refs, own)
        refs |= own
        task = keys[operation.task]
        refs |= constants.of(plan, operation, task, instance)
        family, configuration = family_of(operation.task.op), outcomes[task].configuration
        given = family.rendered(operation.task.problem, configuration, limits).main.sequence
        launches += [
            LaunchRecord.of(
                replace(kernel, entry=shipped.entry),
                refs,
                own,
                operation=operation.name,
                task=task,
                program=of_task[operation.task],
                offsets=shipped.arguments != kernel.arguments,
            )
            for kernel, shipped in zip(instance.main.sequence, given, strict=True)
        ]
    graph = GraphRecord(
        name=plan.name,
        inputs=tuple(TensorRecord(t.name, t.shape, t.dtype) for t in plan.inputs),
        outputs=tuple(TensorRecord(t.name, t.shape, t.dtype) for t in plan.outputs),
        launches=tuple(launches),
        arena_bytes=storage.placement.arenas,
        arena_bound_bytes=storage.placement.bound_bytes,
        argument_form=limits.argument_form,
        states=plan.states,
    )
    return graph, accesses, storage


def _persistently(
    graph: GraphRecord,
    accesses: Sequence[Access],
    programs: _Programs,
    constants: Mapping[str, Sequence[int]],
    device: DeviceIdentity,
) -> GraphRecord:
    """Return the graph that can also run in fewer launches. constants: by kind the bytes of each buffer."""
    groups, fence = groups_at_once(device), device_fence(device)
    assert groups and fence is not None
    alignment = max(device.base_address_alignment_bytes, PORTABLE_ALIGNMENT)
    sizes = {
        "input": [tensor.nbytes for tensor in graph.inputs],
        "output": [tensor.nbytes for tensor in graph.outputs],
        "arena": graph.arena_bytes,
        **constants,
    }
    launches: list[LaunchRecord] = []
    counter_bytes = 0
    for each in in_fewer_launches(graph.launches, programs.records, groups, accesses, fence):
        if isinstance(each, LaunchRecord):
            launches.append(each)
            continue
        wholes = [BufferRef(kind, index, 0, sizes[kind][index]) for kind, index in each.buffers]
        counters = BufferRef("counters", 0, counter_bytes, each.counter_bytes)
        arguments = (counters, BufferRef("status", 0, 0, STATUS_BYTES), *wholes)
        launches.append(
            LaunchRecord(
                operation=f"{each.launches[0].operation} to {each.launches[-1].operation}",
                task="",
                program=programs.add(each, groups, arguments),
                entry=each.entry,
                global_size=(groups,),
                local_size=(1,),
                arguments=arguments,
            )
        )
        counter_bytes += -(-each.counter_bytes // alignment) * alignment
    return replace(graph, persistent=tuple(launches), counter_bytes=counter_bytes) if counter_bytes else graph


class _Programs:
    """The programs of a context: one for all tasks that run the same launch, and those of persistent kernels. They get
    their binaries from `compile`."""

    def __init__(self, target: Maker) -> None:
        self.records: list[ProgramRecord] = []
        self._target = target
        self._places: dict[Launch, int] = {}
        self._requests: dict[int, CompileKernel] = {}  # by place
        self._shared: dict[int, tuple[int, str]] = {}  # by place: that of the program and what it puts before names

    def index(self, task: Task, outcome: Outcome, limits: DeviceLimits) -> int:
        """Return the place of a task's program among the records."""
        family = family_of(task.op)
        instance = family.rendered(task.problem, outcome.configuration, limits)
        main = instance.main
        if main not in self._places:
            sizes = {spec.name: spec.nbytes for spec in family.inputs(task.problem)}
            sizes["output"] = family.output(task.problem).nbytes
            self._places[main] = self._append(instance.variant(outcome.configuration), sizes)
        return self._places[main]

    def add(self, kernel: Persistent, groups: int, arguments: Sequence[BufferRef]) -> int:
        """Return the place of a persistent kernel's program, which is run once on zeros when it is compiled."""
        sizes = {f"{ref.kind}_{ref.index}": ref.nbytes for ref in arguments}
        needs = Needs(features=_features(self.records[each.program].needs for each in kernel.launches))
        launch = Launch(kernel.source, kernel.entry, kernel.options, (groups,), (1,), tuple(sizes), needs=needs)
        return self._append(Variant({}, (), launch, {}), sizes)

    def packing(self, kernels: Sequence[PackingKernel]) -> dict[PackingKernel, int]:
        """Return the places of the programs of kernels that pack. Those that differ in sizes and numbers have one
        together, which is run once on zeros for the fewest and for the most work-items: drivers make code for
        either."""
        alike: dict[tuple[str, str, str, Sequence[int]], list[PackingKernel]] = {}
        for one in kernels:
            key = one.launch.source, one.launch.options, one.kernel.entry, one.kernel.local_size
            alike.setdefault(key, []).append(one)
        found: dict[PackingKernel, int] = {}
        for (source, options, _, _), group in alike.items():
            ordered = sorted(group, key=lambda one: math.prod(one.kernel.global_size))
            ends = {f"{number}_": one for number, one in enumerate(ordered[:: max(len(ordered) - 1, 1)])}
            *before, last = (as_stage(one.kernel, one.kernel.entry, prefix) for prefix, one in ends.items())
            main = Launch(source, **vars(last), stages=tuple(before), options=options)
            sizes = {
                prefix + name: nbytes for prefix, one in ends.items() for name, nbytes in one.packing.sizes.items()
            }
            found |= dict.fromkeys(group, self._append(Variant({}, (), main, {}), sizes))
        return found

    def share(self, kernels: int, programs: int = 1) -> None:
        """Put launches into few programs of so many kernels at most, but into no fewer programs than these."""
        places = sorted(self._places.values(), key=lambda place: len(self.records[place].source), reverse=True)
        most = min(kernels, len(places) // programs)
        for group in _groups({place: self._requests[place] for place in places}, most):
            text = merged([self._requests[place].variant.main for place in group])
            if text is not None:
                request = _together([self._requests.pop(place) for place in group], text)
                self._requests[group[0]] = request
                needs = _features(self.records[place].needs for place in group)
                self.records[group[0]] = ProgramRecord(b"", text.source, text.options, needs)
                for place, prefix in zip(group, text.prefixes, strict=True):
                    self._shared[place] = group[0], prefix

    @property
    def kept(self) -> tuple[ProgramRecord, ...]:
        """The records without those that others have taken in."""
        return tuple(self.records[place] for place in self._numbers)

    def placed(self, graph: GraphRecord) -> GraphRecord:
        """Return a graph whose launches name programs by their places among those that are kept."""
        numbers = self._numbers

        def one(launch: LaunchRecord) -> LaunchRecord:
            place, prefix = self._shared.get(launch.program, (launch.program, ""))
            return replace(launch, program=numbers[place], entry=prefix + launch.entry)

        return replace(graph, launches=tuple(map(one, graph.launches)), persistent=tuple(map(one, graph.persistent)))

    @property
    def _numbers(self) -> dict[int, int]:
        """By the places of records that are kept, their new ones."""
        gone = {place for place, (program, _) in self._shared.items() if place != program}
        return {place: number for number, place in enumerate(p for p in range(len(self.records)) if p not in gone)}

    def compile(self, progress: Progress) -> None:
        """Compile all. The longest text comes first, so that none is left when all others are done."""
        places = sorted(self._requests, key=lambda place: len(self.records[place].source), reverse=True)
        if not places:
            return

        def done(number: int, reply: Compiled) -> None:
            place = places[number]
            self.records[place] = replace(self.records[place], binary=bytes(reply.binary))
            progress.advance(1, "")

        with progress.running("compiling", len(places)):
            self._target.compile_kernels([self._requests[place] for place in places], done)

    def _append(self, variant: Variant, sizes: Mapping[str, int]) -> int:
        self._requests[len(self.records)] = CompileKernel(variant, sizes)
        needs = _features(kernel.needs.features for kernel in variant.main.sequence if kernel.needs is not None)
        self.records.append(ProgramRecord(b"", variant.main.source, variant.main.options, needs))
        return len(self.records) - 1


def _features(needed: Iterable[Sequence[str]]) -> tuple[str, ...]:
    """Return the features that are needed anywhere."""
    return tuple(sorted({name for names in needed for name in names}))


def _groups(requests: Mapping[int, CompileKernel], most: int) -> list[list[int]]:
    """Return the places of requests in groups of several that go into one program, which have so many kernels at
    most."""
    alike: dict[tuple[str, ...] | None, list[int]] = {}
    for place, request in requests.items():
        alike.setdefault(company(request.variant.main), []).append(place)
    alike.pop(None, None)
    groups: list[list[int]] = []
    for places in alike.values():
        limits = most, BYTES_TOGETHER, CHARACTERS_TOGETHER
        left: list[int] = []
        for place in places:
            main = requests[place].variant.main
            takes = len(main.sequence), sum(_sizes(requests[place]).values()), len(main.source)
            left = [has - needs for has, needs in zip(left, takes, strict=False)]
            if not left or min(left) < 0:
                groups.append([])
                left = [limit - needs for limit, needs in zip(limits, takes, strict=True)]
            groups[-1].append(place)
    return [group for group in groups if len(group) > 1]


def _sizes(request: CompileKernel) -> dict[str, int]:
    """Return the bytes of what the kernels of a request are given."""
    variant = request.variant
    given = {argument for kernel in variant.main.sequence for argument in kernel.arguments}
    sizes = {**request.buffers, **variant.packed, **variant.scratch}
    return {name: nbytes for name, nbytes in sizes.items() if name in given}


def _together(requests: Sequence[CompileKernel], text: Merged) -> CompileKernel:
    """Return a request for one program that stands for these, each of whose kernels runs once on buffers of its own."""
    main = text.as_one([request.variant.main for request in requests])
    named = zip(text.prefixes, map(_sizes, requests), strict=True)
    sizes = {prefix + name: nbytes for prefix, own in named for name, nbytes in own.items()}
    return CompileKernel(Variant({}, (), main, {}), sizes)


@dataclass(frozen=True)
class _Constants:
    """Say where the constants of operations lie. packings: None if they are packed now, on the target; so are those
    that packing makes no more than `growth` times as large."""

    target: Maker
    weights: Weights
    packings: Packings | None
    growth: float

    def of(self, plan: Plan, operation: Operation, task: str, instance: Instance) -> dict[str, BufferRef]:
        """By name those that a run reads. task: a digest."""
        values = {name: plan.constants[t] for name, t in operation.inputs.items() if plan.is_constant(t)}
        read = {argument for kernel in instance.main.sequence for argument in kernel.arguments}
        refs = {
            name: self.weights.add(np.ascontiguousarray(value).tobytes(), operation.name)
            for name, value in values.items()
            if name in read
        }
        if not instance.prepare:
            return refs
        needed = {argument for one in instance.prepare for kernel in one.sequence for argument in kernel.arguments}
        sources = {name: value for name, value in values.items() if name in needed}
        packed = self._packed(sources, instance)
        grown = sum(map(len, packed.values())) > self.growth * sum(int(value.nbytes) for value in sources.values())
        if self.packings is None or not grown:
            return refs | {name: self.weights.add(content, operation.name) for name, content in packed.items()}
        raw = {name: np.ascontiguousarray(value).tobytes() for name, value in sources.items()}
        return refs | self.packings.add(Packing(operation.name, task, instance.prepare, raw, packed))

    def _packed(self, sources: Mapping[str, Any], instance: Instance) -> Mapping[str, memoryview]:
        handles = {name: self.target.upload(value) for name, value in sources.items()}
        try:
            return self.target.execute_kernel(ExecuteKernel(instance.prepare, handles, instance.packed))
        finally:
            self.target.free(*handles.values())
