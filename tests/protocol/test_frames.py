"""Messages to bytes and back: golden frames, frames in pieces, broken frames, random ones."""

import dataclasses
import functools
import struct
import types
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputune.server.protocol import codec, framing
from gputune.server.protocol.errors import LocalProtocolError, ProtocolError, RemoteProtocolError
from gputune.server.protocol.messages import (
    FROM_CLIENT,
    FROM_SERVER,
    Done,
    DownloadBuffer,
    FreeBuffers,
    Hello,
    Limits,
    UploadBuffer,
)

GOLDEN = Path(__file__).with_name("golden_frames.txt")
KINDS = codec.registry((*FROM_CLIENT, *FROM_SERVER))


def to_bytes(message: object, request_id: int = 5) -> bytes:
    return b"".join(framing.encode(codec.pack(message, request_id)))


def from_bytes(data: bytes, step: int | None = None, limits: Limits | None = None) -> list[tuple[int, Any]]:
    reader = framing.FrameReader(limits or Limits())
    size = step or max(len(data), 1)
    pieces = [data[start : start + size] for start in range(0, len(data), size)]
    frames = [frame for piece in pieces for frame in reader.feed(piece)]
    assert reader.between_frames
    return [codec.unpack(frame.header, frame.blobs, KINDS) for frame in frames]


def golden_frames() -> dict[str, bytes]:
    """Lines of NAME HEX, one for every message; a change here is a change of the protocol's version."""
    return {name: bytes.fromhex(digits) for name, digits in map(str.split, GOLDEN.read_text().splitlines())}


def frame_of(header: object, *blobs: bytes) -> bytes:
    packed: bytes = msgpack.packb(header)
    sizes = struct.pack(f"<{len(blobs)}Q", *map(len, blobs))
    return struct.pack("<4sII", b"gpt1", len(packed), len(blobs)) + sizes + packed + b"".join(blobs)


def blob(index: int) -> msgpack.ExtType:
    return msgpack.ExtType(1, struct.pack("<I", index))


def test_golden_frame(example: Any) -> None:
    golden = golden_frames()[type(example).__name__]
    assert to_bytes(example) == golden
    assert from_bytes(golden) == [(5, example)]
    assert from_bytes(golden, step=1) == [(5, example)]


def test_every_message_has_a_golden_frame() -> None:
    assert golden_frames().keys() == KINDS.keys()


def test_frames_behind_each_other_in_any_pieces(examples: list[Any]) -> None:
    data = b"".join(map(to_bytes, examples))
    for step in (1, 7, 64, 1000, None):
        assert [message for _, message in from_bytes(data, step)] == examples


def test_blobs_are_not_copied_out() -> None:
    data = bytearray(1 << 16)
    buffers = framing.encode(codec.pack(UploadBuffer(data), 1))
    data[0] = 77
    assert buffers[1][0] == 77 and buffers[1].obj is data


def test_blobs_are_not_copied_in() -> None:
    frame = next(framing.FrameReader(Limits()).feed(to_bytes(UploadBuffer(b"abc"))))
    _, message = codec.unpack(frame.header, frame.blobs, KINDS)
    assert message.data.obj is frame.blobs[0].obj


def test_a_truncated_frame_is_never_a_message(example: Any) -> None:
    data = to_bytes(example)
    for length in range(len(data)):
        reader = framing.FrameReader(Limits())
        assert list(reader.feed(data[:length])) == []
        assert reader.between_frames == (length == 0)


@pytest.mark.parametrize("data", [b"G", b"GET / HTTP/1.1\r\n", b"gpt2" + bytes(8), b"gpT"])
def test_other_bytes_are_a_bad_frame_at_the_first_wrong_byte(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="bad_frame"):
        list(framing.FrameReader(Limits()).feed(data))


def test_an_empty_header_is_a_bad_frame() -> None:
    with pytest.raises(RemoteProtocolError, match="bad_frame"):
        list(framing.FrameReader(Limits()).feed(struct.pack("<4sII", b"gpt1", 0, 0)))


@pytest.mark.parametrize(
    ("limit", "front"),
    [
        ("header_bytes", struct.pack("<4sII", b"gpt1", 101, 0)),
        ("blobs", struct.pack("<4sII", b"gpt1", 100, 3)),
        ("frame_bytes", struct.pack("<4sIIQ", b"gpt1", 100, 1, 877)),
        ("frame_bytes", struct.pack("<4sIIQQ", b"gpt1", 100, 2, 2**64 - 1, 2**64 - 1)),
    ],
)
def test_an_announced_size_over_a_limit_is_refused_before_anything_is_read(limit: str, front: bytes) -> None:
    limits = Limits(header_bytes=100, blobs=2, frame_bytes=12 + 8 + 100 + 876)
    with pytest.raises(RemoteProtocolError, match="limit_exceeded") as caught:
        list(framing.FrameReader(limits).feed(front))
    assert caught.value.details["limit"] == limit
    assert caught.value.details["allowed"] == getattr(limits, limit)


