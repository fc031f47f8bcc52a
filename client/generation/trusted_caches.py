"""Performance caches hold compiled programs, so only those that no other user could change are used."""

from collections.abc import Iterable
from pathlib import Path

from gputune.cache import CacheError
from gputune.core.ownership import untrusted


def check_trusted(paths: Iterable[Path]) -> None:
    """Raises CacheError for the first file that another user could change, or put where none is yet."""
    for path in paths:
        try:
            why = untrusted(path, shared_folder=False)  # SQLite believes the companions that lie beside a file
        except OSError as error:
            raise CacheError(f"performance cache {path} cannot be opened: {error.strerror or error}") from None
        if why:
            raise CacheError(f"performance cache {path} {why}: programs in it would run as yours")
