"""Choose the target server to use, and start a server if there is none.

The first that applies is used: the device of --adb; --target HOST:PORT, unix:PATH or agent:HOST:PORT;
TARGET_SERVER_SOCKET; a gputune server that answers on this machine's default port; an embedded server. An embedded
server is a child process that ends with this process. Where an agent is named, it has the agent's device.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from gputune.client.addresses import is_agent, parse_address
from gputune.client.errors import ConfigError, TargetError
from gputune.client.target.adb.python import TERMUX
from gputune.client.target.client import TargetClient
from gputune.client.target.embedded_server import EmbeddedServer
from gputune.client.target.reconnecting import RECONNECT_SECONDS, Reconnecting
from gputune.client.target.transport.credentials import NONE, TOKEN_VARIABLE, Credentials, read_credentials
from gputune.client.target.transport.stream import address_text, is_local
from gputune.client.target.transport.target_connection import CONNECT_SECONDS, TargetConnection, dial, probe
from gputune.core.opened import Closing
from gputune.runtime.devices.discovery import AGENT_TOKEN_VARIABLE
from gputune.server.protocol.messages import DEFAULT_PORT

log = logging.getLogger(__name__)

VARIABLE = "TARGET_SERVER_SOCKET"
DEVICE_VARIABLE = "GPUTUNE_DEVICE"
PROBE_SECONDS = 0.3


@dataclass(frozen=True)
class AdbRequest:
    """Describe a device to be reached over adb: its serial number, needed where there are several; its Python (TERMUX:
    none of it is used); the agent to start there. Without both, an agent that was built for it is used, else its
    Python."""

    serial: str | None = None
    python: str | None = None
    agent: Path | None = None


@dataclass(frozen=True)
class AskedConnection:
    """Hold what options say about a target; see choose_target. `credentials` are those of the options: GPUTUNE_TOKEN is
    read where a server is used that runs already."""

    target: str | None = None
    credentials: Credentials = NONE
    adb: AdbRequest | None = None


def asked_connection(given: Mapping[str, Any]) -> AskedConnection:
    """Return what options say, given by their names. Raises ConfigError."""
    names = ("token_file", "tls_ca", "tls_cert", "tls_key")
    credentials = read_credentials({}, *(given.get(name) for name in names))
    for name in ("adb_python", "adb_agent"):
        if name in given and "adb" not in given:
            raise ConfigError(f"--{name} says what runs on a phone; give --adb, too")
    if "adb_python" in given and "adb_agent" in given:
        raise ConfigError("--adb_python and --adb_agent: either Python runs on the phone, or an agent; drop one")
    phone = None
    if "adb" in given:
        phone = AdbRequest(given["adb"] or None, given.get("adb_python"), given.get("adb_agent"))
    return AskedConnection(given.get("target"), credentials, phone)


class OwnServer(Protocol):
    """Hold a server that was started for us, with a token of its own."""

    host: str
    port: int
    token: str
    explanation: tuple[str, ...]

    def revive(self) -> tuple[str, int]:
        """Start it again, and return where it listens now. Raises TargetError."""

    def last_words(self) -> str:
        """Return how it ended; nothing while it runs."""

    def stop(self) -> None:
        """Stop it. May be called twice."""


@dataclass
class Target(Closing):
    """Hold a target server to connect to. Close it at the end: that stops a server of our own.

    `explanation` says in lines for people which server it is and what was passed over. `notice` hears when the target
    is lost and when it is back; it is waited for `reconnect_seconds`.
    """

    host: str
    port: int
    explanation: tuple[str, ...]
    credentials: Credentials = NONE
    server: OwnServer | None = None
    notice: Callable[[str], None] | None = None
    reconnect_seconds: float = RECONNECT_SECONDS

    def connect(self) -> TargetClient:
        """Return a new session. Raises TargetError."""
        revive = None if self.server is None else self.revive
        return TargetClient(Reconnecting(self.dial, revive, self.notice, self.reconnect_seconds))

    def dial(self) -> TargetConnection:
        """Return a single connection, which is not made again when it is lost. Raises TargetError."""
        last_words = None if self.server is None else self.server.last_words
        return dial(self.host, self.port, CONNECT_SECONDS, self.credentials, last_words)

    def revive(self) -> None:
        """Start the server again, if it is our own. Raises TargetError."""
        if self.server is not None:
            self.host, self.port = self.server.revive()

    def close(self) -> None:
        """Stop the server, if it is our own."""
        if self.server is not None:
            self.server.stop()


def choose_target(
    option: str | None,
    environment: Mapping[str, str],
    device: str | None = None,
    default_port: int = DEFAULT_PORT,
    log_level: str | None = None,
    credentials: Credentials = NONE,
    adb: AdbRequest | None = None,
    notice: Callable[[str], None] | None = None,
) -> Target:
    """Return the target by the rule above.

    option: what --target says; environment: where TARGET_SERVER_SOCKET and GPUTUNE_DEVICE are looked up;
    GPUTUNE_TOKEN is too, once a server that runs already is going to be used; device: what --device says; log_level:
    of a server of our own; credentials: for one that is not; adb: what --adb says; notice: hears when the target is
    lost and when it is back.

    A device can only be chosen for a server of our own, so a server that happens to answer on the default port is
    passed over. An address contradicts --device; options that say how a running server is reached contradict a server
    of our own. Variables may be meant for something else: they are said not to apply. Raises TargetError, ConfigError.
    """
    by_device = environment.get(DEVICE_VARIABLE, "").strip()
    by_address = environment.get(VARIABLE, "").strip()
    if adb is not None:
        check_adb_alone(adb, {"--target": option, "--device": device}, credentials)
        return _over_adb(adb, environment, credentials, log_level, notice)
    for text, origin in ((option, "--target"), (by_address or None, VARIABLE)):
        if text is None:
            continue
        if device is not None:
            named = f"the device {text}" if is_agent(text) else f"the server {text}, which has chosen its device"
            raise TargetError("contradiction", f"{origin} names {named}; drop --device or {origin}")
        host, port = parse_address(text, origin)
        if is_agent(host):
            return _behind_agent(host, origin, environment, credentials, log_level, notice)
        if is_local(host) and credentials.tls is not None:
            raise TargetError("contradiction", f"{origin} names a local socket, and TLS is for TCP; drop --tls_ca")
        lines = [f"target server {address_text(host, port)} (from {origin})"]
        if by_device:
            lines.append(f"{DEVICE_VARIABLE} does not apply: this server has chosen its device")
        return Target(host, port, tuple(lines), credentials.completed(environment), notice=notice)
    wanted, asking = (by_device or None, DEVICE_VARIABLE) if device is None else (device, "--device")
    if wanted is not None:
        passed_over = f"a server on the default port was not looked for, because {asking} asks for a device"
    else:
        where = address_text("127.0.0.1", default_port)
        try:
            credentials = credentials.completed(environment)
            software = probe("127.0.0.1", default_port, PROBE_SECONDS, credentials)
        except ConfigError as error:
            passed_over = f"a server on the default port was not looked for: {error}"
        except TargetError as error:
            passed_over = f"no target server on {where}"
            if error.name != "unreachable":
                passed_over = f"passed over: {error.reason}"
        else:
            if credentials.token is None and credentials.tls is None:
                log.warning(
                    f"the target server on {where} is used without a token: any user of this machine may have started "
                    "it; start yours with --token_file and give that here, or choose a server of your own by --device"
                )
            lines = [f"target server {where} ({software} answers there)"]
            return Target("127.0.0.1", default_port, tuple(lines), credentials, notice=notice)
    _only_for_running(credentials, passed_over)
    server = EmbeddedServer.start(wanted, _logging(log_level))
    lines = [passed_over, f"embedded target server {address_text(server.host, server.port)}", *server.explanation]
    if environment.get(TOKEN_VARIABLE, "").strip():
        lines.append(f"{TOKEN_VARIABLE} does not apply: the embedded server has a token of its own")
    return _own(server, lines, notice)


def _behind_agent(
    address: str,
    origin: str,
    environment: Mapping[str, str],
    credentials: Credentials,
    log_level: str | None,
    notice: Callable[[str], None] | None,
) -> Target:
    """Return a server of our own for the device of an agent, whose token is given as a running server's is."""
    if credentials.tls is not None:
        raise TargetError("contradiction", f"{origin} names an agent, and TLS is for target servers; drop --tls_ca")
    token = credentials.completed(environment, AGENT_TOKEN_VARIABLE).completed(environment).token
    if token is None:
        how = f"--token_file, {AGENT_TOKEN_VARIABLE} or {TOKEN_VARIABLE}"
        raise TargetError("token_required", f"{address} needs its token: give it with {how}")
    server = EmbeddedServer.start(address, _logging(log_level), variables={AGENT_TOKEN_VARIABLE: token})
    where = address_text(server.host, server.port)
    lines = [f"embedded target server {where} for {address} (from {origin})", *server.explanation]
    if environment.get(DEVICE_VARIABLE, "").strip():
        lines.append(f"{DEVICE_VARIABLE} does not apply: {origin} names a device")
    return _own(server, lines, notice)


