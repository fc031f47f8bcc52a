"""Define `gputune power`, which power.py runs."""

from pathlib import Path
from typing import Any

import click

from gputune.client.cli.groups import CommandGroup
from gputune.client.cli.say import say
from gputune.client.errors import ConfigError
from gputune.client.options.command_line import with_options
from gputune.client.options.files import OUTPUT_FOLDER, SearchedFolder
from gputune.client.options.kinds import file
from gputune.client.options.option import Option
from gputune.client.options.shared import DEVICE_OPTION, JSON, PERF_PROFILE
from gputune.runtime.power.fake_trees import TREES, make_tree

_ROOT = Option(
    "root",
    file(SearchedFolder(exists=True, file_okay=False), "DIR"),
    "Look for control files below this folder instead of /, such as a folder from `fake-tree`.",
    click={"default": Path("/")},
)
_DEVICE = DEVICE_OPTION.having(
    help="Number, or part of the name, of a device: show only its controls.  [default: all controls]"
)
_PRESET = PERF_PROFILE[0].having(help="Preset from `gputune power presets`.  [default: balanced]")


@click.group("power", cls=CommandGroup)
def command() -> None:
    """Show which clocks and power states can be controlled, and what perf profiles write."""


@command.command("show")
@with_options(_ROOT, _DEVICE, JSON)
def show(**values: Any) -> None:
    """List the controls with their values, and whether you can write them or what would allow it."""
    from gputune.client.cli.power import show_controls

    show_controls(**values)


@command.command("presets")
@with_options(JSON)
def presets(**values: Any) -> None:
    """List the preset perf profiles: what they request during work and after it."""
    from gputune.client.cli.power import show_presets

    show_presets(**values)


@command.command("check")
@with_options(_ROOT, _DEVICE, _PRESET, *PERF_PROFILE[1:], JSON)
def check(**values: Any) -> None:
    """Show what a perf profile would write now, where, and in which order. Nothing is written."""
    from gputune.client.cli.power import show_writes

    show_writes(**values)


@command.command("restore")
@with_options(_ROOT)
def restore(**values: Any) -> None:
    """Restore the settings that killed processes left changed. Votes of running processes stay in force."""
    from gputune.client.cli.power import restore_controls

    restore_controls(**values)


@command.command("fake-tree")
@click.argument("folder", type=OUTPUT_FOLDER)
@click.argument("families", nargs=-1, type=click.Choice(sorted(TREES)), metavar="[FAMILY]...")
def fake_tree(folder: Path, families: tuple[str, ...]) -> None:
    """Write plain files like the kernel's control files below a new FOLDER, to try perf profiles on.

    \b
    gputune power fake-tree phone kgsl memory cpufreq
    gputune power check --root phone --perf_profile burst
    """
    if folder.exists():
        raise ConfigError(f"{folder} exists: give a new folder")
    make_tree(folder, *families)
    say(f"{folder}: {', '.join(families or sorted(TREES))}")
