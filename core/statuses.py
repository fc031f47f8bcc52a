"""How a trial may end: the one list that caches, recordings, protocol and backends share."""

from __future__ import annotations

from typing import Final, Literal, TypeAlias, get_args

TrialStatus: TypeAlias = Literal[
    "ok", "constraints", "compile", "device_limits", "runtime", "correctness", "timeout", "crash"
]
STATUSES: tuple[TrialStatus, ...] = get_args(TrialStatus)
"""Everything but "ok" is a failure that keeps its name."""

OK: Final = "ok"
CORRECTNESS: Final = "correctness"
