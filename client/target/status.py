"""Report the state of a target server, for programs and for people."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from gputune.client.target.client import TargetClient
from gputune.core.identity import DeviceIdentity
from gputune.runtime.devices.load import COUNTS
from gputune.server.protocol.messages import PROTOCOL_VERSION


def describe(client: TargetClient) -> dict[str, Any]:
    """Return the answer of a server as values for JSON, with its address, protocol, device tier and own words.

    Raises TargetError."""
    report = dataclasses.asdict(client.status())
    identity = DeviceIdentity.from_dict(client.device)
    return {
        "address": client.address,
        "protocol": PROTOCOL_VERSION,
        **report,
        "device": identity.to_dict(),
        "tier": identity.tier.name,
        "server": dict(client.server),
        "limits": dataclasses.asdict(client.limits),
    }


def state_of(client: TargetClient) -> Mapping[str, object]:
    """Return the clocks, temperatures and load of a target, as far as they can be read there. Raises TargetError."""
    return client.status().state


def lines_of(status: Mapping[str, Any]) -> list[str]:
    """Return what describe() gave, in a few lines."""
    answered = ", ".join(f"{count} {kind}" for kind, count in sorted(status["requests"].items()) if count)
    state = ", ".join(
        f"{name} {_short(value)}" for name, value in sorted(status["state"].items()) if name not in COUNTS
    )
    why = status["server"].get("no_contexts", "")  # older servers do not say it
    return [
        f"{status['address']}: {software_of(status)}",
        f"device   {device_of(status)}",
        f"tier     {status['tier']}",
        f"clients  {work_of(status)}",
        f"worker   {restarts_of(status)}",
        f"memory   {memory_of(status)}",
        f"answered {answered or 'nothing yet'}",
        f"state    {state or 'nothing can be read'}",
        *([f"contexts do not run: {why}"] if why else []),
    ]


def software_of(status: Mapping[str, Any]) -> str:
    """Return what the server is, and since when."""
    return f"{status['software']}, protocol {status['protocol']}, up {_duration(status['uptime_seconds'])}"


def device_of(status: Mapping[str, Any]) -> str:
    """Return its device."""
    device = status["device"]
    return f"{device['name']} ({device['platform']}, {device['device_type']}), driver {device['driver_version']}"


def work_of(status: Mapping[str, Any]) -> str:
    """Return how many clients it has, and what it does for them."""
    waiting = f"{_count(status['queued'], 'request')} waiting"
    return f"{status['clients']}; running: {status['running'] or 'nothing'}; {waiting}"


def restarts_of(status: Mapping[str, Any]) -> str:
    """Return how often its worker was started again, and why."""
    if not status["worker_restarts"]:
        return "never started again"
    return f"started again {_count(status['worker_restarts'], 'time')}, last because {status['last_restart']}"


def memory_of(status: Mapping[str, Any]) -> str:
    """Return what it holds for its clients, and how much it would hold at most."""
    held, most = (size / (1 << 20) for size in (status["memory_bytes"], status["limits"]["total_bytes"]))
    return f"{held:.1f} MiB of buffers and requests, of at most {most:.0f}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _short(value: object) -> str:
    if isinstance(value, Mapping):
        return "(" + ", ".join(f"{name} {_short(item)}" for name, item in value.items()) + ")"
    if isinstance(value, list | tuple):
        return "/".join(map(_short, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    parts = ((days, "d"), (hours, "h"), (minutes, "min"), (rest, "s"))
    first = next((place for place, (number, _) in enumerate(parts) if number), len(parts) - 1)
    return " ".join(f"{number} {unit}" for number, unit in parts[first : first + 2])
