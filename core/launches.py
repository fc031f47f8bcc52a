"""Define what is measured: launches, variants and their results.

All programs use these records: kernels render them, the protocol sends them, the device runs them. They travel with
their fields in this order. A field may be missing only if it has a default.
"""

from __future__ import annotations

import hashlib
import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Literal, TypeVar, get_args

from gputune.core.bounds import (
    HOST_ONLY,
    Amounts,
    Arguments,
    Bytes,
    Count,
    Facts,
    Key,
    Name,
    Nanoseconds,
    Samples,
    Sha256,
    Sizes,
    Text,
    Within,
)
from gputune.core.errors import InvalidLaunch, LimitExceeded
from gputune.core.identity import DeviceIdentity
from gputune.core.statuses import TrialStatus

OUTPUT = "output"  # the name of the buffer that a variant's main launch writes
MOST_STAGES = 255
"""Of a launch: so many kernels and one more may share a program."""


def source_sha256(source: str) -> str:
    """Return the name by which programs know a source text: hex SHA-256 of its UTF-8 bytes."""
    return hashlib.sha256(source.encode()).hexdigest()


ArgumentForm = Literal["sub_buffers", "buffers", "svm", "offsets"]
"""How launches are given tensors that lie in an arena: as parts of its buffer; as buffers of their own, which tensors
use in turns; as pointers into shared virtual memory; as the arena and an offset."""
ARGUMENT_FORMS: tuple[ArgumentForm, ...] = get_args(ArgumentForm)
OFFSET_BYTES = 16
"""The unit of the offsets of a kernel that takes a buffer as the whole of its arena and an offset."""

Sharing = Literal["auto", "each", "one"]
"""Which launches of a context share a program: those for which that is cheaper on the device, none, or as many as go
into one."""
SHARING: tuple[Sharing, ...] = get_args(Sharing)

Standard = Literal["CL1.2", "CL3.0"]
STANDARDS: tuple[Standard, ...] = ("CL1.2", "CL3.0")
"""Versions of OpenCL C, the oldest first. A device of OpenCL 3 need not know 2.0."""


def built_as(options: str, standard: Standard) -> str:
    """Return build options that ask for a version of OpenCL C, in the place of what they ask for."""
    return " ".join([*(each for each in options.split() if not each.startswith("-cl-std=")), f"-cl-std={standard}"])


@dataclass(frozen=True)
class Needs:
    """Say what a kernel asks of a device, as its family declares it.

    local_bytes: local memory of a work-group; cooperates: whether work-items of a group wait for each other or read
    what others have written, so that they have to run at the same time; extensions: of OpenCL, which its text enables;
    features: what a device has to prove because no extension promises it, such as an instruction.
    """

    local_bytes: Bytes = 0
    cooperates: bool = False
    extensions: tuple[Name, ...] = ()
    features: tuple[Name, ...] = ()
    standard: Standard = "CL1.2"


ALONE = Needs()
"""The needs of a kernel whose work-items share nothing."""


def pragmas_for(extensions: Iterable[str]) -> str:
    """Return the lines with which a text begins that uses extensions."""
    return "".join(f"#pragma OPENCL EXTENSION {name} : enable\n" for name in extensions)


@dataclass(frozen=True)
class Stage:
    """Describe a kernel of a launch's program that runs before it, each time; fields as in Launch."""

    entry: Name
    global_size: Sizes
    local_size: Sizes
    arguments: Arguments
    needs: Needs | None = field(default=None, kw_only=True, compare=False, metadata=HOST_ONLY)
    writes: tuple[Name, ...] | None = field(default=None, kw_only=True, compare=False, metadata=HOST_ONLY)


