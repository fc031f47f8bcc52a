"""Convert messages to bytes and back: golden frames, frames in pieces, broken frames."""

import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgpack
import pytest

from gputune.core.launches import Needs, Trial
from gputune.server.protocol import codec, framing
from gputune.server.protocol.errors import LocalProtocolError, RemoteProtocolError
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import (
    FROM_CLIENT,
    FROM_SERVER,
    Done,
    DownloadBuffer,
    Error,
    ExecuteContext,
    Executed,
    ExecuteKernel,
    FreeBuffers,
    Hello,
    Progress,
    UploadBuffer,
    Welcome,
)

from .examples import LAUNCH, PROFILE

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


def text(index: int) -> msgpack.ExtType:
    return msgpack.ExtType(2, struct.pack("<I", index))


def test_golden_frame(example: Any) -> None:
    golden = golden_frames()[type(example).__name__]
    assert to_bytes(example) == golden
    assert from_bytes(golden) == [(5, example)]
    assert from_bytes(golden, step=1) == [(5, example)]


def test_only_what_has_a_default_may_be_missing() -> None:
    told = {"phase": "building", "done": 1, "total": 2, "message": "", "variant": 1, "trial": {"status": "ok"}}
    assert from_bytes(frame_of({"id": 4, "type": "Progress", **told})) == [
        (4, Progress("building", 1, 2, "", 1, Trial("ok")))
    ]
    with pytest.raises(RemoteProtocolError, match="trial: Trial lacks status"):
        from_bytes(frame_of({"id": 4, "type": "Progress", **told, "trial": {}}))


def test_a_launch_without_the_digest_of_its_source_has_that_of_its_text() -> None:
    fields: dict[str, Any] = {**vars(LAUNCH), "stages": []}
    del fields["source_sha256"], fields["needs"], fields["writes"], fields["aligned"]
    ((_, request),) = from_bytes(
        frame_of({"id": 4, "type": "ExecuteKernel", "launches": [fields], "buffers": {}, "outputs": {}})
    )
    assert request.launches == (LAUNCH,)


def test_what_only_the_host_needs_does_not_travel_and_is_refused() -> None:
    request = ExecuteKernel((replace(LAUNCH, needs=Needs(64, cooperates=True), writes=("output",)),), {}, {})
    assert to_bytes(request) == to_bytes(ExecuteKernel((LAUNCH,), {}, {}))
    header = msgpack.unpackb(codec.pack(request, 1).header)
    header["launches"][0]["needs"] = {"local_bytes": 64, "cooperates": True}
    with pytest.raises(RemoteProtocolError, match="Launch has no 'needs'"):
        from_bytes(frame_of(header))


def test_later_fields_travel_only_where_they_say_something() -> None:
    """So a side of before reads all that it can ask for."""

    def names(message: object) -> set[str]:
        return set(msgpack.unpackb(codec.pack(message, 1).header, strict_map_key=False))

    old = {"id", "type", "context", "inputs"}
    assert names(ExecuteContext(3, {"x": b"data"})) == old
    request = ExecuteContext(3, {}, {"x": 4}, {"y": 5})
    assert names(request) == old | {"memory_inputs", "memory_outputs"}
    assert from_bytes(to_bytes(request)) == [(5, request)]
    limits = msgpack.unpackb(codec.pack(Welcome(Limits(registered=64), {}, {}), 0).header)["limits"]
    assert not {"registered", "total_registered"} & limits.keys()
    welcome = Welcome(Limits(registered=7), {}, {})
    assert from_bytes(to_bytes(welcome)) == [(5, welcome)]


def test_every_message_has_a_golden_frame() -> None:
    assert golden_frames().keys() == KINDS.keys()


def test_frames_behind_each_other_in_any_pieces(examples: list[Any]) -> None:
    data = b"".join(map(to_bytes, examples))
    for step in (1, 7, 64, 1000, None):
        assert [message for _, message in from_bytes(data, step)] == examples


