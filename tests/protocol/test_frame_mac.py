"""Test MACs of frames: frames of any size come through, and no frame comes through that was tampered with."""

import hashlib
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings

from gputune.server.protocol import codec, framing
from gputune.server.protocol.connection import Connection, State
from gputune.server.protocol.errors import RemoteProtocolError
from gputune.server.protocol.frame_mac import MAC_BYTES, PIECE_BYTES, FrameMac, Hashing
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import Done, Error, Executed, Ping, Pong, UploadBuffer
from tests.strategies.changes import cases

from .talk import TOKEN, deliver, pair, raw
from .tampering import CUT, KINDS, NAMES, Recorded, read, tampered

KEY = b"k" * 32


def test_the_mac_is_this_one() -> None:
    """Other programs can make it from this description."""
    blob = bytes(range(256)) * (PIECE_BYTES // 256) + b"rest"
    parts = codec.pack(UploadBuffer(blob), 3)
    mac = FrameMac(KEY)
    for number in range(2):
        stream = b"".join(framing.encode(parts, mac=mac))
        front = stream[: -len(blob) - MAC_BYTES]
        digests = hashlib.sha256(blob[:PIECE_BYTES]).digest() + hashlib.sha256(b"rest").digest()
        text = number.to_bytes(8, "little") + front + digests
        assert front.startswith(b"gptm")
        assert stream[-MAC_BYTES:] == hashlib.blake2b(text, key=KEY, digest_size=16).digest()


@pytest.mark.parametrize("blob_bytes", [0, 1, 5000, framing.STAGING_BYTES + 1, PIECE_BYTES, 2 * PIECE_BYTES + 7])
def test_frames_of_any_size_come_through_in_any_pieces(blob_bytes: int) -> None:
    data = bytes(range(256)) * (blob_bytes // 256) + bytes(blob_bytes % 256)
    many = Executed({f"{number:190}": b"" for number in range(900)})  # a header that is larger than the staging buffer
    messages = [Done(), Executed({"a": data, "b": b"", "c": b"last"}), many, Done()]
    for step in (977, 65_535, 1 << 30):
        mac, reader = FrameMac(KEY), framing.FrameReader(Limits())
        reader.mac = FrameMac(KEY)
        stream = b"".join(b"".join(framing.encode(codec.pack(one, 5), mac=mac)) for one in messages)
        frames = [one for at in range(0, len(stream), step) for one in reader.feed(stream[at : at + step])]
        kinds = codec.registry((Done, Executed))
        assert [codec.unpack(frame.header, frame.blobs, kinds)[1] for frame in frames] == messages
        assert reader.between_frames


def test_pieces_are_hashed_as_they_fill_up() -> None:
    blobs = [memoryview(Random(1).randbytes(size)) for size in (5 * PIECE_BYTES + 3, 0, PIECE_BYTES, 10)]
    hashing, whole = Hashing(), Hashing(most_ahead=None)
    for blob in blobs:
        whole.reach(blob, blob.nbytes)
        for have in (0, PIECE_BYTES - 1, 3 * PIECE_BYTES + 1, blob.nbytes):
            if have <= blob.nbytes:
                hashing.reach(blob, have)
    pieces = [blob[at : at + PIECE_BYTES] for blob in blobs for at in range(0, blob.nbytes, PIECE_BYTES)]
    assert hashing.digests() == whole.digests() == [hashlib.sha256(piece).digest() for piece in pieces]


@pytest.mark.hypothesis
def test_nothing_that_was_tampered_with_is_taken() -> None:
    recorded = Recorded.made()
    ends: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    headers = read(b"".join(recorded.frames))[0]
    assert len(headers) == len(recorded.frames)

    @settings(max_examples=250)
    @given(case=cases)
    def is_taken_until_it_changes(case: int) -> None:
        kind, stream = tampered(Random(case), recorded)
        taken, end = read(stream)
        assert taken == headers[: recorded.intact(stream)], kind
        assert end in (*NAMES, CUT), kind
        ends[end] += 1
        kinds[kind] += 1

    is_taken_until_it_changes()
    assert kinds.keys() == set(KINDS)
    assert ends["bad_mac"] > 100


def test_a_changed_frame_ends_the_connection_and_says_so_to_the_other_side() -> None:
    client, server = pair(token=TOKEN)
    buffers = client.send(UploadBuffer(b"content"), 1)
    changed = bytearray(b"".join(buffers))
    changed[-MAC_BYTES - 1] ^= 1
    with pytest.raises(RemoteProtocolError, match=r"bad_mac.*on the way") as caught:
        deliver([memoryview(changed)], server)
    assert caught.value.arrived == [] and caught.value.request_id == 0
    with pytest.raises(RemoteProtocolError, match="bad_mac"):
        deliver(client.send(Ping(), 2), server)
    ((_, error),) = deliver(server.send(Error("bad_mac", caught.value.message)), client)
    assert error.name == "bad_mac"
    assert client.state is server.state is State.CLOSED


def test_a_reply_by_somebody_else_ends_the_connection() -> None:
    client, server = pair(token=TOKEN)
    deliver(client.send(Ping(), 1), server)
    with pytest.raises(RemoteProtocolError, match="bad_frame"):
        deliver(raw(Pong(), 1), client)
    assert client.state is State.CLOSED
    client, server = pair(token=TOKEN)
    ping = client.send(Ping(), 1)
    with pytest.raises(RemoteProtocolError, match="bad_mac"):  # what is sent back has the other direction's key
        deliver(ping, client)


def test_a_message_that_is_sent_over_and_over_counts_as_the_others() -> None:
    for token in (None, TOKEN):
        client, server = pair(token=token)
        front, answer = client.front(Ping(), 9), client.front(Pong(), 9)
        for number in range(3):
            assert deliver([memoryview(client.sign(front))], server) == [(9, Ping())]
            assert client.expected(answer) == b"".join(server.send(Pong(), 9))
            client.passed()
            deliver(client.send(Ping(), number + 1), server)
            deliver(server.send(Pong(), number + 1), client)
        assert deliver([memoryview(client.sign(front))], server) == [(9, Ping())]
        client.sent(Ping(), 9)
        assert deliver(server.send(Pong(), 9), client) == [(9, Pong())]


def test_a_message_that_is_too_large_to_send_takes_no_number() -> None:
    client, server = pair(token=TOKEN)
    with pytest.raises(Exception, match="limit_exceeded"):
        client.send(UploadBuffer(bytes(300_000)), 1)
    assert deliver(client.send(Ping(), 2), server) == [(2, Ping())]


def test_both_directions_have_keys_of_their_own() -> None:
    client, server = pair(token=TOKEN)
    assert isinstance(client, Connection)
    assert client.sign(b"front") != server.sign(b"front")
