"""Define the options of the target server. `gputune target-server` shows them in its help."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Literal, NoReturn, get_args

from gputune.core.logs import LEVELS, printable
from gputune.core.version import software_version
from gputune.runtime.power.profiles.presets import PRESETS
from gputune.server.protocol.messages import DEFAULT_PORT

DEFAULT_HOST = "127.0.0.1"
LogFormat = Literal["text", "json"]
USAGE_ERROR = 2
NO_DEVICE_THERE = "the agent has no device that works"
"""The start of what is said about an agent that answers, and cannot open a device."""


class _Parser(argparse.ArgumentParser):
    """Tell a wrong call in one line, as all commands of gputune do."""

    def error(self, message: str) -> NoReturn:
        print(f"error: {self.prog}: {printable(message)}; see `{self.prog} --help`", file=sys.stderr)
        sys.exit(USAGE_ERROR)


def parser() -> argparse.ArgumentParser:
    """Return the options of the command."""
    result = _Parser(
        prog="gputune target-server",
        usage="%(prog)s [OPTIONS]",
        description="Serve this machine's device to hosts: compile, measure and run OpenCL kernels for them, over TCP "
        "or a local socket.",
        allow_abbrev=False,
    )
    add = result.add_argument
    add("--version", action="version", version=software_version(), help="Show the version and exit.")
    add("--host", metavar="HOST", help=f"Address to listen on.  [default: {DEFAULT_HOST}]")
    add("--port", type=_port, metavar="PORT", help=f"TCP port; 0 picks a free one.  [default: {DEFAULT_PORT}]")
    add(
        "--unix",
        type=Path,
        metavar="PATH",
        help="Listen on a local socket instead of a port: a new file that only you can open, for clients on this "
        "machine (--target unix:PATH). The device uses their memory without a copy.",
    )
    add(
        "--device",
        metavar="D",
        help="Number, or part of the name, of a device in `gputune devices`; agent:HOST:PORT for a gputune-agent whose "
        "token is in GPUTUNE_AGENT_TOKEN; null, waiting, or replay:FILE, which answers from a recording.  [default: "
        "GPUTUNE_DEVICE, else a GPU, else the best CPU]",
    )
    add(
        "--token_file",
        type=Path,
        metavar="F",
        help="File with a secret of at least 16 characters that clients must know too; only you can read it. Required "
        "for a --host that the network reaches.  [default: GPUTUNE_TOKEN]",
    )
    add("--tls_cert", type=Path, metavar="F", help="PEM certificate; serve over TLS only.")
    add("--tls_key", type=Path, metavar="F", help="PEM key of --tls_cert.  [default: in the same file]")
    add(
        "--tls_ca",
        type=Path,
        metavar="F",
        help="PEM certificates of authorities; accept only clients with a certificate that one of them has signed.",
    )
    add(
        "--perf_profile",
        metavar="NAME",
        help="Clocks and power to request while the device works for clients that request nothing else: "
        f"{', '.join(PRESETS)}.  [default: leave the device as it is]",
    )
    add(
        "--perf_config_yaml",
        type=Path,
        metavar="F",
        help="Perf profile from a YAML file in the original tools' format.",
    )
    add(
        "--log_level",
        choices=tuple(LEVELS),
        default="warn",
        help="Print messages of this level and above.  [default: warn]",
    )
    add(
        "--log_format",
        choices=get_args(LogFormat),
        default="text",
        help="Format of messages; json writes an object for each line.  [default: text]",
    )
    add(
        "--exit_with_parent",
        action="store_true",
        help="Stop when standard input ends, for a program that starts its own server.",
    )
    return result


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (0 to 65535)")
    return int(text)
