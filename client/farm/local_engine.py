"""Run a farm inside this process: the hosts of its devices are threads, and nothing else is needed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from gputune.client.farm.engine import Announced, Call, DeviceAbsent, DeviceGone, Mailbox
from gputune.core.opened import Closing

MOST_THREADS = 256


class Host(Protocol):
    """List what an engine needs of the host of a device."""

    @property
    def announced(self) -> Announced: ...

    def answer(self, call: Call, tell: Callable[[bytes], None]) -> bytes:
        """Return the frame that answers a call; `tell` takes those before it."""

    def close(self) -> None:
        """Give the device back."""


class LocalEngine(Closing):
    """Reach devices in this process; they come with `add` and go with `remove`; `close` takes all of them away."""

    def __init__(self, hosts: Sequence[Host] = ()) -> None:
        self._hosts: dict[str, Host] = {}
        self._waiting: dict[str, set[Mailbox]] = {}
        self._threads = ThreadPoolExecutor(MOST_THREADS, "farm")
        self._lock = threading.Lock()
        self._watching: list[Callable[[], None]] = []
        for host in hosts:
            self.add(host)

    def add(self, host: Host) -> None:
        """Note that a device joins."""
        with self._lock:
            self._hosts[host.announced.name] = host
        self._tell()

    def remove(self, name: str) -> Host | None:
        """Note that a device is lost: whatever it was asked will not be answered. Returns its host, which is left as it
        is."""
        with self._lock:
            host = self._hosts.pop(name, None)
            boxes = self._waiting.pop(name, set())
        for box in boxes:
            box.lose()
        self._tell()
        return host

    def devices(self) -> Mapping[str, Announced]:
        with self._lock:
            hosts = dict(self._hosts)
        return {name: host.announced for name, host in hosts.items()}

    def watch(self, changed: Callable[[], None]) -> None:
        self._watching.append(changed)

    def call(self, device: str, call: Call, heard: Callable[[bytes], None] | None = None) -> bytes:
        box = Mailbox()
        with self._lock:
            if (host := self._hosts.get(device)) is None:
                raise DeviceAbsent(f"device {device} is not in the farm")
            boxes = self._waiting.setdefault(device, set())
            boxes.add(box)
        answer: Future[bytes] = self._threads.submit(host.answer, call, box.put)
        answer.add_done_callback(lambda future: box.end())
        try:
            while not box.read(heard):
                pass
        finally:
            boxes.discard(box)
        if box.lost:
            raise DeviceGone(f"device {device} has left the farm")
        return answer.result()

    def close(self) -> None:
        for name in list(self._hosts):
            if (host := self.remove(name)) is not None:
                host.close()
        self._threads.shutdown(wait=False)

    def _tell(self) -> None:
        for changed in self._watching:
            changed()
