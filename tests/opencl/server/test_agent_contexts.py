"""Test contexts on a device behind an agent: they run there as in an application, with the results of other devices."""

import hashlib
import io
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from gputune.client.cli.main import main
from gputune.client.errors import DeviceOrContextError, TargetError
from gputune.client.model.plan import Plan
from gputune.client.target.connecting import Target, choose_target
from gputune.client.target.remote_executor import RemoteExecutor
from gputune.core.errors import ChecksumMismatch, LaunchFailed, LimitExceeded, WrongDevice
from gputune.core.quirks import groups_at_once
from gputune.kernels.family import Array
from gputune.runtime.backends import Backend
from gputune.runtime.context.format import context_of
from gputune.runtime.context.records import GraphRecord
from gputune.runtime.devices.discovery import AGENT_PREFIX
from gputune.runtime.memory.handles import MemHandle
from gputune.runtime.profiling.log import read_log
from gputune.runtime.profiling.records import LogHeader, digest_of
from gputune.server.agent import messages
from gputune.server.agent.backend import AgentBackend
from gputune.server.agent.contexts import AgentContext
from stress.fuzz.context import header_of
from tests.client.commands import read_json
from tests.opencl.client.test_persistent_contexts import contexts, loaded, plan
from tests.opencl.server.test_agent import Agent, agent, opened

__all__ = ["agent", "opened", "plan"]

INFERENCES = 3
MADE: list[bytes] = []
"""The context of the plan, which is the same for each test."""


@pytest.fixture
def path(backend: Backend, plan: Plan, tmp_path: Path) -> Path:
    path = tmp_path / "model.bin"
    if not MADE:
        MADE.append(contexts(backend, plan, path).read_bytes())
    path.write_bytes(MADE[0])
    return path


@pytest.fixture
def target(agent: Agent) -> Iterator[Target]:
    with choose_target(None, {}, device=f"{AGENT_PREFIX}{agent.address}") as chosen:
        yield chosen


def inputs_of(graph: GraphRecord) -> dict[str, Array]:
    numbers = np.random.default_rng(2)
    return {tensor.name: numbers.standard_normal(tensor.shape).astype(tensor.dtype) for tensor in graph.inputs}


def bits(outputs: Mapping[str, Array]) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in outputs.items()}


def changed(whole: bytes, **fields: Any) -> bytes:
    """A context whose header has other values of the same size, and the right checksum."""
    header = msgpack.packb({**header_of(whole), **fields})
    place = whole.index(msgpack.packb(header_of(whole)))
    return whole[:16] + hashlib.sha256(header).digest() + whole[48:place] + header + whole[place + len(header) :]


def of_another_device(whole: bytes) -> bytes:
    device = header_of(whole)["device"]
    return changed(whole, device={**device, "driver_version": "?" * len(device["driver_version"])})


def context_on_agent(opened: Backend, whole: bytes, strict: bool = True) -> AgentContext:
    assert isinstance(opened, AgentBackend)
    return AgentContext(opened, context_of(memoryview(whole), "the context"), None, strict)


def test_a_context_computes_the_same_as_on_this_machine(target: Target, backend: Backend, path: Path) -> None:
    with loaded(backend, path) as here, target.connect() as client:
        executor = RemoteExecutor(client, path, None, strict=True)
        assert executor.computes and executor.warnings == [] and executor.load_ns > 0
        for _ in range(INFERENCES):
            inputs = inputs_of(here.graph)
            outputs, elapsed_ns = executor.run_timed(inputs)
            assert 0 < elapsed_ns < executor.round_trip_ns[-1]
            assert bits(outputs) == bits(here.run(inputs))
        executor.close()


def test_a_context_for_another_device_is_built_or_refused(target: Target, backend: Backend, path: Path) -> None:
    path.write_bytes(of_another_device(path.read_bytes()))
    with target.connect() as client:
        with pytest.raises(DeviceOrContextError, match="made for another device: driver_version is") as refused:
            RemoteExecutor(client, path, None, strict=True)
        assert "[bad_context]" in str(refused.value)
        executor = RemoteExecutor(client, path, None, strict=False)
        (warning,) = executor.warnings
        assert warning.startswith("building from source on another device: driver_version is")
        executor.run_timed(inputs_of(executor.graph))


