"""Test the life of a target server on a device: put there, started, found again after a lost cable, and stopped."""

import contextlib
import json
import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gputune.client.errors import TargetError
from gputune.client.target.adb import target as module
from gputune.client.target.adb.device import AdbDevice
from gputune.client.target.adb.files import FOLDER, PRIVATE
from gputune.client.target.adb.target import AdbTarget
from gputune.client.target.transport.credentials import Credentials
from gputune.client.target.transport.target_connection import dial
from tests.waiting import becomes

from .conftest import Adb, give_python
from .phone import Phone

pytestmark = pytest.mark.slow  # each starts processes

LITTLE = Path(__file__).with_name("little_server.py")
Start = Callable[..., AdbTarget]


class Heard(logging.Handler):
    """What a target says, by how much it matters, until it is closed."""

    def __init__(self) -> None:
        super().__init__()
        self.notices: list[str] = []
        self.told: list[str] = []
        self.warnings: list[str] = []
        logging.getLogger("gputune").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        kinds = {logging.INFO: self.notices, logging.WARNING: self.warnings, logging.CRITICAL: self.told}
        kinds[record.levelno].append(record.getMessage())

    def close(self) -> None:
        logging.getLogger("gputune").removeHandler(self)
        super().close()


@pytest.fixture(autouse=True)
def heard(caplog: pytest.LogCaptureFixture) -> Iterator[Heard]:
    caplog.set_level(logging.INFO, "gputune")
    with contextlib.closing(Heard()) as heard:
        yield heard


