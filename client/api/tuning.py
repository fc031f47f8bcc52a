"""Implement `gputune.tune`: run the context binary generator from a program."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from gputune.client.api.shapes import InputValues, Shapes, pairs_of, values_of
from gputune.client.errors import ConfigError
from gputune.client.generation.generator import generate
from gputune.client.generation.request import requested
from gputune.client.options.python import as_arguments
from gputune.client.outputs import Files
from gputune.client.progress import SILENT, Progress
from gputune.client.tuning.measuring.end_to_end import EndToEnd, Kept
from gputune.client.tuning.measuring.sequential import Gain as Gain
from gputune.runtime.context.format import read_header

AnyPath = Path | str
"""A file or folder."""


@dataclass(frozen=True)
class TunedGraph:
    """Hold the times of a graph's inferences. end_to_end: None if no whole contexts were compared."""

    name: str
    end_to_end: EndToEnd | None

    @property
    def untuned_ns(self) -> float | None:
        """Return the median time of an untuned inference."""
        return None if self.end_to_end is None else self.end_to_end.untuned_ns

    @property
    def tuned_ns(self) -> float | None:
        """Return the time of a tuned inference, untuned_ns divided by the gain; if the untuned context is kept, of the
        best tuned context."""
        return None if self.end_to_end is None else self.end_to_end.tuned_ns

    @property
    def gain(self) -> Gain | None:
        """Return how many times as fast a tuned inference is as an untuned inference; None if tuning led to no other
        context."""
        return None if self.end_to_end is None else self.end_to_end.gain

    @property
    def kept(self) -> Kept | None:
        """Return which context ships: "tuned", "untuned", or "last", the last choice that was certain."""
        return None if self.end_to_end is None else self.end_to_end.kept

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        none = dict.fromkeys(("untuned_ns", "tuned_ns", "gain", "kept", "open"))
        return {"name": self.name} | (none if self.end_to_end is None else self.end_to_end.to_dict())


@dataclass(frozen=True)
class TunedTask:
    """Describe a tuned kernel of the model: its configuration, and its time alone with that and with its default
    configuration, in ns, or None if not measured. weight: how often an inference runs it; hit: whether the cache knew
    it; trials: their number by status."""

    key: str
    op: str
    weight: int
    hit: bool
    trials: Mapping[str, int]
    default_ns: float | None
    tuned_ns: float | None
    configuration: Mapping[str, int]


@dataclass(frozen=True)
class Tuned:
    """Hold the result of tuning. path: the context binary; tasks: the tasks of the model's kernels and their
    alternatives; warnings: the texts of all warnings; seconds: the time that everything took. models: with
    unsupported="host", an ONNX file for each model and choice of shapes, which `gputune.load` and onnxruntime run; if
    no part of them runs on the device, there is no context binary and no graph."""

    path: Path
    models: tuple[Path, ...]
    graphs: tuple[TunedGraph, ...]
    tasks: tuple[TunedTask, ...] = field(repr=False)
    warnings: tuple[str, ...]
    cache_hits: int
    seconds: float

    @property
    def gain(self) -> Gain | None:
        """Return the gain of the first graph; untuned_ns, tuned_ns and kept are also the first graph's."""
        return self.graphs[0].gain if self.graphs else None

    @property
    def untuned_ns(self) -> float | None:
        return self.graphs[0].untuned_ns if self.graphs else None

    @property
    def tuned_ns(self) -> float | None:
        return self.graphs[0].tuned_ns if self.graphs else None

    @property
    def kept(self) -> Kept | None:
        return self.graphs[0].kept if self.graphs else None

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        graphs, tasks = [each.to_dict() for each in self.graphs], [asdict(each) for each in self.tasks]
        plain = {each.name: getattr(self, each.name) for each in fields(self)}
        paths = {"path": str(self.path), "models": list(map(str, self.models))}
        return plain | paths | {"graphs": graphs, "tasks": tasks, "warnings": list(self.warnings)}


@dataclass(frozen=True)
class TuningProgress:
    """Report the progress of a part of the tuning: `done` of `total` steps. what: the current work; seconds: the time
    since this part began."""

    label: str
    done: int
    total: int
    what: str
    seconds: float


