"""Test the calls by which launches are recorded, on a library that notes them; Qualcomm's have run nowhere else."""

import gc
import os
from dataclasses import replace

import pytest

from gputune.runtime.memory.opencl_calls import CallFailed
from gputune.runtime.queues import command_buffers, qualcomm
from gputune.runtime.queues.choice import recorded_queue
from gputune.runtime.queues.recorded import RecordedQueue, Recording
from tests.runtime.memory.fake_opencl import FIRST, identity
from tests.runtime.queues.fake_queues import COMMAND, FakeLaunch, FakeQueues, launches, memory

KHR, MUTABLE, QUALCOMM = command_buffers.EXTENSION, command_buffers.MUTABLE, qualcomm.EXTENSION
CAPABLE = {command_buffers.DEVICE_CAPABILITIES: 0b101, command_buffers.DEVICE_MUTABLE_CAPABILITIES: 0b1000}
A, B, C = memory(0xA), memory(0xB), memory(0xC)
SIZES = (8, 4), (2, 1)
POCL = {KHR: (0, 9, 0)}
INTEL = {KHR: (1, 0, 0), MUTABLE: (0, 9, 3)}
ADRENO = {QUALCOMM: (1, 0, 0)}


def way_of(fake: FakeQueues) -> RecordedQueue:
    found = recorded_queue(fake.opencl, identity(*fake.extensions))
    assert not isinstance(found, str), found
    return found


def refusal_of(fake: FakeQueues) -> str:
    found = recorded_queue(fake.opencl, identity(*fake.extensions))
    assert isinstance(found, str)
    return found


# --- command buffers ---


def test_launches_are_recorded_in_a_command_buffer() -> None:
    fake = FakeQueues(POCL, CAPABLE)
    recording = way_of(fake).record(launches({0: A}, {0: A}))
    assert fake.made() == [
        ("clCreateCommandBufferKHR", [0x1293, 1, 0]),  # for simultaneous use
        ("clCommandNDRangeKernelKHR", FIRST, None, 0xA0, *SIZES),
        ("clCommandNDRangeKernelKHR", FIRST, None, 0xA1, *SIZES),
        ("clFinalizeCommandBufferKHR", FIRST),
    ]
    recording.replay()
    assert fake.made() == [("clEnqueueCommandBufferKHR", FIRST), ("clReleaseEvent",)]
    recording.close()
    recording.close()
    assert fake.made() == [("clReleaseCommandBufferKHR", FIRST)]


@pytest.mark.parametrize("version", [(0, 9, 8), (1, 0, 0)])
def test_simultaneous_use_is_of_no_concern_since_0_9_8(version: tuple[int, int, int]) -> None:
    fake = FakeQueues({KHR: version}, CAPABLE)
    way_of(fake).record(launches({}))
    assert fake.made()[0] == ("clCreateCommandBufferKHR", None)


def test_arguments_are_changed_by_mutable_dispatch() -> None:
    fake = FakeQueues(INTEL, CAPABLE)
    recorded = launches({0: A, 1: A}, {2: A})
    recording = way_of(fake).record(recorded)
    assert fake.made()[:2] == [
        ("clCreateCommandBufferKHR", [0x1293, 2, 0]),  # mutable
        ("clCommandNDRangeKernelKHR", FIRST, [0x12B1, 8, 0], 0xA0, *SIZES),  # of which arguments are
    ]
    recorded[0].held.update({0: B, 1: C})
    recorded[1].held[2] = B
    recording.rebind([(recorded[0], 0), (recorded[0], 1), (recorded[1], 2), (FakeLaunch(None, held={0: A}), 0)])
    changes = [(COMMAND, {0: 0xB, 1: 0xC}), (COMMAND + 1, {2: 0xB})]
    assert fake.made() == [("clUpdateMutableCommandsKHR", FIRST, changes)]
    assert recording.uses(B) and recording.uses(C) and not recording.uses(A)
    recording.rebind([(recorded[0], 0)])
    assert fake.made() == [], "it has that buffer already"


@pytest.mark.parametrize("launch", [0, 1, 2])
@pytest.mark.parametrize("place", [0, 1, 3])
def test_a_recording_uses_each_argument_of_each_launch(launch: int, place: int) -> None:
    """And what an argument was changed to, in place of what it was; until it is closed."""
    buffers = [{at: memory(0x10 * number + at) for at in (0, 1, 3)} for number in range(1, 4)]
    old, new = buffers[launch][place], memory(0xF0)
    recorded = launches(*buffers)
    recording = way_of(FakeQueues(INTEL, CAPABLE)).record(recorded)
    assert recording.uses(old) and not recording.uses(new)
    recorded[launch].held[place] = new
    assert recording.uses(old) and not recording.uses(new), "it was recorded with the old one"
    recording.rebind([(recorded[launch], place)])
    assert recording.uses(new) and not recording.uses(old)
    others = [one for number, each in enumerate(buffers) for at, one in each.items() if (number, at) != (launch, place)]
    assert all(recording.uses(one) for one in others)
    recording.close()
    assert not any(recording.uses(one) for one in (old, new, *others))


