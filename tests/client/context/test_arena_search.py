"""Test the search for smaller arenas: plans stay right, are never worse than the quick plan, and are deterministic."""

import itertools
import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputune.client.context.memory.arena_search import Sections, search_arenas
from gputune.client.context.memory.memory_planner import Lifetime, Placement, least_bytes, plan_arenas
from gputune.client.errors import MemoryPlanError

ALIGNMENTS = st.sampled_from([1, 4, 64, 128])
STEPS = st.sampled_from([0, 40, 400])


@st.composite
def lifetimes(draw: st.DrawFn, most: int = 25, largest: int = 400) -> list[Lifetime]:
    spans = st.tuples(st.integers(1, largest), st.integers(0, 12), st.integers(0, 6))
    drawn = draw(st.lists(spans, max_size=most))
    return [Lifetime(f"t{i}", size, first, first + length) for i, (size, first, length) in enumerate(drawn)]


def rectangles(count: int, seed: int) -> list[Lifetime]:
    """A square of 10000 bytes by 10000 operations cut into tensors: a plan of 10000 bytes without any gap exists."""
    chance = random.Random(seed)
    pieces = [(0, 10_000, 0, 10_000)]
    while len(pieces) < count:
        first, last, low, high = pieces.pop(chance.randrange(len(pieces)))
        if chance.random() < 0.5 and last - first > 1:
            cut = chance.randint(first + 1, last - 1)
            pieces += [(first, cut, low, high), (cut, last, low, high)]
        elif high - low > 1:
            cut = chance.randint(low + 1, high - 1)
            pieces += [(first, last, low, cut), (first, last, cut, high)]
        else:
            pieces.append((first, last, low, high))
    return [Lifetime(str(i), high - low, first, last - 1) for i, (first, last, low, high) in enumerate(pieces)]


def check(tensors: Sequence[Lifetime], placement: Placement, alignment: int, largest: int) -> None:
    assert placement.offsets.keys() == {tensor.name for tensor in tensors}
    assert all(0 < size <= largest for size in placement.arenas)
    ends = [0] * len(placement.arenas)
    for tensor in tensors:
        arena, offset = placement.offsets[tensor.name]
        assert offset >= 0
        assert offset % alignment == 0
        ends[arena] = max(ends[arena], offset + tensor.nbytes)
    assert tuple(ends) == placement.arenas
    for one, other in itertools.combinations(tensors, 2):
        (arena, offset), (place, start) = placement.offsets[one.name], placement.offsets[other.name]
        if one.overlaps(other) and arena == place:
            assert offset >= start + other.nbytes or start >= offset + one.nbytes


@given(lifetimes(), ALIGNMENTS, st.integers(400, 1200), STEPS)
def test_plans_are_disjoint_aligned_inside_and_not_worse(
    tensors: list[Lifetime], alignment: int, largest: int, steps: int
) -> None:
    quick, placement = plan_arenas(tensors, alignment, largest), search_arenas(tensors, alignment, largest, steps)
    for plan in (quick, placement):
        check(tensors, plan, alignment, largest)
    assert placement.total_bytes <= quick.total_bytes
    assert placement.bound_bytes <= placement.total_bytes
    assert quick.bound_bytes <= quick.total_bytes


@pytest.mark.slow
@given(lifetimes(), ALIGNMENTS, st.integers(400, 1200), st.randoms(use_true_random=False))
def test_the_order_of_the_tensors_does_not_matter(
    tensors: list[Lifetime], alignment: int, largest: int, chance: random.Random
) -> None:
    shuffled = chance.sample(tensors, len(tensors))
    assert search_arenas(tensors, alignment, largest, 200) == search_arenas(shuffled, alignment, largest, 200)


def test_a_search_is_the_same_again() -> None:
    tensors = rectangles(60, seed=1)
    assert search_arenas(tensors, 1, 1 << 20, 500) == search_arenas(tensors, 1, 1 << 20, 500)


@given(lifetimes(most=5, largest=9), st.sampled_from([1, 4]), st.integers(1, 3))
def test_no_plan_is_smaller_than_the_bound(tensors: list[Lifetime], alignment: int, arenas: int) -> None:
    """Against every order in which tensors may be put on top of each other, in every choice of arenas."""
    bound = least_bytes(tensors, alignment, arenas)
    for chosen in itertools.product(range(arenas), repeat=len(tensors)):
        smallest = sum(
            lowest([tensor for tensor, place in zip(tensors, chosen, strict=True) if place == arena], alignment)
            for arena in range(arenas)
        )
        assert smallest >= bound


