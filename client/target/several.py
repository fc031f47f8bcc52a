"""Use several target servers for one generation: `--target A,B`.

Their devices must be the same model, or a measurement on one would not hold for another.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Protocol, TypeAlias

from gputune.client.addresses import parse_address
from gputune.client.errors import ConfigError
from gputune.client.target.client import TargetClient
from gputune.client.target.connecting import AdbRequest, Target, choose_target
from gputune.client.target.reconnecting import MEMORY
from gputune.client.target.transport.credentials import NONE, Credentials
from gputune.core.opened import Closing

Described: TypeAlias = tuple[Mapping[str, object], Mapping[str, object]]
"""A device's identity, and what its server says about itself."""
Arrived: TypeAlias = Callable[[], TargetClient | None]


class TargetSource(Protocol):
    """Give the sessions of a generation: targets that were named, or the devices of a farm.

    `explanation` says in lines for people what they are.
    """

    @property
    def explanation(self) -> Sequence[str]: ...

    def connect_all(self) -> Sequence[TargetClient]:
        """Return the sessions to begin with, at least one; all devices are alike. Raises TargetError, ConfigError."""

    @property
    def arrived(self) -> Arrived | None:
        """Return what gives a session with a device that has come since, alike the others, and None while there is
        none; None where no device can come."""


class Targets(Closing):
    """Hold one target or several, with the sessions that were opened on them. Close it at the end: that ends the
    sessions and stops a server of our own.

    `explanation` says in lines for people which servers they are and what was passed over.
    """

    def __init__(self, targets: Sequence[Target]) -> None:
        self._targets = tuple(targets)
        self._open = ExitStack()
        for target in targets:
            self._open.callback(target.close)
        self.explanation = tuple(dict.fromkeys(line for target in targets for line in target.explanation))

    def connect_all(self) -> tuple[TargetClient, ...]:
        """Return a new session on each, in the order in which they were named; then another on each whose device is no
        CPU: its server builds the programs of the one while the device measures those of the other.

        Raises TargetError, and ConfigError when two of them are one server or have different devices or settings."""
        clients: list[TargetClient] = []
        for target in self._targets:
            clients.append(self._open.enter_context(target.connect()))
            for earlier in clients[:-1]:
                _check_alike(earlier, clients[-1])
        if clients[0].device.get("device_type") != "cpu":
            clients += [self._open.enter_context(target.connect()) for target in self._targets]
        return tuple(clients)

    @property
    def arrived(self) -> None:
        """Hold what --target names, from the beginning."""
        return None

    def close(self) -> None:
        """End the sessions, then the servers of our own. May be called twice."""
        self._open.close()


def choose_targets(
    option: str | None,
    environment: Mapping[str, str],
    device: str | None = None,
    log_level: str | None = None,
    credentials: Credentials = NONE,
    adb: AdbRequest | None = None,
    notice: Callable[[str], None] | None = None,
) -> Targets:
    """Return the targets that --target names, with a comma between them; one by the rule of choose_target, which says
    what the arguments mean, where it names one or none. Raises TargetError, ConfigError."""
    addresses = [None] if option is None else _split(option)
    return Targets(
        [
            choose_target(
                address,
                environment,
                device,
                log_level=log_level,
                credentials=credentials,
                adb=adb,
                notice=notice,
            )
            for address in addresses
        ]
    )


def _split(option: str) -> list[str]:
    """Return the addresses in --target, none of them twice."""
    texts = option.split(",")
    if len(texts) == 1:
        return texts
    seen: dict[tuple[str, int], str] = {}
    for text in texts:
        address = parse_address(text, "--target")
        if address in seen:
            raise ConfigError(f"--target names {text.strip()} twice; one device cannot do the work of two")
        seen[address] = text.strip()
    return list(seen.values())


def _check_alike(one: TargetClient, other: TargetClient) -> None:
    """Raise ConfigError when two sessions are with the same server, or their devices or settings differ."""
    if one.server.get("instance") == other.server.get("instance") is not None:
        raise ConfigError(f"--target names one server twice: {one.address} and {other.address}; drop one")
    if wrong := unlike((one.device, one.server), (other.device, other.server)):
        raise ConfigError(
            f"--target: {one.address} and {other.address} are not alike: {wrong}; tune on them one after the other"
        )


def unlike(one: Described, other: Described) -> str:
    """Return what of two devices and their servers' settings differs, where times of one would not hold for the other;
    empty where nothing does."""
    for what, mine, theirs in (
        ("device", _lasting(one[0]), _lasting(other[0])),
        ("setting", settings_of(one[1]), settings_of(other[1])),
    ):
        for name in sorted(mine.keys() | theirs.keys()):
            if mine.get(name) != theirs.get(name):
                return f"{what} {name} is {_shown(mine, name)} and {_shown(theirs, name)}"
    return ""


def _lasting(device: Mapping[str, object]) -> Mapping[str, object]:
    """Return a device's identity less how much memory it has left to give."""
    return {name: value for name, value in device.items() if name not in MEMORY}


def settings_of(server: Mapping[str, object]) -> dict[str, str]:
    """Return the settings of a target that change code or time, as its welcome reports them."""
    settings = server.get("settings")
    return {str(name): str(value) for name, value in settings.items()} if isinstance(settings, Mapping) else {}


def _shown(facts: Mapping[str, object], name: str) -> str:
    return repr(facts[name]) if name in facts else "unknown"
