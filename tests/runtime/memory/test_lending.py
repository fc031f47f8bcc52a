"""Test which arrays of an application are kept as buffers, on a device that records what it is lent."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from gputune.runtime.memory.lending import LEAST_LENT, MOST_LENT, Array, Lending


class Device:
    """Makes a buffer, which is a number, on every array, but while it has no room."""

    def __init__(self) -> None:
        self.lent, self.has_room = list[int](), True

    def lend(self, array: Array) -> int | None:
        self.lent.append(array.ctypes.data)
        return len(self.lent) if self.has_room else None


def arrays(count: int, nbytes: int = LEAST_LENT) -> list[Array]:
    return [np.zeros(nbytes, np.uint8) for _ in range(count)]


def test_the_ninth_array_gives_up_the_first() -> None:
    device = Device()
    lending = Lending(device.lend, 1)
    given = arrays(MOST_LENT + 1)
    assert [lending.on(array, ()) for array in given] == list(range(1, MOST_LENT + 2))
    assert [lending.on(array, ()) for array in given[1:]] == list(range(2, MOST_LENT + 2)), "these are kept"
    assert lending.on(given[0], ()) == MOST_LENT + 2, "this one was given up"
    assert lending.on(given[1], ()) == MOST_LENT + 3, "and then that which is the oldest now"


def test_an_array_that_could_not_be_lent_is_lent_later() -> None:
    device = Device()
    lending = Lending(device.lend, 1)
    (array,) = arrays(1)
    device.has_room = False
    assert [lending.on(array, ()) for _ in range(2)] == [None, None]
    device.has_room = True
    assert [lending.on(array, ()) for _ in range(2)] == [3, 3]
    lending.clear()
    assert [lending.on(array, ()) for _ in range(2)] == [4, 4]


def test_what_has_to_be_copied_once_is_lent_if_it_need_not_be_again() -> None:
    device = Device()
    lending = Lending(device.lend, 1)
    (array,), (small,) = arrays(1), arrays(1, LEAST_LENT - 1)
    written: Sequence[Sequence[Any]] = ([array[8:]], [array[:8], small], [])
    assert [lending.on(array, each) for each in written] == [None, None, 1]
    assert [lending.on(array, each) for each in written] == [None, None, 1], "it may be written now, too"
    assert lending.on(small, ()) is None


def test_an_address_that_kernels_do_not_allow_is_copied() -> None:
    (whole,) = arrays(1, LEAST_LENT + 256)
    begin = -whole.ctypes.data % 128
    device = Device()
    lending = Lending(device.lend, 128)
    assert lending.on(whole[begin + 1 : begin + 1 + LEAST_LENT], ()) is None
    assert lending.on(whole[begin : begin + LEAST_LENT], ()) == 1
