"""Test a context that runs on a target, with a fake connection: what is sent, and what is believed."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gputune.client.errors import DeviceOrContextError, TargetError
from gputune.client.target.remote_executor import RemoteExecutor
from gputune.core.errors import NotAContext
from gputune.runtime.context.format import open_context
from gputune.runtime.context.packing import write_package
from gputune.server.protocol.limits import Limits
from gputune.server.protocol.messages import ContextExecuted, ContextLoaded
from tests.client.contexts import DEVICE, small_context

X = np.arange(8, dtype=np.float32).reshape(2, 4)


class FakeClient:
    """A target that doubles x."""

    address = "board:22598"
    device = DEVICE
    limits = Limits()

    def __init__(self) -> None:
        self.loaded: list[tuple[memoryview, str, bool]] = []
        self.freed: list[int] = []
        self.outputs: dict[str, Any] | None = None

    def load_context(self, data: memoryview, graph: str, strict: bool) -> ContextLoaded:
        self.loaded.append((data, graph, strict))
        return ContextLoaded(7, True, ("from source",), 1234)

    def free_contexts(self, *contexts: int) -> None:
        self.freed += contexts

    def execute_context(self, context: int, inputs: dict[str, memoryview], *memories: Any) -> ContextExecuted:
        assert (context, *memories) == (7, {}, {})
        assert list(inputs) == ["x"]
        doubled = np.frombuffer(inputs["x"], np.float32) * 2
        return ContextExecuted({"y": doubled.tobytes()} if self.outputs is None else self.outputs, 99)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return small_context(tmp_path / "context.bin")


def test_the_file_is_sent_as_it_is_and_outputs_come_back_as_arrays(path: Path) -> None:
    client: Any = FakeClient()
    executor = RemoteExecutor(client, path, None, strict=True)
    ((data, graph, strict),) = client.loaded
    assert (bytes(data), graph, strict) == (path.read_bytes(), "main", True)
    assert data.readonly and isinstance(data, memoryview), "mapped, not read"
    assert (executor.computes, executor.warnings, executor.load_ns) == (True, ["from source"], 1234)
    assert executor.device.to_dict() == DEVICE
    outputs, elapsed_ns = executor.run_timed({"x": X})
    np.testing.assert_array_equal(outputs["y"], X.reshape(8) * 2)
    executor.run_timed({"x": np.asfortranarray(X), "past": X[:0]})  # which is no input, because it would be empty
    assert elapsed_ns == 99, "the target's clock"
    assert len(executor.round_trip_ns) == 2
    assert min(executor.round_trip_ns) > 0


def test_of_a_package_the_context_for_the_target_is_sent_as_its_file_was(path: Path, tmp_path: Path) -> None:
    other = small_context(tmp_path / "other.bin", device={**DEVICE, "name": "other", "platform": "x"})
    write_package(tmp_path / "m.gtpkg", [open_context(other), open_context(path)])
    client: Any = FakeClient()
    executor = RemoteExecutor(client, tmp_path / "m.gtpkg", None, strict=True)
    ((data, _, _),) = client.loaded
    assert bytes(data) == path.read_bytes()
    assert executor.choice is not None and (executor.choice.name, executor.choice.fit) == ("null", "optimal")
    assert executor.warnings == ["from source"]


def test_closing_frees_the_context(path: Path) -> None:
    client: Any = FakeClient()
    RemoteExecutor(client, path, None, strict=True).close()
    assert client.freed == [7]


def test_values_are_sent_in_the_order_of_the_shape(path: Path) -> None:
    client: Any = FakeClient()
    outputs, _ = RemoteExecutor(client, path, None, strict=False).run_timed({"x": np.asfortranarray(X)})
    np.testing.assert_array_equal(outputs["y"], X.reshape(8) * 2)


@pytest.mark.parametrize(
    ("outputs", "complaint"),
    [({}, r"outputs \[\] instead of \['y'\]"), ({"y": b"1234"}, "4 bytes for output 'y', which has 32")],
)
def test_nonsense_from_a_target_is_refused(path: Path, outputs: dict[str, bytes], complaint: str) -> None:
    client: Any = FakeClient()
    client.outputs = outputs
    with pytest.raises(TargetError, match=complaint):
        RemoteExecutor(client, path, None, strict=False).run_timed({"x": X})


def test_a_bad_file_or_graph_is_noticed_before_anything_is_sent(path: Path, tmp_path: Path) -> None:
    client: Any = FakeClient()
    with pytest.raises(ValueError, match=r"there is no graph 'other'; the graphs are \['main'\]"):
        RemoteExecutor(client, path, "other", strict=False)
    (tmp_path / "empty.bin").touch()
    with pytest.raises(NotAContext):
        RemoteExecutor(client, tmp_path / "empty.bin", None, strict=False)
    assert client.loaded == []


def test_a_context_that_the_target_cannot_run_is_no_fault_of_the_connection(path: Path) -> None:
    def refuse(*arguments: object) -> Any:
        raise TargetError("bad_context", "made for another device")

    client: Any = SimpleNamespace(address="board:1", device=DEVICE, load_context=refuse)
    with pytest.raises(DeviceOrContextError, match=r"context.bin: made for another device \[bad_context\]"):
        RemoteExecutor(client, path, None, strict=True)
