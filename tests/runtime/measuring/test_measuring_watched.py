"""Test what a watcher hears while a batch is measured, the use of a baseline, and giving up a batch."""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from gputune.core.batches import Profiled
from gputune.core.errors import BuildFailed, LaunchFailed
from gputune.core.launches import Launch, Trial, Variant, Work
from gputune.runtime.backends import Backend, Bound, ProgramCache, Timing, open_backend
from gputune.runtime.devices.discovery import NULL_REPORT
from gputune.runtime.measuring.launching import compile_variant, execute
from gputune.runtime.measuring.timing import WARM_UP_FACTOR
from gputune.runtime.measuring.watcher import Cancelled, Step
from tests.variants import baseline_beside, measure_on, numbered

SIZE = 64


def launch(tile: int, *arguments: str) -> Launch:
    return Launch("source", "f", f"-DTILE={tile}", (SIZE,), (8,), arguments or ("x", "output"))


def variant(tile: int) -> Variant:
    return Variant({"tile": tile}, (), launch(tile), {})


@dataclass
class Notes:
    """A watcher that writes everything down and cancels at a step."""

    steps: list[tuple[Step, int | None, float]] = field(default_factory=list)
    told: list[tuple[int, str]] = field(default_factory=list)
    ways: list[int] = field(default_factory=list)
    cancel_at: tuple[Step, int] | None = None
    cancelled: bool = False

    def step(self, step: Step, variant: int | None, expected_ns: float) -> None:
        self.steps.append((step, variant, expected_ns))
        self.cancelled |= (step, variant) == self.cancel_at

    def verified(self, variant: int, trial: Trial) -> None:
        assert trial.samples_ns == () and not any(step == "measuring" for step, _, _ in self.steps)
        self.told.append((variant, trial.status))

    def failed(self, variant: int, trial: Trial) -> None:
        self.told.append((variant, trial.status))

    def yield_device(self) -> None:
        assert not any(step == "measuring" for step, _, _ in self.steps)
        self.ways.append(len(self.told))

    def of(self, variant: int | None) -> list[Step]:
        return [step for step, who, _ in self.steps if who == variant]


def run(
    backend: Backend,
    notes: Notes,
    variants: Sequence[Variant],
    baseline: Variant | None = None,
    programs: ProgramCache | None = None,
    **fields: Any,
) -> Profiled:
    values = np.arange(SIZE, dtype=np.float32)
    buffers, reference = {"x": backend.upload(values)}, backend.upload(values)
    variants = numbered(variants)
    fields |= {"baseline": baseline_beside(variants, baseline), "work": Work(10**6, 512)}
    return measure_on(programs or ProgramCache(backend), variants, buffers, reference, notes, **fields)


def test_every_step_is_announced_with_its_variant(null: Backend) -> None:
    notes = Notes()
    packed = Variant({}, (launch(9, "x", "p"),), launch(2, "p", "output"), {"p": 4 * SIZE})
    measured = run(null, notes, [variant(1), packed])
    assert notes.of(None) == ["preparing"]
    proof: list[Step] = ["building", "starting", "launching", "checking"]
    again: list[Step] = ["checking", "starting", "launching", "checking", "building"]
    samples = [len(trial.samples_ns) for trial in measured.trials]
    fastest = min((0, 1), key=lambda index: measured.trials[index].median_ns)
    assert measured.best == fastest
    for index, before in ((0, proof), (1, ["building", "starting", "launching", *proof])):
        warm_up, last = (["measuring"], again) if index == fastest else ([], [])
        assert notes.of(index) == [*before, *warm_up, *["measuring"] * samples[index], *last]
    assert notes.told == [(0, "ok"), (1, "ok")]


