"""Test which device the C runtime opens, whether it still works, and how much memory graphs and groups hold there."""

import contextlib
import ctypes
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputune.core.errors import error_named
from gputune.runtime.native.binding import Native
from gputune.runtime.native.declarations import DeviceOptions
from tests.native.failures import FAILURES
from tests.native.fake import CPU, DEVICE, ELEMENTS, NBYTES, STAGES, Fake, compact_context, doubling_context

VALUES = np.arange(ELEMENTS, dtype=np.float32)
LISTED = "; #0 Fake GPU (Fake); #1 Fake GPU (Fake)"


@pytest.fixture
def fake(native: Native) -> Iterator[Fake]:
    """Return a library with two equal devices, whose platform it lists twice."""
    library = Fake()
    library.fail_at(0)
    library.devices(2)
    yield library
    library.fail_at(0)
    library.devices(1)
    library.lose(False)
    library.is_cpu(False)
    assert library.alive == 0


CHOICES: Mapping[str, tuple[dict[str, Any], int]] = {
    "the first of equal ones": ({}, 0),
    "the second of all": ({"name": "1"}, 1),
    "the first of a platform": ({"platform": "Fake"}, 0),
    "the second of a platform": ({"platform": "Fake", "ordinal": 1}, 1),
    "with its name": ({"platform": "Fake", "ordinal": 1, "name": "Fake GPU"}, 1),
}


@pytest.mark.parametrize(("options", "place"), CHOICES.values(), ids=CHOICES)
def test_equal_devices_are_told_apart(
    native: Native, fake: Fake, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], place: int
) -> None:
    if "platform" in options:
        monkeypatch.setenv("GPUTUNE_DEVICE", "another one")
    with native.device(opencl=str(fake.path), **options) as device:
        assert (device.name, fake.opened) == ("Fake GPU", place)


REFUSALS: Mapping[str, tuple[dict[str, Any], str, str]] = {
    "a number too large": (
        {"platform": "Fake", "ordinal": 2},
        "device_not_found",
        f"device 2 of platform 'Fake' is not there{LISTED}",
    ),
    "a part of a platform": (
        {"platform": "Fak"},
        "device_not_found",
        f"device 0 of platform 'Fak' is not there{LISTED}",
    ),
    "a part of a name": (
        {"platform": "Fake", "name": "GPU"},
        "device_not_found",
        f"device 0 of platform 'Fake' is not there with the name 'GPU'{LISTED}",
    ),
    "a name": ({"name": "Adreno"}, "device_not_found", f"no OpenCL device matches 'Adreno'{LISTED}"),
    "a number alone": ({"ordinal": 1}, "invalid_argument", "an ordinal needs the platform whose devices it counts"),
    "a context alone": ({"given": (1, 0)}, "invalid_argument", "a context and a device of it are given together"),
    "a device alone": ({"given": (0, 1)}, "invalid_argument", "a context and a device of it are given together"),
    "a context and a platform": (
        {"given": (1, 1), "platform": "Fake"},
        "invalid_argument",
        "a context that is given has its device, so none is named",
    ),
    "a context and a name": (
        {"given": (1, 1), "name": "Fake"},
        "invalid_argument",
        "a context that is given has its device, so none is named",
    ),
}


@pytest.mark.parametrize(("options", "code", "message"), REFUSALS.values(), ids=REFUSALS)
def test_a_device_that_is_not_there_is_refused(
    native: Native, fake: Fake, options: dict[str, Any], code: str, message: str
) -> None:
    with pytest.raises(error_named(code)) as refused:
        native.device(opencl=str(fake.path), **options)
    assert str(refused.value) == message


def test_a_context_that_is_given_is_kept_until_the_device_is_closed(native: Native, fake: Fake, tmp_path: Path) -> None:
    """Also that of a CPU, whose own contexts go with the last object; the application's stays the application's."""
    fake.is_cpu(True)
    cl = ctypes.CDLL(str(fake.path))
    cl.clCreateContext.restype = ctypes.c_void_p
    platform, devices = ctypes.c_void_p(), (ctypes.c_void_p * 2)()
    cl.clGetPlatformIDs(1, ctypes.byref(platform), None)
    cl.clGetDeviceIDs(platform, ctypes.c_uint64(0xFFFFFFFF), 2, devices, None)
    context = cl.clCreateContext(None, 1, ctypes.byref(devices, ctypes.sizeof(ctypes.c_void_p)), None, None, None)
    with (
        native.open(doubling_context(tmp_path / "a.bin", device=CPU)) as file,
        native.device(opencl=str(fake.path), given=(context, int(devices[1] or 0))) as device,
    ):
        held = fake.alive
        for _ in range(2):
            with device.load(file) as graph:
                assert graph.run({"x": VALUES})["y"].tobytes() == (VALUES * 2**STAGES).tobytes()
            assert fake.alive == held == 2  # the context and a queue
    assert fake.alive == 1
    cl.clReleaseContext(ctypes.c_void_p(context))


