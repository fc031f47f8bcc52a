"""Test the help of every command: it fits a terminal of 80 columns, and each command has a version."""

import subprocess
import sys
from importlib.metadata import version

import pytest
from click.testing import CliRunner

from gputune.client.cli.context_binary_generator import command as generator
from gputune.client.cli.main import COMMANDS as MAIN_COMMANDS
from gputune.client.cli.main import cli
from tests.client.cli.command_tree import commands

COMMANDS = [words for words, _ in commands()]


def test_nested_commands_are_among_them() -> None:
    assert {(), ("net-run",), ("performance-cache", "explain"), ("farm", "tune"), ("power", "check")} <= {*COMMANDS}


@pytest.mark.parametrize("names", COMMANDS, ids=" ".join)
def test_help_fits_80_columns(names: tuple[str, ...]) -> None:
    ran = CliRunner(env={"COLUMNS": "80"}).invoke(cli, [*names, "--help"])
    assert ran.exit_code == 0
    assert [line for line in ran.output.splitlines() if len(line) > 80] == []


@pytest.mark.parametrize("names", COMMANDS, ids=" ".join)
def test_every_command_has_a_version(names: tuple[str, ...]) -> None:
    ran = CliRunner().invoke(cli, [*names, "--version"])
    assert (ran.exit_code, ran.output) == (0, f"gputune {version('gputune')}\n")


def test_the_generators_help_begins_with_its_main_options() -> None:
    shown = CliRunner().invoke(cli, ["context-binary-generator", "--help"]).output
    listed = [line.split()[0].rstrip(",") for line in shown.splitlines() if line.startswith("  -")]
    assert listed[:5] == ["--model", "--input_dimensions", "--tuning_effort", "--tuning_budget", "--target"]
    assert listed[-2:] == ["-h", "--backend"], "forms of other vendors are last"
    known = [max(parameter.opts, key=len) for parameter in generator.params]
    assert sorted(listed) == sorted([*known, "-h"]), "each option has its place"


def test_the_first_example_of_all_tunes_for_a_target() -> None:
    shown = CliRunner().invoke(cli, ["--help"]).output
    example, _, _ = shown.partition("# on the device again")
    assert "gputune context-binary-generator" in example and "--target device:22598" in example


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
