"""Check that no test of memory leaves a descriptor open."""

import gc
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


def open_descriptors() -> int:
    gc.collect()
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture(autouse=True)
def _no_leak() -> Iterator[None]:
    before = open_descriptors() if sys.platform == "linux" else 0
    yield
    if sys.platform == "linux":
        assert open_descriptors() <= before  # an object of an earlier test may go meanwhile
