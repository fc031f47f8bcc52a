"""Test that failures leave no descriptor open: a count around each failing path of memory, sockets, workers, files."""

import asyncio
import fcntl
import gc
import mmap
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from errno import EADDRINUSE, EINVAL, EIO, EMFILE, ENOLCK, ENOMEM, ENOSPC
from pathlib import Path
from typing import Any

import pytest

from gputune.client.errors import TargetError
from gputune.client.farm.engine import FarmError
from gputune.client.farm.hosts.device_lock import DeviceLock
from gputune.client.target.embedded_server import EmbeddedServer
from gputune.client.target.transport.stream import Stream
from gputune.core import peers
from gputune.core.errors import ContextError, MalformedLog, UnusableMemory
from gputune.runtime.context.ep_context import ep_contexts
from gputune.runtime.context.format import open_context, write_file
from gputune.runtime.context.package import open_package
from gputune.runtime.devices.discovery import NULL_REPORT
from gputune.runtime.devices.scratch import scratch_folder
from gputune.runtime.memory.handles import PAGE, MemHandle
from gputune.runtime.memory.passing import Descriptor
from gputune.runtime.profiling.log import read_log
from gputune.runtime.profiling.profiler import Profiler
from gputune.server.clients import local_socket
from gputune.server.clients.listener import CannotListen, Listener
from gputune.server.clients.local_socket import LocalListener
from gputune.server.protocol.limits import Limits
from gputune.server.worker.heartbeat_page import HeartbeatPage
from gputune.server.workers.process import DeviceUnavailable, WorkerProcess
from tests.client.contexts import small_context
from tests.unused_ports import unused_port
from tests.waiting import PATIENCE_SECONDS

from .descriptors import closing_fd, memfd, own_descriptors

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="descriptors are counted in /proc")
Patch = pytest.MonkeyPatch
READ_ONLY = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE


def refuses(code: int) -> Callable[..., Any]:
    """Return a call of the system that fails."""

    def call(*arguments: Any, **options: Any) -> Any:
        raise OSError(code, os.strerror(code))

    return call


def soon() -> float:
    return time.monotonic() + PATIENCE_SECONDS


# --- memory -------------------------------------------------------------------------------------------


def memory_that_cannot_grow(folder: Path, patch: Patch) -> None:
    patch.setattr(os, "ftruncate", refuses(ENOSPC))
    with pytest.raises(UnusableMemory, match="No space left"):
        MemHandle.allocate(PAGE)


def memory_that_cannot_be_sealed(folder: Path, patch: Patch) -> None:
    patch.setattr(fcntl, "fcntl", refuses(EINVAL))
    with pytest.raises(UnusableMemory, match="cannot be allocated"):
        MemHandle.allocate(PAGE)


def memory_that_cannot_be_mapped(folder: Path, patch: Patch) -> None:
    patch.setattr(mmap, "mmap", refuses(ENOMEM))
    with pytest.raises(UnusableMemory, match="cannot be mapped"):
        MemHandle.allocate(PAGE)


def memory_of_another_that_is_none(folder: Path, patch: Patch) -> None:
    for seals, offset in ((0, 0), (READ_ONLY, 0), (fcntl.F_SEAL_SHRINK, 1)):
        with closing_fd(memfd(seals=seals)) as fd, pytest.raises(UnusableMemory):
            MemHandle.from_fd(fd, offset, 4096)


def a_descriptor_that_cannot_be_doubled(folder: Path, patch: Patch) -> None:
    with closing_fd(memfd()) as fd:
        patch.setattr(os, "dup", refuses(EMFILE))
        with pytest.raises(UnusableMemory):
            MemHandle.from_fd(fd, 0, 4096)
        with Descriptor(os.open("/dev/null", os.O_RDONLY)) as given, pytest.raises(UnusableMemory):
            given.duplicate()


# --- sockets ------------------------------------------------------------------------------------------


