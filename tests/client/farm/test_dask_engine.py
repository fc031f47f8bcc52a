"""Test a farm of processes on Dask's distributed, which must be installed for these tests."""

import json
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gputune.client.errors import TargetError
from gputune.client.farm import dask_engine
from gputune.client.farm.certificates import Certificates, create
from gputune.client.farm.dask_engine import DaskEngine, SchedulerAddress
from gputune.client.farm.engine import Call, DeviceGone, FarmError
from gputune.client.farm.farm_connection import FarmConnection
from gputune.client.farm.pool import Pool
from gputune.server.protocol.messages import Progress, UploadBuffer
from tests.client.commands import Gputune
from tests.server.conftest import batch_of
from tests.unused_ports import unused_port
from tests.waiting import PATIENCE_SECONDS, becomes

pytest.importorskip("distributed")
pytestmark = pytest.mark.slow
night = pytest.mark.night
TIER = "null-cu1"
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts `gputune farm ...` and waits for its first line."""
    running: list[subprocess.Popen[str]] = []

    def begin(*arguments: object, stderr: int | None = None) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "gputune", "farm", *map(str, arguments), "--farm_dir", str(tmp_path)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=stderr, text=True)
        running.append(process)
        assert process.stdout is not None and process.stdout.readline()
        return process

    yield begin
    for process in running:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


@pytest.mark.long("whoever tunes on a farm: in every run it is the only farm of several processes")
def test_members_of_a_farm_measure_on_it_and_end_it(
    start: Start, gputune: Gputune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Over TLS, so that nothing is said to others."""
    others, made, stranger = create(tmp_path / "others"), create(tmp_path), create(tmp_path / "stranger")
    stranger.authority.write_bytes(made.authority.read_bytes())  # it knows the farm, and is no member
    port = unused_port()
    where = f"127.0.0.1:{port}"
    scheduler = start("scheduler", "--tls", "--port", port, "--dashboard_port", "0")
    for place, said in (
        (
            SchedulerAddress.parse(where, made),
            "closed the connection, perhaps because it needs certificates; write tls://",
        ),
        (SchedulerAddress.parse(f"tls://{where}", others), "its certificate is not valid in this farm"),
        (
            SchedulerAddress("127.0.0.1", port, stranger),
            "closed the connection, perhaps because it does not accept this machine's",
        ),
    ):
        with pytest.raises(FarmError, match=f"no scheduler of a farm answers at .*{said}"):
            DaskEngine(place)
    worker = start("worker", "--device", "null", "--name", "a", "--scheduler", f"tls://{where}")
    if sys.platform == "linux":
        assert listening(scheduler) == {where}

    def fail(progress: Progress) -> None:
        raise LookupError("the caller's own")

    with DaskEngine(SchedulerAddress.parse(f"tls://{where}", made)) as engine, Pool(engine, "job") as pool:
        assert pool.tiers() == [TIER]
        client = pool.group(TIER).connect_all()[0]
        large = np.arange(1 << 19, dtype=np.float32)  # in a frame of 2 MiB
        request = batch_of(client.upload(large), client.upload(large[:16]))
        with pytest.raises(LookupError, match="the caller's own"):
            client.measure_kernel(request, fail)
        assert client.measure_kernel(request).trials[0].status == "ok", "an error of the caller is no loss"

    def farm(*words: str) -> str:
        ran = gputune("farm", *words, "--scheduler", f"tls://{where}", "--farm_dir", tmp_path)
        assert ran.code == 0, ran.err
        return ran.out

    assert json.loads(farm("status", "--json"))["a"]["tier"] == TIER
    farm("drain", "a")
    assert worker.wait(PATIENCE_SECONDS) == 0
    farm("stop")
    assert scheduler.wait(PATIENCE_SECONDS) == 0
    monkeypatch.setattr(dask_engine, "CONNECT_SECONDS", 1.0)
    with pytest.raises(FarmError, match="no scheduler"):
        DaskEngine(SchedulerAddress.parse(f"tls://{where}", made))


@night
def test_a_scheduler_without_certificates_says_so_to_who_has_some_and_nothing_itself(
    start: Start, gputune: Gputune, tmp_path: Path
) -> None:
    port, made = unused_port(), create(tmp_path / "certificates")
    where, asked = f"127.0.0.1:{port}", ("scheduler", "--port", port, "--dashboard_port", "0")
    scheduler = start(*asked, stderr=subprocess.PIPE)
    with pytest.raises(FarmError, match="does not use TLS; drop tls://"):
        DaskEngine(SchedulerAddress.parse(f"tls://{where}", made))
    second = gputune("farm", *asked, "--farm_dir", tmp_path)
    assert (second.code, len(second.err.splitlines())) == (4, 1), second.err
    assert "in use; --port chooses another" in second.err
    with DaskEngine(SchedulerAddress.parse(where, made)) as engine:
        assert not engine.devices()
        engine.stop_scheduler()
    assert scheduler.stderr is not None and scheduler.stderr.read() == ""


def measured(pool: Pool) -> str:
    client = pool.group(TIER).connect_all()[0]
    large = np.arange(1 << 19, dtype=np.float32)  # in a frame of 2 MiB
    return client.measure_kernel(batch_of(client.upload(large), client.upload(large[:16]))).trials[0].status


