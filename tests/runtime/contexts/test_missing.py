"""Test for which devices the C runtime has to be here."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from gputune.core.errors import DeviceNotFound
from gputune.runtime.contexts.device import why_no_contexts
from gputune.runtime.devices.discovery import NULL_REPORT, DeviceReport
from gputune.runtime.native.binding import library
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
    "a driver's": (REPORT, WHY),
    "simulated": (NULL_REPORT, ""),
    "an agent's": (replace(REPORT, driver_file="agent:board:1"), ""),
}


@pytest.mark.parametrize(("report", "why"), NEEDED.values(), ids=NEEDED)
def test_what_runs_contexts_has_to_be_here(report: DeviceReport, why: str) -> None:
    assert why_no_contexts(report) == why


def test_whoever_needs_it_is_told_the_same() -> None:
    with pytest.raises(DeviceNotFound) as refused:
        library()
    assert str(refused.value) == WHY
