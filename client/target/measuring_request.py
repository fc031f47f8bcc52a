"""One ProfileKernel request, however often it has to be sent: what is known of its variants is not asked for again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gputune.client.errors import TargetError
from gputune.core.launches import Trial
from gputune.core.statuses import OK
from gputune.server.protocol.messages import Profiled, ProfileKernel, Progress
from gputune.server.protocol.same_as import renumbered


class MeasuringRequest:
    """`failures` holds the trials of variants that the target has given up on, by their place in the request; a target
    that is lost a moment later does not run them into the same end again."""

    def __init__(
        self, request: ProfileKernel, address: str, on_progress: Callable[[Progress], None] | None = None
    ) -> None:
        """address: of the target, for errors; on_progress: hears of everything in terms of the whole request."""
        self.failures: dict[int, Trial] = {}
        self._request = request
        self._address = address
        self._on_progress = on_progress
        self._sent: list[int] = []

    def left(self) -> ProfileKernel | None:
        """The request for the variants that nothing is known of; None when there are none."""
        request = self._request
        self._sent = [place for place in range(len(request.variants)) if place not in self.failures]
        return replace(request, variants=tuple(request.variants[place] for place in self._sent)) if self._sent else None

    def hear(self, progress: Progress) -> None:
        """Takes in what the target says while it works. Raises TargetError for a variant that was not sent.

        The number after the last variant's is the baseline's, of which only the message is passed on."""
        variant, count = progress.variant, len(self._sent)
        if variant == count and self._request.baseline is not None:
            progress = replace(progress, variant=None, trial=None)
        elif variant is not None:
            if variant >= count:
                raise self._nonsense(f"progress on variant {variant} of {count}")
            place = self._sent[variant]
            progress = replace(progress, variant=place)
            if progress.trial is not None and progress.trial.status != OK:
                self.failures[place] = progress.trial
        if self._on_progress is not None:
            self._on_progress(progress)

    def whole(self, reply: Profiled | None) -> Profiled:
        """The reply to the whole request, from that to what was left. Raises TargetError for nonsense."""
        reply = reply or Profiled((), None, b"", None, {}, {})
        trials, best = reply.trials, reply.best
        if len(trials) != len(self._sent):
            raise self._nonsense(f"{len(trials)} trials for {len(self._sent)} variants")
        if best is not None and not (best < len(trials) and trials[best].status == OK):
            raise self._nonsense(f"the best of {len(trials)} variants is {best}, which is none that is ok")
        measured = [renumbered(trial, self._sent) for trial in trials]
        known = {**dict(zip(self._sent, measured, strict=True)), **self.failures}
        ordered = tuple(known[place] for place in range(len(self._request.variants)))
        place = None if best is None else self._sent[best]
        if place in self.failures:
            raise self._nonsense(f"variant {place} had failed and is the best now")
        return replace(reply, trials=ordered, best=place)

    def _nonsense(self, what: str) -> TargetError:
        return TargetError("bad_message", f"target {self._address}: {what}")
