"""List hostile inputs for a live server: the inputs of tests/protocol/hostile.py, and inputs that need a server.

A request that is to be spoiled names the buffer HANDLE. attack.py replaces it by a buffer that its connection owns, so
that what is still valid goes as deep as an honest client's request.
"""

import random
import struct
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from typing import Any

from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.server.protocol import codec, framing
from gputune.server.protocol.frame_mac import FrameMac
from gputune.server.protocol.limits import Limits
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
    FreeStates,
    Hello,
    LoadContext,
    OpenState,
    Ping,
    Pong,
    ProfileContext,
    Progress,
    Proof,
    ProveFeatures,
    ReadState,
    RegisterMemory,
    ResetState,
    SetPerfProfile,
    Status,
    UploadBuffer,
    Welcome,
)
from stress.server.attack import HANDLE, Input, Stage
from stress.server.wire import frame
from stress.server.workload import DATA, batch, variant
from tests.protocol.full import full_headers
from tests.protocol.hostile import hostile_inputs

Make = Callable[[random.Random], bytes]

_VARIANT = variant()
PROFILE = batch(HANDLE, (_VARIANT, _VARIANT))
REQUESTS: tuple[Any, ...] = (
    Ping(),
    Status(),
    Cancel(7),
    UploadBuffer(DATA),
    RegisterMemory(4096, 0),
    DownloadBuffer(HANDLE),
    FreeBuffers((7,)),
    CompileKernel(_VARIANT, {"input": len(DATA), "output": len(DATA)}),
    PROFILE,
    ExecuteKernel((_VARIANT.main,), {"input": HANDLE}, {"output": len(DATA)}),
    LoadContext(HANDLE, "", True),
    ExecuteContext(HANDLE, {"x": DATA}),
    ExecuteContext(HANDLE, {}, {"x": HANDLE}, {"y": HANDLE}),
    ProfileContext(HANDLE, {"x": DATA}, 3, "detailed"),
    ExecuteContext(HANDLE, {"x": DATA}, state=HANDLE, length=3),
    FreeContexts((HANDLE,)),
    OpenState(HANDLE, HANDLE),
    ResetState(HANDLE),
    ReadState(HANDLE, "past", 2**47),
    FreeStates((HANDLE, 7)),
    SetPerfProfile(PerfProfile.from_preset("burst").to_dict()),
    ProveFeatures(("half", "sorcery")),
)
OF_A_SERVER: tuple[Any, ...] = (
    Welcome(Limits(), {}, {}),
    Pong(),
    Done(),
    BufferReady(1),
    Progress("queued", 0, 1, ""),
    Error("internal_error", "", {}),
)


def nonce(chance: random.Random) -> str:
    """64 hexadecimal digits."""
    return f"{chance.getrandbits(256):064x}"


def hello(chance: random.Random) -> bytes:
    """A client's hello that is as it should be."""
    return frame(Hello(PROTOCOL_VERSION, "fuzz", nonce(chance), "token"))


def proof(chance: random.Random) -> bytes:
    """A proof whose MAC is under another key than the token's."""
    return frame(Proof(), mac=FrameMac(chance.randbytes(32)))


def request(chance: random.Random) -> bytes:
    """A request that is as it should be."""
    return frame(chance.choice(REQUESTS), chance.randrange(1, 2**31))


# --- kinds of inputs ------------------------------------------------------------------------------


def spoiled(chance: random.Random) -> bytes:
    """A request on a buffer that is there, with a few other bytes."""
    data = bytearray(request(chance))
    for _ in range(chance.randint(1, 4)):
        data[chance.randrange(len(framing.MAGIC), len(data))] = chance.randrange(256)
    return bytes(data)


def guessed_proof(chance: random.Random) -> bytes:
    """A proof under another key than the token's, and a request behind it."""
    return proof(chance) + request(chance)


def empty_proof(chance: random.Random) -> bytes:
    """A proof that would do for a server without a token."""
    return frame(Proof()) + request(chance)


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
    return frame(flawed) + chance.choice((b"", frame(Proof()), proof(chance)))


def freed_in_use(chance: random.Random) -> bytes:
    """A buffer is freed while a batch works on it, and asked for then."""
    first = chance.randrange(1, 2**31)
    requests = (PROFILE, FreeBuffers((HANDLE, HANDLE)), DownloadBuffer(HANDLE), PROFILE)
    return b"".join(frame(one, first + n) for n, one in enumerate(requests))


