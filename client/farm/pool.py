"""Manage the devices of a farm for one job: which devices it has, and which session runs on which device.

A session outlives its device. It continues on another device of the same tier, and sends again what that device needs.
When devices join, sessions that share a device move apart; if no sessions share a device, new sessions are opened.
"""

from __future__ import annotations

import itertools
import logging
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from gputune.client.errors import TargetError
from gputune.client.farm.engine import Announced, Call, DeviceGone, Engine, FarmError
from gputune.client.farm.farm_connection import FarmConnection
from gputune.client.farm.hosts.health import Speed
from gputune.client.farm.twins import DEFAULT, HEALTH_CHECK, Twins, default_of
from gputune.client.target.client import TargetClient
from gputune.client.target.reconnecting import RECONNECT_SECONDS, Reconnecting
from gputune.client.target.several import Arrived, unlike
from gputune.core.batches import Profiled, ProfileKernel
from gputune.core.opened import Closing

log = logging.getLogger(__name__)

TICK_SECONDS = 1.0
RENEW_SECONDS = 4.0
BUSY_SECONDS = 2.0
"""After which a device that another job had is asked again."""
SESSIONS = 2
"""Of a job on a device that is no CPU: while the batch of one is measured, the other's next one is chosen. Beside the
kernels of a CPU nothing is chosen or sent."""
LOSSES = 5
"""So many devices that are lost with the same request are its doing."""


