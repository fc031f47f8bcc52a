"""Send hostile inputs to a server over real sockets, one by one, and check what comes back."""

import random
import zlib
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from gputune.server.protocol.errors import ERROR_NAMES, ProtocolError
from gputune.server.protocol.messages import Error, ExecuteKernel, Hello, Ping, Progress
from stress.server.observed import ObservedServer
from stress.server.wire import Closed, Wire, expect, frame, new_hello, signed, whole_frame
from stress.server.workload import DATA, variant

HANG_SECONDS = 20.0
INPUTS_PER_CONNECTION = 200
WORK_SECONDS = 300.0  # what comes before may take up to its time limits
INPUTS_PER_WORK = 3  # behind so many of the inputs all requests are waited for, the worker's included
WORK = ExecuteKernel((variant().main,), {}, {"input": len(DATA), "output": len(DATA)})
INPUTS_PER_BUFFER = 2  # some of them free it
HANDLE = 0x1122334455667788
"""Stands in inputs for a buffer that the connection owns."""
Stage = Literal["start", "greeted", "ready"]
STAGES: tuple[Stage, ...] = get_args(Stage)


@dataclass(frozen=True)
class Input:
    """Bytes for a server; `kind` says what they are like, `stage` when they are sent: at once, after both hellos, or
    after authentication. steps: the sizes of the pieces that they are sent in, over and over; () is all at once."""

    kind: str
    data: bytes
    stage: Stage
    steps: tuple[int, ...] = ()

    def __str__(self) -> str:
        """What --replay takes."""
        return f"{self.stage}:{self.data.hex()}"

    @classmethod
    def parse(cls, text: str) -> "Input":
        """The opposite of str(). Raises ValueError."""
        stage, _, digits = text.partition(":")
        if stage not in STAGES:
            raise ValueError("expected start:HEX, greeted:HEX or ready:HEX")
        return cls("replayed", bytes.fromhex(digits), stage)


@dataclass
class Outcome:
    """What became of an input: what came back, by name, and the promises that were broken."""

    answers: Counter[str] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)

    def add(self, message: Any, ready: bool) -> None:
        """Something came back."""
        kind = type(message).__name__
        self.answers[message.name if isinstance(message, Error) else kind] += 1
        if isinstance(message, Error) and message.name not in ERROR_NAMES:
            self.broken.append(f"the error {message.name!r} is unknown")
        if isinstance(message, Error) and message.name == "internal_error":
            self.broken.append(f"internal_error: {message.message}")
        if not ready and not isinstance(message, (Hello, Error)):
            self.broken.append(f"{kind} came back before authentication")


def packed(handle: int) -> bytes:
    """Return a handle as it stands in a header."""
    return b"\xcf" + handle.to_bytes(8, "big")  # MsgPack's longest form, so that any fits


def ends_whole(data: bytes) -> bool:
    """Whether a server that reads these bytes waits for the beginning of a frame at their end."""
    while data and (sizes := whole_frame(data)) is not None:
        data = data[sizes[1] :]
    return not data


def _of(wire: Wire, data: bytes) -> bytes:
    """What goes out on a connection: behind the handshake every frame is signed, so that it is looked at."""
    return data if wire.mac is None else signed(data, wire.mac)


class Attacker:
    """Sends one input at a time. A connection that has been authenticated is used until the server closes it."""

    def __init__(self, server: ObservedServer) -> None:
        self._server = server
        self._wire: Wire | None = None
        self._used = 0
        self._buffer = 0

    def attack(self, one: Input) -> Outcome:
        """Sends an input and waits until the server has dealt with it. Raises OSError when it cannot be reached."""
        outcome = Outcome()
        if one.stage == "ready":
            self._after(one, outcome)
        else:
            with Wire(self._server.host, self._server.port, HANG_SECONDS) as wire:
                if one.stage == "greeted":
                    wire.send(frame(new_hello()))
                    expect((Hello,), wire.receive()[1])
                self._finish(wire, one, outcome)
        return outcome

    def close(self) -> None:
        """Ends the connection that is still open."""
        if self._wire is not None:
            self._wire.close()
            self._wire = None

    def _after(self, one: Input, outcome: Outcome) -> None:
        wire = self._prepared()
        self._used += 1
        one = replace(one, data=one.data.replace(packed(HANDLE), packed(self._buffer)))
        if not ends_whole(one.data):
            self._finish(wire, one, outcome)
            self.close()
        elif not self._ask_on(wire, one, outcome) or self._used >= INPUTS_PER_CONNECTION:
            self.close()

    def _prepared(self) -> Wire:
        """An authenticated connection with a buffer that is there: the one before, if it is still good for that."""
        if self._wire is not None:
            if self._used % INPUTS_PER_BUFFER:
                return self._wire
            with suppress(RuntimeError, ConnectionError):  # as many requests open as may be; or closed meanwhile
                self._buffer = self._wire.upload(DATA)
                return self._wire
            self._wire.close()
        self._wire, self._used = Wire(self._server.host, self._server.port, HANG_SECONDS, first_id=2**60), 0
        self._wire.authenticate(self._server.token)
        self._buffer = self._wire.upload(DATA)
        return self._wire

    def _ask_on(self, wire: Wire, one: Input, outcome: Outcome) -> bool:
        """Sends whole frames and a request behind them; False when the server closes the connection over them."""
        last = random.SystemRandom().randrange(2**61, 2**62)
        through_worker = zlib.crc32(one.data) % INPUTS_PER_WORK == 0
        behind, seconds = (WORK, WORK_SECONDS) if through_worker else (Ping(), HANG_SECONDS)
        try:
            with suppress(ConnectionError):
                wire.send(_of(wire, one.data + frame(behind, last)), one.steps)
            while True:
                number, message = wire.receive(seconds)
                if number == last and not isinstance(message, Progress):
                    return True
                outcome.add(message, True)
        except TimeoutError:
            outcome.broken.append(f"a {type(behind).__name__} behind it was not answered within {seconds:g} s")
        except ConnectionError:
            outcome.answers["closed"] += 1
        except ProtocolError as error:
            outcome.broken.append(f"the server sent nonsense: {error}")
        return False

    @staticmethod
    def _finish(wire: Wire, one: Input, outcome: Outcome) -> None:
        """Sends bytes and nothing after them; the server must close the connection."""
        try:
            with suppress(ConnectionError):
                wire.send(_of(wire, one.data), one.steps)
                wire.finish()
            while True:
                outcome.add(wire.receive()[1], one.stage == "ready")
        except TimeoutError:
            outcome.broken.append(f"the connection was not closed within {HANG_SECONDS:g} s")
        except (Closed, OSError):
            outcome.answers["closed"] += 1
        except ProtocolError as error:
            outcome.broken.append(f"the server sent nonsense: {error}")
