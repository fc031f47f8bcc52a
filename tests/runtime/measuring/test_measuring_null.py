"""Test measuring on the null device: the same times everywhere, and the rules of measuring, which need no hardware."""

import gc
import math
import subprocess
import sys
import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from gputune.core.batches import Profiled
from gputune.core.errors import InvalidLaunch, LaunchFailed, LimitExceeded
from gputune.core.launches import Launch, Trial, Variant, Work
from gputune.runtime.backends import Backend, Batch, Bound, Buffer, ProgramCache, Timing, open_backend
from gputune.runtime.devices.discovery import NULL_REPORT
from gputune.runtime.measuring.launching import execute
from gputune.runtime.measuring.measuring import measure
from gputune.runtime.measuring.timing import Protocol, Runner, how_measured, sample, sample_all, warm_up
from gputune.runtime.measuring.verification import guarded, mismatch
from tests.variants import EXACTLY, measure_on, numbered

SIZE = 64
A_MICROSECOND = Protocol(sample_ns=1_000)


def variant(tile: int) -> Variant:
    main = Launch("source", "f", f"-DTILE={tile}", (SIZE,), (8,), ("x", "output"))
    return Variant({"tile": tile}, (), main, {})


def run(backend: Backend, tiles: Sequence[int], flops: int = 10**6) -> Profiled:
    values = np.arange(SIZE, dtype=np.float32)
    buffers = {"x": backend.upload(values)}
    variants = numbered(map(variant, tiles))
    return measure_on(ProgramCache(backend), variants, buffers, backend.upload(values), work=Work(flops, 512))


def timeless(trial: Trial) -> Trial:
    """A trial without the host's time that was spent on it."""
    return replace(trial, measured={name: value for name, value in trial.measured.items() if name != "spent_ns"})


@pytest.mark.slow
def test_trials_are_right_and_the_same_in_every_process(null: Backend) -> None:
    measured = run(null, range(16))
    assert {trial.status for trial in measured.trials} == {"ok"}
    again = run(open_backend(NULL_REPORT), range(16))
    assert list(map(timeless, measured.trials)) == list(map(timeless, again.trials))
    assert (measured.best, measured.binary) == (again.best, again.binary)
    script = (
        "from gputune.runtime.backends import open_backend; from gputune.runtime.devices.discovery import NULL_REPORT\n"
        "b = open_backend(NULL_REPORT)\n"
        "print(b.time(b.bind(b.build('s', '-DA'), 'f', (8,), (4,), [b.allocate(4096)]), 1).event_ns)\n"
    )
    times = {subprocess.run([sys.executable, "-c", script], capture_output=True, check=True).stdout for _ in range(2)}
    assert len(times) == 1


def test_times_depend_on_configuration_and_work(null: Backend) -> None:
    medians = [trial.median_ns for trial in run(null, range(16)).trials]
    assert len(set(medians)) == 16
    best = run(null, range(16)).best
    assert best is not None and medians[best] == min(medians)
    heavy = [trial.median_ns for trial in run(null, range(16), flops=10**8).trials]
    assert all(more > 2 * less for more, less in zip(heavy, medians, strict=True))


def test_the_best_and_the_first_get_samples_until_the_order_is_settled(null: Backend) -> None:
    trials = run(null, range(32)).trials
    counts = [len(trial.samples_ns) for trial in trials]
    ranked = sorted(range(32), key=lambda index: trials[index].median_ns)
    assert counts[0] == counts[ranked[0]] == 7
    assert {index for index in range(32) if counts[index] > 1} == {0, *ranked[:8]}
    stopped = {index: trials[index].measured["stopped"] for index in range(32)}
    assert {stopped[index] for index in range(32) if counts[index] < 7} == {"slower"}
    assert {stopped[index] for index in range(32) if counts[index] == 7} == {"settled"}


def test_launches_are_refused_before_they_reach_a_device(null: Backend) -> None:
    program = null.build("", "")
    for sizes, error in (
        (((8,), (3,)), InvalidLaunch),
        (((8, 8), (8,)), InvalidLaunch),
        (((0,), (1,)), InvalidLaunch),
        (((2048,), (2048,)), LimitExceeded),
        (((64, 64), (64, 64)), LimitExceeded),
    ):
        with pytest.raises(error):
            null.bind(program, "f", sizes[0], sizes[1], [])