@pytest.fixture
def notices(heard: Heard) -> list[str]:
    return heard.notices


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts targets with the little server, which are gone when the test is over."""
    targets: list[AdbTarget] = []

    def start(phone: Phone, python: str | None = None, bundle: Path = LITTLE, **options: Any) -> AdbTarget:
        targets.append(AdbTarget.start(phone.serial, python, bundle, **options))
        return targets[-1]

    yield start
    for target in targets:
        target.stop()


def facts(phone: Phone) -> dict[str, Any]:
    """What the little server was given."""
    result: dict[str, Any] = json.loads(phone.path(f"{PRIVATE}/server.json").read_text())
    return result


def runs(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):  # it may end between opening and reading
        return False


def tokens(phone: Phone) -> list[Path]:
    return list(phone.path(PRIVATE).glob("token-*"))


@pytest.mark.parametrize("terminal", [False, True])
def test_a_server_lives_from_start_to_stop(
    adb: Adb, make_phone: Callable[..., Phone], start: Start, terminal: bool
) -> None:
    phone = make_phone(terminal=terminal)
    give_python(phone)
    target = start(phone)
    assert adb.forwards()[0].startswith(f"{phone.serial} tcp:{target.port} tcp:")
    assert target.explanation == (
        f"target server on device {phone.serial}, forwarded by adb to 127.0.0.1:{target.port}",
        "it runs Python, because no agent is known for its processor (linux); for an agent, name one that runs there "
        "by --adb_agent PATH",
        "using the little device",
    )
    assert target.last_words() == ""
    server = facts(phone)
    held = target._server
    assert runs(server["pid"]) and held is not None
    target.stop()
    assert not runs(server["pid"])
    assert held.last_words().startswith(f"the target server on device {phone.serial} ended with exit code 0")
    assert adb.forwards() == []
    target.stop()


def test_the_token_is_a_private_file_and_never_on_a_command_line(phone: Phone, start: Start) -> None:
    target = start(phone)
    server = facts(phone)
    assert server["token"] == target.token
    assert (server["token_mode"], server["folder_mode"]) == (0o600, 0o700)
    assert server["temporary"] == str(phone.path(PRIVATE))
    assert not any(target.token in text for text in [*phone.commands, *server["arguments"]])
    assert tokens(phone) == []
    other = start(phone)
    assert other.token != target.token
    assert len(target.token) >= 32
    with pytest.raises(TargetError) as raised:
        dial("127.0.0.1", target.port, credentials=Credentials(other.token))
    assert raised.value.name in ("authentication_failed", "connection_lost")


def test_the_bundle_is_copied_only_when_it_differs(
    phone: Phone, start: Start, notices: list[str], tmp_path: Path
) -> None:
    start(phone).stop()
    (there,) = phone.path(FOLDER).glob("server-*")
    assert there.read_bytes() == LITTLE.read_bytes()
    assert there.stat().st_mode & 0o777 == 0o644  # Termux is another user
    assert len(notices) == 1
    assert re.fullmatch(rf"copying the target server to device {phone.serial} \(\d kB\)", notices[0])
    start(phone).stop()
    assert len(notices) == 1
    changed = tmp_path / "changed.py"
    changed.write_bytes(LITTLE.read_bytes() + b"# changed\n")
    start(phone, bundle=changed).stop()
    assert len(notices) == 2
    there.write_bytes(b"broken")
    start(phone).stop()
    assert len(notices) == 3
    assert there.read_bytes() == LITTLE.read_bytes()


def test_old_files_are_removed(phone: Phone, start: Start) -> None:
    start(phone).stop()
    stale = [phone.path(f"{FOLDER}/server-0.pyz"), phone.path(f"{PRIVATE}/token-1"), phone.path(f"{PRIVATE}/x")]
    stale[2].mkdir()
    for path in stale[:2]:
        path.touch()
    for path in stale:
        os.utime(path, (0, 0))
    start(phone).stop()
    assert not any(path.exists() for path in stale)
    assert phone.path(f"{PRIVATE}/server.json").exists()


def test_a_server_that_does_not_start_is_quoted(adb: Adb, phone: Phone, start: Start) -> None:
    with pytest.raises(TargetError, match="did not start: no device is usable") as raised:
        start(phone, options=["--fail"])
    assert raised.value.name == "server_not_started"
    assert tokens(phone) == []
    assert adb.forwards() == []


def test_a_killed_server_leaves_its_last_words(phone: Phone, start: Start) -> None:
    target = start(phone)
    os.kill(facts(phone)["pid"], 9)
    assert becomes(target.last_words)
    host, port = target.revive()
    dial(host, port, credentials=Credentials(target.token)).close()
    assert target.last_words() == ""


def test_a_lost_cable_stops_the_server_and_it_is_started_again(
    adb: Adb, phone: Phone, start: Start, notices: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    target = start(phone)
    first, token = facts(phone)["pid"], target.token
    phone.unplug()
    assert becomes(lambda: not runs(first))
    paused = threading.Event()
    sleep = time.sleep

    def plugged_later(seconds: float) -> None:
        if not paused.is_set():
            paused.set()
            phone.plug()
        sleep(seconds)

    monkeypatch.setattr("time.sleep", plugged_later)
    host, port = target.revive()
    assert paused.is_set()
    assert notices[1:] == [f"waiting for device {phone.serial}"]
    assert (host, port, token) == (target.host, target.port, target.token)
    assert len(adb.forwards()) == 1
    dial(host, port, credentials=Credentials(target.token)).close()
    assert facts(phone)["pid"] != first


def test_a_device_that_stays_away_is_given_up(phone: Phone, start: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    target = start(phone)
    phone.unplug()
    monkeypatch.setattr(module, "REVIVE_SECONDS", 0.5)
    with pytest.raises(TargetError) as raised:
        target.revive()
    assert raised.value.name in ("adb_no_device", "adb_offline", "adb_failed")


def test_what_waiting_does_not_help_against_is_not_waited_for(
    phone: Phone, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = start(phone)
    tries: list[str] = []

    def refuse(serial: str) -> None:
        tries.append(serial)
        raise TargetError("adb_unauthorized", "unlock it")

    monkeypatch.setattr(module, "find", refuse)
    monkeypatch.setattr(module, "REVIVE_SECONDS", 3.0)
    with pytest.raises(TargetError, match="unlock it"):
        target.revive()
    assert tries == [phone.serial]


def test_a_port_that_cannot_be_taken_back_is_taken_back_later(
    adb: Adb, phone: Phone, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = start(phone)

    def fail(device: AdbDevice, local: int) -> None:
        monkeypatch.undo()
        raise TargetError("adb_failed", "no answer")

    monkeypatch.setattr(AdbDevice, "unforward", fail)
    target.revive()
    assert len(adb.forwards()) == 1
    assert f"tcp:{target.port}" in adb.forwards()[0]


def test_a_server_that_does_not_end_is_told(
    phone: Phone, start: Start, heard: Heard, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It does not listen to the end of its input. (One that is stopped by a signal is woken up by the system when its
    shell has gone, sooner or later.)"""
    deaf = tmp_path / "deaf_server.py"
    source = LITTLE.read_text()
    assert source.count("os._exit(0)") == 1
    deaf.write_text(source.replace("os._exit(0)", "threading.Event().wait()"))
    target = start(phone, bundle=deaf)
    monkeypatch.setattr("gputune.client.target.adb.process.STOP_SECONDS", 0.2)
    target.stop()
    with contextlib.suppress(ProcessLookupError):  # the system may have ended it when its shell was gone
        os.kill(facts(phone)["pid"], signal.SIGKILL)
    assert heard.warnings[0].startswith(f"the target server on device {phone.serial} has not ended within")


