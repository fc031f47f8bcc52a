"""Test contexts on a device behind an agent: they run there as in an application, with the results of other devices."""

import hashlib
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from gputune.client.cli.main import main
from gputune.client.errors import DeviceOrContextError, TargetError
from gputune.client.model.plan import Plan
from gputune.client.target.connecting import Target
from gputune.client.target.remote_executor import RemoteExecutor
from gputune.core.errors import ChecksumMismatch, LaunchFailed, LimitExceeded, WrongDevice
from gputune.core.quirks import groups_at_once
from gputune.kernels.family import Array
from gputune.runtime.backends import Backend
from gputune.runtime.context.format import context_of
from gputune.runtime.context.records import GraphRecord
from gputune.runtime.memory.handles import MemHandle
from gputune.runtime.profiling.log import read_log
from gputune.runtime.profiling.records import digest_of
from gputune.server.agent import messages
from gputune.server.agent.backend import AgentBackend
from gputune.server.agent.contexts import AgentContext
from gputune.server.protocol.errors import ProtocolError
from gputune.server.protocol.limits import Limits
from tests.client import models
from tests.client.commands import read_json
from tests.opencl.contexts import contexts, loaded, plan
from tests.opencl.server.conftest import Agent
from tests.strategies.files.contexts import header_of

__all__ = ["plan"]

INFERENCES = 3


@pytest.fixture
def path(backend: Backend, plan: Plan, tmp_path: Path) -> Path:
    return contexts(backend, plan, tmp_path / "model.bin")


def inputs_of(graph: GraphRecord) -> dict[str, Array]:
    numbers = np.random.default_rng(2)
    return {tensor.name: numbers.standard_normal(tensor.shape).astype(tensor.dtype) for tensor in graph.inputs}


def bits(outputs: Mapping[str, Array]) -> dict[str, bytes]:
    return {name: array.tobytes() for name, array in outputs.items()}


def changed(whole: bytes, **fields: Any) -> bytes:
    """A context whose header has other values of the same size, and the right checksum."""
    header: bytes = msgpack.packb({**header_of(whole), **fields})
    place = whole.index(msgpack.packb(header_of(whole)))
    return whole[:16] + hashlib.sha256(header).digest() + whole[48:place] + header + whole[place + len(header) :]


def of_another_device(whole: bytes) -> bytes:
    device = header_of(whole)["device"]
    return changed(whole, device={**device, "driver_version": "?" * len(device["driver_version"])})


def context_on_agent(opened: AgentBackend, whole: bytes, strict: bool = True) -> AgentContext:
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


def test_errors_have_the_names_of_other_devices(opened: AgentBackend, path: Path) -> None:
    whole = path.read_bytes()
    with pytest.raises(ChecksumMismatch, match="weights section"):
        context_on_agent(opened, whole[:-1] + bytes([whole[-1] ^ 1]))
    with pytest.raises(WrongDevice, match="made for another device"):
        context_on_agent(opened, of_another_device(whole))
    with pytest.raises(WrongDevice, match="made by the null device"):
        context_on_agent(opened, changed(whole, computes=False))
    refuse = opened.ask
    opened.ask = lambda *what: refuse(messages.Allocate(9, 2**47))  # type: ignore[method-assign]
    with pytest.raises(WrongDevice, match=r"cannot run graph .* largest allocation"):
        context_on_agent(opened, whole)
    with pytest.raises(LimitExceeded):
        opened.ask(messages.Allocate(9, 1))
    assert not opened.lost()


def test_inferences_run_in_the_form_that_is_asked_for(opened: AgentBackend, path: Path) -> None:
    executor = context_on_agent(opened, path.read_bytes())
    given = tuple(array.tobytes() for array in inputs_of(executor.graph).values())
    usual = [opened.ask(messages.RunContext(executor._handle.number, given, False, True)) for _ in range(2)]
    single = [opened.ask(messages.RunContext(executor._handle.number, given, False, False)) for _ in range(2)]
    assert {one.form for one in single} == {"launches"}
    if groups_at_once(opened.identity):
        assert usual[0].form in ("persistent", "aborted")
    assert len({bytes(data) for one in (*usual, *single) for data in one.outputs}) == 1
    executor.close()


def test_a_freed_context_is_gone(opened: AgentBackend, agent: Agent, path: Path) -> None:
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
    grown = agent.resident_bytes() - before
    assert opened.identity.device_type != "cpu" or grown < 16 << 20, "of others the memory is not the agent's"


