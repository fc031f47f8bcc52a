"""Test empty launches between inferences: only there, and never during an inference."""

import threading
import time
from types import SimpleNamespace

import pytest

from gputune.runtime.power import keep_warm
from gputune.runtime.power.keep_warm import KeepWarm


def test_it_works_between_inferences_only() -> None:
    launched = threading.Event()
    warm = KeepWarm(launched.set, period_us=100, longest_ms=60_000)
    for _ in range(20):
        warm.resume()
        assert launched.wait(10)
        warm.pause()
        launched.clear()
        rounds = warm.rounds
        time.sleep(0.001)
        assert (launched.is_set(), warm.rounds) == (False, rounds)
    warm.close()
    assert warm.rounds >= 20
    assert warm.cpu_ns > 0


def test_a_launch_ends_before_an_inference_begins() -> None:
    begun, released = threading.Event(), threading.Event()

    def launch() -> None:
        begun.set()
        assert released.wait(10)

    warm = KeepWarm(launch)
    warm.resume()
    assert begun.wait(10)
    threading.Timer(0.05, released.set).start()
    warm.pause()
    assert released.is_set()
    warm.close()


def test_an_error_of_a_launch_ends_it_and_stops_no_inference() -> None:
    begun = threading.Event()

    def lost() -> None:
        begun.set()
        raise RuntimeError("device lost")

    warm = KeepWarm(lost)
    warm.resume()
    assert begun.wait(10)
    warm.close()
    assert str(warm.error) == "device lost"
    warm.resume()
    warm.pause()


def test_it_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    last, launches = threading.Event(), 0
    clock = {"monotonic_ns": lambda: launches * 1_000_000, "thread_time_ns": lambda: 0, "sleep": lambda _: None}
    monkeypatch.setattr(keep_warm, "time", SimpleNamespace(**clock))

    def launch() -> None:
        nonlocal launches
        launches += 1
        if launches == 5:
            last.set()

    warm = KeepWarm(launch, longest_ms=5)
    warm.resume()
    assert last.wait(10)
    time.sleep(0.01)
    warm.close()
    assert warm.rounds == 5


def test_a_time_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="period_us is 0"):
        KeepWarm(period_us=0)
