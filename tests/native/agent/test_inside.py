"""Test what the agent keeps to itself: how it fills a room, cuts texts, and tells errors."""

import ctypes
import functools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputune.core.errors import BuildFailed, ContextError, DeviceError, InvalidLaunch, LaunchFailed, LimitExceeded
from gputune.runtime import native
from gputune.runtime.native.binding import Native
from gputune.server.agent.agent_connection import _error_of
from gputune.server.agent.messages import Failed
from tests.native.compiling import SOURCES, driver

pytestmark = pytest.mark.usefixtures("c_compiler")
GUARD = b"\xa5"


@functools.cache
def inside() -> ctypes.CDLL:
    apart = ("files", "session", "main")
    own = [f"agent/{path.stem}" for path in (native.FOLDER / "agent").glob("*.c") if path.stem not in apart]
    found = driver("inside", *sorted(own), *(path.stem for path in SOURCES))
    found.told_as.restype = ctypes.c_char_p
    found.names_of.restype = ctypes.c_size_t
    return found


@pytest.mark.parametrize("room", range(32))
def test_names_fill_their_room_and_no_byte_more(tmp_path: Path, room: int) -> None:
    for name in ("a", "bc", "def", "ghij"):
        (tmp_path / name).touch()
    into = ctypes.create_string_buffer(GUARD * 64, 64)
    nbytes = inside().names_of(bytes(tmp_path), into, ctypes.c_size_t(room))
    assert nbytes <= room and into.raw[room:] == GUARD * (64 - room)
    lines = into.raw[:nbytes].decode().splitlines(keepends=True)
    names = {"a\n", "bc\n", "def\n", "ghij\n", ".\n", "..\n"}
    assert set(lines) <= names and (set(lines) == names) == (room >= sum(map(len, names)))


@given(st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=40), st.integers(1, 200))
def test_a_text_is_cut_at_a_character(text: str, room: int) -> None:
    into = ctypes.create_string_buffer(GUARD * 256, 256)
    inside().printed(into, ctypes.c_size_t(room), text.encode())
    got = into.raw[: into.raw.index(b"\0")]
    assert got == text.encode()[: room - 1].decode(errors="ignore").encode()
    assert into.raw[room:] == GUARD * (256 - room)


KINDS: dict[str, type[DeviceError]] = {
    "build_failed": BuildFailed,
    "limit_exceeded": LimitExceeded,
    "out_of_memory": LimitExceeded,
    "invalid_launch": InvalidLaunch,
}
CONTEXT_ERRORS = {kind.name: kind for kind in ContextError.__subclasses__()}


def test_each_code_is_told_as_the_error_that_it_is_here(native: Native) -> None:
    names = [native.code_name(code) for code in range(1, 25)]
    assert "unknown" not in names and native.code_name(25) == "unknown"
    for code, name in enumerate(names, 1):
        error = _error_of(Failed(inside().told_as(code).decode(), "why"))
        assert type(error) is CONTEXT_ERRORS.get(name, KINDS.get(name, LaunchFailed)), name
    assert CONTEXT_ERRORS.keys() <= set(names)
