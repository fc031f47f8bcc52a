"""Work on a device behind an agent as on any other."""

from __future__ import annotations

import contextlib
import itertools
import logging
import math
import os
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import astuple
from typing import Any, NamedTuple

import numpy as np

from gputune.core.bounds import Scalar
from gputune.core.dtypes import ELEMENT_TYPES
from gputune.core.errors import DeviceNotFound, LaunchFailed
from gputune.core.identity import DeviceIdentity
from gputune.core.quirks import quirks_of
from gputune.runtime.backends import (
    Backend,
    Batch,
    Bound,
    Buffer,
    Bytes,
    Checked,
    Compared,
    Guards,
    Program,
    Reference,
    Times,
    Timing,
    Zone,
    buffers_of,
)
from gputune.runtime.backends.answers import in_order_of_time, timing_of
from gputune.runtime.backends.base import Call
from gputune.runtime.devices.caches import last_cache_bytes
from gputune.runtime.devices.settings import deciding
from gputune.server.agent import message_parts, messages
from gputune.server.agent.agent_connection import LOST, AgentConnection
from gputune.server.agent.agent_proofs import AgentProofs
from gputune.server.agent.message_parts import Given, Span
from gputune.server.agent.state import AgentState

log = logging.getLogger("gputune.server.agent")

KINDS_OF_TIME = 4


class Handle:
    """Hold a number by which the agent knows something; it frees that when nothing has this object any more."""

    def __init__(self, numbers: _Numbers) -> None:
        self.number = numbers.take()
        self.free = weakref.finalize(self, numbers.given_back.append, self.number)
        self.free.atexit = False


class _Numbers:
    """Choose the handles of what an agent makes, so that nothing has to be waited for. given_back: those that the agent
    may free. Several threads may use it."""

    def __init__(self) -> None:
        self.given_back: deque[int] = deque()
        self._reusable: deque[int] = deque()
        self._fresh = itertools.count(1)

    def take(self) -> int:
        """Return a number that is free."""
        with contextlib.suppress(IndexError):
            return self._reusable.popleft()
        return next(self._fresh)

    def free_by(self, post: Callable[[messages.Free], None]) -> None:
        """Send what frees all that were given back, and only then take them for free."""
        freed: list[int] = []
        with contextlib.suppress(IndexError):
            while len(freed) < _FREED_AT_ONCE:
                freed.append(self.given_back.popleft())
        if freed:
            post(messages.Free(tuple(freed)))
            self._reusable += freed


class _Kernel(NamedTuple):
    """Hold a bound kernel's handle, and its program."""

    handle: Handle
    program: Program


