"""Builds, verifies and races the variants of one task; compiles one variant; runs finalize-time launches.

Everything is built, launched with its real sizes and verified before anything is measured, so that no
compiler runs beside a measurement.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gputune.runtime.backends import Backend, Bound, Buffer, Bytes, Program
from gputune.runtime.errors import DeviceError, LaunchFailed
from gputune.runtime.measure import Protocol, Runner, how_measured, race, warm_up
from gputune.runtime.variant import CORRECTNESS, OK, OUTPUT, Launch, Trial, Variant, Work
from gputune.runtime.verify import Floats, GuardedBuffer, guarded, mismatch

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
    trial: Trial


class _WrongOutput(Exception):
    """A variant's output is wrong or its guards are damaged."""


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

    runners = [Runner(index, entry.bound, batch.first_event_ns[entry.bound]) for index, entry in entries.items()]
    if runners:
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
            batch.verify(entry.bound)  # once more: a data race may show only now
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
    """What the variants of one request share: input buffers, one guarded output, packed buffers per
    packing."""

    def __init__(self, backend: Backend, request: ProfileRequest) -> None:
        self._backend = backend
        self._request = request
        self._want: Floats = backend.read(request.reference).view(np.float32)
        self._output: GuardedBuffer = guarded(backend, request.reference.nbytes)
        self._packed: dict[object, dict[str, Buffer]] = {}
        self.first_event_ns: dict[Bound, float] = {}

    def prove(self, variant: Variant) -> _Entry:
        """Builds a variant, launches it once and verifies it. Raises what makes it fail."""
        backend = self._backend
        program, compile_ns = backend.program_for(variant.main)
        buffers = {**self._request.buffers, **self._packed_for(variant), OUTPUT: self._output.inner}
        bound = _bind(backend, program, variant.main, buffers, self._request.work)
        first_launch_ns, self.first_event_ns[bound] = self.verify(bound)
        return _Entry(program, bound, Trial(OK, compile_ns=compile_ns, first_launch_ns=first_launch_ns))

    def verify(self, bound: Bound) -> tuple[int, float]:
        """Launches once into a poisoned output and compares. Returns the host's and the device's ns."""
        backend, request = self._backend, self._request
        self._output.poison(backend)
        backend.finish()
        timing = backend.time(bound, 1)
        if not backend.computes:
            backend.write(self._output.inner, self._want)  # the reference stands in for what was not computed
        got, damage = self._output.read(backend)
        wrong = mismatch(got.view(np.float32), self._want, request.relative, request.absolute)
        if damage or wrong:
            raise _WrongOutput("; ".join(filter(None, (damage, wrong))))
        return timing.wall_ns, timing.event_ns

    def _packed_for(self, variant: Variant) -> dict[str, Buffer]:
        """The packed buffers of a variant; variants with equal prepare launches share them."""
        key = (variant.prepare, tuple(sorted(variant.packed.items())))
        if key not in self._packed:
            backend = self._backend
            made = {name: guarded(backend, nbytes) for name, nbytes in variant.packed.items()}
            packed = {name: buffer.inner for name, buffer in made.items()}
            for launch in variant.prepare:
                program, _ = backend.program_for(launch, harvested=False)
                backend.enqueue(_bind(backend, program, launch, {**self._request.buffers, **packed}))
            backend.finish()
            for name, buffer in made.items():
                _, damage = buffer.read(backend)
                if damage:
                    raise _WrongOutput(f"preparing {name!r}: {damage}")
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
    fastest = min(runners, key=lambda runner: runner.estimate_ns)
    try:
        warm_up(backend, fastest.bound, protocol.warm_up_ns)
    except Exception as error:
        failed(fastest, error)
