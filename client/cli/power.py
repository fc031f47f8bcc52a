"""Define `gputune power`: show what controls the clocks of this machine's devices, and what perf profiles change."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from gputune.client.cli.groups import CommandGroup
from gputune.client.cli.say import print_json, say
from gputune.client.cli.tables import add_row, print_table
from gputune.client.device_errors import device_errors
from gputune.client.errors import ConfigError
from gputune.client.options.command_line import click_option
from gputune.client.options.completion import perf_profiles
from gputune.client.options.files import InputFile, OutputFolder, SearchedFolder
from gputune.client.options.shared import DEVICE_OPTION, JSON
from gputune.core.identity import DeviceIdentity
from gputune.core.logs import printable
from gputune.runtime.devices.discovery import choose, discover, wanted_device
from gputune.runtime.native.power import Control, Controls, Planned
from gputune.runtime.native.power import restore as restore_all
from gputune.runtime.power.cl_hints import hints
from gputune.runtime.power.fake_trees import TREES, make_tree
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.runtime.power.profiles.presets import PRESETS
from gputune.runtime.power.profiles.settings import MOMENTS, PHASES
from gputune.runtime.power.profiles.yaml_form import read_yaml
from gputune.runtime.power.records import ignored_by

_Command = Callable[..., None]


def _root_option(command: _Command) -> _Command:
    return click.option(
        "--root",
        type=SearchedFolder(exists=True, file_okay=False),
        default=Path("/"),
        metavar="DIR",
        help="Look for control files below this folder instead of /, such as a folder from `fake-tree`.",
    )(command)


def _device_option(command: _Command) -> _Command:
    said = "Number, or part of the name, of a device: show only its controls.  [default: all controls]"
    return click_option(DEVICE_OPTION.having(help=said))(command)


@click.group("power", cls=CommandGroup)
def command() -> None:
    """Show which clocks and power states can be controlled, and what perf profiles write."""


@command.command("show")
@_root_option
@_device_option
@click_option(JSON)
def show(root: Path, device: str | None, as_json: bool) -> None:
    """List the controls with their values, and whether you can write them or what would allow it."""
    identity = _identity(device)
    with device_errors(), Controls(identity, root) as found:
        controls, key, effective = found.all(), found.key, found.clocks()[1]
    offered = [] if identity is None else hints(identity)
    if as_json:
        lines = [hint.line for hint in offered]
        print_json(
            {"key": key, "controls": [each._asdict() for each in controls], "effective": effective, "hints": lines}
        )
        return
    if not controls:
        say("no control of clocks or power is found here: perf profiles change nothing")
    else:
        print_table(_control_table(controls))
    for name, value in effective.items():
        say(f"now: {name.removesuffix('_hz')} {f'{value / 1e6:g} MHz' if name.endswith('_hz') else f'{value:g}'}")
    for line in dict.fromkeys(f"{each.refusal}: {each.advice}" for each in controls if each.refusal):
        say(line)
    for hint in offered:
        say(hint.line)


@command.command("presets")
@click_option(JSON)
def presets(as_json: bool) -> None:
    """List the preset perf profiles: what they request during work and after it."""
    if as_json:
        print_json({name: PerfProfile.from_preset(name).to_dict() for name in PRESETS})
        return
    table = Table("preset", "during work", "after it")
    for name, preset in PRESETS.items():
        if not preset.asks:
            add_row(table, (name, "asks for nothing", ""))
            continue
        corner, governor = preset.start.name, "scales" if preset.dcvs else "held"
        asks = f"{corner} {governor}, latency {preset.latency_us} us, RPC polling {preset.rpc_polling_us} us"
        done = "-".join(dict.fromkeys(corner.name for corner in (preset.done.least, preset.done.most)))
        after = f"{done}, latency {preset.done_latency_us} us, hysteresis {preset.hysteresis_us // 1000} ms"
        add_row(table, (name, f"{asks}, {preset.power_mode.value}", after))
    print_table(table)


@command.command("check")
@_root_option
@_device_option
@click.option(
    "--perf_profile",
    metavar="NAME",
    shell_complete=perf_profiles,
    help="Preset from `gputune power presets`.  [default: balanced]",
)
@click.option(
    "--perf_config_yaml",
    type=InputFile(exists=True, dir_okay=False),
    help="Perf profile from a YAML file in the original tools' format.",
)
@click_option(JSON)
def check(
    root: Path, device: str | None, perf_profile: str | None, perf_config_yaml: Path | None, as_json: bool
) -> None:
    """Show what a perf profile would write now, where, and in which order. Nothing is written."""
    profile = _profile(perf_profile, perf_config_yaml)
    moments = [] if profile.silent else [(phase, moment) for phase in PHASES for moment in MOMENTS]
    votes = [profile.vote(phase, moment) for phase, moment in moments]
    with device_errors(), Controls(_identity(device), root) as controls:
        writes, honoured = controls.planned([vote.places for vote in votes]), controls.honoured
        refused = {control.path: control for control in controls.all() if control.refusal}
    steps = [*(f"{phase} {moment}" for phase, moment in moments), "close"]
    named = {step: [write for write in writes if write.step == number] for number, step in enumerate(steps)}
    ignored = list(dict.fromkeys(name for vote in votes for name in ignored_by(vote, honoured)))
    ignored += [name for name, value in _without_controls(profile).items() if value]
    if as_json:
        told = {step: [_write_entry(write, refused) for write in plan] for step, plan in named.items()}
        print_json({"profile": profile.name, "writes": told, "ignored": ignored})
        return
    if profile.silent:
        say(f"{profile.name} asks for nothing: nothing is read or written")
        return
    for step, plan in named.items():
        say(f"{step}:" if plan else f"{step}: nothing to write")
        for write in plan:
            say(f"  {_write_line(write, refused)}")
    for name in ignored:
        say(f"{name}: no control here uses it")


def _without_controls(profile: PerfProfile) -> dict[str, int]:
    """Return the settings that are kept, and for which no device here has a control."""
    return {"DSP_RPC_POLLING_TIME_US": profile.rpc_polling_us, "DSP_SLEEP_DISABLE_MS": profile.sleep_disable_ms}


@command.command("restore")
@_root_option
def restore(root: Path) -> None:
    """Restore the settings that killed processes left changed. Votes of running processes stay in force."""
    with device_errors():
        for line in restore_all(root):
            say(printable(line))
    say("done")


@command.command("fake-tree")
@click.argument("folder", type=OutputFolder(file_okay=False))
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


def _identity(device: str | None) -> DeviceIdentity | None:
    """Return the device that is meant; None without one. Raises DeviceOrContextError where there is no such device."""
    if device is None:
        return None
    with device_errors():
        return choose(discover(), wanted_device(device)).report.identity


def _profile(name: str | None, path: Path | None) -> PerfProfile:
    """Return the profile that is asked for. Raises ConfigError for two profiles, and for one that is none."""
    if name is not None and path is not None:
        raise ConfigError("give --perf_profile or --perf_config_yaml, not both")
    try:
        return read_yaml(path) if path is not None else PerfProfile.from_preset(name or "balanced")
    except (ValueError, OSError) as error:
        raise ConfigError(str(error)) from None


def _control_table(controls: Sequence[Control]) -> Table:
    table = Table("actuator", "file", "now", "writable")
    for control in controls:
        content = "not readable" if control.content is None else " ".join(control.content.split())
        add_row(table, (control.actuator, control.path, content[:60], control.refusal or "yes"))
    return table


def _write_line(write: Planned, refused: dict[str, Control]) -> str:
    line = f"{write.path} = {write.value.strip() or 'closed'}"
    control = refused.get(write.path)
    return line if control is None else f"{line}  [refused now: {control.refusal}: {control.advice}]"


def _write_entry(write: Planned, refused: dict[str, Control]) -> dict[str, Any]:
    control = refused.get(write.path)
    return {"path": write.path, "value": write.value.strip(), "refusal": control.refusal if control else ""}
