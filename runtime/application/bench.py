"""Measure, for applications, how long inferences of a loaded graph take."""

from __future__ import annotations

import statistics
from dataclasses import asdict, dataclass, field
from typing import Any

from gputune.runtime.application.made_up_inputs import random_inputs
from gputune.runtime.application.percentiles import in_words, inferences, percentiles_ns
from gputune.runtime.executor import Executor
from gputune.runtime.loading.in_parts import ModelInParts
from gputune.runtime.values import Values


@dataclass(frozen=True)
class Bench:
    """Hold the times of a graph's inferences, in ns of the host's clock, from before the first input is written until
    the last output is read. percentiles_ns: p50, p90, p99 and p99.9; times_ns: each time that counts, in order."""

    graph: str
    device: str
    warmup: int
    inferences: int
    median_ns: float
    percentiles_ns: dict[str, float]
    times_ns: tuple[int, ...] = field(repr=False)

    def __str__(self) -> str:
        return (
            f"{inferences(self.inferences)} of {self.graph} on {self.device}: "
            f"{in_words(self.percentiles_ns, self.inferences)}"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self) | {"times_ns": list(self.times_ns)}


def bench(executor: Executor | ModelInParts, inputs: Values | None, warmup: int, inferences: int) -> Bench:
    """Run a graph `warmup` times, then `inferences` times, on random inputs if none are given. Raises ValueError for no
    inferences, and for inputs that do not fit; DeviceError."""
    if inferences < 1 or warmup < 0:
        raise ValueError(f"inferences is {inferences} and warmup {warmup}; they must be at least 1 and 0")
    given = random_inputs(executor.graph.inputs) if inputs is None else inputs
    for _ in range(warmup):
        executor.run(given)
    times_ns = tuple(executor.run_timed(given)[1] for _ in range(inferences))
    return Bench(
        graph=executor.graph.name,
        device=executor.device.name,
        warmup=warmup,
        inferences=inferences,
        median_ns=statistics.median(times_ns),
        percentiles_ns=percentiles_ns(times_ns),
        times_ns=times_ns,
    )
