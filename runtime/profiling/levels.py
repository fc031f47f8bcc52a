"""Name the levels of profiles, and the file of a log, without what records of a log need."""

from collections.abc import Mapping
from typing import Literal, get_args

LOG_NAME = "gputune-profiling-data.log"
Level = Literal["basic", "detailed", "qhas"]
LEVELS: tuple[Level, ...] = get_args(Level)
"""basic: whole inferences and their parts by the host's clock, in the form in which they usually run. detailed: also
when each launch started and ended, one by one. qhas: also when it was queued and submitted, counters and the state of
the device."""
SYNONYMS: Mapping[str, Level] = {"backend": "qhas", "linting": "qhas"}
"""What the original tools call the level that a backend fills."""


def level_named(name: str) -> Level:
    """Return the level of a name, which may be one of the original tools'. Raises ValueError for another one."""
    for level in LEVELS:
        if name == level:
            return level
    if name not in SYNONYMS:
        raise ValueError(f"{name!r} is no profiling level; there are {', '.join([*LEVELS, *SYNONYMS])}")
    return SYNONYMS[name]
