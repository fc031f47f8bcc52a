"""Build, verify and time the variants of one task.

Every variant is built, launched with its real sizes and verified before anything is timed: on a CPU device, a compiler
next to a measurement spoils it. Variants with the same machine code are timed once.

In a network a kernel does not find its weights in the caches, but a kernel that runs again and again does. So if the
baseline packs MANY_WEIGHT_BYTES or more, other data evict the weights before each launch: on a CPU from the caches of
its cores, on other devices from the last cache, if its size is known. Fewer weights are measured warm; kernels prefetch
packed weights anyway (kernels/tiling/prefetching.py). Families pack all weights that they know to be constant.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gputune.core.batches import Profiled, ProfileKernel
from gputune.core.errors import DeviceError, LaunchFailed
from gputune.core.launches import Trial
from gputune.core.resources import measured_of
from gputune.core.statuses import CORRECTNESS, OK, TrialStatus
from gputune.runtime.backends import Backend, ProgramCache
from gputune.runtime.measuring.building import Ahead, BufferOf, VariantBuilder, Verified, WrongOutput
from gputune.runtime.measuring.timing import WARM_UP_FACTOR, Protocol, Runner, how_measured, sample_all, warm_up
from gputune.runtime.measuring.watcher import UNWATCHED, Cancelled, Course, Watcher

MESSAGE_CHARACTERS = 4000
MANY_WEIGHT_BYTES = 512 << 10
"""So many packed weights, or more, do not stay in a core's caches from one inference to the next. A GPU's last cache
may hold those of one task, but not those of a network."""

EVICT_BYTES, MOST_EVICT_BYTES = 4 << 20, 64 << 20
"""Other data that pass between two launches with such weights: for each core twice its own caches, and at most. On
other devices it is twice the last cache."""


class BadRequest(ValueError):
    """Report a request that makes no sense."""


def measure(
    programs: ProgramCache,
    request: ProfileKernel,
    buffer_of: BufferOf,
    watcher: Watcher = UNWATCHED,
    ahead: Ahead | None = None,
) -> Profiled:
    """Measure a batch. A variant that fails gets a trial that says why and never ends the batch.

    buffer_of: returns the device buffer of a handle; ahead: another process that compiles some variants meanwhile.
    Raises BadRequest, Cancelled when the watcher wishes so, and what buffer_of raises.
    """
    try:
        request.check()
    except ValueError as error:
        raise BadRequest(str(error)) from None
    if (nbytes := buffer_of(request.reference).nbytes) != request.output_bytes:
        raise BadRequest(f"the reference has {nbytes} bytes, but output_bytes is {request.output_bytes}")
    before = programs.backend.state()
    course = Course(watcher, request.best_ns)
    batch = _Batch(programs.backend, request, VariantBuilder(programs, request, buffer_of, course, ahead), course)
    try:
        batch.build_all()
        batch.time_all()
        best, binary = batch.winner()
    finally:
        batch.release()
    trials = tuple(batch.trial(variant.number) for variant in request.variants)
    baseline = None if request.baseline is None else batch.trial(request.baseline.number)
    state = {"before": before, "after": programs.backend.state()}
    if batch.damaged:
        state["damaged"] = {"times": float(batch.damaged)}
    return Profiled(trials, best, binary, baseline, course.spent_ns, state)


def failure(error: Exception) -> Trial:
    """Return the trial of a variant that raised."""
    status: TrialStatus
    if isinstance(error, WrongOutput):
        status, message = CORRECTNESS, str(error)
    elif isinstance(error, DeviceError):
        status, message = error.status, str(error)
    else:
        status, message = LaunchFailed.status, f"{type(error).__name__}: {error}"
    return Trial(status, message[:MESSAGE_CHARACTERS])


def twins(backend: Backend, verified: Mapping[int, Verified]) -> dict[int, int]:
    """Return the variants that run the same machine code on the same data with the same sizes, all but the first, with
    the first one's number."""
    first: dict[object, int] = {}
    same_as: dict[int, int] = {}
    for index, one in verified.items():
        code, main = backend.code_of(one.bound), one.variant.main
        if code is not None:
            sizes = main.global_size, main.local_size, main.stages
            packed = tuple(sorted(one.packed.checksums.items())), tuple(sorted(one.variant.packed.items()))
            leader = first.setdefault((code, sizes, main.arguments, packed), index)
            same_as |= {index: leader} if leader != index else {}
    return same_as


