"""Test locked clocks of NVIDIA GPUs, on a library that only records its calls."""

import errno
from collections.abc import Sequence

from gputune.runtime.power.actuators.base import Access, Write
from gputune.runtime.power.actuators.nvml import found_by
from gputune.runtime.power.records import Corner, Corners, Vote
from gputune.runtime.power.steering import Steering


class NVMLError(Exception):
    """As the binding's: with the code of what went wrong."""

    def __init__(self, value: int) -> None:
        super().__init__("Insufficient Permissions")
        self.value = value


class Library:
    """One GPU; `denied` refuses every lock."""

    def __init__(self, denied: bool = False) -> None:
        self.denied = denied
        self.calls: list[tuple[str, int, int] | str] = []

    def nvmlInit(self) -> None:  # noqa: N802
        pass

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 1

    def nvmlDeviceGetHandleByIndex(self, index: int) -> object:  # noqa: N802
        return index

    def nvmlDeviceGetSupportedMemoryClocks(self, handle: object) -> Sequence[int]:  # noqa: N802
        return [2619, 1593]

    def nvmlDeviceGetSupportedGraphicsClocks(self, handle: object, memory_mhz: int) -> Sequence[int]:  # noqa: N802
        return list(range(1980, 330, -15)) if memory_mhz == 2619 else []

    def nvmlDeviceGetClockInfo(self, handle: object, kind: int) -> int:  # noqa: N802
        return {0: 345, 2: 2619}[kind]

    def nvmlDeviceSetGpuLockedClocks(self, handle: object, least_mhz: int, most_mhz: int) -> None:  # noqa: N802
        if self.denied:
            raise NVMLError(4)
        self.calls.append(("core", least_mhz, most_mhz))

    def nvmlDeviceResetGpuLockedClocks(self, handle: object) -> None:  # noqa: N802
        self.calls.append("core")

    def nvmlDeviceSetMemoryLockedClocks(self, handle: object, least_mhz: int, most_mhz: int) -> None:  # noqa: N802
        self.calls.append(("bus", least_mhz, most_mhz))

    def nvmlDeviceResetMemoryLockedClocks(self, handle: object) -> None:  # noqa: N802
        self.calls.append("bus")


HELD = Vote(core=Corners(target=Corner.TURBO), dcvs=False)


def test_clocks_are_locked_and_left_to_the_driver_again() -> None:
    library = Library()
    steering = Steering(found_by(library, Access()), limit_s=10.0)
    originals = steering.originals()
    applied = steering.apply(HELD)
    assert applied.problems == ()
    assert (applied.requested["nvml.core_min_hz"], applied.effective["nvml.core_hz"]) == (1_740_000_000, 345_000_000)
    steering.apply(HELD)
    steering.restore(originals)
    assert library.calls == [("core", 1740, 1740), "core", "bus"]


def test_a_denied_lock_is_a_problem() -> None:
    steering = Steering(found_by(Library(denied=True), Access()), limit_s=10.0)
    (problem,) = steering.apply(HELD).problems
    assert problem.error == "EPERM"
    assert problem.line.startswith("nvml: /nvml/0/core_locked_clocks: EPERM: not allowed; run as root")


def test_a_fault_of_a_lock_is_a_problem() -> None:
    def before(write: Write) -> None:
        raise OSError(errno.EBUSY, "injected")

    steering = Steering(found_by(Library(), Access(before_write=before)), limit_s=10.0)
    assert [problem.error for problem in steering.apply(HELD).problems] == ["EBUSY"]
