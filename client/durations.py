"""Read and write durations in the form that people use: 90s, 10m, 1h30m, or a number of seconds."""

import math
import re

from gputune.client.errors import ConfigError

_WITH_UNITS = re.compile(r"(?:(?P<h>\d+(?:\.\d+)?)h)?(?:(?P<m>\d+(?:\.\d+)?)m)?(?:(?P<s>\d+(?:\.\d+)?)s)?", re.ASCII)
_NUMBER = re.compile(r"\d+(?:\.\d+)?", re.ASCII)
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0}
LONGEST_S = 366 * 86_400.0
"""Of a run; what a clock can wait for is not much longer."""


def parse_duration(text: str, origin: str) -> float:
    """Seconds of a number of them, or of a time such as 90s, 10m or 1h30m; at most LONGEST_S. Raises ConfigError that
    names the origin."""
    seconds = float(text) if _NUMBER.fullmatch(text.strip()) else seconds_with_units(text)
    if not 0 < seconds <= LONGEST_S:
        raise ConfigError(f"{origin}: {text!r} is not a time such as 30, 90s, 10m or 1h30m, of at most a year")
    return seconds


def seconds_with_units(text: str) -> float:
    """Seconds of a time such as 90s, 10m or 1h30m; 0 for what is none, and for one that is too long for a number."""
    match = _WITH_UNITS.fullmatch(text.strip())
    seconds = sum(float(match[unit] or 0) * factor for unit, factor in _SECONDS.items()) if match else 0.0
    return seconds if seconds < math.inf else 0.0


def minutes(seconds: float) -> str:
    """Return minutes and seconds, as clocks show them."""
    whole, rest = divmod(round(seconds), 60)
    return f"{whole}:{rest:02d}"
