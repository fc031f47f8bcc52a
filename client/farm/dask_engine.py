"""Connect the processes and machines of a farm through Dask's distributed; no other file uses Dask.

Each worker hosts one device. Workers, client and scheduler find each other through Dask, and learn from it which
members are lost. A call is an operation of the worker itself and goes straight there. A Dask task would go through the
scheduler in both directions, and the device would idle meanwhile. Requests and replies are byte strings. Neither Dask
nor anything else repeats them.

Dask puts them into its own envelopes, and unpickles the envelopes of other members. Members therefore prove their
identity by a certificate of the farm's own authority, or are on one machine.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import signal
import threading
import time
import warnings
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from gputune.client.farm.certificates import EXTRA, Certificates
from gputune.client.farm.engine import Announced, Call, DeviceAbsent, DeviceGone, FarmError, Mailbox, Versions
from gputune.client.farm.frames import error_frame
from gputune.client.farm.hosts.device_host import DeviceHost
from gputune.client.options.farm import SCHEDULER_PORT
from gputune.core.opened import Closing

log = logging.getLogger(__name__)

DASHBOARD_EXTRA = "pip install '.[farm-dashboard]' in a clone of gputune"
KEY = "gputune"
REFRESH_SECONDS = 0.5
CONNECT_SECONDS = 10.0
SEARCH_SECONDS = 300.0
"""So long a scheduler that was lost is waited for."""
START_SECONDS = 15.0
"""So long a worker waits for a scheduler that was started with it."""
SILENT_SECONDS, SILENT_SECONDS_EACH = 3.0, 0.02
"""A worker whose heartbeat was not heard of for so long, and so much more for each worker, is lost: its machine may be,
of which no connection tells."""
LOOK_SECONDS = 0.25
"""So often a call that waits looks whether its device is still there."""
CALL = "gputune_call"
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
LOGGERS = "distributed", "distributed.client", "tornado", "tornado.application"
"""They write tracebacks of whatever a stranger has sent. Dask gives each of them a level of its own."""
HANGS_UP = "SSLError", "SSLEOFError", "SSLZeroReturnError", "StreamClosedError", "CommClosedError"
"""Errors of the TLS library, tornado and Dask for a connection that the other side has ended."""
NOT_IDLE = "not idle; cannot convert to SSL"
"""The message of tornado if the other side, a scheduler without TLS, has sent something already."""
_LOOPBACK = "127.0.0.1"


# --- addresses and security -----------------------------------------------------------------------


@dataclass(frozen=True)
class SchedulerAddress:
    """Say where a scheduler is, and how its members prove themselves; None where all are on this machine."""

    host: str
    port: int
    certificates: Certificates | None

    @classmethod
    def parse(cls, text: str, certificates: Certificates) -> SchedulerAddress:
        """Read HOST:PORT, or tls://HOST:PORT for certificates on this machine, too. Raises FarmError for another
        machine without certificates, and for what is no address."""
        try:
            parts = urlsplit(text if "://" in text else f"//{text}")
            host, port = parts.hostname or "", SCHEDULER_PORT if parts.port is None else parts.port
        except ValueError:
            host, port = "", 0
        if not host or parts.scheme not in ("", "tcp", "tls") or parts.path.strip("/"):
            raise FarmError(f"{text!r} is not the address of a scheduler, such as 127.0.0.1:{SCHEDULER_PORT}")
        if is_loopback(host) and parts.scheme != "tls":
            return cls(host, port, None)
        if parts.scheme == "tcp":
            raise FarmError(f"{text}: a scheduler on another machine is reached by TLS only; drop tcp://")
        try:
            return cls(host, port, certificates.check())
        except FarmError as error:
            why = "uses TLS" if is_loopback(host) else "is another machine, where anyone could join"
            raise FarmError(f"{text} {why}, so certificates are needed: {error}") from None

    @property
    def protocol(self) -> str:
        return "tcp" if self.certificates is None else "tls"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.protocol}://{host}:{self.port}"

    @property
    def security(self) -> Any:
        """Return Dask's words for it."""
        if (files := self.certificates) is None:
            return _dask().Security()
        roles = {
            f"tls_{role}_{what}": str(path)
            for role in ("scheduler", "worker", "client")
            for what, path in (("cert", files.member), ("key", files.key))
        }
        return _dask().Security(tls_ca_file=str(files.authority), require_encryption=True, **roles)


