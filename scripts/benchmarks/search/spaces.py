"""Read recorded tuning spaces: a file as a tuning space with the times that were measured in it.

Files are our own recordings, which `scripts/recording/record` makes, T4, the format of the FAIR benchmark hub for
auto-tuning, and Kernel Tuner's cache files, which the hub has of older spaces. Every configuration of a file is valid
in the sense of the declared constraints; those that did not work are failures that a strategy has to learn.
"""

import json
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gputune.cache import TaskKey
from gputune.client.tuning.search.strategies import Evaluation
from gputune.core.tier import tier_of
from gputune.kernels.space import Configuration, Constraint, Parameter, TuningSpace, configuration_key
from gputune.runtime.devices import recording
from gputune.runtime.devices.recording import BadRecording

MILLISECOND_NS = 1e6

VENDORS = {"nvidia": r"A\d{3,4}\b|[HV]100\b|RTX|GTX|Titan", "amd": r"W\d{4}\b|MI\d{2,3}|RX "}
"""The hub names devices by less than their whole names."""

OF_GROUP = re.compile(r"block_size_[xyz]|[MN]DIMC")
"""The parameters of public spaces, which are all of GPUs, whose product is the size of a work-group."""

CACHE_FILE = "_cachefile"
"""Of the names of Kernel Tuner's cache files; those of T4 files have _T4 there."""


class NotRecorded(Exception):
    """The file is not a recorded space."""


class RecordedSpace(TuningSpace):
    """A space whose configurations are listed; what is not in the list was never legal."""

    def __init__(self, parameters: tuple[Parameter, ...], listed: tuple[tuple[int, ...], ...]) -> None:
        legal = frozenset(listed)
        names = tuple(parameter.name for parameter in parameters)
        rule = Constraint(names, lambda *values: values in legal, "only what was recorded can be replayed")
        super().__init__(parameters, (rule,))
        object.__setattr__(self, "_listed", [dict(zip(names, values, strict=True)) for values in listed])

    def configurations(self) -> Iterator[dict[str, int]]:
        """The list itself: expanding the product of all values again for every replay would take longest of all."""
        listed: list[dict[str, int]] = self.__dict__["_listed"]
        return (dict(configuration) for configuration in listed)


@dataclass(frozen=True, eq=False)
class Recording:
    """A file: the space, and of each configuration its samples in nanoseconds, none where it failed."""

    kernel: str
    device: str
    space: TuningSpace
    samples_ns: dict[str, tuple[float, ...]]

    @property
    def title(self) -> str:
        return f"{self.kernel} {self.device}".strip()

    @property
    def vendor(self) -> str:
        """The device's vendor, as far as the name tells."""
        name = self.device.replace("_", " ")
        return next((vendor for vendor, names in VENDORS.items() if re.match(names, name)), tier_of(name, 0).vendor)

    @cached_property
    def costs_ns(self) -> dict[str, float | None]:
        """The median of all samples of each configuration; None where it failed."""
        return {key: statistics.median(values) if values else None for key, values in self.samples_ns.items()}

    @cached_property
    def best_ns(self) -> float:
        return min(cost for cost in self.costs_ns.values() if cost is not None)

    def evaluate(self, configuration: Configuration) -> Evaluation:
        return Evaluation(configuration, self.costs_ns[configuration_key(configuration)])

    def records(self) -> list[tuple[Configuration, float | None]]:
        """All of it, as the cache of another device would have it."""
        return [(c, self.costs_ns[configuration_key(c)]) for c in self.space.configurations()]


def load(path: Path) -> Recording:
    """Reads a file of either format. Raises NotRecorded."""
    try:
        lines = recording.lines_of(path)
        ours = lines[0].startswith(f'{{"{recording.MARK}"')
        if ours:
            return _of_recording(recording.parse(path, lines))
        return (_of_cache_file if CACHE_FILE in path.name else _of_t4)(path, lines)
    except BadRecording as error:
        raise NotRecorded(str(error)) from None


