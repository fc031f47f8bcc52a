"""Find the program for devices without Python, gputune-agent, that was built for a device's processor."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from gputune.client.errors import TargetError

if TYPE_CHECKING:  # its library takes longer to import than most commands need for their options
    from gputune.client.target.adb.device import AdbDevice

BUILT = Path(__file__).parents[3] / "build" / "agents"
"""The folder of agents that scripts/build-target has built, by triple; an installed gputune has none."""
NAME = "gputune-agent"
_TRIPLES = MappingProxyType(
    {
        "android arm64-v8a": "aarch64-linux-android",
        "android armeabi-v7a": "armv7a-linux-androideabi",
        "android riscv64": "riscv64-linux-android",
        "android x86": "i686-linux-android",
        "android x86_64": "x86_64-linux-android",
        "linux aarch64": "aarch64-linux-gnu",
        "linux armv7l": "arm-linux-gnueabihf",
        "linux riscv64": "riscv64-linux-gnu",
        "linux x86_64": "x86_64-linux-gnu",
    }
)
_ASK = "abi=$(getprop ro.product.cpu.abi 2>/dev/null) && echo android $abi || echo linux $(uname -m 2>/dev/null)"


@dataclass(frozen=True)
class Agent:
    """Name an agent on this machine, and where it lies."""

    path: Path
    content: bytes

    @classmethod
    def read(cls, path: Path) -> Agent:
        """Read an agent from a file. Raises TargetError (adb_failed)."""
        try:
            return cls(path, path.read_bytes())
        except OSError as error:
            raise TargetError("adb_failed", f"agent {path} cannot be read: {error.strerror or error}") from None


@dataclass(frozen=True)
class Missing:
    """Report that no agent is there for a device. why: in words; advice: how to get one."""

    why: str
    advice: str


def find_agent(device: AdbDevice) -> Agent | Missing:
    """Return the agent that was built for a device. Raises TargetError (adb_failed)."""
    said = device.run(_ASK).last_line
    triple = _TRIPLES.get(said)
    if triple is None:
        return Missing(f"no agent is known for its processor ({said})", "name one that runs there by --adb_agent PATH")
    path = BUILT / triple / NAME
    if path.is_file():
        return Agent.read(path)
    return Missing(
        f"no agent was built for its processor ({said})",
        f"run `scripts/build-target --agent {triple}` in a checkout, or name an agent by --adb_agent PATH",
    )
