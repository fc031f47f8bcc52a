"""Load a target server for a while and report whether it stayed fair and healthy.

    soak clients  [--clients 50] [--seconds 60]     all measure all the time: who gets how much?
    soak sessions [--sessions 10000]                come, upload, measure, go or vanish: what stays behind?
    soak run      [--hours 2] [--device NAME]       everything at once, with a line a minute

Each takes --json FILE. Ctrl-C ends a run early; its verdict is on what was seen until then. The exit code is 1 if
something was not as promised.
"""

import argparse
import sys
from pathlib import Path

from stress.server import soak_crowd, soak_run, soak_sessions
from stress.server.crew import Promises


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/stress/server/soak", description=(__doc__ or "").splitlines()[0])
    commands = parser.add_subparsers(dest="what", required=True)
    clients = commands.add_parser("clients", help="many clients that measure all the time: who gets how much?")
    clients.add_argument("--clients", type=_count, default=50, help="(default: %(default)s)")
    clients.add_argument("--seconds", type=float, default=60.0, help="(default: %(default)s)")
    sessions = commands.add_parser("sessions", help="many sessions, some of which vanish: what stays behind?")
    sessions.add_argument("--sessions", type=_count, default=10_000, help="(default: %(default)s)")
    run = commands.add_parser("run", help="everything at once, with a line a minute")
    run.add_argument("--hours", type=float, default=2.0, help="(default: %(default)s)")
    run.add_argument("--device", default="null", help="as gputune's --device (default: %(default)s)")
    for command in (clients, sessions, run):
        command.add_argument("--json", type=Path, help="write the figures to this file as well")
    options = parser.parse_args()
    promises = Promises()
    try:
        if options.what == "clients":
            figures = soak_crowd.soak(options.clients, options.seconds, promises)
        elif options.what == "sessions":
            figures = soak_sessions.soak(options.sessions, promises)
        else:
            figures = soak_run.soak(options.device, options.hours * 3600, promises)
    except KeyboardInterrupt:  # before or after the time that can be shortened
        print("soak: interrupted", file=sys.stderr)
        return 130
    except RuntimeError as error:
        print(f"soak: {error}", file=sys.stderr)
        return 1
    return promises.report(figures, options.json)


def _count(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a count of at least 1")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
