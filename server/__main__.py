"""Run the target server as `python -m gputune.server`, the same as `gputune target-server`.

Exit codes, as of all commands: 0 stopped by SIGINT, SIGTERM or the end of its parent; 1 refused by the system; 2 wrong
usage; 4 no port or no local socket, for example because another program has it; 8 no device.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import stat
import sys
from collections.abc import Sequence

from gputune.core.errors import DeviceNotFound
from gputune.core.logs import printable
from gputune.runtime.devices.discovery import Choice, wanted_device
from gputune.runtime.power.profiles.chosen import chosen_profile
from gputune.runtime.power.profiles.perf_profile import PerfProfile
from gputune.server import logs
from gputune.server.agent.opening import find_device
from gputune.server.clients.authentication import Authentication, server_context
from gputune.server.clients.listener import CannotListen, Exposed, Listener
from gputune.server.clients.local_socket import LocalListener
from gputune.server.daemon import Daemon
from gputune.server.options import DEFAULT_HOST, USAGE_ERROR, parser
from gputune.server.protocol.authentication import read_token
from gputune.server.protocol.messages import DEFAULT_PORT, Welcome
from gputune.server.workers.process import DeviceUnavailable

TOKEN_VARIABLE = "GPUTUNE_TOKEN"
NO_DEVICE = 8
"""The exit code where no device works, as of all commands."""
CANNOT_LISTEN = 4
"""That of a target, or a farm's scheduler, which is not there."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the server until it is told to stop, and return the exit code."""
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
        return _fail(str(error), USAGE_ERROR)
    except OSError as error:
        return _fail(f"--perf_config_yaml: {options.perf_config_yaml} cannot be read: {error.strerror}", USAGE_ERROR)
    except CannotListen as error:
        return _fail(str(error), CANNOT_LISTEN)
    try:
        choice = find_device(wanted_device(options.device))
        print("\n".join(map(printable, choice.explanation)), flush=True)
        asyncio.run(_serve(listener, choice, authentication, options.exit_with_parent, perf_profile))
    except (DeviceNotFound, DeviceUnavailable) as error:
        return _fail(str(error), NO_DEVICE)
    except CannotListen as error:
        return _fail(str(error), CANNOT_LISTEN)
    except OSError as error:
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
    """Return what the options say is listened on. Raises ValueError with one line, Exposed, CannotListen."""
    if options.unix is None:
        host, port = options.host or DEFAULT_HOST, DEFAULT_PORT if options.port is None else options.port
        return Listener(host, port, protected)
    for name in ("host", "port", "tls_cert"):
        if getattr(options, name) is not None:
            raise ValueError(f"--unix is a local socket, and --{name} is for TCP; drop one")
    return LocalListener(options.unix)


def _authentication(options: argparse.Namespace, token_text: str | None) -> Authentication:
    """Return which clients are let in. Raises ValueError with one line."""
    for name in ("tls_key", "tls_ca"):
        if getattr(options, name) is not None and options.tls_cert is None:
            raise ValueError(f"--{name} needs --tls_cert, the certificate that the server shows")
    source = options.token_file or token_text
    return Authentication(
        token=None if source is None else read_token(source),
        tls=server_context(options.tls_cert, options.tls_key, options.tls_ca) if options.tls_cert else None,
    )


def _fail(message: str, code: int) -> int:
    print(f"error: {printable(message)}", file=sys.stderr)
    return code


if __name__ == "__main__":
    sys.exit(main())
