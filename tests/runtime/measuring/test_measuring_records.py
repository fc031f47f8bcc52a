"""Test what a batch says about how it was measured: cold, equal code, where the time went, whose binary."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from gputune.core.batches import Profiled
from gputune.core.errors import BuildFailed, LaunchFailed
from gputune.core.launches import Launch, Variant, Work
from gputune.runtime.backends import Backend, Bound, ProgramCache, Timing
from gputune.runtime.measuring.timing import COLD_LAUNCHES, WARM_UP_FACTOR, Protocol, Runner, sample, warm_up
from tests.variants import baseline_beside, measure_on, numbered

SIZE = 64


def variant(tile: int, local: int = 8, packed: int = 0) -> Variant:
    arguments = ("x", "w", "output") if packed else ("x", "output")
    prepare = (Launch("pack", "p", f"-DP={packed}", (SIZE,), (8,), ("x", "w")),) if packed else ()
    main = Launch("source", "f", f"-DTILE={tile}", (SIZE,), (local,), arguments)
    return Variant({"tile": tile}, prepare, main, {"w": 4 * packed} if packed else {})


def run(backend: Backend, *variants: Variant, baseline: Variant | None = None, **fields: Any) -> Profiled:
    values = np.arange(SIZE, dtype=np.float32)
    variants = numbered(variants)
    fields |= {"work": Work(10**6, 512), "baseline": baseline_beside(variants, baseline)}
    x, reference = backend.upload(values), backend.upload(values)
    return measure_on(ProgramCache(backend), variants, {"x": x}, reference, **fields)


@pytest.fixture
def same_code(null: Backend, monkeypatch: pytest.MonkeyPatch) -> Backend:
    """A device on which all odd tiles are the same code, and even ones are not known."""
    bind = null.bind

    def noted(program: Any, *arguments: Any) -> Bound:
        bound = bind(program, *arguments)
        tile = tiles[program.binary]
        codes[id(bound)] = "odd" if tile % 2 else None
        if tile % 2:
            bound.kernel = 5_000
        kept.append(bound)
        return bound

    tiles = {null.build("source", f"-DTILE={tile}").binary: tile for tile in range(8)}
    tiles |= {null.build("pack", f"-DP={packed}").binary: 0 for packed in (1, 2)}
    codes: dict[int, str | None] = {}
    kept: list[Bound] = []
    monkeypatch.setattr(null, "bind", noted)
    monkeypatch.setattr(null, "code_of", lambda bound: codes[id(bound)])
    return null


def test_variants_with_the_same_code_are_measured_once(same_code: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    timed: list[Bound] = []
    time = same_code.time

    def noted(bound: Bound, launches: int) -> Timing:
        timed.append(bound)
        return time(bound, launches)

    monkeypatch.setattr(same_code, "time", noted)
    measured = run(same_code, variant(0), variant(1), variant(2), variant(3), variant(5))
    first, *others = [measured.trials[index] for index in (1, 3, 4)]
    assert [trial.measured.get("same_as") for trial in measured.trials] == [None, None, None, 1, 1]
    assert all((one.samples_ns, one.wall_ns) == (first.samples_ns, first.wall_ns) for one in others)
    assert first.samples_ns and all(one.measured["spent_ns"]["measure"] == 0 for one in others)
    assert measured.best == 1
    once = [bound for bound in timed if timed.count(bound) == 1]
    assert len(once) == 2  # the first launch verifies each of them


def test_other_sizes_or_other_data_are_not_the_same(same_code: Backend) -> None:
    batch = (variant(1), variant(3, local=16), variant(5, packed=1), variant(7, packed=2), variant(3, packed=1))
    measured = run(same_code, *batch)
    assert [trial.measured.get("same_as") for trial in measured.trials] == [None, None, None, None, 2]


def test_a_baseline_is_the_one_that_is_measured(same_code: Backend) -> None:
    measured = run(same_code, variant(1), variant(3), baseline=variant(3))
    assert [trial.measured.get("same_as") for trial in measured.trials] == [1, None]
    measured = run(same_code, variant(1), variant(3), baseline=variant(5))
    assert [trial.measured.get("same_as") for trial in measured.trials] == [None, 0]
    assert measured.baseline is not None and measured.baseline.samples_ns


def test_who_is_the_same_as_one_that_fails_fails_too(same_code: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    time = same_code.time

    def failing(bound: Bound, launches: int) -> Timing:
        if launches > 1 and bound.kernel == 5_000:
            raise LaunchFailed("lost")
        return time(bound, launches)

    monkeypatch.setattr(same_code, "time", failing)
    measured = run(same_code, variant(1), variant(2), variant(3))
    assert [trial.status for trial in measured.trials] == ["runtime", "ok", "runtime"]
    assert measured.best == 1


def test_every_trial_says_what_was_spent_on_it(null: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    build = null.build

    def refusing(source: str, options: str) -> object:
        if options == "-DTILE=1":
            raise BuildFailed("no")
        return build(source, options)

    monkeypatch.setattr(null, "build", refusing)
    measured = run(null, variant(0), variant(1), variant(2), baseline=variant(3))
    assert measured.baseline is not None
    spent = [trial.measured["spent_ns"] for trial in (*measured.trials, measured.baseline)]
    assert all(set(one) == {"build", "verify", "measure"} for one in spent)
    assert spent[1]["build"] > 0 and spent[1]["measure"] == 0
    assert all(min(spent[index].values()) > 0 for index in (0, 2, 3))
    for purpose, whole in measured.spent_ns.items():
        assert sum(one[purpose] for one in spent) < whole


def test_a_binary_is_read_only_when_it_is_asked_for(null: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run(null, variant(1)).binary
    monkeypatch.setattr(null, "harvest", lambda program: pytest.fail("nobody wants it"))
    measured = run(null, variant(1), harvest=False)
    assert (measured.best, measured.binary) == (0, b"")


class Device:
    """Writes down what is done; each launch takes what the kernel says."""

    time_pass = Backend.time_pass

    def __init__(self) -> None:
        self.done: list[str] = []

    def flush_caches(self, nbytes: int | None = None) -> None:
        self.done.append("flush" if nbytes is None else f"{nbytes} bytes")

    def time(self, bound: Bound, launches: int) -> Timing:
        self.done.append(f"{launches} launches")
        event_ns = bound.kernel(launches)
        return Timing(launches, event_ns, abs(event_ns) + 100)


def runner(time_ns: Callable[[int], int]) -> Runner:
    return Runner(0, Bound(time_ns, (1,), (1,), {}), 100.0)


def test_a_cold_sample_flushes_the_caches_before_each_launch() -> None:
    device, one = Device(), runner(lambda launches: 400 * launches)
    sample(device, one, Protocol(sample_ns=1_000, cold=True))  # type: ignore[arg-type]
    assert device.done == ["flush", "1 launches"] * 3
    assert (one.samples_ns, one.wall_ns, one.launches) == ([400], [500], 3)
    sample(device, one, Protocol(sample_ns=1e9, cold=True))  # type: ignore[arg-type]
    assert one.launches == COLD_LAUNCHES


def test_an_evicting_sample_lets_other_data_pass_before_each_launch_and_is_the_lower_quartile_of_them() -> None:
    device, times = Device(), iter([900, 400, 300, 500, 400])
    one = runner(lambda launches: next(times))
    sample(device, one, Protocol(sample_ns=2_100, evict_bytes=1 << 20))  # type: ignore[arg-type]
    assert device.done == [f"{1 << 20} bytes", "1 launches"] * 4
    assert (one.samples_ns, one.launches) == ([400], 4)


def test_cold_launches_are_refused_where_the_devices_clock_stands_still() -> None:
    still = runner(lambda launches: 0)
    with pytest.raises(LaunchFailed, match="cold launches need the device's clock"):
        sample(Device(), still, Protocol(sample_ns=1_000, cold=True))  # type: ignore[arg-type]
    assert still.samples_ns == [] and still.timing == "event"


def test_a_cold_batch_says_so(null: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[int] = []
    monkeypatch.setattr(null, "flush_caches", lambda nbytes: flushed.append(1))
    assert run(null, variant(1)).trials[0].measured["cold"] is False and not flushed
    trial = run(null, variant(1), cold=True).trials[0]
    assert trial.measured["cold"] is True
    assert len(flushed) > len(trial.samples_ns)


def test_warming_up_goes_on_until_the_clock_is_stable() -> None:
    passed = 0

    def faster_and_faster(launches: int) -> int:
        nonlocal passed
        took = max(1_000, 3_000 - passed // 1_000) * launches
        passed += took
        return took

    one = runner(faster_and_faster)
    assert warm_up(Device(), one.bound, 1e6)  # type: ignore[arg-type]
    assert 1.9e6 < passed < 3e6


def test_warming_up_gives_up_on_a_clock_that_never_is() -> None:
    passed = 0

    def slower_and_slower(launches: int) -> int:
        nonlocal passed
        took = (1_000 + passed // 1_000) * launches
        passed += took
        return took

    one = runner(slower_and_slower)
    assert not warm_up(Device(), one.bound, 1e6)  # type: ignore[arg-type]
    assert WARM_UP_FACTOR * 1e6 * 0.9 < passed < WARM_UP_FACTOR * 1e6 * 1.2
    assert not warm_up(Device(), one.bound, 0)  # type: ignore[arg-type]