# --- the device's Python -----------------------------------------------------------------------------

PROBED = """#!/bin/sh
echo 'gputune-python [[3, {minor}], {failed}]'
"""


def refusal(start: Start, phone: Phone, python: str | None = None) -> str:
    with pytest.raises(TargetError) as raised:
        start(phone, python)
    assert raised.value.name == "adb_python"
    assert not phone.path(FOLDER).exists()  # checked before anything is put there
    assert "--adb_python PATH" in raised.value.reason
    return raised.value.reason


def test_every_python_that_was_tried_is_named(make_phone: Callable[..., Phone], start: Start) -> None:
    reason = refusal(start, make_phone())
    assert "(python3: not found; /data/data/com.termux/files/usr/bin/python3: not found)" in reason


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (PROBED.format(minor=8, failed="{}"), "is Python 3.8, and 3.11 or newer is needed"),
        (PROBED.format(minor=12, failed='{"numpy": "ImportError: x"}'), "cannot import numpy: ImportError: x"),
        ("#!/bin/sh\necho gone wrong >&2; exit 9\n", "ended with exit code 9: gone wrong"),
        ("#!/bin/sh\necho gputune-python [1]\n", "ended with exit code 0: gputune-python [1]"),
    ],
)
def test_what_a_python_lacks_is_said(make_phone: Callable[..., Phone], start: Start, program: str, reason: str) -> None:
    phone = make_phone()
    phone.program("/data/local/py", program)
    assert f"(/data/local/py: {reason})" in refusal(start, phone, "/data/local/py")


def test_a_python_without_numpy_and_pyopencl_is_refused(
    make_phone: Callable[..., Phone], start: Start, tmp_path: Path
) -> None:
    phone = make_phone()
    phone.program("python3", f'#!/bin/sh\nexec {sys.executable} -S -E "$@"\n')
    reason = refusal(start, phone)
    assert "cannot import numpy: ModuleNotFoundError" in reason
    assert "cannot import pyopencl: ModuleNotFoundError" in reason


def test_termux_is_used_where_the_shell_user_may(make_phone: Callable[..., Phone], start: Start) -> None:
    phone = make_phone()
    give_python(phone, "/data/data/com.termux/files/usr/bin/python3")
    start(phone)
    assert any("com.termux" in command and "--token_file" in command for command in phone.commands)


