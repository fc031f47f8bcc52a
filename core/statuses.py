"""How a trial may end, the one list that caches, recordings, protocol and backends share; and how a context fits a
device."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, Literal, TypeAlias, get_args

TrialStatus: TypeAlias = Literal[
    "ok", "constraints", "compile", "device_limits", "runtime", "correctness", "timeout", "crash"
]
STATUSES: tuple[TrialStatus, ...] = get_args(TrialStatus)
"""Everything but "ok" is a failure that keeps its name."""

OK: Final = "ok"
CORRECTNESS: Final = "correctness"


class ContextVerdict(StrEnum):
    """How a context binary fits a device.

    OPTIMAL: the device and the driver that it was made for; its programs load. PREFER_RECOMPILATION: it runs, its
    programs built from source and tuned for something else; made again it may run faster. UNSUPPORTED: it cannot run.
    """

    OPTIMAL = "optimal"
    PREFER_RECOMPILATION = "prefer_recompilation"
    UNSUPPORTED = "unsupported"
