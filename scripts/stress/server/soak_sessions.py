"""Run `scripts/stress/server/soak sessions`: open many sessions, let some vanish, and check what they leave."""

import random
import time
from collections import Counter
from dataclasses import asdict
from typing import Any

from gputune.client.target.connecting import Target
from gputune.core.batches import Profiled
from gputune.server.protocol.messages import UploadBuffer
from stress.server.crew import Crew, Promises
from stress.server.observed import MIB, ObservedServer, target_of, usage
from stress.server.wire import Wire, expect, frame, new_hello
from stress.server.workload import DATA, copies

AT_ONCE = 8
WARM_UP_SESSIONS = 300
WELL_BEHAVED = 0.7
UPLOAD_BYTES = 256 << 10
LEAK_BYTES = 8 * MIB
LEAKED_DESCRIPTORS = 2
SETTLE_SECONDS = 40.0  # longer than Limits.silence_seconds


def behave(target: Target) -> None:
    """A session as it should be. Raises when anything is not as it should be."""
    with target.connect() as client:
        client.upload(bytes(UPLOAD_BYTES))
        measured = client.measure_kernel(copies(client.upload(DATA), 2))
    if any(trial.status != "ok" for trial in measured.trials):
        raise RuntimeError(f"a copy failed: {[trial.status for trial in measured.trials]}")


def vanish(server: ObservedServer, chance: random.Random) -> str:
    """A session that breaks off; says where."""
    where = chance.choice(("in the handshake", "in an upload", "with buffers", "while measuring", "after measuring"))
    wire = Wire(server.host, server.port)
    try:
        if where == "in the handshake":
            hello = frame(new_hello())
            wire.send(hello[: chance.randint(0, len(hello))])
            return where
        wire.authenticate(server.token)
        if where == "in an upload":
            upload = frame(UploadBuffer(bytes(UPLOAD_BYTES)), 1)
            wire.send(upload[: chance.randrange(len(upload))])
            return where
        data = wire.upload(DATA)
        if where == "while measuring":
            wire.begin(copies(data, 16))
        elif where == "after measuring":
            expect((Profiled,), wire.ask(copies(data, 2)))
        return where
    finally:
        wire.vanish()


def settle(server: ObservedServer) -> list[str]:
    """Waits until the server has nothing of anybody any more; what is left when that does not happen."""
    lost: list[str] = []
    with target_of(server.address, server.token, lost.append) as target, target.connect() as client:
        end = time.monotonic() + SETTLE_SECONDS
        while (status := client.status()).clients > 1 or status.memory_bytes or status.queued:
            if time.monotonic() > end:
                return [f"{status.clients - 1} clients, {status.memory_bytes} bytes, {status.queued} requests stayed"]
            time.sleep(0.05)
    return lost


def soak(sessions: int, promises: Promises) -> dict[str, Any]:
    """So many sessions, some at a time, on a server of the null device; the figures. Ctrl-C ends it early."""
    with ObservedServer("null") as server:
        warm_up, _ = _spend(server, WARM_UP_SESSIONS)
        if warm_up.stop.is_set():
            raise KeyboardInterrupt
        failures = warm_up.failures + settle(server)
        before, worker_before = usage(server.pid), server.workers_usage()
        started = time.monotonic()
        crew, kinds = _spend(server, sessions)
        lasted = time.monotonic() - started
        failures += crew.failures + settle(server)
        after, worker_after = usage(server.pid), server.workers_usage()
        log = server.log()
    done = sum(kinds.values())
    print(f"{done} sessions in {lasted:.1f} s: " + ", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items())))
    promises.none_failed(failures, "sessions")
    promises.no_defect(log)
    promises.no_leak("daemon", before, after, LEAK_BYTES, LEAKED_DESCRIPTORS)
    promises.no_leak("worker", worker_before, worker_after, LEAK_BYTES, LEAKED_DESCRIPTORS)
    figures = {"before": before, "after": after, "worker_before": worker_before, "worker_after": worker_after}
    figures_json = {name: asdict(value) for name, value in figures.items()}
    return {"sessions": done, "seconds": lasted, "kinds": dict(kinds), "failures": failures, **figures_json}


def _spend(server: ObservedServer, count: int) -> tuple[Crew, Counter[str]]:
    crew, numbers = Crew(), iter(range(count))
    kinds: list[str] = []
    with target_of(server.address, server.token, crew.failures.append) as target:

        def once() -> bool:
            number = next(numbers, None)  # no two threads are given the same
            if number is None:
                return False
            chance = random.Random(number)
            if chance.random() < WELL_BEHAVED:
                behave(target)
                kinds.append("well-behaved")
            else:
                kinds.append(f"vanished {vanish(server, chance)}")
            return True

        for place in range(AT_ONCE):
            crew.add(f"thread {place}", once)
        crew.join()
    return crew, Counter(kinds)
