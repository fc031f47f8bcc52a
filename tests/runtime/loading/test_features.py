"""Test that a context is loaded where the features that its graph needs are proved, and refused by name elsewhere."""

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest

from gputune.core.errors import WrongDevice
from gputune.runtime.backends.null import NullBackend
from gputune.runtime.context.format import open_context, write_context
from gputune.runtime.context.records import Context
from gputune.runtime.devices.discovery import NULL_REPORT
from gputune.runtime.loading.executors import executor_on


class Computing(NullBackend):
    """A device that would compute, and has some features."""

    computes: ClassVar[bool] = True

    def __init__(self, **changes: str) -> None:
        assert NULL_REPORT.identity is not None
        super().__init__(replace(NULL_REPORT.identity, **changes))  # type: ignore[arg-type]
        self.asked: list[list[str]] = []
        self.prove = self._prove

    def _prove(self, names: Collection[str]) -> Mapping[str, str]:
        self.asked.append([*names])
        return {name: "" if name == "half" else f"it has no {name}" for name in names}


@pytest.fixture
def path(context: Context, tmp_path: Path) -> Path:
    """A graph "main" that needs what is there, and a graph "other" that needs something else, too."""
    (program,) = context.programs
    main, other = context.graphs
    launches = tuple(replace(launch, program=1) for launch in other.launches)
    programs = (replace(program, needs=("half",)), replace(program, needs=("half", "subgroups", "sorcery")))
    graphs = (main, replace(other, launches=launches))
    write_context(tmp_path / "needing.bin", replace(context, graphs=graphs, programs=programs, computes=True))
    return tmp_path / "needing.bin"


@pytest.mark.parametrize("changes", [{}, {"driver_version": "other"}])
def test_the_device_is_asked_for_what_the_graph_needs(path: Path, changes: dict[str, str]) -> None:
    """Also a device of the same name and driver: virtual machines give different processors one name."""
    backend = Computing(**changes)
    with open_context(path) as file:
        executor_on(backend, file, "main", strict=False).close()
        assert backend.asked == [["half"]]
        refused = (
            "graph 'other' needs features that null does not prove: sorcery, because it has no sorcery; subgroups, "
        )
        with pytest.raises(WrongDevice, match=refused):
            executor_on(backend, file, "other", strict=False)


def test_a_device_that_computes_nothing_needs_nothing(path: Path) -> None:
    assert NULL_REPORT.identity is not None
    with open_context(path) as file:
        executor_on(NullBackend(NULL_REPORT.identity), file, "other", strict=False).close()


def test_no_device_is_asked_for_a_context_without_needs(context: Context, tmp_path: Path) -> None:
    write_context(tmp_path / "plain.bin", replace(context, computes=True))
    backend = Computing()
    with open_context(tmp_path / "plain.bin") as file:
        executor_on(backend, file, None, strict=False).close()
    assert backend.asked == []
