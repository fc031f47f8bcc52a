"""Test devices behind an agent: they work like those of this machine, and what an agent survives."""

import threading
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from gputune.cache import PerformanceCache
from gputune.client.model.plan import Task
from gputune.client.target.connecting import Target
from gputune.client.tuning.search import task_search
from gputune.client.tuning.search.effort import EFFORTS
from gputune.client.tuning.tuner import Tuner
from gputune.core.dtypes import ELEMENT_TYPES
from gputune.core.errors import BuildFailed, DeviceError, DeviceNotFound, LaunchFailed, LimitExceeded
from gputune.core.quirks import quirks_of
from gputune.runtime.backends import Backend, Batch, Bound, Bounds, Buffer, Reference, Zone
from gputune.runtime.backends.answers import POISON
from gputune.runtime.devices import load
from gputune.runtime.devices.discovery import DeviceReport
from gputune.runtime.devices.features import Probe
from gputune.server.agent import agent_proofs
from gputune.server.agent import opening as agent_opening
from gputune.server.agent.agent_connection import AgentConnection, AgentLost
from gputune.server.agent.backend import AgentBackend
from gputune.server.agent.messages import ReadFiles
from gputune.server.agent.opening import find_device, open_device
from gputune.server.agent.state import ConnectedState
from tests.opencl.runtime import planted
from tests.opencl.server.conftest import TOKEN, Agent
from tests.waiting import PATIENCE_SECONDS

OPTIONS = "-cl-std=CL1.2"
ADD = "__kernel void add(__global float *x, int n) { x[get_global_id(0)] += n; }"
ENDLESS = "__kernel void endless(volatile __global float *x) { while (x[0] < 1e30f) ; }"
WILD = "__kernel void wild(__global int *x) { *(__global int *)(8 + 0 * (size_t)x) = 1; }"


def adding(backend: Backend, count: int = 16) -> tuple[Bound, np.ndarray]:
    values = np.arange(count, dtype=np.float32)
    program = backend.build(ADD, OPTIONS)
    return backend.bind(program, "add", (count,), (4,), [backend.upload(values), 3]), values


def test_the_agent_knows_the_device_as_its_own_driver_says(
    agent: Agent, target: Target, opened: AgentBackend, backend: Backend
) -> None:
    ours, theirs = backend.identity.to_dict(), opened.identity.to_dict()
    told_anew = ("driver", "global_memory_bytes", "max_allocation_bytes")  # a driver says another one in each process
    assert all(ours[name] == theirs[name] for name in ours if name not in told_anew)
    assert opened.cache_bytes == backend.cache_bytes
    with target.connect() as client:
        assert client.device["name"] == ours["name"]


def test_launches_compute_and_have_times(opened: AgentBackend) -> None:
    bound, values = adding(opened)
    (buffer,) = bound.buffers
    running: list[bool] = []
    first = opened.first_launch(bound, lambda: running.append(True))
    assert running == [True] and 0 < first.event_ns <= first.wall_ns
    np.testing.assert_array_equal(opened.read(buffer).view(np.float32), values + 3)
    timing = opened.time(bound, 5)
    assert timing.times.shape == (5, 4) and (timing.times[:, 3] >= timing.times[:, 2]).all()
    assert timing.event_ns == (timing.times[:, 3] - timing.times[:, 2]).sum() and timing.wall_ns > 0
    timings = opened.time_pass([Batch(bound, 2, 1 << 20), Batch(bound, 3)])
    assert [one.launches for one in timings] == [2, 3] and [len(one.times) for one in timings] == [2, 3]
    assert len(opened.time_pass([Batch(bound), Batch(bound)], 1.0)) == 1
    stamped = opened.enqueue_timed([bound, bound])
    opened.finish()
    assert stamped().shape == (2, 4)
    opened.enqueue(bound)
    np.testing.assert_array_equal(opened.read(buffer).view(np.float32), values + 3 * 15)


