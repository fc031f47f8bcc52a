"""Check the controls of clocks and power that perf profiles could write on this machine."""

from __future__ import annotations

from itertools import groupby
from pathlib import Path

from gputune.client.doctor.findings import Finding
from gputune.core.errors import DeviceNotFound
from gputune.runtime.native.power import Control, Controls


def check_power(root: Path = Path("/")) -> list[Finding]:
    """Return a line for each kind of control below a root, of all devices; a note where there is none or it refuses."""
    try:
        with Controls(None, root) as found:
            controls = found.all()
    except DeviceNotFound as error:
        return [Finding("power", "note", f"perf profiles change nothing: {error}")]
    if not controls:
        return [Finding("power", "note", "no control of clocks or power here: perf profiles change nothing")]
    return [_finding(name, list(group)) for name, group in groupby(controls, key=lambda control: control.actuator)]


def _finding(name: str, controls: list[Control]) -> Finding:
    refused = [control for control in controls if control.refusal]
    if not refused:
        count = f"{len(controls)} control{'' if len(controls) == 1 else 's'}"
        return Finding("power", "ok", f"{name}: perf profiles can write {count}, such as {controls[0].path}")
    first = refused[0]
    counts = f"{len(refused)} of {len(controls)} controls cannot be written"
    return Finding("power", "note", f"{name}: {counts}: {first.path}: {first.refusal}: {first.advice}")
