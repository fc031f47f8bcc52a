"""Test the folder of compiled programs: only for real devices, emptied when it is full, removed with its daemon."""

import os
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from gputune.runtime.devices.discovery import NULL_REPORT, DeviceReport
from gputune.server.workers import compiled_programs
from gputune.server.workers.compiled_programs import LOOK_EVERY, CompiledPrograms


@pytest.fixture
def programs() -> CompiledPrograms:
    identity = NULL_REPORT.identity
    assert identity is not None
    made = CompiledPrograms(DeviceReport(0, replace(identity, platform="some"), "some.icd", True, ""))
    if made.folder is None:
        pytest.skip("no room in memory here")
    return made


def fill(programs: CompiledPrograms, nbytes: int) -> Path:
    assert programs.folder is not None
    file = programs.folder / "AB" / "CDEF" / "kernel" / "1-1-1" / "kernel.so"
    file.parent.mkdir(parents=True)
    file.write_bytes(bytes(nbytes))
    (programs.folder / "tempfile_1").touch()
    return file


def test_what_computes_nothing_compiles_nothing() -> None:
    programs = CompiledPrograms(NULL_REPORT)
    assert programs.folder is None
    assert not any(programs.full() for _ in range(LOOK_EVERY))
    programs.empty()
    programs.remove()


def test_it_is_full_above_its_limit_and_is_emptied_and_removed(
    programs: CompiledPrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = fill(programs, 100_000)
    folder = programs.folder
    assert folder is not None
    monkeypatch.setattr(compiled_programs, "MOST_BYTES", 200_000)
    assert not any(programs.full() for _ in range(2 * LOOK_EVERY))
    monkeypatch.setattr(compiled_programs, "MOST_BYTES", 50_000)
    assert sum(programs.full() for _ in range(2 * LOOK_EVERY)) == 2
    programs.empty()
    assert not file.exists() and folder.exists() and not list(folder.glob("[A-Zt]*"))
    assert not any(programs.full() for _ in range(LOOK_EVERY))
    programs.remove()
    assert not folder.exists()


@pytest.mark.parametrize("how", ["removed", "read only"])
def test_a_folder_that_is_lost_is_replaced(
    programs: CompiledPrograms, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        before = programs.folder
        assert before is not None and [programs.lost] == [False]
        with monkeypatch.context() as read_only:
            if how == "removed":
                shutil.rmtree(before)
                assert any(programs.full() for _ in range(LOOK_EVERY))
            else:
                read_only.setattr(
                    compiled_programs, "os", SimpleNamespace(W_OK=os.W_OK, access=lambda path, mode: False)
                )
            assert [programs.lost] == [True]
            programs.empty()
        assert programs.folder not in (None, before) and not before.exists()
    monkeypatch.setattr(compiled_programs, "scratch_folder", lambda: None)  # there is no place any more
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    programs.empty()
    assert (programs.folder, programs.lost, programs.full()) == (None, False, False)


def test_it_is_full_where_space_runs_out_unless_others_have_taken_it(
    programs: CompiledPrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compiled_programs, "LEAST_FREE_BYTES", 1 << 60)
    fill(programs, 100_000)
    assert not any(programs.full() for _ in range(LOOK_EVERY))
    monkeypatch.setattr(compiled_programs, "_used_bytes", lambda folder: (1 << 60) + 1)
    monkeypatch.setattr(compiled_programs, "MOST_BYTES", 1 << 61)
    assert any(programs.full() for _ in range(LOOK_EVERY))
    programs.remove()