def test_parts_are_read_and_written_where_they_lie(opened: AgentBackend) -> None:
    step = opened.identity.base_address_alignment_bytes
    whole = opened.allocate(3 * step)
    opened.fill(whole, 7)
    part = opened.part(whole, step, 8)
    opened.write(part, np.array([1.0, 2.0], np.float32))
    opened.enqueue(opened.bind(opened.build(ADD, OPTIONS), "add", (2,), (1,), [part, 1]))
    content = opened.read(whole)
    np.testing.assert_array_equal(content[step : step + 8].view(np.float32), [2.0, 3.0])
    assert (np.delete(content, np.s_[step : step + 8]) == 7).all()
    into = np.empty(8, np.uint8)
    assert opened.read(part, into) is into and into.view(np.float32)[0] == 2.0


def test_a_binary_is_loaded_again(opened: AgentBackend) -> None:
    bound, values = adding(opened)
    opened.first_launch(bound, lambda: None)
    binary = opened.harvest(bound.kernel.program)
    program = opened.load_binary(binary)
    buffer = opened.upload(values)
    opened.enqueue(opened.bind(program, "add", (16,), (4,), [buffer, 3]))
    np.testing.assert_array_equal(opened.read(buffer).view(np.float32), values + 3)
    with pytest.raises(BuildFailed):
        opened.load_binary(b"no binary")


def test_what_fails_says_why_and_costs_nothing_else(opened: AgentBackend) -> None:
    with pytest.raises(BuildFailed, match="oops"):
        opened.build("__kernel void run(__global float *x) { oops }", OPTIONS)
    program, buffer = opened.build(ADD, OPTIONS), opened.allocate(64)
    wrong: tuple[tuple[str, list[Buffer | int], type[DeviceError], str], ...] = (  # which are not waited for
        ("other", [buffer, 3], BuildFailed, "no kernel 'other'"),
        ("add", [buffer], LaunchFailed, "takes 2 arguments, 1 are given"),
    )
    for entry, arguments, error, why in wrong:
        bound = opened.bind(program, entry, (16,), (4,), arguments)
        with pytest.raises(error, match=why):
            opened.first_launch(bound, lambda: None)
    with pytest.raises(LimitExceeded, match="largest allocation"):
        opened.allocate(opened.identity.max_allocation_bytes + 1)
    with pytest.raises(LaunchFailed, match="65 bytes"):
        opened.write(buffer, bytes(65))
    assert not opened.lost()


