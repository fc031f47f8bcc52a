"""Compare the forms of an inference: recorded, the same launches unrecorded, and as the context usually runs.

The forms take turns. The command line, the page and the summary take their figures from here, so that no two figures
contradict each other. The time of the unrecorded launches is their median, ratios are medians of pairs, and the other
times follow from these.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gputune.client.pages.scales import time_words
from gputune.client.tuning.measuring.intervals import Ratio, paired_ratio
from gputune.client.viewer.analysis.texts import signed_text
from gputune.runtime.profiling.records import Comparison, Form

SWITCH = '`"persistent_kernels": false` in the generator\'s --config_file'
"""Keeps a context to launches one by one."""
_FORMS = {
    "recorded": "a recorded queue",
    "persistent": "persistent kernels",
    "aborted": "persistent kernels that gave up",
}


@dataclass(frozen=True)
class Forms:
    """unprofiled_ns: the launches' median without recording. profiled: with recording, by that. usual: as the context
    usually runs, by that; None if it usually runs by the same launches."""

    unprofiled_ns: float
    profiled: Ratio
    usual: Ratio | None
    usual_form: Form

    @property
    def profiled_ns(self) -> float:
        """Return what an inference takes while it is recorded."""
        return self.unprofiled_ns * self.profiled.median

    @property
    def usual_ns(self) -> float:
        """Return what an inference usually takes."""
        return self.unprofiled_ns * (self.usual.median if self.usual else 1.0)

    def recording(self) -> str:
        """Return what recording costs, without the point at the end."""
        cost = self.profiled
        text = f"recording adds {signed_text(cost.median)} ({signed_text(cost.low)} to {signed_text(cost.high)}) to an "
        text += f"inference of {time_words(self.unprofiled_ns)}"
        return text if cost.certain else f"{text}; no certain difference"

    def usually(self) -> str:
        """Return whether the form in which the context usually runs is faster, without the point; empty if it is the
        same form."""
        if self.usual is None:
            return ""
        form, ratio = _FORMS.get(self.usual_form, self.usual_form), self.usual
        times = f"{time_words(self.usual_ns)} against {time_words(self.unprofiled_ns)} by launches one by one, "
        times += f"{ratio.median:.2f} times as long ({ratio.low:.2f} to {ratio.high:.2f})"
        if ratio.certain and ratio.median > 1 and self.usual_form != "recorded":
            return (
                f"launches one by one are faster here: the context usually runs by {form}, {times}; other programs may "
                f"use the processors that these need: if they always do, {SWITCH} turns these off"
            )
        text = f"the profiled form is not the usual one: the context usually runs by {form}, {times}"
        return text if ratio.certain else f"{text}; no certain difference"

    def to_dict(self) -> dict[str, Any]:
        """Return the figures as plain JSON values."""
        return {
            "unprofiled_ns": self.unprofiled_ns,
            "profiled_ns": self.profiled_ns,
            "usual_ns": self.usual_ns,
            "usual_form": self.usual_form,
            **_fields("profiled_by_unprofiled", self.profiled),
            **_fields("usual_by_unprofiled", self.usual),
        }


def forms_of(comparisons: Sequence[Comparison]) -> Forms | None:
    """Return how the forms compare in all turns of a graph together, None without turns that can be compared."""
    turns = [
        one
        for one in comparisons
        if 0 < len(one.unprofiled_ns) == len(one.profiled_ns) == len(one.usual_ns) and min(one.unprofiled_ns) > 0
    ]
    if not turns:
        return None
    unprofiled, profiled, usual = (
        [ns for one in turns for ns in getattr(one, name)] for name in ("unprofiled_ns", "profiled_ns", "usual_ns")
    )
    form = turns[0].usual_form
    same = form == "launches" or usual == unprofiled  # at level basic, persistent kernels are what is recorded
    return Forms(
        statistics.median(unprofiled),
        paired_ratio(profiled, unprofiled),
        None if same else paired_ratio(usual, unprofiled),
        form,
    )


def _fields(name: str, ratio: Ratio | None) -> dict[str, float | None]:
    low, median, high = (ratio.low, ratio.median, ratio.high) if ratio else (None, None, None)
    return {name: median, f"{name}_low": low, f"{name}_high": high}
