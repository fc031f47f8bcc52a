"""Proves and races the variants of one task.

Everything is built, launched with its real sizes and verified before anything is measured, so that no
compiler runs beside a measurement.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from gputune.runtime import device_state
from gputune.runtime.backends import Backend
from gputune.runtime.errors import DeviceError, LaunchFailed
from gputune.runtime.measure import Runner, how_measured, race, warm_up
from gputune.runtime.proving import Proven, Prover, WrongOutput
from gputune.runtime.request import ProfileRequest
from gputune.runtime.variant import CORRECTNESS, OK, Trial
from gputune.runtime.watch import UNWATCHED, Cancelled, Course, Watcher

MESSAGE_CHARACTERS = 4000


@dataclass(frozen=True)
class Profiled:
    """Trials in the order of the variants, the index of the fastest right one, and its program's binary.

    baseline: its trial, with the samples in the order in which they were taken. spent_ns: the host's time for
    "build", "verify" and "measure". state: what device_state reads "before" and "after"; "damaged" is there when
    guard regions or inputs were, and names how often: then other buffers on the device may be damaged too.
    """

    trials: tuple[Trial, ...]
    best: int | None
    binary: bytes
    baseline: Trial | None
    spent_ns: Mapping[str, int]
    state: Mapping[str, Mapping[str, float]]


def profile(backend: Backend, request: ProfileRequest, watcher: Watcher = UNWATCHED) -> Profiled:
    """Profiles a batch. A variant that fails gets a trial that says why and never ends the batch.

    Raises ValueError when the request itself makes no sense, Cancelled when the watcher wishes so.
    """
    request.check()
    before = device_state.read()
    course = Course(watcher, request.best_ns)
    batch = _Batch(backend, request, course, watcher)
    try:
        batch.prove_all()
        batch.race_all()
        best, binary = batch.winner()
    finally:
        batch.release()
    trials = tuple(batch.trials[index] for index in range(len(request.variants)))
    baseline = None if batch.baseline is None else batch.trials[batch.baseline]
    state = {"before": before, "after": device_state.read()}
    if batch.damaged:
        state["damaged"] = {"times": float(batch.damaged)}
    return Profiled(trials, best, binary, baseline, course.spent_ns, state)


def failure(error: Exception) -> Trial:
    """The trial of a variant that raised."""
    if isinstance(error, WrongOutput):
        status, message = CORRECTNESS, str(error)
    elif isinstance(error, DeviceError):
        status, message = error.status, str(error)
    else:
        status, message = LaunchFailed.status, f"{type(error).__name__}: {error}"
    return Trial(status, message[:MESSAGE_CHARACTERS])


class _Batch:
    """One request on its way, and what has become of each variant so far.

    trials: by index; those of variants that work are filled in when they have been raced. baseline: its index,
    which is that of the variant that it equals, or comes after all of them.
    """

    def __init__(self, backend: Backend, request: ProfileRequest, course: Course, watcher: Watcher) -> None:
        self._backend = backend
        self._request = request
        self._course = course
        self._watcher = watcher
        self._prover = Prover(backend, request, course)
        self._proven: dict[int, Proven] = {}
        self._ranked: list[Runner] = []
        self.trials: dict[int, Trial] = {}
        self.baseline = request.baseline_index

    @property
    def damaged(self) -> int:
        """How often something was written to that was only to be read, or to a guard region."""
        return self._prover.damaged

    def prove_all(self) -> None:
        """Builds and verifies everything, and tells about each variant as soon as it is known."""
        for index, found in self._prover.prove_all():
            if isinstance(found, Exception):
                self._fail(index, found)
                continue
            self._proven[index] = found
            self.trials[index] = Trial(OK, compile_ns=found.compile_ns, first_launch_ns=found.first_launch_ns)
            self._watcher.proven(index, self.trials[index])

    def race_all(self) -> None:
        """Warms up with the fastest and samples everything that works."""
        protocol = self._request.protocol
        runners = {index: Runner(index, proven.bound, proven.estimate_ns) for index, proven in self._proven.items()}
        for runner in sorted(runners.values(), key=lambda runner: runner.estimate_ns):
            self._course.go_on()
            self._course.step("measuring", runner.index, protocol.warm_up_ns + runner.estimate_ns)
            try:
                warm_up(self._backend, runner.bound, protocol.warm_up_ns, self._course.go_on)
                break
            except Cancelled:
                raise
            except Exception as error:
                del runners[runner.index]
                self._fail(runner.index, error)

        def announce(runner: Runner) -> None:
            self._course.go_on()
            self._course.step("measuring", runner.index, max(protocol.sample_ns, runner.estimate_ns))

        self._ranked = race(
            self._backend,
            [runner for runner in runners.values() if runner.index < len(self._request.variants)],
            protocol,
            lambda runner, error: self._fail(runner.index, error),
            None if self.baseline is None else runners.get(self.baseline),
            announce,
        )
        for runner in runners.values():
            if self.trials[runner.index].status == OK:
                self.trials[runner.index] = replace(
                    self.trials[runner.index],
                    samples_ns=tuple(runner.samples_ns),
                    wall_ns=tuple(runner.wall_ns),
                    measured=how_measured(runner, protocol),
                )

    def winner(self) -> tuple[int | None, bytes]:
        """The fastest variant that is still right after the race, and its binary; (None, b"") without one."""
        for runner in self._ranked:
            proven = self._proven[runner.index]
            try:
                self._prover.verify_again(runner.index, proven)
                return runner.index, self._prover.harvest(runner.index, proven)
            except Exception as error:
                self._fail(runner.index, error)
        return None, b""

    def release(self) -> None:
        """Lets go of all device memory now."""
        self._proven.clear()
        self._ranked.clear()
        self._prover.release()

    def _fail(self, index: int, error: Exception) -> None:
        self.trials[index] = failure(error)
        self._watcher.failed(index, self.trials[index])
