"""Read the addresses of target servers and of agents."""

import os
import re

from gputune.client.errors import TargetError
from gputune.client.target.transport.stream import LOCAL, is_local
from gputune.runtime.devices.discovery import AGENT_PREFIX
from gputune.server.protocol.messages import DEFAULT_PORT

MOST_PATH_BYTES = 107  # of a local socket, which the system has no room for more of
_ADDRESS = re.compile(r"(?:\[(?P<bracketed>(?!unix:)[^\[\]\s]+)\]|(?P<plain>[^\[\]:\s]+)):(?P<port>[0-9]{1,5})")


def parse_address(text: str, origin: str) -> tuple[str, int]:
    """(host, port) of HOST:PORT or [IPV6]:PORT; of unix:PATH and of an agent, itself and 0. Raises TargetError
    (bad_address) that names the origin."""
    if is_agent(text):
        return _agent(text.strip(), origin), 0
    if is_local(text.strip()):
        path = text.strip().removeprefix(LOCAL)
        if path and "\0" not in path and len(os.fsencode(path)) <= MOST_PATH_BYTES:
            return text.strip(), 0
        raise TargetError(
            "bad_address", f"{origin}: {text!r} is not unix:PATH with a path of 1 to {MOST_PATH_BYTES} bytes"
        )
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or not 1 <= int(match["port"]) <= 65535:
        raise TargetError(
            "bad_address",
            f"{origin}: {text!r} is not HOST:PORT with a port from 1 to 65535, for example "
            f"127.0.0.1:{DEFAULT_PORT} or [::1]:{DEFAULT_PORT}, nor unix:PATH, nor agent:HOST:PORT",
        )
    return match["bracketed"] or match["plain"], int(match["port"])


def is_agent(text: str) -> bool:
    """Return whether an address is an agent's."""
    return text.strip().startswith(AGENT_PREFIX)


def _agent(text: str, origin: str) -> str:
    """Return the address of an agent, as it is. Raises TargetError (bad_address)."""
    address, mark, place = text.removeprefix(AGENT_PREFIX).partition("#")
    match = _ADDRESS.fullmatch(address) or _ADDRESS.fullmatch(f"{address}:{DEFAULT_PORT}")
    found = "/" in address or (match is not None and 1 <= int(match["port"]) <= 65535)
    if not found or (mark and not (place.isascii() and place.isdigit())):
        raise TargetError(
            "bad_address",
            f"{origin}: {text!r} is not agent:HOST:PORT, agent:HOST or agent:PATH of a local socket, nor one of these "
            "with #N, where N is the number of one of its devices",
        )
    return text