def test_outputs_are_compared_beside_the_device_as_here(opened: AgentBackend) -> None:
    rng = np.random.default_rng(5)
    guard, bounds = 128, Bounds(1e-3, 10.0, 1e-3, 1e-6)
    for dtype in ELEMENT_TYPES:
        want = rng.normal(0, 50, 777).astype(dtype)
        if ELEMENT_TYPES[dtype].is_float:
            want[:6] = [np.nan, np.nan, np.inf, -np.inf, 6e-8, 3e4]
        for changes in (0, 1, 60):
            got = want.copy()
            for place in rng.choice(got.size, changes, replace=False):
                got[place : place + 1].view(np.uint8)[:] = rng.choice([0, 1, 60, POISON], got.itemsize)
            got[0] = want[0] if changes else np.frombuffer(b"\xff" * got.itemsize, dtype)[0]
            content = np.full(got.nbytes + 2 * guard + 5, POISON, np.uint8)
            content[guard : guard + got.nbytes] = got.view(np.uint8)
            content[rng.choice(guard, changes // 20)] = content[-1 - rng.choice(guard, changes // 20)] = 3
            buffer = opened.upload(content)
            zones = [Zone(buffer, guard, got.nbytes), Zone(buffer, 0, buffer.nbytes), Zone(buffer, 7, 0, False)]
            reference = Reference(want, bounds)
            for _ in range(2):  # the agent has the reference then
                assert opened.compare(zones[0], reference, zones[1:]) == Backend.compare(
                    opened, zones[0], reference, zones[1:]
                )
    assert opened.checksum(zones) == Backend.checksum(opened, zones)
    with pytest.raises(LaunchFailed, match="are compared with"):
        opened.compare(Zone(buffer, 0, 8), reference)
    with pytest.raises(LaunchFailed, match="guards lie outside"):
        opened.checksum([Zone(buffer, 1, buffer.nbytes)])


def test_the_state_of_its_machine_is_known(agent: Agent, opened: AgentBackend) -> None:
    found = opened.state()
    assert found[load.PROCESSORS] >= 1 and found["load_1_minute"] >= 0 and found[load.CLOCK] > 0
    connection = AgentConnection(agent.address)
    paths = ("/proc/uptime", "/sys", "/sys/devices", "/proc/self/environ", "/sys/../etc/passwd", "/proc/self/root/etc")
    told = [bytes(each) for each in connection.ask(ReadFiles(paths, 10**9)).data]
    assert told[0] and b"system\n" in told[2] and not any(told[3:])
    connection.close()
    far = ConnectedState(agent.address)
    assert set(far.read()) == set(found)
    far.close()
    assert far.read() and not opened.lost()
    far.close()


def test_features_are_proven_on_the_device(opened: AgentBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    sources = {
        "right": "__kernel void probe(__global int *x) { x[0] *= 2; }",
        "wrong": "__kernel void probe(__global int *x) { x[0] = 7; }",
        "refused": "__kernel void probe(__global int *x) { oops }",
        "crash": WILD.replace("wild", "probe"),
        "late": ENDLESS.replace("endless", "probe"),
    }
    probes = {name: Probe(source, given=(1,), wanted=(2,)) for name, source in sources.items()}
    monkeypatch.setattr(agent_proofs, "PROBES", probes)
    monkeypatch.setattr("gputune.runtime.backends.probe.PROBES", probes)
    monkeypatch.setattr(agent_proofs, "FEATURE_SECONDS", PATIENCE_SECONDS)
    found = dict(opened.prove([*(name for name in probes if name != "late"), "unknown"]))
    monkeypatch.setattr(agent_proofs, "FEATURE_SECONDS", 1.0)
    found |= opened.prove(["late"])
    assert found["right"] == "" and "computes [7], not [2]" in found["wrong"] and "not compile" in found["refused"]
    assert found["crash"] == "its process there ended: it was ended by signal 11"
    assert found["late"] == "it took longer than 1 s" and "no test" in found["unknown"]
    assert not opened.lost()
    monkeypatch.setattr(agent_proofs, "PROBES", {})
    assert opened.prove(["right"]) == {"right": ""}


def test_a_process_that_only_compiles_has_variables_of_its_own(
    agent: Agent, opened: AgentBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    unbound = quirks_of(opened.identity).unbound
    for name, value in unbound.items():
        monkeypatch.setenv(name, value)
    other = open_device(find_device(agent.device).report)
    assert isinstance(other, AgentBackend)
    assert all(other.settings[name] == value != opened.settings[name] for name, value in unbound.items())
    assert not opened.finds_compiled  # nothing has said where it could
    other.close()


def test_a_buffer_is_copied_on_the_device(opened: AgentBackend) -> None:
    source, target = opened.upload(np.arange(8, dtype=np.uint8)), opened.upload(np.zeros(10, np.uint8))
    opened.copy(source, target)
    np.testing.assert_array_equal(opened.read(target), [*range(8), 0, 0])
    opened.copy(target, source)
    with pytest.raises(LaunchFailed, match="10 bytes at 0 of a buffer of 8 bytes"):
        opened.finish()


def test_memory_is_free_again_when_nothing_has_it(agent: Agent, opened: AgentBackend) -> None:
    before = agent.resident_bytes()
    for _ in range(8):
        opened.fill(opened.allocate(64 << 20), 1)
    opened.finish()
    if opened.identity.device_type == "cpu":  # of others the memory is not the agent's
        assert agent.resident_bytes() - before < 200 << 20
    bound, _ = adding(opened)  # its buffer is nowhere else
    assert opened.time(bound, 1).launches == 1


def test_a_stranger_learns_nothing_and_changes_nothing(agent: Agent, opened: AgentBackend) -> None:
    with pytest.raises(DeviceNotFound, match="knows the token"):
        AgentConnection(agent.address, TOKEN + "?")
    with pytest.raises(DeviceNotFound, match="16 to 4096"):
        AgentConnection(agent.address, "short")
    assert not opened.lost()


@pytest.mark.own("it is killed")
@pytest.mark.usefixtures("agent")
def test_an_agent_that_is_started_again_is_waited_for(report: DeviceReport, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(Agent(report, TOKEN)) as other:
        known = find_device(other.device).report
        other.process.kill()
        other.process.wait()
        threading.Timer(1.0, other.keep).start()
        backend = open_device(known)
        assert isinstance(backend, AgentBackend) and not backend.lost()
        backend.close()
        other.close()
        monkeypatch.setattr(agent_opening, "AWAITED_SECONDS", 0.0)
        with pytest.raises(DeviceNotFound, match="cannot be reached"):
            open_device(known)


def test_a_kernel_that_never_ends_goes_with_its_connection(agent: Agent) -> None:
    report, others = find_device(agent.device).report, agent.children()
    backend = open_device(report)
    assert isinstance(backend, AgentBackend)
    (child,) = agent.children() - others
    bound = backend.bind(backend.build(ENDLESS, OPTIONS), "endless", (1,), (1,), [backend.upload(bytes(64))])
    started = threading.Event()
    lost: list[BaseException] = []

    def launch() -> None:
        try:
            backend.first_launch(bound, started.set)
        except AgentLost as error:
            lost.append(error)

    thread = threading.Thread(target=launch)
    thread.start()
    assert started.wait(PATIENCE_SECONDS)
    backend._connection._socket.shutdown(2)
    thread.join(PATIENCE_SECONDS)
    assert len(lost) == 1
    agent.wait_until_gone(child)
    assert backend._connection.ending() == ""


def test_a_crash_is_told_to_who_lost_the_connection(agent: Agent) -> None:
    backend = open_device(find_device(agent.device).report)
    if backend.identity.device_type != "cpu":
        pytest.skip("only a CPU device's kernels take their process with them for certain")
    bound = backend.bind(backend.build(WILD, OPTIONS), "wild", (1,), (1,), [backend.upload(bytes(64))])
    with pytest.raises(AgentLost):
        backend.first_launch(bound, lambda: None)
    with pytest.raises(DeviceNotFound):
        AgentConnection(agent.address, TOKEN + "?")  # who does not know the token changes nothing
    AgentConnection(agent.address).close()  # nor does another client
    assert isinstance(backend, AgentBackend)
    assert backend.lost() and backend._connection.ending() == "it was ended by signal 11"


@pytest.mark.night
def test_tuning_behind_an_agent_blames_those_that_fail(
    target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task_search, "family_of", lambda op: planted.PlantedFamily())
    task = Task(planted.PlantedFamily.op, planted.Doubled(), 1)
    with (
        target.connect() as client,
        PerformanceCache.open(tmp_path / "cache.sqlite") as cache,
    ):
        (outcome,) = Tuner([client], cache, EFFORTS["quick"]).tune([task])
    assert outcome.trials == {"compile": 1, "correctness": 2, "crash": 1, "device_limits": 1, "ok": 2, "timeout": 1}
    assert outcome.configuration == {"PLANT": planted.FASTEST}, (outcome.default_ns, outcome.tuned_ns, outcome.drift)
