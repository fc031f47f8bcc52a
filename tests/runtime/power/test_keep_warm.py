"""Empty launches between inferences: only there, and never beside one."""

import threading

import pytest

from gputune.runtime.power.actuators.keep_warm import KeepWarm


def test_it_works_between_inferences_only() -> None:
    launched = threading.Event()
    warm = KeepWarm(launched.set, period_us=100, longest_ms=60_000)
    for _ in range(20):
        warm.resume()
        assert launched.wait(10)
        warm.pause()
        launched.clear()
        count = warm.launches
        assert not launched.is_set()
        assert warm.launches == count
    warm.close()
    assert warm.launches >= 20
    assert warm.cpu_ns > 0


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


def test_it_ends_by_itself() -> None:
    warm = KeepWarm(longest_ms=1)
    warm.resume()
    with warm._change:
        assert warm._change.wait_for(lambda: warm.cpu_ns > 0, 10)
    warm.pause()
    warm.close()


def test_a_time_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="period_us is 0"):
        KeepWarm(period_us=0)
