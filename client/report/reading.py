"""Read what a trial records besides its time.

How it was measured is free-form JSON from a disk. Any field may be missing or malformed, and is then treated as
missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from gputune.cache import TrialRecord
from gputune.client.report.data import PHASES
from gputune.core.json_text import finite_number
from gputune.core.resources import Resources, resources_in

SHORTEST_NS, LONGEST_NS = 1e-3, 1e18
"""Times beyond these are no launch's, and would spoil every scale."""

STOPPED = {
    "settled": "settled the order",
    "all": "took all samples allowed",
    "slower": "eliminated as too slow",
}
"""Why the samples of a trial ended, in words."""


def believable(trial: TrialRecord) -> bool:
    """Return whether a trial's times can be those of a launch."""
    return all(SHORTEST_NS <= time_ns <= LONGEST_NS for time_ns in (*trial.samples_ns, trial.median_ns or 1.0))


def drift_of(trial: TrialRecord) -> float:
    """By how much slower the device was when this was measured; 1 where nothing is known of that."""
    drift = finite_number(trial.measured.get("drift"))
    return drift if drift is not None and 1e-6 < drift < 1e6 else 1.0


def batch_of(trial: TrialRecord) -> int | None:
    """Return the running number of the batch that it was in; None where that is not said."""
    batch = trial.measured.get("batch")
    return batch if type(batch) is int and 0 <= batch < 2**31 else None


def spent_of(trial: TrialRecord) -> dict[str, float]:
    """Return the host's nanoseconds for it by phase, empty where they are not known. What older records say of building
    is not all that they have cost, and is left out."""
    spent = trial.measured.get("spent_ns")
    if not isinstance(spent, Mapping):
        return {}
    known = {phase: finite_number(spent.get(phase)) for phase in PHASES}
    return {phase: time_ns for phase, time_ns in known.items() if time_ns is not None and time_ns <= LONGEST_NS}


def resources_of(trial: TrialRecord) -> Resources:
    """Return the most that any of its kernels takes of each resource."""
    kernels = [kernel.known for kernel in resources_in(trial.measured)]
    return Resources(**{name: max(kernel.get(name, 0) for kernel in kernels) for name in set().union(*kernels)})


def how_measured(trials: Sequence[TrialRecord], settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return how the samples of a task were taken, a line each."""
    timed = [trial for trial in trials if trial.samples_ns]
    if not timed:
        return ()
    lines = [_sampling(timed)]
    stopped = Counter(str(trial.measured["stopped"]) for trial in timed if "stopped" in trial.measured)
    lines += [f"{count} {STOPPED.get(why, f'ended their samples as {why!r}')}" for why, count in stopped.most_common()]
    if same := sum("same_as" in trial.measured for trial in timed):
        lines.append(f"{same} have the same code as another variant in their batch, and share its samples")
    drifts = sorted({drift_of(trial) for trial in timed})
    if drifts != [1.0]:
        changes = " to ".join(dict.fromkeys(f"{100 * (drift - 1):+.1f} %" for drift in (drifts[0], drifts[-1])))
        lines.append(f"by the baseline in each batch, the device became slower by {changes}; the ranking corrects that")
    if settings:
        lines.append("settings: " + ", ".join(f"{name}={value}" for name, value in sorted(settings.items())))
    return tuple(lines)


def _sampling(timed: Sequence[TrialRecord]) -> str:
    counts = sorted(len(trial.samples_ns) for trial in timed)
    samples = f"{counts[0]} to {counts[-1]}" if counts[0] < counts[-1] else str(counts[0])
    parts = [f"{'/'.join(_said(timed, 'timing'))} time" if _said(timed, "timing") else "", f"{samples} samples"]
    for name, text in (("sample_ns", "of at least {} ms"), ("warm_up_ns", "after {} ms of warm-up")):
        numbers = sorted({found for trial in timed if (found := finite_number(trial.measured.get(name)))})
        if numbers:
            parts.append(
                text.format("–".join(f"{found / 1e6:g}" for found in dict.fromkeys((numbers[0], numbers[-1]))))
            )
    cold = {trial.measured["cold"] for trial in timed if isinstance(trial.measured.get("cold"), bool)}
    if cold:
        parts.append("caches " + " and ".join("cold" if one else "warm" for one in sorted(cold)))
    evicting = {found for trial in timed if (found := finite_number(trial.measured.get("evict_bytes")))}
    if evicting:
        parts.append(f"with {max(evicting) / 2**20:g} MiB of other data before each launch")
    if protocols := _said(timed, "protocol"):
        parts.append(f"measuring protocol {'/'.join(protocols)}")
    return ", ".join(filter(None, parts)).replace("samples, of", "samples of")


def _said(trials: Sequence[TrialRecord], name: str) -> list[str]:
    """Return the different short values of a field."""
    values = (trial.measured.get(name) for trial in trials)
    return sorted({str(value) for value in values if isinstance(value, str | int) and len(str(value)) < 40})