def _of_recording(recorded: recording.Recording) -> Recording:
    """The kernel is the task, as the tuner calls it."""
    header = recorded.header
    key = TaskKey(
        header.op, header.problem, str(header.problem.get("dtype", "")), str(header.problem.get("layout", ""))
    )
    columns = {name: [row.values[place] for row in recorded.rows] for place, name in enumerate(header.parameters)}
    samples = [row.samples_ns for row in recorded.rows]
    return _space(recorded.title, f"{header.op} {key.digest[:10]}", header.device.name, columns, samples)


def _of_t4(path: Path, lines: Sequence[str]) -> Recording:
    """NAME_DEVICE_T4.json.gz tells kernel and device."""
    try:
        results = json.loads("\n".join(lines))["results"]
        names = list(results[0]["configuration"])
        columns = {name: _codes([result["configuration"][name] for result in results]) for name in names}
        samples = [_samples(result) for result in results]
    except (ValueError, KeyError, IndexError, TypeError, RecursionError) as error:
        raise NotRecorded(f"{path.name} is not a recorded space in T4: {type(error).__name__}: {error}") from None
    return _named(path, columns, samples)


def _of_cache_file(path: Path, lines: Sequence[str]) -> Recording:
    """NAME_DEVICE_cachefile.json.gz tells kernel and device."""
    try:
        whole = json.loads("\n".join(lines))
        rows = list(whole["cache"].values())
        columns = {name: _codes([row[name] for row in rows]) for name in whole["tune_params_keys"]}
        failed = [not isinstance(row["time"], int | float) for row in rows]  # a word says why
        samples = [() if bad else _in_ns(row["times"]) for row, bad in zip(rows, failed, strict=True)]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise NotRecorded(f"{path.name} is no cache file: {type(error).__name__}: {error}") from None
    return _named(path, columns, samples)


def _named(path: Path, columns: Mapping[str, Sequence[int]], samples: Sequence[tuple[float, ...]]) -> Recording:
    kernel, _, device = path.name.split(".")[0].removesuffix("_T4").removesuffix(CACHE_FILE).partition("_")
    return _space(path.name, kernel, device, columns, samples)


def _space(
    title: str, kernel: str, device: str, columns: Mapping[str, Sequence[int]], samples: Sequence[tuple[float, ...]]
) -> Recording:
    """The space of these columns, one for each parameter, with the samples of each row. Raises NotRecorded."""
    rows = list(zip(*columns.values(), strict=True))
    if len(set(rows)) != len(samples):
        raise NotRecorded(f"{title} has a configuration twice")
    if not any(samples):
        raise NotRecorded(f"{title} has no configuration that worked")
    parameters = tuple(
        Parameter(name, tuple(sorted(set(values))), "recorded", bool(OF_GROUP.fullmatch(name)))
        for name, values in columns.items()
    )
    return Recording(
        kernel=kernel,
        device=device,
        space=RecordedSpace(parameters, tuple(sorted(rows))),
        samples_ns={
            configuration_key(dict(zip(columns, row, strict=True))): kept
            for row, kept in zip(rows, samples, strict=True)
        },
    )


def _samples(result: dict[str, Any]) -> tuple[float, ...]:
    if result["invalidity"] != "correct":
        return ()
    return _in_ns(result["times"]["runtimes"])


def _in_ns(milliseconds: Sequence[float]) -> tuple[float, ...]:
    return tuple(float(value) * MILLISECOND_NS for value in milliseconds)


def _codes(values: Sequence[Any]) -> list[int]:
    """The numbers that stand for the values of a parameter: themselves, or their places where they are no integers."""
    distinct = sorted(set(values), key=lambda value: (isinstance(value, str), value))
    whole = all(isinstance(value, int) for value in distinct)
    codes = {value: int(value) if whole else place for place, value in enumerate(distinct)}
    return [codes[value] for value in values]
