"""Define a batch of variants: the request, its reply, and what is left of it after a loss; and a variant compiled."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Annotated

from gputune.core.bounds import Blob, Bytes, Count, Facts, Handle, Handles, Key, Name, Nanoseconds, Sample, Within
from gputune.core.dtypes import ELEMENT_TYPES
from gputune.core.launches import OUTPUT, Trial, Variant, Work
from gputune.core.statuses import OK


@dataclass(frozen=True)
class ProfileKernel:
    """Ask to build, verify and time variants of one task, which all compute "output" from the same input buffers.

    Without a baseline, the others are compared with the variant of the lowest number. It never wins, unless it has the
    number of a variant and is that.
    """

    task: Name
    buffers: Handles
    output_bytes: Bytes
    reference: Handle  # the right output: |got - want| <= absolute + relative * max|want|
    relative: Annotated[float, Within(0, 1)]
    absolute: Annotated[float, Within(0, 1e30)]
    dtype: Name  # of the output, in numpy's words
    variants: Annotated[tuple[Variant, ...], Within(1, 1024)]  # each with a number of its own
    baseline: Variant | None  # timed with them, to notice that the device has changed; the number says if it is one
    best_ns: Sample  # the fastest known so far, 0 when none is: time limits scale with it
    work: Work
    samples: Annotated[int, Within(1, 2**31 - 1)]
    sample_ns: Nanoseconds  # least duration of a sample; short kernels are repeated within one
    warm_up_ns: Nanoseconds
    cold: bool  # each launch finds the device's caches without its data
    together: bool  # variants of one source may share a program where that saves time
    harvest: bool  # the reply brings the best variant's program binary, which some drivers compile for once more

    def check(self) -> None:
        """Raise ValueError where it makes no sense."""
        if OUTPUT in self.buffers:
            raise ValueError(f"the buffer name {OUTPUT!r} is reserved for what the variants write")
        if self.dtype not in ELEMENT_TYPES:
            raise ValueError(f"outputs of dtype {self.dtype!r} are not known; there are {', '.join(ELEMENT_TYPES)}")
        if self.output_bytes % ELEMENT_TYPES[self.dtype].nbytes:
            raise ValueError(f"the reference has {self.output_bytes} bytes, which are no {self.dtype} values")
        if len(self.numbers) < len(self.variants):
            raise ValueError("two variants have the same number")
        if self.baseline is not None and self.numbered[self.baseline.number] != self.baseline:
            raise ValueError(f"the baseline has the number of variant {self.baseline.number} and is another one")

    @property
    def numbers(self) -> set[int]:
        """Return the numbers of the variants, without that of a baseline that is none of them."""
        return {variant.number for variant in self.variants}

    @property
    def baseline_number(self) -> int | None:
        """Return the number of the baseline; None without one."""
        return None if self.baseline is None else self.baseline.number

    @property
    def numbered(self) -> dict[int, Variant]:
        """Return all variants by number, the baseline first, because limits scale with what is known to work."""
        first = () if self.baseline is None else (self.baseline,)
        return {variant.number: variant for variant in (*first, *self.variants)}


@dataclass(frozen=True)
class Profiled:
    """Tell every trial, in the order of the variants, the number of the fastest right one, and its binary.

    binary: empty when it was not asked for. baseline: its trial, with the samples in the order in which they were
    taken. spent_ns: where the host's time went: build, verify, measure, recover. state: the device "before" and "after"
    (clocks, temperatures, load; what cannot be read is not there). "damaged" is there when guard regions or inputs
    were, and names how often: then other buffers on the device may be damaged too.
    """

    trials: Annotated[tuple[Trial, ...], Within(0, 1024)]
    best: Count | None
    binary: Blob
    baseline: Trial | None
    spent_ns: Annotated[dict[Key, Nanoseconds], Within(0, 16)]
    state: Facts


@dataclass(frozen=True)
class Compiled:
    """Bring the program binary of the variant's main launch."""

    binary: Blob
    compile_ns: Nanoseconds
    first_launch_ns: Nanoseconds


class Remaining:
    """Ask again, of another worker or over another connection, for what a loss has left of a request.

    failed: trials of those that are not asked for again, by number, a baseline that is no variant among them.
    asked: the variants of the last attempt, by number.
    """

    def __init__(self, request: ProfileKernel) -> None:
        self.request = request
        self.failed: dict[int, Trial] = {}
        self.asked: dict[int, Variant] = {}

    def ask(self, first: Collection[int] = ()) -> ProfileKernel | None:
        """Return the request for all that nothing is known of, variants of these numbers first; None without any."""
        request = self.request
        left = [variant for variant in request.variants if variant.number not in self.failed]
        left.sort(key=lambda variant: variant.number not in first)
        self.asked = {variant.number: variant for variant in left}
        baseline = None if request.baseline_number in self.failed else request.baseline
        return replace(request, variants=tuple(left), baseline=baseline) if left else None

    def hear(self, number: int | None, trial: Trial | None) -> bool:
        """Keep a failure. Return whether the progress is about no variant or one that was asked for."""
        if number is None or number not in self.asked:
            return number is None
        if trial is not None and trial.status != OK:
            self.failed.setdefault(number, trial)
        return True

    def whole(self, reply: Profiled | None) -> Profiled:
        """Return the reply to the whole request, from that to the last attempt, None when nothing was left. Raises
        ValueError for one that makes no sense."""
        reply = reply or Profiled((), None, b"", None, {}, {})
        if len(reply.trials) != len(self.asked):
            raise ValueError(f"{len(reply.trials)} trials for {len(self.asked)} variants")
        trials = dict(zip(self.asked, reply.trials, strict=True)) | self.failed
        if reply.best is not None and not (reply.best in self.asked and trials[reply.best].status == OK):
            raise ValueError(f"the best variant is {reply.best}, which is not among those that work")
        return replace(reply, trials=tuple(trials[variant.number] for variant in self.request.variants))
