"""What is profiled: launches, variants and what became of them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from gputune.core.errors import InvalidLaunch, LimitExceeded
from gputune.core.identity import DeviceIdentity
from gputune.core.statuses import TrialStatus

OUTPUT = "output"  # the name of the buffer that a variant's main launch writes


@dataclass(frozen=True)
class Stage:
    """A kernel of a launch's program that runs before it; fields as in Launch."""

    entry: str
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    arguments: tuple[str | int, ...]


@dataclass(frozen=True)
class Launch:
    """One kernel launch: OpenCL C, entry point, build options and sizes (1 to 3 dimensions, local divides
    global).

    `arguments` holds buffer names (str) and 32-bit integer scalars (int) in the order of the kernel's
    signature. `stages` are kernels of the same program that run before it each time, in this order.
    """

    source: str
    entry: str
    options: str
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    arguments: tuple[str | int, ...]
    stages: tuple[Stage, ...] = ()


@dataclass(frozen=True)
class Variant:
    """One configuration made concrete: `prepare` fills the buffers of `packed` (name -> bytes) once from
    constant inputs, then `main` computes "output" from inputs and packed buffers; only main is timed, its stages
    included, which hand over what they compute in the buffers of `scratch` (name -> bytes)."""

    configuration: Mapping[str, int]
    prepare: tuple[Launch, ...]
    main: Launch
    packed: Mapping[str, int]
    scratch: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Work:
    """The least a task must do: floating-point operations, and bytes read and written once."""

    flops: int
    bytes: int


@dataclass(frozen=True)
class Trial:
    """What became of one variant; `message` says why its `status` is not ok.

    A sample is the mean time of one launch within a batch: `samples_ns` by the device's clock (by the host's where
    measured["timing"] is "wall"), `wall_ns` by the host's. `compile_ns` is the driver's compiler (0 when the program
    was still there), `first_launch_ns` the host's time for the first launch, which may hide code generation. `measured`
    says how the samples were taken.
    """

    status: TrialStatus
    message: str = ""
    samples_ns: tuple[float, ...] = ()
    wall_ns: tuple[float, ...] = ()
    compile_ns: int = 0
    first_launch_ns: int = 0
    measured: Mapping[str, Any] = field(default_factory=dict)

    @property
    def median_ns(self) -> float:
        """The median sample; infinite when there is none."""
        return statistics.median(self.samples_ns) if self.samples_ns else math.inf


def check_sizes(global_size: tuple[int, ...], local_size: tuple[int, ...], identity: DeviceIdentity) -> None:
    """Raises InvalidLaunch for sizes that are wrong anywhere, LimitExceeded for those too large for this
    device."""
    if not 1 <= len(global_size) <= 3 or len(local_size) != len(global_size):
        raise InvalidLaunch(f"global size {global_size} and local size {local_size} need the same 1 to 3 dimensions")
    if min(global_size) < 1 or min(local_size) < 1:
        raise InvalidLaunch(f"global size {global_size} and local size {local_size} must be at least 1")
    if any(whole % part for whole, part in zip(global_size, local_size, strict=True)):
        raise InvalidLaunch(f"local size {local_size} does not divide global size {global_size}")
    work_items = math.prod(local_size)
    if work_items > identity.max_work_group_size:
        raise LimitExceeded(f"work-group of {work_items} work-items, the device allows {identity.max_work_group_size}")
    for dimension, (size, limit) in enumerate(zip(local_size, identity.max_work_item_sizes, strict=False)):
        if size > limit:
            raise LimitExceeded(f"local size {size} in dimension {dimension}, the device allows {limit}")
