"""Test that a farm with certificates executes nothing for strangers, and keeps serving its members."""

import os
import socket
import ssl
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest

from gputune.client.farm.certificates import Certificates, create
from gputune.client.farm.dask_engine import DaskEngine, SchedulerAddress
from tests.strategies.changes import mutated_bytes
from tests.unused_ports import unused_port
from tests.waiting import PATIENCE_SECONDS, becomes

pytest.importorskip("distributed")
pytestmark = pytest.mark.night
FRAMES = 30
TLS_ALERT = b"\x15"


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """Run the scheduler of a farm with certificates; give its port."""
    create(tmp_path)
    port = unused_port()
    command = [sys.executable, "-m", "gputune", "farm", "scheduler", "--tls", "--port", str(port)]
    with subprocess.Popen([*command, "--farm_dir", str(tmp_path)], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline()
        yield port
        assert process.poll() is None, "it still serves"
        process.kill()


def shown(members: Certificates | None) -> ssl.SSLContext:
    """Return a context that takes any certificate, and shows that of a member of a farm."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if members is not None:
        context.load_cert_chain(members.member, members.key)
    return context


def framed(message: object) -> bytes:
    from distributed.protocol import dumps
    from distributed.protocol.utils import pack_frames

    packed: bytes = pack_frames(dumps(message))
    return struct.pack("Q", len(packed)) + packed


def exploit(folder: Path) -> bytes:
    """Return a message by which Dask makes a folder for a member."""
    from distributed.protocol.pickle import dumps as pickled

    greeting = {"compression": None, "python": [3, 11], "pickle-protocol": 5}
    call = {"op": "run_function", "function": pickled(os.makedirs), "args": pickled((str(folder),)), "wait": True}
    return framed(greeting) + framed(call)


def answer(port: int, context: ssl.SSLContext | None, data: bytes) -> bytes:
    """Return what comes back for some bytes on a connection of their own, TLS's own alerts not counted."""
    plain = socket.create_connection(("127.0.0.1", port), PATIENCE_SECONDS)
    with plain, suppress(OSError), plain if context is None else context.wrap_socket(plain) as stream:
        stream.sendall(data)
        if context is None:
            stream.shutdown(socket.SHUT_WR)
        found = stream.recv(1 << 16)
        return b"" if context is None and found[:1] == TLS_ALERT else found
    return b""


def test_nothing_is_executed_for_strangers(port: int, tmp_path: Path) -> None:
    chance, made, marked = Random(1), tmp_path / "by a stranger", tmp_path / "by a member"
    for context in (None, shown(None), shown(create(tmp_path / "others"))):
        for number in range(FRAMES):
            whole = exploit(made)
            data = whole if number == 0 else mutated_bytes(whole, chance) if number % 2 else chance.randbytes(1000)
            assert answer(port, context, data) == b""
    assert not made.exists()
    members = Certificates(tmp_path)
    answer(port, shown(members), exploit(marked))
    assert becomes(marked.exists), "it would be made for strangers, too, if they were served"
    with DaskEngine(SchedulerAddress.parse(f"tls://127.0.0.1:{port}", members)) as engine:
        assert not engine.devices()