class Pool(Closing):
    """Hold the devices that one job may use: those of some tiers, at most so many of each. Keep them for the job until
    it is closed."""

    def __init__(self, engine: Engine, job: str, tiers: Sequence[str] = ("*",), count: int | None = None) -> None:
        """tiers: patterns of tiers' names. The engine stays the caller's."""
        self.engine = engine
        self.job = job
        self._patterns = tuple(tiers)
        self.count = count
        self.changed = threading.Condition()
        self.excluded: dict[str, str] = {}
        """Devices that are set apart, with the reason."""
        self._compared: dict[str, Twins] = {}
        self._numbers = itertools.count(1)
        self._groups: dict[str, TierDevices] = {}
        self._turns: dict[str, threading.Lock] = {}
        self._renewing: set[str] = set()
        self._stop = threading.Event()
        engine.watch(self._notify)
        threading.Thread(target=self._keep, name=f"job {job}", daemon=True).start()

    def tiers(self) -> list[str]:
        """Return the tiers of the devices that are there and asked for."""
        return sorted({one.tier for one in self.engine.devices().values() if self._wanted(one)})

    def group(self, tier: str) -> TierDevices:
        """Return the devices of a tier."""
        return self._groups.setdefault(tier, TierDevices(self, tier))

    def usable(self, tier: str) -> dict[str, Announced]:
        """Return the devices of a tier that may be used, by name; those that are unlike most of the others are set
        apart."""
        found = {
            name: one
            for name, one in sorted(self.engine.devices().items())
            if one.tier == tier
            and name not in self.excluded
            and self._wanted(one)
            and one.report.get("draining") is not True
        }
        usual = _most_alike(list(found.values()))
        for name, one in list(found.items()):
            if wrong := unlike(usual.described, one.described) if usual is not None else "":
                self.exclude(name, f"it is not like the other devices of tier {tier}: {wrong}")
                del found[name]
        return found

    def turn(self, name: str) -> threading.Lock:
        """Return the lock held while a batch is on its way to a device: one at a time, whatever the sessions."""
        return self._turns.setdefault(name, threading.Lock())

    @property
    def stopped(self) -> bool:
        """Return whether it is closed."""
        return self._stop.is_set()

    def close(self) -> None:
        """End the sessions of all groups; the devices are free then."""
        self._stop.set()
        for group in list(self._groups.values()):
            group.close()

    def _wanted(self, one: Announced) -> bool:
        return any(fnmatchcase(one.tier, pattern) for pattern in self._patterns)

    def _notify(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def _keep(self) -> None:
        renewed = time.monotonic()
        while not self._stop.wait(TICK_SECONDS):
            try:
                if time.monotonic() - renewed >= RENEW_SECONDS:
                    renewed = time.monotonic()
                    self._renew()
                self._compare()
                for group in list(self._groups.values()):
                    group.spread()
            except FarmError as error:
                log.debug(f"farm: {error}")
            except Exception:  # the job would lose all of its devices with this thread
                log.exception("farm: checking the devices of the job failed; it is tried again in a second")
            self._notify()

    def _renew(self) -> None:
        """Have all devices in use kept for the job, each in a thread of its own: one that does not answer costs the
        others nothing."""
        for name in {name for group in list(self._groups.values()) for name in group.in_use} - self._renewing:
            self._renewing.add(name)
            threading.Thread(target=self._renew_one, args=(name,), name=f"renew {name}", daemon=True).start()

    def _renew_one(self, name: str) -> None:
        try:
            self.engine.call(name, Call("renew", self.job))
        except (FarmError, DeviceGone) as error:  # whichever session is there hears of it, too
            log.debug(f"farm: {name}: {error}")
        finally:
            self._renewing.discard(name)

    def _compare(self) -> None:
        """Set devices apart whose speed is not that of their twins; one that has joined again may be mended."""
        there = self.engine.devices()
        self.excluded = {name: why for name, why in self.excluded.items() if name in there}
        for group in list(self._groups.values()):
            devices = self.usable(group.tier)
            for name, one in devices.items():
                if speed := Speed.read(one.report.get("speed")):
                    self._judge(group.tier, name, self._twins(group.tier).hear(name, HEALTH_CHECK, "", speed, devices))

    def measured(self, tier: str, name: str, request: ProfileKernel, reply: Profiled) -> None:
        """Note that a batch was measured on a device, beside its default."""
        if found := default_of(request, reply, next(self._numbers)):
            what, speed = found
            self._judge(tier, name, self._twins(tier).hear(name, DEFAULT, what, speed, self.usable(tier)))

    def _twins(self, tier: str) -> Twins:
        return self._compared.setdefault(tier, Twins())

    def _judge(self, tier: str, name: str, why: str) -> None:
        if why and name not in self.excluded:
            self.exclude(name, why)
            self.group(tier).leave(name, "it is set apart")

    def exclude(self, name: str, why: str) -> None:
        """Set a device apart."""
        self.excluded[name] = why
        log.warning(f"device {name} is set apart: {why}")


@dataclass(eq=False)
class _Slot:
    """Hold a session and where it is now. losses: devices that were lost one after the other with a request, by its
    kind: a batch is preceded by what it needs on each of them."""

    connection: FarmConnection | None = None
    losses: Counter[type] = field(default_factory=Counter)

    def lost(self, request: Any) -> bool:
        """Note that another device was lost, and return whether too many were."""
        self.losses[type(request)] = losses = (self.losses[type(request)] + 1) % LOSSES
        return losses == 0

    def answered(self, request: Any) -> None:
        """Note that a request was answered: those devices were not lost by its doing."""
        self.losses[type(request)] = 0

    @property
    def device(self) -> str:
        """Return the name of the device where it is; empty where it is nowhere."""
        return "" if self.connection is None or not self.connection.is_open else self.connection.name


class TierDevices(Closing):
    """Hold the devices of one tier, for one generation after the other: a TargetSource."""

    def __init__(self, pool: Pool, tier: str) -> None:
        self.tier = tier
        self._pool = pool
        self._slots: list[_Slot] = []
        self._clients: list[TargetClient] = []
        self._busy: dict[str, float] = {}
        self._lock = threading.RLock()

    @property
    def explanation(self) -> Sequence[str]:
        """Return one line: the devices."""
        names = list(self._pool.usable(self.tier))
        return (f"farm: tier {self.tier}, {len(names)} devices: {', '.join(names) or 'none'}",)

    @property
    def in_use(self) -> set[str]:
        """Return the devices that have sessions."""
        with self._lock:
            return {slot.device for slot in self._slots if slot.device}

    def connect_all(self) -> Sequence[TargetClient]:
        """Return sessions on all devices that are there and free, at least one: it is waited for. Raises
        TargetError."""
        self.end()
        first = self._session()
        clients = [first]
        while (more := self._arrived()) is not None:
            clients.append(more)
        return clients

    @property
    def arrived(self) -> Arrived:
        """What gives a session on a device that has room for it."""
        return self._arrived

    def _arrived(self) -> TargetClient | None:
        """Return a session on a device that has room for one, None where there is no such device."""
        if not self._roomy():
            return None
        try:
            return self._session(wait=False)
        except TargetError:
            return None  # it was taken or lost meanwhile

    def leave(self, name: str, why: str) -> None:
        """Send the sessions of a device elsewhere with their next request."""
        with self._lock:
            for slot in self._slots:
                if slot.device == name and slot.connection is not None:
                    slot.connection.moving = why

    def spread(self) -> None:
        """Move one session to a device that has two less than another."""
        with self._lock:
            load = self._load()
            least = min((load[name] for name in self._by_load()), default=len(self._slots))
            crowded = {name for name, count in load.items() if count > least + 1}
            slot = next((slot for slot in self._slots if slot.device in crowded), None)
            if slot is not None and slot.connection is not None:
                slot.connection.moving = "another device has less to do"

    def end(self) -> None:
        """End the sessions of a generation; the devices are free for another."""
        with self._lock:
            clients, self._clients = self._clients, []
            self._slots.clear()
        for client in clients:
            client.close()

    def close(self) -> None:
        self.end()

    # --- sessions and devices ---------------------------------------------------------------------

    def _session(self, wait: bool = True) -> TargetClient:
        slot = _Slot()
        first_seconds = RECONNECT_SECONDS if wait else 0.0

        def dial() -> FarmConnection:
            return self._dial(slot, first_seconds if slot.connection is None else RECONNECT_SECONDS)

        client = TargetClient(Reconnecting(dial, notice=log.warning))
        with self._lock:
            self._clients.append(client)
        return client

    def _dial(self, slot: _Slot, seconds: float) -> FarmConnection:
        """Return a connection for a session, on the device with the fewest of them. Raises TargetError when there is
        none for so long."""
        deadline = time.monotonic() + seconds
        while True:
            for name in self._by_load():
                connection = self._opened(slot, name)
                if connection is not None:
                    with self._lock:
                        slot.connection = connection
                        if slot not in self._slots:
                            self._slots.append(slot)
                    return connection
            if time.monotonic() >= deadline or self._pool.stopped:
                raise TargetError("unreachable", f"no device of tier {self.tier} is free in the farm")
            with self._pool.changed:
                self._pool.changed.wait(0.25)

    def _opened(self, slot: _Slot, name: str) -> FarmConnection | None:
        def answered(request: Any, reply: Any) -> None:
            slot.answered(request)
            if isinstance(request, ProfileKernel) and isinstance(reply, Profiled):
                self._pool.measured(self.tier, name, request, reply)

        try:
            turn = self._pool.turn(name)
            return FarmConnection(self._pool.engine, name, self._pool.job, turn, slot.lost, answered)
        except TargetError as error:
            if error.name == "version_mismatch":
                self._pool.exclude(name, error.reason)
            else:
                self._busy[name] = time.monotonic() + BUSY_SECONDS
            log.debug(f"{name}: {error.reason}")
            return None

    def _by_load(self) -> list[str]:
        """Return the devices that can be tried now, those with the fewest sessions first: none that says that it has
        another job, and none that has refused a session just now."""
        now, job = time.monotonic(), self._pool.job
        names = [
            name
            for name, one in self._pool.usable(self.tier).items()
            if self._busy.get(name, 0.0) <= now and one.report.get("job", "") in ("", job)
        ]
        load = self._load()
        most = self._pool.count
        taken = sorted(names, key=lambda name: (load[name], name))
        return taken if most is None or len(load) < most else [name for name in taken if load[name]]

    def _roomy(self) -> list[str]:
        load, devices = self._load(), self._pool.usable(self.tier)
        room = {name: _room(one) for name, one in devices.items()}
        return [name for name in self._by_load() if load[name] < room.get(name, 0)]

    def _load(self) -> Mapping[str, int]:
        """Return how many sessions each device has that is there; one that was lost is not noticed by sessions that ask
        nothing."""
        there = self._pool.engine.devices()
        with self._lock:
            return Counter(slot.device for slot in self._slots if slot.device in there)


def _most_alike(devices: Sequence[Announced]) -> Announced | None:
    """Return the first of those that most others are like; None of none."""
    return max(
        devices, key=lambda one: sum(not unlike(one.described, other.described) for other in devices), default=None
    )


def _room(one: Announced) -> int:
    """Return how many sessions of a job a device has."""
    return 1 if one.device["device_type"] == "cpu" and not one.simulated else SESSIONS