@night
def test_a_worker_and_a_scheduler_are_killed_and_come_back(start: Start, tmp_path: Path) -> None:
    where = f"127.0.0.1:{unused_port()}"
    scheduler = start("scheduler", "--port", where.rpartition(":")[2])
    first = start("worker", "--device", "null", "--name", "a", "--scheduler", where)
    engine = DaskEngine(SchedulerAddress.parse(where, Certificates(tmp_path)))
    with engine, Pool(engine, "job") as pool:
        assert pool.tiers() == [TIER]
        assert measured(pool) == "ok"
        first.send_signal(signal.SIGKILL)
        assert becomes(lambda: not engine.devices())
        start("worker", "--device", "null", "--name", "b", "--scheduler", where)
        assert measured(pool) == "ok"
        scheduler.send_signal(signal.SIGKILL)
        assert becomes(lambda: not engine.devices())
        start("scheduler", "--port", where.rpartition(":")[2])
        assert becomes(lambda: list(engine.devices()) == ["b"])
        assert measured(pool) == "ok"


@night
def test_a_worker_that_falls_silent_is_lost_until_it_is_heard_of(start: Start, tmp_path: Path) -> None:
    where = f"127.0.0.1:{unused_port()}"
    start("scheduler", "--port", where.rpartition(":")[2])
    worker = start("worker", "--device", "null", "--name", "a", "--scheduler", where)
    with DaskEngine(SchedulerAddress.parse(where, Certificates(tmp_path))) as engine, Pool(engine, "job") as pool:
        assert measured(pool) == "ok"
        worker.send_signal(signal.SIGSTOP)  # its connections stay
        with pytest.raises(DeviceGone):
            engine.call("a", Call("renew", "job"))
        worker.send_signal(signal.SIGCONT)
        assert becomes(engine.devices)


@night
def test_what_a_worker_has_told_before_it_is_lost_is_heard(start: Start, tmp_path: Path) -> None:
    where = f"127.0.0.1:{unused_port()}"
    start("scheduler", "--port", where.rpartition(":")[2])
    worker = start("worker", "--device", "waiting", "--name", "a", "--scheduler", where)
    heard: list[int | None] = []
    with DaskEngine(SchedulerAddress.parse(where, Certificates(tmp_path))) as engine:

        def hear(progress: Progress) -> None:
            heard.append(progress.variant)
            if len(heard) == 1:  # slow, as one who writes it down: meanwhile the others come, and the worker goes
                time.sleep(1)
                worker.send_signal(signal.SIGKILL)
                assert becomes(lambda: not engine.devices())

        connection = FarmConnection(engine, "a", "job", threading.Lock())
        handle = connection.ask(UploadBuffer(np.arange(16, dtype=np.float32).data)).buffer
        request = batch_of(handle, handle)
        variants = tuple(replace(request.variants[0], number=number) for number in range(8))
        with pytest.raises(TargetError, match=r"device a .*with a batch of 8 variants.*stopping"):
            connection.ask(replace(request, variants=variants, warm_up_ns=20_000_000_000), hear)
    assert heard == list(range(8))


def listening(process: subprocess.Popen[str]) -> set[str]:
    """Where a process listens, by TCP over IPv4 and IPv6."""
    sockets, found = set[str](), set[str]()
    for path in Path(f"/proc/{process.pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # it was closed meanwhile
            sockets.add(str(path.readlink()))
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/{process.pid}/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_, inode = line.split()[:10]
            if state == "0A" and f"socket:[{inode}]" in sockets:
                address, port = local.split(":")
                numbers = reversed(bytes.fromhex(address))
                found.add(f"{'.'.join(map(str, numbers)) if table == 'tcp' else address}:{int(port, 16)}")
    return found


@night
@pytest.mark.skipif(sys.platform != "linux", reason="the system says in /proc who listens")
@pytest.mark.parametrize("dashboard", ["off", "taken", "shown"])
def test_a_scheduler_listens_where_it_says_and_nowhere_else(start: Start, dashboard: str) -> None:
    port, dashboard_port = unused_port(), unused_port()
    where = f"127.0.0.1:{port}"
    if dashboard == "taken":
        start("scheduler", "--port", dashboard_port, "--dashboard_port", "0")
    asked = 0 if dashboard == "off" else dashboard_port
    scheduler = start("scheduler", "--port", port, "--dashboard_port", asked)
    assert scheduler.stdout is not None
    said = scheduler.stdout.readline()
    if dashboard == "shown":
        pytest.importorskip("bokeh")
        assert f"http://127.0.0.1:{dashboard_port}/status" in said
        with urllib.request.urlopen(f"http://127.0.0.1:{dashboard_port}/status") as page:
            assert b"Dask" in page.read()
        assert listening(scheduler) == {where, f"127.0.0.1:{dashboard_port}"}
    else:
        assert said.startswith("Dask's dashboard: off")
        assert listening(scheduler) == {where}
    worker = start("worker", "--device", "null", "--scheduler", where)
    (own,) = listening(worker)
    assert own.startswith("127.0.0.1:")
