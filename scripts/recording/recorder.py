"""Measure the configurations of one task on a target and keep each of them in a recording.

Measurements are in FILE.part, next to the recording, until all are there: an interrupted recording continues where it
stopped. Batches are the tuner's: the default configuration takes part in all of them. Samples are corrected by the
default's samples of the same passes, to the values on a device that is as fast as at first.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any, TextIO

from gputune.cache import TrialRecord
from gputune.client.errors import ConfigError
from gputune.client.model.plan import Task
from gputune.client.progress import Progress
from gputune.client.target.client import TargetClient
from gputune.client.tuning.measuring.drift import Drift
from gputune.client.tuning.measuring.runner import TaskRunner
from gputune.client.tuning.proven_features import proven_features
from gputune.client.tuning.search.effort import EFFORTS, Effort
from gputune.client.tuning.search.task_search import BATCH, TaskSearch, device_limits
from gputune.core.identity import DeviceIdentity
from gputune.core.launches import Trial
from gputune.kernels.family import Launch
from gputune.kernels.space import Configuration, configuration_key
from gputune.runtime.devices import recording
from gputune.runtime.devices.recording import BadRecording, Header, Row, launch_digest, program_digest
from gputune.runtime.measuring.timing import MEASURING_VERSION

DIGITS = 1
"""Of a sample in nanoseconds after the point: no clock says more, and a file is half as large."""


@dataclass(frozen=True)
class Way:
    """How to measure. sample: so many configurations at random beside the default and the starters, None for all;
    likely: so many that the family's estimate likes best, which take turns with them."""

    sample: int | None
    samples: int
    sample_ns: int
    warm_up_ns: int
    cold: bool
    likely: int = 0

    @property
    def effort(self) -> Effort:
        """The way as the tuner's tools take it."""
        full = EFFORTS["full"]
        return replace(full, samples=self.samples, sample_ns=self.sample_ns, warm_up_ns=self.warm_up_ns)


