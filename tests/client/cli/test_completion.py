"""Test what shells offer to complete a command line, and the scripts that ask for it."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.client.commands import Gputune

Completed = Callable[[str], list[str]]
"""Gives the values that are offered for the last word of a line, as bash asks for them."""
PATH = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"


@pytest.fixture
def completed(gputune: Gputune, monkeypatch: pytest.MonkeyPatch) -> Completed:
    def ask(line: str) -> list[str]:
        asked = {"_GPUTUNE_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
        with monkeypatch.context() as patched:
            for name, value in asked.items():
                patched.setenv(name, value)
            ran = gputune()
        assert ran.code == 0, ran.err
        return [entry.partition(",")[2] for entry in ran.out.splitlines()]

    return ask


@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("gputune show", ["show-kernel"]),
        ("gputune performance-cache pr", ["prune"]),
        ("gputune net-run --retrieve_c", ["--retrieve_context"]),
        ("gputune target-server --log_", ["--log_level", "--log_format"]),
        ("gputune target-server --log_format j", ["json"]),
        ("gputune target-server --device nu", ["null"]),
        ("gputune target-server --perf_profile bu", ["burst"]),
        ("gputune net-run --perf_profile bu", ["burst"]),
        ("gputune context-binary-generator --device wai", ["waiting"]),
        ("gputune completion f", ["fish"]),
    ],
)
def test_names_are_completed(
    completed: Completed, line: str, offered: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
    assert completed(line) == offered


def test_tiers_are_completed_from_the_folder_that_is_named(completed: Completed, tmp_path: Path) -> None:
    for name in ("adreno-740", "adreno-830", "mali"):
        (tmp_path / f"{name}.sqlite").touch()
    folder = f"--performance_cache_dir {tmp_path}"
    assert completed(f"gputune context-binary-generator {folder} --device_tier adr") == ["adreno-740", "adreno-830"]
    assert completed(f"gputune performance-cache show {folder} ma") == ["mali"]
    assert completed(f"gputune performance-cache show {folder} ./ma") == ["./ma"], "which bash completes as a file"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(gputune: Gputune, shell: str, tmp_path: Path) -> None:
    ran = gputune("completion", shell)
    assert (ran.code, "_GPUTUNE_COMPLETE" in ran.out, shell in ran.out) == (0, True, True)
    if shutil.which(shell):
        (script := tmp_path / "script").write_text(ran.out)
        subprocess.run([shell, "-n", script], check=True)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("bash"), reason="there is no bash")
def test_bash_completes_by_the_script(gputune: Gputune) -> None:
    """As a person does who presses tab: the function that the script registers fills COMPREPLY."""
    script = gputune("completion", "bash").out
    words = 'COMP_WORDS=(gputune farm wor); COMP_CWORD=2; _gputune_completion gputune; echo "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "-c", f"{script}\n{words}"], env={**os.environ, "PATH": PATH}, capture_output=True, text=True
    )
    assert done.stdout.split() == ["worker"], done.stderr
