"""Start a private adb server with devices."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests import unused_ports as ports
from tests.client.commands import Gputune
from tests.conftest import NO_CI

from .phone import Phone


@dataclass(frozen=True)
class Adb:
    """The real adb client, with a server that nobody else uses."""

    port: int

    def __call__(self, *arguments: str) -> str:
        done = subprocess.run(["adb", *arguments], capture_output=True, text=True, timeout=60)
        return done.stdout + done.stderr

    def forwards(self) -> list[str]:
        return list(filter(None, self("forward", "--list").splitlines()))


@pytest.fixture
def gputune(capfd: pytest.CaptureFixture[str]) -> Gputune:
    return Gputune(capfd)


@pytest.fixture(scope="session")
def adb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Adb]:
    if shutil.which("adb") is None:
        reason = "there is no adb on PATH (Debian's package adb)"
        if os.environ.get("CI", "").lower() not in NO_CI:
            pytest.fail(f"{reason}; under CI this is a failure", pytrace=False)
        pytest.skip(reason)
    port = ports.unused_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ANDROID_ADB_SERVER_PORT", str(port))
        patch.setenv("HOME", str(tmp_path_factory.mktemp("adb home")))  # its keys
        for name in ("ADB_SERVER_SOCKET", "ANDROID_SERIAL", "ANDROID_ADB_SERVER_ADDRESS"):
            patch.delenv(name, raising=False)
        client = Adb(port)
        yield client
        client("kill-server")


@pytest.fixture
def make_phone(adb: Adb, tmp_path: Path) -> Iterator[Callable[..., Phone]]:
    """Devices that adb is connected to."""
    phones: list[Phone] = []

    def make(**options: Any) -> Phone:
        phone = Phone(tmp_path / f"phone {len(phones)}".replace(" ", "-"), **options)
        phones.append(phone)
        said = adb("connect", phone.serial)
        assert "connected to" in said or not phone.authorized, said
        return phone

    yield make
    for phone in phones:
        adb("disconnect", phone.serial)
        phone.stop()


@pytest.fixture
def phone(make_phone: Callable[..., Phone]) -> Phone:
    """A device with a Python that has everything."""
    phone = make_phone()
    give_python(phone)
    return phone


def give_python(phone: Phone, path: str = "python3") -> None:
    """This Python, which says at once that it has everything when it is asked."""
    checked = "[ \"$1\" = -c ] && echo 'gputune-python [[3, 12], {}]' && exit"
    phone.program(path, f'#!/bin/sh\n{checked}\nexec {sys.executable} "$@"\n')


@pytest.fixture
def unused_port() -> int:
    return ports.unused_port()
