"""Provide the peaks for a roofline: given, assumed, or measured on a target with two kernels of the catalogue."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from gputune.client.errors import TuningError
from gputune.client.model.plan import Task
from gputune.client.target.client import TargetClient
from gputune.client.tuning.measuring.runner import TaskRunner
from gputune.client.tuning.search.effort import EFFORTS
from gputune.client.tuning.search.task_search import TaskSearch, device_limits
from gputune.core.identity import DeviceIdentity
from gputune.core.launches import Trial
from gputune.core.statuses import OK
from gputune.kernels.chain import EMPTY
from gputune.kernels.family import Work
from gputune.kernels.ops.elementwise import ElementwiseProblem
from gputune.kernels.ops.matmul import MatMulProblem

ARITHMETIC = Task("MatMul", MatMulProblem(256, 512, 512), 1)
"""Fits the caches of what it may be measured on, so that arithmetic decides its time."""
COPY_ELEMENTS = 16 << 20
MEMORY = Task("Elementwise", ElementwiseProblem((COPY_ELEMENTS,), (), (COPY_ELEMENTS,), EMPTY), 1)
"""A copy of 64 MiB, which no cache that matters can hold twice."""


@dataclass(frozen=True)
class Peaks:
    """10^9 floating-point operations, and bytes, in a second; `origin` says for people where they are from."""

    gflops: float
    gbps: float
    origin: str

    def roofline_ns(self, work: Work) -> float:
        """Return the least time that the work takes at these rates."""
        return max(work.flops / self.gflops, work.bytes / self.gbps)


ASSUMED = Peaks(
    100.0,
    20.0,
    "assumed as of two cores of a CPU; a faster device takes less; give --peak_gflops and --peak_gbps, or measure with "
    "--device",
)


ASSUMED_UNITS = 2
"""Compute units that ASSUMED is of."""


def measured(target: TargetClient) -> Peaks:
    """Return the best rates of a matrix product and of a copy on a target, each from its default and starters. Raises
    TargetError, and TuningError where none of them works."""
    device = DeviceIdentity.from_dict(target.device)
    (arithmetic_ns, arithmetic), (memory_ns, memory) = (_fastest(target, task) for task in (ARITHMETIC, MEMORY))
    origin = f"measured on {device.name} with a matrix product and a copy"
    return Peaks(arithmetic.flops / arithmetic_ns, memory.bytes / memory_ns, origin)


def _fastest(target: TargetClient, task: Task) -> tuple[float, Work]:
    """Return the least median in nanoseconds, and the work that was done in it."""
    device, effort = DeviceIdentity.from_dict(target.device), EFFORTS["quick"]
    limits = device_limits(device)
    search = TaskSearch(task, device, limits, effort, {})
    batch = [search.default, *search.family.starters(task.problem, limits)]
    times: list[float] = []

    def concluded(trials: Mapping[int, Trial], baseline: Sequence[float]) -> None:
        times.extend(sorted(one.samples_ns)[len(one.samples_ns) // 2] for one in trials.values() if one.status == OK)

    runner = TaskRunner(target, search, effort)
    runner.measure(batch, effort.samples, concluded)
    runner.clear()
    fastest = min((time for time in times if isfinite(time) and time > 0), default=None)
    if fastest is None:
        raise TuningError(f"{task.op}: none of its configurations works on {device.name}; peaks cannot be measured")
    return fastest, search.work
