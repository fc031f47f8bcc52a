"""Represent the valid configurations of a space as rows of numbers, and which are known, asked for or still open.

All strategies except the exhaustive strategy build on this. They refer to configurations by row number.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

from gputune.client.tuning.search.strategies import Evaluation
from gputune.kernels.space import Configuration, TuningSpace

Rows = npt.NDArray[np.intp]
Floats = npt.NDArray[np.float64]


class Candidates:
    """All valid configurations in the space's own order, and what became of them so far.

    `codes[row]` has a configuration's position among `values`, which are sorted, of each parameter that really varies;
    `points` is the same scaled to 0 to 1. Ranks, not values: tile sizes double from value to value, and so do effects.
    `costs[row]` is the natural logarithm of a cost in nanoseconds: infinite for a failure, NaN where nothing is known.
    """

    def __init__(self, space: TuningSpace) -> None:
        names = [parameter.name for parameter in space.parameters]
        self._configurations = list(space.configurations())
        table = np.array([[c[name] for name in names] for c in self._configurations], np.int64)
        table = table.reshape(len(self._configurations), len(names))
        self._table = table
        columns = [np.unique(table[:, column], return_inverse=True) for column in range(len(names))]
        varying = [column for column, (values, _) in enumerate(columns) if len(values) > 1]
        self._names = tuple(names)
        self._row_of = {tuple(values): row for row, values in enumerate(table.tolist())}
        self.values: tuple[npt.NDArray[np.int64], ...] = tuple(columns[column][0] for column in varying)
        self.levels: tuple[int, ...] = tuple(map(len, self.values))
        codes = [columns[column][1].reshape(-1) for column in varying]
        self.codes: npt.NDArray[np.int64] = (
            np.stack(codes, axis=1) if codes else np.zeros((len(table), 0), np.int64)
        ).astype(np.int64)
        self.points: Floats = self.codes / np.maximum(np.array(self.levels, float) - 1, 1)
        self.costs: Floats = np.full(len(table), np.nan)
        self.open: npt.NDArray[np.bool_] = np.ones(len(table), bool)

    def __len__(self) -> int:
        return len(self._configurations)

    def row(self, configuration: Configuration) -> int | None:
        """Return the row of a configuration; None where it is not one of this space."""
        if len(configuration) != len(self._names) or not all(name in configuration for name in self._names):
            return None
        return self._row_of.get(tuple(configuration[name] for name in self._names))

    @cached_property
    def _row_of_codes(self) -> dict[tuple[int, ...], int]:
        return {tuple(values): row for row, values in enumerate(self.codes.tolist())}

    def row_of_codes(self, codes: Sequence[int]) -> int | None:
        """Return the row with these codes; None where a constraint forbids it."""
        return self._row_of_codes.get(tuple(codes))

    def take(self, rows: Iterable[int]) -> list[dict[str, int]]:
        """Return the configurations of rows, which are no longer open from now on."""
        chosen = list(rows)
        self.open[chosen] = False
        return self.at(chosen)

    def at(self, rows: Iterable[int]) -> list[dict[str, int]]:
        """Return the configurations of rows."""
        return [dict(self._configurations[row]) for row in rows]

    def products(self, names: Iterable[str]) -> npt.NDArray[np.int64]:
        """Return the product of some parameters of each row; 1 of none."""
        columns = [self._table[:, self._names.index(name)] for name in names]
        return np.prod(columns, axis=0, dtype=np.int64) if columns else np.ones(len(self), np.int64)

    def tell(self, evaluations: Sequence[Evaluation]) -> list[int]:
        """Keep what was found out and return the rows; configurations of another space are passed over."""
        told = []
        for evaluation in evaluations:
            row = self.row(evaluation.configuration)
            if row is not None:
                self.costs[row] = np.inf if evaluation.cost_ns is None else np.log(evaluation.cost_ns)
                self.open[row] = False
                told.append(row)
        return told

    @property
    def known(self) -> Rows:
        """Rows with a result, failures included."""
        return np.flatnonzero(~np.isnan(self.costs))

    def best(self) -> int | None:
        """Return the row with the least cost; None as long as nothing worked."""
        worked = np.flatnonzero(np.isfinite(self.costs))
        return int(worked[np.argmin(self.costs[worked])]) if len(worked) else None

    def lines(self, row: int) -> Iterator[tuple[int, list[int]]]:
        """For every varying parameter its column, and the rows that differ from `row` in it alone, nearest first."""
        here: list[int] = self.codes[row].tolist()
        for column, levels in enumerate(self.levels):
            others = sorted(set(range(levels)) - {here[column]}, key=lambda code: (abs(code - here[column]), code))
            changed = (self.row_of_codes([*here[:column], code, *here[column + 1 :]]) for code in others)
            yield column, [other for other in changed if other is not None]
