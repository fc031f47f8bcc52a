"""Run `scripts/stress/server/soak clients`: many clients measure on one server all the time, and their shares are
compared.
"""

import contextlib
import functools
import multiprocessing
import signal
import time
from typing import Any

from gputune.client.target.client import TargetClient
from stress.server.crew import Crew, Promises, Stop
from stress.server.observed import ObservedServer, target_of
from stress.server.workload import DATA, copies

PROCESSES = 4
VARIANTS = 4
LARGEST_DIFFERENCE = 0.20
START_SECONDS = 60.0


def crowd(address: str, token: str, count: int, ready: Any, stop: Stop, results: Any) -> None:
    """A process of `count` clients. Puts (trials of each, failures) into `results` when stopped."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, which sets `stop`
    crew, trials = Crew(stop), [0] * count

    def once(place: int, client: TargetClient, data: int) -> None:
        measured = client.measure_kernel(copies(data, VARIANTS))
        good = sum(trial.status == "ok" for trial in measured.trials)
        if good != VARIANTS:
            raise RuntimeError(f"of {VARIANTS} copies, {good} are ok")
        if not stop.is_set():
            trials[place] += good

    with contextlib.ExitStack() as stack:
        target = stack.enter_context(target_of(address, token, crew.failures.append))
        clients = [stack.enter_context(target.connect()) for _ in range(count)]
        uploaded = [client.upload(DATA) for client in clients]
        ready.wait()
        for place, (client, data) in enumerate(zip(clients, uploaded, strict=True)):
            crew.add(f"client {place}", functools.partial(once, place, client, data))
        crew.join()
    results.put((trials, crew.failures))


def soak(clients: int, seconds: float, promises: Promises) -> dict[str, Any]:
    """So many clients on one server of the null device; the figures. Ctrl-C ends it early."""
    with ObservedServer("null") as server:
        outcomes, lasted = _load(server, clients, seconds)
        well = server.alive and len(server.workers()) == 1
    trials = sorted(count for counts, _ in outcomes for count in counts)
    failures = [failure for _, found in outcomes for failure in found]
    least, most = trials[0], trials[-1]
    print(f"{clients} clients, {lasted:.1f} s: {sum(trials)} trials, {sum(trials) / lasted:.0f} a second")
    promises.none_failed(failures, "requests")
    promises.check(well, "daemon and worker are alive")
    promises.check(
        len(trials) == clients and least > 0 and least >= (1 - LARGEST_DIFFERENCE) * most,
        f"trials of a client: least {least}, most {most}, least / most {least / max(most, 1):.3f} "
        f"(at least {1 - LARGEST_DIFFERENCE:.2f})",
    )
    return {"clients": clients, "seconds": lasted, "trials": trials, "failures": failures}


def _load(server: ObservedServer, clients: int, seconds: float) -> tuple[list[tuple[list[int], list[str]]], float]:
    """What each process of clients reports, and for how many seconds they worked."""
    spawn = multiprocessing.get_context("spawn")
    counts = [share for place in range(PROCESSES) if (share := (clients + place) // PROCESSES)]
    ready, stop, results = spawn.Barrier(len(counts) + 1), spawn.Event(), spawn.Queue()
    crowds = [
        spawn.Process(target=crowd, args=(server.address, server.token, count, ready, stop, results))
        for count in counts
    ]
    try:
        for process in crowds:
            process.start()
        ready.wait(START_SECONDS)
        started = time.monotonic()
        with contextlib.suppress(KeyboardInterrupt):
            time.sleep(seconds)
        stop.set()
        lasted = time.monotonic() - started
        return [results.get(timeout=START_SECONDS) for _ in crowds], lasted
    except BaseException:
        for process in crowds:
            if process.pid is not None:
                process.kill()
        raise
    finally:
        for process in crowds:
            if process.pid is not None:
                process.join()