def of_another_client(chance: random.Random) -> bytes:
    """Handles that other clients may own."""
    handle = chance.randint(1, 1000)
    kinds = (
        DownloadBuffer(handle),
        FreeBuffers((handle,)),
        LoadContext(handle, "", False),
        FreeContexts((handle,)),
        ResetState(handle),
        FreeStates((handle,)),
    )
    return frame(chance.choice(kinds), chance.randrange(1, 2**31))


def from_a_server(chance: random.Random) -> bytes:
    """A message that a server sends, about a request or about none."""
    return frame(chance.choice(OF_A_SERVER), chance.choice((0, 1, chance.randrange(2**31)))) + request(chance)


def greeted_again(chance: random.Random) -> bytes:
    """Another handshake behind the one that has let it in."""
    return chance.choice((hello(chance), frame(Proof()), hello(chance) + frame(Proof()))) + request(chance)


def out_of_order(chance: random.Random) -> bytes:
    """Requests under numbers that go up and down, some of them twice, and cancelled before they are asked for."""
    numbers = [chance.randrange(1, 40) for _ in range(chance.randint(2, 12))]
    asked = [(chance.choice((*REQUESTS, Cancel(chance.choice(numbers)))), number) for number in numbers]
    return b"".join(frame(one, number) for one, number in asked)


def bad_blobs(chance: random.Random) -> bytes:
    """Blobs that no field names, or that are named twice or not there."""
    valid = codec.pack(ExecuteContext(1, {"x": b"1", "y": b"22"}), chance.randrange(1, 2**31))
    header = valid.header.replace(struct.pack("<I", chance.randint(0, 1)), struct.pack("<I", chance.randint(0, 3)))
    return b"".join(framing.encode(codec.Parts(header, valid.blobs[: chance.randint(0, 2)])))


def odd_amounts(chance: random.Random) -> bytes:
    """A valid batch that asks for very much or very little."""
    amounts: dict[str, Any] = {
        "samples": chance.choice((1, 256, 257, 2**31 - 1)),
        "sample_ns": chance.choice((0, 10**9, 31 * 10**9, 10**18)),
        "warm_up_ns": chance.choice((0, 10**8, 31 * 10**9, 10**18)),
        "output_bytes": chance.choice((0, 1, len(DATA), 2**24, 2**48)),
        "best_ns": chance.choice((0.0, 1e-300, 1e18)),
    }
    names = chance.sample(sorted(amounts), chance.randint(1, 2))  # one alone is allowed often enough to be measured
    return frame(replace(PROFILE, **{name: amounts[name] for name in names}), chance.randrange(1, 2**31))


@cache
def _large() -> tuple[bytes, ...]:
    return tuple(b"".join(framing.encode(make())) for make in full_headers().values())


def as_large_as_allowed(chance: random.Random) -> bytes:
    """A header that is full: of launches, of entries of a map, or of lists within lists."""
    return chance.choice(_large())


KINDS: dict[Stage, tuple[Make, ...]] = {
    "start": (another_hello, request),
    "greeted": (hello, guessed_proof, empty_proof, request),
    "ready": (
        *(spoiled, spoiled, spoiled, freed_in_use, of_another_client, bad_blobs, odd_amounts),
        *(from_a_server, greeted_again, out_of_order),
    ),
}
GENERAL = 0.5
REPLAYED = 0.1
LARGE = 0.001
_ENDLESS = 1 << 62


def inputs(seed: int, ready_share: float, hello: bytes, proof: bytes) -> Iterator[Input]:
    """Inputs without end, the same for the same seed and handshake; so many of them come after authentication.

    hello, proof: what an honest client has sent on another connection, to be replayed.
    """
    chance = random.Random(seed)
    streams = {
        False: (item for item in hostile_inputs(seed, _ENDLESS) if not item.authenticated),
        True: (item for item in hostile_inputs(seed, _ENDLESS) if item.authenticated),
    }
    while True:
        ready = chance.random() < ready_share
        if chance.random() < GENERAL:
            item = next(streams[ready])
            yield Input(item.kind, item.data, "ready" if ready else "start", item.steps)
            continue
        early: Stage = "start" if chance.random() < 0.5 else "greeted"
        stage: Stage = "ready" if ready else early
        if chance.random() < REPLAYED:
            yield Input("recorded", (b"" if stage == "greeted" else hello) + proof + request(chance), stage)
        elif ready and chance.random() < LARGE:
            yield Input("as_large_as_allowed", as_large_as_allowed(chance), stage)
        else:
            make = chance.choice(KINDS[stage])
            yield Input(make.__name__, make(chance), stage)
