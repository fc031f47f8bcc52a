"""Report the kernel tests of a pytest process to the command that started it: a plugin, loaded with `-p`.

The command says by variables of the environment how tests run. Processes of pytest-xdist run them; their results come
together in the process that writes them, a line of JSON each, to the file descriptor that REPORTS names.
"""

from __future__ import annotations

import os
import random
import sys
from typing import TYPE_CHECKING

import pytest

from gputune.core.json_text import json_text
from gputune.kernels.catalogue import families

if TYPE_CHECKING:
    from gputune.runtime.backends import Backend

REPORTS = "GPU_DRIVERS_REPORTS"
"""The file descriptor for the lines."""
UNGUARDED = "GPU_DRIVERS_UNGUARDED"
"""If it is set, buffers end where their memory ends, so that a driver that watches memory sees each access beyond."""
LOCAL_BYTES = "GPU_DRIVERS_LOCAL_BYTES"
"""How much local memory a driver may count more than kernels declare."""
SAMPLE = "GPU_DRIVERS_SAMPLE"
"""How many tests of each function and family run; all without it."""
ONLY = "GPU_DRIVERS_ONLY"
"""Beginnings of names of tests in lines, such as `test_top.py::test_x[a`: others do not run."""
EXCEPT = "GPU_DRIVERS_EXCEPT"
"""Beginnings of names of tests that do not run."""
STEPS = ("setup", "call", "teardown")


def pytest_configure(config: pytest.Config) -> None:
    """Let only the process that gathers the results report them."""
    if hasattr(config, "workerinput"):
        os.environ.pop(REPORTS, None)


def pytest_sessionstart() -> None:
    """Take the guards away from buffers if memory itself is watched, and write poison as the host's data.

    In oclgrind, what a kernel reads from a buffer that was filled counts as uninitialised, even after it was stored.
    """
    if UNGUARDED in os.environ:
        import numpy as np

        from gputune.runtime.backends.answers import POISON
        from gputune.runtime.measuring import verification

        def poison(buffer: verification.GuardedBuffer, backend: Backend) -> None:
            backend.write(buffer.whole, np.full(buffer.whole.nbytes, POISON, np.uint8))

        verification.GUARD_BYTES = 0
        verification.GuardedBuffer.poison = poison  # type: ignore[assignment,method-assign]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Choose the tests that run, the same in each process."""
    only, left_out = (tuple(os.environ.get(name, "").split("\n")) for name in (ONLY, EXCEPT))
    if only != ("",):
        items[:] = [item for item in items if short(item.nodeid).startswith(only)]
    if left_out != ("",):
        items[:] = [item for item in items if not short(item.nodeid).startswith(left_out)]
    if number := os.environ.get(SAMPLE):
        kept = set(sampled([item.nodeid for item in items], int(number)))
        items[:] = [item for item in items if item.nodeid in kept]
    if most := os.environ.get(LOCAL_BYTES):
        vars(sys.modules["tests.opencl.conftest"])["DRIVERS_LOCAL_BYTES"] = int(most)


def short(test: str) -> str:
    """Return the name of a test without the folders of its file."""
    path, separator, name = test.partition("::")
    return f"{path.rpartition('/')[2]}{separator}{name}"


def sampled(tests: list[str], number: int) -> list[str]:
    """Return so many tests of each function, and of each family if the name of a case begins with a family."""
    groups: dict[str, list[str]] = {}
    for test in tests:
        function, _, case = test.partition("[")
        family = case.partition("-")[0]
        groups.setdefault(f"{function}[{family}" if family in families() else function, []).append(test)
    return [
        test
        for name, members in groups.items()
        for test in random.Random(name).sample(sorted(members), min(number, len(members)))
    ]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_node_collection_finished(ids: list[str]) -> None:
    """Report how many tests there are."""
    _write({"tests": len(ids)})


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Report a step of a test."""
    if REPORTS in os.environ:
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        line = {"test": report.nodeid, "step": report.when, "outcome": report.outcome, "seconds": report.duration}
        _write({**line, "why": why, "stderr": report.capstderr})


def _write(line: dict[str, object]) -> None:
    left = f"{json_text(line)}\n".encode()
    while left:
        left = left[os.write(int(os.environ[REPORTS]), left) :]
