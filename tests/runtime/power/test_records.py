"""Test that the strongest of several instances' votes is in force."""

from hypothesis import given
from hypothesis import strategies as st

from gputune.runtime.power.records import NOTHING, Corner, Corners, PowerMode, Vote, strongest

CORNERS = st.builds(Corners, *[st.sampled_from(Corner)] * 3)
VOTES = st.builds(
    Vote,
    bus=CORNERS,
    core=CORNERS,
    dcvs=st.booleans(),
    sleep_latency_us=st.none() | st.integers(10, 65535),
    power_mode=st.sampled_from(PowerMode),
    high_performance=st.booleans(),
)


@given(st.lists(VOTES, max_size=4), VOTES)
def test_no_vote_is_weakened_by_another(votes: list[Vote], one: Vote) -> None:
    effective = strongest([*votes, one])
    assert effective.core.least >= one.core.least and effective.bus.most >= one.bus.most
    assert not effective.dcvs or one.dcvs
    if one.sleep_latency_us is not None:
        assert effective.sleep_latency_us is not None and effective.sleep_latency_us <= one.sleep_latency_us


@given(st.lists(VOTES, max_size=4))
def test_neither_order_nor_repetition_nor_empty_votes_matter(votes: list[Vote]) -> None:
    assert strongest(votes) == strongest([*reversed(votes), *votes, NOTHING])
    assert strongest([strongest(votes)]) == strongest(votes)


def test_corners_rise_with_their_share_of_the_frequencies() -> None:
    shares = [corner.share for corner in Corner]
    assert shares == sorted(shares) and (shares[0], shares[-1]) == (0.0, 1.0)
