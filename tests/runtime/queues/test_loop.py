"""Test native parts: built once, in a folder that is safe, or not at all with the reason."""

import ctypes
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gputune.client.doctor.software import check_software
from gputune.runtime.native.building import NotBuilt, native_part
from gputune.runtime.queues.loop import in_c, loop

FAILS_AT = 3
CODE = -54


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    native_part.cache_clear()
    loop.cache_clear()
    yield tmp_path
    native_part.cache_clear()
    loop.cache_clear()


def script(folder: Path, text: str) -> str:
    path = folder / "compiler"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def refused(words: str) -> None:
    """The part is not built for this reason; launches go another way, which the doctor reports."""
    with pytest.raises(NotBuilt, match=words):
        native_part("loop")
    assert in_c(1, 2, []) is None
    (finding,) = [each for each in check_software() if "launches" in each.line]
    assert finding.status == "note"
    assert "from Python" in finding.line


def test_the_loop_calls_in_order_and_stops_at_an_error() -> None:
    seen = []

    def enqueue(*arguments: int) -> int:
        queue, kernel, dimensions, _, global_size, local_size, *rest = arguments
        sizes = [
            list(ctypes.cast(each, ctypes.POINTER(ctypes.c_size_t))[:dimensions]) for each in (global_size, local_size)
        ]
        seen.append((queue, kernel, *sizes, rest))
        return CODE if len(seen) == FAILS_AT else 0

    types = ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, *3 * (ctypes.c_void_p,), ctypes.c_uint32
    kind = ctypes.CFUNCTYPE(ctypes.c_int32, *types, ctypes.c_void_p, ctypes.c_void_p)
    function = kind(enqueue)
    address = ctypes.cast(function, ctypes.c_void_p).value or 0
    kernels = [(100 + one, (8 * one, 4, 2)[: 1 + one % 3], (2, 1, 1)[: 1 + one % 3]) for one in range(1, 5)]
    launches = in_c(address, 7, kernels)
    assert launches is not None
    assert launches() == CODE
    assert seen == [
        (7, kernel, list(whole), list(local), [0, None, None]) for kernel, whole, local in kernels[:FAILS_AT]
    ]
    seen[:] = [()] * FAILS_AT
    assert launches() == 0
    assert len(seen) == FAILS_AT + len(kernels)


def test_a_part_is_compiled_once(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUTUNE_CC", script(tmp_path, f'echo x >> {tmp_path}/calls; exec cc "$@"'))
    first = native_part("loop")
    assert first.parent == cache / "gputune" / "native"
    assert [path.name for path in first.parent.iterdir()] == [first.name]
    native_part.cache_clear()
    assert native_part("loop") == first
    assert (tmp_path / "calls").read_text() == "x\nx\n"  # to compile, and to link
    (finding,) = [each for each in check_software() if "launches" in each.line]
    assert (finding.status, str(first) in finding.line) == ("ok", True)


def test_none_means_no_native_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUTUNE_CC", "none")
    refused("GPUTUNE_CC is 'none'")


def test_a_machine_may_have_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    refused("there is no C compiler")


def test_a_compiler_may_fail(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPUTUNE_CC", script(tmp_path, "echo no such target >&2; exit 1"))
    refused("refuses loop.c: no such target")
    assert not [*(cache / "gputune" / "native").iterdir()]


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("'cc", 'the compiler "\'cc" is no command: No closing quotation'),
        (" ", "the compiler ' ' is no command: it is empty"),
        ("/nowhere/cc", "/nowhere/cc: No such file or directory"),
        ("false", "false refuses loop.c: it says nothing"),
        ("true", "true has written no library: is it a C compiler?"),
        ("sh -c 'exit 0'", "sh has written no library: is it a C compiler?"),
    ],
)
def test_a_compiler_may_be_no_command(monkeypatch: pytest.MonkeyPatch, command: str, words: str) -> None:
    monkeypatch.setenv("GPUTUNE_CC", command)
    refused(re.escape(words))
    with pytest.raises(NotBuilt, match=r"no command|No such file|refuses|is it a C compiler"):
        native_part("onnxruntime")


@pytest.mark.skipif(sys.platform == "win32", reason="permissions of another kind")
def test_a_folder_that_others_can_write_to_is_not_used(cache: Path) -> None:
    folder = cache / "gputune" / "native"
    folder.mkdir(parents=True)
    folder.chmod(0o777)
    refused("can be written by every user")
    folder.chmod(0o700)
    native_part.cache_clear()
    native_part("loop").chmod(0o777)
    native_part.cache_clear()
    loop.cache_clear()
    refused("can be written by every user")
