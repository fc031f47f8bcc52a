"""Builds, verifies and races the variants of one task.

Everything is built, launched with its real sizes and verified before anything is measured, so that no
compiler runs beside a measurement.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gputune.runtime import device_state
from gputune.runtime.backends import Backend, Bound, Buffer, Program, Timing
from gputune.runtime.errors import DeviceError, LaunchFailed
from gputune.runtime.launching import Launcher
from gputune.runtime.measure import Protocol, Runner, how_measured, race, warm_up
from gputune.runtime.variant import CORRECTNESS, OK, OUTPUT, Trial, Variant, Work
from gputune.runtime.verify import Floats, GuardedBuffer, KeptBuffers, guarded, mismatch
from gputune.runtime.watch import UNWATCHED, Cancelled, Course, Watcher

MESSAGE_CHARACTERS = 4000


@dataclass(frozen=True)
class ProfileRequest:
    """A batch of variants of one task. All read the same `buffers`; `reference` holds the right output
    (float32, as many bytes as the output): |got - want| <= absolute + relative * max|want|. The first variant
    is the one that the others are compared with and always gets all samples. `baseline` is raced with them and
    never wins, unless it is one of them; `best_ns` is the fastest launch known before, 0 when none is."""

    task: str
    variants: Sequence[Variant]
    buffers: Mapping[str, Buffer]
    reference: Buffer
    relative: float
    absolute: float
    work: Work
    protocol: Protocol = field(default_factory=Protocol)
    baseline: Variant | None = None
    best_ns: float = 0.0

    def check(self) -> None:
        """Raises ValueError when the request itself makes no sense."""
        if OUTPUT in self.buffers:
            raise ValueError(f"the buffer name {OUTPUT!r} is reserved for what the variants write")
        if self.reference.nbytes % 4:
            raise ValueError(f"the reference has {self.reference.nbytes} bytes, which are no float32 values")


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


@dataclass(eq=False)
class _Entry:
    """A variant that was built, launched and found right; packed buffers live as long as it does."""

    program: Program
    bound: Bound
    packed: KeptBuffers
    estimate_ns: float
    trial: Trial


class _WrongOutput(Exception):
    """A variant's output is wrong, or it wrote where it must not."""


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
    if isinstance(error, _WrongOutput):
        status, message = CORRECTNESS, str(error)
    elif isinstance(error, DeviceError):
        status, message = error.status, str(error)
    else:
        status, message = LaunchFailed.status, f"{type(error).__name__}: {error}"
    return Trial(status, message[:MESSAGE_CHARACTERS])