def test_before_0_9_2_changes_are_a_linked_list() -> None:
    fake = FakeQueues({KHR: (0, 9, 4), MUTABLE: (0, 9, 1)}, CAPABLE)
    recorded = launches({0: A}, {0: A})
    recording = way_of(fake).record(recorded)
    assert fake.made()[0] == ("clCreateCommandBufferKHR", [0x1293, 3, 0])
    recorded[1].held[0] = B
    recording.rebind([(recorded[0], 0), (recorded[1], 0)])
    assert fake.made() == [("clUpdateMutableCommandsKHR", FIRST, [(COMMAND + 1, {0: 0xB})])]


@pytest.mark.parametrize(
    ("versions", "answers", "absent"),
    [
        ({KHR: (0, 9, 5)}, CAPABLE, ()),
        ({KHR: (0, 9, 5), MUTABLE: (0, 9, 6)}, CAPABLE, ()),
        ({KHR: (0, 9, 5), MUTABLE: (0, 9, 3)}, {command_buffers.DEVICE_CAPABILITIES: 0}, ()),
        (
            {KHR: (0, 9, 5), MUTABLE: (0, 9, 3)},
            {**CAPABLE, command_buffers.DEVICE_MUTABLE_CAPABILITIES: 0b0111},
            (),
        ),
        ({KHR: (0, 9, 5), MUTABLE: (0, 9, 3)}, CAPABLE, ("clUpdateMutableCommandsKHR",)),
    ],
)
def test_where_arguments_cannot_change_nothing_asks_for_it(
    versions: dict[str, tuple[int, int, int]], answers: dict[int, int], absent: tuple[str, ...]
) -> None:
    fake = FakeQueues(versions, answers, absent=absent)
    way = way_of(fake)
    assert not way.rebinds
    way.record(launches({0: A}))
    assert ("clCommandNDRangeKernelKHR", FIRST, None, 0xA0, *SIZES) in fake.made()


@pytest.mark.parametrize(
    ("fake", "reason"),
    [
        (FakeQueues({}), f"the device has no {KHR}; the device has no {QUALCOMM}"),
        (FakeQueues({KHR: (0, 9, 9)}, CAPABLE), f"{KHR} has the unknown version 0.9.9; the device has no {QUALCOMM}"),
        (FakeQueues({KHR: (1, 1, 0)}, CAPABLE), f"{KHR} has the unknown version 1.1.0; the device has no {QUALCOMM}"),
        (
            FakeQueues(POCL, CAPABLE, absent=("clFinalizeCommandBufferKHR",)),
            f"{KHR}: clFinalizeCommandBufferKHR is not available; the device has no {QUALCOMM}",
        ),
        (
            FakeQueues(ADRENO, absent=("clEndRecordingQCOM",)),
            f"the device has no {KHR}; {QUALCOMM}: clEndRecordingQCOM is not available",
        ),
    ],
)
def test_a_device_that_does_not_record_has_a_reason(fake: FakeQueues, reason: str) -> None:
    assert refusal_of(fake) == reason


def test_a_device_that_knows_no_versions_does_not_record() -> None:
    fake = FakeQueues(None, CAPABLE)
    fake.extensions = [KHR]
    assert refusal_of(fake).startswith(f"{KHR}: clGetDeviceInfo failed: CL_INVALID_VALUE")


def test_a_driver_that_leaks_with_each_replay_is_not_used() -> None:
    fake = FakeQueues(INTEL, CAPABLE)
    of = replace(identity(*fake.extensions, kind="cpu"), platform="Intel(R) OpenCL")
    assert recorded_queue(fake.opencl, of) == "Intel's driver leaks memory with every inference that is replayed"
    assert not isinstance(recorded_queue(fake.opencl, replace(of, device_type="gpu")), str)


# --- Qualcomm's recordable queues ---