class _Batch:
    """Follow one request on its way, and what has become of each variant so far, whose index is its number. Those that
    work have their samples when they have been timed."""

    def __init__(self, backend: Backend, request: ProfileKernel, builder: VariantBuilder, course: Course) -> None:
        self._backend = backend
        self._request = request
        self._builder = builder
        self._course = course
        self._verified: dict[int, Verified] = {}
        self._ranked: list[Runner] = []
        self._same_as: dict[int, int] = {}
        self._trials: dict[int, Trial] = {}
        self._protocol = Protocol(request.samples, request.sample_ns, request.warm_up_ns, request.cold)

    @property
    def damaged(self) -> int:
        """Return how often something was written to that was only to be read, or to a guard region."""
        return self._builder.damaged

    def trial(self, index: int) -> Trial:
        """Return what has become of a variant, and the host's time that was spent on it."""
        trial = self._trials[index]
        return replace(trial, measured={**trial.measured, "spent_ns": self._course.spent_on(index)})

    def build_all(self) -> None:
        """Build and verify everything, and tell about each variant as soon as it is known. Others may have the
        device between two of them, but not while they are timed: times are compared side by side."""
        for index, found in self._builder.build_all():
            if isinstance(found, Exception):
                self._fail(index, found)
            else:
                self._verified[index] = found
                self._trials[index] = Trial(
                    OK,
                    compile_ns=found.compile_ns,
                    first_launch_ns=found.first_launch_ns,
                    measured=measured_of(found.resources),
                )
                self._course.watcher.verified(index, self._trials[index])
            self._course.yield_device()
        self._course.yield_device()  # also to those that would have disturbed compiling ahead

    def time_all(self) -> None:
        """Warm up with the fastest and sample everything that works, the same code once."""
        self._protocol = protocol = self._chosen_protocol()
        if protocol.one_by_one:
            self._course.step("building", None)
            self._backend.flush_caches(protocol.evict_bytes or None)  # which may compile, once
        variants = self._request.numbers
        candidates = {index: verified for index, verified in self._verified.items() if index in variants}
        self._same_as = twins(self._backend, candidates)
        runners = {
            index: Runner(index, verified.bound, verified.estimate_ns)
            for index, verified in self._verified.items()
            if index not in self._same_as
        }
        warm = self._warm_up(runners)

        def announce(runner: Runner) -> None:
            self._course.go_on()
            self._course.step("measuring", runner.index, max(protocol.sample_ns, runner.estimate_ns))

        baseline = self._request.baseline_number
        self._ranked = sample_all(
            self._backend,
            [runner for runner in runners.values() if runner.index in variants],
            protocol,
            lambda runner, error: self._fail(runner.index, error),
            None if baseline is None else runners.get(baseline),
            announce,
            0.0 if self._request.harvest else self._request.best_ns,  # finalists are told apart, however slow now
            warm,
        )
        for runner in runners.values():
            if self._trials[runner.index].status == OK:
                self._measured(runner)

    def _chosen_protocol(self) -> Protocol:
        """Return the request's protocol, with other data between launches where the baseline, or the first variant
        without one, packs many weights. That is the same in all batches of a task, so these are measured alike."""
        wanted = self._protocol
        number = self._request.baseline_number
        baseline = self._verified.get(min(self._request.numbers) if number is None else number)
        if wanted.cold or baseline is None or not self._backend.computes:
            return wanted
        packed = sum(buffer.nbytes for buffer in baseline.packed.buffers.values())
        return replace(wanted, evict_bytes=self._evicting_bytes) if packed >= MANY_WEIGHT_BYTES else wanted

    @property
    def _evicting_bytes(self) -> int:
        """Return how many bytes of other data evict the weights; 0 where such weights do not fit a cache, or nothing is
        known of one."""
        identity, cached = self._backend.identity, self._backend.cache_bytes
        if identity.device_type == "cpu":
            return min(EVICT_BYTES * identity.compute_units, MOST_EVICT_BYTES)
        return 2 * cached if cached >= MANY_WEIGHT_BYTES else 0

    def winner(self) -> tuple[int | None, bytes]:
        """Return the fastest variant that is still right after all have been timed, and its binary; (None, b"") without
        one."""
        for runner in self._ranked:
            verified = self._verified[runner.index]
            try:
                self._builder.verify_again(runner.index, verified)
                return runner.index, self._builder.harvest(runner.index, verified) if self._request.harvest else b""
            except Exception as error:
                self._fail(runner.index, error)
        return None, b""

    def release(self) -> None:
        """Let go of all device memory now."""
        self._verified.clear()
        self._ranked.clear()
        self._builder.release()

    def _warm_up(self, runners: dict[int, Runner]) -> bool:
        """Warm up with the fastest that lives through it, and say whether the clock was stable at the end. What fails
        is no runner any more."""
        warm_up_ns = self._protocol.warm_up_ns
        for runner in sorted(runners.values(), key=lambda runner: runner.estimate_ns):
            self._course.go_on()
            expected_ns = WARM_UP_FACTOR * warm_up_ns + runner.estimate_ns
            self._course.step("measuring", runner.index, expected_ns, shared=True)
            try:
                return warm_up(self._backend, runner.bound, warm_up_ns, self._course.go_on)
            except Cancelled:
                raise
            except Exception as error:
                del runners[runner.index]
                self._fail(runner.index, error)
        return False

    def _measured(self, runner: Runner) -> None:
        """Give a runner's samples to its variant, and to those that are the same."""
        how = how_measured(runner, self._protocol)
        for index in [runner.index, *self._twins(runner.index)]:
            trial, twin = self._trials[index], {} if index == runner.index else {"same_as": runner.index}
            self._trials[index] = replace(
                trial,
                samples_ns=tuple(runner.samples_ns),
                wall_ns=tuple(runner.wall_ns),
                measured={**trial.measured, **how, **twin},
            )

    def _twins(self, index: int) -> list[int]:
        return [twin for twin, leader in self._same_as.items() if leader == index]

    def _fail(self, index: int, error: Exception) -> None:
        """Record a failure for a variant and for those with the same machine code."""
        for one in [index, *self._twins(index)]:
            self._trials[one] = failure(error)
            self._course.watcher.failed(one, self.trial(one))
