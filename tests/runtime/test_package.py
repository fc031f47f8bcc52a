"""Test that gputune and gputune.runtime load their parts when they are first used, and that these can be imported."""

import subprocess
import sys

import pytest

import gputune
import gputune.runtime

FIRST_USE = """
import sys, gputune.runtime.devices.discovery as discovery
assert not {"numpy", "gputune.runtime.executor"} & set(sys.modules), sorted(sys.modules)
from gputune.runtime import Executor
from gputune.runtime import executor
assert Executor is executor.Executor is gputune.runtime.Executor
"""


def test_a_part_is_loaded_when_it_is_first_used() -> None:
    subprocess.run([sys.executable, "-c", f"import gputune.runtime\n{FIRST_USE}"], check=True)


def test_every_name_is_there() -> None:
    assert all(getattr(gputune.runtime, name).__name__ for name in gputune.runtime.__all__)
    assert set(gputune.runtime.__all__) <= set(dir(gputune.runtime))
    with pytest.raises(AttributeError, match=r"module 'gputune\.runtime' has no attribute 'nothing'"):
        _ = gputune.runtime.nothing


MODULES = [name for name, (_, inner) in gputune._PLACES.items() if not inner]
IMPORTED = """
import sys
name = sys.argv[1]
forms = (
    f"import gputune.{name} as found",
    f"import gputune.{name}; found = gputune.{name}",
    f"from gputune import {name} as found",
    f"import gputune; found = gputune.{name}",
    f"import importlib; found = importlib.import_module('gputune.{name}')",
    f"from gputune.{name} import *; found = sys.modules['gputune.{name}']",
)
for first in forms:
    for module in [each for each in sys.modules if each.partition(".")[0] == "gputune"]:
        del sys.modules[module]
    found_by = {}
    for form in (first, *forms):
        names = {"sys": sys}
        exec(form, names)
        found_by[form] = names["found"].__name__, id(names["found"])
    assert len({*found_by.values()}) == 1, found_by
"""


@pytest.mark.parametrize("name", MODULES)
def test_a_module_of_gputune_is_imported_by_its_name(name: str) -> None:
    """By each form of import, whichever comes first, it is the same module."""
    assert MODULES
    subprocess.run([sys.executable, "-c", IMPORTED, name], check=True)
