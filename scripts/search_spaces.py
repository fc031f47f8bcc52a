"""Recorded tuning spaces: T4 files (also gzipped) as a tuning space with the times that were measured in it.

T4 is the format of the FAIR benchmark hub for auto-tuning and of `scripts/record`. Every configuration of the file is
valid in the sense of the declared constraints; those that are not "correct" are failures that a strategy has to learn.
"""

import gzip
import json
import statistics
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from gputune.client.tuning.strategies import Evaluation
from gputune.kernels.space import Configuration, Constraint, Parameter, TuningSpace, configuration_key

MILLISECOND_NS = 1e6


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
    """Reads a T4 file. NAME_DEVICE_T4.json.gz tells kernel and device. Raises NotRecorded, OSError."""
    try:
        data = path.read_bytes()
        results = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)["results"]
        names = list(results[0]["configuration"])
        rows = [[result["configuration"][name] for name in names] for result in results]
        samples = [_samples(result) for result in results]
    except (ValueError, KeyError, IndexError, TypeError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise NotRecorded(f"{path.name} is not a recorded space in T4: {type(error).__name__}: {error}") from None
    columns = [_codes([row[column] for row in rows]) for column in range(len(names))]
    coded = [tuple(values[row[column]] for column, values in enumerate(columns)) for row in map(tuple, rows)]
    if len(set(coded)) != len(coded):
        raise NotRecorded(f"{path.name} has a configuration twice")
    if not any(samples):
        raise NotRecorded(f"{path.name} has no configuration that worked")
    parameters = tuple(
        Parameter(name, tuple(sorted(set(values.values()))), "recorded")
        for name, values in zip(names, columns, strict=True)
    )
    stem = path.name.split(".")[0].removesuffix("_T4").split("_")
    return Recording(
        kernel=stem[0],
        device="_".join(stem[1:]),
        space=RecordedSpace(parameters, tuple(sorted(coded))),
        samples_ns={
            configuration_key(dict(zip(names, values, strict=True))): kept
            for values, kept in zip(coded, samples, strict=True)
        },
    )


def _samples(result: dict[str, Any]) -> tuple[float, ...]:
    if result["invalidity"] != "correct":
        return ()
    return tuple(float(value) * MILLISECOND_NS for value in result["times"]["runtimes"])


def _codes(values: list[Any]) -> dict[Any, int]:
    """The numbers that stand for the values of a parameter: themselves, or their places where they are no integers."""
    distinct = sorted(set(values), key=lambda value: (isinstance(value, str), value))
    whole = all(isinstance(value, int) for value in distinct)
    return {value: int(value) if whole else place for place, value in enumerate(distinct)}
