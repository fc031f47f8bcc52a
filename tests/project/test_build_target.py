"""Test that the agent is built for this machine, and with an NDK's compiler for phones."""

import subprocess
import sys
from pathlib import Path

import pytest

import build_target
from tests.native.compiling import compiler
from tests.native.conftest import c_compiler as c_compiler


def run(monkeypatch: pytest.MonkeyPatch, *options: str) -> None:
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setattr(sys, "argv", ["build-target", *options])
    build_target.main()


@pytest.mark.usefixtures("c_compiler")
def test_the_agent_for_this_machine_is_small_and_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "new" / "agent"
    run(monkeypatch, "--agent", "native", "--output", str(path))
    assert capsys.readouterr().out.startswith(f"{path}: {path.stat().st_size} bytes")
    assert path.stat().st_size <= 400_000
    assert subprocess.run([path, "--help"], capture_output=True, text=True, check=True).stdout.startswith("usage:")
    done = subprocess.run([path, "--wrong"], capture_output=True, text=True)
    assert done.returncode == 2 and "--wrong" in done.stderr
    done = subprocess.run([path], capture_output=True, text=True, env={})
    assert done.returncode == 1 and "GPUTUNE_TOKEN" in done.stderr


@pytest.mark.usefixtures("c_compiler")
def test_a_phones_agent_is_built_by_the_ndk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "toolchains/llvm/prebuilt/linux-x86_64/bin"
    folder.mkdir(parents=True)
    stand_in = folder / f"aarch64-linux-android{build_target.ANDROID_API}-clang"
    stand_in.write_text(f'#!/bin/sh\nexec {compiler()} "$@"\n', encoding="ascii")
    stand_in.chmod(0o755)
    monkeypatch.setenv(build_target.NDK, str(tmp_path))
    monkeypatch.setattr("platform.system", lambda: "Linux")
    run(monkeypatch, "--agent", "aarch64-linux-android", "--output", str(tmp_path / "agent"))
    assert (tmp_path / "agent").stat().st_size > 0


@pytest.mark.parametrize(
    ("triple", "words"),
    [
        ("aarch64-linux-android", "set ANDROID_NDK_HOME"),
        ("nothing-has-this", "there is no nothing-has-this-gcc; install it"),
    ],
)
def test_a_compiler_that_is_missing_is_named(
    triple: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(build_target.NDK, raising=False)
    with pytest.raises(SystemExit, match=words):
        run(monkeypatch, "--agent", triple, "--output", str(tmp_path / "agent"))


def test_an_ndk_without_the_compiler_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(build_target.NDK, str(tmp_path))
    with pytest.raises(SystemExit, match=r"there is no .*clang"):
        run(monkeypatch, "--agent", "armv7a-linux-androideabi", "--output", str(tmp_path / "agent"))
