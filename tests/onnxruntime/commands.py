"""Run commands of gputune in a process of its own, one after the other: two OpenCL libraries cannot share a process.

`python commands.py`: reads a JSON list of arguments from each line, and answers with a line: the exit code and what the
command wrote to standard output and to standard error.
"""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from gputune.client.cli.main import main as gputune
from tests.client.commands import Ran

ROOT = Path(__file__).parents[2]


class Commands:
    """The process, with these variables."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        command, pipe = [sys.executable, "-m", __name__], subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, cwd=ROOT, text=True)

    def __enter__(self) -> "Commands":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def __call__(self, *arguments: object) -> Ran:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(list(map(str, arguments))) + "\n")
        self._process.stdin.flush()
        return Ran(*json.loads(self._process.stdout.readline()))


def run(arguments: list[str]) -> tuple[int, str, str]:
    """Return how a command ends and what it writes, C libraries included."""
    code = 0
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        os.dup2(out.fileno(), 1)
        os.dup2(err.fileno(), 2)
        try:
            gputune(arguments)
        except SystemExit as ended:
            code = int(ended.code or 0)
        said = []
        for stream, file in ((sys.stdout, out), (sys.stderr, err)):
            stream.flush()
            file.seek(0)
            said.append(file.read().decode())
    return code, said[0], said[1]


if __name__ == "__main__":
    with os.fdopen(os.dup(1), "w") as answers:
        for line in sys.stdin:
            print(json.dumps(run(json.loads(line))), file=answers, flush=True)
