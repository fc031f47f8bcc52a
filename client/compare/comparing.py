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
from gputune.client.context.verifying.distance import ALLOWED, Compared, distance, told
from gputune.client.context.verifying.origin import Origin
from gputune.client.context.verifying.same_model import (
    Outputs,
    check_interface,
    compare_outputs,
    model_outputs,
    optimised_outputs,
)
from gputune.client.errors import ConfigError, DeviceOrContextError, OtherModel
from gputune.client.progress import Progress
from gputune.client.tuning.measuring.quiet import Quiet
from gputune.client.tuning.measuring.sequential import SURE, Gain, gain_of
from gputune.core.dtypes import FLOAT
from gputune.runtime.application.made_up_inputs import telling_draw
from gputune.runtime.context import records
from gputune.runtime.context.records import GraphRecord, TensorRecord, Tuning
from gputune.runtime.devices import load
from gputune.runtime.measuring.successive_halving import paired

log = logging.getLogger(__name__)

TUNED, UNTUNED = "tuned", "untuned"
CONTEXT = "context"
"""The name of the first contender in its process; a comparison calls it tuned or untuned, as the context says."""
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
ORACLE = "onnxruntime without optimizations"

Round = Callable[[Sequence[str]], Mapping[str, float]]
"""Runs one round of the named contenders; returns the time of an inference of each, in ns."""


@dataclass(frozen=True)
class Measured:
    """A contender. rounds_ns: what its inferences took in each round; gain: how many times as fast the first contender
    is, None for that one itself; time_ns: what an inference takes, so that ratios of times are the gains told;
    deviation: how far its outputs are from the first contender's, by their largest value, None where nothing is
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
class Entries:
    """Hold what onnxruntime ran a quantised model with. told: entries of its configuration; deviation: how far its
    outputs without them are from those with them, by their largest value."""

    told: Mapping[str, str]
    deviation: float

    @property
    def line(self) -> str:
        """Return it for people."""
        entries = ", ".join(f"{name}={value}" for name, value in self.told.items())
        off = f"by default its outputs differ by {self.deviation:.2g} of their largest value"
        advice = "" if self.deviation <= ALLOWED else ": set this wherever onnxruntime runs the model"
        return f"onnxruntime ran with {entries}; {off}{advice}"

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {"entries": dict(self.told), "default_deviation": self.deviation}


@dataclass(frozen=True)
class Comparison:
    """Hold the result of a comparison; the first contender is the context. device: where contexts ran; threads: of the
    other engines, which run on the CPU; seconds: what the rounds took; load: how busy this machine was, as LoadRecord
    says it; precision_mode, tuning: of the context; outputs: what comparing the context's outputs with those of the
    model has shown, by their names, None where nothing else computes the model; reference: what they were compared
    with; entries: with which onnxruntime ran, None for a model that is not quantised."""

    model: str
    device: str
    threads: int
    seconds: float
    load: Mapping[str, Any] = field(repr=False)
    contenders: tuple[Measured, ...]
    precision_mode: str = FLOAT
    tuning: Tuning = "tuned"
    outputs: Mapping[str, Compared] | None = None
    reference: str = ""
    entries: Entries | None = None

    @property
    def context(self) -> Measured:
        return self.contenders[0]

    @property
    def untuned(self) -> Measured | None:
        """Return the untuned twin of a context that is tuned."""
        return next((one for one in self.others if one.name == UNTUNED), None)

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
            "rounds": len(self.context.rounds_ns),
            "sure": SURE,
            "tuning": self.tuning,
            "reference": self.reference or None,
            "outputs": None if self.outputs is None else told(self.outputs),
            "onnxruntime": None if self.entries is None else self.entries.to_dict(),
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
    tuned one is beside it, or until it is late. A known contender takes no part any more. Without others there is one
    round."""
    times: dict[str, list[float]] = {name: [] for name in (tuned, *others)}
    open_ones = list(others)
    while (open_ones or not (others or times[tuned])) and not late():
        for name, time_ns in run([tuned, *open_ones]).items():
            times[name].append(time_ns)
        gains = gains_of(tuned, times)
        open_ones = [name for name in open_ones if not known(gains[name])]
    return {name: tuple(own) for name, own in times.items()}


def gains_of(tuned: str, times: Mapping[str, Sequence[float]]) -> dict[str, Gain]:
    """Return how many times as fast the tuned context is as each other contender, so that all intervals together hold
    with SURE."""
    others = [name for name in times if name != tuned]
    sure = 1 - (1 - SURE) / max(1, len(others))
    return {name: gain_of(paired(times[name], times[tuned]), sure) for name in others}


