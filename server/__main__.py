"""The target server's command line: `python -m gputune.server`, the same as `gputune target-server`.

Exit codes: 0 stopped by SIGINT, SIGTERM or the end of its parent; 1 no device or no port; 2 wrong usage.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import stat
import sys
from collections.abc import Sequence

from gputune.runtime.devices import NULL, Choice, choose, discover, wanted_device
from gputune.runtime.errors import DeviceNotFound
from gputune.server.daemon import CannotListen, Daemon, DeviceUnavailable, Listener
from gputune.server.protocol.messages import DEFAULT_PORT, Welcome

LOG_LEVELS = {
    "error": logging.ERROR,
    "warn": logging.WARNING,
    "info": logging.INFO,
    "verbose": logging.DEBUG,
}


def parser() -> argparse.ArgumentParser:
    """The options of the command."""
    result = argparse.ArgumentParser(
        prog="gputune target-server",
        description="Compiles, profiles and executes OpenCL kernels for a host that connects over TCP.",
    )
    result.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    result.add_argument(
        "--port", type=_port, default=DEFAULT_PORT, help="TCP port, 0 picks a free one (default: %(default)s)"
    )
    result.add_argument(
        "--device",
        help="part of a device's name, its number in `gputune devices`, or null (default: GPUTUNE_DEVICE, "
        "else a GPU, else the best CPU)",
    )
    result.add_argument("--log_level", choices=LOG_LEVELS, default="warn", help="(default: %(default)s)")
    result.add_argument(
        "--exit_with_parent",
        action="store_true",
        help="stop when standard input ends; for a program that starts the server for itself",
    )
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the server until it is told to stop; returns the exit code."""
    options = parser().parse_args(arguments)
    if options.exit_with_parent and not stat.S_ISFIFO(os.fstat(sys.stdin.fileno()).st_mode):
        parser().error("--exit_with_parent needs a pipe as standard input")
    logging.basicConfig(
        level=LOG_LEVELS[options.log_level], stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s"
    )
    try:
        listener = Listener(options.host, options.port)
        if not listener.is_loopback:
            print(
                f"warning: {listener.address} is open to the network and there is no authentication yet: "
                "whoever reaches this port can run code on the device",
                file=sys.stderr,
            )
        choice = _choice(wanted_device(options.device))
        print("\n".join(choice.explanation), flush=True)
        asyncio.run(_serve(listener, choice, options.exit_with_parent))
    except (CannotListen, DeviceNotFound, DeviceUnavailable, OSError) as error:
        return _fail(str(error))
    except KeyboardInterrupt:  # before the loop has taken over the signals
        pass
    return 0


async def _serve(listener: Listener, choice: Choice, exit_with_parent: bool) -> None:
    loop = asyncio.get_running_loop()
    daemon = Daemon(listener, choice.report)
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, daemon.stop)

    def read_parent() -> None:
        if not os.read(sys.stdin.fileno(), 4096):
            loop.remove_reader(sys.stdin.fileno())
            daemon.stop()

    if exit_with_parent:
        loop.add_reader(sys.stdin.fileno(), read_parent)

    def announce(welcome: Welcome) -> None:
        name = welcome.device["name"]
        print(f"gputune target server listening on {listener.address} (device: {name})", flush=True)

    await daemon.serve(announce)


def _choice(wanted: str | None) -> Choice:
    return choose([] if wanted == NULL else discover(), wanted)


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port (0 to 65535)")
    return int(text)


def _fail(message: str) -> int:
    print(f"gputune target-server: error: {message}", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main())
