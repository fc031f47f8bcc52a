"""Test the agent's frames against Python's: the same bytes, the same frames, the same refusals."""

import resource
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gputune.server.protocol import framing
from gputune.server.protocol.codec import Parts
from gputune.server.protocol.connection import HANDSHAKE_LIMITS
from gputune.server.protocol.errors import ProtocolError
from gputune.server.protocol.frame_mac import MAC_BYTES, PIECE_BYTES, FrameMac
from gputune.server.protocol.limits import UNLIMITED, Limits
from tests.protocol.tampering import CUT, LIMITS, Recorded, read, tampered

from .library import Reader, Refused, Writer, library

pytestmark = pytest.mark.usefixtures("c_compiler")

KEY = b"k" * 32
Frame = tuple[bytes, list[bytes]]
LARGE = Random(1).randbytes(3 << 20)
FRAMES: Sequence[Frame] = (
    (b"no blobs", []),
    (b"one blob", [b"content"]),
    (b"empty ones", [b"", b"x", b"", b""]),
    (b"as large as the staging buffer", [LARGE[: framing.STAGING_BYTES], b"after"]),
    (b"pieces", [LARGE[: PIECE_BYTES + 1], b"", LARGE[: 2 * PIECE_BYTES]]),
    (b"three MiB", [LARGE]),
    (LARGE[:100_000], [b"after a long header"]),
    (b"many", [b"%d" % place * (place % 5) for place in range(1024)]),
    (b"last", []),
)


def stream_of(frames: Sequence[Frame], key: bytes | None) -> bytes:
    """Return frames as Python sends them."""
    mac = None if key is None else FrameMac(key)
    parts = (Parts(header, [memoryview(blob) for blob in blobs]) for header, blobs in frames)
    return b"".join(b"".join(framing.encode(each, mac=mac)) for each in parts)


def by_python(stream: bytes, limits: Limits, key: bytes | None) -> tuple[list[Frame], ProtocolError | None]:
    reader = framing.FrameReader(limits)
    reader.mac = None if key is None else FrameMac(key)
    frames: list[Frame] = []
    try:
        for frame in reader.feed(stream):
            frames.append((bytes(frame.header), [bytes(blob) for blob in frame.blobs]))
    except ProtocolError as error:
        return frames, error
    return frames, None


def by_agent(pieces: Sequence[bytes], limits: Limits, key: bytes | None) -> tuple[list[Frame], Refused | None]:
    frames: list[Frame] = []
    with Reader(limits, key) as reader:
        try:
            for piece in pieces:
                frames.extend(reader.feed(piece))
        except Refused as error:
            with pytest.raises(Refused, match=error.name):  # it stays refused
                next(reader.feed(b"more"))
            return frames, error
    return frames, None


def cut(stream: bytes, steps: Sequence[int]) -> Iterator[bytes]:
    """Yield pieces of these sizes, over and over."""
    position = turn = 0
    while position < len(stream):
        yield stream[position : position + steps[turn % len(steps)]]
        position, turn = position + steps[turn % len(steps)], turn + 1


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    one, other = socket.socketpair()
    with one, other:
        one.settimeout(20)  # Python's side, so that a test of a defect ends
        yield one, other


# --- good frames ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("key", [None, KEY], ids=["without", "with MAC"])
@pytest.mark.parametrize("steps", [(977,), (65_535, 1), (1 << 30,)])
def test_frames_of_any_size_come_through_in_any_pieces(steps: tuple[int, ...], key: bytes | None) -> None:
    pieces = list(cut(stream_of(FRAMES, key), steps))
    assert by_agent(pieces, Limits(), key) == (list(FRAMES), None)
    assert library().pieces() == 0  # all memory is given back


small_frames = st.lists(
    st.tuples(st.binary(min_size=1, max_size=300), st.lists(st.binary(max_size=300), max_size=5)), max_size=4
)


@given(small_frames, st.lists(st.integers(1, 90), min_size=1, max_size=5), st.booleans())
@example([(b"h", [b"b"]), (b"i", [])], [1], True)
def test_small_frames_come_through_in_all_cuts(frames: list[Frame], steps: list[int], signs: bool) -> None:
    key = KEY if signs else None
    assert by_agent(list(cut(stream_of(frames, key), steps)), Limits(), key) == (frames, None)


@pytest.mark.parametrize("key", [None, KEY], ids=["without", "with MAC"])
def test_frames_come_through_sockets_in_both_directions(
    sockets: tuple[socket.socket, socket.socket], key: bytes | None
) -> None:
    """The agent sends back what it has received, and neither side waits for the other to read."""
    here, there = sockets
    there.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)  # so that little is taken of each write

    def answer() -> None:
        with Reader(Limits(), key) as reader, Writer(there.fileno(), key) as writer:
            while (frame := reader.receive(there.fileno())) is not None:
                writer.send(*frame)
        there.shutdown(socket.SHUT_WR)

    def send() -> None:
        here.sendall(stream_of(FRAMES, key))
        here.shutdown(socket.SHUT_WR)

    threads = [threading.Thread(target=answer), threading.Thread(target=send)]
    for thread in threads:
        thread.start()
    answered = bytearray()
    while data := here.recv(1 << 20):
        answered += data
    for thread in threads:
        thread.join()
    assert bytes(answered) == stream_of(FRAMES, key)