def test_a_device_that_is_lost_says_so(native: Native, fake: Fake, tmp_path: Path) -> None:
    with (
        native.open(doubling_context(tmp_path / "a.bin")) as file,
        native.device(file, opencl=str(fake.path)) as device,
        device.load(file),
    ):
        fake.fail_at(0)
        assert not native.call("is_lost", device.pointer)
        for number in range(1, fake.calls + 1):
            fake.fail_at(number)
            assert native.call("is_lost", device.pointer), fake.failed
        fake.fail_at(0)
        fake.lose(True)
        assert native.call("is_lost", device.pointer)
        fake.lose(False)
        assert not native.call("is_lost", device.pointer)


@pytest.mark.parametrize("is_cpu", [True, False], ids=["cpu", "gpu"])
def test_a_device_is_opened_beside_another_in_the_same_context(
    native: Native, fake: Fake, is_cpu: bool, tmp_path: Path
) -> None:
    """Either may be closed first. A CPU's first device keeps no context without graphs, so the other's is left."""
    fake.is_cpu(is_cpu)
    with native.open(doubling_context(tmp_path / "a.bin", device=CPU if is_cpu else DEVICE)) as file:
        for first in (0, 1):
            devices = [native.device(file, opencl=str(fake.path))]
            devices.append(devices[0].another())
            opened = fake.alive
            graphs = [device.load(file) for device in devices]
            assert [graph.run({"x": VALUES})["y"].tobytes() for graph in graphs] == 2 * [(VALUES * 2**STAGES).tobytes()]
            assert devices[0].identity() == devices[1].identity()
            for place in (first, 1 - first):
                graphs[place].close()
                devices[place].close()
            assert (opened, fake.alive) == (2 if is_cpu else 3, 0)


def test_what_is_opened_beside_a_device_is_nothing_else(native: Native, fake: Fake, tmp_path: Path) -> None:
    with native.open(doubling_context(tmp_path / "a.bin")) as file, native.device(file, opencl=str(fake.path)) as one:
        options = DeviceOptions(beside=one.pointer, device=b"Fake")
        with pytest.raises(ValueError, match="what is opened beside another device is that device"):
            native.made("open_device", ctypes.byref(options))


@pytest.mark.parametrize("is_cpu", [True, False], ids=["cpu", "gpu"])
def test_a_device_without_a_context_is_asked_by_a_new_one(native: Native, fake: Fake, is_cpu: bool) -> None:
    fake.is_cpu(is_cpu)
    with native.device(opencl=str(fake.path)) as device:
        for _ in range(2):
            assert not native.call("is_lost", device.pointer)
            assert fake.alive == (0 if is_cpu else 2)


def test_graphs_and_groups_are_counted_and_memory_of_the_caller_is_not(
    native: Native, fake: Fake, tmp_path: Path
) -> None:
    apart = 2 * NBYTES
    path = doubling_context(tmp_path / "a.bin", apart=apart)
    arena, tensors = apart + NBYTES, 2 * NBYTES
    with native.open(path) as file, native.device(file, opencl=str(fake.path)) as device:

        def held() -> int:
            return int(native.call("device_bytes", device.pointer))

        assert held() == 0
        with device.load(file), device.allocate(NBYTES):
            assert held() == tensors + arena
            with device.group([file]) as group:
                assert held() == tensors + 2 * arena
                with device.load(file, group=group):
                    assert held() == 2 * tensors + 2 * arena
            assert held() == tensors + arena
        assert held() == 0


def test_packed_weights_are_counted_and_a_failure_leaves_nothing(native: Native, fake: Fake, tmp_path: Path) -> None:
    with (
        native.open(compact_context(tmp_path / "a.bin", (3, 5))) as file,
        native.device(file, opencl=str(fake.path)) as device,
    ):
        fake.fail_at(0)
        with device.load(file):
            calls = fake.calls
            assert native.call("device_bytes", device.pointer) == (1 + 2 + 2) * NBYTES
        for number in range(1, calls + 1):
            fake.fail_at(number)
            with contextlib.suppress(*FAILURES):
                device.load(file).close()
            assert native.call("device_bytes", device.pointer) == 0, fake.failed
