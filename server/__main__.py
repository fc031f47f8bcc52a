"""The target server's command line: `python -m gputune.server`, the same as `gputune target-server`.

Exit codes: 0 stopped by SIGINT, SIGTERM or the end of its parent; 1 no device, no port or no local socket; 2 wrong
usage.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import stat
import sys
from collections.abc import Sequence
from pathlib import Path

from gputune.core.errors import DeviceNotFound
from gputune.core.logs import LEVELS, printable
from gputune.runtime.devices.discovery import Choice, find, wanted_device
from gputune.runtime.power.instances import chosen_profile
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.runtime.power.profiles.presets import PRESETS
from gputune.server import logs
from gputune.server.clients.authentication import Authentication, server_context
from gputune.server.clients.listener import CannotListen, Exposed, Listener
from gputune.server.clients.local_socket import LocalListener
from gputune.server.daemon import Daemon
from gputune.server.protocol.authentication import read_token
from gputune.server.protocol.messages import DEFAULT_PORT, Welcome
from gputune.server.workers.process import DeviceUnavailable

TOKEN_VARIABLE = "GPUTUNE_TOKEN"
DEFAULT_HOST = "127.0.0.1"


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    result = argparse.ArgumentParser(
        prog="gputune target-server",
        description="Compiles, measures and executes OpenCL kernels for a host, over TCP or a local socket.",
    )
    result.add_argument("--host", help=f"address to listen on (default: {DEFAULT_HOST})")
    result.add_argument("--port", type=_port, help=f"TCP port, 0 picks a free one (default: {DEFAULT_PORT})")
    result.add_argument(
        "--unix",
        type=Path,
        metavar="PATH",
        help="listen on a local socket instead of a port: a new file that only this user can open, for clients on this "
        "machine (--target unix:PATH), whose memory the device then uses as it lies",
    )
    result.add_argument(
        "--device",
        help="part of a device's name, its number in `gputune devices`, null, waiting, or replay:FILE, which "
        "answers from a recording (default: GPUTUNE_DEVICE, else a GPU, else the best CPU)",
    )
    result.add_argument(
        "--token_file",
        type=Path,
        metavar="FILE",
        help="a file with a secret of at least 16 characters that clients must know too, readable by its owner "
        "only (default: GPUTUNE_TOKEN); needed for a --host that the network reaches",
    )
    result.add_argument("--tls_cert", type=Path, metavar="FILE", help="PEM certificate: serve over TLS only")
    result.add_argument("--tls_key", type=Path, metavar="FILE", help="its PEM key (default: in the same file)")
    result.add_argument(
        "--tls_ca", type=Path, metavar="FILE", help="PEM certificates: let in only clients that one of these has signed"
    )
    result.add_argument(
        "--perf_profile",
        metavar="NAME",
        help=f"which clocks and power to ask the device for while it works for clients that say nothing else: "
        f"{', '.join(PRESETS)} (default: the device is left as it is)",
    )
    result.add_argument(
        "--perf_config_yaml", type=Path, metavar="FILE", help="the same from a file in the form of the original tools"
    )
    result.add_argument("--log_level", choices=LEVELS, default="warn", help="(default: %(default)s)")
    result.add_argument(
        "--log_format", choices=logs.FORMATTERS, default="text", help="json: one object a line (default: %(default)s)"
    )
    result.add_argument(
        "--exit_with_parent",
        action="store_true",
        help="stop when standard input ends; for a program that starts the server for itself",
    )
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the server until it is told to stop; returns the exit code."""
    token_text = os.environ.pop(TOKEN_VARIABLE, None)  # no child shall see it
    options = parser().parse_args(arguments)
    if options.exit_with_parent and not stat.S_ISFIFO(os.fstat(sys.stdin.fileno()).st_mode):
        parser().error("--exit_with_parent needs a pipe as standard input")
    logs.set_up(options.log_level, options.log_format, sys.stderr)
    try:
        authentication = _authentication(options, token_text)
        perf_profile = chosen_profile(options.perf_profile, options.perf_config_yaml)
        listener = _listener(options, authentication.token is not None)
    except (ValueError, Exposed) as error:
        return _fail(str(error), 2)
    except OSError as error:
        return _fail(f"--perf_config_yaml: {options.perf_config_yaml} cannot be read: {error.strerror}", 2)
    except CannotListen as error:
        return _fail(str(error), 1)
    try:
        choice = find(wanted_device(options.device))
        print("\n".join(map(printable, choice.explanation)), flush=True)
        asyncio.run(_serve(listener, choice, authentication, options.exit_with_parent, perf_profile))
    except (CannotListen, DeviceNotFound, DeviceUnavailable, OSError) as error:
        return _fail(str(error), 1)
    except KeyboardInterrupt:  # before the loop has taken over the signals
        pass
    finally:
        listener.close()
    return 0


async def _serve(
    listener: Listener | LocalListener,
    choice: Choice,
    authentication: Authentication,
    exit_with_parent: bool,
    perf_profile: PerfProfile | None,
) -> None:
    loop = asyncio.get_running_loop()
    identity = choice.report.identity
    # what a processor compiles beside a measurement on itself spoils that
    overlap = identity is not None and identity.device_type != "cpu"
    daemon = Daemon(listener, choice.report, authentication=authentication, overlap=overlap, perf_profile=perf_profile)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, daemon.stop)

    def read_parent() -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            loop.remove_reader(sys.stdin.fileno())
            daemon.stop_now()

    if exit_with_parent:
        loop.add_reader(sys.stdin.fileno(), read_parent)

    def announce(welcome: Welcome) -> None:
        name = welcome.device["name"]
        print(f"gputune target server listening on {listener.address} (device: {printable(name)})", flush=True)

    await daemon.serve(announce)


def _listener(options: argparse.Namespace, protected: bool) -> Listener | LocalListener:
    """What the options say is listened on. Raises ValueError with one line, Exposed, CannotListen."""
    if options.unix is None:
        host, port = options.host or DEFAULT_HOST, DEFAULT_PORT if options.port is None else options.port
        return Listener(host, port, protected)
    for name in ("host", "port", "tls_cert"):
        if getattr(options, name) is not None:
            raise ValueError(f"--unix is a local socket, and --{name} is for TCP; drop one")
    return LocalListener(options.unix)


def _authentication(options: argparse.Namespace, token_text: str | None) -> Authentication:
    """Which clients are let in. Raises ValueError with one line."""
    for name in ("tls_key", "tls_ca"):
        if getattr(options, name) is not None and options.tls_cert is None:
            raise ValueError(f"--{name} needs --tls_cert, the certificate that the server shows")
    source = options.token_file or token_text
    return Authentication(
        token=None if source is None else read_token(source),
        tls=server_context(options.tls_cert, options.tls_key, options.tls_ca) if options.tls_cert else None,
    )


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (0 to 65535)")
    return int(text)


def _fail(message: str, code: int) -> int:
    print(f"gputune target-server: error: {printable(message)}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