def test_errors_have_the_names_of_other_devices(opened: Backend, path: Path) -> None:
    whole = path.read_bytes()
    with pytest.raises(ChecksumMismatch, match="weights section"):
        context_on_agent(opened, whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(WrongDevice, match="made for another device"):
        context_on_agent(opened, of_another_device(whole))
    with pytest.raises(WrongDevice, match="made by the null device"):
        context_on_agent(opened, changed(whole, computes=False))
    assert isinstance(opened, AgentBackend)
    refuse = opened.ask
    opened.ask = lambda request: refuse(messages.Allocate(9, 2**47))  # type: ignore[method-assign]
    with pytest.raises(WrongDevice, match=r"cannot run graph .* largest allocation"):
        context_on_agent(opened, whole)
    with pytest.raises(LimitExceeded):
        opened.ask(messages.Allocate(9, 1))
    assert not opened.lost()


def test_inferences_run_in_the_form_that_is_asked_for(opened: Backend, path: Path) -> None:
    executor = context_on_agent(opened, path.read_bytes())
    assert isinstance(opened, AgentBackend)
    given = tuple(array.tobytes() for array in inputs_of(executor.graph).values())
    usual = [opened.ask(messages.RunContext(executor._handle.number, given, False, True)) for _ in range(2)]
    single = [opened.ask(messages.RunContext(executor._handle.number, given, False, False)) for _ in range(2)]
    assert {one.form for one in single} == {"launches"}
    if groups_at_once(opened.identity):
        assert usual[0].form in ("persistent", "aborted")
    assert len({bytes(data) for one in (*usual, *single) for data in one.outputs}) == 1
    executor.close()


def test_a_freed_context_is_gone(opened: Backend, agent: Agent, path: Path) -> None:
    assert isinstance(opened, AgentBackend)
    executor = context_on_agent(opened, path.read_bytes())
    inputs = inputs_of(executor.graph)
    executor.run_timed(inputs, {})
    executor.close()
    with pytest.raises(LaunchFailed, match="is no context"):
        executor.run_timed(inputs, {})
    before = agent.resident_bytes()
    for _ in range(30):
        executor = context_on_agent(opened, path.read_bytes())
        executor.run_timed(inputs, {})
        executor.close()
    if opened.identity.device_type == "cpu":
        assert agent.resident_bytes() - before < 50 << 20


def test_what_does_not_fit_is_refused(opened: Backend, path: Path) -> None:
    assert isinstance(opened, AgentBackend)
    executor = context_on_agent(opened, path.read_bytes())
    inputs = inputs_of(executor.graph)
    (name,), (tensor,) = inputs, executor.graph.outputs
    for wrong, into in (({}, {}), ({**inputs, "z": inputs[name]}, {}), (inputs, {"z": inputs[name]})):
        with pytest.raises(ValueError, match=r"is no (in|out)put or is not given"):
            executor.run_timed(wrong, into)
    small = MemHandle.allocate(tensor.nbytes - 1)
    with pytest.raises(ValueError, match=f"{tensor.nbytes - 1} bytes"):
        executor.run_timed(inputs, {tensor.name: small})
    data = inputs[name].tobytes()
    for given in ((), (data[:-1],), (data, data)):
        with pytest.raises(LaunchFailed, match=r"inputs for a graph with|bytes for input"):
            opened.ask(messages.RunContext(executor._handle.number, given, False, True))
    executor.close()


def test_memory_handles_are_copied_and_counted(opened: Backend, path: Path) -> None:
    executor = context_on_agent(opened, path.read_bytes())
    inputs = inputs_of(executor.graph)
    want, _ = executor.run_timed(inputs, {})
    assert sum(each.bytes_copied for each in executor.counters.total.values()) == 0
    ((name, array),), (tensor,) = inputs.items(), executor.graph.outputs
    given, into = MemHandle.allocate(array.nbytes + 8), MemHandle.allocate(tensor.nbytes)
    given.view(array.dtype, array.shape)[...] = array
    got, _ = executor.run_timed({name: given}, {tensor.name: into})
    assert bits(got) == bits(want) == {tensor.name: into.view(np.uint8, [into.nbytes]).tobytes()}
    assert {key: each.bytes_copied for key, each in executor.counters.last.items()} == {
        name: array.nbytes,
        tensor.name: tensor.nbytes,
    }
    executor.close()


@pytest.mark.parametrize("level", ["basic", "detailed"])
def test_net_run_and_its_profile(
    target: Target,
    backend: Backend,
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    level: str,
) -> None:
    with loaded(backend, path) as here:
        inputs = inputs_of(here.graph)
        ((output, want),) = here.run(inputs).items()
    ((name, array),) = inputs.items()
    np.save(tmp_path / "x.npy", array)
    (tmp_path / "list.txt").write_text(f"{name}:={tmp_path / 'x.npy'}\n", encoding="utf-8")
    monkeypatch.setenv("GPUTUNE_TOKEN", str(target.credentials.token))
    command = ["net-run", "--retrieve_context", str(path), "--input_list", str(tmp_path / "list.txt")]
    command += ["--output_dir", str(tmp_path), "--target", f"{target.host}:{target.port}", "--num_inferences", "3"]
    command += ["--profiling_level", level, "--summary_json", str(tmp_path / "summary.json")]
    assert run(command) == 0
    assert (tmp_path / "Result_0" / f"{output}.raw").read_bytes() == want.tobytes()
    summary = read_json(tmp_path / "summary.json")
    assert all(inner < outer for inner, outer in zip(summary["inference_ns"], summary["round_trip_ns"], strict=True))
    (file,) = tmp_path.rglob("*.log")
    log = read_log(file)
    (graph,), (comparison,) = log.graphs, log.comparisons
    assert log.complete and digest_of(graph.launches) == graph.digest and len(log.inferences) == INFERENCES
    assert isinstance(log.header, LogHeader) and log.header.device == backend.identity.to_dict() | {"driver": ""}
    assert [len(comparison.profiled_ns), len(comparison.unprofiled_ns), len(comparison.usual_ns)] == 3 * [INFERENCES]
    assert all(len(one.launches) == (len(graph.launches) if level == "detailed" else 0) for one in log.inferences)
    capsys.readouterr()
    assert run(["profile-viewer", "--input_log", str(file)]) == 0
    assert graph.launches[0].operation in capsys.readouterr().out or level == "basic"
    assert run([*command[:-3], "qhas"]) != 0
    assert "levels basic and detailed, and not at level qhas" in capsys.readouterr().err


def run(command: list[str]) -> int:
    with pytest.raises(SystemExit) as ended:
        main(command)
    return int(ended.value.code or 0)


def test_a_profile_that_is_cut_short_leaves_no_other_one_open(opened: Backend, path: Path) -> None:
    assert isinstance(opened, AgentBackend)
    executor = context_on_agent(opened, path.read_bytes())
    inputs = inputs_of(executor.graph)

    def after(done: int) -> None:
        raise TargetError("cancelled", "enough")

    for level in ("basic", "detailed"):
        with pytest.raises(TargetError, match="enough"):
            executor.profile(io.BytesIO(), level, lambda: executor.run_timed(inputs, {})[1], 5, after, 0, "")
    opened.ask(messages.BeginProfile(executor._handle.number, "basic"))
    with pytest.raises(LaunchFailed, match="a profile is open already"):
        opened.ask(messages.BeginProfile(executor._handle.number, "basic"))
    executor.close()  # before its profile
    opened.ask(messages.EndProfile())
    with pytest.raises(LaunchFailed, match="no profile is open"):
        opened.ask(messages.EndProfile())
