"""Run inferences one after the other: how many, on which inputs, when each began and how long it took."""

import itertools
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, astuple, dataclass, field
from pathlib import Path
from typing import Any

import numpy.typing as npt

from gputune.client.errors import ConfigError
from gputune.client.input_lists import NO_AXES, Axes, InputLine, read_inputs
from gputune.client.outputs import write_text
from gputune.client.pages.escaping import csv_cell
from gputune.core.json_text import json_text
from gputune.runtime.context.records import TensorRecord

Array = npt.NDArray[Any]
Infer = Callable[[Mapping[str, Array]], tuple[dict[str, Array], int]]
"""Inputs in; outputs and what the inference took in nanoseconds out."""

FORMS = (".csv", ".json")


@dataclass(frozen=True)
class Extent:
    """How long a run is: `count` inferences, or as many as begin within `seconds`, one at least. Before them `warmup`
    inferences run that count nowhere."""

    count: int
    seconds: float | None = None
    warmup: int = 0

    def numbers(self) -> Iterator[int]:
        """Yield the numbers of the inferences that count, from 0 on; time runs from the first one on."""
        if self.seconds is None:
            yield from range(self.count)
            return
        end_s = time.perf_counter() + self.seconds
        yield 0
        for number in itertools.count(1):
            if time.perf_counter() >= end_s:
                return
            yield number

    def needs_again(self, index: int, lines: int) -> bool:
        """Return whether the line of that index, of so many, is run more than once."""
        return self.seconds is not None or index + lines < self.count or index < min(self.warmup, self.count)


@dataclass(frozen=True)
class Inference:
    """One that counts. begin_ns: by the host's clock, of which only differences mean something; elapsed_ns: by that
    of the machine with the device."""

    number: int
    outputs: dict[str, Array]
    begin_ns: int
    elapsed_ns: int


@dataclass(frozen=True)
class Times:
    """When inferences began, as of Inference, and what they took, in ns, in the order in which they ran."""

    begin_ns: list[int] = field(default_factory=list)
    elapsed_ns: list[int] = field(default_factory=list)

    def add(self, begin_ns: int, elapsed_ns: int) -> None:
        self.begin_ns.append(begin_ns)
        self.elapsed_ns.append(elapsed_ns)


def run(
    infer: Infer,
    tensors: tuple[TensorRecord, ...],
    lines: list[InputLine],
    extent: Extent,
    begin: Callable[[], None] | None = None,
    axes: Axes = NO_AXES,
) -> Iterator[Inference]:
    """Run inference after inference, starting over when the list is used up.

    infer: run_timed of an executor, InPlace, or Steps; tensors: the inputs that it takes; axes: as of read_inputs.
    begin: is called before lines that begin. Reading files is not counted. Inputs are kept only where they are needed
    again. Warm-up begins with the first line, and so do the inferences that count.
    """
    loaded: dict[int, dict[str, Array]] = {}

    def inputs_of(number: int) -> dict[str, Array]:
        index = number % len(lines)
        inputs = loaded.get(index) or read_inputs(lines[index], tensors, axes)
        if extent.needs_again(index, len(lines)):
            loaded[index] = inputs
        if begin is not None and lines[index].begins:
            begin()
        return inputs

    for number in range(extent.warmup):
        infer(inputs_of(number))
    for number in extent.numbers():
        inputs = inputs_of(number)
        begin_ns = time.perf_counter_ns()
        outputs, elapsed_ns = infer(inputs)
        yield Inference(number, outputs, begin_ns, elapsed_ns)


def check_export(path: Path, origin: str) -> None:
    """Raise ConfigError, which names the origin, for a file that is neither CSV nor JSON by its ending."""
    if path.suffix.lower() not in FORMS:
        raise ConfigError(f"{origin}: {path} must end in {' or '.join(FORMS)}, which chooses the form of the times")


def export_times(path: Path, runs: Mapping[str, Times]) -> None:
    """Write every inference of runs by the names of their contexts: its number, when it began, in ns since the first
    one of all, and its ns. CSV with a heading, or a JSON list of objects, by the file's ending. Raises OutputError."""
    rows = _rows(runs)
    if path.suffix.lower() == ".json":
        text = json_text([asdict(row) for row in rows], indent=1) + "\n"
    else:
        lines = [",".join(Row.__dataclass_fields__), *(",".join(map(csv_cell, astuple(row))) for row in rows)]
        text = "\n".join(lines) + "\n"
    write_text(path, text)


@dataclass(frozen=True)
class Row:
    """An inference in a file of times; context: its name, empty where there is only one."""

    context: str
    inference: int
    begin_ns: int
    inference_ns: int


def _rows(runs: Mapping[str, Times]) -> list[Row]:
    first_ns = min(begin_ns for times in runs.values() for begin_ns in times.begin_ns)
    return [
        Row(name, number, begin_ns - first_ns, elapsed_ns)
        for name, times in runs.items()
        for number, (begin_ns, elapsed_ns) in enumerate(zip(times.begin_ns, times.elapsed_ns, strict=True))
    ]
