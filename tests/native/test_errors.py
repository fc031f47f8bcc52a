"""Test that each error of C is an error of core/errors.py with the whole text, and names OpenCL's status."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from gputune.core import errors
from gputune.runtime import native as sources
from gputune.runtime.native.binding import Native
from gputune.runtime.native.declarations import MESSAGE_BYTES, STRUCTURES
from tests.native.compiling import library
from tests.native.fake import Fake, doubling_context

HEADER = (sources.FOLDER / "include" / "gputune.h").read_text(encoding="utf-8")
CODES = re.findall(r"^    GPUTUNE_([A-Z_]+),?$", HEADER, re.MULTILINE)
RAISED: Mapping[str, type[Exception]] = {
    "invalid_argument": ValueError,
    "io_error": OSError,
    "out_of_memory": MemoryError,
    "not_a_context": errors.NotAContext,
    "unsupported_format_version": errors.UnsupportedFormatVersion,
    "truncated": errors.Truncated,
    "checksum_mismatch": errors.ChecksumMismatch,
    "malformed_header": errors.MalformedHeader,
    "malformed_ep_context": errors.MalformedEpContext,
    "malformed_package": errors.MalformedPackage,
    "wrong_device": errors.WrongDevice,
    "arena_too_small": errors.ArenaTooSmall,
    "untrusted_file": errors.UntrustedFile,
    "file_changed": errors.FileChanged,
    "device_not_found": errors.DeviceNotFound,
    "build_failed": errors.BuildFailed,
    "limit_exceeded": errors.LimitExceeded,
    "launch_failed": errors.LaunchFailed,
    "forked_process": errors.ForkedProcess,
    "unusable_memory": errors.UnusableMemory,
    "cannot_import": errors.CannotImport,
    "unknown_graph": errors.UnknownGraph,
    "invalid_launch": errors.InvalidLaunch,
    "cannot_mark": errors.CannotMark,
}
OF_PYTHON = {
    errors.ContextClosed,
    errors.MemoryClosed,
    errors.MemoryInUse,
    errors.MalformedLog,
    errors.OnlyParts,
    errors.ContextError,
    errors.DeviceError,
}
"""What only Python's own objects raise, and what others are derived from."""


@pytest.fixture(scope="module")
def native(c_compiler: str) -> Native:
    return Native(library())


@pytest.fixture
def fake(native: Native) -> Iterator[Fake]:
    found = Fake()
    yield found
    found.fail_at(0)
    found.status(-5)


def test_each_code_has_a_row_and_each_error_a_code() -> None:
    assert [code.lower() for code in CODES] == list(RAISED)
    defined = {one for one in vars(errors).values() if isinstance(one, type) and issubclass(one, Exception)}
    assert defined - OF_PYTHON == {*RAISED.values()} - {ValueError, OSError, MemoryError}


@pytest.mark.parametrize("name", RAISED)
def test_a_code_is_raised_as_its_error(native: Native, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """With all that C has room for; a text that is cut in the middle of a character is no other error."""
    text = b"x" * (MESSAGE_BYTES - 3) + "é".encode()[:1]
    number = 1 + list(RAISED).index(name)
    assert native.code_name(number) == name
    names = native.call

    def call(function: str, *arguments: Any) -> Any:
        if function != "made_up":
            return names(function, *arguments)
        arguments[-1]._obj.code, arguments[-1]._obj.message = number, text
        return number

    monkeypatch.setattr(native, "call", call)
    with pytest.raises(RAISED[name]) as raised:
        native.checked("made_up")
    assert type(raised.value) is RAISED[name]
    assert str(raised.value) == text.decode(errors="replace")


def test_a_code_of_a_later_version_is_an_error_of_the_device(native: Native) -> None:
    assert native.code_name(1 + len(CODES)) == "unknown"
    assert errors.error_named("unknown") is errors.LaunchFailed


def test_the_header_and_the_binding_have_the_same_room() -> None:
    assert f"#define GPUTUNE_MESSAGE_BYTES {MESSAGE_BYTES}\n" in HEADER
    assert STRUCTURES["gputune_error"].message.size == MESSAGE_BYTES


@pytest.mark.parametrize("letters", [3, 1000, 5000])
def test_the_whole_text_arrives(native: Native, fake: Fake, tmp_path: Path, letters: int) -> None:
    path = doubling_context(tmp_path / "a.bin")
    with (
        native.open(path) as file,
        native.device(file, opencl=str(fake.path)) as device,
        pytest.raises(errors.UnknownGraph) as refused,
    ):
        device.load(file, "n" * letters)
    whole = (
        f"{path}: there is no graph '{'n' * letters}'; the graphs are 'main': name one of them, or the context was "
        "made from another model"
    )
    assert str(refused.value) == whole[: MESSAGE_BYTES - 1]


STATUSES: Mapping[int, tuple[type[Exception], str]] = {
    -4: (errors.LimitExceeded, "CL_MEM_OBJECT_ALLOCATION_FAILURE"),
    -5: (errors.LimitExceeded, "CL_OUT_OF_RESOURCES"),
    -36: (errors.LaunchFailed, "CL_INVALID_COMMAND_QUEUE"),
    -1138: (errors.LaunchFailed, "CL_INVALID_COMMAND_BUFFER_KHR"),
    -9999: (errors.LaunchFailed, "error -9999"),
}


@pytest.mark.parametrize("status", STATUSES)
def test_a_status_of_opencl_is_told_by_its_name(native: Native, fake: Fake, status: int) -> None:
    kind, name = STATUSES[status]
    fake.status(status)
    with native.device(opencl=str(fake.path)):
        fake.fail_at(0)
    with native.device(opencl=str(fake.path)) as device:
        calls = fake.calls
        assert not device.lost
    fake.fail_at(calls)  # the queue
    with pytest.raises(kind, match=f"^opening the device failed: {name}$") as refused:
        native.device(opencl=str(fake.path))
    assert type(refused.value) is kind


def test_programs_say_which_status_and_what_the_compiler_says(
    native: Native, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line, from the first error on."""
    log = "a warning\n3: error: no linker\n\tneeded " + "x" * 3000
    monkeypatch.setenv("FAKE_LOG", log)
    path = doubling_context(tmp_path / "a.bin", binary=b"of another driver")
    with native.open(path) as file, native.device(file, opencl=str(fake.path)) as device:
        fake.status(-11)
        fake.fail_at(0)
        device.load(file).close()
        said = set()
        for number in range(1, fake.calls + 1):
            fake.fail_at(number)
            try:
                device.load(file).close()
            except errors.BuildFailed as error:
                said.add(str(error))
            except errors.DeviceError:
                continue
    shown = "error: no linker  needed " + "x" * 3000
    assert said == {
        f"building a program failed: CL_BUILD_PROGRAM_FAILURE: {shown[:2000]}",
        "loading a program failed: CL_BUILD_PROGRAM_FAILURE",
        "the program has no kernel 'twice': CL_BUILD_PROGRAM_FAILURE",
    }
