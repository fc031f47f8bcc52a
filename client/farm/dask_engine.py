"""A farm between processes and machines, on Dask's distributed: the only file that knows of it.

Each worker has the host of one device. A call is a task of a named function for that worker alone, whose arguments and
result are byte strings; it is repeated nowhere else, and never by Dask. Dask puts them into envelopes of its own, which
it pickles: so members prove themselves by a certificate of the farm's own authority, or are on one machine.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import signal
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from gputune.client.farm.certificates import EXTRA, Certificates
from gputune.client.farm.engine import Announced, Call, DeviceGone, FarmError, Mailbox, Versions
from gputune.client.farm.hosts.device_host import DeviceHost
from gputune.core.opened import Closing

log = logging.getLogger(__name__)

DEFAULT_PORT = 8786
KEY = "gputune"
REFRESH_SECONDS = 0.5
CONNECT_SECONDS = 10.0
SEARCH_SECONDS = 300.0
"""So long a scheduler that was lost is waited for."""
LARGE_BYTES = 1 << 20
"""Frames of this size go to their worker without a detour by the scheduler."""
THREADS = 8
"""Of a worker: a batch, and what must be answered beside it."""
CONFIG = {
    "distributed.scheduler.work-stealing": False,
    "distributed.scheduler.allowed-failures": 0,
    "distributed.scheduler.worker-ttl": "20s",
    "distributed.comm.timeouts.connect": "5s",
    "distributed.comm.timeouts.tcp": "20s",
    "distributed.admin.low-level-log-length": 100,
    "distributed.worker.profile.enabled": False,
}
_LOOPBACK = "127.0.0.1"


# --- addresses and security -----------------------------------------------------------------------


@dataclass(frozen=True)
class Place:
    """Where a scheduler is, and how its members prove themselves; None where all are on this machine."""

    host: str
    port: int
    certificates: Certificates | None

    @classmethod
    def parse(cls, text: str, certificates: Certificates) -> Place:
        """HOST:PORT, or tls://HOST:PORT for certificates on this machine, too. Raises FarmError for another machine
        without certificates, and for what is no address."""
        try:
            parts = urlsplit(text if "://" in text else f"//{text}")
            host, port = parts.hostname or "", DEFAULT_PORT if parts.port is None else parts.port
        except ValueError:
            host, port = "", 0
        if not host or parts.scheme not in ("", "tcp", "tls") or parts.path.strip("/"):
            raise FarmError(f"{text!r} is no address of a scheduler, such as 127.0.0.1:{DEFAULT_PORT}")
        if is_loopback(host) and parts.scheme != "tls":
            return cls(host, port, None)
        if parts.scheme == "tcp":
            raise FarmError(f"{text}: beyond this machine a farm speaks TLS only; drop tcp://")
        try:
            return cls(host, port, certificates.check())
        except FarmError as error:
            raise FarmError(
                f"{text} is not on this machine, and without certificates anyone there could join: {error}"
            ) from None

    @property
    def protocol(self) -> str:
        return "tcp" if self.certificates is None else "tls"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.protocol}://{host}:{self.port}"

    @property
    def security(self) -> Any:
        """Dask's words for it."""
        if (files := self.certificates) is None:
            return _dask().Security()
        roles = {
            f"tls_{role}_{what}": str(path)
            for role in ("scheduler", "worker", "client")
            for what, path in (("cert", files.member), ("key", files.key))
        }
        return _dask().Security(tls_ca_file=str(files.authority), require_encryption=True, **roles)


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _dask() -> Any:
    """Dask's package, configured. Raises FarmError where the extra is not installed."""
    try:
        import dask.config
        import distributed
    except ImportError:
        raise FarmError(f"a farm of several processes needs the extra: {EXTRA}") from None
    dask.config.set(CONFIG)
    logging.getLogger("distributed").setLevel(logging.CRITICAL)
    return distributed


async def _check_versions(place: Place) -> None:
    """Raises FarmError where the scheduler is of other versions, or nothing of ours answers there."""
    dask = _dask()
    arguments = place.security.get_connection_args("client")
    try:
        async with dask.rpc(str(place), connection_args=arguments) as scheduler:
            theirs = await asyncio.wait_for(scheduler.gputune_versions(), CONNECT_SECONDS)
    except (OSError, TimeoutError) as error:
        raise FarmError(f"no scheduler of a farm answers at {place}: {error}") from None
    except Exception as error:  # whatever answers there, it is none of ours
        raise FarmError(f"{place} answers, but not as the scheduler of a farm: {type(error).__name__}") from None
    if not isinstance(theirs, Mapping) or (wrong := Versions().difference(theirs)):
        raise FarmError(f"the scheduler at {place} is of other versions: {wrong}; install the same on all machines")