class Recorder:
    """One task on its way into `path`. Raises ConfigError when something else was begun there."""

    def __init__(self, client: TargetClient, task: Task, path: Path, way: Way, progress: Progress) -> None:
        self._client = client
        self._path = path
        self._part = path.with_name(f"{path.name}.part")
        self._way = way
        self._progress = progress
        device = DeviceIdentity.from_dict(client.device)
        settings = client.server.get("settings")
        known = {str(name): str(value) for name, value in settings.items()} if isinstance(settings, Mapping) else {}
        self._limits = device_limits(device, features=proven_features([client], [task], device_limits(device)))
        self.search = TaskSearch(task, device, self._limits, way.effort, known, cold=way.cold)
        self._features = tuple(sorted(self.search.space.asks & self._limits.features))
        self._names = tuple(parameter.name for parameter in self.search.space.parameters)
        self.chosen = self._choose()
        self.header = self._header(device, known)
        self._rows = {row.values: row for row in self._resumed()}
        self._drift = Drift()

    @property
    def left(self) -> list[Configuration]:
        """What has still to be measured."""
        return [one for one in self.chosen if self._values(one) not in self._rows]

    def run(self, goes_on: Callable[[], bool] = lambda: True) -> None:
        """Measures what is left and writes the recording; goes_on: asked before each batch, ends it early where it says
        no. Raises TargetError, OSError."""
        lines = [self.header.to_line(), *map(recording.row_line, self._known())]
        whole = self._part.with_suffix(".new")
        whole.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        whole.replace(self._part)  # without the line that an earlier run did not finish
        self._tell(self._known())
        with self._part.open("a", encoding="utf-8") as part:
            self._drift = Drift(self.search.baseline_ns)
            bench = TaskRunner(self._client, self.search, self._way.effort, self._way.cold)
            while (batch := self.left[:BATCH]) and goes_on():
                self._measure(bench, batch, part)
                self._progress.advance(len(batch), self.search.title)
            bench.clear()
        recording.write(self._path, self.header, self._known())
        self._part.unlink()

    def _measure(self, bench: TaskRunner, batch: Sequence[Configuration], part: TextIO) -> None:
        """Measures a batch; rows are in the file as soon as they are known."""

        def concluded(trials: Mapping[int, Trial], baseline: Sequence[float]) -> None:
            self._drift.hear(baseline)
            rows = [self._row(batch[place], trial, baseline) for place, trial in trials.items()]
            part.writelines(f"{recording.row_line(row)}\n" for row in rows)
            part.flush()
            self._rows |= {row.values: row for row in rows}
            self._tell(rows)

        bench.measure(batch, self._way.samples, concluded, level=self._drift.level)

    def _choose(self) -> list[Configuration]:
        """In another order than the space's, so that a change of the device meets no parameter more than others."""
        search, chance, problem = self.search, random.Random(self.search.seed), self.search.task.problem
        first = [search.default, *search.family.starters(problem, self._limits)]
        others = list(search.space.configurations())
        estimate = search.family.estimate(problem, self._limits)
        likely = [] if estimate is None else sorted(others, key=estimate)[: self._way.likely]
        chance.shuffle(others)
        turns = zip_longest(likely, others[: self._way.sample])
        mixed = (one for turn in turns for one in turn if one is not None)
        chosen = {configuration_key(one): one for one in [*first, *mixed]}
        return list(chosen.values())

    def _header(self, device: DeviceIdentity, settings: Mapping[str, str]) -> Header:
        rendered = [self.search.rendered(one) for one in self.chosen]
        prepare = {digests_of(launch)[1] for instance in rendered for launch in instance.prepare}
        prepare |= {digest for instance in rendered for digest in _stage_digests(instance.main)}
        way = self._way
        measured: dict[str, Any] = {
            "protocol": MEASURING_VERSION,
            "samples": way.samples,
            "sample_ns": way.sample_ns,
            "warm_up_ns": way.warm_up_ns,
            "cold": way.cold,
            "batch": BATCH,
            "software": str(self._client.server.get("software")),
            "settings": dict(settings),
        }
        key = self.search.key
        size = self.search.space.size
        return Header(
            key.op, dict(key.problem), device, size, self._names, tuple(sorted(prepare)), measured, self._features
        )

    def _resumed(self) -> list[Row]:
        """What an earlier run has measured; of a configuration that it measured twice, what came last."""
        if not self._part.exists():
            return []
        try:
            lines = recording.lines_of(self._part)
            if not self._part.read_bytes().endswith(b"\n"):
                lines = lines[:-1]  # that run was ended while it wrote this one
            if Header.from_line(lines[0]) != self.header:
                raise ValueError("it is of another task, device or way to measure")
            rows = {row.values: row for row in (recording.row_of(line, len(self._names)) for line in lines[1:])}
        except (BadRecording, ValueError) as error:
            raise ConfigError(f"{self._part} cannot be continued: {error}; delete it to begin again") from None
        return list(rows.values())

    def _row(self, configuration: Configuration, trial: Trial, baseline: Sequence[float]) -> Row:
        launch = self.search.rendered(configuration).main
        program, digest = digests_of(launch)
        samples_ns = trial.samples_ns if trial.status == "ok" else ()
        ratio = self._drift.ratio(samples_ns, baseline) or 1.0
        return Row(
            values=self._values(configuration),
            status=trial.status,
            message=trial.message,
            program=program,
            launch=digest,
            timing="wall" if trial.measured.get("timing") == "wall" else "event",
            samples_ns=tuple(round(sample / ratio, DIGITS) for sample in samples_ns),
            compile_ns=trial.compile_ns,
            first_launch_ns=trial.first_launch_ns,
        )

    def _tell(self, rows: Iterable[Row]) -> None:
        self.search.tell(
            [TrialRecord(dict(zip(self._names, row.values, strict=True)), row.status, row.samples_ns) for row in rows]
        )

    def _known(self) -> list[Row]:
        return list(self._rows.values())

    def _values(self, configuration: Configuration) -> tuple[int, ...]:
        return tuple(configuration[name] for name in self._names)


def _stage_digests(launch: Launch) -> Iterator[str]:
    """Those of the kernels that run before it, whose time is in the launch's own."""
    program = program_digest(launch.source, launch.options)
    for stage in launch.stages:
        yield launch_digest(program, stage.entry, stage.global_size, stage.local_size, stage.arguments)


def digests_of(launch: Launch) -> tuple[str, str]:
    """Those of its program and of itself, as a recording has them."""
    program = program_digest(launch.source, launch.options)
    return program, launch_digest(program, launch.entry, launch.global_size, launch.local_size, launch.arguments)
