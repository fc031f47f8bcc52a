"""Makes hostile inputs: the same seed and number always make the same one, in any order.

A request that is to be mutated names the buffer HANDLE, in whose place attack.py puts one that its connection owns,
so that what is still valid after the mutation goes as deep as an honest client's request.
"""

import random
import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from attack import HANDLE, Input, Stage
from gputune.server.protocol import codec, framing
from gputune.server.protocol.messages import (
    PROTOCOL_VERSION,
    BufferReady,
    Cancel,
    CompileKernel,
    Done,
    DownloadBuffer,
    Error,
    ExecuteContext,
    ExecuteKernel,
    FreeBuffers,
    FreeContexts,
    Hello,
    LoadContext,
    Ping,
    Pong,
    ProfileContext,
    Proof,
    Status,
    UploadBuffer,
)
from mutations import MUTATIONS, encoded, truncated
from wire import frame
from workload import DATA, batch, variant

Make = Callable[[random.Random], bytes]

_VARIANT = variant()
PROFILE = batch(HANDLE, (_VARIANT, _VARIANT))
REQUESTS: tuple[Any, ...] = (
    Ping(),
    Status(),
    Cancel(7),
    UploadBuffer(DATA),
    DownloadBuffer(HANDLE),
    FreeBuffers((7,)),
    CompileKernel(_VARIANT, {"input": len(DATA), "output": len(DATA)}),
    PROFILE,
    ExecuteKernel((_VARIANT.main,), {"input": HANDLE}, {"output": len(DATA)}),
    LoadContext(HANDLE, "", True),
    ExecuteContext(HANDLE, {"x": DATA}),
    ProfileContext(HANDLE, {"x": DATA}, 3),
    FreeContexts((HANDLE,)),
)
GREETINGS = (
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"SSH-2.0-OpenSSH_9.6\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
)


def nonce(chance: random.Random) -> str:
    """64 hexadecimal digits."""
    return f"{chance.getrandbits(256):064x}"


def hello(chance: random.Random) -> bytes:
    """A client's hello that is as it should be."""
    return frame(Hello(PROTOCOL_VERSION, "fuzz", nonce(chance), "token"))


def proof(chance: random.Random) -> bytes:
    """A proof of nothing."""
    return frame(Proof(nonce(chance)))


def request(chance: random.Random) -> bytes:
    """A request that is as it should be."""
    return frame(chance.choice(REQUESTS), chance.randrange(1, 2**31))


# --- kinds of inputs ------------------------------------------------------------------------------


def random_bytes(chance: random.Random) -> bytes:
    """Noise, sometimes behind a magic number."""
    return chance.choice((b"", framing.MAGIC)) + chance.randbytes(chance.randint(1, 300))


def other_protocol(chance: random.Random) -> bytes:
    """Somebody who wants to talk to something else."""
    return chance.choice(GREETINGS)


def oversized(chance: random.Random) -> bytes:
    """A frame that is larger than anybody may send before authentication, with all its bytes."""
    return encoded(b"\x81\xa1x\xda" + struct.pack(">H", size := chance.randint(4100, 60_000)) + b"x" * size)


def oversized_blob(chance: random.Random) -> bytes:
    """A blob of a size that nobody may send is announced, and some of it comes."""
    header, size = b"\x80", chance.choice((1 << 31, 1 << 40, (1 << 64) - 1))
    return struct.pack("<4sIIQ", framing.MAGIC, len(header), 1, size) + header + bytes(chance.randrange(100_000))


def hello_only_once(chance: random.Random) -> bytes:
    """Two hellos."""
    return hello(chance) + hello(chance)


def request_without_proof(chance: random.Random) -> bytes:
    """A request before, after or instead of the hello."""
    return chance.choice((b"", hello(chance))) + request(chance)


def guessed_proof(chance: random.Random) -> bytes:
    """A proof by somebody who does not know the token, and a request that hopes for the best."""
    return proof(chance) + request(chance)


def empty_proof(chance: random.Random) -> bytes:
    """A proof that would do for a server without a token, or none at all."""
    text = chance.choice(("", "0" * 64, "z" * 64))
    return frame(Proof(text)) + request(chance)


def another_hello(chance: random.Random) -> bytes:
    """Without a token, with another version, or with a challenge that is none."""
    valid = Hello(PROTOCOL_VERSION, "fuzz", nonce(chance), "token")
    flawed = chance.choice(
        (
            replace(valid, authentication="none"),
            replace(valid, protocol=chance.choice((0, 1, 3, 2**31 - 1))),
            replace(valid, nonce=chance.choice(("", "0", "x" * 64))),
        )
    )
    return frame(flawed) + chance.choice((b"", frame(Proof("")), proof(chance)))


def same_id_twice(chance: random.Random) -> bytes:
    """Two requests under one id, or one under an id that is none."""
    number = chance.choice((0, 1, 2**62, 2**63 - 1))
    return b"".join(frame(chance.choice(REQUESTS), number) for _ in range(2))


def many_at_once(chance: random.Random) -> bytes:
    """More requests than may be open."""
    first = chance.randrange(1, 2**31)
    return b"".join(frame(chance.choice(REQUESTS[:9]), first + n) for n in range(chance.randint(50, 150)))


