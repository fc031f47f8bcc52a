"""Test --adb with an agent: it goes to a device without Python, a model is tuned there, and its context runs there."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from gputune.client.target.adb import agent as agents
from tests.client.commands import Gputune, read_json
from tests.native.compiling import agent as agent_program
from tests.native.compiling import compiler, opencl_library

from .bare import driver_settings
from .conftest import Adb
from .phone import Phone
from .tuned import check_results, is_left_as_it_was, tune_and_run

TRIPLE = "x86_64-linux-android"
Make = Callable[..., Phone]


@pytest.fixture
def gputune(capfd: pytest.CaptureFixture[str]) -> Gputune:
    return Gputune(capfd)


@pytest.fixture
def built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The agent of this machine, as if it was built for a phone."""
    if compiler() is None:
        pytest.skip("there is no C compiler")
    monkeypatch.setattr(agents, "BUILT", tmp_path / "agents")
    path = tmp_path / "agents" / TRIPLE / agents.NAME
    path.parent.mkdir(parents=True)
    path.symlink_to(agent_program())
    return path


def phone_of(make_phone: Make, **environment: str) -> Phone:
    """A device without Python whose processor Android calls x86_64."""
    phone = make_phone(environment=environment)
    phone.program("getprop", '#!/bin/sh\n[ "$*" = ro.product.cpu.abi ] && echo x86_64\n')
    return phone


@pytest.mark.opencl
@pytest.mark.slow
def test_a_model_is_tuned_and_run_without_a_python(
    adb: Adb, make_phone: Make, built: Path, gputune: Gputune, tmp_path: Path
) -> None:
    phone = phone_of(make_phone, **{**opencl_library(), **driver_settings(), "PATH": ""})
    (phone.bin / "ld").symlink_to(shutil.which("ld") or "/bin/ld")  # PoCL calls it
    assert adb("-s", phone.serial, "shell", "command -v python3 || echo none").strip() == "none"
    said = tune_and_run(gputune, phone, tmp_path)
    assert f"it runs the agent {built}" in said
    assert "copying the agent to device" in said
    assert read_json(tmp_path / "tuned.json")["tasks"]
    check_results(tmp_path)
    assert is_left_as_it_was(adb, phone)
