"""Test that gputune.runtime loads its parts when they are first used."""

import subprocess
import sys

import pytest

import gputune.runtime

FIRST_USE = """
import sys, gputune.runtime.devices.discovery as discovery
assert not {"numpy", "gputune.runtime.execution"} & set(sys.modules), sorted(sys.modules)
from gputune.runtime import Executor
from gputune.runtime.execution import executor
assert Executor is executor.Executor is gputune.runtime.Executor
"""


def test_a_part_is_loaded_when_it_is_first_used() -> None:
    subprocess.run([sys.executable, "-c", f"import gputune.runtime\n{FIRST_USE}"], check=True)


def test_every_name_is_there() -> None:
    assert all(getattr(gputune.runtime, name).__name__ for name in gputune.runtime.__all__)
    assert set(gputune.runtime.__all__) <= set(dir(gputune.runtime))
    with pytest.raises(AttributeError, match=r"module 'gputune\.runtime' has no attribute 'nothing'"):
        _ = gputune.runtime.nothing
