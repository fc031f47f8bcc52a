"""Test the C runtime on an OpenCL library whose calls may all fail: a named error, and nothing is leaked."""

import contextlib
from pathlib import Path

import numpy as np
import pytest

from gputune.core.errors import BuildFailed, DeviceNotFound, LaunchFailed, LimitExceeded, UnusableMemory, WrongDevice
from gputune.runtime.native.binding import Group, Native
from tests.native.failures import FAILURES
from tests.native.fake import ELEMENTS, STAGES, Fake, compact_context, doubling_context

pytestmark = pytest.mark.usefixtures("all_is_released")
VALUES = np.arange(ELEMENTS, dtype=np.float32)


def infer(native: Native, fake: Fake, path: Path) -> list[np.ndarray]:
    """What a context gives by arrays and by memory handles, in a group."""
    with (
        native.open(path) as file,
        native.device(file, opencl=str(fake.path)) as device,
        device.group([file]) as group,
        device.load(file, group=group) as graph,
        device.load(file) as alone,
        device.allocate(VALUES.nbytes) as memory,
    ):
        assert graph.warnings == alone.warnings == []
        first = graph.run({"x": VALUES})["y"]
        alone.run({"x": VALUES}, {"y": memory})
        return [first, memory.array("float32", (ELEMENTS,)).copy()]


def test_it_computes(native: Native, fake: Fake, tmp_path: Path) -> None:
    for result in infer(native, fake, doubling_context(tmp_path / "a.bin")):
        assert result.tobytes() == (VALUES * 2**STAGES).tobytes()


def test_every_call_may_fail(native: Native, fake: Fake, tmp_path: Path) -> None:
    """Errors are told by a name, save where there is another way; nothing crashes, hangs, or stays behind."""
    path = doubling_context(tmp_path / "a.bin")
    infer(native, fake, path)
    calls, kinds = fake.calls, set[type[Exception]]()
    assert calls > 20
    for number in range(1, calls + 1):
        fake.fail_at(number)
        try:
            results = infer(native, fake, path)
        except FAILURES as error:
            assert str(error)
            assert "\n" not in str(error)
            kinds.add(type(error))
        except AssertionError:  # a warning: the program was built from source
            continue
        else:
            assert all(result.tobytes() == (VALUES * 2**STAGES).tobytes() for result in results), number
        fake.fail_at(0)
        assert fake.alive == 0, f"call {number} failed, in {fake.failed}, and something was not released"
    certain = {DeviceNotFound, LimitExceeded}
    assert certain <= kinds <= {*certain, LaunchFailed, BuildFailed, UnusableMemory, WrongDevice}


def test_a_binary_that_the_driver_refuses_is_built_from_source(native: Native, fake: Fake, tmp_path: Path) -> None:
    path = doubling_context(tmp_path / "a.bin", binary=b"of another driver")
    with (
        native.open(path) as file,
        native.device(file, opencl=str(fake.path)) as device,
        device.load(file) as graph,
    ):
        assert len(graph.warnings) == 1
        assert graph.run({"x": VALUES})["y"].tobytes() == (VALUES * 2**STAGES).tobytes()


def test_a_packing_that_fails_leaves_nothing_in_a_group(native: Native, fake: Fake, tmp_path: Path) -> None:
    """A group that has seen a load fail holds, after the next one, what it would hold without the failed one."""
    with (
        native.open(compact_context(tmp_path / "a.bin", (3, 5))) as file,
        native.device(file, opencl=str(fake.path)) as device,
    ):

        def load(group: Group) -> None:
            with device.load(file, group=group) as graph:
                results = graph.run({"x": VALUES})
                assert [set(result) for result in results.values()] == [{12}, {20}]

        with device.group([file]) as group:
            fake.fail_at(0)
            load(group)
            calls, held = fake.calls, fake.alive
        assert calls > 20
        for number in range(1, calls + 1):
            with device.group([file]) as group:
                fake.fail_at(number)
                with contextlib.suppress(*FAILURES):
                    load(group)
                fake.fail_at(0)
                load(group)
                assert fake.alive == held, f"call {number} failed, in {fake.failed}, and something was not released"


def test_all_packings_use_a_program_that_is_built_once(native: Native, fake: Fake, tmp_path: Path) -> None:
    path = compact_context(tmp_path / "a.bin", (3, 5, 7), binary=b"of another driver")
    with (
        native.open(path) as file,
        native.device(file, opencl=str(fake.path)) as device,
        device.load(file) as graph,
    ):
        assert len(graph.warnings) == 2, "once for packings, once for launches"
