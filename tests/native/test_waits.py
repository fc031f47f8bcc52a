"""Test how often the C runtime waits for a device, and what keeps it awake between inferences."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gputune.core.errors import BuildFailed, LaunchFailed, LimitExceeded
from gputune.runtime.native.binding import Native
from tests.native.failures import FAILURES
from tests.native.fake import ELEMENTS, STAGES, Fake, doubling_context

VALUES = np.arange(ELEMENTS, dtype=np.float32)
NOTHING, COMMAND_BUFFERS = 0, 1


@pytest.fixture(autouse=True)
def _all_is_released(fake: Fake) -> Iterator[None]:
    yield
    fake.fail_at(0)
    fake.records(NOTHING)
    fake.is_cpu(False)
    assert fake.alive == 0


@pytest.mark.parametrize(
    ("records", "wanted", "waits"),
    [
        (NOTHING, True, 1),
        (NOTHING, False, 1),
        (COMMAND_BUFFERS, True, 2),  # the first inferences are timed, and end before their outputs are read
        (COMMAND_BUFFERS, False, 1),
    ],
)
def test_an_inference_waits_once_for_what_it_has_enqueued(
    native: Native, fake: Fake, tmp_path: Path, records: int, wanted: bool, waits: int
) -> None:
    fake.records(records)
    with (
        native.open(doubling_context(tmp_path / "a.bin")) as file,
        native.device(file, opencl=str(fake.path)) as device,
        device.load(file) as graph,
    ):
        for number in range(4):
            outputs = graph.outputs() if wanted else {}
            before = fake.finishes
            graph.run({"x": VALUES * number}, outputs)
            assert fake.finishes - before == waits
            for got in outputs.values():
                assert got.tobytes() == (VALUES * number * 2**STAGES).tobytes()


@pytest.mark.parametrize("is_cpu", [False, True])
def test_a_touch_launches_on_a_queue_of_its_own_unless_the_device_is_a_cpu(
    native: Native, fake: Fake, is_cpu: bool
) -> None:
    fake.is_cpu(is_cpu)
    with native.device(opencl=str(fake.path)) as device:
        before, waited = fake.alive, fake.finishes
        for _ in range(3):
            device.touch()
        assert fake.finishes - waited == (0 if is_cpu else 3)
        assert fake.alive - before == (0 if is_cpu else 4), "a queue, memory, a program and its kernel, made once"


def test_every_call_of_a_touch_may_fail(native: Native, fake: Fake) -> None:
    with native.device(opencl=str(fake.path)) as device:
        fake.fail_at(0)
        device.touch()
        calls = fake.calls
    for call in range(1, calls + 1):
        with native.device(opencl=str(fake.path)) as device:
            fake.fail_at(call)
            with pytest.raises(FAILURES) as refused:
                device.touch()
            assert isinstance(refused.value, (BuildFailed, LaunchFailed, LimitExceeded))
            fake.fail_at(0)
            device.touch()