def tune(
    model: AnyPath | Sequence[AnyPath],
    *,
    shapes: Shapes | None = None,
    input_values: InputValues | None = None,
    output: AnyPath | None = None,
    given: Mapping[str, Any],
    on_progress: Callable[[TuningProgress], None] | None = None,
) -> Tuned:
    """Tune an ONNX model on a target, write its context binary and report the gain.

    Arguments are the options of `gputune context-binary-generator`, which this runs. Messages are records of the logger
    "gputune". on_progress: called for every step, by any thread; an exception in it ends the tuning, and measurements
    are kept. Raises, in one line that says what to do, ConfigError, ModelError, TargetError, TuningError, OutputError,
    VerificationError, CacheMiss, GainTooSmall or CacheError.
    """
    begun_s, paths = time.monotonic(), _paths(model)
    asked = {"model": paths, "input_dimensions": pairs_of(shapes, paths), "input_value": values_of(input_values)}
    request = requested({**given, **asked}, _binary(paths, output))
    files, progress = _read(given), SILENT if on_progress is None else _Telling(on_progress)
    summary = generate(request, os.environ, progress, files=files)
    return _record(request.binary_file, summary, time.monotonic() - begun_s)


def _paths(model: AnyPath | Sequence[AnyPath]) -> list[Path]:
    """Return the models' files, at least one. Raises ConfigError."""
    given = model if isinstance(model, Sequence) and not isinstance(model, str | bytes) else [model]
    for one in given:
        if not isinstance(one, Path | str):
            raise ConfigError(f"model: a {type(one).__name__} is no file; write it with onnx.save, and give its path")
    paths = [Path(each) for each in given]
    if not paths:
        raise ConfigError("model: no file is given")
    return paths


def _binary(paths: Sequence[Path], output: AnyPath | None) -> Path:
    return Path("output") / f"{paths[0].stem}.bin" if output is None else Path(output)


def _read(given: Mapping[str, Any]) -> Files:
    """Return the files that are read to make the request. Raises Overwrites."""
    files = Files()
    for name in ("config_file", "token_file"):
        if name in given:
            files.read(given[name], f"--{name}")
    return files


class _Telling(Progress):
    """Tells a function of progress, one step at a time."""

    def __init__(self, told: Callable[[TuningProgress], None]) -> None:
        self._told = told
        self._turn = threading.Lock()
        self._begun_s = 0.0
        self._state = TuningProgress("", 0, 0, "", 0.0)

    @contextmanager
    def running(self, label: str, total: int, seconds: float | None = None) -> Iterator[None]:
        with self._turn:
            self._begun_s = time.monotonic()
            self._state = TuningProgress(label, 0, total, "", 0.0)
            self._told(self._state)
        yield

    def advance(self, steps: int, what: str) -> None:
        with self._turn:
            seconds = time.monotonic() - self._begun_s
            self._state = replace(self._state, done=self._state.done + steps, what=what, seconds=seconds)
            self._told(self._state)

    def shrink(self, steps: int) -> None:
        with self._turn:
            self._state = replace(self._state, total=self._state.total - steps)


def _record(path: Path, summary: Mapping[str, Any], seconds: float) -> Tuned:
    parts: Sequence[Mapping[str, Any]] | None = summary["models_in_parts"]
    empty = parts is not None and not any(one["parts"] for one in parts)
    names = [] if empty else [graph.name for graph in read_header(path).graphs]
    found = summary["end_to_end"] or {}
    of_graphs = {names[0]: found} if len(names) == 1 else found
    return Tuned(
        path=path,
        models=tuple(Path(one["file"]["path"]) for one in parts or ()),
        graphs=tuple(TunedGraph(name, EndToEnd.from_dict(of_graphs.get(name))) for name in names),
        tasks=tuple(
            TunedTask(**{each.name: task[each.name] for each in fields(TunedTask)}) for task in summary["tasks"]
        ),
        warnings=tuple(dict.fromkeys(map(as_arguments, summary["warnings"]))),
        cache_hits=summary["totals"]["cache_hits"],
        seconds=seconds,
    )