def lowest(tensors: Sequence[Lifetime], alignment: int) -> int:
    """The bytes of the smallest arena for some tensors: in some order each lies as low as those before allow."""
    best = sum(tensor.nbytes + alignment for tensor in tensors)
    for order in itertools.permutations(tensors):
        ends: list[tuple[Lifetime, int]] = []
        for tensor in order:
            below = [-(-end // alignment) * alignment for other, end in ends if other.overlaps(tensor)]
            ends.append((tensor, max(below, default=0) + tensor.nbytes))
        best = min(best, max((end for _, end in ends), default=0))
    return best


@given(lifetimes(most=5, largest=9), st.sampled_from([1, 4]))
def test_few_tensors_are_placed_as_well_as_can_be(tensors: list[Lifetime], alignment: int) -> None:
    found = search_arenas(tensors, alignment, 1 << 20, 400).total_bytes
    best = lowest(tensors, alignment)
    assert -(-found // alignment) == -(-best // alignment)


@pytest.mark.slow
@pytest.mark.parametrize(("count", "most"), [(20, 1.0), (200, 1.02)])
def test_what_fits_without_gaps_is_found_or_nearly_so(count: int, most: float) -> None:
    tensors = rectangles(count, seed=count)
    quick, found = plan_arenas(tensors, 1, 1 << 20), search_arenas(tensors, 1, 1 << 20)
    assert found.bound_bytes == 10_000
    assert found.total_bytes <= min(most * 10_000, quick.total_bytes)
    check(tensors, found, 1, 1 << 20)


def test_no_step_is_lost_on_large_graphs() -> None:
    """A graph for which there are too few steps for one search is placed by greedy orders alone."""
    tensors = rectangles(400, seed=4)
    few, none = search_arenas(tensors, 1, 1 << 20, 10), search_arenas(tensors, 1, 1 << 20, 0)
    assert few == none
    assert none.total_bytes <= plan_arenas(tensors, 1, 1 << 20).total_bytes


def test_several_arenas_are_searched_too() -> None:
    tensors = [tensor for tensor in rectangles(120, seed=5) if tensor.nbytes < 3_000]
    largest = 4_000
    quick, found = plan_arenas(tensors, 1, largest), search_arenas(tensors, 1, largest, 1_000)
    check(tensors, found, 1, largest)
    assert len(found.arenas) == 3 < len(quick.arenas)
    assert found.total_bytes < quick.total_bytes


def test_a_tensor_of_no_whole_units_still_fits_where_it_fills_an_arena() -> None:
    tensors = [Lifetime("full", 1000, 0, 2), Lifetime("a", 600, 0, 1), Lifetime("b", 500, 1, 2)]
    found = search_arenas(tensors, 64, 1000)
    check(tensors, found, 64, 1000)
    assert found.total_bytes == plan_arenas(tensors, 64, 1000).total_bytes


def test_the_bound_leaves_out_what_is_unused_behind_the_topmost_tensor() -> None:
    tensors = [Lifetime("a", 10, 0, 1), Lifetime("b", 20, 1, 2)]
    assert least_bytes(tensors, 64, 1) == 74
    assert least_bytes(tensors, 64, 2) == 30
    assert search_arenas(tensors, 64, 1000).bound_bytes <= 84


def test_nothing_needs_no_arena_and_too_much_is_refused() -> None:
    assert search_arenas([], 64, 1000) == Placement((), {}, 0)
    assert least_bytes([], 64, 1) == 0
    with pytest.raises(MemoryPlanError, match="tensor 'big' needs 1001 bytes"):
        search_arenas([Lifetime("big", 1001, 0, 1)], 64, 1000)


def test_sections_are_those_in_which_all_that_is_alive_is_alive_nowhere_else_together() -> None:
    tensors = [Lifetime("a", 1, 0, 5), Lifetime("b", 2, 3, 9), Lifetime("c", 4, 6, 7), Lifetime("d", 8, 9, 9)]
    sections = Sections.of(tensors, 1)
    assert sections.loads.tolist() == [3, 6, 10]
    assert list(zip(sections.begins.tolist(), sections.ends.tolist(), strict=True)) == [(0, 1), (0, 3), (1, 2), (2, 3)]
    assert sections.bound == 10
    assert sections.peaks.tolist() == [3, 10, 6, 10]
