"""Test that README and docs/ are true: options and files exist, tables match the code."""

import os
import re
from functools import cache
from pathlib import Path

import pytest
from click.testing import CliRunner

import bench
import docs
import documented
from gputune.client import advice, errors
from gputune.client.cli import main, model_check, say
from gputune.client.options.viewer import SLOWER
from gputune.client.tuning.search import effort
from gputune.kernels.catalogue import families
from gputune.server.protocol.errors import ERROR_NAMES

from .sources import ROOMS, ROOT, python_files

README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCS = {page.name: page.read_text(encoding="utf-8") for page in sorted((ROOT / "docs").glob("*.md"))}


@pytest.mark.parametrize("page", sorted(ROOT.glob("*.md")) + sorted(ROOT.glob("[a-z]*/*.md")), ids=lambda p: p.name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    targets = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    dead = [target for target in targets if ":" not in target and not (page.parent / target).exists()]
    assert dead == []


COMMANDS = [line for page in documented.pages() for line in documented.commands(page) if line.startswith("gputune ")]


@cache
def options_of(*words: str) -> frozenset[str]:
    """The options that a command's own help names."""
    shown = CliRunner().invoke(main.cli, [*words, "--help"])
    assert shown.exit_code == 0, shown.output
    return frozenset(re.findall(r"--[a-z][a-z_]*", shown.output))


@pytest.mark.parametrize("command", dict.fromkeys(COMMANDS))
def test_every_option_of_a_command_exists(command: str) -> None:
    words = command.split()
    first = next((place for place, word in enumerate(words) if word.startswith("--")), len(words))
    used = {word for word in words[first:] if word.startswith("--")}
    assert used <= options_of(*words[1:first])


def test_options_in_the_text_exist() -> None:
    commands_with_options = [name for name in main.COMMANDS if name != "performance-cache"]
    inner = [
        options_of("power", "check"),
        *(options_of("farm", name) for name in ("init", "scheduler", "tune", "worker", "status")),
    ]
    programs = (ROOT / "runtime" / "native" / name for name in ("main.c", "agent/main.c"))
    run = {name for path in programs for name in re.findall(r'"  (--[a-z_]+)', path.read_text(encoding="utf-8"))}
    script = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "scripts" / "benchmarks").rglob("*.py"))
    known = {"--opencl", *re.findall(r'"(--[a-z_]+)"', script)}
    known = known.union(run, *inner, *map(options_of, commands_with_options))
    for page in (README, *DOCS.values()):
        assert set(re.findall(r"`(--[a-z_]+)", page)) <= known


def test_the_scripts_it_names_are_there() -> None:
    for name in sorted(set(re.findall(r"scripts/[\w-]+(?![\w.-])", README))):
        assert os.access(ROOT / name, os.X_OK), f"{name} is not an executable file"


def test_modules_that_texts_name_are_there() -> None:
    """Of pages, docstrings and comments."""
    texts = [*python_files(*ROOMS), *ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")]
    known = "".join(f"/{path.relative_to(ROOT)}\n" for path in python_files(*ROOMS, "examples", "scripts", "tests"))
    named = [
        (path.name, name)
        for path in texts
        if path.name != "CHANGELOG.md"
        for name in re.findall(r"(?<![\w./-])(?:[a-z_]+/)*[a-z_]+\.py\b", path.read_text(encoding="utf-8"))
    ]
    assert [(page, name) for page, name in named if f"/{name}\n" not in known] == []


def test_the_exit_codes_are_those_of_the_errors() -> None:
    rows = re.findall(r"^\| (\d+) \|", DOCS["troubleshooting.md"], re.MULTILINE)
    kinds: list[type[errors.GputuneError]] = [errors.GputuneError, *errors.GputuneError.__subclasses__()]
    # 7: errors of the performance cache, which have no code of their own.
    of_the_command_itself = {0, 7, model_check.RUNS_NOT, SLOWER, say.INTERRUPTED}
    assert {int(row) for row in rows} == {kind.exit_code for kind in kinds} | of_the_command_itself


def test_every_error_of_a_target_is_explained() -> None:
    """Those of the protocol, and those of the client, each with what to do."""
    section = DOCS["operating.md"].split("\n## Errors\n", 1)[1]
    named = {name for row in re.findall(r"^\| ([a-z_, ]+) \|", section, re.MULTILINE) for name in row.split(", ")}
    assert named - {"name"} == {name for name in advice.ADVICE if not name.startswith("adb_")}
    assert set(ERROR_NAMES) <= named


def test_the_efforts_are_those_of_the_code() -> None:
    efforts = DOCS["options.md"].split("`--config_file`", 1)[0]
    assert set(re.findall(r"`([a-z]+)`", efforts)) == set(effort.EFFORTS)


def test_parts_that_the_code_decides_are_as_the_code_has_them(capsys: pytest.CaptureFixture[str]) -> None:
    """The operators of docs/operators.md, the keys of docs/options.md, the counts of kernels/README.md, the commands of
    scripts/README.md, the help of all commands."""
    assert docs.main(["--check"]) == 0, capsys.readouterr().out


def test_the_table_of_families_has_each_of_them_once() -> None:
    table = (ROOT / "kernels" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([A-Z][\w, ]+) \|", table, re.MULTILINE)
    assert sorted(name for row in rows for name in row.split(", ")) == sorted(families())


def test_every_command_and_benchmark_is_listed_with_a_sentence() -> None:
    page = (ROOT / "scripts" / "README.md").read_text(encoding="utf-8")
    listed = dict(re.findall(r"^- `([^`]+)`: (\S.*\.)$", page, re.MULTILINE))
    files = [path for path in (ROOT / "scripts").rglob("*") if path.is_file() and path.suffix != ".py"]
    commands = {path.relative_to(ROOT).as_posix() for path in files if os.access(path, os.X_OK)}
    assert commands | {f"scripts/bench {name}" for name in bench.BENCHES} <= listed.keys()
    assert {name.split()[0] for name in listed} == commands
