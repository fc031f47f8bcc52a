"""How a context fits a device: the one place that decides it."""

from __future__ import annotations

from collections.abc import Iterable

from gputune.core.errors import DeviceError, LimitExceeded
from gputune.core.identity import DeviceIdentity
from gputune.core.launches import check_sizes
from gputune.core.statuses import ContextVerdict
from gputune.runtime.context.records import ContextHeader, GraphRecord


def verdict_on(
    header: ContextHeader, graphs: Iterable[GraphRecord], device: DeviceIdentity, computes: bool
) -> tuple[ContextVerdict, str]:
    """How these graphs of a context fit a device, and the reason, which is empty where they fit best.

    computes: whether the device does; one that does not stands in for any other. A driver may still refuse what this
    supports: nothing says in advance what its compiler makes of a kernel.
    """
    if computes and not header.computes:
        return ContextVerdict.UNSUPPORTED, made_by_null(device.name)
    for graph in graphs:
        try:
            _check_limits(header, graph, device)
        except DeviceError as error:
            return ContextVerdict.UNSUPPORTED, f"{device.name} cannot run graph {graph.name!r}: {error}"
    if device.runs_binaries_of(header.device) or not header.computes:
        return ContextVerdict.OPTIMAL, ""
    return ContextVerdict.PREFER_RECOMPILATION, device.difference(header.device)


def made_by_null(device: str) -> str:
    """Why a context of the null device cannot run on another one."""
    return (
        f"made by the null device: it holds no rearranged weights and cannot run on {device}; "
        "make it again on a real device, or ask for the device 'null'"
    )


def _check_limits(header: ContextHeader, graph: GraphRecord, device: DeviceIdentity) -> None:
    """Raises LimitExceeded for what the device's limits alone rule out."""
    for launch in graph.launches:
        check_sizes(launch.global_size, launch.local_size, device)
    refs = {ref for launch in graph.launches for ref in launch.refs}
    weights = {header.weights[ref.index] for ref in refs if ref.kind == "weights"}
    tensors = [tensor.nbytes for tensor in (*graph.inputs, *graph.outputs)]
    largest = max([*tensors, *graph.arena_bytes, *(header.sections[index].length for index in weights)], default=0)
    if largest > (limit := device.max_allocation_bytes):
        raise LimitExceeded(f"a buffer of {largest} bytes, the device's largest allocation is {limit}")
    alignment = device.base_address_alignment_bytes
    offset = next((ref.offset for ref in refs if ref.offset % alignment), None)
    if offset is not None:
        raise LimitExceeded(f"a buffer part at offset {offset}, the device aligns parts to {alignment} bytes")
