"""Define what a report shows, as plain values: gather.py gathers them, page.py writes them. Times are nanoseconds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gputune.client.tuning.measuring.end_to_end import EndToEnd
from gputune.client.tuning.measuring.intervals import Interval
from gputune.client.tuning.measuring.sequential import Gain
from gputune.core.resources import UNKNOWN, Resources

PHASES = ("build", "verify", "measure")
"""What the host's time for a variant is divided into."""


@dataclass(frozen=True)
class Attempt:
    """A trial as it arrived. cost_ns is the time of its configuration, as TaskView.best has it, which is that of a
    later trial where it was measured again; None for a failure, and for what failed later."""

    status: str
    cost_ns: float | None
    batch: int | None
    """The running number of its batch; None where the record does not say."""
    spent_ns: float
    """The host's time for it, as far as it is known."""


@dataclass(frozen=True)
class Timed:
    """A configuration and its time, samples and all as on a device as fast as when the tuned one was measured. Without
    an interval where the samples are not in the cache."""

    configuration: Mapping[str, int]
    median_ns: float
    samples_ns: tuple[float, ...] = ()
    interval: Interval | None = None
    compile_ns: float | None = None
    resources: Resources = UNKNOWN
    """Return what its kernels take; of several, the most that any of them does."""


@dataclass(frozen=True)
class Value:
    """A value of a parameter, how often it was tried, and the best time with it; None where all of that failed."""

    value: int
    tried: int
    best_ns: float | None


@dataclass(frozen=True)
class Failure:
    """A way to fail: how many trials did, and one of them."""

    status: str
    count: int
    message: str
    configuration: Mapping[str, int]


@dataclass(frozen=True)
class Roofline:
    """What a task must do at least, and what its fastest verified kernel reaches."""

    flops: int
    bytes: int
    gflops: float
    gb_per_s: float
    share: float
    """Of what the roof of its place allows at this ratio of operations to bytes; 1 is on the roof."""

    @property
    def intensity(self) -> float:
        """Operations per byte that has to be moved."""
        return self.flops / self.bytes


@dataclass(frozen=True)
class TaskView:
    """All that a report says of a task."""

    digest: str
    op: str
    words: str
    weight: int | None
    """Operations of the context that it computes; None without a context."""
    operations: tuple[str, ...]
    """Names of some of the operations that run it."""
    effort: str | None
    """What was spent on it; None until it is concluded."""
    default: Timed | None
    tuned: Timed | None
    gain: float | None
    """The default's time by the tuned one's, both on the same level of the device."""
    gain_interval: Interval | None
    attempts: tuple[Attempt, ...]
    best: tuple[Timed, ...]
    """The fastest configurations, best first; the time of the first is the least of all attempts."""
    parameters: Mapping[str, tuple[Value, ...]]
    meanings: Mapping[str, str]
    """What a parameter chooses, where that is known."""
    failures: tuple[Failure, ...]
    spent_ns: Mapping[str, float]
    """By phase, as far as it is known."""
    untold: int
    """Trials that do not say what they have cost."""
    how: tuple[str, ...]
    """How it was measured, a line each."""
    roofline: Roofline | None
    last_change: str

    @property
    def title(self) -> str:
        """As the generator names it."""
        return f"{self.op} {self.digest[:10]}"

    @property
    def failed(self) -> int:
        return sum(failure.count for failure in self.failures)


@dataclass(frozen=True)
class Run:
    """An operation of a graph, and the digest of the task that computes it."""

    graph: str
    operation: str
    task: str


@dataclass(frozen=True)
class WholeContext:
    """A context that took its turns with others. The rest is None where the file does not say it."""

    gain: Gain | None
    """How many times as fast as the untuned context it is; None for that itself."""
    chosen: bool
    """Whether it is the one that ships."""
    operations: int | None = None
    fused: int | None = None
    """Groups of operations that one kernel each computes."""
    persistent: bool | None = None
    """Whether persistent kernels stand for many launches."""

    @property
    def untuned(self) -> bool:
        """Whether it runs the default configurations."""
        return self.gain is None


@dataclass(frozen=True)
class Inferences:
    """What whole inferences of a graph take by the host's clock, untuned and tuned ones measured in turns."""

    graph: str
    end_to_end: EndToEnd
    compared: tuple[WholeContext, ...] = ()
    """All that took turns: untuned, tuned alone, fused, persistent, in this order. Empty where the file only says what
    was gained."""

    @property
    def contexts(self) -> tuple[WholeContext, ...]:
        """What was measured, the untuned context first."""
        gain, kept = self.end_to_end.gain, self.end_to_end.kept
        tuned = () if gain is None else (WholeContext(gain, kept != "untuned"),)
        return self.compared or (WholeContext(None, kept == "untuned"), *tuned)


@dataclass(frozen=True)
class Roof:
    """What a device gives at most: the best of any task here, or a peak that was given."""

    gflops: float
    gb_per_s: float
    gflops_given: bool = False
    gb_per_s_given: bool = False


@dataclass(frozen=True)
class DeviceView:
    """A device with its driver and settings: what was measured there compares."""

    number: int
    """From 0, the one that was measured last."""
    device: str
    facts: Mapping[str, str]
    tasks: tuple[TaskView, ...]
    """Those of the context, what runs before what was only compared; without a context all there are."""
    others: tuple[TaskView, ...]
    """Tasks of other models; none without a context."""
    runs: tuple[Run, ...]
    """The operations of the context that were measured here, in order."""
    roof: Roof | None
    set_aside: int
    """Tasks that were measured here before with other kernels, which the page leaves out."""
    missing: int
    """Tasks of the context that were not measured here."""
    before_ns: float | None
    """Kernel time of the operations of the context, or of one per task, with defaults; None where nothing is timed."""
    after_ns: float | None
    """The same with what was tuned."""
    summed: int
    """Operations in these sums."""
    operations: int
    """Operations that there are."""


@dataclass(frozen=True)
class Report:
    """A performance cache as a page shows it."""

    cache: str
    tier: str
    context: str | None
    graphs: tuple[str, ...]
    """Names of the context's graphs."""
    end_to_end: tuple[Inferences, ...]
    """Of the graphs that were measured so."""
    made_at: str
    places: tuple[DeviceView, ...]
    notes: tuple[str, ...]
    """What a reader has to know, such as rows that could not be read."""
