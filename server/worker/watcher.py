"""Report to the daemon what the worker does: each step on the shared page, each conclusion over the link.

A step wakes no process. Progress is sent when a variant is finished, which is never between two samples.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Literal

from gputune.core.launches import Trial
from gputune.core.statuses import OK
from gputune.runtime.measuring.watcher import Step
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import Progress
from gputune.server.worker.heartbeat_page import HeartbeatPage

log = logging.getLogger("gputune.server.worker")

LAUNCH_FLOOR_SECONDS = 1.5  # no step that runs on the device gets less, because machines stutter
YIELDED = "others have the device between two variants"
EXPECTED_FACTOR = 3  # a step may last so many times what it should


def launch_seconds(expected_ns: float, limits: Limits) -> float:
    """Return how long a launch or a sample may take that should last expected_ns (0: nothing is known)."""
    if expected_ns <= 0:
        return limits.launch_seconds
    return min(limits.launch_seconds, max(LAUNCH_FLOOR_SECONDS, EXPECTED_FACTOR * expected_ns / 1e9))


class LinkWatcher:
    """Watch one request with variants of these numbers. Whatever goes wrong in here ends in the log, and never in the
    batch. before_failure: called before it is told that a variant has failed."""

    def __init__(
        self,
        page: HeartbeatPage,
        limits: Limits,
        send: Callable[[Progress], None],
        variants: Collection[int] = (),
        before_failure: Callable[[], None] = lambda: None,
    ) -> None:
        self._page = page
        self._limits = limits
        self._send = send
        self._variants = variants
        self._before_failure = before_failure
        self._concluded: set[int] = set()

    @property
    def cancelled(self) -> bool:
        """Return whether the daemon wants the request to be given up."""
        return self._page.cancelled

    def step(self, step: Step, variant: int | None, expected_ns: float) -> None:
        """Write the step and its limit on the page."""
        try:
            self._page.begin(step, variant, self._seconds(step, expected_ns))
        except Exception:
            log.exception("internal error while announcing %s", step)

    def verified(self, variant: int, trial: Trial) -> None:
        """Tell that a variant works."""
        self._conclude(variant, trial)

    def failed(self, variant: int, trial: Trial) -> None:
        """Tell that a variant does not work, and why."""
        try:
            self._before_failure()
        except Exception:
            log.exception("internal error before the failure of variant %d", variant)
        self._conclude(variant, trial)

    def yield_device(self) -> None:
        """Say that the request waits, and wait, if the daemon wishes so."""
        try:
            if self._page.to_yield:
                self._send(Progress("queued", len(self._concluded), len(self._variants), YIELDED))
                self._page.pause()
                self._page.begin("preparing", None, self._limits.request_seconds)
        except Exception:
            log.exception("internal error while yielding the device")

    def _seconds(self, step: Step, expected_ns: float) -> float:
        match step:
            case "building" | "starting":
                return self._limits.compile_seconds
            case "launching" | "measuring":
                return launch_seconds(expected_ns, self._limits)
            case "preparing" | "checking":
                return self._limits.request_seconds

    def _conclude(self, variant: int, trial: Trial) -> None:
        if variant not in self._variants:
            return  # a baseline is no variant of the client's
        # what fails after having worked does so while it is timed
        phase: Literal["building", "measuring"] = "measuring" if variant in self._concluded else "building"
        self._concluded.add(variant)
        message = "" if trial.status == OK else f"{trial.status}: {trial.message}".partition("\n")[0]
        done = len(self._concluded)
        try:
            self._send(Progress(phase, done, len(self._variants), message, variant, trial))
        except Exception:
            log.exception("internal error while reporting variant %d", variant)
