"""Find readers, which load files of profiles.

One is built in. Installed distributions add others: each names a function in the entry point group
`gputune.profile_readers`.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Protocol

from gputune.client.errors import ConfigError
from gputune.client.options.viewer import BUILT_IN, Features
from gputune.client.progress import Progress
from gputune.client.suggestions import instead
from gputune.client.viewer.outputs import write_output
from gputune.client.viewer.profile import Profile

GROUP = "gputune.profile_readers"
_LIBRARIES = (".so", ".dll", ".dylib")


class Reader(Protocol):
    """Writes a profile to a file."""

    def __call__(self, profile: Profile, features: Features | None, output: Path, progress: Progress) -> Sequence[Path]:
        """Return the files that were written. features: as a config file says, None without one. Raises GputuneError
        for what cannot be written."""


def reader_named(name: str) -> Reader:
    """Return the reader of that name. Raises ConfigError for a library of another tool, a name that is not known, and a
    reader that cannot be loaded."""
    if name == BUILT_IN:
        return write_output
    if any(suffix in name for suffix in _LIBRARIES) or "/" in name:
        raise ConfigError(
            f"--reader {name}: libraries of other tools cannot read profiles of gputune; leave the option out, or give "
            f"--reader {BUILT_IN}, which is built in"
        )
    there = {point.name: point for point in entry_points(group=GROUP)}
    if name not in there:
        raise ConfigError(f"--reader: there is no reader {name!r}; {instead(name, [BUILT_IN, *there])}")
    return _loaded(there[name])


def _loaded(point: EntryPoint) -> Reader:
    try:
        reader = point.load()
    except Exception as error:  # whatever a distribution's code raises
        raise ConfigError(f"--reader {point.name} cannot be loaded: {type(error).__name__}: {error}") from error
    if not callable(reader):
        raise ConfigError(f"--reader {point.name}: {point.value} is no function")
    found: Reader = reader
    return found
