"""Build the variants of a batch, launch each once with its real sizes, and verify what it computed."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gputune.core.batches import ProfileKernel
from gputune.core.bounds import Handle
from gputune.core.launches import OUTPUT, Launch, Variant
from gputune.core.resources import Resources
from gputune.runtime.arrays import array_type
from gputune.runtime.backends import Bound, Buffer, Checked, Program, ProgramCache, Timing
from gputune.runtime.backends.merging import groups
from gputune.runtime.measuring.launching import Launcher
from gputune.runtime.measuring.verification import (
    GUARD_BYTES,
    GuardedBuffer,
    KeptBuffers,
    damage,
    guarded,
    reference_of,
    unlike,
    what_is_wrong,
)
from gputune.runtime.measuring.watcher import Course

BufferOf: TypeAlias = Callable[[Handle], Buffer]


@dataclass(frozen=True)
class Ahead:
    """Name another process, which compiles the variants from `first` on, where this one finds what is compiled. `wait`
    returns when it does not any more, so that nothing is measured beside it."""

    first: int
    wait: Callable[[], None]


class WrongOutput(Exception):
    """Report that a variant's output is wrong, or it wrote where it must not."""


@dataclass(eq=False)
class Verified:
    """Hold a variant that was built, launched and found right; packed buffers live as long as it does.

    estimate_ns: its first launch by the device's clock, by the host's where that stands still.
    """

    variant: Variant
    program: Program
    bound: Bound
    packed: KeptBuffers
    scratch: Mapping[str, GuardedBuffer]
    estimate_ns: float
    compile_ns: int
    first_launch_ns: int
    resources: tuple[Resources, ...]


