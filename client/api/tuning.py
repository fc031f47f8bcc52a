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

from gputune.client.api.arguments import as_arguments, check_known, with_arguments
from gputune.client.api.shapes import InputValues, Shapes, pairs_of, values_of
from gputune.client.durations import parse_duration
from gputune.client.errors import ConfigError
from gputune.client.folders import default_performance_cache_dir
from gputune.client.generation.config import HOST, UNSUPPORTED, Config, choose_effort, read_config
from gputune.client.generation.config.generator_keys import WEIGHTS
from gputune.client.generation.config.precision import DOUBLES, io_types
from gputune.client.generation.ep_context import EpContextFile, default_file
from gputune.client.generation.generator import GenerationRequest, generate
from gputune.client.model.graph import PRECISION_MODES, RULES
from gputune.client.model.model_files import model_files
from gputune.client.outputs import Files
from gputune.client.progress import SILENT, Progress
from gputune.client.target.transport.credentials import read_credentials
from gputune.client.tuning.measuring.end_to_end import EndToEnd, Kept
from gputune.client.tuning.measuring.quiet import MOST_MINUTES
from gputune.client.tuning.measuring.sequential import Gain as Gain
from gputune.client.tuning.search.effort import EFFORTS, Effort
from gputune.client.tuning.search.options import TuningOptions, check_gain, parse_budget
from gputune.runtime.context.format import read_header

AnyPath = Path | str


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


@with_arguments()
def tune(
    model: AnyPath | Sequence[AnyPath],
    *,
    shapes: Shapes | None = None,
    input_values: InputValues | None = None,
    output: AnyPath | None = None,
    target: str | None = None,
    device: str | None = None,
    token_file: AnyPath | None = None,
    effort: str | None = None,
    budget: float | str | None = None,
    compare_seconds: float | None = None,
    compare_again: bool = False,
    wait_for_quiet: int | None = None,
    fail_under: float | None = None,
    cache: AnyPath | None = None,
    config_file: AnyPath | None = None,
    weights: str | None = None,
    unsupported: str | None = None,
    precision_mode: str | None = None,
    io_type: str | Mapping[str, str] | None = None,
    keep_float32: Sequence[str] = (),
    float64: str | None = None,
    quantised: str | None = None,
    verify: bool = False,
    op_packages: Sequence[AnyPath] = (),
    on_progress: Callable[[TuningProgress], None] | None = None,
) -> Tuned:
    """Tune an ONNX model on a target, write its context binary and report the gain.

    Arguments are the options of `gputune context-binary-generator`, which this runs.
    model: a file, or several for one context with a graph each. shapes: by name, of inputs, or sizes of dimensions;
    several make a graph each. input_values: by name, of inputs that are constants, such as {"sr": 16000}. output: the
    context binary, by default MODEL.bin in the folder output. target: HOST:PORT or unix:PATH of a target server, or
    agent:HOST:PORT; by default a running server of this machine, else a new server on `device`. token_file: holds the
    token. effort: none, quick, normal (the default) or full. budget: the longest time of the whole call, in seconds or
    as "10m". compare_seconds: how long whole contexts of a graph take turns at the end, by default as the effort says.
    compare_again: compare them as if there were no last choice. wait_for_quiet: if other programs keep the machine
    busy, wait up to so many minutes. fail_under: raise GainTooSmall for a smaller gain, after the context is written.
    cache: the folder of performance caches, by default the user's. config_file: a file as for --config_file; arguments
    override it. weights: packed; compact, for a smaller context that packs the model's weights when it is loaded; or
    auto (the default), which packs those that grow, if loading is not much longer. unsupported: refuse (the default),
    or host: onnxruntime runs the nodes that cannot run on the device. precision_mode: float32, float16_storage (tensors
    and weights are in float16), or float16 (kernels may multiply in it, too); by default as the model. io_type: the
    type of all inputs and outputs, or types by name. keep_float32: nodes and types of nodes whose results stay in
    float32. float64: refuse (the default), or float32 for what is float64. quantised: exact (the default), or float,
    which rounds no activations. verify: compare the context with onnxruntime. op_packages: packages with your operators
    and kernels. on_progress: called for every step, by any
    thread; an exception in it ends the tuning, and measurements are kept. Messages are records of the logger "gputune".
    Raises, in one line that says what to do, ConfigError, ModelError, TargetError, TuningError, OutputError,
    VerificationError, CacheMiss, GainTooSmall or CacheError.
    """
    begun_s, paths = time.monotonic(), _paths(model)
    config = _config(
        config_file, effort, weights, unsupported, precision_mode, io_type, keep_float32, float64, quantised
    )
    chosen = choose_effort(config, effort)
    asked: dict[str, Any] = {"budget": budget, "compare_seconds": compare_seconds, "wait_for_quiet": wait_for_quiet}
    asked |= {"compare_again": compare_again or None, "fail_under": fail_under}
    _check_bound(chosen, **asked, cache=cache)
    request = GenerationRequest(
        models=model_files(paths, pairs_of(shapes, paths), {**config.input_values, **values_of(input_values)}),
        binary_file=(binary := _binary(paths, output)),
        ep_context=_rest(config, binary),
        config=config,
        effort=chosen,
        performance_cache_dir=_folder(cache, config),
        target=target or config.target,
        device=device,
        credentials=read_credentials({}, None if token_file is None else Path(token_file)),
        tuning=_tuning(config.tuning, **asked),
        verify=verify,
        op_packages=[str(each) for each in op_packages],
    )
    files, progress = _read(config_file, token_file), SILENT if on_progress is None else _Telling(on_progress)
    summary = generate(request, os.environ, progress, files=files)
    return _record(request.binary_file, summary, time.monotonic() - begun_s)