@pytest.mark.parametrize("found", ["asked for", "installed", "not executable"])
def test_a_server_that_a_person_starts_in_termux(
    make_phone: Callable[..., Phone],
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    found: str,
    unused_port: int,
) -> None:
    monkeypatch.setattr(module, "DEFAULT_PORT", unused_port)
    phone = make_phone()
    if found == "installed":
        phone.program("pm", '#!/bin/sh\n[ "$*" = "path com.termux" ] && echo package:x\n')
    elif found == "not executable":
        phone.program("/data/data/com.termux/files/usr/bin/python3", "")
        phone.path("/data/data/com.termux/files/usr/bin/python3").chmod(0o644)
    person = Person(phone, unused_port)
    target = AdbTarget.start(phone.serial, "termux" if found == "asked for" else None, LITTLE)
    try:
        assert re.fullmatch(f"[{module._LEGIBLE}]{{20}}", target.token)
        assert f"type this in Termux on device {phone.serial}, in one line:" in person.told
        dial(target.host, target.port, credentials=Credentials(target.token)).close()
        assert not any(target.token in command for command in phone.commands)
        person.told.clear()
        target.revive()  # the server has outlived the cable: nothing is to be typed again
        assert person.told == []
        assert person.notices[-1] == f"waiting for device {phone.serial}"
        with pytest.raises(
            TargetError, match=r"belongs to another server.* or give its token by GPUTUNE_TOKEN"
        ) as raised:
            start(phone, "termux")
        assert raised.value.name == "adb_port_taken"
        again = start(phone, "termux", token=target.token)  # the next command, which knows the token
        assert (again.token, person.told) == (target.token, [])
    finally:
        target.stop()
        person.stop()
    assert person.typed == 1


def test_a_token_that_is_known_before_is_not_shown(
    make_phone: Callable[..., Phone], monkeypatch: pytest.MonkeyPatch, unused_port: int
) -> None:
    monkeypatch.setattr(module, "DEFAULT_PORT", unused_port)
    phone = make_phone()
    person = Person(phone, unused_port)
    target = AdbTarget.start(phone.serial, "termux", LITTLE, token=person.token)
    target.stop()
    person.stop()
    assert target.token == person.token
    assert person.typed == 1
    assert not any(person.token in line for line in person.told)


def test_a_cable_that_is_lost_while_somebody_types_is_survived(
    adb: Adb, make_phone: Callable[..., Phone], monkeypatch: pytest.MonkeyPatch, unused_port: int
) -> None:
    """Its forwarded port is gone with it, as whoever unplugs it finds."""
    monkeypatch.setattr(module, "DEFAULT_PORT", unused_port)
    monkeypatch.setattr(module, "TYPING_SECONDS", 30.0)
    phone = make_phone()
    person = Person(phone, unused_port, unplugs=True)
    target = AdbTarget.start(phone.serial, "termux", LITTLE)
    dial(target.host, target.port, credentials=Credentials(target.token)).close()
    target.stop()
    person.stop()
    assert person.typed == 1
    assert adb.forwards() == []


class Person(Heard):
    """Types what it is told to, after pulling the cable out and in where it `unplugs`."""

    token = "a token of at least 16 characters".replace(" ", "-")

    def __init__(self, phone: Phone, port: int, unplugs: bool = False) -> None:
        super().__init__()
        self.typed = 0
        self._phone, self._port, self._unplugs = phone, port, unplugs
        self._running: list[subprocess.Popen[bytes]] = []

    def emit(self, record: logging.LogRecord) -> None:
        super().emit(record)
        if match := re.fullmatch(r"    GPUTUNE_TOKEN=(\w+) python (/data/.*\.pyz)", record.getMessage()):
            self.typed += 1
            if self._unplugs:
                self._phone.unplug()
                self._phone.plug()
            command = [sys.executable, str(self._phone.path(match[2])), "--port", str(self._port)]
            token = self.token if match[1] == "TOKEN" else match[1]
            environment = {**os.environ, "GPUTUNE_TOKEN": token}
            self._running.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL))

    def stop(self) -> None:
        for process in self._running:
            process.kill()
            process.wait()
        self.close()


def test_nobody_types_for_ever(
    make_phone: Callable[..., Phone], start: Start, monkeypatch: pytest.MonkeyPatch, unused_port: int
) -> None:
    monkeypatch.setattr(module, "DEFAULT_PORT", unused_port)
    monkeypatch.setattr(module, "TYPING_SECONDS", 0.3)
    with pytest.raises(TargetError, match="no server was started in Termux") as raised:
        start(make_phone(), "termux")
    assert raised.value.name == "server_not_started"
