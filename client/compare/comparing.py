"""Compare contexts and engines in rounds, until it is certain which is faster.

In each round, every contender opens its model anew, and all run in short turns, forward and then back. A machine that
slows down meanwhile therefore slows all of them alike.

Two openings of equal contexts differ by several per cent for as long as they last. The causes are where their memory
lies and what they learned from their first inferences. Two processes differ in the same way. Contexts therefore share a
process, each round opens them anew, and the ratios of rounds are independent samples. You can call `gain_of` after
every round to see whether the ratios show a difference.
"""

from __future__ import annotations

import logging
import math
import os
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gputune.client.compare.engines import Arrays, plain_array
from gputune.client.compare.turns import Contender, Process, ProcessEnded
from gputune.client.context.verifying.distance import distance
from gputune.client.errors import ConfigError, DeviceOrContextError
from gputune.client.progress import Progress
from gputune.client.tuning.measuring.quiet import Quiet
from gputune.client.tuning.measuring.sequential import SURE, Gain, gain_of
from gputune.core.dtypes import FLOAT
from gputune.runtime.devices import load
from gputune.runtime.measuring.successive_halving import paired

log = logging.getLogger(__name__)

TUNED, UNTUNED = "tuned", "untuned"
OTHERS = {"onnxruntime": "onnxruntime", "OpenVINO": "openvino"}
"""Other engines, which all run on the CPU, and the module of each; both names are those of engines.ENGINES in lower
case."""
TURN_S = 0.025
"""The length of a turn. Next to other programs a machine changes its speed within tenths of a second."""
PASSES, PASS_S = 4, 1.0
"""How often turns go there and back in a round; once if that takes longer."""
RESTARTS = 3
"""So often a process of contenders that has ended is started again: some drivers crash now and then."""
CLOSE = 1.1
"""A difference that is certain is known closely enough once its interval's ends differ by this factor at most."""
SECONDS = 60.0
"""The longest time of a comparison, unless you give another."""

Round = Callable[[Sequence[str]], Mapping[str, float]]
"""Runs one round of the named contenders; returns the time of an inference of each, in ns."""


@dataclass(frozen=True)
class Measured:
    """A contender. rounds_ns: what its inferences took in each round; gain: how many times as fast the tuned context
    is, None for that one itself; time_ns: what an inference takes, so that ratios of times are the gains told;
    deviation: how far its outputs are from the tuned context's, by their largest value, None where nothing is
    computed."""

    name: str
    rounds_ns: tuple[float, ...] = field(repr=False)
    gain: Gain | None
    time_ns: float
    deviation: float | None

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "name": self.name,
            "time_ns": self.time_ns,
            "tuned_times_as_fast": None if self.gain is None else self.gain.to_dict(),
            "deviation": self.deviation,
            "rounds_ns": list(self.rounds_ns),
        }


@dataclass(frozen=True)
class Comparison:
    """What a comparison has found; the first contender is the tuned context. device: where contexts ran; threads: of
    the other engines, which run on the CPU; seconds: what the rounds took; load: how busy this machine was, as
    LoadRecord says it; precision_mode: of the tuned context."""

    model: str
    device: str
    threads: int
    seconds: float
    load: Mapping[str, Any] = field(repr=False)
    contenders: tuple[Measured, ...]
    precision_mode: str = FLOAT

    @property
    def tuned(self) -> Measured:
        return self.contenders[0]

    @property
    def others(self) -> tuple[Measured, ...]:
        return self.contenders[1:]

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "model": self.model,
            "device": self.device,
            "threads": self.threads,
            "seconds": self.seconds,
            "load": dict(self.load),
            "rounds": len(self.tuned.rounds_ns),
            "sure": SURE,
            "contenders": [each.to_dict() for each in self.contenders],
        }


def is_known(gain: Gain) -> bool:
    """Return whether more rounds would tell nothing that matters."""
    return gain.settled or (gain.certain and gain.high <= CLOSE * gain.low)


def take_turns(
    tuned: str,
    others: Sequence[str],
    run: Round,
    late: Callable[[], bool],
    known: Callable[[Gain], bool] = is_known,
) -> dict[str, tuple[float, ...]]:
    """By contender, the times of its rounds: round after round, until for each of the others it is known how fast the
    tuned one is beside it, or until it is late. A known contender takes no part any more."""
    times: dict[str, list[float]] = {name: [] for name in (tuned, *others)}
    open_ones = list(others)
    while open_ones and not late():
        for name, time_ns in run([tuned, *open_ones]).items():
            times[name].append(time_ns)
        gains = gains_of(tuned, times)
        open_ones = [name for name in open_ones if not known(gains[name])]
    return {name: tuple(own) for name, own in times.items()}


def gains_of(tuned: str, times: Mapping[str, Sequence[float]]) -> dict[str, Gain]:
    """How many times as fast the tuned context is as each other contender, so that all intervals together hold with
    SURE."""
    others = [name for name in times if name != tuned]
    sure = 1 - (1 - SURE) / max(1, len(others))
    return {name: gain_of(paired(times[name], times[tuned]), sure) for name in others}


