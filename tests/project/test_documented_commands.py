"""Test every gputune command of README and docs/, and the code of the tutorial and of the page about Python.

Commands run inside this process, and servers as processes. At night, and by scripts/try-wheel, all are processes.
"""

import contextlib
import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

import documented
import tool
from documented import Ended
from gputune.client.cli.main import main
from tests.conftest import share_native_parts
from tests.shared_server import SharedServer

BIN = Path(sys.executable).parent
PAGES = documented.pages()
NIGHT = {
    "comparing.md": "README and the tutorial compare, too",
    "farm.md": "starts seven processes; tests/client/farm has each command",
    "index.md": "has README's commands",
    "operating.md": "starts six servers; tests/server has each way to reach one",
    "troubleshooting.md": "tests every driver",
}
"""Pages with dear commands, and why each can wait for the night."""

by_page = pytest.mark.parametrize(
    "page", [pytest.param(page, id=page.name, marks=[pytest.mark.night] * (page.name in NIGHT)) for page in PAGES]
)


class Here:
    """Run plain commands in this process, with one cache and no driver; those that tune share a server."""

    def __init__(self, server: SharedServer, folder: Path) -> None:
        self.server = server.variables()
        self.own = {"XDG_CACHE_HOME": str(folder), "OCL_ICD_VENDORS": str(folder), "OPENCL_VENDOR_PATH": str(folder)}
        self.capture: Any = None

    def __call__(self, command: str, folder: Path, environment: Mapping[str, str]) -> Ended:
        if not command.startswith("gputune ") or re.search("[|<>;&]", command):
            return documented.in_a_shell(command, folder, environment)
        shared = re.search("-generator|show-kernel|explain", command) and not re.search("--target|--device", command)
        environment = {**environment, **self.own, **(self.server if shared else {})}
        expanded = ["bash", "-c", f"printf '%s\\0' {command}"]
        words = subprocess.run(expanded, cwd=folder, env=environment, capture_output=True, text=True).stdout.split("\0")
        self.capture.readouterr()
        with (
            mock.patch.dict(os.environ, environment, clear=True),
            contextlib.chdir(folder),
            pytest.raises(SystemExit) as ended,
        ):
            main(words[1:-1])
        return Ended(int(ended.value.code or 0), "".join(self.capture.readouterr()))


@pytest.fixture(scope="session")
def user_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("user")
    share_native_parts(tmp_path_factory, folder)
    return folder


@pytest.fixture
def here(null_server: SharedServer, user_folder: Path, capfd: pytest.CaptureFixture[str]) -> Here:
    found = Here(null_server, user_folder)
    found.capture = capfd
    return found


def run_code(page: Path, folder: Path, here: Here) -> None:
    """Run the code of a page in order, on the null device, which has to be asked for."""
    blocks = re.findall(r"^```python\n(.*?)^```", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    code = re.sub(r"\bload\(([^)]+)\)", r'load(\1, "null")', "".join(blocks))
    own = {"GPUTUNE_DEVICE": "null", **here.own, **here.server}
    with mock.patch.dict(os.environ, own), contextlib.chdir(folder):
        exec(compile(code, page.name, "exec"), {"__name__": page.stem})


@pytest.mark.slow
@by_page
def test_the_commands_of_a_page_work(
    page: Path, here: Here, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    share_native_parts(tmp_path_factory, tmp_path / "cache")
    run = documented.in_a_shell if page.name in NIGHT else here
    failures = documented.run_page(page, BIN, run, tmp_path)
    assert not failures, "\n\n".join(f"{one.command}\n{one.said}" for one in failures)
    if page.name == "tutorial.md":
        run_code(page, tmp_path, here)
        assert all((tmp_path / name).stat().st_size for name in ("report.html", "gain.svg"))
        assert (tmp_path / "results" / "Result_0" / "y.raw").stat().st_size == 4 * 4


@pytest.mark.slow
def test_the_code_of_the_page_about_python_runs(here: Here, tmp_path: Path) -> None:
    documented.save_model(tmp_path / "model.onnx", "n")
    run_code(tool.ROOT / "docs" / "python.md", tmp_path, here)
    assert "-> y float32[1, 4]" in here.capture.readouterr().out


def test_commands_are_taken_from_all_of_a_page_and_without_comments(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```sh\ngputune a \\\n  --b\npip install x\n```\n```\ngputune c\n```\n```sh\ngputune d   # why\n```\n"
    )
    assert [line.split() for line in documented.commands(page)] == [["gputune", "a", "--b"], ["gputune", "d"]]


@pytest.mark.slow
def test_what_fails_is_told_with_its_output(here: Here, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    failing = "gputune net-run --retrieve_context no.bin --input_list inputs.txt"
    page.write_text(f"```sh\ngputune power presets\n{failing}\n{failing} > said\n```\n")
    told = documented.run_page(page, BIN, here)
    assert [one.command for one in told] == [failing, f"{failing} > said"]
    assert all("no.bin" in one.said for one in told)


def test_no_block_of_commands_is_left_out_because_its_language_is_not_said() -> None:
    for page in PAGES:
        blocks = re.findall(r"^```(.*)\n((?:.|\n)*?)^```$", page.read_text(encoding="utf-8"), re.MULTILINE)
        assert not [text for name, text in blocks if name != "sh" and re.search(r"^gputune ", text, re.MULTILINE)]
