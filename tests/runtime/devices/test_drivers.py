"""Test which OpenCL library a process has open."""

from pathlib import Path

import pytest

from gputune.runtime.devices.drivers import loaded_library

LINE = "7f00-7f01 r-xp 00000000 08:01 42                   "
MAPS = {
    "the system's": (f"{LINE}/lib/libc.so.6\n{LINE}/usr/lib/libOpenCL.so.1.0.0\n", "/usr/lib/libOpenCL.so.1.0.0"),
    "in a folder with a space": (f"{LINE}/my own/libOpenCL-0a1b.so.1\n", "/my own/libOpenCL-0a1b.so.1"),
    "another library in such a folder": (f"{LINE}/libOpenCL/libpocl.so\n{LINE}[heap]\n7f02 r-xp\n", None),
}


@pytest.mark.parametrize(("text", "path"), MAPS.values(), ids=MAPS)
def test_it_is_found_among_all_that_is_mapped(text: str, path: str | None, tmp_path: Path) -> None:
    (tmp_path / "maps").write_text(text)
    assert loaded_library(tmp_path / "maps") == path


def test_a_system_that_does_not_tell_has_none(tmp_path: Path) -> None:
    assert loaded_library(tmp_path / "maps") is None
