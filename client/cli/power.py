"""Show what controls the clocks of this machine's devices, and what perf profiles change, for `gputune power`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from gputune.client.cli.say import print_json, say
from gputune.client.cli.tables import add_row, print_table
from gputune.client.device_errors import device_errors
from gputune.client.options.power import asked_profile
from gputune.core.identity import DeviceIdentity
from gputune.core.logs import printable
from gputune.runtime.devices.discovery import choose, discover, wanted_device
from gputune.runtime.native.power import Control, Controls, Planned
from gputune.runtime.native.power import restore as restore_all
from gputune.runtime.power.cl_hints import hints
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.runtime.power.profiles.presets import PRESETS
from gputune.runtime.power.profiles.settings import MOMENTS, PHASES
from gputune.runtime.power.records import ignored_by


def show_controls(root: Path, device: str | None, as_json: bool) -> None:
    """Print the controls, all or those of a device. Raises DeviceOrContextError."""
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


def show_presets(as_json: bool) -> None:
    """Print the preset perf profiles."""
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


def show_writes(root: Path, device: str | None, as_json: bool, **asked: Any) -> None:
    """Print what the perf profile that is asked for would write. Raises ConfigError, DeviceOrContextError."""
    profile = asked_profile(asked) or PerfProfile.from_preset("balanced")
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


def restore_controls(root: Path) -> None:
    """Restore what killed processes left changed. Raises DeviceOrContextError."""
    with device_errors():
        for line in restore_all(root):
            say(printable(line))
    say("done")


def _identity(device: str | None) -> DeviceIdentity | None:
    """Return the device that is meant; None without one. Raises DeviceOrContextError where there is no such device."""
    if device is None:
        return None
    with device_errors():
        return choose(discover(), wanted_device(device)).report.identity


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
