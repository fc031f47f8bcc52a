"""Test the memory block of a context file, which is equal to what the header says."""

import dataclasses
import hashlib
import struct
from pathlib import Path
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputune.core.errors import ChecksumMismatch, ContextError, MalformedHeader, Truncated
from gputune.runtime.context.format import read_header, write_context
from gputune.runtime.context.memory_need import GraphNeed, MemoryNeed, largest_arenas
from gputune.runtime.context.records import Context

PLACE = 48  # of the block's length, behind magic, version, and the header's length and digest


def with_block(path: Path, block: bytes) -> None:
    """Puts another memory block with a right checksum into a file."""
    whole = path.read_bytes()
    (length,) = struct.unpack_from("<I", whole, PLACE)
    (header_length,) = struct.unpack_from("<I", whole, 12)
    behind = PLACE + 36 + length
    front = whole[:PLACE] + struct.pack("<I32s", len(block), hashlib.sha256(block).digest()) + block
    front += whole[behind : behind + header_length]
    sections = whole[-(-(behind + header_length) // 64) * 64 :]
    path.write_bytes(front + bytes(-len(front) % 64) + sections)


def block_of(path: Path) -> Any:
    whole = path.read_bytes()
    (length,) = struct.unpack_from("<I", whole, PLACE)
    return msgpack.unpackb(whole[PLACE + 36 : PLACE + 36 + length])


def need_of(path: Path) -> MemoryNeed:
    """What the header says; a block with anything else is refused."""
    header = read_header(path)
    return MemoryNeed.of(header.device, header.graphs)


def test_what_graphs_need_is_in_the_file(context: Context, tmp_path: Path) -> None:
    main, other = context.graphs
    graphs = (
        dataclasses.replace(main, arena_bytes=(256, 64), arena_bound_bytes=300),
        dataclasses.replace(other, arena_bytes=(1024,), arena_bound_bytes=1000),
    )
    path = tmp_path / "context.bin"
    write_context(path, dataclasses.replace(context, graphs=graphs))
    need = need_of(path)
    assert need.alignment == context.device["base_address_alignment_bytes"]
    assert need.graphs == (GraphNeed("main", (256, 64), 300), GraphNeed("other", (1024,), 1000))
    assert need.arena_bytes == (1024, 64)
    assert [graph.total_bytes for graph in need.graphs] == [320, 1024]


def test_a_long_block_is_read_whole(context: Context, tmp_path: Path) -> None:
    path = tmp_path / "context.bin"
    many = tuple(dataclasses.replace(context.graphs[0], name=f"a graph with a long name {n}") for n in range(400))
    write_context(path, dataclasses.replace(context, graphs=many))
    assert [graph.name for graph in need_of(path).graphs] == [graph.name for graph in many]


@pytest.mark.parametrize("arena_bytes", [512, 128, 1 << 40])
def test_a_block_that_says_other_than_the_header_is_refused(context_path: Path, arena_bytes: int) -> None:
    block = block_of(context_path)
    block["graphs"][0][1] = [arena_bytes]
    with_block(context_path, msgpack.packb(block))
    with pytest.raises(MalformedHeader, match="the memory block and the header disagree"):
        read_header(context_path)


@pytest.mark.parametrize(
    ("graph", "words"),
    [
        (["main", [0], 0], r"graphs\[0\].arena_bytes\[0\]: value 0 is outside 1"),
        (["main", [1 << 60], 0], "value 1152921504606846976 is outside"),
        (["main", [256], 257], "smaller than their bound"),
        (["main", [-1], 0], r"arena_bytes\[0\]: value -1 is outside"),
        (["main", [True], 0], r"arena_bytes\[0\]: expected a 64-bit integer"),
        (["main", [256]], r"graphs\[0\]: expected a list of 3 items"),
        ([5, [256], 0], r"graphs\[0\].name: expected a text"),
        ("main", r"graphs\[0\]: expected a list of 3 items"),
    ],
)
def test_a_hostile_need_is_refused_by_name(context_path: Path, graph: object, words: str) -> None:
    block = block_of(context_path)
    block["graphs"][0] = graph
    with_block(context_path, msgpack.packb(block))
    with pytest.raises(MalformedHeader, match=words) as caught:
        read_header(context_path)
    assert str(context_path) in str(caught.value)


DEEP = b"\x82" + msgpack.packb("alignment") + b"\x01" + msgpack.packb("graphs") + b"\x91" * 1015 + b"\x90"


@pytest.mark.parametrize("block", [b"", b"\xc1", b"\x90", msgpack.packb({"alignment": 0, "graphs": []}), DEEP])
def test_a_block_that_is_nonsense_is_refused(context_path: Path, block: bytes) -> None:
    with_block(context_path, block)
    with pytest.raises(MalformedHeader, match="memory block"):
        read_header(context_path)


def test_a_damaged_or_huge_block_is_refused(context_path: Path) -> None:
    whole = bytearray(context_path.read_bytes())
    context_path.write_bytes(whole[:PLACE] + struct.pack("<I", 1 << 30) + whole[PLACE + 4 :])
    with pytest.raises(MalformedHeader, match="a memory block of 1073741824 bytes"):
        read_header(context_path)
    whole[PLACE + 40] ^= 1
    context_path.write_bytes(whole)
    with pytest.raises(ChecksumMismatch, match="the memory block is damaged"):
        read_header(context_path)
    context_path.write_bytes(whole[: PLACE + 38])
    with pytest.raises(Truncated, match="within its memory block"):
        read_header(context_path)
    with pytest.raises(ContextError):
        read_header(context_path)


@given(st.lists(st.lists(st.integers(1, 99)).map(tuple)))
def test_the_largest_arenas_hold_each_graph_and_no_more(needs: list[tuple[int, ...]]) -> None:
    largest = largest_arenas(needs)
    for arenas in needs:
        assert all(nbytes <= largest[place] for place, nbytes in enumerate(arenas))
    for place, nbytes in enumerate(largest):
        assert nbytes in {arenas[place] for arenas in needs if place < len(arenas)}