# --- the scheduler --------------------------------------------------------------------------------


def serve_scheduler(place: Place, ready: Callable[[str], None]) -> None:
    """Runs a scheduler until it is told to stop. `ready` hears its address. Raises FarmError."""
    asyncio.run(_serve_scheduler(place, ready))


async def _serve_scheduler(place: Place, ready: Callable[[str], None]) -> None:
    stop = _stop_event()
    try:
        scheduler = await _dask().Scheduler(
            host=place.host, port=place.port, protocol=place.protocol, security=place.security,
            dashboard=False, dashboard_address=f"{_LOOPBACK}:0",
        )  # fmt: skip
    except OSError as error:
        raise FarmError(f"the scheduler cannot listen at {place}: {error.strerror or error}") from None
    scheduler.handlers["gputune_versions"] = lambda: Versions().to_dict()
    scheduler.handlers["gputune_stop"] = lambda: stop.set()
    ready(scheduler.address)
    await stop.wait()
    await asyncio.sleep(0.1)  # for the answer to be sent
    await scheduler.close()


def _stop_event() -> asyncio.Event:
    """Set by the signals that end a process."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        with suppress(NotImplementedError, RuntimeError, ValueError):  # not in a thread
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


# --- a worker -------------------------------------------------------------------------------------

_HOSTS: dict[str, DeviceHost] = {}
"""By name, the hosts of this process."""


def answer(device: str, order: Any, job: str, session: str, frame: bytes, topic: str = "") -> bytes:
    """What a task runs, on the worker that has the device. topic: where frames before the answer go."""
    worker = _dask().get_worker()

    def tell(told: bytes) -> None:
        if topic:
            worker.log_event(topic.partition("/")[0], {"call": topic, "frame": told})

    return _HOSTS[device].answer(Call(order, job, session, bytes(frame)), tell)


def serve_worker(place: Place, host: DeviceHost, ready: Callable[[str], None]) -> None:
    """Has a device in a farm until it is drained or the process is told to stop; a scheduler that is lost is waited
    for. `ready` hears each time that it has joined. Raises FarmError for other versions."""
    asyncio.run(_serve_worker(place, host, ready))


async def _serve_worker(place: Place, host: DeviceHost, ready: Callable[[str], None]) -> None:
    stop, name, joined, since = _stop_event(), host.announced.name, False, time.monotonic()
    _HOSTS[name] = host
    while not stop.is_set() and not host.drained:
        try:
            await _check_versions(place)
            worker = await _worker(place, host)
        except (FarmError, OSError, RuntimeError) as error:
            if not joined or time.monotonic() - since > SEARCH_SECONDS or "other versions" in str(error):
                raise error if isinstance(error, FarmError) else FarmError(f"cannot join {place}: {error}") from None
            await asyncio.sleep(REFRESH_SECONDS)
            continue
        joined = True
        ready(name)
        while worker.status.name == "running" and not stop.is_set() and not host.drained:
            await asyncio.sleep(REFRESH_SECONDS)
        since = time.monotonic()
        with suppress(Exception):  # of a scheduler that is gone
            await worker.close(reason="the device leaves")


async def _worker(place: Place, host: DeviceHost) -> Any:
    announced = host.announced
    return await _dask().Worker(
        str(place),
        name=announced.name,
        nthreads=THREADS,
        memory_limit=0,
        host=_LOOPBACK if is_loopback(place.host) else None,
        protocol=place.protocol,
        security=place.security,
        dashboard=False,
        dashboard_address=f"{_LOOPBACK}:0",
        startup_information={KEY: lambda worker: announced.to_dict()},
        metrics={KEY: lambda worker: host.report()},
        heartbeat_interval="1s",
    )


# --- a client -------------------------------------------------------------------------------------


class DaskEngine(Closing):
    """The devices of the workers that a scheduler knows. A scheduler that is lost is waited for."""

    def __init__(self, place: Place) -> None:
        """Raises FarmError where no scheduler of the same versions is there."""
        asyncio.run(_check_versions(place))
        self._place = place
        self._topic = f"gputune-{secrets.token_hex(8)}"
        self._lock = threading.Lock()
        self._devices: dict[str, Announced] = {}
        self._addresses: dict[str, str] = {}
        self._boxes: dict[str, Mailbox] = {}
        self._watching: list[Callable[[], None]] = []
        self._stop = threading.Event()
        self._client = self._connected()
        self._refresh()
        threading.Thread(target=self._keep, name="farm", daemon=True).start()

    def devices(self) -> Mapping[str, Announced]:
        with self._lock:
            return dict(self._devices)

    def watch(self, changed: Callable[[], None]) -> None:
        self._watching.append(changed)

    def call(self, device: str, call: Call, heard: Callable[[bytes], None] | None = None) -> bytes:
        with self._lock:
            address, client = self._addresses.get(device), self._client
        if address is None:
            raise DeviceGone(f"device {device} is not in the farm")
        box, number = Mailbox(), f"{self._topic}/{secrets.token_hex(8)}"
        self._boxes[number] = box
        future = None
        try:
            future = self._submitted(client, address, device, call, number)
            future.add_done_callback(lambda done: box.end())
            while not box.read(heard):
                if self._addresses.get(device) != address:
                    raise DeviceGone(f"device {device} has left the farm")
            reply: bytes = future.result(timeout=CONNECT_SECONDS)
        except DeviceGone:
            raise
        except Exception as error:  # a worker that was killed, a lost connection: Dask has many names for it
            raise DeviceGone(f"device {device} was lost: {type(error).__name__}") from None
        finally:
            del self._boxes[number]
            if future is not None and not future.done():
                with suppress(Exception):
                    future.cancel()
        return reply

    def stop_scheduler(self) -> None:
        """Ends the scheduler."""
        with suppress(Exception):  # it may be gone before it has answered
            self._client.sync(self._client.scheduler.gputune_stop)

    def close(self) -> None:
        self._stop.set()
        with suppress(Exception):
            self._client.close(timeout=2)

    # --- beside the calls -------------------------------------------------------------------------

    def _submitted(self, client: Any, address: str, device: str, call: Call, number: str) -> Any:
        frame: Any = call.frame
        if len(frame) >= LARGE_BYTES:
            frame = client.scatter(frame, workers=[address], direct=True, hash=False)
        return client.submit(
            answer, device, call.order, call.job, call.session, frame, number,
            key=number, workers=[address], allow_other_workers=False, pure=False, retries=0,
        )  # fmt: skip

    def _connected(self) -> Any:
        dask = _dask()
        try:
            client = dask.Client(
                str(self._place), security=self._place.security, timeout=CONNECT_SECONDS, set_as_default=False,
                direct_to_workers=True, heartbeat_interval="2s",
            )  # fmt: skip
        except (OSError, TimeoutError, RuntimeError) as error:
            raise FarmError(f"no scheduler of a farm answers at {self._place}: {error}") from None
        client.subscribe_topic(self._topic, self._heard)
        return client

    def _heard(self, event: Any) -> None:
        _, message = event
        box = self._boxes.get(message.get("call", "")) if isinstance(message, dict) else None
        if box is not None and isinstance(message.get("frame"), bytes):
            box.put(message["frame"])

    def _keep(self) -> None:
        while not self._stop.wait(REFRESH_SECONDS):
            try:
                if self._client.status in ("closed", "closing"):
                    self._client = self._connected()
                self._refresh()
            except Exception as error:  # the scheduler is gone: so are all devices, until it is back
                log.debug(f"farm: {type(error).__name__}: {error}")
                self._now_there({}, {})

    def _refresh(self) -> None:
        """Asks the scheduler which workers there are."""
        client = self._client
        said = client.sync(client.scheduler.identity, callback_timeout=CONNECT_SECONDS)
        devices, addresses = {}, {}
        for address, worker in said["workers"].items():
            if KEY not in worker:
                continue
            try:
                one = Announced.read(worker[KEY], worker.get("metrics", {}).get(KEY))
            except FarmError as error:
                log.debug(f"farm: {address}: {error}")
                continue
            devices[one.name], addresses[one.name] = one, address
        self._now_there(devices, addresses)

    def _now_there(self, devices: dict[str, Announced], addresses: dict[str, str]) -> None:
        with self._lock:
            changed = addresses != self._addresses
            self._devices, self._addresses = devices, addresses
        if changed:
            for hear in self._watching:
                hear()