# --- refusals ---------------------------------------------------------------------------------------------------------

SMALL = Limits(frame_bytes=1000, header_bytes=100, blobs=3)
NONE_SMALL = (b"header", [b"blob", b"another"])


def prefix(magic: bytes, header_bytes: int, sizes: Sequence[int], count: int | None = None) -> bytes:
    numbers = header_bytes, len(sizes) if count is None else count
    return (
        magic
        + b"".join(number.to_bytes(4, "little") for number in numbers)
        + b"".join(size.to_bytes(8, "little") for size in sizes)
    )


REFUSALS = {
    "another magic": (prefix(b"gpt2", 5, ()), None),
    "one wrong byte": (b"h", None),
    "no MAC": (stream_of([NONE_SMALL], None), KEY),
    "a MAC that is not expected": (stream_of([NONE_SMALL], KEY), None),
    "no header": (prefix(b"gpt1", 0, (1,)), None),
    "a header that is too large": (prefix(b"gpt1", 101, ()), None),
    "too many blobs": (prefix(b"gpt1", 5, (), 4), None),
    "most blobs": (prefix(b"gptm", 5, (), 2**32 - 1), KEY),
    "the largest header": (prefix(b"gptm", 2**32 - 1, ()), KEY),
    "a frame that is too large": (prefix(b"gpt1", 5, (900, 100)) + b"12345", None),
    "sizes whose sum has no room": (prefix(b"gpt1", 5, (2**64 - 1, 2**64 - 1, 6)) + b"12345", None),
    "sizes whose sum is small again": (prefix(b"gptm", 5, (2**63, 2**63)) + b"12345", KEY),
}


@pytest.mark.parametrize("step", [1, 7, 1 << 20])
@pytest.mark.parametrize(("stream", "key"), REFUSALS.values(), ids=REFUSALS)
def test_each_is_refused_as_python_refuses_it(stream: bytes, key: bytes | None, step: int) -> None:
    by_reader, right = by_python(stream, SMALL, key)
    assert right is not None and by_reader == []
    frames, error = by_agent(list(cut(stream, [step])), SMALL, key)
    assert error is not None and frames == []
    assert (error.name, error.details) == (right.name, right.details)
    assert str(error) == str(right) or "expected a frame starting with gpt" in str(error)


@pytest.mark.parametrize("limit", ["frame_bytes", "header_bytes", "blobs"])
def test_what_the_limits_just_allow_is_taken(limit: str) -> None:
    frame = (b"h" * 100, [b"b" * 420, b"b" * 400, b"c" * 44])
    assert len(stream_of([frame], None)) == SMALL.frame_bytes
    for key in (None, KEY):
        assert by_agent([stream_of([frame], key)], SMALL, key) == ([frame], None)
        less = replace(SMALL, **{limit: getattr(SMALL, limit) - 1})
        frames, error = by_agent([stream_of([frame], key)], less, key)
        assert error is not None and frames == []
        assert error.details["limit"] == limit


def test_no_limit_allows_more_blobs_than_there_is_room_for() -> None:
    stream = prefix(b"gpt1", 1, [0] * 1025) + b"h"
    _, error = by_agent([stream], UNLIMITED, None)
    assert error is not None
    assert error.details == {"limit": "blobs", "allowed": 1024, "got": 1025}