def of_the_server(chance: random.Random) -> bytes:
    """What only a server may send."""
    return frame(chance.choice((Done(), BufferReady(1), Pong(), Error("internal_error", "x"))), chance.randint(0, 9))


def somebody_elses(chance: random.Random) -> bytes:
    """Handles that other clients may own."""
    handle = chance.randint(1, 1000)
    kinds = (DownloadBuffer(handle), FreeBuffers((handle,)), LoadContext(handle, "", False), FreeContexts((handle,)))
    return frame(chance.choice(kinds), chance.randrange(1, 2**31))


def freed_in_use(chance: random.Random) -> bytes:
    """A buffer is freed while a batch works on it, and asked for then."""
    first = chance.randrange(1, 2**31)
    requests = (PROFILE, FreeBuffers((HANDLE, HANDLE)), DownloadBuffer(HANDLE), PROFILE)
    return b"".join(frame(one, first + n) for n, one in enumerate(requests))


def bad_blobs(chance: random.Random) -> bytes:
    """Blobs that nobody names, or that are named twice or not there."""
    valid = codec.pack(ExecuteContext(1, {"x": b"1", "y": b"22"}), chance.randrange(1, 2**31))
    header = valid.header.replace(struct.pack("<I", chance.randint(0, 1)), struct.pack("<I", chance.randint(0, 3)))
    return encoded(header, valid.blobs[: chance.randint(0, 2)])


def odd_amounts(chance: random.Random) -> bytes:
    """A valid batch that asks for very much or very little."""
    amounts: dict[str, Any] = {
        "samples": chance.choice((1, 1000, 1001, 2**31 - 1)),
        "sample_ns": chance.choice((0, 10**9, 10**18)),
        "warm_up_ns": chance.choice((0, 10**8)),
        "output_bytes": chance.choice((0, 1, len(DATA), 2**24, 2**48)),
        "best_ns": chance.choice((0.0, 1e-300, 1e18)),
    }
    names = chance.sample(sorted(amounts), 2)
    return frame(replace(PROFILE, **{name: amounts[name] for name in names}), chance.randrange(1, 2**31))


def as_large_as_allowed(chance: random.Random) -> bytes:
    """A valid request whose header is full: of launches, or of entries of a map."""
    entries = {f"{number:x}": number for number in range(chance.choice((70_000, 1_000_000)))}
    short = (replace(_VARIANT.main, source=""),) * chance.choice((1000, 33_000))
    large = chance.choice(
        (
            ExecuteKernel((_VARIANT.main, *short), {"input": HANDLE}, {}),
            CompileKernel(replace(_VARIANT, configuration=entries), {}),
            CompileKernel(replace(_VARIANT, packed=entries), {}),
            ExecuteKernel((_VARIANT.main,), {"input": HANDLE}, entries),
            FreeBuffers(tuple(range(1 << 40, (1 << 40) + len(entries)))),
        )
    )
    return frame(large, chance.randrange(1, 2**31))


START: tuple[Make, ...] = (
    random_bytes,
    other_protocol,
    oversized,
    oversized_blob,
    hello_only_once,
    request_without_proof,
    another_hello,
)
GREETED: tuple[Make, ...] = (random_bytes, oversized, oversized_blob, hello, guessed_proof, empty_proof, request)
READY: tuple[Make, ...] = (
    random_bytes,
    oversized_blob,
    same_id_twice,
    many_at_once,
    of_the_server,
    somebody_elses,
    freed_in_use,
    bad_blobs,
    odd_amounts,
    hello,
)
MAKES: dict[Stage, tuple[Make, ...]] = {"start": START, "greeted": GREETED, "ready": READY}
VALID: dict[Stage, Make] = {"start": hello, "greeted": proof, "ready": request}
MUTATED = 0.6
REPLAYED = 0.05
LARGE = 0.0005


class Inputs:
    """Inputs by number. hello, proof: what an honest client has sent on another connection, to be replayed."""

    def __init__(self, seed: int, ready_share: float, hello: bytes, proof: bytes) -> None:
        self._seed = seed
        self._ready_share = ready_share
        self._recorded: dict[Stage, bytes] = {"start": hello + proof, "greeted": proof, "ready": hello + proof}

    def make(self, number: int) -> Input:
        """The input with this number."""
        chance = random.Random(f"{self._seed} {number}")
        early: Stage = "start" if chance.random() < 0.5 else "greeted"
        stage: Stage = "ready" if chance.random() < self._ready_share else early
        if chance.random() < REPLAYED:
            data = self._recorded[stage]
            whole = chance.random() < 0.8
            return Input("replayed handshake", data + request(chance) if whole else truncated(chance, data), stage)
        if stage == "ready" and chance.random() < LARGE:
            return Input("as_large_as_allowed", as_large_as_allowed(chance), stage)
        if chance.random() < MUTATED:
            mutate = chance.choice(MUTATIONS)
            return Input(f"{mutate.__name__} frame", mutate(chance, VALID[stage](chance)), stage)
        make = chance.choice(MAKES[stage])
        return Input(make.__name__, make(chance), stage)