def is_loopback(host: str) -> bool:
    """Return whether an address can be reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _dask() -> Any:
    """Return Dask's package, configured. Raises FarmError where the extra is not installed."""
    try:
        import dask.config
        import distributed
    except ImportError:
        raise FarmError(f"a farm of several processes needs the extra: {EXTRA}") from None
    dask.config.set(CONFIG)
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.CRITICAL)
    return distributed


def _dask_config(values: Mapping[str, Any]) -> AbstractContextManager[Any]:
    """Use Dask with these settings beside its others."""
    import dask.config

    setting: AbstractContextManager[Any] = dask.config.set(values)
    return setting


async def _check_versions(place: SchedulerAddress) -> None:
    """Raise FarmError where the scheduler is of other versions, or nothing of ours answers there."""
    dask = _dask()
    arguments = place.security.get_connection_args("client")
    try:
        async with dask.rpc(str(place), connection_args=arguments) as scheduler:
            theirs = await asyncio.wait_for(scheduler.gputune_versions(), CONNECT_SECONDS)
    except Exception as error:
        if isinstance(error, OSError | TimeoutError) or NOT_IDLE in str(error):
            raise FarmError(f"no scheduler of a farm answers at {place}: {_reason(error, place)}") from None
        raise FarmError(  # whatever answers there, it is none of ours
            f"{place} answers, but not as the scheduler of a farm: {type(error).__name__}"
        ) from None
    if not isinstance(theirs, Mapping) or (wrong := Versions().difference(theirs)):
        raise FarmError(f"the scheduler at {place} is of other versions: {wrong}; install the same on all machines")


def _reason(error: BaseException, place: SchedulerAddress) -> str:
    """Return why there is no connection, in words of ours where certificates may be the reason: Dask wraps what has
    happened several times, and the words of the TLS library are its own."""
    while not isinstance(error, TimeoutError) and (cause := error.__cause__ or error.__context__) is not None:
        error = cause
    if told := getattr(error, "verify_message", ""):
        return f"its certificate is not valid in this farm: {told}"
    if getattr(error, "reason", "") == "WRONG_VERSION_NUMBER" or NOT_IDLE in str(error):
        return "it does not use TLS; drop tls://, or start it with --tls"
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, ConnectionResetError | BrokenPipeError) or type(error).__name__ in HANGS_UP:
        if place.certificates is None:
            return (
                "it closed the connection, perhaps because it needs certificates; write tls:// before the address to "
                "use them"
            )
        return "it closed the connection, perhaps because it does not accept this machine's certificate"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


# --- the scheduler --------------------------------------------------------------------------------


def serve_scheduler(place: SchedulerAddress, ready: Callable[[str, str], None], dashboard_port: int = 0) -> None:
    """Run a scheduler until it is told to stop. `ready` hears its address, and where Dask's own dashboard is or why
    there is none. dashboard_port: of this machine alone, whatever the place; 0 for no dashboard. Raises FarmError."""
    asyncio.run(_serve_scheduler(place, ready, dashboard_port))


async def _serve_scheduler(place: SchedulerAddress, ready: Callable[[str, str], None], dashboard_port: int) -> None:
    stop, dask = _stop_event(), _dask()
    shown = dashboard_port > 0 and find_spec("bokeh") is not None
    kind = dask.Scheduler if shown else _without_http(dask.Scheduler)
    try:
        with _dask_config(_origins(dashboard_port)), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a port that is taken is told below
            scheduler = await kind(
                host=place.host, port=place.port, protocol=place.protocol, security=place.security,
                dashboard=shown, dashboard_address=f"{_LOOPBACK}:{dashboard_port}",
            )  # fmt: skip
    except (OSError, RuntimeError) as error:
        cause = error.__cause__ or error  # Dask wraps what the system says
        why = getattr(cause, "strerror", None) or cause
        mend = "--port chooses another" if getattr(cause, "errno", None) == errno.EADDRINUSE else "--host says where"
        raise FarmError(f"the scheduler cannot listen at {place}: {why}; {mend}") from None
    port = scheduler.http_server.port if shown else 0
    if shown and port != dashboard_port:
        scheduler.http_server.stop()  # Dask takes any other port where the one that was asked for is taken
    scheduler.handlers["gputune_versions"] = lambda: Versions().to_dict()
    scheduler.handlers["gputune_stop"] = lambda: stop.set()
    ready(scheduler.address, _dashboard(shown, dashboard_port, port))
    await stop.wait()
    await asyncio.sleep(0.1)  # for the answer to be sent
    await scheduler.close()


