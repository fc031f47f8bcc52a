"""Test marks inside persistent kernels: from ticks of an unknown clock to the device's clock."""

from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gputune.runtime.backends.null import NullBackend
from gputune.runtime.profiling.marks import MarkedInferences
from gputune.runtime.profiling.records import STARTED, LoggedInference, MarkedInference, Times
from tests.runtime.profiling import made_up

KERNELS_NS = [60_000, 8_000]  # a persistent kernel that stands for three launches, and a plain launch
INSIDE_NS = np.array([[0, 20_000], [21_000, 21_400], [22_000, 50_000]], np.int64)


class Ticking:
    """Gives marks of inferences in turn, or says that they were given up."""

    def __init__(self, marks: list[Times | None]) -> None:
        self._marks = marks

    def ready(self) -> list[object]:
        return []

    def take(self) -> list[Times | None] | None:
        ticks = self._marks.pop(0)
        return None if ticks is None else [ticks, None]


def timed(count: int) -> list[LoggedInference]:
    """Inferences with the columns of level detailed."""
    return [replace(one, launches=one.launches[:, STARTED:]) for one in made_up.inferences(count, KERNELS_NS)]


def recorded(inferences: list[LoggedInference], ticks: list[Times | None]) -> list[MarkedInference]:
    marked = MarkedInferences(NullBackend(made_up.device()), Ticking(ticks))  # type: ignore[arg-type]
    for one in inferences:
        marked._keep(one)
    return list(marked.of_graph(3))


@given(
    st.floats(0.001, 40.0),
    st.integers(0, 1 << 50),
    st.lists(st.integers(0, 9_900), min_size=1, max_size=20),
)
def test_whatever_a_tick_is_launches_lie_where_they_ran(
    ticks_per_ns: float, first_tick: int, late_ns: list[int]
) -> None:
    """The first group begins so much later than its kernel; the last one ends 100 ns or more before it."""
    inferences = timed(len(late_ns))
    zero_ns = int(inferences[0].launches[0, 0])
    truth = [one.launches[0, 0] + late + INSIDE_NS for one, late in zip(inferences, late_ns, strict=True)]
    ticks = [np.rint((row - zero_ns) * ticks_per_ns).astype(np.int64) + first_tick for row in truth]
    found = recorded(inferences, list(ticks))
    assert [(one.graph, one.form, one.number) for one in found] == [(3, "persistent", n) for n in range(len(found))]
    for one, before, want in zip(found, inferences, truth, strict=True):
        assert one.clock is not None and before.clock is not None
        rounding_ns = 2 + 2 / ticks_per_ns
        off_ns = np.abs(one.launches[:3] - want).max()
        assert off_ns <= one.clock.bound_ns - before.clock.bound_ns + rounding_ns
        assert (one.launches[3] == before.launches[1]).all()
        assert one.launches[0, 0] >= before.launches[0, 0] - rounding_ns
        assert one.launches[2, 1] <= before.launches[0, 1] + rounding_ns


def test_what_was_given_up_is_left_out() -> None:
    first, second = timed(2)
    assert [one.number for one in recorded([first, second], [None, 5 * INSIDE_NS + 1])] == [1]
    assert recorded([first], [None]) == []


def test_nothing_ends_before_it_begins_whatever_processors_clocks_say() -> None:
    (one,) = timed(1)
    ticks = 5 * INSIDE_NS + 1
    ticks[1] = ticks[1, ::-1]
    (found,) = recorded([one], [ticks])
    assert (found.launches[:, 0] <= found.launches[:, 1]).all()
    assert len(made_up.read(made_up.written([made_up.graph("abcd")] * 4, [found])).marked) == 1