def a_port_that_is_taken(folder: Path, patch: Patch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(CannotListen):
        Listener("127.0.0.1", taken.getsockname()[1])


def a_port_without_options(folder: Path, patch: Patch) -> None:
    patch.setattr(socket.socket, "setsockopt", refuses(EINVAL))
    with pytest.raises(CannotListen):
        Listener("127.0.0.1", 0)


def a_local_socket_that_cannot_be_made(folder: Path, patch: Patch) -> None:
    (folder / "file").touch()
    for path in (folder / "nothing" / "socket", folder / "file", folder / ("x" * 120), folder):
        with pytest.raises(CannotListen):
            LocalListener(path)
    for module, name in ((socket.socket, "listen"), (socket.socket, "bind"), (fcntl, "flock")):
        with patch.context() as failing, pytest.raises(CannotListen):
            failing.setattr(module, name, refuses(ENOLCK if module is fcntl else EADDRINUSE))
            LocalListener(folder / "socket")
    (folder / "socket").unlink(missing_ok=True)


def a_client_of_whom_the_system_says_nothing(folder: Path, patch: Patch) -> None:
    listener = LocalListener(folder / "asked")
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(folder / "asked"))
        patch.setattr(local_socket, "peer_of", refuses(EINVAL))
        with pytest.raises(OSError, match="Invalid argument"):
            listener.accept(1)
    listener.close()


def a_server_that_is_not_there(folder: Path, patch: Patch) -> None:
    with socket.socket(socket.AF_UNIX) as stale:
        stale.bind(str(folder / "stale"))
    for host, port in (("127.0.0.1", unused_port()), (f"unix:{folder / 'stale'}", 0), (f"unix:{folder / 'none'}", 0)):
        with pytest.raises(TargetError, match="unreachable"):
            Stream(host, port, soon(), None)
    (folder / "stale").unlink()


def a_server_of_another_user(folder: Path, patch: Patch) -> None:
    listener = LocalListener(folder / "theirs")
    patch.setattr(peers, "ROOT", -1)
    patch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(TargetError, match="wrong_user"):
        Stream(listener.address, 0, soon(), None)
    listener.close()


