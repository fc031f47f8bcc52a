"""Build launches, bind them to their buffers and run them, and announce each step.

The module also compiles a single variant, and runs finalize-time launches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from gputune.core.batches import Compiled
from gputune.core.bounds import Scalar
from gputune.core.errors import DeviceError, LaunchFailed, shortened
from gputune.core.launches import Launch, Stage, Variant, Work
from gputune.runtime.backends import Backend, Bound, Buffer, Bytes, Program, ProgramCache, Timing
from gputune.runtime.backends.merging import groups
from gputune.runtime.measuring.watcher import UNWATCHED, Course, Watcher


@dataclass(frozen=True, eq=False)
class Built:
    """Hold a launch that can be run, and the ns that its program took to build: 0 when it was still there."""

    program: Program
    compile_ns: int
    bound: Bound


class Launcher:
    """Build and run launches on a device and announce both. `variant` is whose launches they are."""

    def __init__(self, programs: ProgramCache, course: Course) -> None:
        self._programs = programs
        self._backend = programs.backend
        self._course = course
        self._share_ns: dict[Launch, int] = {}  # what a program built for several launches took for each

    def build_together(self, launches: Sequence[Launch]) -> None:
        """Build one program for launches of different variants, where they go together; none of them is charged when
        the compiler crashes on it."""
        self._course.step("building", None)
        if share_ns := self._programs.build_together(launches):
            self._share_ns |= dict.fromkeys(launches, share_ns)

    def build(
        self,
        launch: Launch,
        buffers: Mapping[str, Buffer],
        variant: int | None = None,
        *,
        harvested: bool = True,
        shared: bool = False,
        work: Work | None = None,
    ) -> Built:
        """Build a launch's program, or find it, and bind its arguments; `harvested` and `shared` as in
        ProgramCache.program_for. Raises DeviceError."""
        self._course.step("building", variant)
        program, compile_ns = self._programs.program_for(launch, harvested, shared)
        if program.prefix:
            compile_ns = self._share_ns.pop(launch, compile_ns)
        bound = self._bound(program, launch, buffers, work)
        bound.before = tuple(self._bound(program, stage, buffers, None) for stage in launch.stages)
        return Built(program, compile_ns, bound)

    def run(self, bound: Bound, variant: int | None = None, expected_ns: float = 0.0) -> Timing:
        """Launch once, stage by stage, and wait. Raises DeviceError."""
        event_ns: list[int] = []
        wall_ns = 0
        for one in bound.sequence:
            self._course.step("starting", variant)
            timing = self._backend.first_launch(one, lambda: self._course.step("launching", variant, expected_ns))
            event_ns.append(timing.event_ns)
            wall_ns += timing.wall_ns
        return Timing(1, sum(event_ns) if min(event_ns) > 0 else 0, wall_ns)

    def _bound(
        self, program: Program, kernel: Launch | Stage, buffers: Mapping[str, Buffer], work: Work | None
    ) -> Bound:
        arguments: list[Buffer | Scalar] = []
        for argument in kernel.arguments:
            if isinstance(argument, str) and argument not in buffers:
                there = shortened(buffers)
                raise LaunchFailed(f"kernel {kernel.entry!r} wants a buffer {argument!r}; there are {there}")
            arguments.append(buffers[argument] if isinstance(argument, str) else argument)
        return self._backend.bind(program, kernel.entry, kernel.global_size, kernel.local_size, arguments, work)

    def harvest(self, program: Program, variant: int | None = None) -> bytes:
        """Return the program's binary, for which some drivers compile once more."""
        self._course.step("building", variant)
        return self._backend.harvest(program)


def compile_variant(
    programs: ProgramCache, variant: Variant, buffers: Mapping[str, int], watcher: Watcher = UNWATCHED
) -> Compiled:
    """Build variant.main and launch it once with its real sizes on buffers of zeros (`buffers`,
    variant.packed and variant.scratch give their bytes), then read the binary. Raises DeviceError."""
    backend, launcher = programs.backend, Launcher(programs, Course(watcher))
    built = launcher.build(variant.main, _zeros(backend, {**buffers, **variant.packed, **variant.scratch}))
    backend.finish()
    timing = launcher.run(built.bound)
    return Compiled(launcher.harvest(built.program), built.compile_ns, timing.wall_ns)


def compile_ahead(
    programs: ProgramCache, variants: Sequence[Variant], buffers: Mapping[str, int], watcher: Watcher = UNWATCHED
) -> list[tuple[int, int]]:
    """Build each variant.main, together where they go together, and launch it once on zeros (`buffers` and
    variant.packed give their bytes), where processes find what this driver has compiled. Returns what building and the
    first launch took, 0 for those that fail, or come after the watcher's wish to give up. Raises DeviceError when there
    is no memory."""
    backend, launcher = programs.backend, Launcher(programs, Course(watcher))
    mains = [variant.main for variant in variants] if programs.merges else []
    together = {launch: group for group in groups(mains) for launch in group}
    common = _zeros(backend, buffers)
    took = []
    for variant in variants:
        if watcher.cancelled:  # the rest is not needed
            break
        try:
            if not programs.has_program(variant.main) and variant.main in together:
                launcher.build_together(together[variant.main])
            given = {**common, **_zeros(backend, {**variant.packed, **variant.scratch})}
            built = launcher.build(variant.main, given, shared=True)
            backend.finish()
            took.append((built.compile_ns, launcher.run(built.bound).wall_ns))
        except DeviceError:  # its own launch fails again, and says so
            took.append((0, 0))
    return took + [(0, 0)] * (len(variants) - len(took))


def execute(
    programs: ProgramCache,
    launches: Sequence[Launch],
    buffers: Mapping[str, Buffer],
    outputs: Mapping[str, int],
    watcher: Watcher = UNWATCHED,
) -> dict[str, Bytes]:
    """Run launches in order. `outputs` (name -> bytes) are made here, start as zeros and come back. Raises
    DeviceError, Cancelled."""
    course = Course(watcher)
    backend, launcher = programs.backend, Launcher(programs, course)
    made = _zeros(backend, outputs)
    for launch in launches:
        course.go_on()
        launcher.run(launcher.build(launch, {**buffers, **made}, harvested=False).bound)
    return {name: backend.read(buffer) for name, buffer in made.items()}


def _zeros(backend: Backend, sizes: Mapping[str, int]) -> dict[str, Buffer]:
    made = {name: backend.allocate(nbytes) for name, nbytes in sizes.items()}
    for buffer in made.values():
        backend.fill(buffer, 0)
    return made
