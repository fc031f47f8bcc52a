"""Check a target server, step by step: address, name, port, handshake, device."""

from __future__ import annotations

import socket
from collections.abc import Callable

from gputune.client.addresses import is_agent, parse_address
from gputune.client.advice import advice_for
from gputune.client.doctor.findings import Finding
from gputune.client.errors import ConfigError, TargetError
from gputune.client.target.client import TargetClient
from gputune.client.target.status import describe, device_of, restarts_of, software_of, work_of
from gputune.client.target.transport.stream import is_local

CONNECT_SECONDS = 5.0


def check_target(address: str, origin: str, connect: Callable[[], TargetClient]) -> list[Finding]:
    """Return what happens on the way to the server at `address`, which `origin` names; `connect` goes all the way, with
    the token and certificates that a command would use. Stops at the first problem."""
    try:
        host, port = parse_address(address, origin)
    except TargetError as error:
        return [_problem(error)]
    found = [Finding("target", "ok", f"{address} is the target (from {origin})")]
    itself = is_local(host) or is_agent(host)
    step = None if itself else _resolve(host) or _open(host, port)
    if step is not None:
        return [*found, step]
    if not itself:
        found.append(Finding("target", "ok", f"{address} is open: a program listens there"))
    try:
        with connect() as client:
            return [*found, *_answers(client)]
    except TargetError as error:
        return [*found, _problem(error)]
    except ConfigError as error:
        return [*found, Finding("target", "problem", f"{error}", "correct this; the running server's token is needed")]


def _answers(client: TargetClient) -> list[Finding]:
    status = describe(client)
    found = [
        Finding("target", "ok", f"it is {software_of(status)}"),
        Finding("target", "ok", f"its device is {device_of(status)}"),
        Finding("target", "ok", f"its clients: {work_of(status)}"),
    ]
    if why := client.why_no_contexts:
        found.append(Finding("target", "problem", f"it runs no contexts: {why}", advice_for("no_contexts")))
    if status["worker_restarts"]:
        advice = "rare restarts do no harm; if they are frequent, look into the server's log"
        found.append(Finding("target", "note", f"its worker was {restarts_of(status)}", advice))
    return found


def _resolve(host: str) -> Finding | None:
    try:
        socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        advice = "check the spelling, or give the machine's address, such as 192.168.1.20"
        return Finding("target", "problem", f"the name {host} cannot be resolved: {reason}", advice)
    return None


def _open(host: str, port: int) -> Finding | None:
    where = f"port {port} of {host}"
    try:
        socket.create_connection((host, port), CONNECT_SECONDS).close()
    except ConnectionRefusedError:
        return Finding("target", "problem", f"nothing listens on {where}", advice_for("unreachable"))
    except TimeoutError:
        advice = "is the machine on and awake, is the address right, does a firewall drop connections?"
        return Finding("target", "problem", f"{where} does not answer within {CONNECT_SECONDS:g} s", advice)
    except OSError as error:
        return Finding(
            "target", "problem", f"{where} cannot be reached: {error.strerror or error}", "check the network"
        )
    return None


def _problem(error: TargetError) -> Finding:
    return Finding("target", "problem", str(error), advice_for(error.name), error.exit_code)