def test_what_does_not_fit_is_refused(opened: AgentBackend, path: Path) -> None:
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


def test_a_context_beyond_a_limit_is_not_sent(
    opened: AgentBackend, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched, pytest.raises(ProtocolError, match="frame_bytes"):
        patched.setattr("gputune.server.agent.agent_connection.LIMITS", Limits(frame_bytes=1 << 12))
        context_on_agent(opened, path.read_bytes())
    executor = context_on_agent(opened, path.read_bytes())  # nothing waits for an answer to what was not sent
    executor.run_timed(inputs_of(executor.graph), {})
    executor.close()


def test_memory_handles_are_copied_and_counted(opened: AgentBackend, path: Path) -> None:
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


def net_run(backend: Backend, path: Path, folder: Path, *options: str) -> None:
    """Run a context through the command; check outputs and times."""
    with loaded(backend, path) as here:
        inputs = inputs_of(here.graph)
        ((output, want),) = here.run(inputs).items()
    ((name, array),) = inputs.items()
    np.save(folder / "x.npy", array)
    (folder / "list.txt").write_text(f"{name}:={folder / 'x.npy'}\n", encoding="utf-8")
    command = ["net-run", "--retrieve_context", str(path), "--input_list", str(folder / "list.txt")]
    command += ["--output_dir", str(folder), "--summary_json", str(folder / "summary.json"), "--num_inferences", "3"]
    assert run([*command, *options]) == 0
    assert (folder / "Result_0" / f"{output}.raw").read_bytes() == want.tobytes()
    summary = read_json(folder / "summary.json")
    assert len(summary["inference_ns"]) == INFERENCES
    assert all(inner < outer for inner, outer in zip(summary["inference_ns"], summary["round_trip_ns"], strict=True))


def test_net_run_reaches_an_agent_itself(
    agent: Agent, backend: Backend, path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TARGET_SERVER_SOCKET", "127.0.0.1:1")
    net_run(backend, path, tmp_path, "--device", agent.device)


@pytest.mark.parametrize("level", ["basic", "detailed"])
def test_net_run_writes_a_profile(
    target: Target,
    backend: Backend,
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    level: str,
) -> None:
    monkeypatch.setenv("GPUTUNE_TOKEN", str(target.credentials.token))
    net_run(backend, path, tmp_path, "--target", f"{target.host}:{target.port}", "--profiling_level", level)
    (file,) = tmp_path.rglob("*.log")
    log = read_log(file)
    (graph,), (comparison,) = log.graphs, log.comparisons
    assert log.complete and digest_of(graph.launches) == graph.digest and len(log.inferences) == INFERENCES
    assert log.header.device == backend.identity.to_dict() | {"driver": ""} and graph.context
    assert [len(comparison.profiled_ns), len(comparison.unprofiled_ns), len(comparison.usual_ns)] == 3 * [INFERENCES]
    assert all(len(one.launches) == (len(graph.launches) if level == "detailed" else 0) for one in log.inferences)
    capsys.readouterr()
    assert run(["profile-viewer", "--input_log", str(file)]) == 0
    assert graph.launches[0].operation in capsys.readouterr().out or level == "basic"


def test_a_level_of_profiles_that_agents_do_not_have_is_refused(target: Target, path: Path) -> None:
    with target.connect() as client:
        executor = RemoteExecutor(client, path, None, strict=True)
        with pytest.raises(TargetError, match="levels basic and detailed, and not at level qhas"):
            executor.profile(inputs_of(executor.graph), 1, "qhas")
        executor.profile(inputs_of(executor.graph), 1, "basic")


def test_the_generator_verifies_on_an_agent(
    agent: Agent, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TARGET_SERVER_SOCKET", raising=False)
    model = models.save(models.conv_relu_gemm(), tmp_path)
    command = ["context-binary-generator", "--model", str(model), "--binary_file", "small", "--verify"]
    command += ["--output_dir", str(tmp_path), "--tuning_effort", "none", "--device", agent.device]
    assert run(command) == 0
    assert "verified: output 'y'" in capsys.readouterr().err


def run(command: list[str]) -> int:
    with pytest.raises(SystemExit) as ended:
        main(command)
    return int(ended.value.code or 0)


def test_a_profile_that_is_cut_short_leaves_no_other_one_open(opened: AgentBackend, path: Path) -> None:
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