def test_buffers_are_bounded(null: Backend) -> None:
    whole = null.allocate(512)
    for offset, nbytes in ((-128, 4), (0, 0), (384, 129), (512, 1)):
        with pytest.raises(InvalidLaunch):
            null.part(whole, offset, nbytes)
    with pytest.raises(LimitExceeded, match="aligns parts to 128"):
        null.part(whole, 64, 4)
    with pytest.raises(InvalidLaunch):
        null.allocate(0)
    with pytest.raises(LaunchFailed):
        null.write(whole, bytes(513))
    null.write(null.part(whole, 128, 4), b"abcd")
    assert bytes(null.read(whole))[128:132] == b"abcd"


def test_only_the_programs_used_last_are_kept(null: Backend) -> None:
    built: list[str] = []
    build = null.build

    def counting(source: str, options: str) -> object:
        built.append(options)
        return build(source, options)

    null.build = counting  # type: ignore[method-assign, assignment]
    programs = ProgramCache(null)
    for tile in (*range(65), 64, 1, 0):
        programs.program_for(variant(tile).main)
    assert built == [f"-DTILE={tile}" for tile in (*range(65), 0)]


def test_execute_on_null_gives_zeros(null: Backend) -> None:
    launch = Launch("", "f", "", (1,), (1,), ("x", "out"))
    assert bytes(execute(ProgramCache(null), [launch], {"x": null.upload(b"1234")}, {"out": 5})["out"]) == bytes(5)


def test_a_request_that_makes_no_sense_is_refused(null: Backend) -> None:
    four, five = null.allocate(4), null.allocate(5)
    with pytest.raises(ValueError, match="reserved"):
        measure_on(ProgramCache(null), [variant(1)], {"output": four}, four)
    with pytest.raises(ValueError, match="5 bytes"):
        measure_on(ProgramCache(null), [variant(1)], {}, five)
    other = replace(EXACTLY, variants=(variant(1),), output_bytes=4)
    with pytest.raises(ValueError, match="has 5 bytes, but output_bytes is 4"):
        measure(ProgramCache(null), other, lambda handle: five)


class Clock:
    """A backend whose launches take what the test says; the bound kernel is the function that says it."""

    time_pass = Backend.time_pass

    def time(self, bound: Bound, launches: int) -> Timing:
        event_ns = bound.kernel(launches)
        return Timing(launches, event_ns, event_ns + 100)


def runner(index: int, time_ns: Callable[[int], int], estimate_ns: float) -> Runner:
    return Runner(index, Bound(time_ns, (1,), (1,), {}), estimate_ns)


def test_a_sample_lasts_long_enough_even_when_the_first_launch_was_slow() -> None:
    clock, one = Clock(), runner(0, lambda launches: 10 * launches, estimate_ns=5_000)
    sample(clock, one, A_MICROSECOND)  # type: ignore[arg-type]
    assert one.samples_ns == [10] and one.launches >= 100 and one.estimate_ns == 10


@pytest.mark.parametrize("event_ns", [0, -50])
def test_where_the_devices_clock_fails_the_hosts_is_taken(event_ns: int) -> None:
    class Clocks:
        def time(self, bound: Bound, launches: int) -> Timing:
            return Timing(launches, bound.kernel(launches), 30 * launches)

    fails, other = runner(0, lambda launches: 10 * launches, 10), runner(1, lambda launches: 20 * launches, 20)
    sample(Clocks(), fails, A_MICROSECOND)  # type: ignore[arg-type]
    assert fails.samples_ns == [10]
    fails.bound.kernel = lambda launches: event_ns
    ranked = sample_all(Clocks(), [fails, other], Protocol(samples=3, sample_ns=1_000), lambda r, e: None)  # type: ignore[arg-type]
    assert ranked == [other, fails]
    assert fails.samples_ns == [30, 30, 30, 30]
    assert [how_measured(one, Protocol())["timing"] for one in (fails, other)] == ["wall", "event"]
    assert other.samples_ns == [20, 20, 20]


def test_launches_that_take_no_time_on_any_clock_fail() -> None:
    still = runner(0, lambda launches: -100, 0)
    with pytest.raises(LaunchFailed, match="took no time"):
        sample(Clock(), still, A_MICROSECOND)  # type: ignore[arg-type]
    assert still.samples_ns == []