def compare(
    model: Path,
    tuned: Path,
    untuned: Path,
    device: str | None,
    seconds: float,
    progress: Progress,
    wait_for_quiet: int | None = None,
    constants: Arrays | None = None,
) -> Comparison:
    """Runs both contexts of a model on a device, and the model in each engine that is installed and can run it, on the
    same random inputs, for at most so many seconds and a round. wait_for_quiet: the minutes to wait before at most, if
    other programs keep this machine busy. constants: inputs of the model that contexts do not have. Raises
    DeviceOrContextError for contexts that do not run, ConfigError for such of which one is not of the model."""
    with ExitStack() as stack:
        process = stack.enter_context(Process())
        contexts = [
            Contender(name, process, "context", {"context": str(path), "device": device})
            for name, path in ((TUNED, tuned), (UNTUNED, untuned))
        ]
        facts, other = (each.facts for each in contexts)
        for warning in dict.fromkeys([*facts["warnings"], *other["warnings"]]):
            log.warning(warning)
        if not facts["computes"]:
            log.warning("the device computes nothing: its times come from a model and cannot be compared")
        if facts["inputs"] != other["inputs"]:
            raise ConfigError(
                f"--retrieve_context: {tuned} takes {_shapes(facts)}, but {model} takes {_shapes(other)}; give the "
                "model of that context, its shapes with --input_dimensions, and constant inputs with --input_value"
            )
        threads = facts["threads"] or len(os.sched_getaffinity(0))
        plain = {name: plain_array(value) for name, value in (constants or {}).items()}
        arguments = {"model": str(model), "inputs": facts["inputs"], "threads": threads, "constants": plain}
        contenders = [*contexts, *_others(stack, arguments)]
        quiet = Quiet([load.read] if facts["computes"] else (), progress, wait_for_quiet)
        quiet.settle()
        for each in contenders:
            each.heard = quiet.record.hear_batch
        began_s = time.monotonic()
        rounds_ns = rounds_of(contenders, seconds, progress)
        took_s = time.monotonic() - began_s
        deviations = _deviations(contenders) if facts["computes"] else {}
    gains = gains_of(TUNED, rounds_ns)
    untuned_ns = statistics.median(rounds_ns[UNTUNED])
    tuned_ns = untuned_ns / gains[UNTUNED].median
    measured = [Measured(TUNED, rounds_ns[TUNED], None, tuned_ns, None)]
    for name, gain in gains.items():
        measured.append(Measured(name, rounds_ns[name], gain, tuned_ns * gain.median, deviations.get(name)))
    load_record, mode = quiet.record.to_dict(), facts["precision_mode"]
    return Comparison(model.name, facts["device"], threads, took_s, load_record, tuple(measured), mode)


def rounds_of(
    contenders: Sequence[Contender], seconds: float, progress: Progress, *, whole: bool = False
) -> dict[str, tuple[float, ...]]:
    """By contender, what its inferences took in each round, in ns; the first one is the tuned context. whole: go on for
    all of the seconds, whatever is known. Raises DeviceOrContextError."""
    by_name, order = {each.name: each for each in contenders}, random.Random(0)
    began_s = time.monotonic()
    rounds = told_s = restarts = 0

    def run(names: Sequence[str]) -> dict[str, float]:
        nonlocal rounds, told_s, restarts
        # In an order that is drawn, so that of two equal contenders either one looks faster as a fair coin falls.
        drawn = [by_name[name] for name in order.sample(names, len(names))]
        while True:
            try:
                found = _round(drawn)
                break
            except ProcessEnded as error:
                restarts += 1
                if restarts > RESTARTS:
                    raise
                log.warning(f"{error}; it is started again, and the round is repeated")
        rounds, before_s = rounds + 1, told_s
        told_s = min(math.ceil(seconds), int(time.monotonic() - began_s))
        progress.advance(told_s - before_s, f"round {rounds}, {', '.join(names)}")
        return found

    def late() -> bool:
        return rounds > 0 and time.monotonic() - began_s >= seconds

    with progress.running("comparing, seconds", math.ceil(seconds), seconds):
        first, *others = by_name
        return take_turns(first, others, run, late, (lambda gain: False) if whole else is_known)


def _others(stack: ExitStack, arguments: dict[str, Any]) -> list[Contender]:
    """Those that are installed and can run the model."""
    found = []
    for name, module in OTHERS.items():
        if find_spec(module) is None:
            log.info(f"{name} is not installed; `pip install {module}` adds it to the comparison")
            continue
        try:
            found.append(Contender(name, stack.enter_context(Process()), module, arguments))
        except DeviceOrContextError as error:
            log.warning(f"{error}; it is left out of the comparison")
    return found


def _round(contenders: Sequence[Contender]) -> dict[str, float]:
    """Return the time of an inference of each: the median over all its turns."""
    for contender in contenders:
        contender.open_again()
    samples_ns: dict[str, list[float]] = {each.name: [] for each in contenders}
    began_s = time.monotonic()
    for _ in range(PASSES):
        for contender in [*contenders, *reversed(contenders)]:
            samples_ns[contender.name] += contender.block_ns(TURN_S)
        if time.monotonic() - began_s > PASS_S:
            break
    return {name: statistics.median(own) for name, own in samples_ns.items()}


def _deviations(contenders: Sequence[Contender]) -> dict[str, float]:
    """Of all but the first, over the outputs of the model, which may be fewer than those of a context."""
    mine = contenders[0].outputs()
    return {
        each.name: max(distance(mine[name], array) for name, array in outputs.items() if name in mine)
        for each in contenders[1:]
        if (outputs := each.outputs()).keys() & mine.keys()
    }


def _shapes(facts: dict[str, Any]) -> str:
    return ", ".join(f"{one['name']} {one['dtype']}{one['shape']}" for one in facts["inputs"]) or "no inputs"
