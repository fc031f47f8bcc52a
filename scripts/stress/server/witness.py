"""Watch a server under attack: an honest client, clients that stall, and a gauge of its processes."""

import time
from dataclasses import asdict
from typing import Any

from gputune.core.batches import Profiled
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import DownloadBuffer
from stress.server.crew import Promises
from stress.server.observed import MIB, ObservedServer, usage
from stress.server.wire import Wire, expect, frame, new_hello
from stress.server.workload import DATA, copies

STALLED = 8
STALLED_SECONDS = Limits().authenticate_seconds + 5.0
LOOK_SECONDS = 0.1
PEAK_BYTES = 256 * MIB
LEAK_BYTES = 128 * MIB  # what malloc keeps of the largest headers: 70 to 80 MiB, however many inputs there are
LEAKED_DESCRIPTORS = 4


class Witness:
    """An honest client that pings all the time and measures now and then. `worst_seconds`: its longest ping."""

    def __init__(self, server: ObservedServer) -> None:
        self.wire = Wire(server.host, server.port, seconds=60)
        self.wire.authenticate(server.token)
        self._data = self.wire.upload(DATA)
        self._rounds = 0
        self.worst_seconds = 0.0

    def once(self) -> None:
        """One round. Raises when the server's answer is not the right one."""
        self._rounds += 1
        self.worst_seconds = max(self.worst_seconds, self.wire.ping())
        if self._rounds % 20 == 1:
            measured = expect((Profiled,), self.wire.ask(copies(self._data, 2)))
            if [trial.status for trial in measured.trials] != ["ok", "ok"]:
                raise RuntimeError(f"the honest client's copies failed: {measured.trials}")
            if bytes(self.wire.ask(DownloadBuffer(self._data)).data) != DATA:
                raise RuntimeError("the honest client's buffer has changed")
        time.sleep(0.02)

    def close(self) -> None:
        """Goes."""
        self.wire.close()


class Stalled:
    """Clients that connect and then say nothing, or half a hello: the server must not keep them."""

    def __init__(self, server: ObservedServer) -> None:
        self._wires = [Wire(server.host, server.port, seconds=0.01) for _ in range(STALLED)]
        self._began = time.monotonic()
        for wire in self._wires[::2]:
            wire.send(frame(new_hello())[:20])

    def judge(self, promises: Promises) -> None:
        """The promise, when enough time has passed."""
        kept = sum(map(self._open, self._wires))
        if time.monotonic() - self._began > STALLED_SECONDS:
            promises.check(not kept, f"of {STALLED} clients that never said who they are, {kept} are still connected")

    @staticmethod
    def _open(wire: Wire) -> bool:
        try:
            wire.receive()
        except TimeoutError:
            return True
        except OSError:
            return False
        finally:
            wire.close()
        return True


class Gauge:
    """What daemon and worker hold: before, at most and after."""

    def __init__(self, server: ObservedServer) -> None:
        self._server = server
        self.before, self.worker_before = usage(server.pid), server.workers_usage()
        self.most_descriptors = 0

    def once(self) -> None:
        """Looks once."""
        self.most_descriptors = max(self.most_descriptors, usage(self._server.pid).descriptors)
        time.sleep(LOOK_SECONDS)

    def judge(self, promises: Promises) -> dict[str, Any]:
        """The promises about memory and descriptors, once all clients have gone; the figures."""
        after, worker_after = usage(self._server.pid), self._server.workers_usage()
        promises.no_leak("daemon", self.before, after, LEAK_BYTES, LEAKED_DESCRIPTORS)
        promises.no_leak("worker", self.worker_before, worker_after, LEAK_BYTES, LEAKED_DESCRIPTORS)
        for name, before, now in (("daemon", self.before, after), ("worker", self.worker_before, worker_after)):
            promises.check(
                now.peak_bytes - before.resident_bytes <= PEAK_BYTES,
                f"{name}: {now.peak_bytes / MIB:.1f} MiB at most (at most {PEAK_BYTES / MIB:.0f} MiB more)",
            )
        print(f"         daemon: {self.most_descriptors} descriptors at most")
        found = {
            "before": self.before,
            "after": after,
            "worker_before": self.worker_before,
            "worker_after": worker_after,
        }
        return {"most_descriptors": self.most_descriptors, **{name: asdict(value) for name, value in found.items()}}