class AgentBackend(Backend):
    """Use a device that an agent has opened. Requests without an answer that matters are sent and not waited for."""

    def __init__(self, identity: DeviceIdentity, address: str, place: int) -> None:
        """Open the device at a place of the list of the agent at an address. Raises DeviceNotFound, DeviceError."""
        super().__init__(identity)
        self._address = address
        self._connection = AgentConnection(address)
        self._numbers = _Numbers()
        self._state = AgentState(self._connection.ask)

        def open_again() -> tuple[Backend, AgentConnection]:
            other = AgentBackend(identity, address, place)
            return other, other._connection

        self.prove = AgentProofs(identity, open_again)
        self._references: weakref.WeakKeyDictionary[Reference, Handle] = weakref.WeakKeyDictionary()
        quirks = quirks_of(identity)
        # A process that only compiles is started with variables of its own.
        own = {name: value for name, value in quirks.unbound.items() if os.environ.get(name) == value}
        given = tuple(f"{name}={value}" for name, value in own.items())
        opened: messages.Opened = self._connection.ask(messages.Open(place, True, given))
        self._cache_bytes = last_cache_bytes(identity, opened.cache_bytes)
        variables = dict(each.split("=", 1) for each in opened.variables if "=" in each)
        self._settings = deciding(variables)
        self._waits = identity.device_type in quirks.compiles_at_first_launch
        # Who starts the agent may give it a folder for that, which all its connections share.
        self.finds_compiled = quirks.compiled is not None and variables.get(quirks.compiled.finds) == "1"

    @property
    def settings(self) -> dict[str, str]:
        """Return the agent's variables that change code or time."""
        return self._settings

    @property
    def cache_bytes(self) -> int:
        return self._cache_bytes

    def state(self) -> dict[str, float]:
        return self._state.read()

    def lost(self) -> bool:
        """Return whether nothing works any more. Where the connection has ended, the agent says in another one whether
        that was the device's doing. If it was not, or no agent answers, this process ends with an exit code that is
        charged to nothing that was under way."""
        if not self._connection.closed:
            return super().lost()
        ended = ""
        with contextlib.suppress(DeviceNotFound):
            ended = self._connection.ending()
        if not ended:
            log.error("the connection to %s has ended, and so does this worker", self._address)
            os._exit(LOST)
        log.error("the agent's process: %s", ended)
        return True

    def close(self) -> None:
        """End the connection, with all that the agent has for it."""
        self._connection.close()

    # --- memory ---

    def _allocate(self, nbytes: int) -> Handle:
        handle = self.new_handle()
        self._post(messages.Allocate(handle.number, nbytes))
        return handle

    def _part(self, parent: Buffer, offset: int, nbytes: int) -> tuple[Handle, int]:
        return parent.handle, offset

    def write(self, buffer: Buffer, data: Any) -> None:
        content = np.frombuffer(data, np.uint8)
        if content.nbytes > buffer.nbytes:
            raise LaunchFailed(f"writing {content.nbytes} bytes to a buffer of {buffer.nbytes} bytes")
        if content.nbytes:
            self._post(messages.Write((_span(buffer, content.nbytes),), (content.data,)))

    def read(self, buffer: Buffer, into: Bytes | None = None) -> Bytes:
        (data,) = self._ask(messages.Read((_span(buffer, buffer.nbytes),))).data
        content = np.frombuffer(data, np.uint8)
        if into is None:
            return content
        into[:] = content
        return into

    def fill(self, buffer: Buffer, pattern: int) -> None:
        self._post(messages.Fill((_span(buffer, buffer.nbytes),), (pattern,)))

    def copy(self, source: Buffer, target: Buffer) -> None:
        self._post(messages.Copy((_span(source, source.nbytes),), (_span(target, source.nbytes),)))

    def compare(self, zone: Zone, reference: Reference, beside: Sequence[Zone] = ()) -> tuple[Compared, list[Checked]]:
        if reference.dtype not in ELEMENT_TYPES:
            return super().compare(zone, reference, beside)
        if (kept := self._references.get(reference)) is None:
            kept = self._references[reference] = self.new_handle()
            self._post(
                messages.Keep(kept.number, np.ascontiguousarray(reference.values).reshape(-1).view(np.uint8).data)
            )
        bounds = np.array(astuple(reference.bounds), "<f8").tobytes()
        expected = message_parts.Expected(kept.number, reference.dtype, bounds)
        answer: messages.Checked = self._ask(messages.Check(tuple(map(_guarded, (zone, *beside))), (expected,)))
        first, *others = map(_checked, answer.seen)
        (found,) = answer.found
        maximum = float(np.frombuffer(found.maximum, "<f8")[0]) if len(found.maximum) else None
        compared = Compared(found.wrong, found.poisoned, found.first, bytes(found.found), maximum, first.guards)
        return compared, others

    def checksum(self, zones: Sequence[Zone]) -> list[Checked]:
        return list(map(_checked, self._ask(messages.Check(tuple(map(_guarded, zones)), ())).seen))

    # --- programs ---

    def _build(self, source: str, options: str) -> Program:
        return self._program(source, options, b"")

    def load_binary(self, binary: bytes) -> Program:
        return self._program("", "", binary)

    def _program(self, source: str, options: str, binary: bytes) -> Program:
        handle = self.new_handle()
        built: messages.Built = self._ask(messages.Build(handle.number, source, options, binary))
        return Program(handle, built.build_ns)

    def harvest(self, program: Program) -> bytes:
        if program.binary is None:
            (data,) = self._ask(messages.Harvest(program.handle.number)).data
            program.binary = bytes(data)
        return program.binary

    # --- launches ---

    def _bind(self, call: Call) -> Bound:
        program, sizes, handle = call.program, (call.global_size, call.local_size), self.new_handle()
        entry, given = program.prefix + call.entry, tuple(map(_given, call.arguments))
        self._post(messages.Bind(handle.number, program.handle.number, entry, *sizes, given))
        return Bound(_Kernel(handle, program), *sizes, buffers_of(call.arguments))

    def enqueue(self, bound: Bound) -> None:
        self._post(messages.TimePass((_batch(bound, 1),), 0))

    def enqueue_timed(self, bounds: Sequence[Bound]) -> Callable[[], Times]:
        found: list[messages.Timed] = []
        self._post(messages.TimePass(tuple(_batch(bound, 1) for bound in bounds), _ALL), found.append)

        def times() -> Times:
            self.finish()
            rows, last = _times_of(found[0].times), np.cumsum([len(bound.sequence) for bound in bounds]) - 1
            first = last - [len(bound.sequence) - 1 for bound in bounds]
            return in_order_of_time(np.column_stack([rows[first, :3], rows[last, 3:]]))

        return times

    def finish(self) -> None:
        self._ask(messages.TimePass((), 0))

    def first_launch(self, bound: Bound, started: Callable[[], None]) -> Timing:
        timed = self._ask(messages.FirstLaunch(bound.kernel.handle.number, self._waits), started)
        (timing,) = _timings([message_parts.Batch((0,), 1, True)], timed)
        return timing

    def time(self, bound: Bound, launches: int) -> Timing:
        (timing,) = self.time_pass([Batch(bound, launches)])
        return timing

    def time_pass(self, batches: Sequence[Batch], enough_ns: float = math.inf) -> list[Timing]:
        sent: list[message_parts.Batch] = []
        for batch in batches:
            if batch.evict_bytes is not None:
                flusher = self._flusher(batch.evict_bytes or None)
                sent.append(message_parts.Batch((flusher.kernel.handle.number,), 1, False))
            sent.append(_batch(batch.bound, batch.launches))
        enough = _ALL if math.isinf(enough_ns) else max(0, math.ceil(enough_ns))
        timed = self._ask(messages.TimePass(tuple(sent), enough))
        return [timing for timing, each in zip(_timings(sent, timed), sent, strict=False) if each.counted]

    def flush_caches(self, nbytes: int | None = None) -> None:
        self.enqueue(self._flusher(nbytes))
        self.finish()

    # --- the agent ---

    def new_handle(self) -> Handle:
        """Return a number for what a request makes."""
        return Handle(self._numbers)

    def ask(self, request: Any, outputs: Sequence[int] | None = None) -> Any:
        """Return the agent's reply to a request about contexts. outputs: bytes of those that an inference has. Raises
        DeviceError, ContextError."""
        return self._ask(request, outputs=outputs)

    def _ask(
        self, request: Any, started: Callable[[], None] = lambda: None, outputs: Sequence[int] | None = None
    ) -> Any:
        self._free()
        return self._connection.ask(request, started, outputs)

    def _post(self, request: Any, take: Callable[[Any], None] = lambda reply: None) -> None:
        self._free()
        self._connection.post(request, take)

    def _free(self) -> None:
        self._numbers.free_by(self._connection.post)


