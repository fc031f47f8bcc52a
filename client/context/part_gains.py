"""Weigh what the parts of a model gain: on the device, with all that they hand over, against onnxruntime.

A part and its nodes in onnxruntime take turns on made-up inputs, so that drift affects both alike. Only a target on
this machine can say so. For any other, the rules by which models are cut are all there is: they compare what a part
does with what it hands over.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from gputune.client.context.choice import Decision
from gputune.client.context.context_runner import TURN_NS, ContextRunner
from gputune.client.errors import ConfigError, ModelError, TuningError
from gputune.client.model.parts import Cut, Part, alone, host_session
from gputune.client.target.client import TargetClient
from gputune.client.target.status import state_of
from gputune.runtime.application.made_up_inputs import random_inputs
from gputune.runtime.context.records import TensorRecord
from gputune.runtime.devices.load import CLOCK

log = logging.getLogger(__name__)

ROUNDS = 8
OLD_SECONDS = 1.0
"""A target says its state of so long ago, at most."""
MOST_RUNS = 24
"""In a turn of onnxruntime, which takes as long as one of the device."""
WAIT_NS = 20_000
"""What a part adds to an inference of onnxruntime beside its own time, as `scripts/bench sessions` measured it."""
NOT_MEASURED = (
    "what parts gain is estimated from what they do and hand over: it is measured if tuning compares contexts on a "
    "target on this machine"
)
FASTER_THERE = "onnxruntime was measured to be faster at their parts"


@dataclass(frozen=True)
class PartTimes:
    """What a part takes on the device and in onnxruntime, in nanoseconds. ratio: of the turns, the median."""

    device_ns: float
    host_ns: float
    ratio: float

    @property
    def gains(self) -> bool:
        """Return whether the device is not slower."""
        return self.ratio <= 1.0

    def line(self, name: str) -> str:
        """Return it for people. name: of the part."""
        took = f"{self.device_ns / 1e6:.3f} ms on the device, {self.host_ns / 1e6:.3f} ms in onnxruntime"
        return f"part {name}: {took}" + ("" if self.gains else "; its nodes stay in onnxruntime")


def worthwhile(
    cuts: Sequence[Cut],
    decisions: Sequence[Decision],
    client: TargetClient,
    runner: Callable[[], ContextRunner],
    measures: bool,
) -> tuple[Sequence[Cut], Sequence[Decision]]:
    """Return the cuts, and the decisions on their parts, without parts that take longer on the device than their nodes
    in onnxruntime, and log what each takes.

    measures: whether anything may be measured. Raises GputuneError for what a target cannot do any more, ContextError,
    OSError.
    """
    weighable = list(_weighable(cuts))
    if weighable and not (measures and is_here(client)):
        log.info(NOT_MEASURED)
        return cuts, decisions
    of_parts = {one.plan.name: one for one in decisions}
    found = [(cut, part, of_parts[part.graph.name]) for cut, part in weighable]
    losers = {part.graph.name for cut, part, one in found if _loses(cut, part, one, client, runner)}
    kept = [one for one in decisions if one.plan.name not in losers]
    return [cut.without(losers, FASTER_THERE) for cut in cuts], kept


def _loses(cut: Cut, part: Part, decision: Decision, client: TargetClient, runner: Callable[[], ContextRunner]) -> bool:
    """Return whether onnxruntime is faster at a part; not if that cannot be known."""
    name = part.graph.name
    try:
        if (model := alone(cut, part)) is None:
            raise ModelError("its nodes need more of the model to run in onnxruntime")
        session = host_session(model, cut.imported.path, client.device.get("device_type") != "cpu")
        with runner() as running:
            times = _times(running, decision, _Host(session, part))
    except (ConfigError, ModelError, TuningError) as error:
        log.info(f"part {name}: its gain was not measured: {error}")
        return False
    log.info(times.line(name))
    return not times.gains


def is_here(client: TargetClient) -> bool:
    """Return whether a target runs on this machine: no other has the same time since it was started. Raises
    TargetError."""
    before = time.monotonic()
    theirs = state_of(client).get(CLOCK)
    return isinstance(theirs, int | float) and before - OLD_SECONDS <= theirs <= time.monotonic() + OLD_SECONDS


def _weighable(cuts: Sequence[Cut]) -> Iterator[tuple[Cut, Part]]:
    """Yield each part with the model or branch that it is of, but for models that run wholly on the device."""
    for cut in cuts:
        if not cut.is_whole:
            yield from ((scope, part) for scope in cut.scopes for part in scope.own)


def _times(running: ContextRunner, decision: Decision, host: _Host) -> PartTimes:
    context = running.load(decision.plan, decision.outcomes, decision.persistent)
    host.run()
    pairs = [(running.round_ns([context])[0] + WAIT_NS, host.turn_ns()) for _ in range(ROUNDS)]
    device_ns, host_ns = (median(times) for times in zip(*pairs, strict=True))
    return PartTimes(device_ns, host_ns, median(device / host for device, host in pairs))


class _Host:
    """Runs the nodes of a part in onnxruntime. name: the part's."""

    def __init__(self, session: Any, part: Part) -> None:
        self._session = session
        self.name, graph = part.graph.name, part.graph
        tensors = (TensorRecord(name, graph.shape(name), graph.stored(name)) for name in graph.inputs)
        self._inputs = random_inputs(tensors)

    def run(self) -> int:
        """Return the ns that a run takes. Raises ModelError."""
        begun_ns = time.perf_counter_ns()
        try:
            self._session.run(None, self._inputs)
        except Exception as error:  # onnxruntime's errors have no class of their own
            raise ModelError(f"onnxruntime cannot run it on made-up inputs: {error}") from error
        return time.perf_counter_ns() - begun_ns

    def turn_ns(self) -> float:
        """Return the lower quartile of a turn."""
        first = self.run()
        runs = sorted(self.run() for _ in range(min(max(2, int(TURN_NS / first)), MOST_RUNS)))
        return float(runs[len(runs) // 4])
