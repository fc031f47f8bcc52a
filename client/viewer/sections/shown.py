"""Collect what the page shows of a graph: what the analyses say, and its operations in groups, each with a colour.

Groups are those of ops if a schematic says them, else of kernels.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gputune.client.viewer.analysis.critical_path import CriticalPath, critical_path_of
from gputune.client.viewer.analysis.findings import Finding, findings_of
from gputune.client.viewer.analysis.roofline import Roofline, RooflineRow, roofline_of
from gputune.client.viewer.profile import GraphProfile, OperationTimes, Profile

COLOURS = 8
"""As many as the style of pages has."""


@dataclass(frozen=True)
class OperationGroup:
    """Operations of one kind. colour: a class of the style; mean_ns, median_ns: of their sum in an inference;
    total_ns: of all inferences with timestamps."""

    name: str
    colour: str
    operations: Sequence[OperationTimes]
    mean_ns: float
    median_ns: float
    total_ns: int


@dataclass(frozen=True, eq=False)
class Shown:
    """A graph and its operations as the page shows them. anchor: what ids of this graph begin with; path, roofline:
    None where there is no schematic, or no timestamps of launches; group_of, place_of: by the operation's name."""

    graph: GraphProfile
    anchor: str
    findings: Sequence[Finding]
    path: CriticalPath | None
    roofline: Roofline | None
    groups: Sequence[OperationGroup]
    group_of: Mapping[str, int]
    place_of: Mapping[str, int]

    @cached_property
    def placed(self) -> Mapping[str, RooflineRow]:
        """The operations under the roofline by their names, those without launches left out."""
        rows = () if self.roofline is None else self.roofline.rows
        return {row.name: row for row in rows if row.median_ns}

    def colour(self, operation: str) -> str:
        return self.groups[self.group_of[operation]].colour

    def row(self, operation: str) -> str:
        """Return the anchor of an operation's row."""
        return f"{self.anchor}-operation{self.place_of[operation]}"

    def legend(self) -> list[tuple[str, str]]:
        """Return the colours of groups with their names."""
        return [(group.colour, group.name) for group in self.groups[: COLOURS + 1]]


def shown(profile: Profile, graph: GraphProfile, anchor: str) -> Shown:
    """Return a graph's operations with their groups, the most expensive group first."""
    families = enumerate(graph.families.items())
    groups = [_group(name, operations, _colour(number)) for number, (name, operations) in families]
    return Shown(
        graph=graph,
        anchor=anchor,
        findings=findings_of(profile, graph),
        path=critical_path_of(graph),
        roofline=roofline_of(profile, graph),
        groups=groups,
        group_of={one.name: number for number, group in enumerate(groups) for one in group.operations},
        place_of={one.name: place for place, one in enumerate(graph.operations)},
    )


def _group(name: str, operations: Sequence[OperationTimes], colour: str) -> OperationGroup:
    times_ns = np.sum([one.times_ns for one in operations], axis=0)
    mean_ns, median_ns = (float(np.mean(times_ns)), float(np.median(times_ns))) if len(times_ns) else (0.0, 0.0)
    return OperationGroup(name, colour, operations, mean_ns, median_ns, sum(one.total_ns for one in operations))


def _colour(number: int) -> str:
    return f"o{number}" if number < COLOURS else "rest"
