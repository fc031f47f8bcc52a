"""Run the command `gputune` as `python -m gputune`. If only the device's part is installed, say what to do."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line, and end the process with its exit code, 1 where there is no command line."""
    try:
        from gputune.client.cli.main import main as command_line
    except ModuleNotFoundError as error:
        if error.name != "gputune.client":
            raise
        sys.exit(
            "gputune: error: this installation has only the part for devices; start its target server with"
            " `python -m gputune.server`, or install all of gputune with pip"
        )
    command_line()


if __name__ == "__main__":
    main()