def a_server_that_does_not_speak_tls(folder: Path, patch: Patch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as plain:
        plain.settimeout(0)
        patch.setattr(ssl.SSLContext, "wrap_socket", refuses(EIO))
        with pytest.raises(TargetError, match="tls_failed"):
            Stream("127.0.0.1", plain.getsockname()[1], soon(), ssl.create_default_context())


# --- workers and servers ------------------------------------------------------------------------------


def a_page_that_cannot_be_made(folder: Path, patch: Patch) -> None:
    for module, name in ((os, "ftruncate"), (mmap, "mmap")):
        with patch.context() as failing, pytest.raises(OSError, match="Cannot allocate memory"):
            failing.setattr(module, name, refuses(ENOMEM))
            HeartbeatPage.create()


def a_worker_that_cannot_be_started(folder: Path, patch: Patch) -> None:
    async def start() -> None:
        for module, name, what in (
            (sys, "executable", str(folder / "no python")),
            (HeartbeatPage, "create", refuses(ENOMEM)),
            (os, "pipe", refuses(EMFILE)),
            (socket, "socketpair", refuses(EMFILE)),
        ):
            with patch.context() as failing, pytest.raises(DeviceUnavailable, match="cannot be started"):
                failing.setattr(module, name, what)
                await WorkerProcess.start(NULL_REPORT, Limits())

    asyncio.run(start())


def a_worker_that_ends_at_once(folder: Path, patch: Patch) -> None:
    patch.setattr(sys, "executable", "/bin/false")

    async def start() -> None:
        with pytest.raises(DeviceUnavailable, match="exit code 1 while it opened the device"):
            await WorkerProcess.start(NULL_REPORT, Limits())

    asyncio.run(start())


def an_embedded_server_that_does_not_start(folder: Path, patch: Patch) -> None:
    for python in ("/bin/false", str(folder / "no python")):
        patch.setattr(sys, "executable", python)
        with pytest.raises(TargetError, match="server_not_started"):
            EmbeddedServer.start("null")
    patch.setattr(tempfile, "TemporaryFile", refuses(ENOSPC))
    with pytest.raises(TargetError, match="server_not_started"):
        EmbeddedServer.start("null")


def an_embedded_server_that_is_waited_for_no_more(folder: Path, patch: Patch) -> None:
    def interrupted(process: "subprocess.Popen[str]") -> Any:
        raise KeyboardInterrupt

    patch.setattr("gputune.client.target.embedded_server._wait", interrupted)
    with pytest.raises(KeyboardInterrupt):
        EmbeddedServer.start("null")


# --- locks, votes and folders -------------------------------------------------------------------------


def a_device_that_another_worker_has(folder: Path, patch: Patch) -> None:
    patch.setenv("XDG_RUNTIME_DIR", str(folder))
    with DeviceLock("a device"), pytest.raises(FarmError, match="is taken by another farm worker"):
        DeviceLock("a device")


def a_device_that_cannot_be_locked(folder: Path, patch: Patch) -> None:
    patch.setenv("XDG_RUNTIME_DIR", str(folder))
    for module, name, code in ((fcntl, "flock", ENOLCK), (os, "ftruncate", EIO), (os, "pwrite", ENOSPC)):
        with patch.context() as failing, pytest.raises(FarmError, match=f"cannot be locked: {os.strerror(code)}"):
            failing.setattr(module, name, refuses(code))
            DeviceLock("a device")


def a_folder_in_memory_without_locks(folder: Path, patch: Patch) -> None:
    patch.setattr(fcntl, "flock", refuses(ENOLCK))
    assert scratch_folder(folder) is None


# --- logs, counters and contexts ----------------------------------------------------------------------


def a_log_that_is_none(folder: Path, patch: Patch) -> None:
    (folder / "log").write_bytes(b"no log")
    with pytest.raises(MalformedLog):
        read_log(folder / "log")
    with pytest.raises(ValueError, match="level"):
        Profiler(folder / "log", "no level")
    with pytest.raises(OSError, match="Is a directory"):
        Profiler(folder)


def files_that_are_no_contexts(folder: Path, patch: Patch) -> None:
    whole = small_context(folder / "context.bin").read_bytes()
    for content in (b"", b"no context", whole[: len(whole) // 2], whole[:40] + bytes(len(whole) - 40)):
        (folder / "damaged.bin").write_bytes(content)
        for opens in (open_context, open_package, ep_contexts):
            with pytest.raises(ContextError):
                opens(folder / "damaged.bin")


def a_file_that_cannot_be_written(folder: Path, patch: Patch) -> None:
    patch.setattr(os, "fsync", refuses(EIO))
    with pytest.raises(OSError, match="Input/output error"):
        write_file(folder / "context", [b"half of it"])
    assert not (folder / "context").exists() and not list(folder.glob(".context*"))


PATHS = [
    each
    for each in list(vars().values())
    if list(getattr(each, "__annotations__", ())) == ["folder", "patch", "return"]
]


@pytest.mark.parametrize("fails", PATHS, ids=lambda fails: fails.__name__)
def test_what_fails_leaves_no_descriptor_open(
    fails: Callable[[Path, Patch], None], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):  # what is opened once for all is open by the second time
        gc.freeze()  # what is there by now stays, and takes no time below
        before = own_descriptors()
        with warnings.catch_warnings(record=True) as warned, monkeypatch.context() as patch:
            warnings.simplefilter("always", ResourceWarning)  # of what nothing but its deletion has closed
            fails(folder, patch)
            gc.collect()
    assert (own_descriptors() - before, [str(each.message) for each in warned]) == (set(), [])
