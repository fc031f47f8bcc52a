"""Test the null device's clock, and how a lost device is recognised."""

import numpy as np
import pytest

from gputune.core.errors import LimitExceeded
from gputune.runtime.backends import open_backend
from gputune.runtime.devices.discovery import NULL_REPORT


def test_timestamps_follow_each_other_and_take_what_the_model_says() -> None:
    null = open_backend(NULL_REPORT)
    program, buffers = null.build("source", ""), [null.allocate(64)]
    one, other = (null.bind(program, entry, (8,), (4,), buffers) for entry in "ab")
    took = [null.time(bound, 1).event_ns for bound in (one, other, one)]
    clocks = [null.enqueue_timed([one, other]), null.enqueue_timed([one])]
    times = np.concatenate([clock() for clock in clocks])
    assert (times[:, 3] - times[:, 2]).tolist() == took
    assert times[0].tolist() == [0, 0, 0, took[0]]
    assert clocks[0]()[0].tolist() == times[0].tolist(), "reading them does not move the clock"
    assert times[1:, 0].tolist() == times[:-1, 3].tolist()


def test_a_device_is_lost_where_the_simplest_command_fails_or_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    null = open_backend(NULL_REPORT)
    assert not null.lost()
    with monkeypatch.context() as idle:
        idle.setattr(null, "fill", lambda buffer, pattern: None)
        assert null.lost()

    def refused(buffer: object) -> None:
        raise LimitExceeded("reading a buffer failed: clEnqueueReadBuffer failed: OUT_OF_RESOURCES")

    monkeypatch.setattr(null, "read", refused)
    assert null.lost()
