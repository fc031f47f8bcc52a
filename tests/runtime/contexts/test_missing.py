"""Test for which devices the C runtime has to be here."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from gputune.core.errors import DeviceNotFound
from gputune.runtime.contexts.device import library, why_no_contexts
from gputune.runtime.devices.discovery import NULL_REPORT, DeviceReport
from gputune.runtime.native.building import REMEDY, native_part, runtime_library, why_no_runtime
from tests.runtime.contexts.test_executor import REPORT

WHY = f"the C runtime is not here: GPUTUNE_CC is 'none'; {REMEDY}"


def forget() -> None:
    for function in (native_part, runtime_library, why_no_runtime, library):
        function.cache_clear()


@pytest.fixture(autouse=True)
def _no_library(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.delenv("GPUTUNE_RUNTIME_LIBRARY", raising=False)
    monkeypatch.setenv("GPUTUNE_CC", "none")
    forget()
    yield
    forget()


NEEDED = {
    "a driver's": (REPORT, "c", WHY),
    "a driver's, in Python": (REPORT, "python", ""),
    "simulated": (NULL_REPORT, "c", ""),
    "an agent's": (replace(REPORT, driver_file="agent:board:1"), "c", ""),
}


@pytest.mark.parametrize(("report", "runtime", "why"), NEEDED.values(), ids=NEEDED)
def test_what_runs_contexts_has_to_be_here(
    report: DeviceReport, runtime: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUTUNE_RUNTIME", runtime)
    assert why_no_contexts(report) == why


def test_whoever_needs_it_is_told_the_same() -> None:
    with pytest.raises(DeviceNotFound) as refused:
        library()
    assert str(refused.value) == WHY


def test_an_unknown_runtime_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUTUNE_RUNTIME", "java")
    with pytest.raises(ValueError, match="GPUTUNE_RUNTIME is 'java', expected 'python' or 'c'"):
        why_no_contexts(REPORT)
