"""Test that the agent is built by a C compiler alone: for this machine, and by an NDK's compiler for phones."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.native.conftest import c_compiler as c_compiler

ROOT = Path(__file__).parents[2]
PYTHONS = ("python3", "python3.14", "python3.13", "python3.12", "python3.11", "python", "pip", "apt-get", "sudo")


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """A checkout without an environment, where Python and apt-get only write down that they were called."""
    root = tmp_path / "clone"
    (root / "scripts").mkdir(parents=True)
    for name in ("setup", "build-target"):
        shutil.copy(ROOT / "scripts" / name, root / "scripts" / name)
    (root / "runtime").mkdir()
    (root / "runtime" / "native").symlink_to(ROOT / "runtime" / "native")
    (root / "bin").mkdir()
    for name in PYTHONS:
        (root / "bin" / name).write_text(f'#!/bin/sh\necho "$0 $*" >>{root}/called\nexit 1\n')
        (root / "bin" / name).chmod(0o755)
    return root


def built(clone: Path, *options: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """What the command says. Raises AssertionError if it has called Python, or made anything but what it builds."""
    command = [str(clone / "scripts" / "build-target"), *options]
    kept = {name: text for name, text in os.environ.items() if name not in ("CC", "ANDROID_NDK_HOME")}
    environment = kept | {"PATH": f"{clone / 'bin'}:{os.environ['PATH']}"} | variables
    ran = subprocess.run(command, cwd=clone.parent, env=environment, capture_output=True, text=True)
    assert not (clone / "called").exists(), (clone / "called").read_text()
    assert {path.name for path in clone.iterdir()} <= {"scripts", "runtime", "bin", "build"}
    return ran


@pytest.mark.night
@pytest.mark.usefixtures("c_compiler")
def test_the_agent_for_this_machine_is_small_runs_and_takes_no_python(clone: Path) -> None:
    ran = built(clone, "--agent", "native")
    path = clone / "build" / "agents" / "native" / "gputune-agent"
    assert ran.stdout.startswith(f"{path}: {path.stat().st_size} bytes, SHA-256 "), ran.stderr
    assert path.stat().st_size <= 400_000
    assert subprocess.run([path, "--help"], capture_output=True, text=True, check=True).stdout.startswith("usage:")
    done = subprocess.run([path, "--wrong"], capture_output=True, text=True)
    assert done.returncode == 2 and "--wrong" in done.stderr
    done = subprocess.run([path], capture_output=True, text=True, env={})
    assert done.returncode == 1 and "GPUTUNE_TOKEN" in done.stderr


def test_a_phones_agent_is_built_by_the_ndk(clone: Path, tmp_path: Path) -> None:
    """By a stand-in for the compiler, which writes its arguments to the program."""
    system = subprocess.run(["uname", "-s"], capture_output=True, text=True, check=True).stdout.strip().lower()
    folder = tmp_path / f"toolchains/llvm/prebuilt/{system}-x86_64/bin"
    folder.mkdir(parents=True)
    stand_in = folder / "aarch64-linux-android24-clang"
    stand_in.write_text('#!/bin/sh\nfor last; do :; done; echo "$*" >"$last"\n', encoding="ascii")
    stand_in.chmod(0o755)
    options = ("--agent=aarch64-linux-android", "--output=new/agent")
    ran = built(clone, *options, ANDROID_NDK_HOME=str(tmp_path))
    assert ran.returncode == 0, ran.stderr
    given = (tmp_path / "new" / "agent").read_text().split()  # relative to where the command was called
    sources = {path for folder in ("src", "agent") for path in (ROOT / "runtime/native" / folder).rglob("*.c")}
    assert {ROOT / path for path in given if path.endswith(".c")} == sources
    assert {"-std=c99", "-pthread", "-ldl", "-lm"} <= {*given}


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--agent", "aarch64-linux-android"], 1, "set ANDROID_NDK_HOME"),
        (["--agent", "nothing-has-this"], 1, "there is no nothing-has-this-gcc; install it (Debian's gcc-nothing-has"),
        (["--agent"], 2, "--agent lacks a value"),
        (["--agnt", "native"], 2, "there is no option '--agnt'"),
        (["--agent="], 2, "an option is empty"),
    ],
)
def test_what_is_missing_or_wrong_is_named(clone: Path, options: list[str], code: int, words: str) -> None:
    ran = built(clone, *options)
    assert (ran.returncode, words in ran.stderr) == (code, True), ran.stderr


def test_an_ndk_without_the_compiler_is_refused(clone: Path, tmp_path: Path) -> None:
    ran = built(clone, "--agent", "armv7a-linux-androideabi", ANDROID_NDK_HOME=str(tmp_path))
    assert ran.returncode == 1 and "there is no " in ran.stderr and "clang" in ran.stderr


def test_a_compiler_that_fails_says_why(clone: Path) -> None:
    ran = built(clone, "--agent", "native", CC="false")
    assert ran.returncode == 1 and "false cannot build the agent" in ran.stderr
