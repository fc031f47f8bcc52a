"""Say where the time of a graph's inferences goes and what could be gained, in sentences with numbers, the largest
first.

Shares are relative to all inferences together, so that the shares of one account are parts of one whole. A share is the
time that a finding's cause takes. If another way to run was measured, it is the time that this would save.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from gputune.client.pages.scales import time_words
from gputune.client.tuning.measuring.intervals import Ratio
from gputune.client.viewer.analysis.forms import Forms, forms_of
from gputune.client.viewer.analysis.roofline import Roofline, RooflineRow, roofline_of
from gputune.client.viewer.analysis.texts import part_text, percent_text
from gputune.client.viewer.profile import GraphProfile, OperationTimes, Profile
from gputune.client.viewer.schematic import OperationPlan

LEAST_SHARE = 0.01
"""What takes less of the inferences is no finding of its own."""
AT_ITS_ROOFLINE = 0.5
"""An operation that reaches this share of its roofline is bound by it; below, by how its kernel is written."""
STANDS_OUT = 3.0
"""How many times the median of all others an operation takes when it is named without a roofline."""
DOMINATES = 0.25
"""The share of all kernels that an operation takes at least when it is named."""
LONGER_THAN_ALONE = 0.1
"""By how much more than alone all kernels together take in the model when that is a finding."""


@dataclass(frozen=True)
class Finding:
    """share: of the time of all inferences, from 0 to 1; text: a sentence for people, with its numbers."""

    kind: str
    share: float
    text: str


@dataclass(frozen=True)
class _Subject:
    """A graph that has run, its roofline where one could be drawn, and how its forms compare where they took turns."""

    graph: GraphProfile
    roofline: Roofline | None
    forms: Forms | None

    @property
    def elapsed_ns(self) -> int:
        return self.graph.account.elapsed_ns

    def share(self, total_ns: float) -> float:
        return total_ns / self.elapsed_ns

    def finding(self, kind: str, total_ns: float, what: str, more: str = "") -> Finding:
        """Of what takes so much of all inferences; more: the rest of the sentence, from its punctuation."""
        count = len(self.graph.inferences)
        each = part_text(total_ns / count, self.elapsed_ns / count)
        share = self.share(total_ns)
        return Finding(kind, share, f"{percent_text(share)} of an inference is {what} ({each}){more}.")

    def planned(self) -> Iterator[tuple[OperationTimes, OperationPlan, RooflineRow]]:
        """Yield the operations that the schematic describes, and their places on the roofline."""
        if self.graph.plan is not None and self.roofline is not None:
            times = {one.name: one for one in self.graph.operations}
            for one, row in zip(self.graph.plan.operations, self.roofline.rows, strict=True):
                if one.name in times:
                    yield times[one.name], one, row


def findings_of(profile: Profile, graph: GraphProfile) -> list[Finding]:
    """Of a graph of the profile, the largest share first; none of a graph that has not run."""
    if not graph.account.elapsed_ns:
        return []
    subject = _Subject(graph, roofline_of(profile, graph), forms_of(graph.comparisons))
    found = [finding for rule in _RULES for finding in rule(subject)]
    return sorted(found, key=lambda finding: -finding.share)


def _account(of: _Subject) -> Iterator[Finding]:
    """Yield what of the account takes long, but for kernels."""
    account, graph, count = of.graph.account, of.graph.graph, len(of.graph.inferences)
    moved = f"{sum(graph.inputs.values())} bytes of inputs, {sum(graph.outputs.values())} bytes of outputs"
    started, noticed = time_words(account.queue_ns / count), time_words(account.wake_up_ns / count)
    waits = (
        f"{started} until the first launch starts, {noticed} from the end of the last launch until the host notices it"
    )
    for kind, total_ns, what, more in (
        ("gaps", account.gaps_ns, "gaps between launches", f": {len(graph.launches)} launches; {_without_gaps(of)}"),
        ("copies", account.write_ns + account.read_ns, "copies", f": {moved}; memory handles would avoid the copies"),
        ("queue", account.queue_ns + account.wake_up_ns, "queue and wake-up", f": {waits}"),
        ("host", account.host_ns, "host checks and bookkeeping", ""),
        ("device", account.device_ns, "time on the device", ": not divided, because launches have no timestamps"),
        ("profiler", account.profiler_ns, "reading timestamps for the profiler", ""),
        ("rest", account.rest_ns, "not explained", ": no timestamp covers it"),
    ):
        if of.share(total_ns) >= LEAST_SHARE:
            yield of.finding(kind, total_ns, what, more)


def _without_gaps(of: _Subject) -> str:
    """Return what saves gaps, by what was measured: persistent kernels that do not pay here are no advice."""
    if not of.graph.graph.persistent:
        return "persistent kernels or larger fusion groups would avoid them"
    usual = of.forms.usual if of.forms else None
    if usual is not None and usual.certain and usual.median < 1:
        return "the context usually runs by persistent kernels, which avoid them"
    return "larger fusion groups would avoid them"


def _slow_operation(of: _Subject) -> Iterator[Finding]:
    """Yield the operation that takes longest, where it is far from its roofline or, without one, takes far more than
    the others."""
    top = max(of.graph.operations, key=lambda one: one.total_ns, default=None)
    if top is None or top.total_ns < max(DOMINATES * of.graph.account.kernels_ns, 1):
        return
    name = f"the operation {top.name}"
    planned = next((each for each in of.planned() if each[0] is top), None)
    if planned is None:
        others = [one.total_ns for one in of.graph.operations if one is not top]
        if others and top.total_ns >= STANDS_OUT * statistics.median(others):
            yield of.finding("operation", top.total_ns, name, f": task {top.task[:12]}")
    elif planned[2].share < AT_ITS_ROOFLINE:
        _, plan, row = planned
        more = f": {plan.op}, task {top.task[:12]}, {_configured(plan)}; it takes {time_words(row.median_ns)}"
        yield of.finding(
            "operation", top.total_ns, name, f"{more}, at its roofline it would take {time_words(row.best_ns)}"
        )


def _largest_family(of: _Subject) -> Iterator[Finding]:
    """Yield the kernels on which most of the time goes, however good they are."""
    graph = of.graph
    name, operations = next(iter(graph.families.items()), ("", []))
    total_ns = sum(one.total_ns for one in operations)
    if graph.share(total_ns) >= LEAST_SHARE:
        count, share = len(graph.timed), graph.share(total_ns)
        each = part_text(total_ns / count, graph.timed_ns / count)
        most = max(operations, key=lambda one: one.total_ns)
        text = f"{percent_text(share)} of an inference is kernels of {name} ({each}): "
        text += f"{len(operations)} operations, of which {most.name} takes most" if len(operations) > 1 else most.name
        yield Finding("family", share, f"{text}.")


def _kernels(of: _Subject) -> Iterator[Finding]:
    """Yield what tuning could save at most."""
    away = [(one.total_ns * (1 - row.share), one.name) for one, _, row in of.planned()]
    away_ns = sum(ns for ns, _ in away)
    if of.share(away_ns) >= LEAST_SHARE:
        most_ns, most = max(away)
        more = f": tuning cannot save more; {percent_text(most_ns / away_ns)} of it is {most}"
        yield of.finding("kernels", away_ns, "kernel time above the rooflines", more)


def _memory_bound(of: _Subject) -> Iterator[Finding]:
    """Operations at the best rate of memory: only moving less makes them faster."""
    bound = [(one, row) for one, _, row in of.planned() if row.bound == "memory" and row.share >= AT_ITS_ROOFLINE]
    total_ns = sum(one.total_ns for one, _ in bound)
    if of.roofline is not None and of.share(total_ns) >= LEAST_SHARE:
        rate = sum(row.nbytes for _, row in bound) / sum(row.median_ns for _, row in bound)
        more = f": {len(bound)} operations, {rate:.3g} GB/s of {of.roofline.peaks.bytes_per_ns:.3g}; "
        more += "less data, by fusion or smaller types, would save time; faster kernels would save little"
        yield of.finding("memory-bound", total_ns, "memory-bound", more)


def _longer_than_alone(of: _Subject) -> Iterator[Finding]:
    """Kernels that find caches and clocks in another state than when they were tuned."""
    both = [(one, plan.alone_ns) for one, plan, _ in of.planned() if plan.alone_ns and one.median_ns]
    inside_ns, alone_ns = sum(one.median_ns for one, _ in both), sum(alone_ns for _, alone_ns in both)
    if not both or inside_ns < (1 + LONGER_THAN_ALONE) * alone_ns:
        return
    most, most_alone_ns = max(both, key=lambda each: each[0].median_ns - each[1])
    more = f": {time_words(inside_ns)} against {time_words(alone_ns)}; the largest difference is {most.name}, "
    more += f"{time_words(most.median_ns)} against {time_words(most_alone_ns)}"
    longer_ns = sum(one.total_ns for one, _ in both) * (1 - alone_ns / inside_ns)
    what = "extra time that kernels take inside the model, compared with tuning alone"
    yield of.finding("alone", longer_ns, what, more)


def _usual_form(of: _Subject) -> Iterator[Finding]:
    """Yield where the graph usually runs in another form; inferences in the usual form have no marks of launches."""
    if of.forms is not None and of.forms.usual is not None:
        text = of.forms.usually() + _inside(of.graph)
        yield Finding("usual-form", _saved(of.forms.usual), _sentence(text))


def _saved(ratio: Ratio) -> float:
    """Return the share of the slower one's time that the other one saves for certain."""
    return 1 - min(ratio.median, 1 / ratio.median) if ratio.certain and ratio.median > 0 else 0.0


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _inside(graph: GraphProfile) -> str:
    """Return the rest of that sentence; the headline says why there are no such times."""
    if not graph.inside:
        return ""
    inside_ns = sum(one.median_ns for one in graph.inside.values())
    alone_ns = sum(one.median_ns for one in graph.operations)
    return f"; all launches take {time_words(inside_ns)} inside persistent kernels, {time_words(alone_ns)} one by one"


