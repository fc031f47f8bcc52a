"""Define families whose work-items each compute a part of the output of their own: what all of them share.

Such a family has one template with one kernel of the same name. It declares what is its own, and overrides what stands
here if that is not so for its problems. ops/top.py is the smallest.
"""

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from gputune.core.dtypes import FLOATS
from gputune.kernels.family import ALONE, DeviceLimits, Instance, KernelFamily, Launch, TensorSpec, Tolerance, Work
from gputune.kernels.pointers import aligned
from gputune.kernels.space import Configuration, Constraint, Parameter, TuningSpace
from gputune.kernels.template import STOCK, build_options, moved, template
from gputune.kernels.tiling.streaming import Declared, default_group, group_constraints, round_up

EXACT = Tolerance(0.0, 0.0)
Parameters = tuple[Parameter, ...]
Guesses = tuple[Mapping[str, int], ...]
"""Parts of configurations, the best guess first."""


class MapFamily(KernelFamily):
    """A family of one kernel, whose work-items share nothing unless `needs` says otherwise.

    Its problems are `Problem`s. Unless overridden, the input and the output have the problem's `shape` and `dtype`, and
    the epilogue's operands are shaped as the output.
    """

    floats = FLOATS
    template: ClassVar[str]
    package: ClassVar[str] = STOCK
    """The package whose folder has the template: `__package__` for a family of an op package."""
    parameters: ClassVar[Parameters]
    """All that a configuration chooses, the work-group included."""
    group: ClassVar[tuple[str, ...]] = ("DIMX", "DIMY")
    """The parameters that are the work-group's sides."""
    guessed: ClassVar[Guesses] = ()
    """Parts of configurations that are tried in place of the same parts of the default."""
    guessed_on_cpus: ClassVar[Guesses] = ()
    guessed_beyond_cpus: ClassVar[Guesses] = ()
    """Further guesses for devices of a kind."""
    moves: ClassVar[bool] = False
    """Whether its kernel only moves elements, so that it needs their width alone, and results are exact."""
    accuracy: ClassVar[Tolerance] = EXACT
    """How far a right result in float32 may be off. Whole numbers are exact."""

    # tensors

    def inputs(self, problem: Any) -> tuple[TensorSpec, ...]:
        return (problem.tensor("input", problem.shape), *problem.operands(self.output(problem).shape))

    def output(self, problem: Any) -> TensorSpec:
        output: TensorSpec = problem.tensor("output", problem.shape)
        return output

    # what a search chooses from

    @abstractmethod
    def rules(self, problem: Any) -> tuple[Constraint, ...]:
        """Return what configurations must keep beside what the device allows for work-groups and `needs`."""

    def widths(self, problem: Any, limits: DeviceLimits) -> dict[str, int]:
        """Return what the default has for the parameters that are no side of the work-group."""
        return {}

    def needs(self, problem: Any) -> Declared | None:
        """Return what the kernel needs of a device, if work-items of a group share anything."""
        return None

    def space(self, problem: Any, limits: DeviceLimits) -> TuningSpace:
        needs = self.needs(problem)
        of_device = (*group_constraints(limits, *self.group), *((needs.limit(limits),) if needs else ()))
        return TuningSpace(self.parameters, (*self.rules(problem), *of_device))

    def default(self, problem: Any, limits: DeviceLimits) -> dict[str, int]:
        widths = self.widths(problem, limits)
        across, down = (*self.grid(problem, widths), 1)[:2]
        return widths | dict(zip(self.group, default_group(limits, across, down), strict=False))

    def guesses(self, problem: Any, limits: DeviceLimits) -> list[dict[str, int]]:
        default = self.default(problem, limits)
        more = self.guessed_on_cpus if limits.device_type == "cpu" else self.guessed_beyond_cpus
        return [default | {**each} for each in (*self.guessed, *more)]

    # the launch

    @abstractmethod
    def grid(self, problem: Any, configuration: Configuration) -> tuple[int, ...]:
        """Return how many work-items have something to do, by dimension: vectors of an axis, and rows."""

    @abstractmethod
    def sizes(self, problem: Any) -> Mapping[str, int]:
        """Return the sizes and flags of a problem under the names that the template knows them by."""

    def macros(self, problem: Any, configuration: Configuration) -> dict[str, int]:
        """Return what the template is told by build options: sizes, flags and parameters."""
        return {**{name: int(value) for name, value in self.sizes(problem).items()}, **configuration}

    def prelude(self, problem: Any) -> str:
        """Return the lines in front of the template: macros that are no integers."""
        return ""

    def seen(self, problem: Any) -> str:
        """Return the type of elements as the kernel sees them."""
        return moved(problem.dtype) if self.moves and not problem.epilogue.steps else problem.dtype

    def distances(self, problem: Any) -> tuple[int, ...] | None:
        """Return what lies between the beginning of a buffer and a vector of VW elements: sums of multiples of these
        and of the width (pointers.py); None if vectors may begin anywhere."""
        return None

    def aligned(self, problem: Any, configuration: Configuration) -> bool:
        """Return whether all vectors lie at multiples of their width."""
        distances = self.distances(problem)
        return distances is not None and aligned(configuration["VW"], *distances)

    def arguments(self, problem: Any) -> tuple[str, ...]:
        """Return the buffers in the order of the kernel's parameters: inputs, the output, operands of the epilogue."""
        names = [spec.name for spec in self.inputs(problem)]
        operands = [name for name in names if name.startswith("operand")]
        return (*names[: len(names) - len(operands)], "output", *operands)

    def render(self, problem: Any, configuration: Configuration) -> Instance:
        grid, needs = self.grid(problem, configuration), self.needs(problem)
        group = (*(configuration[name] for name in self.group), 1)[: len(grid)]
        main = Launch(
            source=self.prelude(problem) + template(self.template, self.package, self.seen(problem)),
            entry=self.template.removesuffix(".cl"),
            needs=needs.of(configuration) if needs else ALONE,
            writes=("output",),
            aligned=self.aligned(problem, configuration),
            options=build_options(self.macros(problem, configuration)),
            global_size=tuple(map(round_up, grid, group)),
            local_size=group,
            arguments=self.arguments(problem),
        )
        return Instance(main)

    # what it costs, and how exact it is

    def steps(self, problem: Any) -> int:
        """Return the operations for each element of the output, beside the epilogue's."""
        return 0

    def work(self, problem: Any) -> Work:
        steps = self.steps(problem) + len(problem.epilogue.steps)
        return Work(math.prod(self.output(problem).shape) * steps, self.moved_bytes(problem))

    def tolerance(self, problem: Any) -> Tolerance:
        exact = self.accuracy == EXACT or not problem.element.is_float or (self.moves and not problem.epilogue.steps)
        return EXACT if exact else Tolerance.of(problem.dtype, self.accuracy.relative, self.accuracy.absolute)
