"""Build the schematic of a context at the end of a generation."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from gputune.cache import PerformanceCache
from gputune.client.context.builder import Built
from gputune.client.context.choice import Decision
from gputune.client.context.memory.storage import Storage
from gputune.client.errors import ModelError, TargetError, TuningError
from gputune.client.generation.request import GenerationRequest
from gputune.client.model.alternatives import Alternatives
from gputune.client.model.graph import Names
from gputune.client.model.plan import Operation, Plan
from gputune.client.target.client import TargetClient
from gputune.client.tuning.expected_gain import Rates, Standing, rates_of
from gputune.client.tuning.measuring import peaks
from gputune.client.tuning.search.effort import EFFORTS
from gputune.client.tuning.search.task_search import default_of, task_key
from gputune.client.tuning.tuner import Tuner
from gputune.client.viewer.schematic import (
    GraphPlan,
    OperationPlan,
    RooflinePeaks,
    Schematic,
    TensorPlan,
    write_schematic,
)
from gputune.core.alike import as_kind
from gputune.core.files import sha256_of
from gputune.core.identity import DeviceIdentity
from gputune.core.version import software_version
from gputune.kernels.catalogue import family_of
from gputune.kernels.family import DeviceLimits, TensorSpec
from gputune.runtime.context.records import BufferRef, GraphRecord
from gputune.runtime.profiling.records import digest_of, logged_launches

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Source:
    """A graph of a context: what was decided, and the types of the model's nodes by their names."""

    decision: Decision
    node_ops: Mapping[str, str]


def schematic_of(
    models: Sequence[Path],
    context: Path,
    tier: str,
    device: DeviceIdentity,
    sources: Sequence[Source],
    built: Built,
    peaks: RooflinePeaks | None,
    limits: DeviceLimits,
) -> Schematic:
    """Return what the launches of a context stand for. models, context: its files; sources: in the order of the built
    graphs. Raises ModelError for a model that cannot be read any more."""
    return Schematic(
        model=",".join(model.name for model in models),
        model_sha256=_sha256_of(models),
        context=context.name,
        software=software_version(),
        tier=tier,
        device=device.to_dict(),
        graphs=tuple(
            _graph(source, graph, storage, limits)
            for source, graph, storage in zip(sources, built.graphs, built.storages, strict=True)
        ),
        peaks=peaks,
    )


def write_schematic_of(
    request: GenerationRequest,
    tier: str,
    device: DeviceIdentity,
    decisions: Sequence[Decision],
    models: Sequence[Alternatives],
    built: Built,
    peaks: RooflinePeaks | None,
    limits: DeviceLimits,
) -> None:
    """Write what the launches of a context stand for. Raises ModelError, OutputError."""
    node_ops = {model.plan.name: model.node_ops for model in models}
    sources = [Source(one, node_ops[one.plan.name]) for one in decisions]
    files = request.model_paths, request.binary_file
    write_schematic(request.schematic_file, schematic_of(*files, tier, device, sources, built, peaks, limits))
    log.info(f"wrote the schematic {request.schematic_file}")


def peaks_of(
    decisions: Iterable[Decision], client: TargetClient, cache: PerformanceCache | None, frozen: bool
) -> RooflinePeaks | None:
    """Return the best rates that a task of the context, or a matrix product and a copy have reached, each of them
    alone; None where nothing is known of both rates.

    The two are measured as tasks are, and are in the cache from then on; frozen: they may not be. Raises CacheError."""
    own = _rates_of_tasks(decisions)
    origin = "the best rates of the context's tasks, each measured alone"
    if not frozen:
        try:
            others = _rates_of_references(client, cache)
        except (TuningError, TargetError) as error:
            log.warning(f"peaks of the roofline: {error}")
        else:
            own = Rates(max(own.flops_per_ns, others.flops_per_ns), max(own.bytes_per_ns, others.bytes_per_ns))
            origin = "the best rates of the context's tasks, a matrix product and a copy, each measured alone"
    if not (own.flops_per_ns and own.bytes_per_ns):
        return None
    return RooflinePeaks(own.flops_per_ns, own.bytes_per_ns, origin)


def _rates_of_tasks(decisions: Iterable[Decision]) -> Rates:
    return rates_of(
        Standing(family_of(task.op).work(task.problem), decision.outcomes[task_key(task).digest].tuned_ns, 0)
        for decision in decisions
        for task in decision.plan.tasks
    )


