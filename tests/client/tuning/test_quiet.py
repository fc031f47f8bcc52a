"""Test with made-up states when a machine is too busy to measure, how long tuning waits, and what records keep."""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from gputune.cache import PerformanceCache
from gputune.client.progress import Silent
from gputune.client.tuning.measuring.quiet import (
    CALM_S,
    LONGER_LOOK_S,
    LOOK_S,
    Load,
    LoadRecord,
    Quiet,
    between,
)
from gputune.core.batches import Profiled, ProfileKernel
from gputune.runtime.devices.load import CLOCK, IDLE, LOAD, OWN, PROCESSORS, SWITCHES
from gputune.server.protocol.messages import Progress
from tests.client.answering_target import AnsweringTarget, by_width, tune


class Machine:
    """A machine of two processors, on which other programs take a share in each of a row of seconds, the last one for
    ever; sleeping on it makes its time pass."""

    def __init__(self, *shares: float, average: float = 0.0, processors: float = 2.0) -> None:
        self.shares, self.average, self.processors = list(shares), average, processors
        self.now_s = self.idle_s = 0.0
        self.slept: list[float] = []

    def read(self) -> Mapping[str, object]:
        return {CLOCK: self.now_s, IDLE: self.idle_s, OWN: 0.0, PROCESSORS: self.processors, LOAD: self.average}

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        share = self.shares.pop(0) if len(self.shares) > 1 else self.shares[0]
        self.now_s += seconds
        self.idle_s += seconds * self.processors * (1 - share)


class Heard(Silent):
    """What was told of progress."""

    def __init__(self) -> None:
        self.total = self.done = 0

    @contextmanager
    def running(self, label: str, total: int, seconds: float | None = None) -> Iterator[None]:
        self.total = total
        yield

    def advance(self, steps: int, what: str) -> None:
        self.done += steps


@pytest.fixture(autouse=True)
def all_messages(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, logger="gputune")


def settled(machine: Machine, minutes: int | None = None, progress: Silent | None = None, **rest: Any) -> LoadRecord:
    quiet = Quiet([machine.read], progress or Silent(), minutes, sleep=machine.sleep, **rest)
    quiet.settle()
    return quiet.record


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records]


@pytest.mark.parametrize(
    ("idle", "own", "others"),
    [(2.0, 0.0, 0.0), (0.0, 0.0, 1.0), (1.0, 0.0, 0.5), (0.0, 2.0, 0.0), (0.5, 0.5, 0.5), (3.0, 0.0, 0.0)],
)
def test_others_have_what_is_neither_idle_nor_ones_own(idle: float, own: float, others: float) -> None:
    before = {CLOCK: 5.0, IDLE: 7.0, OWN: 1.0, PROCESSORS: 2.0, LOAD: 9.0}
    after = {CLOCK: 6.0, IDLE: 7.0 + idle, OWN: 1.0 + own, PROCESSORS: 2.0, LOAD: 9.5}
    assert between(before, after) == Load(2.0, 9.5, others)


def test_processors_beyond_those_granted_may_be_anybodys() -> None:
    """Of four, each with an idle half, one and a half are granted, and they are free."""
    before, after = {CLOCK: 0.0, IDLE: 0.0, PROCESSORS: 1.5}, {CLOCK: 1.0, IDLE: 2.0, PROCESSORS: 1.5}
    assert between(before, after).others == 0


def test_a_device_that_is_no_cpu_needs_one_processor() -> None:
    before, after = {CLOCK: 0.0, IDLE: 0.0, PROCESSORS: 8.0}, {CLOCK: 1.0, IDLE: 1.5, PROCESSORS: 8.0}
    assert between(before, after, whole=True).busy
    assert not between(before, after, whole=False).busy
    assert between(before, {**after, IDLE: 0.25}, whole=False).others == 0.75


@pytest.mark.parametrize(("average", "busy"), [(2.4, False), (2.6, True), (13.0, True)])
def test_without_idle_time_the_average_decides_less_what_may_be_ones_own(average: float, busy: bool) -> None:
    found = between({}, {PROCESSORS: 2, LOAD: average})
    assert found.busy is busy
    assert found.others is not None and found.others <= 1