@dataclass(frozen=True)
class Launch:
    """Describe a kernel launch: OpenCL C, entry point, build options and sizes (1 to 3 dimensions, local divides
    global).

    `arguments` holds buffer names (str) and 32-bit integer scalars (int) in the order of the kernel's
    signature. `stages` are kernels of the same program that run before it each time, in this order.
    `source_sha256` follows from the source unless it is given; an empty source beside it means the text of that name,
    which the other side has. So dataclasses.replace with another text needs `source_sha256=""`, too. `needs` and
    `writes`, the names of the buffers that the kernel writes, are what its family declares. None says nothing: what
    must be known of such a kernel is read from its text, and it may write every buffer that launches may write.
    `aligned` is declared, too: each vector is a multiple of its size away from the beginning of its buffer, so that
    devices may access it by a pointer to a vector (kernels/pointers.py).
    """

    source: str
    source_sha256: Sha256 = field(default="", kw_only=True)
    entry: Name
    options: Text
    global_size: Sizes
    local_size: Sizes
    arguments: Arguments
    stages: Annotated[tuple[Stage, ...], Within(0, MOST_STAGES)] = ()
    needs: Needs | None = field(default=None, kw_only=True, compare=False, metadata=HOST_ONLY)
    writes: tuple[Name, ...] | None = field(default=None, kw_only=True, compare=False, metadata=HOST_ONLY)
    aligned: bool = field(default=False, kw_only=True, compare=False, metadata=HOST_ONLY)

    def __post_init__(self) -> None:
        if not self.source_sha256:
            object.__setattr__(self, "source_sha256", source_sha256(self.source))

    @property
    def sequence(self) -> tuple[Stage | Launch, ...]:
        """Return all kernels in the order in which they run."""
        return (*self.stages, self)


Kernel = TypeVar("Kernel", Stage, Launch)


def on_buffers(kernel: Kernel, name: Callable[[str], str]) -> Kernel:
    """Return a kernel that runs on other buffers. name: gives their names for those of the kernel."""
    arguments = tuple(name(each) if isinstance(each, str) else each for each in kernel.arguments)
    writes = None if kernel.writes is None else tuple(map(name, kernel.writes))
    return replace(kernel, arguments=arguments, writes=writes)


def as_stage(kernel: Stage | Launch, entry: str, prefix: str) -> Stage:
    """Return a kernel as a stage of a program that gives it this name, on buffers whose names have the prefix."""
    own = {each.name: getattr(kernel, each.name) for each in fields(Stage)}
    return on_buffers(Stage(**own | {"entry": entry}), lambda name: prefix + name)


@dataclass(frozen=True)
class Variant:
    """Make one configuration concrete: `prepare` fills the buffers of `packed` (name -> bytes) once from constant
    inputs, then `main` computes "output" from inputs and packed buffers; only main is timed, its stages included, which
    hand over what they compute in the buffers of `scratch` (name -> bytes), whose contents nothing keeps. `number` is
    its name in a request for several, however often what is left of that is asked again."""

    configuration: Annotated[Mapping[Key, int], Within(0, 256)]
    prepare: Annotated[tuple[Launch, ...], Within(0, 1024)]
    main: Launch
    packed: Amounts
    scratch: Amounts = field(default_factory=dict)
    number: Count = 0


@dataclass(frozen=True)
class Work:
    """Tell the least that a task must do: floating-point operations, and bytes read and written once."""

    flops: Bytes
    bytes: Bytes


@dataclass(frozen=True)
class Trial:
    """Tell what became of one variant; `message` says why its `status` is not ok.

    A sample is the mean time of one launch within a batch: `samples_ns` by the device's clock (by the host's where
    measured["timing"] is "wall"), `wall_ns` by the host's. `compile_ns` is the driver's compiler (0 when the program
    was still there), `first_launch_ns` the host's time for the first launch, which may hide code generation. `measured`
    says how the samples were taken, and what the kernels take of the device (core/resources.py).
    """

    status: TrialStatus
    message: Text = ""
    samples_ns: Samples = ()
    wall_ns: Samples = ()
    compile_ns: Nanoseconds = 0
    first_launch_ns: Nanoseconds = 0
    measured: Facts = field(default_factory=dict)

    @property
    def median_ns(self) -> float:
        """Return the median sample; infinite when there is none."""
        return statistics.median(self.samples_ns) if self.samples_ns else math.inf


def check_allocation(nbytes: int, identity: DeviceIdentity) -> None:
    """Raise LimitExceeded for more memory than a device allocates at once."""
    if nbytes > (limit := identity.max_allocation_bytes):
        raise LimitExceeded(f"a buffer of {nbytes} bytes, the device's largest allocation is {limit}")


def check_sizes(global_size: tuple[int, ...], local_size: tuple[int, ...], identity: DeviceIdentity) -> None:
    """Raise InvalidLaunch for sizes that are wrong anywhere, LimitExceeded for those too large for this
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
