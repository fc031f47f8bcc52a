"""Find the performance caches that options and arguments name."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gputune.cache import CacheError, cache_files, with_companions
from gputune.client.folders import default_performance_cache_dir
from gputune.client.options.completion import files_or_tiers
from gputune.client.options.files import FileText, files_of_command
from gputune.client.options.shared import PERFORMANCE_CACHE_DIR
from gputune.core.tier import SUFFIX

FOLDER = PERFORMANCE_CACHE_DIR.having(click={"default": default_performance_cache_dir})
"""The folder for commands that are about caches."""


def cache_argument(name: str = "file_or_tier", **more: Any) -> Callable[..., Any]:
    """Return what gives a command an argument for find_file."""
    return click.argument(name, type=FileText(), shell_complete=files_or_tiers, **more)


def find_file(file_or_tier: str | None, folder: Path) -> Path:
    """Return the performance cache that is named by its path, or by its tier in a folder, of which the beginning is
    enough where no other begins so; without a name the only one of the folder. The command reads it. Raises
    CacheError."""
    path = _found(file_or_tier, folder)
    read_cache(path, "FILE_OR_TIER")
    return path


def read_cache(path: Path, name: str) -> None:
    """Tell a performance cache that the command reads."""
    for part in with_companions(path):
        files_of_command().read(part, name)


def _found(file_or_tier: str | None, folder: Path) -> Path:
    if file_or_tier is None:
        return _only_file(folder)
    for path in (Path(file_or_tier), folder / file_or_tier, folder / f"{file_or_tier}{SUFFIX}"):
        if path.is_file():
            return path
    files = cache_files(folder)
    begin_so = [path for path in files if file_or_tier and path.stem.startswith(file_or_tier)]
    if len(begin_so) == 1:
        return begin_so[0]
    tiers = ", ".join(path.stem for path in begin_so or files) or "none"
    if begin_so:
        raise CacheError(f"several performance caches in {folder} begin with {file_or_tier}: {tiers}")
    raise CacheError(f"no performance cache {file_or_tier}: not a file, nor a tier in {folder} (there: {tiers})")


def _only_file(folder: Path) -> Path:
    files = cache_files(folder)
    if len(files) == 1:
        return files[0]
    if not files:
        raise CacheError(f"no performance cache in {folder}: tuning a model makes one")
    raise CacheError(f"several performance caches in {folder}; name one: {', '.join(path.stem for path in files)}")
