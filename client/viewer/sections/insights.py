"""Collect what the analyses say of a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from gputune.client.viewer.analysis.critical_path import CriticalPath, critical_path_of
from gputune.client.viewer.analysis.findings import Finding, findings_of
from gputune.client.viewer.analysis.roofline import Roofline, RooflineRow, roofline_of
from gputune.client.viewer.profile import GraphProfile, Profile


@dataclass(frozen=True, eq=False)
class Insights:
    """Of a graph. path, roofline: None where there is no schematic, or no timestamps of launches."""

    findings: Sequence[Finding] = ()
    path: CriticalPath | None = None
    roofline: Roofline | None = None

    @cached_property
    def placed(self) -> Mapping[str, RooflineRow]:
        """The operations under the roofline by their names, those without launches left out."""
        rows = () if self.roofline is None else self.roofline.rows
        return {row.name: row for row in rows if row.median_ns}


def insights_of(profile: Profile, graph: GraphProfile) -> Insights:
    """Of a graph of the profile."""
    return Insights(findings_of(profile, graph), critical_path_of(graph), roofline_of(profile, graph))


def gain_ns(row: RooflineRow) -> float:
    """Return what lies between an operation's median and its roofline."""
    return row.median_ns - row.best_ns
