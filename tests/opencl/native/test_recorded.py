"""Test recorded queues of the C runtime on a real device: the bits of launches, on memory that is used in turns."""

from pathlib import Path

import numpy as np
import pytest

from gputune.runtime.backends import Backend
from gputune.runtime.native.binding import Native
from tests.opencl.runtime import made

ELEMENTS, NBYTES = 1 << 12, 1 << 14
INFERENCES = 16
"""Fewer than it takes to choose a form, in which the two take turns."""


def test_a_recorded_queue_gives_the_bits_of_launches(native: Native, backend: Backend, tmp_path: Path) -> None:
    forms = set()
    with (
        native.open(made.write(tmp_path / "made.bin", backend, ELEMENTS, NBYTES)) as file,
        native.device(file) as device,
        device.load(file) as graph,
        device.allocate(NBYTES) as first,
        device.allocate(NBYTES) as second,
    ):
        for number in range(INFERENCES):
            memory = (first, second)[number // 2 % 2]
            x = np.random.default_rng(number).standard_normal(ELEMENTS).astype(np.float32)
            memory.array("float32", (ELEMENTS,))[...] = x
            np.testing.assert_array_equal(graph.run({"x": memory})["y"], made.expected(x))
            forms.add("recorded" if graph.counters()[1]["recorded"] else "launches")
        assert graph.warnings == []
    if forms == {"launches"}:
        pytest.skip("the device records no launches")
    assert forms == {"recorded", "launches"}