def test_a_first_launch_without_a_time_is_no_estimate(null: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(null, "time", lambda bound, launches: Timing(launches, 0, 1_000 * launches))
    trials = run(null, range(3)).trials
    assert [(trial.measured["timing"], len(trial.samples_ns), trial.median_ns) for trial in trials] == [
        ("wall", 7, 1_000)
    ] * 3


def test_warming_up_lasts_as_long_as_asked() -> None:
    total = 0

    def launch(launches: int) -> int:
        nonlocal total
        total += launches
        return 1_000 * launches

    warm_up(Clock(), Bound(launch, (1,), (1,), {}), 1e6)  # type: ignore[arg-type]
    assert 900 <= total <= 1100


def test_warming_up_asks_a_far_device_little() -> None:
    passes: list[list[int]] = []

    class Far(Clock):
        def time_pass(self, batches: Sequence[Batch], enough_ns: float = math.inf) -> list[Timing]:
            passes.append([batch.launches for batch in batches])
            return Backend.time_pass(self, batches, enough_ns)  # type: ignore[arg-type]

    warm_up(Far(), Bound(lambda launches: 1_000 * launches, (1,), (1,), {}), 8e6)  # type: ignore[arg-type]
    assert passes[:3] == [[1], [4], [16]]
    assert max(passes[-1]) == 256 and 900 < sum(passes[-1]) <= 1000
    assert len(passes) < 14  # 8 blocks of a thousand launches


def test_warming_up_goes_on_with_the_next_fastest(null: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[Bound] = []

    def fail_once(backend: Backend, bound: Bound, warm_up_ns: float, go_on: object) -> bool:
        tried.append(bound)
        if len(tried) == 1:
            raise LaunchFailed("lost")
        return True

    monkeypatch.setattr("gputune.runtime.measuring.measuring.warm_up", fail_once)
    measured = run(null, range(3))
    assert len(tried) == 2 and tried[0].kernel < tried[1].kernel
    assert sorted(trial.status for trial in measured.trials) == ["ok", "ok", "runtime"]
    assert measured.best is not None


def test_what_changed_during_the_race_does_not_fail_the_winner(null: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    def damage(backend: Backend, runners: Sequence[Runner], *others: object) -> list[Runner]:
        for buffer in runners[0].bound.buffers:
            backend.fill(buffer, 1)
        return sample_all(backend, runners, *others)  # type: ignore[arg-type]

    assert "damaged" not in run(null, range(3)).state
    monkeypatch.setattr("gputune.runtime.measuring.measuring.sample_all", damage)
    measured = run(null, range(3))
    assert measured.best is not None
    assert measured.state["damaged"] == {"times": 1.0}


def test_a_failure_in_the_race_costs_one_runner() -> None:
    def fail(launches: int) -> int:
        raise LaunchFailed("lost")

    failed: list[tuple[int, str]] = []
    runners = [runner(0, lambda n: 30 * n, 30), runner(1, fail, 10), runner(2, lambda n: 20 * n, 20)]
    protocol = Protocol(samples=4, sample_ns=100)
    ranked = sample_all(Clock(), runners, protocol, lambda r, e: failed.append((r.index, str(e))))  # type: ignore[arg-type]
    assert [one.index for one in ranked] == [2, 0]
    assert failed == [(1, "lost")]
    assert [len(one.samples_ns) for one in runners] == [4, 0, 4]


def test_a_tie_goes_to_the_earlier_variant() -> None:
    runners = [runner(index, lambda n: 20 * n, 20) for index in range(6)]
    ranked = sample_all(Clock(), runners, Protocol(), lambda r, e: None)  # type: ignore[arg-type]
    assert ranked[0].index == 0


def test_a_clock_that_slows_down_does_not_make_who_left_early_the_winner() -> None:
    launched: list[int] = []

    def slowing(launch_ns: int) -> Callable[[int], int]:
        def launch(launches: int) -> int:
            launched.append(launches)
            return launch_ns * launches * (1 if len(launched) <= 8 else 3)

        return launch

    runners = [runner(index, slowing(100 + 30 * index), 100) for index in range(8)]
    ranked = sample_all(Clock(), runners, Protocol(sample_ns=100), lambda r, e: None)  # type: ignore[arg-type]
    assert [one.index for one in ranked] == [0, 1, *range(2, 8)]
    assert ranked[0].median_ns > ranked[2].median_ns


class Enqueued:
    """Counts what is enqueued at once; every launch takes the same time."""

    time_pass = Backend.time_pass

    def __init__(self, launch_ns: int) -> None:
        self.launch_ns = launch_ns
        self.at_once: list[int] = []

    def time(self, bound: Bound, launches: int) -> Timing:
        self.at_once.append(launches)
        return Timing(launches, launches * self.launch_ns, launches * self.launch_ns)


@pytest.mark.parametrize(("launch_ns", "most"), [(1_000, 256), (1_000_000, 100), (40_000_000, 2), (10**9, 1)])
def test_little_is_enqueued_at_once(launch_ns: int, most: int) -> None:
    clock, one = Enqueued(launch_ns), runner(0, lambda launches: 0, launch_ns)
    sample(clock, one, Protocol(sample_ns=2e9))  # type: ignore[arg-type]
    assert max(clock.at_once) == most
    assert one.launches == sum(clock.at_once) == min(2 * 10**9 // launch_ns, 4096)
    clock.at_once.clear()
    warm_up(clock, one.bound, 2e9)  # type: ignore[arg-type]
    assert max(clock.at_once) == most


def order_of(baseline: Runner, runners: Sequence[Runner], samples: int = 7) -> list[int]:
    """The indices of the runners in the order in which they are sampled; the baseline never wins."""
    order: list[int] = []
    protocol = Protocol(samples=samples, sample_ns=100)
    ranked = sample_all(
        Clock(),  # type: ignore[arg-type]
        runners,
        protocol,
        lambda r, e: None,
        baseline,
        lambda r: order.append(r.index),
    )
    assert baseline in runners or baseline not in ranked
    return order


def test_passes_go_forward_and_backward_with_the_baseline_in_each() -> None:
    runners = [runner(index, lambda n, ns=20 + 10 * index: ns * n, 20) for index in range(3)]  # type: ignore[misc]
    assert order_of(runner(3, lambda n: 1_900 * n, 1_900), runners, samples=3) == [0, 1, 2, 3, 1, 0, 3, 0, 1, 3]


def test_a_baseline_is_raced_from_the_first_pass_to_the_last() -> None:
    runners = [runner(index, lambda n: 20 * n, 20) for index in range(32)]
    slow = runner(32, lambda n: 1_900 * n, 1_900)  # a variant as slow as this one would get one sample
    order = order_of(slow, runners)
    places = [place for place, index in enumerate(order) if index == 32]
    assert len(slow.samples_ns) == 7
    assert [later - earlier for earlier, later in pairwise(places)] == [9] * 6
    assert (places[0], places[-1]) == (32, len(order) - 1)


def test_a_baseline_that_takes_long_is_raced_once_a_round() -> None:
    slow = runner(2, lambda n: 2_100 * n, 2_100)
    order = order_of(slow, [runner(0, lambda n: 20 * n, 20), runner(1, lambda n: 20 * n, 20)])
    assert order == [0, 1, 2, 1, 0, 2, 0, 1, 1, 0, 2, 0, 1, 1, 0, 0, 1]


def test_a_baseline_that_is_one_of_the_runners_is_raced_to_the_end() -> None:
    runners = [runner(index, lambda n, ns=10 * (9 - index): ns * n, 90) for index in range(9)]  # type: ignore[misc]
    order = order_of(runners[1], runners)
    assert order.count(1) == 7 and order.count(2) == 1
    assert [one.stopped for one in runners] == ["slower", "all", *["slower"] * 5, "all", "all"]


def test_a_baseline_that_fails_leaves_the_race_alone() -> None:
    def fail(launches: int) -> int:
        raise LaunchFailed("lost")

    runners = [runner(0, lambda n: 20 * n, 20)]
    assert order_of(runner(1, fail, 20), runners) == [0, 1, 0, 0, 0, 0, 0, 0]


WANT = np.array([0.5, -4.0, 2.0], np.float32)


@pytest.mark.parametrize(
    ("got", "words"),
    [
        ([0.5, -4.0, 2.0], ""),
        ([0.5, -4.0, 2.04], ""),
        ([0.5, -4.0, 2.05], "1 of 3 elements are wrong, first at 2: 2.0"),
        ([np.nan, -4.0, 2.0], "first at 0: nan instead of 0.5"),
        ([0.5, -np.inf, 2.0], "first at 1: -inf instead of -4"),
    ],
)
def test_comparing_with_the_reference(got: list[float], words: str) -> None:
    found = mismatch(np.array(got, np.float32), WANT, relative=0.01, absolute=0.001)
    assert (words in found) if words else found == ""


def test_an_infinite_reference_does_not_excuse_the_rest() -> None:
    want = np.array([np.inf, 1.0], np.float32)
    assert mismatch(want.copy(), want, 0.01, 0) == ""
    assert "first at 1" in mismatch(np.array([np.inf, 2.0], np.float32), want, 0.01, 0)
    assert "shape" in mismatch(want[:1], want, 1, 1)


def test_a_large_number_allows_the_others_no_large_errors_where_tolerances_are_coarse() -> None:
    want = np.ones(1000, np.float16)
    want[0] = 65504
    got = want.copy()
    got[1] = 21
    assert "first at 1" in mismatch(got, want, 2e-3, 0)
    got[1], got[0] = 1, 65400
    assert mismatch(got, want, 2e-3, 0) == "", "a large number is held against itself"


def test_a_nan_is_right_where_the_reference_has_one_and_it_was_computed() -> None:
    want = np.array([np.nan, 1.0, -np.inf], np.float32)
    assert mismatch(np.array([-np.nan, 1.0, -np.inf], np.float32), want, 0.01, 0) == ""
    assert "1 of 3 elements are wrong, first at 1" in mismatch(
        np.array([np.nan] * 2 + [-np.inf], np.float32), want, 1, 0
    )
    assert "first at 2" in mismatch(np.array([np.nan, 1, np.inf], np.float32), want, 1, 0)
    poison = np.full(3, 0xFFFFFFFF, np.uint32).view(np.float32)
    assert "3 of 3 elements are wrong" in mismatch(poison, want, 0.01, 0)


def test_whole_numbers_have_no_tolerance() -> None:
    want = np.array([2**62, -1], np.int64)
    assert mismatch(want.copy(), want, 1, 1) == ""
    near = np.array([2**62 + 1, -1], np.int64)  # the same number in double precision
    assert "1 of 2 elements are wrong, first at 0: 4611686018427387905" in mismatch(near, want, 1, 1)


def test_a_bool_is_zero_or_one() -> None:
    want = np.array([True, False])
    assert mismatch(want.copy(), want, 0, 0) == ""
    assert "first at 0: 255 instead of 1" in mismatch(np.array([255, 0], np.uint8).view(bool), want, 0, 0)


def test_outputs_are_read_as_their_type(null: Backend) -> None:
    values = null.upload(np.arange(SIZE, dtype=np.int64))
    for dtype, words in (("int64", ""), ("complex64", "dtype 'complex64'")):
        refused = pytest.raises(ValueError, match=words) if words else nullcontext()
        with refused:
            assert measure_on(ProgramCache(null), [variant(1)], {"x": values}, values, dtype=dtype).best == 0


def test_guards_notice_writes_on_both_sides(null: Backend) -> None:
    buffer = guarded(null, 10)
    assert buffer.read(null)[1] == ""
    null.fill(buffer.inner, 0)
    assert buffer.read(null)[1] == ""
    buffer.whole.handle[buffer.guard_bytes - 3] = 1
    buffer.whole.handle[buffer.guard_bytes + 10 : buffer.guard_bytes + 12] = 1
    damage = buffer.read(null)[1]
    assert "1 bytes before the buffer, the last one at distance 2" in damage
    assert "2 bytes after the buffer, the first one at distance 0" in damage


@pytest.mark.parametrize(("room", "guard"), [(1 << 40, 4 << 20), (10 << 20, (5 << 20) - 256), (1 << 10, 64 << 10)])
def test_wide_guards_take_what_the_device_allocates_at_most(
    null: Backend, monkeypatch: pytest.MonkeyPatch, room: int, guard: int
) -> None:
    assert guarded(null, 1 << 10, wide=True).guard_bytes == 64 << 10  # nothing is written there
    monkeypatch.setattr(type(null), "computes", True)
    limit = max(room, (1 << 10) + 2 * (64 << 10))
    null.identity = replace(null.identity, max_allocation_bytes=limit)
    buffer = guarded(null, 1 << 10, wide=True)
    assert buffer.guard_bytes == min(guard, 4 << 20)
    assert buffer.whole.nbytes <= limit


def test_a_trial_without_samples_is_infinitely_slow_for_ranking() -> None:
    assert Trial("compile").median_ns == float("inf")


def test_a_batch_lets_go_of_its_device_memory_at_once(null: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[weakref.ref[Buffer]] = []
    allocate = null.allocate

    def remembered(nbytes: int) -> Buffer:
        buffer = allocate(nbytes)
        made.append(weakref.ref(buffer))
        return buffer

    monkeypatch.setattr(null, "allocate", remembered)
    gc.disable()  # a garbage collector may come much later
    try:
        run(null, range(4))
        assert made and not [reference for reference in made if reference() is not None]
    finally:
        gc.enable()
