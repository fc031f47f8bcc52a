"""Let two connections talk to each other without a socket."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gputune.server.protocol import codec, framing
from gputune.server.protocol.connection import Connection, State
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import PROTOCOL_VERSION, Proof, Welcome

TOKEN = b"a token of the tests"
LIMITS = Limits(frame_bytes=200_000, requests=4)


def raw(message: object, request_id: int) -> list[memoryview]:
    """A message as bytes, whether or not it may be sent now."""
    return framing.encode(codec.pack(message, request_id))


def feed(connection: Connection, data: bytes, steps: Sequence[int] = ()) -> Iterator[list[tuple[int, Any]]]:
    """What arrives when data comes in pieces of these sizes, over and over; () is as much at a time as it takes."""
    position = turn = 0
    while position < len(data):
        space = connection.space()
        assert space
        count = min(len(space), len(data) - position, steps[turn % len(steps)] if steps else len(data))
        space[:count] = data[position : position + count]
        position, turn = position + count, turn + 1
        yield connection.filled(count)


def deliver(buffers: list[memoryview], to: Connection, *steps: int) -> list[tuple[int, Any]]:
    """Carries buffers to the other side, in pieces of these sizes; returns all that arrived."""
    return [message for arrived in feed(to, b"".join(buffers), steps) for message in arrived]


def pair(
    state: State = State.READY, token: bytes | None = None, limits: Limits = LIMITS, protocol: int = PROTOCOL_VERSION
) -> tuple[Connection, Connection]:
    """A client and a server that have come to `state`. With a token no frame of `raw` fits behind the hellos."""
    client = Connection("client", "gputune 1", token, protocol)
    server = Connection("server", "gputune 2", token)
    steps: dict[State, Callable[[], list[tuple[int, Any]]]] = {
        State.GREETED: lambda: deliver(client.send(client.hello()), server),
        State.AGREED: lambda: deliver(server.send(server.hello()), client),
        State.PROVEN: lambda: deliver(client.send(Proof()), server),
        State.READY: lambda: deliver(server.send(Welcome(limits, {}, {})), client),
    }
    for reached, step in steps.items():
        if client.state is state:
            break
        assert len(step()) == 1
        assert client.state is server.state is reached
    return client, server
