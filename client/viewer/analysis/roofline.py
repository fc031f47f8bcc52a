"""Compute the roofline of a profile: what each operation would take at the best rates measured on the device.

Williams, Waterman, Patterson: Roofline: An Insightful Visual Performance Model (2009). The peaks come from the
schematic and were measured when the model was tuned; they are never assumed. If an operation in the log reached a
better rate, the peak is raised to that rate. Without peaks in the schematic, or on another device than its own, both
peaks are the best rates of the log, or 0 if nothing has a rate. No operation is therefore above its roofline.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from gputune.client.viewer.analysis.critical_path import medians_ns
from gputune.client.viewer.profile import GraphProfile, Profile
from gputune.client.viewer.schematic import OperationPlan, RooflinePeaks

Bound = Literal["compute", "memory", "none"]
OF_THIS_LOG = "the best rates that any task has reached in this log"


@dataclass(frozen=True)
class RooflineRow:
    """An operation. median_ns: what it took; best_ns: what it would at the peaks, at most that; bound: by which peak
    that is, none where it computes and moves nothing."""

    name: str
    flops: int
    nbytes: int
    median_ns: float
    best_ns: float
    bound: Bound

    @property
    def share(self) -> float:
        """How much of its time it would need at its roofline, from 0 to 1."""
        return self.best_ns / self.median_ns if self.median_ns else 0.0

    @property
    def gain_ns(self) -> float:
        """What lies between its time and its roofline."""
        return self.median_ns - self.best_ns

    @property
    def gflops_per_s(self) -> float:
        """The rate that it has computed at, 10^9 floating-point operations per second."""
        return self.flops / self.median_ns if self.median_ns else 0.0

    @property
    def gbytes_per_s(self) -> float:
        """The rate that it has moved its tensors at, 10^9 bytes per second."""
        return self.nbytes / self.median_ns if self.median_ns else 0.0


@dataclass(frozen=True)
class Roofline:
    """Of a graph: its operations in order, and the peaks; notes: in what these differ from the schematic's."""

    peaks: RooflinePeaks
    rows: tuple[RooflineRow, ...]
    notes: tuple[str, ...]

    @property
    def best_ns(self) -> float:
        """What all operations would take at their rooflines."""
        return sum(row.best_ns for row in self.rows)

    @property
    def share(self) -> float:
        """Of what they took, from 0 to 1."""
        median_ns = sum(row.median_ns for row in self.rows)
        return self.best_ns / median_ns if median_ns else 0.0


def roofline_of(profile: Profile, graph: GraphProfile) -> Roofline | None:
    """Of a graph of the profile; None without a schematic or timestamps of launches."""
    if graph.plan is None or not graph.timed:
        return None
    peaks, notes = _peaks(profile, graph)
    medians = medians_ns(graph, graph.plan)
    rows = tuple(_row(one, took_ns, peaks) for one, took_ns in zip(graph.plan.operations, medians, strict=True))
    return Roofline(peaks, rows, notes)


def _row(one: OperationPlan, median_ns: float, peaks: RooflinePeaks) -> RooflineRow:
    compute_ns = one.flops / peaks.flops_per_ns if peaks.flops_per_ns else 0.0
    memory_ns = one.nbytes / peaks.bytes_per_ns if peaks.bytes_per_ns else 0.0
    bound: Bound = "compute" if compute_ns > memory_ns else "memory" if memory_ns else "none"
    # By at most a rounding more where this operation has set the peak; all of it where it took no time at all.
    best_ns = min(max(compute_ns, memory_ns), median_ns)
    return RooflineRow(one.name, one.flops, one.nbytes, median_ns, best_ns, bound)


def _peaks(profile: Profile, graph: GraphProfile) -> tuple[RooflinePeaks, tuple[str, ...]]:
    """Return the peaks of the device that the graph ran on, and notes on them."""
    device = _device(graph)
    reached = [rates for one in profile.graphs if _device(one) == device for rates in _reached(one)]
    flops_per_ns = max((rate for rate, _ in reached), default=0.0)
    bytes_per_ns = max((rate for _, rate in reached), default=0.0)
    schematic = profile.schematic
    given = None if schematic is None or schematic.device.get("name") != device else schematic.peaks
    if given is None:
        return RooflinePeaks(flops_per_ns, bytes_per_ns, OF_THIS_LOG), ()
    notes = []
    for what, best, peak in (
        ("GFLOP/s", flops_per_ns, given.flops_per_ns),
        ("GB/s", bytes_per_ns, given.bytes_per_ns),
    ):
        if best > peak:
            notes.append(f"the peak of {peak:.3g} {what} was raised to {best:.3g}: {OF_THIS_LOG}")
    raised = max(given.flops_per_ns, flops_per_ns), max(given.bytes_per_ns, bytes_per_ns)
    return RooflinePeaks(*raised, "; ".join([given.origin, *notes])), tuple(notes)


def _device(graph: GraphProfile) -> object:
    return graph.log.header.device.get("name")


def _reached(graph: GraphProfile) -> Iterator[tuple[float, float]]:
    """Yield the rates of computing and moving of each operation, per ns."""
    if graph.plan is not None and graph.timed:
        for one, took_ns in zip(graph.plan.operations, medians_ns(graph, graph.plan), strict=True):
            if took_ns:
                yield one.flops / took_ns, one.nbytes / took_ns