def _rates_of_references(client: TargetClient, cache: PerformanceCache | None) -> Rates:
    """Return the rates of a matrix product and a copy. Raises TuningError, TargetError, CacheError."""
    if cache is None:
        found = peaks.measured(client)
        return Rates(found.gflops, found.gbps)  # 10^9 in a second are one in a nanosecond
    tasks = (peaks.ARITHMETIC, peaks.MEMORY)
    outcomes = Tuner([client], cache, EFFORTS["quick"]).tune(tasks)
    return rates_of(
        Standing(family_of(task.op).work(task.problem), outcome.tuned_ns, 0)
        for task, outcome in zip(tasks, outcomes, strict=True)
    )


def _sha256_of(models: Sequence[Path]) -> str:
    """Of the only model; of several that of their digests in hex, one behind the other."""
    digests = list(map(_sha256_of_one, models))
    return digests[0] if len(digests) == 1 else hashlib.sha256("".join(digests).encode()).hexdigest()


def _sha256_of_one(model: Path) -> str:
    try:
        return sha256_of(model)
    except OSError as error:
        raise ModelError(f"model {model} can no longer be read: {error.strerror or error}") from None


def _graph(source: Source, graph: GraphRecord, storage: Storage, limits: DeviceLimits) -> GraphPlan:
    plan = source.decision.plan
    tensors = [*_tensors(plan, storage), *_scratch(plan, storage)]
    placed = {tensor.name for tensor in tensors}
    return GraphPlan(
        name=graph.name,
        digest=digest_of(logged_launches(graph)),
        inputs=tuple(tensor.name for tensor in plan.inputs),
        outputs=tuple(tensor.name for tensor in plan.outputs),
        tensors=tuple(tensors),
        operations=tuple(_operations(source.decision, storage, limits)),
        aliases={view: root for view, root in plan.aliases.items() if view in placed},
        nodes=dict(source.node_ops),
        arena_bytes=graph.arena_bytes,
        arena_bound_bytes=graph.arena_bound_bytes,
    )


def _operations(decision: Decision, storage: Storage, limits: DeviceLimits) -> Iterator[OperationPlan]:
    first = 0
    for operation, instance in zip(decision.plan.operations, storage.instances, strict=True):
        count = len(instance.main.sequence)
        yield _operation(decision, operation, tuple(range(first, first + count)), limits)
        first += count


def _operation(
    decision: Decision, operation: Operation, launches: tuple[int, ...], limits: DeviceLimits
) -> OperationPlan:
    task = operation.task
    work, outcome = family_of(task.op).work(task.problem), decision.outcomes[task_key(task).digest]
    return OperationPlan(
        name=operation.name,
        op=task.op,
        task=outcome.key,
        problem=outcome.problem,
        configuration=outcome.configuration,
        default=default_of(task, limits),
        alone_ns=outcome.tuned_ns,
        default_ns=outcome.default_ns,
        flops=work.flops,
        nbytes=work.bytes,
        nodes=operation.nodes,
        inputs=operation.inputs,
        output=operation.output,
        launches=launches,
    )


def _tensors(plan: Plan, storage: Storage) -> Iterator[TensorPlan]:
    """Yield the tensors that have memory: those that an operation needs, or the application has. A view has the place
    and the life time of the tensor whose memory it is."""
    for name, tensor in plan.tensors.items():
        root = plan.root(name)
        if plan.is_constant(root):
            yield _tensor(tensor, BufferRef("weights", 0, 0, tensor.nbytes), -1, len(plan.operations))
        elif root in storage.own or root in storage.uses:
            first, last = storage.uses.get(root, (-1, -1))
            ref = storage.ref(name)
            first = -1 if ref.kind == "input" else first
            last = len(plan.operations) if ref.kind == "output" else last
            yield _tensor(tensor, ref, first, last)


def _scratch(plan: Plan, storage: Storage) -> Iterator[TensorPlan]:
    """Yield what stages of an operation hand over, which lies in arenas as tensors do."""
    names = Names(plan.tensors)
    for place, (operation, instance) in enumerate(zip(plan.operations, storage.instances, strict=True)):
        for name, nbytes in instance.scratch.items():
            tensor = TensorSpec(names.free(f"{operation.name}: scratch {name}"), (nbytes,), dtype="uint8")
            yield _tensor(tensor, storage.scratch_ref(place, name, nbytes), place, place)


def _tensor(tensor: TensorSpec, ref: BufferRef, first: int, last: int) -> TensorPlan:
    """Return a tensor that lies there. Of constants nothing more is known: each configuration packs them in its own
    way."""
    return as_kind(
        TensorPlan,
        tensor,
        kind="constant" if ref.kind == "weights" else ref.kind,
        arena=ref.index if ref.kind == "arena" else 0,
        offset=ref.offset,
        first=first,
        last=last,
    )
