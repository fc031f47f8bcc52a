"""Find which devices of a tier are equally fast, from health checks and from the default that each batch measures."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Collection

from gputune.client.farm.hosts.health import FAR, IN_A_ROW, Speed, deviation
from gputune.core.batches import Profiled, ProfileKernel
from gputune.core.statuses import OK

HEALTH_CHECK, DEFAULT = "its health check", "the default of a batch"
FEWEST_SAMPLES = 3


class Twins:
    """Keep what was measured on the devices of one tier. Any thread may call it."""

    def __init__(self) -> None:
        self._latest: dict[str, dict[str, Speed]] = {}
        self._far: Counter[tuple[str, str]] = Counter()
        self._lock = threading.Lock()

    def hear(self, device: str, kind: str, what: str, speed: Speed, others: Collection[str]) -> str:
        """Take in a measurement, unless it is known by its number. Returns why the device is to be set apart now, empty
        where it is not. kind: HEALTH_CHECK or DEFAULT, each of which is counted by itself; what: the same where devices
        have measured the same; others: the devices that are its twins now. Where none of them has measured that,
        nothing follows."""
        with self._lock:
            known = self._latest.setdefault(f"{kind}: {what}", {})
            if device in known and known[device].number == speed.number:
                return ""
            known[device] = speed
            twins = [known[name] for name in others if name in known and name != device]
            if not twins:
                return ""
            off = deviation(speed, twins)
            self._far[device, kind] = self._far[device, kind] + 1 if off else 0
            if self._far[device, kind] < IN_A_ROW:
                return ""
            self._far[device, kind] = 0
        more = "more" if off > 0 else "less"
        told = f"{kind} takes {abs(off):.0%} {more} time than on its twins, {IN_A_ROW} times in a row"
        return f"{told}; up to {FAR:.0%} is normal"


def default_of(request: ProfileKernel, reply: Profiled, number: int) -> tuple[str, Speed] | None:
    """Return what a batch has measured its default by, and that; None where too little of it was. number: of the
    batch."""
    baseline, trial = request.baseline, reply.baseline
    if baseline is None or trial is None or trial.status != OK or len(trial.samples_ns) < FEWEST_SAMPLES:
        return None
    if min(trial.samples_ns) <= 0:
        return None
    configuration = ",".join(f"{name}={value}" for name, value in sorted(baseline.configuration.items()))
    return f"{request.task} {configuration} {request.cold}", Speed.of(number, trial.samples_ns)
