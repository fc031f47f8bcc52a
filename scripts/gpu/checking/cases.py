"""Render what is checked: the texts of defaults, starters and random configurations, and one persistent kernel."""

import math
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from gpu.checking.devices import Device
from gpu.checking.problems import PROBLEMS, Named
from gputune.client.context.persistent import Persistent, in_fewer_launches
from gputune.client.context.resuming import Access
from gputune.core.launches import Launch, Stage
from gputune.core.quirks import DEVICE_FENCE
from gputune.kernels.catalogue import family_of
from gputune.kernels.family import KernelFamily
from gputune.kernels.space import ChoiceSpace
from gputune.runtime.context.records import BufferRef, LaunchRecord, ProgramRecord

DEFAULT, STARTER, RANDOM = "default", "starter", "random"
PERSISTENT = "Persistent"
"""The family in the place of one, of a persistent kernel made of the defaults of CHAIN."""

CHAIN = ("squeezenet-expand", "squeezenet-pool", "resnet-residual", "squeezenet-squeeze")
TRIES = 50
"""Configurations that are drawn for each legal one that is wanted."""


@dataclass(frozen=True)
class Case:
    """A configuration of a problem for a device: a text, and the kernels of it that run. elements: of the largest
    tensor that is not constant, 0 if they are many problems'."""

    problem: Named
    device: Device
    kind: str
    configuration: Mapping[str, int]
    source: str
    options: str
    kernels: tuple[Stage | Launch, ...]
    elements: int

    @property
    def title(self) -> str:
        """What tells it from others."""
        values = " ".join(f"{name}={value}" for name, value in self.configuration.items())
        return f"{self.problem.title} {self.problem.name} on {self.device.name}, {self.kind} {values}".strip()


def cases(problems: Sequence[Named], devices: Sequence[Device], kinds: Sequence[str], drawn: int) -> Iterator[Case]:
    """Yield the cases of problems for devices. kinds: DEFAULT, STARTER; drawn: random ones of each problem."""
    for device in devices:
        for problem in problems:
            yield from _of_problem(problem, device, kinds, drawn)


def persistent_case(device: Device) -> Case:
    """Return the persistent kernel for a device, with a group for each compute unit. Launches that can be no part
    of one are left out."""
    launches: list[LaunchRecord] = []
    programs: list[ProgramRecord] = []
    accesses: list[Access] = []
    for problem in (each for each in PROBLEMS if each.name in CHAIN):
        family = family_of(problem.family)
        main = family.rendered(problem.problem, family.default(problem.problem, device.limits), device.limits).main
        sizes = _buffers(family, problem)
        for kernel in main.sequence:
            launches.append(_record(problem, kernel, len(programs), sizes))
            accesses.append(Access((), (), kernel.needs))
        programs.append(ProgramRecord(b"", main.source, main.options))
    groups = device.limits.compute_units
    merged = in_fewer_launches(launches, programs, groups, accesses, DEVICE_FENCE)
    found = max((one for one in merged if isinstance(one, Persistent)), key=lambda one: len(one.launches))
    kernel = Stage(found.entry, (groups,), (1,), ())
    problem = Named("small-chain", PERSISTENT, CHAIN)
    return Case(problem, device, DEFAULT, {}, found.source, found.options, (kernel,), 0)


def _of_problem(problem: Named, device: Device, kinds: Sequence[str], drawn: int) -> Iterator[Case]:
    family = family_of(problem.family)
    chosen: list[tuple[str, dict[str, int]]] = []
    if DEFAULT in kinds:
        chosen.append((DEFAULT, family.default(problem.problem, device.limits)))
    if STARTER in kinds:
        chosen += [(STARTER, each) for each in family.starters(problem.problem, device.limits)]
    chosen += [(RANDOM, each) for each in _drawn(family, problem, device, drawn)]
    elements = max(
        math.prod(spec.shape)
        for spec in (*family.inputs(problem.problem), family.output(problem.problem))
        if not spec.constant
    )
    for kind, configuration in chosen:
        main = family.rendered(problem.problem, configuration, device.limits).main
        yield Case(problem, device, kind, configuration, main.source, main.options, main.sequence, elements)


def _drawn(family: KernelFamily, problem: Named, device: Device, count: int) -> list[dict[str, int]]:
    """So many legal configurations, or fewer where few are legal; the same ones each time. Of several algorithms each
    has so many."""
    if not count:
        return []
    space, numbers = family.space(problem.problem, device.limits), random.Random(problem.name)
    if isinstance(space, ChoiceSpace):
        every = {number: list(own.configurations()) for number, own in space.spaces.items()}
        return [
            space.filled(number, one)
            for number, legal in every.items()
            for one in numbers.sample(legal, min(count, len(legal)))
        ]
    found: list[dict[str, int]] = []
    for _ in range(TRIES * count):
        one = {each.name: numbers.choice(each.values) for each in space.parameters}
        if one not in found and not space.violations(one):
            found.append(one)
        if len(found) == count:
            break
    return found


def _buffers(family: KernelFamily, problem: Named) -> dict[str, int]:
    """Bytes of all tensors of a problem; what else a kernel has for arguments is as large as the largest one."""
    specs = (*family.inputs(problem.problem), family.output(problem.problem))
    return {spec.name: spec.nbytes for spec in specs}


def _record(problem: Named, kernel: Stage | Launch, program: int, sizes: Mapping[str, int]) -> LaunchRecord:
    """A launch of a graph; its buffers lie in an arena, one behind the other."""
    names = list(dict.fromkeys(each for each in kernel.arguments if isinstance(each, str)))
    bytes_of = [sizes.get(name, max(sizes.values())) for name in names]
    offsets = accumulate(bytes_of, initial=0)
    refs = {
        name: BufferRef("arena", 0, offset, nbytes)
        for name, offset, nbytes in zip(names, offsets, bytes_of, strict=False)
    }
    arguments = tuple(refs[each] if isinstance(each, str) else each for each in kernel.arguments)
    sizes_of = (kernel.global_size, kernel.local_size)
    return LaunchRecord(problem.name, "", program, kernel.entry, *sizes_of, arguments)
