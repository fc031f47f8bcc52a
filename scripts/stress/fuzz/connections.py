"""Send malformed and hostile inputs to a target server on the null device, and check that it keeps serving.

    scripts/fuzz connections [--seed N] [--count 100000] [--live_share 0.5] [--connections 16] [--json FILE]
    scripts/fuzz connections --replay start:HEX | greeted:HEX | ready:HEX | @FILE

A part of the inputs comes after authentication, on connections that are used as long as the server keeps them open.
All the while an honest client works on the same server. Exit code 1 when a promise was broken: the inputs at fault
are printed, or written to build/fuzz when they are long, in the form that --replay takes.
"""

import argparse
import functools
import hashlib
import itertools
import re
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tool
from stress.server.attack import Attacker, Input, Outcome
from stress.server.crew import SHOWN, Crew, Promises
from stress.server.hostile_inputs import inputs
from stress.server.observed import ObservedServer
from stress.server.soak_sessions import settle
from stress.server.witness import Gauge, Stalled, Witness

FOLDER = tool.ROOT / "build" / "fuzz"
ANSWER_SECONDS = 1.0
LONGEST_PRINTED = 4000
_WORKER_END = re.compile(r"the worker ended with (.*?); it is started again")


@dataclass
class Tally:
    """All outcomes together."""

    kinds: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)
    ready: int = 0
    broken: list[str] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def add(self, one: Input, outcome: Outcome) -> None:
        """One more."""
        with self._lock:
            self.kinds[f"{one.stage}: {one.kind}"] += 1
            self.answers.update(outcome.answers)
            self.ready += one.stage == "ready"
            self.broken += [f"{one.kind}: {what}; --replay {_replayable(one)}" for what in outcome.broken]

    @property
    def total(self) -> int:
        """How many inputs."""
        return sum(self.kinds.values())


def fuzz(
    count: int, seed: int, ready_share: float, connections: int, promises: Promises, answer_seconds: float
) -> dict[str, Any]:
    """So many inputs, on so many connections at a time; the figures. Ctrl-C ends it early."""
    with ObservedServer("null") as server:
        witness, gauge, tally = Witness(server), Gauge(server), Tally()
        stalled = Stalled(server)
        stream = itertools.islice(inputs(seed, ready_share, witness.wire.hello, witness.wire.proof), count)
        taking = threading.Lock()
        watch, attack = Crew(), Crew()
        started = time.monotonic()

        def once(attacker: Attacker) -> bool:
            with taking:
                one = next(stream, None)
            if one is None or len(tally.broken) >= SHOWN or not server.alive:
                attacker.close()
                return False
            try:
                tally.add(one, attacker.attack(one))
            except OSError as error:
                attacker.close()
                raise RuntimeError(f"the server cannot be reached: {error}; --replay {_replayable(one)}") from error
            return True

        watch.add("honest client", witness.once)
        watch.add("gauge", gauge.once)
        for place in range(connections):
            attacker = Attacker(server)
            attack.add(f"attacker {place}", functools.partial(once, attacker))
        attack.join()
        watch.stop.set()
        watch.join()
        lasted = time.monotonic() - started
        _show(tally, seed, lasted)
        promises.check(server.alive, "the daemon is alive")
        promises.none_failed(tally.broken + attack.failures, "inputs")
        promises.none_failed(watch.failures, "honest client")
        promises.check(
            witness.worst_seconds <= answer_seconds,
            f"the honest client's pings: {witness.worst_seconds * 1e3:.0f} ms at most "
            f"(at most {answer_seconds * 1e3:.0f} ms)",
        )
        figures: dict[str, Any] = {}
        if server.alive:
            stalled.judge(promises)
            witness.close()
            promises.none_failed(settle(server), "what clients left behind")
            figures = gauge.judge(promises)
        log = server.log()
        ends = _WORKER_END.findall(log)
        promises.check(
            not ends,  # whatever asks for more than a limit allows is refused before
            f"the worker ended {len(ends)} times{': ' if ends else ''}{', '.join(sorted(set(ends)))}",
        )
        promises.no_defect(log)
    return {
        "seed": seed,
        "inputs": tally.total,
        "ready": tally.ready,
        "seconds": lasted,
        "kinds": dict(tally.kinds),
        "answers": dict(tally.answers),
        "worst_ping_seconds": witness.worst_seconds,
        "failures": tally.broken + attack.failures + watch.failures,
        **figures,
    }


def replay(text: str) -> int:
    """Sends one input to a server of its own and prints what comes back."""
    one = Input.parse(Path(text[1:]).read_text() if text.startswith("@") else text)
    with ObservedServer("null", "--log_level", "verbose") as server:
        attacker = Attacker(server)
        outcome = attacker.attack(one)
        attacker.close()
        print("came back:", ", ".join(f"{n} {name}" for name, n in outcome.answers.items()) or "nothing")
        for what in outcome.broken:
            print("WRONG", what)
        print(f"the daemon is {'alive' if server.alive else 'dead'}")
        left = settle(server) if server.alive else ["the server has ended"]
        print(server.log(), *left, sep="\n")
        return 1 if outcome.broken or left or not server.alive else 0


def _replayable(one: Input) -> str:
    text = str(one)
    if len(text) <= LONGEST_PRINTED:
        return text
    FOLDER.mkdir(parents=True, exist_ok=True)
    path = FOLDER / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.txt"
    path.write_text(text)
    return f"@{path.relative_to(tool.ROOT)}"


def _show(tally: Tally, seed: int, lasted: float) -> None:
    kinds = [(kind, str(number)) for kind, number in sorted(tally.kinds.items())]
    answers = [(name, str(number)) for name, number in tally.answers.most_common()]
    print("\n" + tool.table(["kind of input", "inputs"], kinds))
    print("\n" + tool.table(["what came back", "times"], answers))
    share = tally.ready / max(tally.total, 1)
    print(
        f"\n{tally.total} inputs with seed {seed} in {lasted:.0f} s, {tally.total / lasted:.0f} a second, "
        f"{share:.0%} of them after authentication",
        flush=True,
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the options of `scripts/fuzz connections`."""
    parser.add_argument("--count", type=int, default=100_000, help="inputs (default: %(default)s)")
    parser.add_argument(
        "--live_share", type=float, default=0.5, help="share of inputs after authentication (default: %(default)s)"
    )
    parser.add_argument("--connections", type=int, default=16, help="inputs under way at a time (default: %(default)s)")
    parser.add_argument("--replay", metavar="INPUT", help="send only this input, as a failed run has printed it")
    parser.add_argument("--json", type=Path, help="write the figures to this file as well")


def run(options: argparse.Namespace) -> int:
    """Sends inputs as the options say and returns the exit code. Raises RuntimeError, ValueError and OSError."""
    if options.replay is not None:
        return replay(options.replay)
    promises = Promises()
    figures = fuzz(
        options.count, options.seed, options.live_share, options.connections, promises, answer_seconds=ANSWER_SECONDS
    )
    return promises.report(figures, options.json)
