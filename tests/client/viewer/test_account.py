"""Test that all the time of an inference has a name."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from gputune.client.viewer.account import account_of, total
from gputune.runtime.profiling.records import HostPart, LoggedInference
from tests.runtime.profiling.made_up import inference

TIMES = st.integers(0, 10**9)


def test_every_part_has_its_time() -> None:
    rows = dict(account_of(inference([100_000, 50_000], 7_000)).rows())
    rest = rows.pop("rest")
    assert rows == {
        "host": 5_000,
        "write": 20_000,
        "queue": 30_000,
        "kernels": 150_000,
        "gaps": 7_000,
        "device": 0,
        "wake-up": 10_000,
        "read": 15_000,
        "profiler": 0,
    }
    assert rest == 6 * 100 - 100  # behind each part, but for enqueueing, which the device's time has


@given(st.lists(TIMES, min_size=1, max_size=9), TIMES, TIMES, TIMES)
def test_the_rows_add_up_to_the_inference(kernels_ns: list[int], gap_ns: int, write_ns: int, queue_ns: int) -> None:
    accounts = [account_of(inference(kernels_ns, gap_ns, write_ns=write_ns, queue_ns=queue_ns + 1000))] * 3
    for account in (*accounts, total(accounts)):
        assert sum(ns for _, ns in account.rows()) == account.elapsed_ns
        assert account.rest_ns >= 0
    assert total(accounts).kernels_ns == 3 * sum(kernels_ns)


def test_without_timestamps_the_device_has_the_time() -> None:
    parts = [
        (HostPart.WRITE, 0, 10, 20),
        (HostPart.ENQUEUE, -1, 20, 50),
        (HostPart.WAIT, -1, 50, 90),
        (HostPart.READ, 0, 90, 95),
    ]
    whole = LoggedInference(0, 0, 1, "persistent", 5, 100, np.array(parts, np.int64), np.zeros((0, 4), np.int64))
    rows = dict(account_of(whole).rows())
    assert (rows["device"], rows["write"], rows["read"], rows["rest"]) == (70, 10, 5, 10)


def test_what_the_profiler_does_in_a_gap_is_its_own() -> None:
    one = inference([1000, 1000], 8_000)
    started = one.launches_ns()[:, 2:]
    between = (HostPart.PROFILER, -1, int(started[0, 0]) + 500, int(started[1, 0]) - 1000)
    parts = np.concatenate([one.parts, np.array([between], np.int64)])
    account = account_of(LoggedInference(**{**one.__dict__, "parts": parts}))
    assert (account.profiler_ns, account.gaps_ns, account.kernels_ns) == (7_000, 1_000, 2_000)