def test_a_frame_just_within_its_limits_is_read() -> None:
    data = frame_of({"id": 1, "type": "UploadBuffer", "data": blob(0)}, bytes(500))
    limits = Limits(header_bytes=len(data) - 500 - 20, blobs=1, frame_bytes=len(data))
    assert from_bytes(data, limits=limits) == [(1, UploadBuffer(bytes(500)))]


@pytest.mark.parametrize(
    ("frame", "says"),
    [
        (frame_of([1, 2]), "not a map"),
        (frame_of({"type": "Done"}), "no valid id"),
        (frame_of({"id": True, "type": "Done"}), "no valid id"),
        (frame_of({"id": -1, "type": "Done"}), "no valid id"),
        (frame_of({"id": 4}), "no type"),
        (frame_of({"id": 4, "type": ["Done"]}), "no type"),
        (frame_of({"id": 4, "type": "Shutdown"}), "'Shutdown' is not a message"),
        (frame_of({"id": 4, "type": "Launch"}), "'Launch' is not a message"),
        (frame_of({"id": 4, "type": "Done", "extra": 1}), "Done has no extra"),
        (frame_of({"id": 4, "type": "DownloadBuffer"}), "DownloadBuffer lacks buffer"),
        (
            frame_of({"id": 4, "type": "DownloadBuffer", "buffer": "7"}),
            "buffer: expected a 64-bit .*, got '7'",
        ),
        (frame_of({"id": 4, "type": "DownloadBuffer", "buffer": True}), "buffer: expected a 64-bit integer"),
        (frame_of({"id": 4, "type": "DownloadBuffer", "buffer": 2**64 - 1}), "buffer: expected a 64-bit"),
        (frame_of({"id": 4, "type": "DownloadBuffer", "buffer": 0}), "buffer: value 0 is outside"),
        (frame_of({"id": 4, "type": "FreeBuffers", "buffers": [1, None]}), r"buffers\[1\]: expected"),
        (frame_of({"id": 4, "type": "UploadBuffer", "data": "text"}), "data: expected a blob"),
        (frame_of({"id": 4, "type": "UploadBuffer", "data": b"inline"}), "not valid MsgPack"),
        (frame_of({"id": 4, "type": "UploadBuffer", "data": blob(0)}), "not valid MsgPack"),
        (frame_of({"id": 4, "type": "UploadBuffer", "data": blob(1)}, b"x"), "not valid MsgPack"),
        (frame_of({"id": 4, "type": "UploadBuffer", "data": blob(0)}, b"x", b"y"), "leaves 1 blobs unused"),
        (
            frame_of({"id": 4, "type": "Executed", "outputs": {"a": blob(0), "b": blob(0)}}, b"x"),
            "still unused",
        ),
        (
            frame_of({"id": 4, "type": "UploadBuffer", "data": msgpack.ExtType(2, bytes(4))}, b""),
            "extension 2",
        ),
        (frame_of({"id": 4, 7: "Done"}), "not valid MsgPack"),
        (frame_of({"id": 4, "type": "Done"})[:-1] + b"\xc1", "not valid MsgPack"),
        (
            frame_of({"id": 4, "type": "Error", "name": "", "message": "", "details": {}}),
            "name: length 0 is outside",
        ),
        (
            frame_of({"id": 4, "type": "Error", "name": "n", "message": "", "details": {"a": [[[[[[[[[]]]]]]]]]}}),
            "details.*nested deeper than 8",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_header_is_a_bad_message_that_says_where(frame: bytes, says: str) -> None:
    with pytest.raises(RemoteProtocolError, match=says) as caught:
        from_bytes(frame)
    assert caught.value.name == "bad_message"


def test_deep_nesting_is_a_bad_message() -> None:
    header = b"\x91" * 100_000 + b"\xc0"
    with pytest.raises(RemoteProtocolError, match="bad_message"):
        codec.unpack(header, (), KINDS)


def test_numbers_that_are_not_finite_are_refused() -> None:
    trial = {"status": "ok", "message": "", "samples_ns": [float("nan")], "wall_ns": [], "compile_ns": 0,
             "first_launch_ns": 0, "measured": {}}  # fmt: skip
    header = {"id": 1, "type": "Profiled", "trials": [trial], "best": None, "binary": blob(0)}
    with pytest.raises(RemoteProtocolError, match=r"trials\[0\].samples_ns\[0\]: expected a finite number"):
        from_bytes(frame_of(header, b""))


def test_only_hello_may_grow() -> None:
    assert from_bytes(frame_of({"id": 0, "type": "Hello", "protocol": 9, "software": "s", "new": 1})) == [
        (0, Hello(9, "s"))
    ]


def test_values_that_do_not_travel_are_refused_before_anything_is_sent() -> None:
    for buffers in ((object(),), (2**64,)):
        with pytest.raises(LocalProtocolError, match="FreeBuffers cannot be sent"):
            codec.pack(FreeBuffers(buffers), 1)  # type: ignore[arg-type]


@functools.cache
def strategy_of(hint: Any) -> st.SearchStrategy[Any]:
    """Values of a message's type hint."""
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return bounded(arguments[0], arguments[1].low, arguments[1].high)
    if origin is Literal:
        return st.sampled_from(arguments)
    if origin in (Union, types.UnionType):
        return st.binary() if bytes in arguments else st.one_of(*map(strategy_of, arguments))
    if origin is tuple:
        return st.lists(strategy_of(arguments[0]), max_size=2).map(tuple)
    if origin is dict:
        return st.dictionaries(st.text(max_size=5), strategy_of(arguments[1]), max_size=3)
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        hints = get_type_hints(hint, include_extras=True)
        return st.builds(hint, **{name: strategy_of(kind) for name, kind in hints.items()})
    if hint is object:
        leaf = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False)
        return st.recursive(leaf, lambda inner: st.lists(inner, max_size=2), max_leaves=4)
    return {int: st.integers(-(2**63), 2**63 - 1), str: st.text(max_size=9), type(None): st.none()}[hint]


def bounded(hint: Any, low: float, high: float) -> st.SearchStrategy[Any]:
    if hint is int:
        return st.integers(int(low), int(high))
    if hint is float:
        return st.floats(low, high)
    if hint is str:
        return st.text("abcdef0123456789", min_size=int(low), max_size=max(int(low), 9))
    return st.lists(strategy_of(get_args(hint)[0]), min_size=int(low), max_size=int(low) + 1).map(tuple)


@given(st.data(), st.integers(0, 2**63 - 1))
def test_any_message_comes_back_as_it_was(data: st.DataObject, request_id: int) -> None:
    message = data.draw(strategy_of(data.draw(st.sampled_from(list(KINDS.values())))))
    assert from_bytes(to_bytes(message, request_id)) == [(request_id, message)]


@given(st.binary(max_size=200), st.booleans())
def test_garbage_is_refused_by_name(garbage: bytes, framed: bool) -> None:
    data = struct.pack("<4sII", b"gpt1", len(garbage), 0) + garbage if framed and garbage else garbage
    reader = framing.FrameReader(Limits(header_bytes=1000, frame_bytes=2000, blobs=4))
    try:
        for frame in reader.feed(data):
            codec.unpack(frame.header, frame.blobs, KINDS)
    except ProtocolError as error:
        assert error.name in ("bad_frame", "bad_message", "limit_exceeded")


@given(st.data())
def test_a_damaged_frame_is_a_message_or_refused_by_name(data: st.DataObject) -> None:
    golden = bytearray(data.draw(st.sampled_from(list(golden_frames().values()))))
    for _ in range(data.draw(st.integers(1, 4))):
        golden[data.draw(st.integers(0, len(golden) - 1))] = data.draw(st.integers(0, 255))
    reader = framing.FrameReader(Limits(header_bytes=10_000, frame_bytes=20_000, blobs=8))
    try:
        for frame in reader.feed(bytes(golden)):
            request_id, message = codec.unpack(frame.header, frame.blobs, KINDS)
            assert from_bytes(to_bytes(message, request_id)) == [(request_id, message)]
    except ProtocolError as error:
        assert error.name in ("bad_frame", "bad_message", "limit_exceeded")


def test_unsent_is_what_is_left() -> None:
    buffers = [memoryview(b"abc"), memoryview(b"de"), memoryview(b"f")]
    for sent in range(7):
        assert b"".join(framing.unsent(buffers, sent)) == b"abcdef"[sent:]
    assert to_bytes(Done(), 1) != to_bytes(DownloadBuffer(1), 1)
