"""What the commands of gputune performance-cache share: options, finding files, words for people and tools."""

import json
import math
from pathlib import Path
from typing import Any

import click

from gputune.cache import CacheError
from gputune.client.cli.options import default_performance_cache_dir
from gputune.client.cli.say import say

SUFFIX = ".sqlite"

FOLDER_DEFAULT = "[default: gputune/performance in the user's cache folder]"


def inner_folder(context: click.Context, parameter: click.Parameter, value: Path | None) -> Path | None:
    """Callback of --performance_cache_dir, which also takes the folder above, ~/.cache/gputune."""
    if value is None or not value.is_dir() or cache_files(value):
        return value
    below = value / default_performance_cache_dir().name
    return below if cache_files(below) else value


folder_option = click.option(
    "--performance_cache_dir",
    type=click.Path(path_type=Path),
    metavar="D",
    callback=inner_folder,
    help=f"The folder of the performance caches.  {FOLDER_DEFAULT}",
)
as_json_option = click.option("--json", "as_json", is_flag=True, help="JSON for tools.")


def cache_files(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if path.suffix == SUFFIX and path.is_file())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise CacheError(f"performance cache folder {folder} cannot be read: {error.strerror}") from error


def find_file(file_or_tier: str, folder: Path) -> Path:
    for path in (Path(file_or_tier), folder / file_or_tier, folder / f"{file_or_tier}{SUFFIX}"):
        if path.is_file():
            return path
    tiers = ", ".join(path.stem for path in cache_files(folder)) or "none"
    raise CacheError(f"no performance cache {file_or_tier}: not a file, nor a tier in {folder} (there: {tiers})")


def words(values: Any) -> str:
    """A mapping in a few words; empty values say nothing and are left out."""
    return " ".join(f"{name}={_word(value)}" for name, value in values.items() if value not in ("", [], {}))


def _word(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, separators=(",", ":"))


def time_words(nanoseconds: float | None) -> str:
    if nanoseconds is None:
        return "-"
    for unit, factor in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= factor:
            return f"{nanoseconds / factor:.3g} {unit}"
    return f"{nanoseconds:.3g} ns"


def size_words(size_bytes: int) -> str:
    return f"{size_bytes / 1024:.0f} KiB" if size_bytes < 1 << 20 else f"{size_bytes / (1 << 20):.1f} MiB"


def warned(text: str) -> None:
    """Says what a cache warns of."""
    say(f"warning: {text}", err=True)


def print_json(value: Any) -> None:
    click.echo(json.dumps(_strict(value), indent=1, allow_nan=False))


def _strict(value: Any) -> Any:
    """value with infinities (the open side of a clip) as text, which JSON proper has no number for."""
    if isinstance(value, float) and math.isinf(value):
        return "inf" if value > 0 else "-inf"
    if isinstance(value, dict):
        return {name: _strict(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_strict(item) for item in value]
    return value
