"""Build persistent kernels that mark when each launch that they stand for began and ended, for profilers.

They are built from the text in the context with a function that reads a clock of the device (TICKS in
runtime/context/records.py). The kernels that run at other times are separate and contain nothing of it.
"""

from __future__ import annotations

import math
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gputune.core.errors import BuildFailed, CannotMark
from gputune.core.launches import built_as
from gputune.core.quirks import KERNEL_CLOCK, ticks_of
from gputune.runtime.backends import Backend, Bound, Buffer, Program
from gputune.runtime.context.records import TICKS, BufferRef, GraphRecord
from gputune.runtime.execution.binding import Binder
from gputune.runtime.execution.persistent import PersistentRuns
from gputune.runtime.execution.programs import Texts

Ticks = npt.NDArray[np.int64]
TICK_BYTES = 8


class MarkedRuns:
    """The kernels of a persistent form, which are enqueued elsewhere, where they are timed: once for each `ready`."""

    def __init__(
        self,
        backend: Backend,
        binder: Binder,
        graph: GraphRecord,
        programs: Mapping[int, Program],
        texts: Texts,
        runs: PersistentRuns,
    ) -> None:
        """programs: of the persistent form, without marks; texts: of its persistent kernels; runs: those of this form,
        which are not made at the same time. Raises CannotMark, DeviceError."""
        self._backend, self._runs = backend, runs
        self._kernels: list[Bound] = []
        self._marks: list[_Marks | None] = []
        stands_for = [launch.stands_for for launch in graph.persistent]
        if sum(stands_for) != len(graph.launches):
            raise CannotMark("the persistent kernels do not say which launches they replace")
        programs = {**programs, **_marking(backend, texts)}
        for place, (launch, launches) in enumerate(zip(graph.persistent, stands_for, strict=True)):
            marks = None
            if launch.counts:
                groups = math.prod(launch.global_size)
                marks = _Marks(backend.allocate(groups * launches * 2 * TICK_BYTES), groups, launches)
                binder.use("marks", place, marks.buffer)
                ref = BufferRef("marks", place, 0, marks.buffer.nbytes)
                launch = replace(launch, arguments=(*launch.arguments, ref))
            self._marks.append(marks)
            self._kernels.append(binder.bind(programs[launch.program], launch))

    def ready(self) -> Sequence[Bound]:
        """Return the kernels, in the order in which they are to be enqueued for one inference. Raises DeviceError."""
        for marks in self._marks:
            if marks is not None:
                self._backend.fill(marks.buffer, 0)
        self._runs.prepare()
        return self._kernels

    def take(self) -> list[Ticks | None] | None:
        """For each kernel, when its launches began and ended in ticks, n rows of two; None in the place of a launch
        that is no persistent kernel. None altogether where groups have given up, and the outputs are not complete.
        Everything must be finished. Raises DeviceError."""
        if self._runs.gave_up():
            return None
        return [None if marks is None else marks.of_launches(self._backend) for marks in self._marks]


@dataclass(frozen=True)
class _Marks:
    """Those of a persistent kernel of so many groups that stands for so many launches."""

    buffer: Buffer
    groups: int
    launches: int

    def of_launches(self, backend: Backend) -> Ticks:
        """From the first group's beginning to the last one's end."""
        marks = backend.read(self.buffer).view(np.int64).reshape(self.groups, self.launches, 2)
        began = np.where(marks[..., 0] == 0, np.iinfo(np.int64).max, marks[..., 0]).min(axis=0)
        return np.stack([began, marks[..., 1].max(axis=0)], axis=1)


def _marking(backend: Backend, texts: Texts) -> dict[int, Program]:
    """Return the programs of texts, with marks. Raises CannotMark."""
    function = ticks_of(backend.identity, platform.machine())
    if not function:
        raise CannotMark(f"this driver has no {KERNEL_CLOCK}")
    if any(TICKS not in source for source, _ in texts.values()):
        raise CannotMark("the persistent kernels are of an older gputune")
    try:
        return {index: backend.build(source, _options(own, function)) for index, (source, own) in texts.items()}
    except BuildFailed as error:
        raise CannotMark(f"the driver refuses marks in persistent kernels ({error})") from None


def _options(options: str, function: str) -> str:
    """Return the options that a text is built with, with marks."""
    if function.startswith("clock_read"):  # a function of cl_khr_kernel_clock
        options = built_as(options, "CL3.0")
    return f"{options} -D{TICKS}={function}"