def _without_http(kind: Any) -> Any:
    """Return Dask's Scheduler or Worker without the HTTP server that it starts even if it shows no dashboard, which
    would tell every user of the machine what runs."""
    return type(kind.__name__, (kind,), {"start_http_server": lambda self, *what, **how: None})


def _origins(port: int) -> dict[str, Any]:
    """Return whose pages in a browser on this machine may read the dashboard: its own alone."""
    names = [f"{name}:{port}" for name in (_LOOPBACK, "localhost")]
    return {"distributed.scheduler.dashboard.bokeh-application.allow_websocket_origin": names}


def _dashboard(shown: bool, wanted: int, port: int) -> str:
    """Return where the dashboard is, or why there is none."""
    if wanted == 0:
        return "off"
    if not shown:
        return f"off, since bokeh is not installed: {DASHBOARD_EXTRA}"
    if port != wanted:
        return f"off, since port {wanted} is taken; --dashboard_port chooses another"
    return f"http://{_LOOPBACK}:{port}/status, from this machine alone"


def _stop_event() -> asyncio.Event:
    """Set by the signals that end a process."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        with suppress(NotImplementedError, RuntimeError, ValueError):  # asyncio takes signals in the main thread only
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
    return stop


# --- a worker -------------------------------------------------------------------------------------


def _answering(host: DeviceHost) -> Callable[..., Any]:
    """Return the operation CALL of a worker: what comes before the answer is told at once. A client that hangs up does
    not end what it has asked."""
    threads = ThreadPoolExecutor(THREADS, "call")
    name = host.announced.name

    def answered(device: object, tell: Callable[[bytes], None], **call: Any) -> bytes:
        if device != name:
            return error_frame(None, 0, "stopping", f"there is no device {device!r} here")
        try:
            return host.answer(Call(**call), tell)
        except (TypeError, ValueError) as error:
            return error_frame(None, 0, "bad_frame", str(error))

    async def answer(comm: Any, device: object = None, **call: Any) -> dict[str, bytes]:
        loop, told = asyncio.get_running_loop(), asyncio.Queue[bytes | None]()

        def tell(frame: bytes | None) -> None:
            loop.call_soon_threadsafe(told.put_nowait, frame)

        running = loop.run_in_executor(threads, partial(answered, device, tell, **call))
        running.add_done_callback(lambda _: told.put_nowait(None))
        while (frame := await told.get()) is not None:
            await comm.write({"told": frame})
        return {"answer": await running}

    return answer


def serve_worker(place: SchedulerAddress, host: DeviceHost, ready: Callable[[str], None]) -> None:
    """Have a device in a farm until it is drained or the process is told to stop; a scheduler that is lost is waited
    for. `ready` hears each time that it has joined. Raises FarmError for other versions."""
    asyncio.run(_serve_worker(place, host, ready))


async def _serve_worker(place: SchedulerAddress, host: DeviceHost, ready: Callable[[str], None]) -> None:
    stop, name, joined, since = _stop_event(), host.announced.name, False, time.monotonic()
    answering = _answering(host)
    while not stop.is_set() and not host.drained:
        try:
            await _check_versions(place)
            worker = await _worker(place, host, answering)
        except (FarmError, OSError, RuntimeError) as error:
            allowed_seconds = SEARCH_SECONDS if joined else START_SECONDS
            if time.monotonic() - since > allowed_seconds or "other versions" in str(error):
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


async def _worker(place: SchedulerAddress, host: DeviceHost, answering: Callable[..., Any]) -> Any:
    announced = host.announced
    worker = _without_http(_dask().Worker)(
        str(place),
        name=announced.name,
        nthreads=1,
        memory_limit=0,
        host=_LOOPBACK if is_loopback(place.host) else None,
        protocol=place.protocol,
        security=place.security,
        dashboard=False,
        startup_information={KEY: lambda worker: announced.to_dict()},
        metrics={KEY: lambda worker: host.report()},
        heartbeat_interval="1s",
    )
    worker.handlers[CALL] = answering
    return await worker


# --- a client -------------------------------------------------------------------------------------


class DaskEngine(Closing):
    """List the devices of the workers that a scheduler knows. A scheduler that is lost is waited for."""

    def __init__(self, place: SchedulerAddress) -> None:
        """Raise FarmError where no scheduler of the same versions is there."""
        asyncio.run(_check_versions(place))
        self._place = place
        self._lock = threading.Lock()
        self._devices: dict[str, Announced] = {}
        self._addresses: dict[str, str] = {}
        self._heard: dict[str, tuple[object, float]] = {}
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
            raise DeviceAbsent(f"device {device} is not in the farm")
        box = Mailbox()
        running = _begun(client, _asked(client, address, {"device": device, **vars(call)}, box.put))
        running.add_done_callback(lambda done: box.end())
        try:
            while not box.read(heard, LOOK_SECONDS):
                if self._stop.is_set() or self._client is not client or self._addresses.get(device) != address:
                    box.lose()  # what came before that is read to its end
            if not running.done():
                raise DeviceGone(f"device {device} has left the farm")
        finally:
            running.cancel()  # which is nothing where it has ended
        try:
            return running.result()
        except Exception as error:  # a lost connection: Dask has many names for it
            raise DeviceGone(f"device {device} was lost: {type(error).__name__}") from None

    def stop_scheduler(self) -> None:
        """End the scheduler."""
        with suppress(Exception):  # it may be gone before it has answered
            self._client.sync(self._client.scheduler.gputune_stop)

    def close(self) -> None:
        self._stop.set()
        with suppress(Exception):
            self._client.close(timeout=2)

    # --- beside the calls -------------------------------------------------------------------------

    def _connected(self) -> Any:
        dask = _dask()
        try:
            return dask.Client(
                str(self._place), security=self._place.security, timeout=CONNECT_SECONDS, set_as_default=False,
                heartbeat_interval="2s",
            )  # fmt: skip
        except (OSError, TimeoutError, RuntimeError) as error:
            raise FarmError(f"no scheduler of a farm answers at {self._place}: {_reason(error, self._place)}") from None

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
        """Ask the scheduler which workers there are."""
        client = self._client
        said = client.sync(client.scheduler.identity, callback_timeout=CONNECT_SECONDS)
        devices, addresses = {}, {}
        self._heard = {address: heard for address, heard in self._heard.items() if address in said["workers"]}
        for address, worker in said["workers"].items():
            if KEY not in worker or self._silent(address, worker.get("last_seen"), len(said["workers"])):
                continue
            try:
                one = Announced.read(worker[KEY], worker.get("metrics", {}).get(KEY))
            except FarmError as error:
                log.debug(f"farm: {address}: {error}")
                continue
            devices[one.name], addresses[one.name] = one, address
        self._now_there(devices, addresses)

    def _silent(self, address: str, last_seen: object, workers: int) -> bool:
        """Return whether no heartbeat of a worker was heard of for too long. Clocks of machines differ: what counts is
        when this one saw another time."""
        before, since = self._heard.get(address, (None, 0.0))
        if last_seen != before:
            self._heard[address] = last_seen, time.monotonic()
            return False
        return time.monotonic() - since > SILENT_SECONDS + SILENT_SECONDS_EACH * workers

    def _now_there(self, devices: dict[str, Announced], addresses: dict[str, str]) -> None:
        with self._lock:
            changed = addresses != self._addresses
            self._devices, self._addresses = devices, addresses
        if changed:
            for hear in self._watching:
                hear()


def _begun(client: Any, asked: Coroutine[Any, Any, bytes]) -> Future[bytes]:
    """Start a call in the thread of a client. Raises DeviceGone where that has ended."""
    try:
        return asyncio.run_coroutine_threadsafe(asked, client.loop.asyncio_loop)
    except RuntimeError:
        asked.close()
        raise DeviceGone("the connection to the farm is closed") from None


async def _asked(client: Any, address: str, call: Mapping[str, object], heard: Callable[[bytes], None]) -> bytes:
    """Have a worker answer a call. Raises OSError and others when it is lost, ValueError for what is no answer."""
    comm = await client.rpc.connect(address)
    try:
        await comm.write({"op": CALL, **call})
        while True:
            message = await comm.read()
            if not isinstance(message, Mapping) or not isinstance(message.get("told", message.get("answer")), bytes):
                raise ValueError("the message does not answer a call")
            if "answer" in message:
                return bytes(message["answer"])
            heard(message["told"])
    except BaseException:
        comm.abort()  # it may be in the middle of an answer
        raise
    finally:
        client.rpc.reuse(address, comm)
