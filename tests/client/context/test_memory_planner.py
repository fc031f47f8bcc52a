"""Test the quick plan of memory: tensors that are alive together never share bytes, and others do."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputune.client.context.memory.memory_planner import Lifetime, plan_arenas, plan_shared_buffers
from gputune.client.errors import MemoryPlanError
from tests.client.context.test_arena_search import ALIGNMENTS, lifetimes


@given(lifetimes(), ALIGNMENTS, st.integers(400, 1200))
def test_arenas_never_exceed_all_tensors_side_by_side(tensors: list[Lifetime], alignment: int, largest: int) -> None:
    """Whatever their order. test_arena_search.py has that tensors lie apart."""
    rounded = sum(-(-tensor.nbytes // alignment) * alignment for tensor in tensors)
    placement = plan_arenas(tensors, alignment, largest)
    assert sum(placement.arenas) <= rounded
    assert plan_arenas(tensors[::-1], alignment, largest) == placement


@given(lifetimes())
def test_tensors_that_share_a_buffer_are_never_alive_together(tensors: list[Lifetime]) -> None:
    placement = plan_shared_buffers(tensors, 64, 1000)
    assert placement.offsets.keys() == {tensor.name for tensor in tensors}
    assert all(offset == 0 for _, offset in placement.offsets.values())
    for index, tensor in enumerate(tensors):
        buffer = placement.offsets[tensor.name][0]
        assert tensor.nbytes <= placement.arenas[buffer]
        assert not any(
            tensor.overlaps(other) and placement.offsets[other.name][0] == buffer for other in tensors[:index]
        )
    assert plan_shared_buffers(tensors[::-1], 64, 1000) == placement


def test_a_chain_has_two_shared_buffers_and_too_large_tensors_are_refused() -> None:
    chain = [Lifetime(name, 64 * (i + 1), i, i + 1) for i, name in enumerate("abcd")]
    assert plan_shared_buffers(chain, 64, 1 << 20).arenas == (256, 192)
    with pytest.raises(MemoryPlanError, match="at most 100 bytes at once"):
        plan_shared_buffers(chain, 64, 100)


def test_a_chain_needs_its_two_largest_neighbours_only() -> None:
    """a -> b -> c -> d: the arena is as large as the worst pair, not as the sum."""
    chain = [
        Lifetime(name, size, i, i + 1) for i, (name, size) in enumerate(zip("abcd", (64, 256, 128, 192), strict=True))
    ]
    placement = plan_arenas(chain, 64, 1 << 20)
    assert placement.arenas == (256 + 128,)


def test_a_tensor_goes_into_the_smallest_gap_that_fits() -> None:
    tensors = [
        Lifetime("left", 900, 0, 9),
        Lifetime("early wide", 800, 0, 1),
        Lifetime("middle", 700, 0, 9),
        Lifetime("early narrow", 600, 0, 1),
        Lifetime("right", 500, 0, 9),
        Lifetime("late", 400, 5, 6),
    ]
    placement = plan_arenas(tensors, 4, 1 << 20)
    assert placement.offsets["late"] == placement.offsets["early narrow"]


def test_arenas_are_split_at_the_largest_allocation() -> None:
    tensors = [Lifetime(name, 300, 0, 1) for name in "abc"]
    placement = plan_arenas(tensors, 64, 700)
    assert placement.arenas == (620, 300)


@pytest.mark.parametrize(("largest", "arenas"), [(600, (600,)), (599, (300, 300))])
def test_what_fills_an_arena_to_its_last_byte_lies_there(largest: int, arenas: tuple[int, ...]) -> None:
    tensors = [Lifetime(name, 300, 0, 1) for name in "ab"]
    assert plan_arenas(tensors, 4, largest).arenas == arenas


@pytest.mark.parametrize(("largest", "arenas"), [(620, (620,)), (619, (300, 300))])
def test_behind_the_last_tensor_of_an_arena_nothing_has_to_be_aligned(largest: int, arenas: tuple[int, ...]) -> None:
    tensors = [Lifetime(name, 300, 0, 1) for name in "ab"]
    assert plan_arenas(tensors, 64, largest).arenas == arenas


def test_a_tensor_of_the_largest_allocation_is_placed() -> None:
    assert plan_arenas([Lifetime("whole", 1000, 0, 1)], 64, 1000).arenas == (1000,)


def test_a_tensor_that_no_allocation_holds_is_named() -> None:
    with pytest.raises(MemoryPlanError, match=r"'big' needs 1001 bytes.*at most 1000"):
        plan_arenas([Lifetime("small", 10, 0, 1), Lifetime("big", 1001, 0, 1)], 64, 1000)


def test_nothing_to_place_needs_no_arena() -> None:
    assert plan_arenas([], 64, 1000).arenas == ()
