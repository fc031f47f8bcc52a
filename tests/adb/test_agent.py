"""Test --adb with an agent: it goes to a device without Python, a model is tuned there, and its context runs there."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputune.client.errors import TargetError
from gputune.client.target.adb import agent as agents
from gputune.client.target.adb.device import find
from gputune.client.target.adb.files import FOLDER
from gputune.client.target.adb.target import AdbTarget
from gputune.client.target.adb.way import Way, choose_way
from gputune.client.target.client import TargetClient
from gputune.client.target.session import OnProgress
from gputune.core.batches import Profiled, ProfileKernel
from gputune.server.protocol.messages import Progress
from tests.client.commands import Gputune, read_json
from tests.native.compiling import agent as agent_program
from tests.native.compiling import compiler, opencl_library
from tests.waiting import becomes

from .bare import driver_settings
from .conftest import Adb
from .phone import Phone
from .test_target import runs
from .tuned import check_results, is_left_as_it_was, tune_and_run

TRIPLE = "x86_64-linux-android"
Make = Callable[..., Phone]


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


def agent_of(phone: Phone) -> int:
    """The process of the agent on a device that listens: those of connections are its children."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it may end meanwhile
            if (path / "cmdline").read_bytes().startswith(os.fsencode(phone.path(FOLDER)) + b"/agent-"):
                found[int(path.name)] = int((path / "stat").read_text(encoding="ascii").rpartition(")")[2].split()[1])
    (listening,) = found.keys() - {process for process, parent in found.items() if parent in found}
    return listening


@pytest.mark.opencl
@pytest.mark.night
def test_a_model_is_tuned_and_run_without_a_python_though_its_agent_and_the_cable_are_lost(
    adb: Adb, make_phone: Make, built: Path, gputune: Gputune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    phone = phone_of(make_phone, **{**opencl_library(), **driver_settings(), "PATH": ""})
    (phone.bin / "ld").symlink_to(shutil.which("ld") or "/bin/ld")  # PoCL calls it
    assert adb("-s", phone.serial, "shell", "command -v python3 || echo none").strip() == "none"
    events: list[str] = []
    measure, execute = TargetClient.measure_kernel, TargetClient.execute_context

    def measured(client: TargetClient, request: ProfileKernel, on_progress: OnProgress = None) -> Profiled:
        """The agent is killed once, in the middle of its first measurements."""

        def hear(progress: Progress) -> None:
            if not events:
                events.append("killed")
                os.kill(agent_of(phone), signal.SIGKILL)
            if on_progress is not None:
                on_progress(progress)

        return measure(client, request, hear)

    def executed(client: TargetClient, *arguments: Any, **options: Any) -> Any:
        """The cable is lost once, when a context runs."""
        if "unplugged" not in events:
            events.append("unplugged")
            phone.unplug()
            phone.plug()
        return execute(client, *arguments, **options)

    monkeypatch.setattr(TargetClient, "measure_kernel", measured)
    monkeypatch.setattr(TargetClient, "execute_context", executed)
    said = tune_and_run(gputune, phone, tmp_path)
    assert events == ["killed", "unplugged"]
    assert said.count("is back after") == 2
    assert f"it runs the agent {built}" in said and "copying the agent to device" in said
    (task,) = read_json(tmp_path / "tuned.json")["tasks"]
    assert task["trials"].keys() == {"ok"}
    check_results(tmp_path)
    assert is_left_as_it_was(adb, phone)


@pytest.mark.opencl
@pytest.mark.night
def test_an_agent_ends_with_the_command_that_is_killed(make_phone: Make, built: Path) -> None:
    phone = phone_of(make_phone, **{**opencl_library(), **driver_settings()})
    program = (
        "import sys, time; from pathlib import Path; from gputune.client.target.adb.target import AdbTarget; "
        "AdbTarget.start(sys.argv[1], None, None, agent=Path(sys.argv[2])); print('started', flush=True); "
        "time.sleep(600)"
    )
    command = [sys.executable, "-c", program, phone.serial, str(built)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline() == "started\n"
        agent = agent_of(phone)
        process.kill()
    assert becomes(lambda: not runs(agent))


# --- which way is taken ------------------------------------------------------------------------------


def way_of(phone: Phone, python: str | None = None, agent: Path | None = None) -> Way:
    return choose_way(find(phone.serial), python, agent)


@pytest.mark.parametrize(
    ("program", "said", "triple"),
    [
        ("getprop", "arm64-v8a", "aarch64-linux-android"),
        ("getprop", "armeabi-v7a", "armv7a-linux-androideabi"),
        ("uname", "aarch64", "aarch64-linux-gnu"),
        ("uname", "x86_64", "x86_64-linux-gnu"),
    ],
)
def test_an_agent_of_the_devices_processor_comes_before_a_python(
    phone: Phone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, said: str, triple: str
) -> None:
    monkeypatch.setattr(agents, "BUILT", tmp_path / "agents")
    phone.program(program, f"#!/bin/sh\necho {said}\n")
    way = way_of(phone)
    assert way.agent is None and way.python == "python3"
    assert way.why.startswith("it runs Python, because no agent was built for its processor")
    assert way.why.endswith(
        f"run `scripts/build-target --agent {triple}` in a checkout, or name an agent by --adb_agent PATH"
    )
    path = tmp_path / "agents" / triple / agents.NAME
    path.parent.mkdir(parents=True)
    path.write_bytes(b"the agent")
    way = way_of(phone)
    assert way.agent == agents.Agent(path, b"the agent") and way.python is None
    assert way.why == f"it runs the agent {path}; --adb_python PATH would use a Python there"
    assert way_of(phone, "python3").python == "python3"
    other = tmp_path / "other"
    other.write_bytes(b"another agent")
    assert way_of(phone, None, other).agent == agents.Agent(other, b"another agent")


def test_a_device_without_agent_and_python_says_what_both_take(make_phone: Make, built: Path) -> None:
    phone = phone_of(make_phone)
    built.unlink()
    with pytest.raises(TargetError) as raised:
        way_of(phone)
    assert raised.value.name == "adb_python"
    assert f"run `scripts/build-target --agent {TRIPLE}`" in raised.value.reason
    assert f"and no Python of device {phone.serial} can run the target server" in raised.value.reason


@pytest.mark.parametrize(
    ("program", "name", "words"),
    [
        ("#!/bin/sh\necho 'gputune-agent: error: no memory' >&2; exit 1\n", "server_not_started", "no memory"),
        (None, "no_agent_device", "/no/library.* \\(the agent is .*/gputune-agent, which has to be of this gputune\\)"),
    ],
)
@pytest.mark.slow
def test_an_agent_that_cannot_serve_says_why(
    adb: Adb, make_phone: Make, built: Path, program: str | None, name: str, words: str
) -> None:
    phone = phone_of(make_phone, GPUTUNE_OPENCL_LIBRARY="/no/library")
    if program is not None:
        built.unlink()
        built.write_text(program, encoding="ascii")
    with pytest.raises(TargetError, match=words) as raised:
        AdbTarget.start(phone.serial, None, None)
    assert raised.value.name == name
    assert is_left_as_it_was(adb, phone)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--adb_agent", __file__), "--adb_agent says what runs on a phone; give --adb, too"),
        (("--adb", "--adb_agent", __file__, "--adb_python", "python3"), "either Python runs on the phone, or an agent"),
    ],
)
def test_options_that_contradict_each_other(gputune: Gputune, options: tuple[str, ...], words: str) -> None:
    ran = gputune("target-status", *options)
    assert ran.code == 2 and words in ran.last_line
