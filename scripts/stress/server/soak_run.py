"""Run `scripts/stress/server/soak run`: clients of every kind on one server for hours, with a line a minute."""

import contextlib
import functools
import itertools
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from gputune.client.target.client import TargetClient
from gputune.client.target.connecting import Target
from gputune.core.batches import Profiled
from gputune.server.protocol.messages import Cancel, Done, Error, Status, StatusReport
from stress.server.crew import Crew, Promises, Stop
from stress.server.observed import MIB, ObservedServer, Usage, target_of, usage
from stress.server.soak_sessions import behave, settle, vanish
from stress.server.wire import Wire, expect
from stress.server.workload import CRASH, DATA, HANG, batch, copies, variant

STEADY = 4
VARIANTS = 8
MINUTE = 60.0
PAUSE_SECONDS = {"session": 0.1, "vanish": 0.2, "cancel": 0.1, "crash": 10.0, "hang": 20.0}
LEAK_BYTES = 16 * MIB
LEAKED_DESCRIPTORS = 2
REPLY_SECONDS = 120.0


@dataclass(frozen=True)
class Minute:
    """One line of the report."""

    seconds: float
    daemon: Usage
    worker: Usage
    status: StatusReport
    rounds: Counter[str]  # since the start

    def line(self) -> str:
        """What is printed."""
        kinds: Counter[str] = Counter()
        for name, count in self.rounds.items():
            kinds[name.split()[0]] += count
        return (
            f"{self.seconds / 60:6.1f} min  daemon {self.daemon}  worker {self.worker}  "
            f"clients {self.status.clients}  restarts {self.status.worker_restarts}  "
            + "  ".join(f"{name} {count}" for name, count in sorted(kinds.items()))
        )


class Roles:
    """What each kind of client does, one round a call. Everything raises when it is not answered as it should be."""

    def __init__(self, server: ObservedServer, target: Target) -> None:
        self.server = server
        self.target = target
        self.chance = random.Random(1)

    def steady(self, client: TargetClient, data: int) -> None:
        """Measures on one connection for ever; what was uploaded stays there, whatever becomes of the worker."""
        statuses(client, copies(data, VARIANTS), ["ok"] * VARIANTS)
        if bytes(client.download(data)) != DATA:
            raise RuntimeError("a buffer has changed")

    def session(self) -> None:
        """A whole session."""
        behave(self.target)

    def vanish(self) -> None:
        """A session that breaks off."""
        vanish(self.server, self.chance)

    def cancel(self) -> None:
        """Cancels a batch at some moment, and goes on with the connection."""
        with Wire(self.server.host, self.server.port, REPLY_SECONDS) as wire:
            wire.authenticate(self.server.token)
            request = wire.begin(copies(wire.upload(DATA), 16))
            time.sleep(self.chance.random() * 0.05)
            expect((Done,), wire.ask(Cancel(request)))
            expect((Profiled, Error), reply := wire.reply(request))
            if isinstance(reply, Error) and reply.name != "cancelled":
                raise RuntimeError(f"a cancelled batch was answered by {reply}")
            wire.ping()

    def crash(self) -> None:
        """A kernel that ends the worker costs its variant only."""
        self._bad(CRASH, "crash")

    def hang(self) -> None:
        """A kernel that never ends costs its variant only."""
        self._bad(HANG, "timeout")

    def _bad(self, body: str, status: str) -> None:
        with self.target.connect() as client:
            data = client.upload(DATA)
            statuses(client, batch(data, (variant(), variant(body), variant())), ["ok", status, "ok"])


def statuses(client: TargetClient, request: Any, wanted: list[str]) -> None:
    """Measures a batch. Raises RuntimeError when its trials are not these."""
    measured: Profiled = client.measure_kernel(request)
    got = [trial.status for trial in measured.trials]
    if got != wanted:
        words = "; ".join(trial.message for trial in measured.trials if trial.message)
        raise RuntimeError(f"the trials are {', '.join(got)} instead of {', '.join(wanted)}: {words}")


def soak(device: str, seconds: float, promises: Promises) -> dict[str, Any]:
    """Everything at once for so many seconds; the figures. Ctrl-C ends it early."""
    crew = Crew()
    with (
        ObservedServer(device) as server,
        target_of(server.address, server.token, crew.failures.append) as target,
    ):
        print(f"target server on {server.device}, for {seconds / 60:.0f} minutes; Ctrl-C ends it early", flush=True)
        roles, idle = Roles(server, target), (usage(server.pid), server.workers_usage())
        others = [roles.session, roles.vanish, roles.cancel]
        if device != "null":  # which runs nothing
            others += [roles.crash, roles.hang]
        with contextlib.ExitStack() as stack:
            for place in range(STEADY):
                client = stack.enter_context(target.connect())
                crew.add(f"steady {place + 1}", functools.partial(roles.steady, client, client.upload(DATA)))
            for role in others:
                crew.add(role.__name__, functools.partial(_paused, crew.stop, role))
            minutes = _watch(server, crew, seconds)
        promises.check(server.alive, "the daemon is alive")
        promises.none_failed(crew.failures, "requests")
        promises.no_defect(server.log())
        if server.alive:
            promises.none_failed(settle(server), "what clients left behind")
            promises.no_leak("daemon, idle", idle[0], usage(server.pid), LEAK_BYTES, LEAKED_DESCRIPTORS)
            if device == "null":  # elsewhere the worker is a new one after each crash
                promises.no_leak("worker, idle", idle[1], server.workers_usage(), LEAK_BYTES, LEAKED_DESCRIPTORS)
        _judge(minutes, device, promises)
        return {
            "device": server.device,
            "minutes": [{**asdict(minute), "rounds": dict(minute.rounds)} for minute in minutes],
            "failures": crew.failures,
        }


def _paused(stop: Stop, role: Callable[[], None]) -> None:
    role()
    stop.wait(PAUSE_SECONDS[role.__name__])


def _watch(server: ObservedServer, crew: Crew, seconds: float) -> list[Minute]:
    """A line a minute, until the time is over, the daemon has ended or Ctrl-C was pressed."""
    minutes: list[Minute] = []
    started = time.monotonic()
    try:
        while (now := time.monotonic() - started) < seconds and server.alive:
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.process.wait(min(MINUTE, seconds - now))
            if server.alive:
                minutes.append(_look(server, crew, time.monotonic() - started))
                print(minutes[-1].line(), flush=True)
    except KeyboardInterrupt:
        print("stopping early", flush=True)
    crew.stop.set()
    crew.join()
    return minutes


def _look(server: ObservedServer, crew: Crew, seconds: float) -> Minute:
    with Wire(server.host, server.port, REPLY_SECONDS) as wire:
        wire.authenticate(server.token)
        status = expect((StatusReport,), wire.ask(Status()))
    return Minute(seconds, usage(server.pid), server.workers_usage(), status, Counter(crew.rounds))


def _judge(minutes: list[Minute], device: str, promises: Promises) -> None:
    if not minutes:
        promises.check(False, "it ran for less than a minute, which says nothing")
        return
    restarts = minutes[-1].status.worker_restarts
    promises.check(device != "null" or restarts == 0, f"worker restarts: {restarts}")
    still = {
        name
        for before, after in itertools.pairwise(minutes)
        for name in after.rounds
        if after.seconds - before.seconds >= MINUTE and after.rounds[name] == before.rounds[name]
    }
    promises.check(not still, f"clients that did nothing for a whole minute: {', '.join(sorted(still)) or 'none'}")
