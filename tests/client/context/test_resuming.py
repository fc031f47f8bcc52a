"""Test where launches resume: what was complete stays, and what runs again finds what it found the first time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gputune.client.context.resuming import Access, Resuming
from gputune.runtime.context.records import BufferKind, BufferRef

CELLS = 8

Memory = dict[tuple[BufferKind, int], object]
"""What the cells of input, arena and output hold."""


def ref(begin: int, end: int, kind: BufferKind = "arena") -> BufferRef:
    return BufferRef(kind, 0, begin, end - begin)


def launch(reads: list[BufferRef], writes: list[BufferRef]) -> Access:
    return Access(tuple(reads), tuple(writes))


def run(number: int, access: Access, memory: Memory) -> None:
    """Writes to each cell what stands for all that the launch has read."""
    read = tuple(memory.get((one.kind, cell)) for one in access.reads for cell in cells(one))
    for one in access.writes:
        for cell in cells(one):
            memory[one.kind, cell] = hash((number, one.kind, cell, read))


def cells(one: BufferRef) -> range:
    return range(one.offset, one.offset + one.nbytes)


@st.composite
def accesses(draw: st.DrawFn) -> list[Access]:
    """Launches of which each reads what was written before, and writes anywhere else."""
    found: list[Access] = []
    written = [ref(0, 4, "input")]
    for _ in range(draw(st.integers(1, 10))):
        reads = draw(st.lists(st.sampled_from(written), max_size=2))
        begin = draw(st.integers(0, CELLS - 1))
        write = ref(begin, draw(st.integers(begin + 1, CELLS)), draw(st.sampled_from(["arena", "arena", "output"])))
        found.append(launch(reads, [write]))
        written.append(write)
    return found


@pytest.mark.slow
@settings(max_examples=150)
@given(accesses(), st.data())
def test_all_end_up_as_if_nothing_had_been_given_up(launches: list[Access], data: st.DataObject) -> None:
    begun = data.draw(st.integers(0, len(launches) - 1))
    behind = sorted(data.draw(st.sets(st.integers(begun + 1, len(launches) - 1)))) if begun + 1 < len(launches) else []
    want: Memory = {("input", cell): cell for cell in range(4)}
    got = dict(want)
    for number, access in enumerate(launches):
        run(number, access, want)
    for number in [*range(begun), *([begun] if data.draw(st.booleans()) else []), *behind]:
        run(number, launches[number], got)
    for number in range(Resuming(launches).place(begun, behind), len(launches)):
        run(number, launches[number], got)
    wanted, last = {}, {}
    for number, access in enumerate(launches):  # cells that a launch has left behind from which none was to run again
        last.update(dict.fromkeys(((one.kind, cell) for one in access.writes for cell in cells(one)), number))
    wanted = {cell: value for cell, value in want.items() if last.get(cell, 0) >= begun or cell[0] == "output"}
    assert {cell: got[cell] for cell in wanted} == wanted


@pytest.mark.parametrize(
    ("launches", "begun", "behind", "place"),
    [
        # a chain of tensors that do not overlap loses nothing
        ([launch([ref(0, 4, "input")], [ref(0, 1)]), launch([ref(0, 1)], [ref(1, 2)]), launch([ref(1, 2)], [])],
         2, [], 2),
        # the launch that may have begun writes what it reads
        ([launch([], [ref(0, 4)]), launch([ref(0, 4)], [ref(4, 8)]), launch([ref(4, 8)], [ref(4, 6)])], 2, [], 1),
        # a plain launch behind has written where a tensor of before was
        ([launch([], [ref(0, 4)]), launch([ref(0, 4)], [ref(4, 8)]), launch([ref(4, 8)], [ref(0, 4)])], 1, [2], 0),
        # so it has, but launches that run again write it before they read it
        ([launch([], [ref(0, 4)]), launch([], [ref(4, 8)]), launch([ref(4, 8)], []), launch([], [ref(4, 8)])],
         1, [3], 1),
        # the scratch of an operation's second stage comes from its first
        ([launch([], [ref(0, 1)]), launch([ref(0, 1)], [ref(1, 2)]), launch([ref(1, 2)], [ref(1, 2), ref(2, 3)])],
         2, [], 1),
    ],
)  # fmt: skip
def test_places(launches: list[Access], begun: int, behind: list[int], place: int) -> None:
    assert Resuming(launches).place(begun, behind) == place