def _config(
    config_file: AnyPath | None,
    effort: str | None,
    weights: str | None,
    unsupported: str | None,
    precision_mode: str | None,
    io_type: str | Mapping[str, str] | None,
    keep_float32: Sequence[str],
    float64: str | None,
    quantised: str | None,
) -> Config:
    """Return the config file, with what arguments say of its keys, which are known, as the effort is. Raises
    ConfigError, TargetError."""
    check_known(effort=(effort, EFFORTS))
    config = read_config(None if config_file is None else Path(config_file))
    known = {"weights": (weights, WEIGHTS), "unsupported": (unsupported, UNSUPPORTED)}
    known |= {"float64": (float64, DOUBLES), "quantised": (quantised, RULES)}
    check_known(precision_mode=(precision_mode, PRECISION_MODES), **known)
    types = None if io_type is None else io_types(io_type, "io_type")
    return config.having(weights, unsupported, precision_mode, types, keep_float32, float64, quantised)


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


def _read(config_file: AnyPath | None, token_file: AnyPath | None) -> Files:
    """Return the files that are read to make the request. Raises Overwrites."""
    files = Files()
    for option, path in {"--config_file": config_file, "--token_file": token_file}.items():
        if path is not None:
            files.read(Path(path), option)
    return files


def _check_bound(effort: Effort, **asked: object) -> None:
    """Raise ConfigError for arguments about tuning where it is off."""
    given = [name for name, value in asked.items() if value is not None]
    if effort.name == "none" and given:
        raise ConfigError(
            f"{' and '.join(given)}: tuning is off, so this has no effect; drop it, or choose another effort"
        )


def _rest(config: Config, binary: Path) -> EpContextFile | None:
    """Return the ONNX file for models of which only parts run on the device, if they are not refused."""
    return EpContextFile(default_file(binary), False) if config.unsupported == HOST else None


def _folder(cache: AnyPath | None, config: Config) -> Path:
    return Path(cache) if cache is not None else config.performance_cache_dir or default_performance_cache_dir()


def _tuning(
    tuning: TuningOptions,
    budget: float | str | None,
    compare_seconds: float | None,
    compare_again: bool | None,
    wait_for_quiet: int | None,
    fail_under: float | None,
) -> TuningOptions:
    """Return the config file's wishes with these in their place. Raises ConfigError."""
    if budget is not None:
        seconds = parse_budget(budget, "budget") if isinstance(budget, str) else budget
        if seconds <= 0:
            raise ConfigError(f"budget: {budget} s is too short; give a time above 0")
        tuning = replace(tuning, budget_seconds=seconds)
    if compare_seconds is not None:
        tuning = replace(tuning, compare_seconds=parse_duration(str(compare_seconds), "compare_seconds"))
    if compare_again:
        tuning = replace(tuning, compare_again=True)
    if wait_for_quiet is not None:
        if not 1 <= wait_for_quiet <= MOST_MINUTES:
            raise ConfigError(f"wait_for_quiet: {wait_for_quiet} is not a number of minutes from 1 to {MOST_MINUTES}")
        tuning = replace(tuning, wait_for_quiet=wait_for_quiet)
    if fail_under is not None:
        tuning = replace(tuning, fail_under=check_gain(fail_under, "fail_under"))
    return tuning


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