def compare(
    origin: Origin,
    untuned: Callable[[], Path],
    device: str | None,
    seconds: float,
    progress: Progress,
    wait_for_quiet: int | None = None,
    constants: Arrays | None = None,
    shapes: Mapping[str, tuple[int, ...]] | None = None,
) -> Comparison:
    """Run a context of a model on a device, its untuned twin unless it is untuned itself, and the model in each engine
    that is installed and can run it, on the same random inputs, for at most so many seconds and a round. untuned: makes
    the twin. wait_for_quiet: the minutes to wait before at most, if other programs keep this machine busy. constants:
    inputs of the model that contexts do not have; shapes: of its other inputs, as they were asked for. Raises
    DeviceOrContextError for contexts that do not run, OtherModel for a context with other inputs or outputs; what
    `untuned` raises."""
    context, model = origin.context, origin.model
    with ExitStack() as stack:
        process = stack.enter_context(Process())
        first = Contender(CONTEXT, process, "context", {"context": str(context), "device": device})
        facts, contenders = first.facts, [first]
        check_interface(
            origin, GraphRecord(facts["graph"], _tensors(facts["inputs"]), _tensors(facts["outputs"]), (), ())
        )
        if shapes is not None and (taken := {one["name"]: tuple(one["shape"]) for one in facts["inputs"]}) != shapes:
            raise OtherModel(
                f"--retrieve_context: {context} takes {_shapes(taken)}, but {model} takes {_shapes(shapes)}; give the "
                "model of that context, its shapes with --input_dimensions, and constant inputs with --input_value"
            )
        if facts["tuning"] not in records.UNTUNED:
            twin = {"context": str(untuned()), "device": device}
            contenders.append(Contender(UNTUNED, process, "context", twin))
        for warning in dict.fromkeys(text for each in contenders for text in each.facts["warnings"]):
            log.warning(warning)
        if not facts["computes"]:
            log.warning("the device computes nothing: its times come from a model and cannot be compared")
        threads = facts["threads"] or len(os.sched_getaffinity(0))
        plain = {name: plain_array(value) for name, value in (constants or {}).items()}
        arguments = {"model": str(model), "inputs": facts["inputs"], "threads": threads, "constants": plain}
        contenders += _others(stack, arguments)
        quiet = Quiet([load.read] if facts["computes"] else (), progress, wait_for_quiet)
        quiet.settle()
        for each in contenders:
            each.heard = quiet.record.hear_batch
        began_s = time.monotonic()
        rounds_ns = rounds_of(contenders, seconds, progress)
        took_s = time.monotonic() - began_s
        reference, outputs, deviations, entries = "", None, dict[str, float](), None
        if facts["computes"]:
            reference, right = _reference(model, facts["inputs"], constants, contenders)
            if right is not None:
                asked = model, _tensors(facts["inputs"]), constants or {}
                optimised = optimised_outputs(*asked) if reference == ORACLE else None
                outputs = compare_outputs(origin, first.outputs, right, facts["steps"], optimised)
            draw = 0 if right is None else telling_draw(right)
            deviations = _deviations(contenders, draw, facts["steps"])
            entries = _entries(contenders, draw) if facts["quantised"] else None
    first_name = UNTUNED if facts["tuning"] in records.UNTUNED else TUNED
    return Comparison(
        model=model.name,
        device=facts["device"],
        threads=threads,
        seconds=took_s,
        load=quiet.record.to_dict(),
        contenders=_measured(first_name, rounds_ns, deviations),
        precision_mode=facts["precision_mode"],
        tuning=facts["tuning"],
        outputs=outputs,
        reference=reference,
        entries=entries,
    )


def _measured(
    first: str, rounds_ns: Mapping[str, Sequence[float]], deviations: Mapping[str, float]
) -> tuple[Measured, ...]:
    """Return what the rounds have shown of each contender. first: what the context is called."""
    gains = gains_of(CONTEXT, rounds_ns)
    context_ns = statistics.median(rounds_ns[CONTEXT])
    if UNTUNED in gains:
        context_ns = statistics.median(rounds_ns[UNTUNED]) / gains[UNTUNED].median
    found = [Measured(first, tuple(rounds_ns[CONTEXT]), None, context_ns, None)]
    for name, gain in gains.items():
        found.append(Measured(name, tuple(rounds_ns[name]), gain, context_ns * gain.median, deviations.get(name)))
    return tuple(found)


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
    """Return those that are installed and can run the model."""
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


def _reference(
    model: Path, inputs: Sequence[Mapping[str, Any]], constants: Arrays | None, contenders: Sequence[Contender]
) -> tuple[str, Outputs | None]:
    """Return what knows the right outputs: onnxruntime without optimizations as for --verify, else the next contender,
    with its name; None if there is none."""
    try:
        return ORACLE, model_outputs(model, _tensors(inputs), constants or {})
    except ConfigError as error:
        log.debug(str(error))
        return next(((each.name, each.outputs) for each in contenders[1:]), ("", None))


def _deviations(contenders: Sequence[Contender], draw: int, steps: Mapping[str, float]) -> dict[str, float]:
    """Of all but the first, over the outputs of the model, which may be fewer than those of a context."""
    mine = contenders[0].outputs(draw)

    def off(name: str, array: Any) -> float:
        return distance(mine[name], array, steps.get(name, 0.0))

    return {
        each.name: max(off(name, array) for name, array in outputs.items() if name in mine)
        for each in contenders[1:]
        if (outputs := each.outputs(draw)).keys() & mine.keys()
    }


def _entries(contenders: Sequence[Contender], draw: int) -> Entries | None:
    """Return with which entries onnxruntime ran, and whether that matters here; None if it did not run."""
    own = next((each for each in contenders if "entries" in each.facts), None)
    if own is None:
        return None
    outputs, default = own.outputs(draw), own.beside(f"{own.name} by default", entries={}).outputs(draw)
    off = (distance(array.astype(float), outputs[name].astype(float)) for name, array in default.items())
    return Entries(own.facts["entries"], max(off))


def _tensors(told: Sequence[Mapping[str, Any]]) -> tuple[TensorRecord, ...]:
    return tuple(TensorRecord(one["name"], tuple(one["shape"]), one["dtype"]) for one in told)


def _shapes(tensors: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name} {list(shape)}" for name, shape in tensors.items()) or "no inputs"
