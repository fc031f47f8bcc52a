"""Complete option values in a shell, in addition to click's own choices and files; see `gputune completion`."""

from collections.abc import Iterable

import click
from click.shell_completion import CompletionItem

from gputune.client.folders import default_performance_cache_dir
from gputune.runtime.power.profiles.presets import PRESETS


def devices(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the numbers of this machine's devices with their names, untested, since a person waits for them; those
    that need no driver, and recordings."""
    from gputune.runtime.devices.discovery import NULL_REPORTS, REPLAY_PREFIX, listed

    numbered = [] if incomplete and not incomplete.isdecimal() else listed()
    found = [CompletionItem(str(report.index), help=report.title) for report in numbered]
    found += [CompletionItem(name, help="needs no driver") for name in (*NULL_REPORTS, REPLAY_PREFIX)]
    return [item for item in found if item.value.startswith(incomplete)]


def tiers(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the tiers that have a performance cache in the folder."""
    from gputune.cache import cache_files

    folder = context.params.get("performance_cache_dir") or default_performance_cache_dir()
    return _beginning((path.stem for path in cache_files(folder)), incomplete)


def files_or_tiers(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the same; where no tier begins so, files."""
    return tiers(context, parameter, incomplete) or [CompletionItem(incomplete, type="file")]


def perf_profiles(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the preset perf profiles."""
    return _beginning(PRESETS, incomplete)


def _beginning(names: Iterable[str], incomplete: str) -> list[CompletionItem]:
    return [CompletionItem(name) for name in names if name.startswith(incomplete)]
