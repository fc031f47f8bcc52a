"""Test requests to a device over adb, with the real adb client and server."""

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from gputune.client.errors import TargetError
from gputune.client.target.adb import device as adb_device
from gputune.client.target.adb.device import Seen, devices, find

from .conftest import Adb
from .phone import Phone


def test_the_daemon_satisfies_the_real_client(adb: Adb, make_phone: Callable[..., Phone], tmp_path: Path) -> None:
    phone = make_phone()
    content = os.urandom(300_000)
    (tmp_path / "file").write_bytes(content)
    assert "1 file pushed" in adb("-s", phone.serial, "push", str(tmp_path / "file"), "/data/local/tmp/file")
    assert phone.path("/data/local/tmp/file").read_bytes() == content
    digest = adb("-s", phone.serial, "shell", "sha256sum /data/local/tmp/file").split()[0]
    assert digest == subprocess.run(["sha256sum", tmp_path / "file"], capture_output=True, text=True).stdout.split()[0]
    assert "not found" in adb("-s", phone.serial, "shell", "toybox")


@pytest.mark.parametrize("terminal", [False, True])
def test_a_command_has_its_output_and_its_code(make_phone: Callable[..., Phone], terminal: bool) -> None:
    device = find(make_phone(terminal=terminal).serial)
    ran = device.run("echo one; echo two >&2; (exit 3)")
    assert (ran.code, ran.last_line) == (3, "two")
    assert ran.output.split() == ["one", "two"]


def test_a_file_is_readable_by_all_when_its_owner_may_read_it(make_phone: Callable[..., Phone]) -> None:
    phone = make_phone()
    find(phone.serial).push(b"x" * 200_000, "/data/local/tmp/x", 0o600)
    file = phone.path("/data/local/tmp/x")
    assert file.stat().st_size == 200_000
    assert file.stat().st_mode & 0o777 == 0o666  # why tokens lie in a folder that is closed


def test_a_file_that_cannot_be_written_is_named(make_phone: Callable[..., Phone]) -> None:
    device = find(make_phone().serial)
    with pytest.raises(TargetError, match="writing /data/none/x failed") as raised:
        device.push(b"x", "/data/none/x", 0o644)
    assert raised.value.name == "adb_failed"


def test_a_port_leads_to_the_device_until_it_is_taken_back(adb: Adb, make_phone: Callable[..., Phone]) -> None:
    phone = make_phone()
    device = find(phone.serial)
    local = device.forward(7)
    assert adb.forwards() == [f"{phone.serial} tcp:{local} tcp:7"]
    device.unforward(local)
    device.unforward(local)
    assert adb.forwards() == []


@pytest.mark.parametrize("terminal", [False, True])
def test_a_held_command_notices_that_we_are_gone(make_phone: Callable[..., Phone], terminal: bool) -> None:
    phone = make_phone(terminal=terminal)
    stream = find(phone.serial).hold("trap '' HUP; echo there; read line; echo $? >/data/local/tmp/ended")
    lines = stream.lines()
    assert next(lines) == "there"
    stream.close()
    assert list(lines) == []
    ended = phone.path("/data/local/tmp/ended")
    assert _appears(ended)


def _appears(path: Path) -> bool:
    done = subprocess.run(["sh", "-c", 'for i in $(seq 500); do [ -s "$0" ] && exit 0; sleep 0.02; done; exit 1', path])
    return done.returncode == 0


def test_without_a_device_it_says_what_to_do(adb: Adb) -> None:
    with pytest.raises(TargetError, match="adb lists no device") as raised:
        find(None)
    assert raised.value.name == "adb_no_device"


def test_the_only_device_is_found_and_of_several_one_must_be_named(
    make_phone: Callable[..., Phone], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_phone()
    assert find(None).serial == first.serial
    second = make_phone()
    with pytest.raises(TargetError, match=f"adb lists several devices: .*{second.serial}") as raised:
        find(None)
    assert raised.value.name == "adb_several_devices"
    assert find(second.serial).serial == second.serial
    monkeypatch.setenv("ANDROID_SERIAL", first.serial)
    assert find(None).serial == first.serial
    with pytest.raises(TargetError, match="--adb: adb lists no device other, but 127") as raised:
        find("other")
    assert raised.value.name == "adb_no_device"


def test_a_device_that_has_not_accepted_this_computer_says_so(make_phone: Callable[..., Phone]) -> None:
    phone = make_phone(authorized=False)
    assert devices() == [Seen(phone.serial, "unauthorized")]
    with pytest.raises(TargetError, match="is unauthorized: unlock it and allow USB debugging") as raised:
        find(None)
    assert raised.value.name == "adb_unauthorized"


@pytest.mark.parametrize(
    ("state", "name", "words"),
    [
        ("offline", "adb_offline", "is offline: unplug its cable"),
        ("no", "adb_not_ready", "is closed to this user: .*udev"),
        ("recovery", "adb_not_ready", "is recovery: start Android on it"),
    ],
)
def test_every_state_has_its_advice(monkeypatch: pytest.MonkeyPatch, state: str, name: str, words: str) -> None:
    monkeypatch.setattr(adb_device, "devices", lambda: [Seen("S1", state)])
    with pytest.raises(TargetError, match=f"device S1 {words}") as raised:
        find(None)
    assert raised.value.name == name


def test_a_missing_adb_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("adbutils._utils._get_bin_dir", lambda: str(tmp_path))
    with pytest.raises(TargetError, match="adb is not installed") as raised:
        devices()
    assert raised.value.name == "adb_missing"


def test_an_adb_that_fails_is_quoted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "adb").write_text('#!/bin/sh\n[ "$1" = version ] && exit 0\necho cannot bind >&2\nexit 1\n')
    (tmp_path / "adb").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(TargetError, match=r"adb start-server` did not work: cannot bind"):
        devices()
    assert shutil.which("adb") == str(tmp_path / "adb")
