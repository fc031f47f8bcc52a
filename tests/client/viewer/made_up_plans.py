"""Make schematics of made-up graphs, which fit the logs of tests/runtime/profiling/made_up.py."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gputune.client.viewer.schematic import GraphPlan, OperationPlan, RooflinePeaks, Schematic, TensorPlan
from gputune.runtime.profiling.records import LoggedGraph
from tests.runtime.profiling.made_up import device

TENSOR_BYTES = 256
"""Of each tensor between operations; a made-up arena of 8192 bytes has room for 32 of them."""


def plan(
    log_graph: LoggedGraph,
    edges: Iterable[tuple[int, int]] | None = None,
    flops: int | Sequence[int] = 1_000_000,
    nbytes: int | Sequence[int] = 10_000,
    *,
    ops: str | Sequence[str] = "Conv",
    alone_ns: float | Sequence[float | None] | None = None,
) -> GraphPlan:
    """A plan of a logged graph.

    edges: from the place of an operation to that of one which reads its output; None: each reads the one before it. An
    operation that reads no other reads the graph's input; the last one writes the graph's output. flops, nbytes, ops,
    alone_ns: one for all operations, or one for each. An operation stands for an ONNX node of its own name.
    """
    launches: dict[str, list[int]] = {}
    for place, launch in enumerate(log_graph.launches):
        launches.setdefault(launch.operation, []).append(place)
    count = len(launches)
    pairs = sorted(set(zip(range(count), range(1, count), strict=False) if edges is None else edges))
    source, target = next(iter(log_graph.inputs)), next(iter(log_graph.outputs))
    outputs = [*(f"{name}:0" for name in list(launches)[:-1]), target]
    reads = [[outputs[a] for a, b in pairs if b == place] or [source] for place in range(count)]
    kinds = [ops] * count if isinstance(ops, str) else list(ops)
    work, moved = _counts(flops, count), _counts(nbytes, count)
    alone = list(alone_ns) if isinstance(alone_ns, Sequence) else [alone_ns] * count
    operations = tuple(
        OperationPlan(
            name=name,
            op=kinds[place],
            task=log_graph.launches[own[0]].task,
            problem={"shape": [64]},
            configuration={"tile": 8},
            default={"tile": 1},
            alone_ns=alone[place],
            default_ns=None,
            flops=work[place],
            nbytes=moved[place],
            nodes=(name,),
            inputs={f"in{index}": tensor for index, tensor in enumerate(reads[place])},
            output=outputs[place],
            launches=tuple(own),
        )
        for place, (name, own) in enumerate(launches.items())
    )
    last = {tensor: place for place, tensors in enumerate(reads) for tensor in tensors}
    inner = [_inner(name, place, last.get(name, place)) for place, name in enumerate(outputs[:-1])]
    outer = [
        _outer(source, log_graph.inputs[source], "input", -1, last.get(source, 0)),
        _outer(target, log_graph.outputs[target], "output", count - 1, count),
    ]
    return GraphPlan(
        name=log_graph.name,
        digest=log_graph.digest,
        inputs=(source,),
        outputs=(target,),
        tensors=(*outer, *inner),
        operations=operations,
        aliases={},
        nodes={name: kinds[place] for place, name in enumerate(launches)},
        arena_bytes=log_graph.arena_bytes,
        arena_bound_bytes=min(sum(log_graph.arena_bytes), TENSOR_BYTES * count),
    )


def schematic(*plans: GraphPlan, peaks: RooflinePeaks | None = None) -> Schematic:
    """A schematic of these graphs."""
    return Schematic("net.onnx", "0" * 64, "net.bin", "gputune 0", "made up", device().to_dict(), plans, peaks)


def _counts(given: int | Sequence[int], count: int) -> list[int]:
    return [given] * count if isinstance(given, int) else list(given)


def _outer(name: str, nbytes: int, kind: str, first: int, last: int) -> TensorPlan:
    return TensorPlan(name, (nbytes // 4,), "float32", nbytes, kind, 0, 0, first, last)


def _inner(name: str, place: int, last: int) -> TensorPlan:
    return TensorPlan(
        name, (TENSOR_BYTES // 4,), "float32", TENSOR_BYTES, "arena", 0, place * TENSOR_BYTES, place, last
    )