@pytest.mark.parametrize("blob_bytes", [0, 1, 5000, framing.STAGING_BYTES + 1, 3 * framing.STAGING_BYTES + 7])
def test_blobs_of_any_size_between_other_frames(blob_bytes: int) -> None:
    data = bytes(range(256)) * (blob_bytes // 256) + bytes(blob_bytes % 256)
    outputs = Executed({"a": data, "b": b"", "c": data[::-1], "d": b"last"})
    message = b"".join((to_bytes(Done()), to_bytes(outputs), to_bytes(outputs), to_bytes(Done())))
    for step in (977, 65_535, None):
        assert [message for _, message in from_bytes(message, step)] == [Done(), outputs, outputs, Done()]


def test_headers_larger_than_the_staging_buffer() -> None:
    many = FreeBuffers(tuple(range(2**40, 2**40 + 4000)))
    outputs = Executed({str(number).rjust(190, "-"): bytes([number % 256]) for number in range(900)})
    data = to_bytes(Done()) + to_bytes(many) + to_bytes(outputs) + to_bytes(Done())
    for step in (501, None):
        assert [message for _, message in from_bytes(data, step)] == [Done(), many, outputs, Done()]


def test_many_small_frames_are_one_reading() -> None:
    reader = framing.FrameReader(Limits())
    data = to_bytes(Done()) * 1000
    space = reader.space()
    assert len(space) >= len(data)
    space[: len(data)] = data
    assert len(list(reader.filled(len(data)))) == 1000
    assert len(reader.space()) == len(space)


def test_a_large_blob_is_received_where_it_stays() -> None:
    size = 16 << 20
    front = struct.pack("<4sIIQ", b"gpt1", 1, 1, size) + b"\x80"
    reader = framing.FrameReader(Limits())
    assert list(reader.feed(front + b"head")) == []
    space = reader.space()
    assert len(space) == size - len(b"head")
    space[-4:] = b"tail"
    (frame,) = reader.filled(len(space))
    assert frame.blobs[0].obj is space.obj
    assert bytes(frame.blobs[0][:4]) == b"head" and bytes(frame.blobs[0][-4:]) == b"tail"


def test_frames_that_were_given_out_are_not_written_over() -> None:
    reader = framing.FrameReader(Limits())
    first = next(iter(reader.feed(to_bytes(UploadBuffer(b"first")))))
    list(reader.feed(to_bytes(UploadBuffer(b"other"))))
    assert codec.unpack(first.header, first.blobs, KINDS) == (5, UploadBuffer(b"first"))


def test_limits_may_change_between_frames() -> None:
    reader = framing.FrameReader(Limits(header_bytes=20, frame_bytes=40))
    space, data = reader.space(), to_bytes(Done()) + to_bytes(DownloadBuffer(1))
    space[: len(data)] = data
    frames = iter(reader.filled(len(data)))
    next(frames)
    reader.limits = Limits()
    assert len(list(frames)) == 1


def test_small_blobs_are_joined_and_large_ones_not_copied() -> None:
    data = bytearray(1 << 16)
    buffers = framing.encode(codec.pack(UploadBuffer(data), 1))
    data[0] = 77
    assert buffers[1][0] == 77 and buffers[1].obj is data
    assert len(framing.encode(codec.pack(UploadBuffer(data[:100]), 1))) == 1


def test_a_frame_that_the_other_side_would_refuse_is_not_made() -> None:
    parts = codec.pack(Executed({"a": bytes(300), "b": bytes(300)}), 1)
    size = sum(buffer.nbytes for buffer in framing.encode(parts))
    assert framing.encode(parts, Limits(frame_bytes=size, header_bytes=len(parts.header), blobs=2))
    for limit, least in (("frame_bytes", size), ("header_bytes", len(parts.header)), ("blobs", 2)):
        with pytest.raises(LocalProtocolError, match=f"limit {limit} is {least - 1}"):
            framing.encode(parts, Limits(**{limit: least - 1}))


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
        ("frame_bytes", struct.pack("<4sIIQ100x", b"gpt1", 100, 1, 877)),
        ("frame_bytes", struct.pack("<4sIIQQ100x", b"gpt1", 100, 2, 2**64 - 1, 2**64 - 1)),
    ],
)
def test_an_announced_size_over_a_limit_is_refused_before_it_is_made_room_for(limit: str, front: bytes) -> None:
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
        (frame_of({"id": 4, "type": "Done", "extra": 1}), "Done has no 'extra'"),
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
        (frame_of({"id": 4, "type": "UploadBuffer", "data": b""}), "data: expected a blob"),
        (frame_of({"id": 4, "type": "UploadBuffer", "data": blob(0)}), "not valid MsgPack"),
        (frame_of({"id": 4, "type": "UploadBuffer", "data": blob(1)}, b"x"), "not valid MsgPack"),
        (frame_of({"id": 4, "type": "UploadBuffer", "data": blob(0)}, b"x", b"y"), "leaves 1 blobs unused"),
        (
            frame_of({"id": 4, "type": "Executed", "outputs": {"a": blob(0), "b": blob(0)}}, b"x"),
            "still unused",
        ),
        (
            frame_of({"id": 4, "type": "UploadBuffer", "data": msgpack.ExtType(3, bytes(4))}, b""),
            "extension 3",
        ),
        (frame_of({"id": 4, "type": "UploadBuffer", "data": text(0)}, b"data"), "data: expected a blob, got 'data'"),
        (frame_of({"id": 4, "type": "Error", "name": text(0), "message": "", "details": {}}, b"\xff"), "not UTF-8"),
        (frame_of({"id": 4, "type": "Error", "name": blob(0), "message": "", "details": {}}, b"a"), "expected a text"),
        (frame_of({"id": 4, "type": "Error", "name": "n", "message": text(0), "details": {}}, b"a" * 65537), "65537"),
        (frame_of({"id": 4, "type": "FreeBuffers", "buffers": ["no handle"] * 4097}), "buffers: length 4097 is"),
        (
            frame_of({"id": 4, "type": "Executed", "outputs": {"k" * 1001: blob(0)}}, b"x"),
            r"outputs\['k+'\.\.\.\]: length 1001 is outside 0\.\.1000",
        ),
        (frame_of({"id": 4, "type": "Done", "a\nb": 1}), r"Done has no 'a\\nb'"),
        (frame_of({"id": 4, 7: "Done"}), "not valid MsgPack"),
        (frame_of({"id": 4, "type": "Done"})[:-1] + b"\xc1", "not valid MsgPack"),
        (
            frame_of({"id": 4, "type": "Error", "name": "", "message": "", "details": {}}),
            "name: length 0 is outside",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_wrong_header_is_a_bad_message_that_says_where(frame: bytes, says: str) -> None:
    with pytest.raises(RemoteProtocolError, match=says) as caught:
        from_bytes(frame)
    assert caught.value.name == "bad_message"


@pytest.mark.parametrize("name", ["Shutdown", "Launch", "\0"])
def test_what_is_no_message_is_refused_by_its_name(name: str) -> None:
    with pytest.raises(RemoteProtocolError, match="is not a message that may arrive here") as caught:
        from_bytes(frame_of({"id": 4, "type": name}))
    assert (caught.value.name, caught.value.request_id) == ("unexpected_message", 4)
    assert repr(name) in caught.value.message


@pytest.mark.parametrize("depth", [1000, 100_000])
def test_deep_nesting_is_refused(depth: int) -> None:
    for header in (b"\x91" * depth + b"\xc0", msgpack.packb({"id": 4, "type": "Done"})[:-1] + b"\x91" * depth):
        with pytest.raises(RemoteProtocolError, match="bad_message"):
            codec.unpack(header, (), KINDS)


def test_nesting_is_counted_from_the_header() -> None:
    def error(lists: int) -> bytes:
        inner: object = 1
        for _ in range(lists):
            inner = [inner]
        return frame_of({"id": 4, "type": "Error", "name": "n", "message": "", "details": {"a": inner}})

    (frame,) = framing.FrameReader(Limits()).feed(error(14))
    assert codec.unpack(frame.header, (), KINDS, Limits())[0] == 4
    (frame,) = framing.FrameReader(Limits()).feed(error(15))
    with pytest.raises(
        RemoteProtocolError, match="nested to a depth of 17, the server's limit nesting is 16"
    ) as caught:
        codec.unpack(frame.header, (), KINDS, Limits())
    assert (caught.value.name, caught.value.request_id) == ("limit_exceeded", 4)


def test_long_texts_travel_as_blobs_wherever_they_stand() -> None:
    long = "\u00e4" * 1025
    message = Error("n", long, {"log": [long[:-1], long], "short": "x"})
    header, blobs = codec.pack(message, 5)
    assert [bytes(one) for one in blobs] == [long.encode()] * 2
    assert len(header) < 3 * len(long)
    assert from_bytes(to_bytes(message)) == [(5, message)]


def test_the_long_texts_of_a_frame_are_limited_together() -> None:
    header, blobs = codec.pack(Error("n", "a" * 1025, {"more": "b" * 1025}), 1)
    assert codec.unpack(header, blobs, KINDS, Limits(text_bytes=2050))[0] == 1
    with pytest.raises(RemoteProtocolError, match="2050, the server's limit text_bytes is 2049") as caught:
        codec.unpack(header, blobs, KINDS, Limits(text_bytes=2049))
    assert (caught.value.name, caught.value.details["limit"]) == ("limit_exceeded", "text_bytes")


def test_numbers_that_are_not_finite_are_refused() -> None:
    trial = {"status": "ok", "message": "", "samples_ns": [float("nan")], "wall_ns": [], "compile_ns": 0,
             "first_launch_ns": 0, "measured": {}}  # fmt: skip
    header = {"id": 1, "type": "Profiled", "trials": [trial], "best": None, "binary": blob(0), "baseline": None,
              "spent_ns": {}, "state": {}}  # fmt: skip
    with pytest.raises(RemoteProtocolError, match=r"trials\[0\].samples_ns\[0\]: expected a finite number"):
        from_bytes(frame_of(header, b""))


def test_keys_may_be_as_long_as_their_bound_says() -> None:
    ((_, message),) = from_bytes(frame_of({"id": 4, "type": "Executed", "outputs": {"k" * 1000: blob(0)}}, b"x"))
    assert list(message.outputs) == ["k" * 1000]


def test_what_may_be_nothing_says_where_it_is_wrong() -> None:
    header = msgpack.unpackb(codec.pack(PROFILE, 1).header)
    header["baseline"]["main"]["global_size"] = [0]
    with pytest.raises(RemoteProtocolError, match=r"baseline\.main\.global_size\[0\]: value 0 is outside"):
        from_bytes(frame_of(header))
    header["baseline"] = None
    ((_, message),) = from_bytes(frame_of(header))
    assert message.baseline is None


def test_only_hello_may_grow() -> None:
    assert from_bytes(frame_of({"id": 0, "type": "Hello", "protocol": 9, "software": "s", "new": 1})) == [
        (0, Hello(9, "s"))
    ]


def test_values_that_do_not_travel_are_refused_before_anything_is_sent() -> None:
    for buffers in ((object(),), (2**64,)):
        with pytest.raises(LocalProtocolError, match="FreeBuffers cannot be sent"):
            codec.pack(FreeBuffers(buffers), 1)  # type: ignore[arg-type]


def test_unsent_is_what_is_left() -> None:
    buffers = [memoryview(b"abc"), memoryview(b"de"), memoryview(b"f")]
    for sent in range(7):
        assert b"".join(framing.unsent(buffers, sent)) == b"abcdef"[sent:]
    assert to_bytes(Done(), 1) != to_bytes(DownloadBuffer(1), 1)