_ALL = 10**18
"""Nanoseconds that no pass takes."""
_FREED_AT_ONCE = 4096
"""So many handles a message holds."""


def _span(buffer: Buffer, nbytes: int) -> Span:
    if buffer.parent is None:
        return Span(buffer.handle.number, 0, nbytes)
    handle, offset = buffer.handle
    return Span(handle.number, offset, nbytes)


def _guarded(zone: Zone) -> message_parts.Guarded:
    span = _span(zone.buffer, zone.buffer.nbytes)
    return message_parts.Guarded(span.buffer, span.offset, span.nbytes, zone.guard_bytes, zone.nbytes, zone.summed)


def _checked(seen: message_parts.Seen) -> Checked:
    return Checked(seen.crc32, Guards(seen.before, seen.before_distance, seen.after, seen.after_distance))


def _given(argument: Buffer | Scalar) -> Given:
    if not isinstance(argument, Buffer):
        return Given(0, 0, 0, int(np.int32(argument)))
    span = _span(argument, argument.nbytes)
    return Given(span.buffer, span.offset, span.nbytes, 0)


def _batch(bound: Bound, launches: int) -> message_parts.Batch:
    return message_parts.Batch(tuple(one.kernel.handle.number for one in bound.sequence), launches, True)


def _times_of(data: Any) -> Times:
    return np.frombuffer(data, "<i8").reshape(-1, KINDS_OF_TIME).astype(np.int64)


def _timings(sent: Sequence[message_parts.Batch], timed: messages.Timed) -> list[Timing]:
    """Return the times of the batches that were run."""
    walls, times = np.frombuffer(timed.wall_ns, "<i8"), _times_of(timed.times)
    ends = np.cumsum([each.launches * len(each.bounds) for each in sent[: len(walls)]], dtype=np.int64)
    rows = np.split(times, ends[:-1])
    return [timing_of(row, each.launches, int(wall)) for row, each, wall in zip(rows, sent, walls, strict=False)]