def _aborted(of: _Subject) -> Iterator[Finding]:
    aborted = [one.elapsed_ns for one in of.graph.inferences if one.form == "aborted"]
    if aborted:
        text = f"In {len(aborted)} of {len(of.graph.inferences)} inferences, persistent kernels gave up, and launches "
        text += "one by one finished the inference"
        yield Finding("aborted", of.share(sum(aborted)), f"{text}; the cause is other load on the device.")


def _overhead(of: _Subject) -> Iterator[Finding]:
    """Yield what profiling has changed."""
    if of.forms is not None:
        yield Finding("overhead", _saved(of.forms.profiled), _sentence(of.forms.recording()))


def _clock(of: _Subject) -> Iterator[Finding]:
    bounds = [(one.clock.bound_ns, one.clock.method) for one in of.graph.inferences if one.clock is not None]
    if bounds:
        bound_ns, method = max(bounds)
        share = min(1.0, bound_ns * len(of.graph.inferences) / of.elapsed_ns)
        text = f"Launch times are off by at most {time_words(bound_ns)} on the host's clock (method: {method})"
        yield Finding("clock", share, f"{text}; durations are not affected.")


def _preemptions(of: _Subject) -> Iterator[Finding]:
    times = np.array([one.elapsed_ns for one in of.graph.inferences])
    counts = np.array([sum(one.preemptions.values()) for one in of.graph.inferences])
    hit = counts > 0
    if hit.any():
        usual_ns = float(np.median(times[~hit])) if not hit.all() else float(times.min())
        longer_ns = max(0.0, float(times[hit].sum()) - usual_ns * int(hit.sum()))
        text = f"The system preempted threads {counts.sum()} times, in {hit.sum()} of {len(times)} inferences; the "
        text += f"extra time of these inferences is {percent_text(of.share(longer_ns))} of all time"
        yield Finding("preemptions", of.share(longer_ns), f"{text}.")


_Rule = Callable[[_Subject], Iterator[Finding]]
_RULES: tuple[_Rule, ...] = (
    _account,
    _largest_family,
    _slow_operation,
    _kernels,
    _memory_bound,
    _longer_than_alone,
    _usual_form,
    _aborted,
    _overhead,
    _clock,
    _preemptions,
)


def _configured(plan: OperationPlan) -> str:
    """Return a configuration in words, shortened."""
    text = ", ".join(f"{name} {value}" for name, value in plan.configuration.items()) or "no parameters"
    return text if len(text) <= 60 else f"{text[:57]}..."
