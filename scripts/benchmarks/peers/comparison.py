"""Measure cases in which contenders take turns between blocks of the device's limits, for `scripts/bench kernels` and
`scripts/bench models`."""

from __future__ import annotations

import hashlib
import json
import math
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks.peers.turns import Contender, Entry, running
from benchmarks.tuning.tools import Ratio, appending, ratio
from gputune.runtime.context.format import read_header

MOST_SAMPLES = 200
NAIVE_SAMPLES, NAIVE_ROUNDS = 1, 8
"""Naive kernels take a hundred times as long; samples of a turn, and the rounds that they take part in."""

CONTEXT_SUFFIX = ".bin"

TUNED, DEFAULTS, NAIVE = "tuned", "defaults", "naive"
PEER, OPENVINO, MNN, TINYGRAD = "onnxruntime", "OpenVINO", "MNN", "tinygrad"
PEER_MODULES = {OPENVINO: "openvino", MNN: "MNN"}
"""What is installed for them."""
ENGINES = (PEER, *PEER_MODULES)
"""With a thread for each core; the best of them, case by case, is the one to be faster than."""
WITHOUT_NODE_TIMES = frozenset([MNN])
"""Engines that do not tell Python what their nodes take."""
PEER_ALONE = f"{PEER}, 1 thread"
SETTLED = 0.03
"""Half an interval, as a share of its ratio, with which that is measured."""


@dataclass(frozen=True)
class Settings:
    """How long and how often each contender runs: so many rounds, and then on until the case is settled, at most
    most_rounds. most: samples of a turn at most."""

    rounds: int
    most_rounds: int
    seconds: float
    effort: str
    device: str | None
    with_limits: bool = True
    most: int = MOST_SAMPLES

    @property
    def device_stem(self) -> str:
        """What the device is called in names of files."""
        return "".join(letter if letter.isalnum() else "_" for letter in self.device or "default")


@dataclass(frozen=True)
class Case:
    """One thing that all contenders do. `flops` are those of its tasks by their definition; `weight` is how often it
    counts in the mean of its group."""

    name: str
    group: str
    entries: Sequence[Entry]
    flops: int
    weight: int = 1


@dataclass
class Measured:
    """What became of a case: by contender the nanoseconds of each round's runs, and how far its outputs are from
    onnxruntime's, max|a-b| / max|b|; the limits' blocks between the rounds. key: a name of all that this depends on."""

    name: str
    key: str
    rounds: dict[str, list[list[float]]] = field(default_factory=dict)
    deviations: dict[str, float] = field(default_factory=dict)
    fma_gflops: list[float] = field(default_factory=list)
    gigabytes: list[float] = field(default_factory=list)

    @property
    def best(self) -> str:
        """The engine that is fastest beside the tuned context."""
        return min((name for name in ENGINES if name in self.rounds), key=self._behind)

    @property
    def settled(self) -> bool:
        """Whether it is known well enough how many times as fast the tuned context is as the best engine."""
        return is_settled(self.speed(TUNED, self.best))

    def share_of_limit(self, flops: int) -> Ratio | None:
        """Of the multiply-adds that the device can do, those of the tuned context, round by round beside the blocks of
        the limit before and behind it; None where there are none."""
        if not self.fma_gflops:
            return None
        around = zip(self.fma_gflops, self.fma_gflops[1:], strict=False)
        limits_ns = [[flops / before, flops / behind] for before, behind in around]
        return ratio(limits_ns[: len(self.rounds[TUNED])], self.rounds[TUNED])

    def _behind(self, engine: str) -> float:
        speed = self.speed(TUNED, engine)
        return math.inf if speed is None else speed.value

    def blocks_ns(self, contender: str) -> list[float]:
        """The median of each round."""
        return [statistics.median(samples) for samples in self.rounds[contender]]

    def median_ns(self, contender: str) -> float:
        """The median of the rounds' medians."""
        return statistics.median(self.blocks_ns(contender))

    def speed(self, contender: str, other: str) -> Ratio | None:
        """How many times as fast a contender is as another one, by the rounds that both were in; None where one of them
        did not take part."""
        if contender not in self.rounds or other not in self.rounds:
            return None
        both = min(len(self.rounds[other]), len(self.rounds[contender]))
        return ratio(self.rounds[other][:both], self.rounds[contender][:both])


