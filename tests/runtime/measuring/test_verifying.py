"""Test what a verification asks of a backend, and what it makes of the answer, on the null device."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gputune.core.batches import Profiled
from gputune.core.launches import Launch, Variant
from gputune.runtime.backends import Backend, Bound, ProgramCache, Timing
from tests.variants import measure_on, numbered

SIZE = 64
X, SCRATCH = 0, 2
"""Places of arguments."""


def run(backend: Backend) -> Profiled:
    main = Launch("source", "f", "", (SIZE,), (8,), ("x", "output", "s"))
    values = np.arange(SIZE, dtype=np.float32)
    asked = numbered([Variant({}, (), main, {}, scratch={"s": SIZE})])
    x, reference = backend.upload(values), backend.upload(values)
    return measure_on(ProgramCache(backend), asked, {"x": x}, reference, harvest=False)


def test_a_verification_asks_once(null: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def noted(name: str) -> Callable[..., Any]:
        method = getattr(null, name)

        def call(*arguments: Any) -> Any:
            asked.append(name)
            return method(*arguments)

        return call

    for name in ("compare", "checksum", "first_launch"):
        monkeypatch.setattr(null, name, noted(name))
    assert run(null).trials[0].status == "ok"
    once = ["first_launch", "compare", "checksum"]  # the last is a part of the comparison
    assert asked == [*3 * ["checksum"], *once, "checksum", *once], "filled, verified, seen intact and verified again"


@pytest.mark.parametrize(
    ("place", "at", "words"),
    [
        (SCRATCH, SIZE + 3, "'s': wrote outside its buffer: 1 bytes after the buffer, the first one at distance 3"),
        (X, -2, "'x': wrote outside its buffer: 1 bytes before the buffer, the last one at distance 1"),
        (X, 0, "'x': wrote to a buffer that is only to be read"),
    ],
)
def test_damage_is_found_and_named(
    null: Backend, monkeypatch: pytest.MonkeyPatch, place: int, at: int, words: str
) -> None:
    launch = null.first_launch

    def damaging(bound: Bound, started: Callable[[], None]) -> Timing:
        whole = bound.held[place].parent
        assert whole is not None
        whole.handle[(whole.nbytes - bound.held[place].nbytes) // 2 + at] = 7
        return launch(bound, started)

    monkeypatch.setattr(null, "first_launch", damaging)
    measured = run(null)
    assert (measured.trials[0].status, measured.trials[0].message) == ("correctness", words)
    assert measured.state["damaged"] == {"times": 1.0}
