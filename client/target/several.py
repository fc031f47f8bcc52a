"""Several target servers for one generation: `--target A,B`. Their devices must be the same, or what one has measured
would not hold for another."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack

from gputune.client.errors import ConfigError
from gputune.client.target.client import TargetClient
from gputune.client.target.connecting import AdbRequest, Target, choose_target, parse_address
from gputune.client.target.reconnecting import MEMORY
from gputune.client.target.transport.credentials import NONE, Credentials
from gputune.core.opened import Closing


class Targets(Closing):
    """One target or several, with the sessions that were opened on them. Close it at the end: that ends the sessions
    and stops a server of our own.

    `explanation` says in lines for people which servers they are and what was passed over.
    """

    def __init__(self, targets: Sequence[Target]) -> None:
        self._targets = tuple(targets)
        self._open = ExitStack()
        for target in targets:
            self._open.callback(target.close)
        self.explanation = tuple(dict.fromkeys(line for target in targets for line in target.explanation))

    def connect_all(self) -> tuple[TargetClient, ...]:
        """A new session on each, in the order in which they were named; then another on each whose device is no CPU:
        its server builds the programs of the one while the device measures those of the other.

        Raises TargetError, and ConfigError when two of them are one server or have different devices or settings."""
        clients: list[TargetClient] = []
        for target in self._targets:
            clients.append(self._open.enter_context(target.connect()))
            for earlier in clients[:-1]:
                _check_alike(earlier, clients[-1])
        if clients[0].device.get("device_type") != "cpu":
            clients += [self._open.enter_context(target.connect()) for target in self._targets]
        return tuple(clients)

    def close(self) -> None:
        """Ends the sessions, then the servers of our own. May be called twice."""
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
    """The targets that --target names, with a comma between them; one by the rule of choose_target, which says what the
    arguments mean, where it names one or none. Raises TargetError, ConfigError."""
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
    """The addresses in --target, none of them twice."""
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
    """Raises ConfigError when two sessions are with the same server, or their devices or settings differ."""
    if one.server.get("instance") == other.server.get("instance") is not None:
        raise ConfigError(f"--target names one server twice: {one.address} and {other.address}; drop one")
    for what, mine, theirs in (
        ("device", _lasting(one.device), _lasting(other.device)),
        ("setting", _settings(one), _settings(other)),
    ):
        for name in sorted(mine.keys() | theirs.keys()):
            if mine.get(name) != theirs.get(name):
                raise ConfigError(
                    f"--target: {one.address} and {other.address} are not alike: {what} {name} is "
                    f"{_shown(mine, name)} and {_shown(theirs, name)}; tune on them one after the other"
                )


def _lasting(device: Mapping[str, object]) -> Mapping[str, object]:
    """A device's identity less how much memory it has left to give."""
    return {name: value for name, value in device.items() if name not in MEMORY}


def _settings(client: TargetClient) -> Mapping[str, object]:
    settings = client.server.get("settings")
    return settings if isinstance(settings, Mapping) else {}


def _shown(facts: Mapping[str, object], name: str) -> str:
    return repr(facts[name]) if name in facts else "unknown"
