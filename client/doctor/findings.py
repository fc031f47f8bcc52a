"""Represent what a check found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from gputune.client.errors import DeviceOrContextError, TargetError

Area = Literal["software", "settings", "drivers", "device", "power", "target", "adb"]
FAR: tuple[Area, ...] = ("target", "adb")  # what lies beyond this machine


@dataclass(frozen=True)
class Finding:
    """One line about one thing. ok: as it should be; note: worth knowing, stops nothing; problem: stops a
    generation. `advice` says what to do, and a problem has one; `code` is its exit code, None for that of its area."""

    area: Area
    status: Literal["ok", "note", "problem"]
    line: str
    advice: str = ""
    code: int | None = None

    def __post_init__(self) -> None:
        if self.status == "problem" and not self.advice:
            raise ValueError(f"a problem without advice: {self.line}")


def softened(findings: Iterable[Finding]) -> list[Finding]:
    """Return the same findings where their problems stop nothing, because something else is used."""
    return [replace(f, status="note") if f.status == "problem" else f for f in findings]


def exit_code(findings: Iterable[Finding]) -> int:
    """0 without a problem; else the code of what is the first to be put right: this machine before a target."""
    problems = sorted((each for each in findings if each.status == "problem"), key=lambda each: each.area in FAR)
    if not problems:
        return 0
    first = problems[0]
    own = TargetError.exit_code if first.area in FAR else DeviceOrContextError.exit_code
    return own if first.code is None else first.code