def test_launches_are_recorded_on_a_recordable_queue() -> None:
    fake = FakeQueues(ADRENO)
    recording = way_of(fake).record(launches({0: A}, {0: A}))
    assert fake.made() == [
        ("clCreateCommandQueue", 1 << 30),
        ("clNewRecordingQCOM",),
        ("clEnqueueNDRangeKernel", 0xA0, *SIZES),
        ("clEnqueueNDRangeKernel", 0xA1, *SIZES),
        ("clEndRecordingQCOM", FIRST),
    ]
    recording.replay()
    assert fake.made() == [("clEnqueueRecordingQCOM", FIRST, {})]
    recording.close()
    assert fake.made() == [("clReleaseRecordingQCOM", FIRST), ("clReleaseCommandQueue", 0x900)]


def test_long_sequences_have_several_recordings_and_all_that_changed_is_given_each_time() -> None:
    fake = FakeQueues(ADRENO, {qualcomm.DEVICE_MAX_SIZE: 2})
    recorded = launches({0: A}, {0: A, 3: A}, {1: A})
    recording = way_of(fake).record(recorded)
    ended = [call for call in fake.made() if call[0] in ("clNewRecordingQCOM", "clEndRecordingQCOM")]
    assert [call[0] for call in ended] == ["clNewRecordingQCOM", "clEndRecordingQCOM"] * 2
    recorded[1].held[3], recorded[2].held[1] = B, B
    recording.rebind([(recorded[1], 3), (recorded[2], 1)])
    for _ in range(2):
        recording.replay()
        assert fake.made() == [
            ("clEnqueueRecordingQCOM", FIRST, {(1, 3): 0xB}),
            ("clEnqueueRecordingQCOM", FIRST + 1, {(0, 1): 0xB}),
        ]
    recorded[1].held[3] = A
    recording.rebind([(recorded[1], 3)])
    recording.replay()
    assert fake.made()[0] == ("clEnqueueRecordingQCOM", FIRST, {(1, 3): 0xA}), "the change may hold, or may not"


def test_qualcomms_functions_may_be_the_librarys_own(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeQueues(ADRENO)
    monkeypatch.setattr(fake, "_clGetExtensionFunctionAddressForPlatform", lambda *_: 0)
    way_of(fake)


# --- both ---


@pytest.mark.parametrize(
    ("versions", "failing"),
    [
        (POCL, "clCreateCommandBufferKHR"),
        (POCL, "clCommandNDRangeKernelKHR"),
        (POCL, "clFinalizeCommandBufferKHR"),
        (ADRENO, "clCreateCommandQueue"),
        (ADRENO, "clNewRecordingQCOM"),
        (ADRENO, "clEnqueueNDRangeKernel"),
        (ADRENO, "clEndRecordingQCOM"),
    ],
)
def test_what_fails_while_launches_are_recorded_is_given_back(
    versions: dict[str, tuple[int, int, int]], failing: str
) -> None:
    fake = FakeQueues(versions, CAPABLE, {failing: -6})
    with pytest.raises(CallFailed, match=f"^{failing} failed: CL_OUT_OF_HOST_MEMORY$"):
        way_of(fake).record(launches({}))
    called = [call[0] for call in fake.made()]
    made = (
        ("clCreateCommandBufferKHR", "clReleaseCommandBufferKHR"),
        ("clCreateCommandQueue", "clReleaseCommandQueue"),
        ("clNewRecordingQCOM", "clReleaseRecordingQCOM"),
    )
    for make, release in made:
        assert called.count(release) == (called.count(make) if make != failing else 0)


@pytest.mark.parametrize(
    ("versions", "failing"), [(POCL, "clEnqueueCommandBufferKHR"), (ADRENO, "clEnqueueRecordingQCOM")]
)
def test_what_fails_when_it_is_enqueued_has_a_name(versions: dict[str, tuple[int, int, int]], failing: str) -> None:
    fake = FakeQueues(versions, CAPABLE, {failing: -59})
    recording = way_of(fake).record(launches({}))
    with pytest.raises(CallFailed, match=f"^{failing} failed: CL_INVALID_OPERATION$"):
        recording.replay()


def recorded_and_dropped(fake: FakeQueues) -> None:
    recording: Recording = way_of(fake).record(launches({0: A}))
    fake.calls.clear()
    del recording
    gc.collect()


def test_what_nothing_refers_to_is_given_back() -> None:
    fake = FakeQueues(POCL, CAPABLE)
    recorded_and_dropped(fake)
    assert fake.made() == [("clReleaseCommandBufferKHR", FIRST)]


def test_a_fork_gives_nothing_back(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeQueues(POCL, CAPABLE)
    recording = way_of(fake).record(launches({0: A}))
    fake.calls.clear()
    monkeypatch.setattr(os, "getpid", lambda: 1)
    recording.close()
    assert fake.made() == []
