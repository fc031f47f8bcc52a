"""The null device's clock."""

from gputune.runtime.backends import Stamps, open_backend
from gputune.runtime.devices.discovery import NULL_REPORT


def test_stamps_follow_each_other_and_take_what_the_model_says() -> None:
    null = open_backend(NULL_REPORT)
    program, buffers = null.build("source", ""), [null.allocate(64)]
    one, other = (null.bind(program, entry, (8,), (4,), buffers) for entry in "ab")
    took = [null.time(bound, 1).event_ns for bound in (one, other, one)]
    clocks = [null.enqueue_timed(bound) for bound in (one, other, one)]
    stamps = [clock() for clock in clocks]
    assert [each.duration_ns for each in stamps] == took
    assert stamps[0] == Stamps(0, 0, 0, took[0]) == clocks[0](), "reading them does not move the clock"
    assert [each.queued_ns for each in stamps[1:]] == [each.ended_ns for each in stamps[:-1]]
