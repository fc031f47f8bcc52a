"""Test that a CPU device's context goes with the last object that needs it, and comes again for the next one."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import numpy as np
import pytest

from gputune.core.errors import LimitExceeded
from gputune.runtime.native.binding import Device, File, Native
from tests.native.failures import FAILURES
from tests.native.fake import CPU, DEVICE, ELEMENTS, STAGES, Fake, doubling_context
from tests.native.test_profile import device

__all__ = ["device"]

VALUES = np.arange(ELEMENTS, dtype=np.float32)
OPEN = 2
"""The objects of a device that has its context: that, and a queue."""
USERS: dict[str, Callable[[Device, File, Path], AbstractContextManager[object]]] = {
    "graph": lambda device, file, folder: device.load(file),
    "group": lambda device, file, folder: device.group([file]),
    "memory": lambda device, file, folder: device.allocate(VALUES.nbytes),
    "memory of the application": lambda device, file, folder: device.wrap(VALUES),
    "profile": lambda device, file, folder: device.profile(folder / "log", level="detailed"),
}


@pytest.fixture(params=[True, False], ids=["cpu", "gpu"])
def is_cpu(fake: Fake, request: pytest.FixtureRequest) -> Iterator[bool]:
    fake.fail_at(0)
    fake.is_cpu(request.param)
    yield request.param
    fake.fail_at(0)
    fake.is_cpu(False)
    assert fake.alive == 0


@pytest.fixture
def file(native: Native, tmp_path: Path, is_cpu: bool) -> Iterator[File]:
    with native.open(doubling_context(tmp_path / "a.bin", device=CPU if is_cpu else DEVICE)) as opened:
        yield opened


def test_a_context_goes_with_its_last_user(
    fake: Fake, device: Device, file: File, tmp_path: Path, is_cpu: bool
) -> None:
    assert fake.alive == OPEN
    for name, make in USERS.items():
        for last in USERS.values():
            with ExitStack() as first:
                first.enter_context(make(device, file, tmp_path))
                second = ExitStack()
                second.enter_context(last(device, file, tmp_path))
                second.close()
                assert fake.alive >= OPEN, f"the {name} still needs it"
            assert fake.alive == (0 if is_cpu else OPEN), name


def test_it_works_as_before(fake: Fake, device: Device, file: File, tmp_path: Path) -> None:
    for _ in range(3):
        with (
            device.group([file]) as group,
            device.load(file, group=group) as graph,
            device.load(file) as alone,
            device.profile(tmp_path / "log", level="detailed") as profile,
        ):
            graph.record(profile)
            for each in (graph, alone):
                assert each.run({"x": VALUES})["y"].tobytes() == (VALUES * 2**STAGES).tobytes()
            graph.record(None)
    with device.allocate(VALUES.nbytes) as memory, device.load(file) as graph:
        graph.run({"x": VALUES}, {"y": memory})
        assert memory.array("float32", (ELEMENTS,)).tobytes() == (VALUES * 2**STAGES).tobytes()


@pytest.mark.parametrize("kind", USERS)
def test_each_call_of_a_renewal_may_fail(
    fake: Fake, device: Device, file: File, tmp_path: Path, is_cpu: bool, kind: str
) -> None:
    """What needs the context is told of it by name, leaves nothing, and the next one works."""
    with device.load(file):
        pass
    left = fake.alive
    kinds = set[type[Exception]]()
    for number in (1, 2):  # a context and a queue, where they are opened
        fake.fail_at(number)
        try:
            with USERS[kind](device, file, tmp_path):
                pass
        except FAILURES as error:
            kinds.add(type(error))
            assert "opening the device failed: CL_OUT_OF_RESOURCES" in str(error) or not is_cpu
        fake.fail_at(0)
        assert fake.alive == left, f"call {number} failed, in {fake.failed}"
        with device.load(file) as graph:
            assert graph.run({"x": VALUES})["y"].tobytes() == (VALUES * 2**STAGES).tobytes()
    assert kinds == {LimitExceeded} or not is_cpu


def test_threads_may_come_and_go(fake: Fake, device: Device, file: File) -> None:
    def work(_: int) -> bool:
        with device.load(file) as graph:
            return bool(np.array_equal(graph.run({"x": VALUES})["y"], VALUES * 2**STAGES))

    with ThreadPoolExecutor(4) as threads:
        assert all(threads.map(work, range(200)))
