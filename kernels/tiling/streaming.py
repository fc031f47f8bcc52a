"""Share vectors along the innermost axis and two-dimensional grids among the families that stream memory.

Their templates read whole vectors only. If the width does not divide the innermost axis, the last vector starts
earlier, so that it ends with the axis. It stores only the elements that no other vector stores.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from gputune.kernels.family import DeviceLimits, Needs
from gputune.kernels.offset_arguments import ARRAY_ALIGNMENT
from gputune.kernels.space import Configuration, Constraint, DeviceLimit, Parameter

VECTOR_WIDTHS = (1, 2, 4, 8, 16)
LINE_FLOATS = 16
"""A line of a CPU's caches."""
GROUP_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
MOST_ELEMENTS = 2**31 - 1


def ceil_div(size: int, step: int) -> int:
    """Return how many steps cover the size."""
    return -(-size // step)


def round_up(size: int, step: int) -> int:
    """Return the least multiple of step that is not below size."""
    return ceil_div(size, step) * step


def power_at_least(size: int) -> int:
    """Return the least power of two that is not below size."""
    return 1 << (size - 1).bit_length()


def power_at_most(size: int) -> int:
    """Return the largest power of two that is not above size."""
    return 1 << (size.bit_length() - 1)


def check_indices(op: str, *shapes: tuple[int, ...]) -> None:
    """ValueError when a tensor has more elements than the kernels' 32-bit indices can count."""
    for shape in shapes:
        if math.prod(shape) > MOST_ELEMENTS:
            raise ValueError(f"{op} indexes with 32 bits; a tensor of shape {shape} has too many elements")


def local_bytes(*arrays: int) -> int:
    """Return the local memory of a kernel that declares arrays of so many bytes by LOCAL (elements.cl)."""
    return sum(round_up(nbytes, ARRAY_ALIGNMENT) for nbytes in arrays)


VW = Parameter("VW", VECTOR_WIDTHS, "elements of a vector")
DIMX = Parameter("DIMX", GROUP_SIZES, "work-items of a work-group along dimension 0", of_group=True)
DIMY = Parameter("DIMY", GROUP_SIZES, "work-items of a work-group along dimension 1", of_group=True)


def group_parameters() -> tuple[Parameter, Parameter]:
    """Return the work-group's shape."""
    return DIMX, DIMY


def group_constraints(limits: DeviceLimits, *names: str) -> tuple[Constraint, ...]:
    """Return what the device allows for the work-group's shape, given by DIMX and DIMY or the parameters `names`."""
    names, most = names or ("DIMX", "DIMY"), limits.max_work_group_size
    sides = zip(names, limits.max_work_item_sizes, strict=False)
    return (
        *(at_most((name,), size, f"limit of {size}") for name, size in sides),
        at_most(names, most, f"{most} work-items per work-group"),
    )


def at_most(names: tuple[str, ...], most: int, limit: str) -> DeviceLimit:
    """Return the rule that the product of parameters does not exceed a limit of the device."""
    reason = f"{'*'.join(names)} must not exceed the device's {limit}"
    return DeviceLimit(names, lambda *sizes: math.prod(sizes) <= most, reason)


@dataclass(frozen=True)
class NeedsLimit(DeviceLimit):
    """Hold if the device has all that a kernel needs; `lack` names the rest for a configuration."""

    lack: Callable[[Configuration], str]

    def why(self, configuration: Configuration) -> str:
        return f"{self.reason}: the kernel needs {self.lack(configuration)}"


@dataclass(frozen=True)
class Declared:
    """Declare the needs of a kernel in each configuration: `needs` of the values of the parameters `names`. `shared`
    names for people what a work-group has in local memory; `asks` has the features that are needed in some
    configuration."""

    names: tuple[str, ...]
    needs: Callable[..., Needs]
    shared: str
    asks: tuple[str, ...] = ()

    def of(self, configuration: Configuration) -> Needs:
        """Return the needs in a configuration."""
        return self._of(*(configuration[name] for name in self.names))

    def limit(self, limits: DeviceLimits) -> NeedsLimit:
        """Return the rule that a device has them all."""
        return NeedsLimit(
            self.names,
            lambda *values: not limits.lack(self._of(*values)),
            self.shared,
            lambda configuration: limits.lack(self.of(configuration)),
            asks=self.asks,
        )

    def _of(self, *values: int) -> Needs:
        """Return the needs of values. A feature that is not asked for would never be there; so it is a defect."""
        needs = self.needs(*values)
        if unasked := [name for name in needs.features if name not in self.asks]:
            raise ValueError(f"{self.shared}: the kernel needs {', '.join(unasked)}, for which its family does not ask")
        return needs


def fits(extent: int, axis: str, name: str = "VW") -> Constraint:
    """Return the constraint that a vector, which is read whole, must not be longer than the axis it lies on."""
    return Constraint((name,), lambda width: width <= extent, f"{name} must not exceed the {extent} elements of {axis}")


def busy(names: tuple[str, ...], extent: int, axis: str) -> Constraint:
    """Return the constraint on what parameters cover together along an axis; the last one may always be 1."""
    return Constraint(
        names,
        lambda *values: values[-1] == 1 or math.prod(values) < 2 * extent,
        f"{'*'.join(names)} must stay below twice {axis} ({extent}); more would have nothing to do",
    )


def idle_beyond(names: tuple[str, ...], count: Callable[..., int], what: str) -> Constraint:
    """Return the constraint that the last parameter covers less than twice what the others leave; it may always be 1.

    count: of that, for values of the others. what: its name for people.
    """
    return Constraint(
        names,
        lambda *values: values[-1] == 1 or values[-1] < 2 * count(*values[:-1]),
        f"{names[-1]} must stay below twice the number of {what}; more would have nothing to do",
    )


def default_width(limits: DeviceLimits, extent: int) -> int:
    """Return a good vector width on a device never measured: its own, at least 4, and inside the axis."""
    return power_at_most(min(max(limits.preferred_float_width, 4), VECTOR_WIDTHS[-1], extent))


def whole_width(limits: DeviceLimits, extent: int, *others: int) -> int:
    """Return the default width, or a narrower one of at least 4 that divides all these axes into whole vectors."""
    width = default_width(limits, extent)
    divides = math.gcd(width, extent, *others)
    return divides if divides >= 4 else width


def default_group(limits: DeviceLimits, across: int, down: int) -> tuple[int, int]:
    """Return a work-group of about 64 work-items for a grid of `across` x `down`, as wide as the grid first."""
    most_x, most_y, _ = limits.max_work_item_sizes
    most = min(64, limits.max_work_group_size)
    x = power_at_most(min(most, most_x, power_at_least(across)))
    return x, power_at_most(min(max(most // x, 1), most_y, power_at_least(down)))
