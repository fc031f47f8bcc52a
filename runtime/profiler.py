"""Builds, verifies and races the variants of one task; compiles one variant; runs finalize-time launches.

Everything is built, launched with its real sizes and verified before anything is measured, so that no
compiler runs beside a measurement.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gputune.runtime.backends import Backend, Bound, Buffer, Bytes, Program, Timing
from gputune.runtime.errors import DeviceError, LaunchFailed
from gputune.runtime.measure import Protocol, Runner, how_measured, race, warm_up
from gputune.runtime.variant import CORRECTNESS, OK, OUTPUT, Launch, Trial, Variant, Work
from gputune.runtime.verify import Floats, GuardedBuffer, KeptBuffers, guarded, mismatch

MESSAGE_CHARACTERS = 4000


@dataclass(frozen=True)
class ProfileRequest:
    """A batch of variants of one task. All read the same `buffers`; `reference` holds the right output
    (float32, as many bytes as the output): |got - want| <= absolute + relative * max|want|. The first variant
    is the one that the others are compared with and always gets all samples."""

    task: str
    variants: Sequence[Variant]
    buffers: Mapping[str, Buffer]
    reference: Buffer
    relative: float
    absolute: float
    work: Work
    protocol: Protocol = field(default_factory=Protocol)


@dataclass(frozen=True)
class Profiled:
    """Trials in the order of the variants, the index of the fastest right one, and its program's binary."""

    trials: tuple[Trial, ...]
    best: int | None
    binary: bytes


@dataclass(frozen=True)
class Compiled:
    """A program binary harvested after a launch with the real sizes, and what that took."""

    binary: bytes
    compile_ns: int
    first_launch_ns: int


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


def profile(backend: Backend, request: ProfileRequest) -> Profiled:
    """Profiles a batch. A variant that fails gets a trial that says why and never ends the batch.

    Raises ValueError when the request itself makes no sense.
    """
    if OUTPUT in request.buffers:
        raise ValueError(f"the buffer name {OUTPUT!r} is reserved for what the variants write")
    if request.reference.nbytes % 4:
        raise ValueError(f"the reference has {request.reference.nbytes} bytes, which are no float32 values")
    batch = _Batch(backend, request)
    trials: list[Trial] = []
    entries: dict[int, _Entry] = {}
    for index, variant in enumerate(request.variants):
        try:
            entries[index] = batch.prove(variant)
            trials.append(entries[index].trial)
        except Exception as error:
            trials.append(failure(error))

    def failed(runner: Runner, error: Exception) -> None:
        trials[runner.index] = failure(error)

    runners = [Runner(index, entry.bound, entry.estimate_ns) for index, entry in entries.items()]
    _warm_up_with_fastest(backend, runners, request.protocol, failed)
    ranked = race(backend, [r for r in runners if trials[r.index].status == OK], request.protocol, failed)
    for runner in ranked:
        trials[runner.index] = replace(
            trials[runner.index],
            samples_ns=tuple(runner.samples_ns),
            wall_ns=tuple(runner.wall_ns),
            measured=how_measured(runner, request.protocol),
        )
    for runner in ranked:
        entry = entries[runner.index]
        try:
            batch.renew(entry.packed)  # somebody else in the race may have damaged what this one reads
            batch.verify(entry.bound, entry.packed)  # once more: a data race may show only now
            return Profiled(tuple(trials), runner.index, backend.harvest(entry.program))
        except Exception as error:
            trials[runner.index] = failure(error)
    return Profiled(tuple(trials), None, b"")


def compile_variant(backend: Backend, variant: Variant, buffers: Mapping[str, int]) -> Compiled:
    """Builds variant.main and launches it once with its real sizes on buffers of zeros (`buffers` and
    variant.packed give their bytes), then reads the binary. Raises DeviceError."""
    made: dict[str, Buffer] = {}
    for name, nbytes in {**buffers, **variant.packed}.items():
        made[name] = backend.allocate(nbytes)
        backend.fill(made[name], 0)
    program, compile_ns = backend.program_for(variant.main)
    bound = _bind(backend, program, variant.main, made)
    start = time.perf_counter_ns()
    backend.enqueue(bound)
    backend.finish()
    first_launch_ns = time.perf_counter_ns() - start
    return Compiled(backend.harvest(program), compile_ns, first_launch_ns)


