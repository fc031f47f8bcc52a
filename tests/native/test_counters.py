"""Test what C counts for each tensor, with the reasons, on a device with memory of its own."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gputune.core.errors import LimitExceeded
from gputune.runtime.counters import TensorCounters
from gputune.runtime.native.binding import Device, Graph, Native
from gputune.runtime.native.counting import tensor_counters
from gputune.runtime.native.memory import Array, Memory
from tests.native.fake import ELEMENTS, NBYTES, Fake, doubling_context

VALUES = np.arange(ELEMENTS, dtype=np.float32)
RAW = "an array was given, and the device has memory of its own"


@pytest.fixture(scope="module")
def fake(native: Native) -> Iterator[Fake]:
    made = Fake()
    yield made
    made.fail_at(0)
    assert made.alive == 0


@pytest.fixture
def graph(native: Native, device: Device, tmp_path: Path) -> Iterator[Graph]:
    with native.open(doubling_context(tmp_path / "a.bin")) as file, device.load(file) as graph:
        yield graph


def counted(graph: Graph) -> tuple[list[TensorCounters], list[TensorCounters]]:
    """Return what all inferences and the last one did for x and y."""
    _, total, last = zip(*(counters(graph, output) for output in (False, True)), strict=True)
    return list(total), list(last)


def counters(graph: Graph, output: bool, place: int = 0) -> list[TensorCounters]:
    """Return what loading, all inferences and the last one did for a tensor."""
    return [TensorCounters(**one) for one in tensor_counters(graph.native.call, graph.pointer, output, place)]


@pytest.mark.parametrize("x", ["array", "memory"])
@pytest.mark.parametrize("y", ["array", "memory", "nothing"])
def test_each_tensor_has_its_copies_with_their_reasons(graph: Graph, device: Device, x: str, y: str) -> None:
    """Memory is copied on this device, and its reason outlives it."""
    with device.allocate(NBYTES) as first, device.allocate(NBYTES) as second:
        said = first.kind
        given: Array | Memory = VALUES if x == "array" else first
        places: dict[str, Array | Memory] = {"array": VALUES.copy(), "memory": second}
        taken = {"y": places[y]} if y in places else {}
        for _ in range(2):
            graph.run({"x": given}, taken)
    total, last = counted(graph)
    reasons = {"array": RAW, "memory": said, "nothing": ""}
    copies = y != "nothing"
    assert last == [
        TensorCounters(bytes_copied=NBYTES, writes=1, reason=reasons[x]),
        TensorCounters(bytes_copied=copies * NBYTES, reads=copies, reason=reasons[y]),
    ]
    assert [one.writes + one.reads for one in total] == [2, 2 * copies]
    assert [one.reason for one in total] == [one.reason for one in last]
    assert graph.counters()[0]["bytes_copied"] == sum(one.bytes_copied for one in total)


def test_what_was_not_run_or_does_not_exist_has_counted_nothing(graph: Graph) -> None:
    load = TensorCounters(allocations=1)
    assert [counters(graph, output) for output in (False, True)] == 2 * [[load, TensorCounters(), TensorCounters()]]
    assert counters(graph, True, 1) == 3 * [TensorCounters()]


def test_an_inference_that_failed_is_in_no_total(graph: Graph, fake: Fake) -> None:
    fake.fail_at(2)
    with pytest.raises(LimitExceeded):
        graph.run({"x": VALUES})
    fake.fail_at(0)
    total, last = counted(graph)
    assert total == 2 * [TensorCounters()]
    assert last[0] == TensorCounters(bytes_copied=NBYTES, writes=1, reason=RAW)
    assert graph.counters()[1]["writes"] == 1
