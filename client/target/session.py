"""Keep a session while connections to a target come and go: hold the current connection and get requests through.

A lost target is waited for with growing pauses (reconnecting.py); an embedded server, or a server over adb, is started
again. Buffers and contexts are sent again when the next request names them. Only the request in flight is repeated,
without the variants whose failure is known (core/batches.py). A variant is blamed only if the server
itself had to be started again each of two times. Five losses of one request end it.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias, TypeVar

from gputune.client.errors import TargetError
from gputune.client.target.reconnecting import Reconnecting
from gputune.client.target.transport.asking import Asking
from gputune.core.batches import ProfileKernel
from gputune.core.launches import Launch
from gputune.core.opened import Opened
from gputune.server.protocol.launches import with_launches
from gputune.server.protocol.messages import (
    KINDS,
    CompileKernel,
    Error,
    ExecuteContext,
    ExecuteKernel,
    LoadContext,
    OpenState,
    Ping,
    ProfileContext,
    Progress,
    ProveFeatures,
)

R = TypeVar("R")
OnProgress: TypeAlias = Callable[[Progress], None] | None

LOST = ("connection_lost", "stopping")
"""Errors after which a target is waited for."""
LOSSES = 5
"""So many lost connections in one request are too many."""
DEATHS = 2
"""So many servers that end with the same request are its doing."""
DEVICE_WORK = (
    ProfileKernel,
    CompileKernel,
    ExecuteKernel,
    LoadContext,
    ExecuteContext,
    ProfileContext,
    OpenState,
    ProveFeatures,
)
"""Requests that run code on the target, which may end a server."""
_PING = Ping()


@dataclass
class Link:
    """Hold what is lost with a connection: the server's handles by the client's, and the source texts that it has."""

    connection: Asking
    buffers: dict[int, int] = field(default_factory=dict)
    contexts: dict[int, int] = field(default_factory=dict)
    sources: set[str] = field(default_factory=set)
    begun: bool = False  # whether `begin` was done on it
    lost: str = ""  # why it is over
    lost_during: type | None = None  # the kind of request that was under way

    @property
    def instance(self) -> object:
        """Return which of the servers that were started there one after the other it is."""
        return self.connection.server.get("instance")


class Session:
    """Hold a session with a target, connected when it is made. For one thread; another keeps the connection alive while
    it idles.

    link: the connection now, or the one that was lost last; requests: how many of each kind were sent; begin: work that
    is done first on each connection, None for nothing; over: says when the replies to what is under way are not wanted
    any more, None for never.
    """

    def __init__(self, reconnecting: Reconnecting) -> None:
        self.requests: Counter[str] = Counter()
        self.begin: Callable[[Link], object] | None = None
        self.over: Callable[[], bool] | None = None
        self._reconnecting = reconnecting
        self._closed = False
        self._opened = Opened("a connection to a target")
        self._lock = threading.Lock()
        self.link = Link(reconnecting.dial())
        self._beat_seconds = max(1, self.link.connection.limits.heartbeat_seconds) / 2
        self._heartbeat = _Heartbeat(self._beat_seconds, self._beat)

    def close(self) -> None:
        """End the session; the server frees what belongs to it. May be called twice. In a fork, nothing is done: the
        connection is the other process's."""
        if not self._opened.here:
            return
        self._closed = True
        self._heartbeat.stop()
        self.link.connection.hang_up()  # a heartbeat under way ends at once
        self._heartbeat.join()
        self.link.connection.close()

    def through(self, work: Callable[[Link], R]) -> R:
        """Do some work on the connection, again on a new one when that is lost meanwhile.

        Raises TargetError: lost_again when a server ended for the second time while its device was at work, which is
        another server that comes back; connection_lost when the way there was lost too often; what Reconnecting raises,
        and what the work does. Raises ForkedProcess in a fork."""
        self._opened.check()
        with self._lock:
            losses = deaths = 0
            while True:
                link = self._connected()
                try:
                    if self.begin is not None and not link.begun:
                        self.begin(link)
                    link.begun = True
                    link.connection.over = self.over
                    return work(link)
                except TargetError as error:
                    if error.name not in LOST:
                        raise
                    self._lose(link, error)
                    reason = error.reason
                    if error.name == "stopping":  # the work has not ended it
                        continue
                losses += 1
                deaths += self._connected().instance != link.instance and link.lost_during in DEVICE_WORK
                if deaths == DEATHS:
                    raise TargetError("lost_again", f"the server ended twice during one request: {reason}")
                if losses == LOSSES:
                    raise TargetError("connection_lost", f"lost {LOSSES} times during one request: {reason}")

    def if_connected(self, work: Callable[[Link], object]) -> None:
        """Do work that a lost connection has made needless; nothing in a fork. Raises TargetError for what else goes
        wrong."""
        if not self._opened.here:
            return
        with self._lock:
            if not self.link.lost:
                self.link.connection.over = None  # what is given back is never given up
                try:
                    work(self.link)
                except TargetError as error:
                    if error.name not in LOST:
                        raise
                    self._lose(self.link, error)

    def ask(
        self,
        link: Link,
        request: Any,
        expected: type[R],
        on_progress: OnProgress = None,
        descriptor: int | None = None,
    ) -> R:
        """Return the reply to a request, inside `work`. Source texts travel once per connection. descriptor: goes with
        the request, over a local socket. Raises TargetError."""
        reply = self._send(link, request, on_progress, descriptor)
        if isinstance(reply, Error) and reply.name == "unknown_source":  # the server had to forget some texts
            link.sources.clear()
            reply = self._send(link, request, on_progress)
        if not isinstance(reply, expected):
            raise link.connection.refusal(reply)
        return reply

    def ask_all(
        self, link: Link, requests: Mapping[int, Any], expected: type[R], answered: Callable[[int, R], object]
    ) -> None:
        """Ask all requests, in their order and several at a time: answered(number, reply) hears of each reply as it
        comes. Inside `work`, of one kind. Raises TargetError, the first one, when none is under way any more."""
        waiting, again = deque(requests), set[int]()

        def following() -> tuple[int, Any] | None:
            if not waiting:
                return None
            number = waiting.popleft()
            return number, self._to_send(link, requests[number])

        def hear(number: int, reply: Any) -> None:
            if isinstance(reply, Error) and reply.name == "unknown_source" and number not in again:
                again.add(number)
                link.sources.clear()
                waiting.append(number)
                return
            if not isinstance(reply, expected):
                raise link.connection.refusal(reply)
            answered(number, reply)

        with _noting(link, type(next(iter(requests.values()), None))):
            link.connection.ask_all(following, hear)

    def _send(self, link: Link, request: Any, on_progress: OnProgress, descriptor: int | None = None) -> Any:
        with _noting(link, type(request)):
            return link.connection.ask(self._to_send(link, request), on_progress, descriptor)

    def _to_send(self, link: Link, request: R) -> R:
        """Return the request without the source texts that the server has, counted."""

        def only_new_source(launch: Launch) -> Launch:
            if launch.source_sha256 in link.sources:
                return replace(launch, source="")
            link.sources.add(launch.source_sha256)
            return launch

        self.requests[KINDS[type(request)]] += 1
        return with_launches(request, only_new_source)

    def _connected(self) -> Link:
        if self._closed:
            address = self.link.connection.address
            raise TargetError("connection_lost", f"the connection to target {address} is closed")
        if self.link.lost:
            self.link = Link(self._reconnecting.again(self.link.lost, self.link.connection))
        return self.link

    def _lose(self, link: Link, error: TargetError) -> None:
        link.connection.close()
        link.lost = error.reason

    def _beat(self) -> None:
        """Ping when nothing was sent for a while. Requests do that themselves while they wait."""
        if self._lock.acquire(blocking=False):
            try:
                if not self.link.lost and self.link.connection.idle_seconds >= self._beat_seconds:
                    self.link.connection.ask(_PING)
            except TargetError as error:
                self._lose(self.link, error)  # the next request connects again
            finally:
                self._lock.release()


@contextmanager
def _noting(link: Link, kind: type) -> Iterator[None]:
    """Note which kind of request was under way when the connection was lost."""
    try:
        yield
    except TargetError:
        link.lost_during = link.lost_during or kind
        raise


class _Heartbeat:
    """Call `beat` every so many seconds until it is stopped, so that an idle connection is not taken for dead. `beat`
    must not raise."""

    def __init__(self, seconds: float, beat: Callable[[], None]) -> None:
        self._seconds = seconds
        self._beat = beat
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gputune-heartbeat", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Let no further beat begin."""
        self._over.set()

    def join(self) -> None:
        """Wait for the end of the beat under way, if there is one."""
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._seconds):
            self._beat()
