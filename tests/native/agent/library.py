"""Bind the agent's sources of frames, hashes and keys, compiled for the tests."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from enum import IntEnum
from types import TracebackType

from gputune.server.protocol.limits import Limits
from tests.native.compiling import driver


class State(IntEnum):
    """What next_frame says."""

    WHOLE, PART, ENDED, REFUSED = range(4)


class Slice(ctypes.Structure):
    _fields_ = (("data", ctypes.c_void_p), ("nbytes", ctypes.c_size_t))


class CFrame(ctypes.Structure):
    _fields_ = (("header", Slice), ("blobs", ctypes.POINTER(Slice)), ("count", ctypes.c_size_t))


class CLimits(ctypes.Structure):
    _fields_ = tuple((name, ctypes.c_uint64) for name in ("frame_bytes", "header_bytes", "blobs"))


class CError(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p),
        ("limit", ctypes.c_char_p),
        ("allowed", ctypes.c_uint64),
        ("got", ctypes.c_uint64),
        ("message", ctypes.c_char * 160),
    )


class Refused(Exception):
    """The agent refuses a frame. name: as in errors.py, or empty where the connection has failed."""

    def __init__(self, error: CError) -> None:
        self.name = (error.name or b"").decode()
        super().__init__(f"{self.name}: {error.message.decode()}")
        self.details = (
            {"limit": error.limit.decode(), "allowed": error.allowed, "got": error.got} if error.limit else {}
        )


def library() -> ctypes.CDLL:
    """Return the compiled sources."""
    found = driver("agent", "agent/blake2b", "sha256", "pool", "msgpack")
    for name in ("new_reader", "new_mac", "error_of"):
        getattr(found, name).restype = ctypes.c_void_p
    for name in ("feed", "asked_bytes", "pieces", "room_of"):
        getattr(found, name).restype = ctypes.c_size_t
    for name in ("scrypt", "write_frame", "are_digits", "same_mac"):
        getattr(found, name).restype = ctypes.c_bool
    return found


def _limits(limits: Limits) -> CLimits:
    return CLimits(limits.frame_bytes, limits.header_bytes, limits.blobs)


class Reader:
    """The agent's reader of frames; key: of the direction, None if its frames carry no MAC."""

    def __init__(self, limits: Limits, key: bytes | None = None) -> None:
        self._library = library()
        self._own = ctypes.c_void_p(self._library.new_reader(ctypes.byref(_limits(limits)), key))
        self._found = CFrame()

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._library.free_reader(self._own)

    @property
    def room(self) -> int:
        """How many bytes may come."""
        return int(self._library.room_of(self._own))

    def feed(self, data: bytes) -> Iterator[tuple[bytes, list[bytes]]]:
        """Yield the header and the blobs of each frame that `data` completes. Raises Refused."""
        while True:
            state = State(self._library.next_frame(self._own, ctypes.byref(self._found)))
            if (frame := self._taken(state)) is not None:
                yield frame
            elif not data:
                return
            else:
                taken = self._library.feed(self._own, data, ctypes.c_size_t(len(data)))
                assert 0 < taken <= len(data)
                data = data[taken:]

    def receive(self, descriptor: int) -> tuple[bytes, list[bytes]] | None:
        """Return the next frame that comes from a descriptor; None at its end. Raises Refused."""
        return self._taken(State(self._library.read_frame(self._own, descriptor, ctypes.byref(self._found))))

    def change(self, limits: Limits, key: bytes | None = None) -> None:
        """Set other limits, and the key if frames carry MACs from now on."""
        self._library.change_reader(self._own, ctypes.byref(_limits(limits)), key)

    def _taken(self, state: State) -> tuple[bytes, list[bytes]] | None:
        if state is State.REFUSED:
            raise Refused(CError.from_address(self._library.error_of(self._own)))
        if state is not State.WHOLE:
            return None
        header, *blobs = (
            ctypes.string_at(part.data, part.nbytes)
            for part in (self._found.header, *self._found.blobs[: self._found.count])
        )
        return header, blobs


class Writer:
    """The agent's writer of frames to a descriptor; key as for Reader."""

    def __init__(self, descriptor: int, key: bytes | None = None, limits: Limits | None = None) -> None:
        self._library = library()
        self.descriptor, self._limits = descriptor, _limits(limits or Limits())
        self._mac: ctypes.c_void_p | None = None
        self.change(key)

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.change(None)

    def change(self, key: bytes | None) -> None:
        """Set the key for MACs from now on, or that there are none."""
        if self._mac is not None:
            self._library.free_mac(self._mac)
        self._mac = None if key is None else ctypes.c_void_p(self._library.new_mac(key))

    def send(self, header: bytes, blobs: Sequence[bytes] = ()) -> None:
        """Write a frame. Raises Refused."""
        parts = [Slice(ctypes.cast(ctypes.c_char_p(part), ctypes.c_void_p), len(part)) for part in (header, *blobs)]
        frame, error = CFrame(parts[0], (Slice * len(blobs))(*parts[1:]), len(blobs)), CError()
        sent = ctypes.byref(frame)
        given = self.descriptor, self._mac, ctypes.byref(self._limits), sent, ctypes.byref(error)
        if not self._library.write_frame(*given):
            raise Refused(error)
