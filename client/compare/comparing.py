"""A comparison in rounds: in each round every contender runs for a block, and ratios are those of the same rounds."""

from __future__ import annotations

import logging
import os
import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gputune.client.compare.turns import Contender
from gputune.client.context.verifying.distance import distance
from gputune.client.errors import ConfigError, DeviceOrContextError
from gputune.client.progress import Progress
from gputune.client.tuning.measuring.intervals import Interval, median_interval, paired_interval
from gputune.runtime.measuring.successive_halving import paired

log = logging.getLogger(__name__)

TUNED, UNTUNED = "tuned", "untuned"
OTHERS = {"onnxruntime": "onnxruntime", "OpenVINO": "openvino"}
"""Other engines, which all run on the CPU, and the module of each; both names are those of engines.ENGINES in lower
case."""
BLOCK_S = 0.25
"""What a contender has of a round."""
LEAST_ROUNDS = 6
"""With fewer there is no interval of 95 % by order statistics."""


@dataclass(frozen=True)
class Measured:
    """A contender. rounds_ns: the median of its inferences in each round, deviation: how far its outputs are from the
    tuned context's, by their largest value, None where nothing is computed."""

    name: str
    rounds_ns: tuple[float, ...] = field(repr=False)
    deviation: float | None

    @property
    def median_ns(self) -> float:
        return statistics.median(self.rounds_ns)

    @property
    def interval_ns(self) -> Interval:
        """Of 95 %, where the median lies."""
        return median_interval(self.rounds_ns)


@dataclass(frozen=True)
class Speed:
    """How many times as fast the tuned context is as another contender: the median of the rounds' ratios and its 95 %
    interval."""

    median: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """What a comparison has found; the first contender is the tuned context. device: where contexts ran; threads: of
    the other engines, which run on the CPU."""

    model: str
    device: str
    threads: int
    contenders: tuple[Measured, ...]

    @property
    def tuned(self) -> Measured:
        return self.contenders[0]

    def speed(self, other: Measured) -> Speed:
        """The tuned context beside another contender."""
        over, under = other.rounds_ns, self.tuned.rounds_ns
        interval = paired_interval(over, under)
        return Speed(statistics.median(paired(over, under)), interval.low, interval.high)

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return {
            "model": self.model,
            "device": self.device,
            "threads": self.threads,
            "rounds": len(self.tuned.rounds_ns),
            "contenders": [self._facts(each) for each in self.contenders],
        }

    def _facts(self, one: Measured) -> dict[str, Any]:
        interval = one.interval_ns
        return asdict(one) | {
            "rounds_ns": list(one.rounds_ns),
            "median_ns": one.median_ns,
            "interval_ns": [interval.low, interval.high],
            "tuned_times_as_fast": None if one is self.tuned else asdict(self.speed(one)),
        }


def compare(model: Path, tuned: Path, untuned: Path, device: str | None, rounds: int, progress: Progress) -> Comparison:
    """Runs both contexts of a model on a device, and the model in each engine that is installed and can run it, on the
    same random inputs. Raises DeviceOrContextError for contexts that do not run, ConfigError for such of which one is
    not of the model."""
    with ExitStack() as stack:
        contexts = [
            stack.enter_context(Contender(name, "context", {"context": str(path), "device": device}))
            for name, path in ((TUNED, tuned), (UNTUNED, untuned))
        ]
        facts, other = (each.facts for each in contexts)
        for warning in dict.fromkeys([*facts["warnings"], *other["warnings"]]):
            log.warning(warning)
        if not facts["computes"]:
            log.warning("the device computes nothing: its times are those of a model, and compare with no others")
        if facts["inputs"] != other["inputs"]:
            raise ConfigError(
                f"--retrieve_context: {tuned} takes {_shapes(facts)}, and {model} {_shapes(other)}; name its model, "
                "and its shapes by --input_dimensions"
            )
        threads = facts["threads"] or len(os.sched_getaffinity(0))
        arguments = {"model": str(model), "inputs": facts["inputs"], "threads": threads}
        contenders = [*contexts, *_others(stack, arguments)]
        rounds_ns = _rounds(contenders, rounds, progress)
        deviations = _deviations(contenders) if facts["computes"] else {}
    measured = [Measured(name, tuple(each), deviations.get(name)) for name, each in rounds_ns.items()]
    return Comparison(model.name, facts["device"], threads, tuple(measured))


def _others(stack: ExitStack, arguments: dict[str, Any]) -> list[Contender]:
    """Those that are installed and can run the model."""
    found = []
    for name, module in OTHERS.items():
        if find_spec(module) is None:
            log.info(f"{name} is not installed; `pip install {module}` adds it to the comparison")
            continue
        try:
            found.append(stack.enter_context(Contender(name, module, arguments)))
        except DeviceOrContextError as error:
            log.warning(f"{error}; it takes no part")
    return found


def _rounds(contenders: Sequence[Contender], rounds: int, progress: Progress) -> dict[str, list[float]]:
    """By contender, the median of each round; every second round goes the other way round."""
    found: dict[str, list[float]] = {each.name: [] for each in contenders}
    with progress.running("round", rounds):
        for number in range(rounds):
            for contender in contenders if number % 2 == 0 else reversed(contenders):
                found[contender.name].append(statistics.median(contender.block_ns(BLOCK_S)))
            progress.advance(1, "comparing")
    return found


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
