"""Test that the dominant path of made-up graphs is the known path."""

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputune.client.viewer.analysis.critical_path import critical_path_of, longest_path
from gputune.client.viewer.profile import profile_of
from tests.client.viewer.made_up_plans import plan, schematic
from tests.runtime.profiling import made_up

Edges = list[tuple[int, int]]


@st.composite
def graphs(draw: st.DrawFn) -> tuple[list[int], Edges]:
    times_ns = draw(st.lists(st.integers(0, 50), min_size=1, max_size=7))
    pairs = [(a, b) for b in range(len(times_ns)) for a in range(b)]
    return times_ns, draw(st.lists(st.sampled_from(pairs), unique=True)) if pairs else []


def paths(count: int, edges: Edges) -> Iterator[list[int]]:
    """Every path from an operation that reads no other to one that no other reads."""

    def onwards(path: list[int]) -> Iterator[list[int]]:
        following = [b for a, b in edges if a == path[-1]]
        if not following:
            yield path
        for b in following:
            yield from onwards([*path, b])

    for place in range(count):
        if all(b != place for _, b in edges):
            yield from onwards([place])


def length(times_ns: Sequence[int], path: Sequence[int]) -> int:
    return sum(times_ns[place] for place in path)


@given(graphs())
def test_no_path_is_longer_and_slack_is_what_is_left_to_it(graph: tuple[list[int], Edges]) -> None:
    times_ns, edges = graph
    found = longest_path(times_ns, edges)
    every = list(paths(len(times_ns), edges))
    assert list(found.places) in every
    assert found.length_ns == length(times_ns, found.places) == max(length(times_ns, path) for path in every)
    for place, slack_ns in enumerate(found.slack_ns):
        through = max(length(times_ns, path) for path in every if place in path)
        assert slack_ns == found.length_ns - through


def test_a_branch_beside_the_path_has_slack() -> None:
    described = made_up.graph(["stem", "short", "long", "join"])
    split = plan(described, [(0, 1), (0, 2), (1, 3), (2, 3)])
    log = made_up.read(made_up.written([described], made_up.inferences(3, [1000, 300, 2000, 500])))
    [graph] = profile_of([log], schematic(split)).graphs
    path = critical_path_of(graph)
    assert path is not None
    assert path.places == (0, 2, 3)
    assert (path.length_ns, path.serial_ns) == (3500, 3800)
    assert list(path.slack_ns) == [0, 1700, 0, 0]
    assert path.share == pytest.approx(3500 / 3800)
    assert "3 of 4 operations" in path.note


def test_there_is_no_path_without_a_schematic() -> None:
    log = made_up.read(made_up.written([made_up.graph(["a"])], made_up.inferences(1, [1000])))
    assert critical_path_of(profile_of([log], None).graphs[0]) is None