def test_what_a_launch_should_take_is_the_fastest_that_is_known(null: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"-DTILE=0": 500, "-DTILE=1": 90, "-DTILE=2": 200, "-DTILE=3": 300}
    bind = null.bind

    def timed(*arguments: object) -> Bound:
        bound = bind(*arguments)  # type: ignore[arg-type]
        bound.kernel = times[options[-1]]
        return bound

    options: list[str] = []
    program_for = ProgramCache.program_for

    def noted(programs: ProgramCache, launch: Launch, *how: bool) -> object:
        options.append(launch.options)
        return program_for(programs, launch, *how)

    monkeypatch.setattr(null, "bind", timed)
    monkeypatch.setattr(ProgramCache, "program_for", noted)

    def expected(best_ns: float, baseline: Variant | None = None) -> list[tuple[int | None, float]]:
        notes = Notes()
        run(null, notes, [variant(tile) for tile in range(4)], best_ns=best_ns, baseline=baseline)
        measuring = [step for step, _, _ in notes.steps].index("measuring")
        return [(who, ns) for step, who, ns in notes.steps[:measuring] if step == "launching"]

    assert expected(0.0) == [(0, 0.0), (1, 500), (2, 90), (3, 90)]
    assert expected(100.0) == [(0, 100.0), (1, 100.0), (2, 90), (3, 90)]
    # the baseline is known to end, and comes first because the others' limits follow from it
    assert expected(0.0, variant(2)) == [(2, 0.0), (0, 200), (1, 200), (3, 90)]
    assert expected(100.0, variant(0)) == [(0, 0.0), (1, 100), (2, 90), (3, 90)]


def test_what_a_sample_should_take_is_its_least_duration_or_one_launch(null: Backend) -> None:
    notes = Notes()
    measured = run(null, notes, [variant(1)], samples=3, sample_ns=5_000, warm_up_ns=7_000)
    (launch_ns,) = {*measured.trials[0].samples_ns}
    lengths = [ns for step, _, ns in notes.steps if step == "measuring"]
    assert lengths == [WARM_UP_FACTOR * 7_000.0 + launch_ns, *[max(5_000.0, launch_ns)] * 3]
    assert launch_ns > 5_000.0


