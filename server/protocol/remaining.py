"""Rebuild a ProfileKernel request for what is left of it, to send it to another worker or over another connection."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from gputune.core.launches import Trial, Variant
from gputune.core.statuses import OK
from gputune.server.protocol.messages import Profiled, ProfileKernel, Progress


class Remaining:
    """failed: trials of those that are not asked for again, by number, a baseline that is no variant among them.
    asked: the variants of the last attempt, by number."""

    def __init__(self, request: ProfileKernel) -> None:
        self.request = request
        self.failed: dict[int, Trial] = {}
        self.asked: dict[int, Variant] = {}

    def ask(self, first: Collection[int] = ()) -> ProfileKernel | None:
        """Return the request for all that nothing is known of, variants of these numbers first; None without any."""
        request, baseline = self.request, self.request.baseline
        left = [variant for variant in request.variants if variant.number not in self.failed]
        left.sort(key=lambda variant: variant.number not in first)
        self.asked = {variant.number: variant for variant in left}
        if baseline is not None and baseline.number in self.failed:
            baseline = None
        return replace(request, variants=tuple(left), baseline=baseline) if left else None

    def hear(self, progress: Progress) -> bool:
        """Keep a failure. Say whether the progress is about no variant or one that was asked for."""
        number, trial = progress.variant, progress.trial
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