def execute(
    backend: Backend, launches: Sequence[Launch], buffers: Mapping[str, Buffer], outputs: Mapping[str, int]
) -> dict[str, Bytes]:
    """Runs launches in order. `outputs` (name -> bytes) are made here, start as zeros and come back. Raises
    DeviceError."""
    made = {name: backend.allocate(nbytes) for name, nbytes in outputs.items()}
    for buffer in made.values():
        backend.fill(buffer, 0)
    bounds = [
        _bind(backend, backend.program_for(launch, harvested=False)[0], launch, {**buffers, **made})
        for launch in launches
    ]
    for bound in bounds:
        backend.enqueue(bound)
    backend.finish()
    return {name: backend.read(buffer) for name, buffer in made.items()}


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
    """What the variants of one request share: copies of the inputs, one output, packed buffers per packing; all
    guarded."""

    def __init__(self, backend: Backend, request: ProfileRequest) -> None:
        self._backend = backend
        self._request = request
        self._want: Floats = backend.read(request.reference).view(np.float32)
        self._output: GuardedBuffer = guarded(backend, request.reference.nbytes)
        sizes = {name: buffer.nbytes for name, buffer in request.buffers.items()}
        self._inputs = KeptBuffers(backend, sizes, self._copy_inputs)
        self._inputs.fill()
        self._packed: dict[object, KeptBuffers] = {}

    def prove(self, variant: Variant) -> _Entry:
        """Builds a variant, launches it once and verifies it. Raises what makes it fail."""
        backend = self._backend
        program, compile_ns = backend.program_for(variant.main)
        packed = self._packed_for(variant)
        buffers = {**self._inputs.buffers, **packed.buffers, OUTPUT: self._output.inner}
        bound = _bind(backend, program, variant.main, buffers, self._request.work)
        timing = self.verify(bound, packed)
        trial = Trial(OK, compile_ns=compile_ns, first_launch_ns=timing.wall_ns)
        return _Entry(program, bound, packed, timing.event_ns if timing.event_ns > 0 else timing.wall_ns, trial)

    def verify(self, bound: Bound, packed: KeptBuffers) -> Timing:
        """Launches once into a poisoned output, compares it, and checks all that was only to be read."""
        backend, request = self._backend, self._request
        self._output.poison(backend)
        backend.finish()
        try:
            timing = backend.time(bound, 1)
        finally:
            written = self._inputs.check(), packed.check()
        if not backend.computes:
            backend.write(self._output.inner, self._want)  # the reference stands in for what was not computed
        got, damage = self._output.read(backend)
        wrong = mismatch(got.view(np.float32), self._want, request.relative, request.absolute)
        if found := "; ".join(filter(None, (*written, damage, wrong))):
            raise _WrongOutput(found)
        return timing

    def renew(self, packed: KeptBuffers) -> None:
        """Fills inputs and packed buffers again if anything has changed them."""
        self._inputs.check()
        packed.check()

    def _copy_inputs(self, copies: Mapping[str, Buffer]) -> None:
        for name, copy in copies.items():
            self._backend.write(copy, self._backend.read(self._request.buffers[name]))

    def _packed_for(self, variant: Variant) -> KeptBuffers:
        """The packed buffers of a variant; variants with equal prepare launches share them."""
        key = (variant.prepare, tuple(sorted(variant.packed.items())))
        if key not in self._packed:
            backend = self._backend

            def prepare(made: Mapping[str, Buffer]) -> None:
                for launch in variant.prepare:
                    program, _ = backend.program_for(launch, harvested=False)
                    backend.enqueue(_bind(backend, program, launch, {**self._inputs.buffers, **made}))

            packed = KeptBuffers(backend, variant.packed, prepare)
            damage = packed.fill()
            if found := "; ".join(filter(None, (damage, self._inputs.check()))):
                raise _WrongOutput(f"preparing {found}")
            self._packed[key] = packed
        return self._packed[key]


def _bind(
    backend: Backend,
    program: Program,
    launch: Launch,
    buffers: Mapping[str, Buffer],
    work: Work | None = None,
) -> Bound:
    arguments: list[Buffer | int] = []
    for argument in launch.arguments:
        if isinstance(argument, str) and argument not in buffers:
            raise LaunchFailed(f"kernel {launch.entry!r} wants a buffer {argument!r}; there are {sorted(buffers)}")
        arguments.append(buffers[argument] if isinstance(argument, str) else argument)
    return backend.bind(program, launch.entry, launch.global_size, launch.local_size, arguments, work)


def _warm_up_with_fastest(
    backend: Backend,
    runners: Sequence[Runner],
    protocol: Protocol,
    failed: Callable[[Runner, Exception], None],
) -> None:
    """Warms up with the fastest variant that survives it."""
    for runner in sorted(runners, key=lambda runner: runner.estimate_ns):
        try:
            warm_up(backend, runner.bound, protocol.warm_up_ns)
            break
        except Exception as error:
            failed(runner, error)
