"""Test the help of every command: it fits a terminal of 80 columns, and each command has a version."""

import subprocess
import sys
from importlib.metadata import version

import pytest
from click.testing import CliRunner

from gputune.client.cli.main import COMMANDS as MAIN_COMMANDS
from gputune.client.cli.main import cli
from tables.interface import commands

COMMANDS = [words for words, _ in commands()]


@pytest.mark.parametrize("names", COMMANDS, ids=" ".join)
def test_help_fits_80_columns_and_every_command_has_a_version(names: tuple[str, ...]) -> None:
    ran = CliRunner(env={"COLUMNS": "80"}).invoke(cli, [*names, "--help"])
    assert ran.exit_code == 0
    assert [line for line in ran.output.splitlines() if len(line) > 80] == []

    ran = CliRunner().invoke(cli, [*names, "--version"])
    assert (ran.exit_code, ran.output) == (0, f"gputune {version('gputune')}\n")


LATE = (
    *("numpy", "onnx", "rich", "adbutils", "cryptography", "dask", "distributed", "gputune.kernels"),
    *("gputune.client.context", "gputune.client.model", "gputune.client.target", "gputune.client.tuning"),
    *("gputune.runtime.context.records", "gputune.runtime.devices", "gputune.runtime.native"),
)
LOADED = (
    ("import gputune", ("numpy", "gputune.client", "gputune.runtime")),
    *(
        (f"try: cli.main(['{name}', '--nope'], standalone_mode=False)\nexcept click.NoSuchOption: pass", LATE)
        for name in MAIN_COMMANDS
    ),
    ("import gputune.client.cli.net_run", ("adbutils",)),
)
"""Steps of one process, and what none of them may load. onnx, the importer and all kernels take more than a second of
processor time, numpy and adbutils a tenth, of which a person who completes an option has none to lose."""


def test_nothing_is_loaded_before_it_is_used() -> None:
    first, *others = (f"{code}\nprint({{*{names}}} & {{*sys.modules}})" for code, names in LOADED)
    program = "\n".join(("import sys", first, "import click; from gputune.client.cli.main import cli", *others))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["set()"] * len(LOADED)
