"""Judge how a context fits a device, and choose among the contexts of a package."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Literal

from gputune.core.errors import DeviceError, LimitExceeded, WrongDevice
from gputune.core.identity import DeviceIdentity
from gputune.core.launches import check_allocation, check_sizes
from gputune.core.statuses import FARTHEST, ContextChoice, ContextVerdict
from gputune.runtime.context.format import ContextFile
from gputune.runtime.context.package import Package
from gputune.runtime.context.records import ContextHeader, GraphRecord

Compatibility = Literal["permissive", "strict"]
TOLD = 4
"""Of contexts that cannot run, those whose reasons an error tells."""
_UNKNOWN = "unknown"


def is_strict(mode: Compatibility) -> bool:
    """Return whether a context must be made for exactly this device. Raises ValueError for an unknown mode."""
    if mode not in ("permissive", "strict"):
        raise ValueError(f"cache_compatibility_mode is {mode!r}, expected 'permissive' or 'strict'")
    return mode == "strict"


def verdict_on(
    header: ContextHeader, graphs: Iterable[GraphRecord], device: DeviceIdentity, computes: bool
) -> tuple[ContextVerdict, str]:
    """Return how these graphs of a context fit a device, and the reason, which is empty where they fit best.

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


def choices(package: Package, device: DeviceIdentity, computes: bool) -> list[ContextChoice]:
    """Return how each context of a package fits a device, the best first: those that cannot run last, others by their
    distance, then by compute units, driver and place. Raises ContextError for damaged contexts."""
    found = []
    for place in _by_distance(package, device, computes):
        with package.open(place) as file:
            found.append(_choice(package, place, file, device, computes, None))
    return sorted(found, key=lambda choice: choice.verdict is ContextVerdict.UNSUPPORTED)


def open_chosen(package: Package, device: DeviceIdentity, computes: bool, graph: str | None = None) -> ContextFile:
    """Return the context of a package that fits a device best, with its `choice`; of those that are not tried no more
    than the index is read. graph: the one that is going to run, None for all. Raises WrongDevice, which says of each
    context why, where none can run."""
    refused = []
    for place in _by_distance(package, device, computes):
        file = package.open(place)
        file.choice = _choice(package, place, file, device, computes, graph)
        if file.choice.verdict is not ContextVerdict.UNSUPPORTED:
            return file
        file.close()
        refused.append(f"{file.choice.name}: {file.choice.reason}")
    told = "; ".join(refused[:TOLD]) + ("; ..." if len(refused) > TOLD else "")
    raise WrongDevice(f"{package.path}: none of {len(refused)} contexts runs on {device.name}; {told}")


def distance(device: DeviceIdentity, made_for: DeviceIdentity) -> tuple[int, str]:
    """Return how far a device is from that of a context, as ContextChoice has it, and the reason in words."""
    here, there = device.tier, made_for.tier
    model, units = device.name, device.compute_units
    if device.runs_binaries_of(made_for):
        return 0, ""
    if here.name == there.name:
        return 1, f"made for another driver: {device.difference(made_for)}"
    if replace(device, compute_units=0).tier.name == replace(made_for, compute_units=0).tier.name:
        return 2, f"made for {made_for.compute_units} compute units, here are {units}"
    if here.family == there.family:
        return 3, f"made for {made_for.name}, {model} is of the same family {here.family}"
    kind = device.device_type
    if here.vendor == there.vendor != _UNKNOWN and kind == made_for.device_type:
        return 4, f"made for {made_for.name}, {model} is of the same vendor {here.vendor}"
    if kind == made_for.device_type:
        return 5, f"made for {made_for.name}, {model} is another {kind}"
    return FARTHEST, f"made for {made_for.name}, {model} is a {kind}"


def made_by_null(device: str) -> str:
    """Why a context of the null device cannot run on another one."""
    return (
        f"made by the null device: it holds no rearranged weights and cannot run on {device}; "
        "make it again on a real device, or ask for the device 'null'"
    )


def _choice(
    package: Package, place: int, file: ContextFile, device: DeviceIdentity, computes: bool, graph: str | None
) -> ContextChoice:
    graphs = [known for known in file.header.graphs if graph in (None, known.name)]
    verdict, reason = verdict_on(file.header, graphs, device, computes)
    far, words = distance(device, file.header.device)
    if verdict is ContextVerdict.PREFER_RECOMPILATION:
        reason = words
    return ContextChoice(package.contexts[place].name, place, len(package.contexts), verdict, far, reason)


def _by_distance(package: Package, device: DeviceIdentity, computes: bool) -> list[int]:
    """Return the places of contexts, the nearest first."""

    def order(place: int) -> tuple[bool, int, float, bool, int]:
        entry = package.contexts[place]
        apart = abs(math.log2(max(device.compute_units, 1) / max(entry.device.compute_units, 1)))
        unfit = computes and not entry.computes
        return unfit, distance(device, entry.device)[0], apart, entry.device.driver != device.driver, place

    return sorted(range(len(package.contexts)), key=order)


def _check_limits(header: ContextHeader, graph: GraphRecord, device: DeviceIdentity) -> None:
    """Raise LimitExceeded for what the device's limits alone rule out."""
    for part in graph.constants("packed"):
        _check_limits(header, header.packing[part], device)
    for launch in graph.launches:
        check_sizes(launch.global_size, launch.local_size, device)
    refs = {ref for launch in graph.launches for ref in launch.refs}
    weights = {header.weights[index] for index in graph.constants("weights")}
    tensors = [tensor.nbytes for tensor in (*graph.inputs, *graph.outputs)]
    largest = max([*tensors, *graph.arena_bytes, *(header.sections[index].length for index in weights)], default=0)
    check_allocation(largest, device)
    alignment = device.base_address_alignment_bytes
    offset = next((ref.offset for ref in refs if ref.offset % alignment), None)
    if offset is not None:
        raise LimitExceeded(f"a buffer part at offset {offset}, the device aligns parts to {alignment} bytes")