def check_adb_alone(adb: AdbRequest, others: Mapping[str, str | None], credentials: Credentials) -> None:
    """Raise TargetError (contradiction) when --adb is given together with what says something else: other options,
    each with its value, or credentials. Only a server that a person starts may have a token that is known before."""
    for option, value in others.items():
        if value is not None:
            raise TargetError(
                "contradiction", f"--adb means the server on the phone that it finds; drop --adb or {option}"
            )
    known = ("--token_file",) if adb.python == TERMUX else ()
    unused = tuple(option for option in credentials.options if option not in known)
    _only_for_running(replace(credentials, options=unused), "--adb")


def _over_adb(
    adb: AdbRequest,
    environment: Mapping[str, str],
    credentials: Credentials,
    log_level: str | None,
    notice: Callable[[str], None] | None,
) -> Target:
    from gputune.client.target.adb.target import AdbTarget  # needs a library that nothing else does

    by_hand = adb.python == TERMUX
    token = credentials.completed(environment).token if by_hand else None
    server = AdbTarget.start(adb.serial, adb.python, None, _logging(log_level), token, adb.agent)
    names = (DEVICE_VARIABLE, VARIABLE) if by_hand else (DEVICE_VARIABLE, VARIABLE, TOKEN_VARIABLE)
    unused = [name for name in names if environment.get(name, "").strip()]
    return _own(server, [*server.explanation, *(f"{name} does not apply: --adb is given" for name in unused)], notice)


def _logging(level: str | None) -> tuple[str, ...]:
    """Return the options of a server of our own that set its log level."""
    return () if level is None else ("--log_level", level)


def _own(server: OwnServer, lines: Sequence[str], notice: Callable[[str], None] | None) -> Target:
    return Target(server.host, server.port, tuple(lines), Credentials(token=server.token), server, notice)


def _only_for_running(credentials: Credentials, why: str) -> None:
    """Raise TargetError for options that say how a running server is reached where none is used."""
    if credentials.options:
        raise TargetError(
            "contradiction",
            f"{' and '.join(credentials.options)}: only for a server that runs already, but a new one would be started "
            f"({why}); name the running server with --target",
        )
