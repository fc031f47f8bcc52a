"""Time launches inside persistent kernels from marks that the kernels write when each launch begins and ends.

Marks are ticks of a clock of which nothing is known but that it runs evenly. The device's own clock says when each
persistent kernel started and ended, and no mark lies outside that range. This fits a line from ticks to the device's
clock through all inferences together. From there, each inference's own line leads to the host's clock.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, replace
from typing import Any, Protocol

import numpy as np

from gputune.runtime.backends import Backend, Bound
from gputune.runtime.profiling.clocks import ClockFit, fit
from gputune.runtime.profiling.recorder import Recorder
from gputune.runtime.profiling.records import LoggedInference, MarkedInference, Times

RATES_PPB = -500_000_000, 100_000_000
"""How much less and more a tick can be than the first and the last mark say, which are late and early by what starting
and ending a kernel takes: less than half of a kernel, and of several inferences next to nothing."""


class Marked(Protocol):
    """Persistent kernels that mark their launches."""

    def ready(self) -> Sequence[Bound]:
        """Return what is to be enqueued for one inference."""

    def take(self) -> list[Times | None] | None:
        """Ticks of when the launches of each kernel began and ended, n rows of two, behind that; None in the place of a
        plain launch, and None altogether where the kernels have given up."""


class MarkedInferences:
    """Records such inferences. recorder: what an executor needs for them; those that are given up are not kept."""

    def __init__(self, backend: Backend, marked: Marked) -> None:
        self._marked = marked
        self._kept: list[tuple[LoggedInference, list[Times | None]]] = []
        self.recorder = Recorder(backend, "detailed", 0, marked.ready, lambda: "persistent", _NothingElse(), self._keep)

    def forget(self) -> None:
        """Those so far."""
        self._kept.clear()

    def of_graph(self, graph: int) -> Iterator[MarkedInference]:
        """Yield the inferences so far, of the graph at that place of the log."""
        if not self._kept:
            return
        clock = _TickClock(self._kept)
        for inference, kernels in self._kept:
            rows = [
                row[np.newaxis] if ticks is None else clock.device_ns(ticks)
                for row, ticks in zip(inference.launches, kernels, strict=True)
            ]
            assert inference.clock is not None
            host = replace(inference.clock, bound_ns=inference.clock.bound_ns + clock.bound_ns)
            values = {each.name: getattr(inference, each.name) for each in fields(inference)}
            values |= {"graph": graph, "form": "persistent", "launches": np.concatenate(rows), "clock": host}
            yield MarkedInference(**values)

    def _keep(self, inference: LoggedInference) -> None:
        if (kernels := self._marked.take()) is not None:
            self._kept.append((replace(inference, launches=inference.launches.copy()), kernels))


class _TickClock:
    """From ticks to the device's clock in ns. bound_ns: how far off that is at most."""

    def __init__(self, inferences: Sequence[tuple[LoggedInference, Sequence[Times | None]]]) -> None:
        kernels = [
            (int(ticks[0, 0]), int(ticks[-1, 1]), *row.tolist())
            for inference, own in inferences
            for row, ticks in zip(inference.launches, own, strict=True)
            if ticks is not None
        ]
        began, ended, started_ns, ended_ns = np.array(kernels, np.int64).T
        self._first, self._first_ns = int(began[0]), int(started_ns[0])
        self._tick_ns = int(ended_ns[-1] - started_ns[0]) / max(int(ended[-1] - began[0]), 1)
        not_before, not_after = (self._about(began), started_ns), (self._about(ended), ended_ns)
        self._fit: ClockFit = fit(np.stack(not_before, axis=1), np.stack(not_after, axis=1), rates_ppb=RATES_PPB)
        self.bound_ns = self._fit.bound_ns

    def device_ns(self, ticks: Times) -> Times:
        """Rows of when something began and ended; processors whose ticks differ let nothing end before it begins."""
        times: Times = np.maximum.accumulate(self._fit.to_host(self._about(ticks)), axis=1)
        return times

    def _about(self, ticks: Times) -> Times:
        """Turn ticks into ns by one rate, so that what is left for the fit is little."""
        since: Times = np.rint((ticks - self._first) * self._tick_ns).astype(np.int64)
        return since + self._first_ns


class _NothingElse:
    """What is counted of such inferences beside their times."""

    def before(self) -> None: ...
    def after(self) -> None: ...
    def results(self) -> dict[str, Any]:
        return {}