def is_settled(speed: Ratio | None) -> bool:
    """Whether a ratio is known well enough; what there is not is."""
    return speed is None or speed.doubt <= SETTLED


def named(engine: str, threads: int) -> str:
    """What an engine is called with so many threads."""
    return f"{engine}, 1 thread" if threads == 1 else engine


def measure_all(cases: Sequence[Case], settings: Settings, file: Path, resume: bool) -> list[Measured]:
    """All cases one after the other. Each is kept in `file` as soon as it is measured. resume: what is there and is
    settled is not measured again. Raises NotTimed."""
    if not resume:
        file.unlink(missing_ok=True)
    limit = [Entry("limit", "limit", {"device": settings.device})] if settings.with_limits else []
    with appending(file) as (lines, add), running(limit) as limits:
        known = {one.key: one for one in (Measured(**line) for line in lines)}
        found = []
        for number, case in enumerate(cases, 1):
            key = key_of(case, settings)
            measured = known.get(key)
            if measured is None or not measured.settled:
                print(f"[{number}/{len(cases)}] {case.name}", flush=True)
                measured = measure(case, key, settings, limits)
                add(asdict(measured))
            found.append(measured)
    return found


def measure(case: Case, key: str, settings: Settings, limits: Sequence[Contender]) -> Measured:
    """One case, in rounds there and back, with the limits before, between and after them. Raises NotTimed."""
    measured = Measured(case.name, key)
    with running(case.entries) as contenders:
        measured.deviations = _deviations(contenders)
        _add_limits(measured, limits, bandwidth=True)
        for number in range(max(settings.rounds, settings.most_rounds)):
            if number >= settings.rounds and measured.settled:
                break
            for contender in contenders if number % 2 == 0 else reversed(contenders):
                if contender.name == NAIVE and number >= NAIVE_ROUNDS:
                    continue
                most = NAIVE_SAMPLES if contender.name == NAIVE else settings.most
                samples = contender.block(settings.seconds, most)
                measured.rounds.setdefault(contender.name, []).append(samples)
            _add_limits(measured, limits, bandwidth=False)
        _add_limits(measured, limits, bandwidth=True)
    return measured


def key_of(case: Case, settings: Settings) -> str:
    """A name of everything that a case's numbers depend on: settings, contenders and what is in their files."""
    facts: list[Any] = [case.name, asdict(settings), versions()]
    for entry in case.entries:
        plain = dict(entry.arguments)
        digests = [digest_of(Path(plain.pop(name))) for name in ("context", "model", "inputs") if name in plain]
        facts.append([entry.name, entry.kind, plain, dict(entry.environment), digests])
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def versions() -> dict[str, str]:
    """Of the engines that are installed."""
    return {name: version(name) for name in (PEER, *PEER_MODULES.values()) if find_spec(name) is not None}


def digest_of(file: Path) -> str:
    """A name of a file's contents; of a context without its binaries, since compilers write the same code in files that
    differ."""
    if file.suffix != CONTEXT_SUFFIX:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    header = read_header(file)
    facts = header.to_dict()
    kept = [section.sha256 for section in header.sections if section.kind != "binary"]
    options = [program.options for program in header.programs]
    return hashlib.sha256(json.dumps([facts["graphs"], options, kept]).encode()).hexdigest()


def _add_limits(measured: Measured, limits: Sequence[Contender], bandwidth: bool) -> None:
    for limit in limits:
        answer = limit.ask(do="limit", bandwidth=bandwidth)
        measured.fma_gflops.append(answer["fma_gflops"])
        if bandwidth:
            measured.gigabytes.append(answer["gigabytes"])


def _deviations(contenders: Sequence[Contender]) -> dict[str, float]:
    """By contender, of those that compute something."""
    outputs: dict[str, dict[str, Any]] = {}
    with TemporaryDirectory() as folder:
        file = Path(folder) / "outputs.npz"
        for contender in contenders:
            if contender.facts["computes"]:
                contender.ask(do="outputs", file=str(file))
                with np.load(file) as arrays:
                    outputs[contender.name] = dict(arrays)
    want = outputs.pop(PEER)
    return {name: max(_deviation(got[output], want[output]) for output in want) for name, got in outputs.items()}


def _deviation(got: Any, want: Any) -> float:
    if got.shape != want.shape or not np.isfinite(got).all():
        return float("inf")
    return float(np.abs(got - want).max() / max(np.abs(want).max(), 1e-30))