def test_failures_are_told_at_once(null: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    build, time = null.build, null.time

    def refusing(source: str, options: str) -> object:
        if options == "-DTILE=1":
            raise BuildFailed("no")
        return build(source, options)

    def failing_later(bound: Bound, launches: int) -> Timing:
        if launches > 1 and bound is bounds[2]:
            raise LaunchFailed("lost")
        return time(bound, launches)

    bounds: list[Bound] = []
    first_launch = null.first_launch

    def noted(bound: Bound, started: Callable[[], None]) -> Timing:
        bounds.append(bound)
        return first_launch(bound, started)

    monkeypatch.setattr(null, "build", refusing)
    monkeypatch.setattr(null, "time", failing_later)
    monkeypatch.setattr(null, "first_launch", noted)
    notes = Notes()
    measured = run(null, notes, [variant(tile) for tile in range(4)])
    assert notes.told == [(0, "ok"), (1, "compile"), (2, "ok"), (3, "ok"), (3, "runtime")]
    assert [trial.status for trial in measured.trials] == ["ok", "compile", "ok", "runtime"]


@pytest.mark.parametrize("step", ["launching", "measuring"])
def test_a_batch_is_given_up_between_variants_and_between_samples(null: Backend, step: Step) -> None:
    notes = Notes(cancel_at=(step, 2))
    with pytest.raises(Cancelled):
        run(null, notes, [variant(tile) for tile in range(4)])
    assert notes.steps[-1][:2] in ((step, 2), ("checking", 2))
    assert [who for who, _ in notes.told] == ([0, 1, 2] if step == "launching" else [0, 1, 2, 3])


def test_a_baseline_is_measured_and_never_wins(null: Backend) -> None:
    tiles = range(12)
    alone = run(null, Notes(), [variant(tile) for tile in tiles])
    order = sorted(tiles, key=lambda tile: alone.trials[tile].median_ns)
    others = [variant(tile) for tile in order[1:]]
    measured = run(null, Notes(), others, baseline=variant(order[0]))
    assert measured.best == 0 and len(measured.trials) == 11
    assert measured.baseline is not None and measured.baseline.median_ns < measured.trials[0].median_ns
    assert len(measured.baseline.samples_ns) == measured.baseline.measured["samples"] == 7
    assert alone.baseline is None


def test_a_baseline_that_is_a_variant_is_proven_and_raced_once(null: Backend) -> None:
    notes = Notes()
    measured = run(null, notes, [variant(tile) for tile in range(3)], baseline=variant(1))
    assert measured.baseline == measured.trials[1]
    assert [who for who, _ in notes.told] == [1, 0, 2]
    assert {who for _, who, _ in notes.steps} == {None, 0, 1, 2}


def test_a_baseline_that_fails_costs_only_itself(null: Backend) -> None:
    notes = Notes()
    broken = Variant({}, (), launch(1, "nowhere"), {})
    measured = run(null, notes, [variant(1)], baseline=broken)
    assert measured.baseline is not None and measured.baseline.status == "runtime"
    assert measured.best == 0 and notes.told == [(1, "runtime"), (0, "ok")]


def test_where_the_time_went_and_how_the_device_was(null: Backend) -> None:
    measured = run(null, Notes(), [variant(1), variant(2)])
    assert set(measured.spent_ns) == {"build", "verify", "measure"} and min(measured.spent_ns.values()) > 0
    assert set(measured.state) == {"before", "after"}


def test_compiling_and_executing_are_watched_too(null: Backend) -> None:
    notes = Notes()
    compile_variant(ProgramCache(null), variant(1), {"x": 4, "output": 4}, notes)
    assert notes.of(None) == ["building", "starting", "launching", "building"]
    notes = Notes(cancelled=True)
    with pytest.raises(Cancelled):
        execute(ProgramCache(null), [launch(1)], {}, {"x": 4, "output": 4}, notes)
    assert notes.steps == []


def test_a_prebuilt_program_is_loaded_instead_of_built(null: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    binary = null.build("source", "-DTILE=1").binary
    assert binary is not None
    programs = ProgramCache(null)
    programs.prebuilt = {("source", "-DTILE=1"): binary, ("source", "-DTILE=2"): b"of another driver"}
    built: list[str] = []
    build = null.build

    def noted(source: str, options: str) -> object:
        built.append(options)
        return build(source, options)

    monkeypatch.setattr(null, "build", noted)
    measured = run(null, Notes(), [variant(tile) for tile in range(3)], programs=programs)
    assert {trial.status for trial in measured.trials} == {"ok"}
    assert built == ["-DTILE=0", "-DTILE=2"]


def test_what_prepares_is_limited_by_what_works_already() -> None:
    notes, null = Notes(), open_backend(NULL_REPORT)
    packed = numbered(
        Variant({"tile": tile}, (launch(tile, "x", "w"),), launch(tile, "x", "w", "output"), {"w": 64 * tile})
        for tile in (1, 2)
    )
    buffers = {"x": null.upload(np.zeros(SIZE, np.float32))}
    reference = null.upload(np.zeros(SIZE, np.float32))
    measure_on(ProgramCache(null), packed, buffers, reference, notes, relative=0.1, absolute=0.1, work=Work(10**6, 100))
    preparing: dict[int, list[float]] = {0: [], 1: []}
    for step, number, expected_ns in notes.steps:
        if step == "launching" and number is not None:
            preparing[number].append(expected_ns)
    assert preparing[0][0] == 0 and preparing[1][0] > 0


def test_others_may_have_the_device_between_variants_and_not_in_the_race(null: Backend) -> None:
    notes = Notes()
    failing = Variant({}, (), launch(1, "absent", "output"), {})
    measured = run(null, notes, [variant(0), failing, variant(2)])
    assert [trial.status for trial in measured.trials] == ["ok", "runtime", "ok"]
    assert notes.ways == [1, 2, 3, 3]


def test_what_others_take_is_not_the_requests_time(null: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = itertools.count()
    waited_ns = 0

    class Patient(Notes):
        def yield_device(self) -> None:
            nonlocal waited_ns
            waited_ns += 10**15

    monkeypatch.setattr("time.perf_counter_ns", lambda: next(clock) + waited_ns)
    measured = run(null, Patient(), [variant(0), variant(1)])
    assert waited_ns == 3 * 10**15
    assert sum(measured.spent_ns.values()) < 10**15
