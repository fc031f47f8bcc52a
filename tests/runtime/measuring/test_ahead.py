"""Test variants that another process compiles meanwhile: they come last and backwards, and no measurement overlaps."""

import numpy as np
import pytest

from gputune.core.launches import Launch, Trial, Variant, Work
from gputune.runtime.backends import ProgramCache, open_backend
from gputune.runtime.devices.discovery import NULL_REPORT
from gputune.runtime.measuring.building import Ahead
from gputune.runtime.measuring.launching import compile_ahead
from gputune.runtime.measuring.watcher import Step, Unwatched
from tests.variants import baseline_beside, measure_on, numbered

SIZES = {"x": 256, "output": 256}


def variant(number: int, argument: str = "x") -> Variant:
    main = Launch("__kernel void f() {}", "f", f"-DN={number}", (64,), (1,), (argument, "output"))
    return Variant({"N": number}, (), main, {})


class Noting(Unwatched):
    """Notes which variants are verified, and when measuring begins."""

    def __init__(self, cancelled_after: int = 99) -> None:
        self.seen: list[object] = []
        self._cancelled_after = cancelled_after

    @property
    def cancelled(self) -> bool:  # type: ignore[override]
        return len(self.seen) >= self._cancelled_after

    def step(self, step: Step, variant: int | None, expected_ns: float) -> None:
        if step == "measuring" and "measuring" not in self.seen:
            self.seen.append(step)
        if step == "starting" and self._cancelled_after < 99:
            self.seen.append(step)

    def verified(self, variant: int, trial: Trial) -> None:
        self.seen.append(variant)


@pytest.mark.parametrize(
    ("baseline", "order"),
    [(None, [0, 1, 2, 4, 3]), (4, [4, 0, 1, 2, 3]), (9, [5, 0, 1, 2, 4, 3])],
)
def test_what_is_compiled_ahead_is_met_half_way(baseline: int | None, order: list[int]) -> None:
    backend = open_backend(NULL_REPORT)
    noting = Noting()
    variants = numbered(map(variant, range(5)))
    zeros = backend.upload(np.zeros(64, np.float32))
    measured = measure_on(
        ProgramCache(backend), variants, {"x": zeros}, zeros, noting, Ahead(3, lambda: noting.seen.append("alone")),
        work=Work(64, 512), samples=1, sample_ns=1000, warm_up_ns=1000,
        baseline=baseline_beside(variants, None if baseline is None else variant(baseline)),
    )  # fmt: skip
    assert [trial.status for trial in measured.trials] == ["ok"] * 5
    assert noting.seen == [*order, "alone", "measuring"]


def test_what_fails_ahead_or_comes_too_late_takes_no_time() -> None:
    programs = ProgramCache(open_backend(NULL_REPORT))
    variants = [variant(0), variant(1, "absent"), variant(2)]
    compiled = compile_ahead(programs, variants, SIZES)
    assert compiled[0][1] > 0 and compiled[2][1] > 0 and compiled[1] == (0, 0)
    given_up = compile_ahead(programs, variants, SIZES, Noting(cancelled_after=1))
    assert given_up[0] == compiled[0] and given_up[1:] == [(0, 0), (0, 0)]