class VariantBuilder:
    """Build and verify the variants of one request, with what they share: copies of the inputs, one output, packed
    buffers per packing; all guarded.

    damaged: how often something was written to that was only to be read, or to a guard region.
    """

    def __init__(
        self,
        programs: ProgramCache,
        request: ProfileKernel,
        buffer_of: BufferOf,
        course: Course,
        ahead: Ahead | None,
    ) -> None:
        self._programs = programs
        self._backend = backend = programs.backend
        self._request = request
        self._course = course
        self._elsewhere = ahead
        self._given = {name: buffer_of(handle) for name, handle in request.buffers.items()}
        self._launcher = Launcher(programs, course)
        self.damaged = 0
        self._prepare_ns = 0.0  # the slowest launch that has prepared packed buffers
        self._current: int | None = None  # whose work is being done
        self._course.step("preparing", None)
        reference = buffer_of(request.reference)
        want = backend.read(reference).view(array_type(request.dtype))
        self._want = reference_of(want, request.relative, request.absolute, request.dtype)
        self._output: GuardedBuffer = guarded(backend, reference.nbytes, wide=True)
        self._unlike = unlike(backend, self._want)
        sizes = {name: buffer.nbytes for name, buffer in self._given.items()}
        self._inputs = KeptBuffers(backend, sizes, self._copy_inputs)
        self._inputs.fill()
        self._packed: dict[object, KeptBuffers] = {}
        self._scratch: dict[str, GuardedBuffer] = {}

    def build_all(self) -> Iterator[tuple[int, Verified | Exception]]:
        """Yield the baseline first and every variant of the request, by number: verified, or what it failed with. Those
        that are compiled ahead come last, and backwards, to meet the process that compiles them. Nothing is compiled
        any more when all are through. Raises Cancelled between two of them when the watcher wishes so."""
        variants, baseline = self._request.numbered, self._request.baseline_number
        ahead = [number for number in self._ahead if number != baseline]
        together = self._groups()
        for number in [*(number for number in variants if number not in ahead), *reversed(ahead)]:
            variant = variants[number]
            self._course.go_on()
            self._current = number
            if group := together.pop(variant.main, None):
                self._launcher.build_together(group)
                together = {launch: others for launch, others in together.items() if others is not group}
            found = self._found(variant)
            if isinstance(found, Verified):
                self._course.seen(found.estimate_ns)
            yield number, found
        if self._elsewhere is not None:
            self._course.step("building", None)
            self._elsewhere.wait()

    def verify_again(self, number: int, verified: Verified) -> None:
        """Launch a variant once more and verify it: another variant of the batch may have damaged what it reads,
        and a data race may show only now. Raises WrongOutput or DeviceError."""
        self._current = number
        self._course.step("checking", number)
        self._renew(verified.packed)
        self._verify(verified.bound, verified.packed, verified.scratch)

    def harvest(self, number: int, verified: Verified) -> bytes:
        """Return the binary of a verified variant's program; one that it shares has none, so it is built
        and verified in one of its own. Raises WrongOutput or DeviceError."""
        self._current = number
        if verified.program.prefix:
            verified = self._build_and_verify(verified.variant, shared=False)
        return self._launcher.harvest(verified.program, number)

    def release(self) -> None:
        """Let go of all device memory now: kept buffers know how the builder fills them, and the builder knows them, a
        circle that would hold them until the garbage collector comes by."""
        self._packed.clear()
        self._scratch.clear()
        del self._inputs, self._output, self._unlike

    @property
    def _ahead(self) -> dict[int, Variant]:
        """Return the variants that another worker compiles, by number."""
        compiled = () if self._elsewhere is None else self._request.variants[self._elsewhere.first :]
        return {variant.number: variant for variant in compiled}

    def _groups(self) -> dict[Launch, list[Launch]]:
        """Return which launches share a program with which others. Those that are compiled ahead are grouped as they
        are there, whatever is known here: only then it is the same program."""
        if not (self._request.together and self._programs.merges):
            return {}
        elsewhere = self._ahead
        ahead = [variant.main for variant in elsewhere.values()]
        own = [variant.main for number, variant in self._request.numbered.items() if number not in elsewhere]
        new = [launch for launch in own if not self._programs.has_program(launch) and launch not in ahead]
        found = {launch: group for group in groups(new) for launch in group}
        for group in groups(ahead):
            if not all(map(self._programs.has_program, group)):
                found |= dict.fromkeys(group, group)
        return found

    def _found(self, variant: Variant) -> Verified | Exception:
        """Return what becomes of a variant. What fails in a shared program is tried in one of its own."""
        shared = self._request.together
        try:
            return self._build_and_verify(variant, shared)
        except Exception as error:
            if not shared or not self._programs.shares_program(variant.main):
                return error
        try:
            return self._build_and_verify(variant, shared=False)
        except Exception as error:
            return error

    def _build_and_verify(self, variant: Variant, shared: bool) -> Verified:
        """Build a variant, launch it once and verify it. Raises what makes it fail."""
        packed = self._packed_for(variant)
        scratch = {name: self._scratch_of(name, nbytes) for name, nbytes in variant.scratch.items()}
        inner = {name: buffer.inner for name, buffer in scratch.items()}
        buffers = {**self._inputs.buffers, **packed.buffers, **inner, OUTPUT: self._output.inner}
        built = self._launcher.build(variant.main, buffers, self._current, shared=shared, work=self._request.work)
        timing = self._verify(built.bound, packed, scratch)
        estimate_ns = timing.event_ns if timing.event_ns > 0 else timing.wall_ns
        return Verified(
            variant,
            built.program,
            built.bound,
            packed,
            scratch,
            estimate_ns,
            built.compile_ns,
            timing.wall_ns,
            resources=self._backend.resources_of(built.program, built.bound),
        )

    def _scratch_of(self, name: str, nbytes: int) -> GuardedBuffer:
        """Return a scratch buffer: the first bytes of one that all variants share which want one of this name, since
        only one of them runs at a time. What is behind it is its guard."""
        if name not in self._scratch:
            most = self._backend.identity.max_allocation_bytes - 2 * GUARD_BYTES
            wanted = [variant.scratch.get(name, 0) for variant in self._request.numbered.values()]
            self._scratch[name] = guarded(
                self._backend, max([nbytes, *(size for size in wanted if size <= most)]), wide=True
            )
        shared = self._scratch[name]
        if shared.inner.nbytes == nbytes:
            return shared
        return GuardedBuffer(
            shared.whole, self._backend.part(shared.whole, shared.guard_bytes, nbytes), shared.guard_bytes
        )

    def _verify(self, bound: Bound, packed: KeptBuffers, scratch: Mapping[str, GuardedBuffer]) -> Timing:
        """Launch once into a poisoned output, compare it, and check all that was only to be read."""
        backend, request = self._backend, self._request
        for buffer in (self._output, *scratch.values()):
            buffer.poison(backend)
        if self._unlike is not None:
            backend.copy(self._unlike, self._output.inner)
        backend.finish()
        known_to_end = self._current == request.baseline_number  # it may be slow, but it has run before
        try:
            timing = self._launcher.run(bound, self._current, 0.0 if known_to_end else self._course.best_ns)
        except Exception:
            if not backend.lost():  # else it is this launch that the announced step blames
                self._course.step("checking", self._current)
                self._renew(packed)
            raise
        self._course.step("checking", self._current)
        if not backend.computes:
            backend.write(self._output.inner, self._want.values)  # the reference stands in for what was not computed
        beside = [buffer.zone(summed=False) for buffer in scratch.values()]
        kept = [*self._inputs.zones, *packed.zones]
        seen, checked = backend.compare(self._output.zone(), self._want, [*kept, *beside])
        written = self._renew(packed, checked[: len(kept)])
        guards = zip(scratch, checked[len(kept) :], strict=True)
        beyond = [f"{name!r}: {wrong}" for name, one in guards if (wrong := damage(one.guards))]
        outside = "; ".join(filter(None, (damage(seen.guards), *beyond)))
        self.damaged += bool(outside)
        if found := "; ".join(filter(None, (written, outside, what_is_wrong(seen, self._want)))):
            raise WrongOutput(found)
        return timing

    def _renew(self, packed: KeptBuffers, checked: Sequence[Checked] | None = None) -> str:
        """Fill inputs and packed buffers again if anything has changed them, and say what has changed. checked: what
        the backend says of their zones, if it was asked already."""
        zones = self._inputs.zones
        seen = self._backend.checksum([*zones, *packed.zones]) if checked is None else checked
        inputs = self._inputs.judge(seen[: len(zones)])  # first, because packed buffers are made from them
        found = "; ".join(filter(None, (inputs, packed.judge(seen[len(zones) :]))))
        self.damaged += bool(found)
        return found

    def _copy_inputs(self, copies: Mapping[str, Buffer]) -> None:
        for name, copy in copies.items():
            self._backend.copy(self._given[name], copy)

    def _packed_for(self, variant: Variant) -> KeptBuffers:
        """Return the packed buffers of a variant; variants with equal prepare launches share them."""
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
            wrong = packed.fill()
            if found := "; ".join(filter(None, (wrong, self._inputs.check()))):
                self.damaged += 1
                raise WrongOutput(f"preparing {found}")
            self._packed[key] = packed
        return self._packed[key]
