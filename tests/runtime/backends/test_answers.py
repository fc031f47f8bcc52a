"""Test what backends answer about passes, buffers and their guards, on the null device."""

import zlib
from dataclasses import replace

import numpy as np
import pytest

from gputune.runtime.backends import (
    Backend,
    Batch,
    Bound,
    Bounds,
    Checked,
    Guards,
    Reference,
    Timing,
    Zone,
    open_backend,
)
from gputune.runtime.backends.answers import POISON, timing_of
from gputune.runtime.devices.discovery import NULL_REPORT, WAITING_REPORT

GUARD, SIZE = 256, 64
BOUNDS = Bounds(limit=0.5, ordinary=10.0, relative=0.1, absolute=0.0)


def guarded(null: Backend, content: bytes) -> Zone:
    whole = null.allocate(len(content) + 2 * GUARD)
    null.fill(whole, POISON)
    null.write(null.part(whole, GUARD, len(content)), content)
    return Zone(whole, GUARD, len(content))


def launch(backend: Backend, entry: str = "f") -> Bound:
    return backend.bind(backend.build("source", ""), entry, (8,), (4,), [backend.allocate(64)])


def test_a_comparison_counts_by_the_bounds_that_it_is_given(null: Backend) -> None:
    want = np.array([1.0, 2.0, 100.0, 200.0], np.float32)
    zone = guarded(null, np.array([1.5, 2.6, 109.0, 221.0], np.float32).tobytes())
    seen, beside = null.compare(zone, Reference(want, BOUNDS))
    assert (seen.wrong, seen.poisoned, seen.first, seen.maximum) == (2, 0, 1, 21.0)
    assert (np.frombuffer(seen.found, np.float32)[0], seen.guards, beside) == (np.float32(2.6), Guards(), [])
    wider = replace(BOUNDS, limit=0.7, relative=0.2)
    assert null.compare(zone, Reference(want, wider))[0].wrong == 0


def test_a_comparison_finds_what_was_never_written(null: Backend) -> None:
    zone = guarded(null, b"\xff" * 8)
    seen, _ = null.compare(zone, Reference(np.array([1.0, np.nan], np.float32), BOUNDS))
    assert (seen.wrong, seen.poisoned, seen.maximum) == (2, 2, None)


def test_one_call_answers_for_an_output_and_for_what_is_beside_it(null: Backend) -> None:
    output, other = guarded(null, bytes(SIZE)), guarded(null, b"kept")
    for whole, places in ((output.buffer, (GUARD - 3, GUARD - 9)), (other.buffer, (GUARD + 6,))):
        whole.handle[list(places)] = 1
    want = Reference(np.zeros(SIZE, np.uint8), BOUNDS)
    seen, beside = null.compare(output, want, [other, other._replace(summed=False)])
    assert (seen.wrong, seen.guards) == (0, Guards(before=2, before_distance=2))
    damaged = Guards(after=1, after_distance=2)
    assert beside == [Checked(zlib.crc32(b"kept"), damaged), Checked(0, damaged)]
    assert null.checksum([other]) == beside[:1]


class Steps:
    """Writes down what a pass does; launches take these times."""

    time_pass = Backend.time_pass

    def __init__(self, *times_ns: int) -> None:
        self.times_ns, self.done = list(times_ns), list[object]()

    def flush_caches(self, nbytes: int | None = None) -> None:
        self.done.append(nbytes)

    def time(self, bound: Bound, launches: int) -> Timing:
        self.done.append((bound.kernel, launches))
        return Timing(launches, self.times_ns.pop(0), 1)


def test_a_pass_runs_kernels_in_their_order_with_evictions_between() -> None:
    first, other = (Bound(name, (1,), (1,), {}) for name in "ab")
    steps = Steps(1, 2, 3)
    batches = [Batch(first, 3), Batch(other, evict_bytes=64), Batch(first, evict_bytes=0)]
    assert [timing.event_ns for timing in steps.time_pass(batches)] == [1, 2, 3]  # type: ignore[misc]
    assert steps.done == [("a", 3), 64, ("b", 1), None, ("a", 1)]


@pytest.mark.parametrize(("times_ns", "batches"), [((4, 6, 1), 2), ((4, 5, 1, 1), 3), ((4, 0, 9), 2), ((-1, 9), 1)])
def test_a_pass_ends_when_it_is_enough_or_the_clock_says_nothing(times_ns: tuple[int, ...], batches: int) -> None:
    steps = Steps(*times_ns)
    timings = steps.time_pass([Batch(Bound("a", (1,), (1,), {}))] * 9, enough_ns=10)  # type: ignore[misc]
    assert len(timings) == batches


@pytest.mark.parametrize("report", [NULL_REPORT, WAITING_REPORT])
def test_a_pass_has_four_times_of_each_launch(report: object) -> None:
    backend = open_backend(report)  # type: ignore[arg-type]
    (timing,) = backend.time_pass([Batch(launch(backend), 3)])
    assert timing.times.shape == (3, 4) and (np.diff(timing.times, axis=1) >= 0).all()
    assert (timing.times[:, 3] - timing.times[:, 2]).sum() == timing.event_ns


def test_a_timing_is_that_of_launches_with_all_their_kernels() -> None:
    times = np.array([[0, 0, start, end] for start, end in [(0, 5), (5, 6), (6, 9), (9, 10), (10, 11), (11, 12)]])
    found = timing_of(times, 3, 20)
    assert found == Timing(3, 12, 20, quartile_ns=2) and found.times is times
    times[2, 3] = 0
    assert timing_of(times, 3, 20) == Timing(3, 0, 20), "a clock that runs backwards says nothing"


def test_the_state_of_the_devices_machine_is_the_backends_to_tell(null: Backend) -> None:
    assert null.state()["processors"] > 0