@pytest.mark.parametrize("after", [{}, {LOAD: "x", PROCESSORS: None, CLOCK: -1.0}, {LOAD: float("nan")}, {LOAD: 99}])
def test_a_server_that_does_not_say_is_not_called_busy(after: dict[str, object]) -> None:
    assert not between({}, after).busy
    assert not between(after, after).busy


def test_nothing_is_told_of_a_quiet_machine(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine(0.2, average=5.0)
    assert not settled(machine).busy
    assert [level for level, _ in told(caplog)] == ["DEBUG"]
    assert machine.slept == [LOOK_S]


def test_a_busy_machine_is_told_of_with_what_it_means(caplog: pytest.LogCaptureFixture) -> None:
    machine = Machine(1.0, average=13.4)
    assert settled(machine).busy
    assert told(caplog) == [
        (
            "WARNING",
            "load 13.4 on 2 processors: other programs take 100% of the time, so measured times are unreliable; "
            "--wait_for_quiet 10 waits for up to 10 minutes until they end",
        )
    ]
    assert machine.slept == [LOOK_S, LONGER_LOOK_S]


def test_what_lasts_a_moment_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    assert not settled(Machine(1.0, 0.1)).busy
    assert [level for level, _ in told(caplog)] == ["DEBUG"]


def test_the_busiest_of_several_machines_counts() -> None:
    busy, idle = Machine(0.9, average=3.0), Machine(0.0, average=4.0)

    def sleep(seconds: float) -> None:
        busy.sleep(seconds)
        idle.sleep(seconds)

    quiet = Quiet([idle.read, busy.read, idle.read], Silent(), sleep=sleep)
    quiet.settle()
    assert quiet.record.to_dict()["others"] == 0.9


def test_waiting_ends_when_the_machine_is_quiet(caplog: pytest.LogCaptureFixture) -> None:
    machine, progress = Machine(1.0, 1.0, 0.9, 0.6, 0.1, 1.0, average=8.0), Heard()
    assert settled(machine, 10, progress).to_dict()["others"] == 0.1
    assert machine.slept == [LOOK_S, LONGER_LOOK_S, *[CALM_S] * 3]
    assert (progress.total, progress.done) == (600, 15)
    assert [level for level, _ in told(caplog)] == ["INFO", "INFO"]
    assert "waited for 0.2 minutes; the machine is quiet" in caplog.text


def test_waiting_ends_with_a_warning_when_time_is_up(caplog: pytest.LogCaptureFixture) -> None:
    machine, progress = Machine(1.0, average=8.0), Heard()
    assert settled(machine, 1, progress).busy
    assert sum(machine.slept[2:]) == progress.done == 60
    assert [level for level, _ in told(caplog)] == ["INFO", "WARNING"]
    assert "waited for 1.0 minutes, and the machine was busy all the time: load 8.0 on 2 processors" in caplog.text


def test_an_interrupt_ends_the_waiting() -> None:
    machine = Machine(1.0)

    def interrupted(seconds: float) -> None:
        if seconds == CALM_S:
            raise KeyboardInterrupt
        machine.sleep(seconds)

    with pytest.raises(KeyboardInterrupt):
        Quiet([machine.read], Silent(), 10, sleep=interrupted).settle()


def test_a_record_holds_the_load_from_begin_to_end() -> None:
    record = LoadRecord()
    record.begin(Load(2.0, 13.4, 0.97))
    for average, switches in ((12.0, 100.0), (14.0, 50.0), (9.0, -400.0)):
        record.hear({SWITCHES: 500.0}, {SWITCHES: 500.0 + switches, LOAD: average})
    assert record.to_dict() == {
        "processors": 2.0,
        "begin": 13.4,
        "median": 12.7,
        "end": 9.0,
        "others": 0.97,
        "busy": True,
        "involuntary_switches": 150,
    }
    assert record.words == "load 12.7 on 2 processors"


def test_a_record_of_a_system_that_counts_nothing_holds_nothing() -> None:
    record = LoadRecord()
    assert set(record.to_dict().values()) == {None, False}
    record.begin(between({}, {}))
    record.hear({}, {})
    assert set(record.to_dict().values()) == {None, False}
    assert record.advice(True) == ""


@pytest.mark.parametrize(("average", "busy"), [(3.9, False), (4.1, True)])
def test_a_machine_that_becomes_busy_is_told_from_ones_own_work(average: float, busy: bool) -> None:
    record = LoadRecord()
    record.begin(Load(2.0, 0.5, 0.0))
    for _ in range(3):
        record.hear({}, {LOAD: average})
    assert record.busy is busy
    assert bool(record.advice(True)) is busy


def test_advice_is_given_only_when_nothing_was_certain_and_the_machine_was_busy() -> None:
    record = LoadRecord()
    record.begin(Load(2.0, 13.4, 0.97))
    assert record.advice(True) == (
        "nothing was certain: the machine was busy (load 13.4 on 2 processors); run the same command again when it is "
        "quieter; it continues from here"
    )
    assert record.advice(False) == ""


def test_one_looks_once_before_measuring_and_again_at_the_end() -> None:
    machine = Machine(1.0, average=9.0)
    quiet = Quiet([machine.read], Silent(), sleep=machine.sleep)
    quiet.end()
    assert machine.slept == [] and quiet.record.to_dict()["end"] is None, "nothing was measured"
    quiet.settle()
    quiet.settle()
    assert machine.slept == [LOOK_S, LONGER_LOOK_S]
    machine.average = 4.0
    quiet.end()
    record = quiet.record.to_dict()
    assert (record["begin"], record["end"], record["busy"]) == (9.0, 4.0, True)


def test_no_machines_are_quiet() -> None:
    quiet = Quiet([], Silent(), 10)
    quiet.settle()
    quiet.end()
    assert not quiet.record.busy


@pytest.mark.parametrize("state", [{}, {"before": 1, "after": 2}, {"before": {SWITCHES: 1.0}}])
def test_a_batch_that_says_nothing_of_the_load_changes_nothing(state: Mapping[str, object]) -> None:
    record = LoadRecord()
    record.hear_batch(state)
    assert record.to_dict()["involuntary_switches"] is None


def test_a_tuner_hears_the_load_of_every_batch(cache: PerformanceCache) -> None:
    class Busy(AnsweringTarget):
        def measure_kernel(self, request: ProfileKernel, on_progress: Callable[[Progress], None]) -> Profiled:
            number = len(self.requests)
            state = {"before": {SWITCHES: 10.0 * number}, "after": {SWITCHES: 10.0 * number + 3, LOAD: 8.0}}
            return replace(super().measure_kernel(request, on_progress), state=state)

    target, record = Busy(by_width), LoadRecord()
    tune(target, cache, load=record)
    assert record.to_dict()["involuntary_switches"] == 3 * len(target.requests)
    assert record.to_dict()["median"] == 8.0


@pytest.mark.parametrize(("gone_s", "slept_s"), [(5.0, 0.0), (LOOK_S / 4, 0.75 * LOOK_S)])
def test_a_process_that_measures_itself_looks_back_at_what_it_did(gone_s: float, slept_s: float) -> None:
    """Its own work since then is not others'; what it measures later counts as its own switches."""
    machine = Machine(0.0)
    since = {**machine.read(), OWN: 0.0, SWITCHES: 0.0}
    own, switches = 0.0, 7.0

    def read() -> Mapping[str, object]:
        return {**machine.read(), OWN: own, SWITCHES: switches}

    machine.now_s, own = gone_s, 2 * gone_s
    quiet = Quiet([read], Silent(), since=since, sleep=machine.sleep)
    quiet.settle()
    assert machine.slept == [pytest.approx(slept_s)]
    switches = 10.0
    quiet.end()
    record = quiet.record.to_dict()
    assert (record["others"], record["involuntary_switches"]) == (0.0, 3)


@pytest.mark.parametrize("value", [10**400, True, -1.0, float("nan"), "3", None])
def test_what_a_target_sends_in_place_of_a_load_is_no_load(value: object) -> None:
    """A number that no float holds once ended the generation."""
    record = LoadRecord()
    record.hear_batch({"before": {LOAD: value, SWITCHES: value}, "after": {LOAD: value, SWITCHES: value}})
    assert record.to_dict()["median"] is None
