"""Test what backends answer about buffers and their guards, on the null device."""

import zlib
from dataclasses import replace

import numpy as np
import pytest

from gputune.runtime.backends import (
    Backend,
    Bounds,
    Checked,
    Guards,
    Reference,
    Zone,
    open_backend,
)
from gputune.runtime.backends.answers import POISON
from gputune.runtime.devices.discovery import NULL_REPORT

GUARD, SIZE = 256, 64
BOUNDS = Bounds(limit=0.5, ordinary=10.0, relative=0.1, absolute=0.0)


@pytest.fixture
def null() -> Backend:
    return open_backend(NULL_REPORT)


def guarded(null: Backend, content: bytes) -> Zone:
    whole = null.allocate(len(content) + 2 * GUARD)
    null.fill(whole, POISON)
    null.write(null.part(whole, GUARD, len(content)), content)
    return Zone(whole, GUARD, len(content))


def test_a_comparison_counts_by_the_bounds_that_it_is_given(null: Backend) -> None:
    want = np.array([1.0, 2.0, 100.0, 200.0], np.float32)
    zone = guarded(null, np.array([1.5, 2.6, 109.0, 221.0], np.float32).tobytes())
    seen, beside = null.compare(zone, Reference(want, BOUNDS))
    assert (seen.wrong, seen.poisoned, seen.first, seen.maximum) == (2, 0, 1, 21.0)
    assert (np.frombuffer(seen.found, np.float32)[0], seen.guards, beside) == (np.float32(2.6), Guards(), [])
    wider = replace(BOUNDS, limit=0.7, relative=0.2)
    assert null.compare(zone, Reference(want, wider))[0].wrong == 0


def test_a_comparison_finds_what_was_never_written(null: Backend) -> None:
    zone = guarded(null, b"\xff" * 8)
    seen, _ = null.compare(zone, Reference(np.array([1.0, np.nan], np.float32), BOUNDS))
    assert (seen.wrong, seen.poisoned, seen.maximum) == (2, 2, None)


def test_one_call_answers_for_an_output_and_for_what_is_beside_it(null: Backend) -> None:
    output, other = guarded(null, bytes(SIZE)), guarded(null, b"kept")
    for whole, places in ((output.buffer, (GUARD - 3, GUARD - 9)), (other.buffer, (GUARD + 6,))):
        whole.handle[list(places)] = 1
    want = Reference(np.zeros(SIZE, np.uint8), BOUNDS)
    seen, beside = null.compare(output, want, [other, other._replace(summed=False)])
    assert (seen.wrong, seen.guards) == (0, Guards(before=2, before_distance=2))
    damaged = Guards(after=1, after_distance=2)
    assert beside == [Checked(zlib.crc32(b"kept"), damaged), Checked(0, damaged)]
    assert null.checksum([other]) == beside[:1]