class _Batch:
    """One request on its way: what its variants share (copies of the inputs, one output, packed buffers per
    packing; all guarded), and what has become of each so far.

    trials: by index; those of variants that work are filled in when they have been raced. baseline: its index,
    which is that of the variant that it equals, or comes after all of them. damaged: how often something was written
    to that was only to be read, or to a guard region.
    """

    def __init__(self, backend: Backend, request: ProfileRequest, course: Course, watcher: Watcher) -> None:
        self._backend = backend
        self._request = request
        self._course = course
        self._watcher = watcher
        self._launcher = Launcher(backend, course)
        self.damaged = 0
        self._prepare_ns = 0.0  # the slowest launch that has prepared packed buffers
        self._current: int | None = None  # whose work is being done
        self._course.step("preparing", None)
        self._want: Floats = backend.read(request.reference).view(np.float32)
        self._output: GuardedBuffer = guarded(backend, request.reference.nbytes)
        sizes = {name: buffer.nbytes for name, buffer in request.buffers.items()}
        self._inputs = KeptBuffers(backend, sizes, self._copy_inputs)
        self._inputs.fill()
        self._packed: dict[object, KeptBuffers] = {}
        self._entries: dict[int, _Entry] = {}
        self._ranked: list[Runner] = []
        self.trials: dict[int, Trial] = {}
        self.baseline: int | None = None
        if request.baseline is not None:
            variants = list(request.variants)
            known = request.baseline in variants
            self.baseline = variants.index(request.baseline) if known else len(variants)

    def prove_all(self) -> None:
        """Builds and verifies everything; the baseline first, because limits scale with what is known to work."""
        variants = dict(enumerate(self._request.variants))
        if self.baseline is not None and self._request.baseline is not None:
            variants = {self.baseline: self._request.baseline} | variants
        for index, variant in variants.items():
            self._course.go_on()
            self._current = index
            try:
                entry = self._entries[index] = self._prove(variant)
            except Exception as error:
                self._fail(index, error)
            else:
                self.trials[index] = entry.trial
                self._course.seen(entry.estimate_ns)
                self._watcher.proven(index, entry.trial)

    def race_all(self) -> None:
        """Warms up with the fastest and samples everything that works."""
        protocol = self._request.protocol
        runners = {index: Runner(index, entry.bound, entry.estimate_ns) for index, entry in self._entries.items()}
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
            entry = self._entries[runner.index]
            self._current = runner.index
            try:
                self._course.step("checking", runner.index)
                self._renew(entry.packed)  # somebody else in the race may have damaged what this one reads
                self._verify(entry.bound, entry.packed)  # once more: a data race may show only now
                return runner.index, self._launcher.harvest(entry.program, runner.index)
            except Exception as error:
                self._fail(runner.index, error)
        return None, b""

    def release(self) -> None:
        """Lets go of all device memory now: kept buffers know how the batch fills them, and the batch knows them, a
        circle that would hold them until the garbage collector comes by."""
        self._entries.clear()
        self._packed.clear()
        self._ranked.clear()
        del self._inputs, self._output

    def _fail(self, index: int, error: Exception) -> None:
        self.trials[index] = failure(error)
        self._watcher.failed(index, self.trials[index])

    def _prove(self, variant: Variant) -> _Entry:
        """Builds a variant, launches it once and verifies it. Raises what makes it fail."""
        packed = self._packed_for(variant)
        buffers = {**self._inputs.buffers, **packed.buffers, OUTPUT: self._output.inner}
        built = self._launcher.build(variant.main, buffers, self._current, work=self._request.work)
        timing = self._verify(built.bound, packed)
        trial = Trial(OK, compile_ns=built.compile_ns, first_launch_ns=timing.wall_ns)
        estimate_ns = timing.event_ns if timing.event_ns > 0 else timing.wall_ns
        return _Entry(built.program, built.bound, packed, estimate_ns, trial)

    def _verify(self, bound: Bound, packed: KeptBuffers) -> Timing:
        """Launches once into a poisoned output, compares it, and checks all that was only to be read."""
        backend, request = self._backend, self._request
        self._output.poison(backend)
        backend.finish()
        known_to_end = self._current == self.baseline  # it may be slow, but it has run before
        try:
            timing = self._launcher.run(bound, self._current, 0.0 if known_to_end else self._course.best_ns)
        finally:
            self._course.step("checking", self._current)
            written = self._renew(packed)
        if not backend.computes:
            backend.write(self._output.inner, self._want)  # the reference stands in for what was not computed
        got, damage = self._output.read(backend)
        self.damaged += bool(damage)
        wrong = mismatch(got.view(np.float32), self._want, request.relative, request.absolute)
        if found := "; ".join(filter(None, (written, damage, wrong))):
            raise _WrongOutput(found)
        return timing

    def _renew(self, packed: KeptBuffers) -> str:
        """Fills inputs and packed buffers again if anything has changed them, and says what has changed."""
        found = "; ".join(filter(None, (self._inputs.check(), packed.check())))
        self.damaged += bool(found)
        return found

    def _copy_inputs(self, copies: Mapping[str, Buffer]) -> None:
        for name, copy in copies.items():
            self._backend.write(copy, self._backend.read(self._request.buffers[name]))

    def _packed_for(self, variant: Variant) -> KeptBuffers:
        """The packed buffers of a variant; variants with equal prepare launches share them."""
        key = (variant.prepare, tuple(sorted(variant.packed.items())))
        if key not in self._packed:

            def prepare(made: Mapping[str, Buffer]) -> None:
                buffers = {**self._inputs.buffers, **made}
                for launch in variant.prepare:
                    built = self._launcher.build(launch, buffers, self._current, harvested=False)
                    known_ns = max(self._course.best_ns, self._prepare_ns) if self._course.best_ns else 0.0
                    timing = self._launcher.run(built.bound, self._current, known_ns)
                    self._prepare_ns = max(self._prepare_ns, timing.wall_ns)

            packed = KeptBuffers(self._backend, variant.packed, prepare)
            damage = packed.fill()
            if found := "; ".join(filter(None, (damage, self._inputs.check()))):
                self.damaged += 1
                raise _WrongOutput(f"preparing {found}")
            self._packed[key] = packed
        return self._packed[key]