def test_every_changed_bit_of_a_signed_frame_is_noticed() -> None:
    stream = stream_of([NONE_SMALL], KEY)
    for bit in range(8 * len(stream)):
        changed = bytearray(stream)
        changed[bit // 8] ^= 1 << bit % 8
        frames, error = by_agent([bytes(changed)], SMALL, KEY)
        assert frames == []
        assert error is not None or 4 <= bit // 8 < 28  # a size: it waits for more


def test_frames_that_are_repeated_left_out_or_exchanged_are_noticed() -> None:
    one, two, three = b"one", b"two", b"tri"
    whole = stream_of([(one, []), (two, []), (three, [])], KEY)
    size = len(whole) // 3
    first, second, third = (whole[begin : begin + size] for begin in (0, size, 2 * size))
    for order, taken in (
        ((first, first), [one]),
        ((first, third), [one]),
        ((second,), []),
        ((first, second), [one, two]),
    ):
        frames, error = by_agent([b"".join(order)], SMALL, KEY)
        assert [header for header, _ in frames] == taken
        assert (error is None) == (taken == [one, two])
        assert error is None or error.name == "bad_mac"
    assert by_agent([whole], SMALL, b"o" * 32)[1] is not None


def test_nothing_that_was_tampered_with_is_taken() -> None:
    """scripts/fuzz agent does the same with other seeds, a hundred thousand times."""
    recorded, random = Recorded.made(), Random(56)
    for _ in range(150):
        kind, stream = tampered(random, recorded)
        frames, error = by_agent([stream], LIMITS, KEY)
        taken, end = read(stream)
        assert [header for header, _ in frames] == taken, kind
        assert (error.name if error else CUT) == (end if end != "whole" else CUT), kind


@pytest.mark.parametrize("key", [None, KEY], ids=["without", "with MAC"])
def test_a_frame_that_is_cut_off_anywhere_is_not_taken(key: bytes | None) -> None:
    stream = stream_of([NONE_SMALL], key)
    for end in range(len(stream)):
        here, there = socket.socketpair()
        with here, there, Reader(SMALL, key) as reader:
            here.sendall(stream[:end])
            here.shutdown(socket.SHUT_WR)
            if not end:
                assert reader.receive(there.fileno()) is None
                continue
            with pytest.raises(Refused, match=r"^: the connection was closed within a frame"):
                reader.receive(there.fileno())
            with pytest.raises(Refused):
                reader.receive(there.fileno())


def test_a_descriptor_that_fails_or_stays_silent_is_refused(sockets: tuple[socket.socket, socket.socket]) -> None:
    with Reader(SMALL) as reader, pytest.raises(Refused, match="Bad file descriptor"):
        reader.receive(-1)
    sockets[1].setblocking(False)
    with Reader(SMALL) as reader, pytest.raises(Refused, match="silent for too long"):
        reader.receive(sockets[1].fileno())


# --- memory -----------------------------------------------------------------------------------------------------------


def test_memory_is_never_of_a_size_that_a_frame_has_said() -> None:
    """It is that of the limits, once, and costs nothing before bytes come."""
    limits = Limits(frame_bytes=1 << 30)
    announced = prefix(b"gpt1", 5, (100 << 20, 10 << 20)) + b"12345" + b"some of it"
    before, resident = library().asked_bytes(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with Reader(limits) as reader:
        assert list(reader.feed(announced)) == []
        assert library().pieces() == 1
        assert reader.room == len(prefix(b"", 5, (0, 0))) + 4 + 5 + (110 << 20) - len(announced)
    assert library().asked_bytes() - before == (1 << 30) + MAC_BYTES
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - resident < 20 << 10  # KiB
    assert library().pieces() == 0


def test_a_stranger_gets_no_memory() -> None:
    before = library().asked_bytes()
    for stream in (prefix(b"gpt1", 4085, ()), prefix(b"gpt1", 5, (1,)), prefix(b"gpt1", 1 << 20, ())):
        assert by_agent([stream], HANDSHAKE_LIMITS, None)[1] is not None
    assert by_agent([prefix(b"gpt1", 4084, ()) + bytes(4084)], HANDSHAKE_LIMITS, None)[1] is None
    assert library().asked_bytes() == before


def test_a_frame_without_memory_is_refused_and_stays_refused() -> None:
    stream = stream_of(FRAMES[3:4], None)
    with Reader(Limits()) as reader:
        library().refuse_memory(True)
        try:
            with pytest.raises(Refused, match=r"^limit_exceeded: there is no memory for a frame of this size$"):
                list(reader.feed(stream))
        finally:
            library().refuse_memory(False)
        with pytest.raises(Refused, match="there is no memory"):
            list(reader.feed(b""))


# --- writing ----------------------------------------------------------------------------------------------------------


def test_a_frame_that_is_too_large_to_send_takes_no_number(sockets: tuple[socket.socket, socket.socket]) -> None:
    here, there = sockets
    with Writer(there.fileno(), KEY, SMALL) as writer:
        for limit, frame in (
            ("header_bytes", (b"h" * 101, [])),
            ("blobs", (b"h", [b""] * 4)),
            ("frame_bytes", (b"h", [bytes(980)])),
        ):
            with pytest.raises(Refused, match="limit_exceeded") as refused:
                writer.send(*frame)
            assert refused.value.details["limit"] == limit
        writer.send(*NONE_SMALL)
    there.close()
    assert here.recv(1000) == stream_of([NONE_SMALL], KEY)
    assert here.recv(1000) == b""


def test_a_connection_that_is_gone_is_an_error(sockets: tuple[socket.socket, socket.socket]) -> None:
    here, there = sockets
    here.close()
    with Writer(there.fileno()) as writer, pytest.raises(Refused, match=r"^: Broken pipe"):
        writer.send(b"header", [LARGE])


def test_signals_end_neither_reading_nor_writing(sockets: tuple[socket.socket, socket.socket]) -> None:
    here, there = sockets
    arrived = bytearray()

    def talk() -> None:
        time.sleep(0.05)  # meanwhile the other side can write no more
        while len(arrived) < len(stream_of(FRAMES[5:6], KEY)):
            arrived.extend(here.recv(1 << 20))
        time.sleep(0.05)  # meanwhile it waits for a frame
        here.sendall(arrived)

    signals: list[int] = []
    before = signal.signal(signal.SIGALRM, lambda number, _: signals.append(number))
    thread = threading.Thread(target=talk)
    thread.start()
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)
        with Reader(Limits(), KEY) as reader, Writer(there.fileno(), KEY) as writer:
            writer.send(*FRAMES[5])
            assert reader.receive(there.fileno()) == FRAMES[5]
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        thread.join()
    assert signals
