"""Check that no test of memory leaves a descriptor open."""

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _no_leak() -> Iterator[None]:
    here = Path("/proc/self/fd" if sys.platform == "linux" else os.devnull)
    gc.freeze()  # what is there by now stays, and takes no time below
    before = len([*here.glob("*")])
    yield
    gc.collect()
    assert len([*here.glob("*")]) <= before
