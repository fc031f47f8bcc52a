"""Test native parts of several files: all that decides about a library is in its name, its content is checked before it
is used, and it shows only its exports.

test_compiling.py tests that a part is built once, safely, or refused with the reason.
"""

import ctypes
import fcntl
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gputune.core.whole_file import locked_folder, sync
from gputune.runtime import native
from gputune.runtime.native import building
from gputune.runtime.native.building import PARTS, NotBuilt, Part, native_part

FILES = {
    "include/number.h": "enum { NUMBER = 40 };",
    "src/one.c": '#include "number.h"\n__attribute__((visibility("default"))) int one(void) { return NUMBER; }',
    "src/two.c": '#include "one.h"\n__attribute__((visibility("default"))) int sum(void) { return one() + 2; }',
    "src/one.h": "int one(void);",
    "other/ignored.c": "not C",
    "exports.map": "{ global: sum; local: *; };",
}
PART = Part(("src/*.c",), headers=("include", "src"), libraries=("-lm",), exports="exports.map")

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for native/ with the part "made_up", and an empty cache."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(building, "FOLDER", tmp_path)
    monkeypatch.setitem(PARTS, "made_up", PART)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    native_part.cache_clear()
    yield tmp_path
    native_part.cache_clear()


def built() -> Path:
    native_part.cache_clear()
    return native_part("made_up")


def test_a_library_of_several_files_shows_its_exports_alone(folder: Path) -> None:
    library = ctypes.CDLL(str(built()))
    assert library.sum() == 42
    with pytest.raises(AttributeError):
        library.one  # noqa: B018


@pytest.mark.parametrize("name", [name for name in FILES if name != "other/ignored.c"])
def test_every_file_decides_which_library_it_is(folder: Path, name: str) -> None:
    first = built()
    assert built() == first
    (folder / name).write_text(FILES[name] + "\n")
    assert built() != first


@pytest.mark.parametrize(
    "part",
    [
        Part(PART.sources, PART.headers, (), PART.exports),
        Part(PART.sources, PART.headers, PART.libraries),
        Part((*PART.sources, "include/*.c"), PART.headers, PART.libraries, PART.exports),
    ],
    ids=["libraries", "exports", "sources"],
)
def test_so_does_how_it_is_built(folder: Path, monkeypatch: pytest.MonkeyPatch, part: Part) -> None:
    (folder / "include" / "more.c").write_text("extern int more;")
    first = built()
    monkeypatch.setitem(PARTS, "made_up", part)
    assert built() != first


def another(path: Path) -> None:
    """Put another library there."""
    (path.parent / "other.c").write_text("int sum(void) { return 7; }")
    building._run(["cc", "-shared", "-fPIC", "other.c", "-o", path.name], "other.c", path.parent)


def linked_to_nothing(path: Path) -> None:
    path.unlink()
    path.symlink_to("/nonexistent/x.so")


def named_pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "empty": lambda path: path.write_bytes(b""),
    "an end is missing": lambda path: path.write_bytes(path.read_bytes()[:8192]),
    "the last byte is missing": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "zeros": lambda path: path.write_bytes(path.read_bytes()[:4096].ljust(path.stat().st_size, b"\0")),
    "another library": another,
    "a link to nothing": linked_to_nothing,
    "a named pipe": named_pipe,
}


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_a_library_that_is_not_what_was_built_is_built_again(
    folder: Path, caplog: pytest.LogCaptureFixture, damage: Callable[[Path], object]
) -> None:
    first = built()
    whole = first.read_bytes()
    damage(first)
    again = built()
    assert again.is_file() and again.read_bytes() == whole
    assert caplog.messages == [
        f"{first} is not what was built, as after a power failure or with a full disk: building it"
    ]
    assert built() == again
    assert len(caplog.messages) == 1
    assert [path.name for path in again.parent.iterdir() if path.suffix != ".c"] == [again.name]


def test_a_damaged_library_that_cannot_go_is_said(folder: Path) -> None:
    first = built()
    first.unlink()
    first.mkdir()
    with pytest.raises(NotBuilt, match=f"{first}: "):
        built()


def test_a_library_is_on_the_disk_before_it_has_its_name(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[tuple[str, str]] = []
    rename = Path.replace

    def synced(path: Path) -> None:
        done.append(("synced", path.suffix))
        sync(path)

    def replace(old: Path, new: Path) -> Path:
        done.append(("named", new.suffix))
        return rename(old, new)

    monkeypatch.setattr(building, "sync", synced)
    monkeypatch.setattr(Path, "replace", replace)
    built()
    assert done == [("synced", ".so"), ("named", ".so"), ("synced", "")]  # and then its folder


def test_a_folder_that_cannot_be_synced_will_do(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """But no file: nobody knows then what it has."""

    def refuse(path: Path) -> None:
        if path.suffix == suffix:
            raise OSError(22, "Invalid argument", str(path))

    monkeypatch.setattr(building, "sync", refuse)
    suffix = ""
    assert built().is_file()
    shutil.rmtree(folder / "cache")
    suffix = ".so"
    with pytest.raises(NotBuilt, match="Invalid argument"):
        built()


def test_one_builds_for_all_that_want_it_at_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compiler = folder / "compiler"
    compiler.write_text(f'#!/bin/sh\necho x >> {folder}/calls; exec cc "$@"\n')
    compiler.chmod(0o755)
    monkeypatch.setenv("GPUTUNE_CC", str(compiler))
    with ThreadPoolExecutor(4) as threads:  # flock holds for descriptors, so threads are like processes
        found = list(threads.map(lambda _: native_part.__wrapped__("made_up"), range(4)))
    assert len(set(found)) == 1
    assert (folder / "calls").read_text() == "x\n" * 3  # to compile two files, and to link


def left_by_a_killed_one(folder: Path) -> Path:
    left = folder / "cache" / "gputune" / "native" / "build-abc" / "0.o"
    left.parent.mkdir(parents=True)
    for above in left.parents[:3]:
        above.chmod(0o700)
    left.write_bytes(b"half")
    return left.parent


def test_what_killed_builds_left_is_removed(folder: Path) -> None:
    left = left_by_a_killed_one(folder)
    library = built()
    assert [*left.parent.iterdir()] == [library]


def test_a_process_that_holds_the_folder_is_not_waited_for_for_ever(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it builds stays."""
    left = left_by_a_killed_one(folder)
    monkeypatch.setattr(building, "_LONGEST_WAIT_S", 0.05)
    with locked_folder(left.parent) as held:
        assert held
        library = built()
    assert {*left.parent.iterdir()} == {library, left}


def test_a_file_system_may_have_no_locks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(descriptor: int, operation: int) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    first = built()
    whole = first.read_bytes()
    first.write_bytes(b"")
    assert built().read_bytes() == whole


def test_an_error_names_its_file(folder: Path) -> None:
    (folder / "src" / "two.c").write_text('#include "number.h"\nint sum(void) { return missing; }')
    with pytest.raises(NotBuilt, match=r"refuses two\.c: .*two\.c:2:.*error.*missing"):
        built()
    assert not [*(folder / "cache" / "gputune" / "native").iterdir()]


def test_a_library_that_cannot_be_linked_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PARTS, "made_up", Part(PART.sources, PART.headers, ("-lmissing-here",)))
    with pytest.raises(NotBuilt, match=r"refuses to link made_up-\w+: .*missing-here"):
        built()


def test_what_takes_a_while_says_so(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gputune")
    built()
    assert not caplog.messages
    for number in range(8):
        (folder / "src" / f"more{number}.c").write_text(f"extern int more{number};")
    library = built()
    built()
    (line,) = caplog.messages
    assert re.fullmatch(rf"building {library.parent}/made_up-\w+ from 10 files with cc, once; this takes .*", line)


def test_sources_may_be_missing(folder: Path) -> None:
    shutil.rmtree(folder / "src")
    with pytest.raises(NotBuilt, match="the C sources of made_up are not here"):
        built()


def test_a_name_that_is_missing_is_said(folder: Path) -> None:
    text = '#include "one.h"\n__attribute__((visibility("hidden"))) int gone(void);\nint sum(void) { return gone(); }'
    (folder / "src" / "two.c").write_text(text)
    with pytest.raises(NotBuilt, match=r"refuses to link .*: .*undefined .*gone"):
        built()


@pytest.mark.parametrize("name", PARTS)
def test_each_part_knows_all_files_that_it_includes(name: str) -> None:
    part = PARTS[name]
    files = part.files()
    headers = {Path(header).name for header in files if header.endswith(".h")}
    assert part.compiled(files)
    for file, text in files.items():
        named = re.findall(rb'^#include "(.+)"', text, re.MULTILINE)
        assert {Path(each.decode()).name for each in named} <= headers, file


def test_every_source_of_c_belongs_to_a_part_or_a_program() -> None:
    known = {name for part in PARTS.values() for name in part.files()}
    paths = (path for suffix in ("c", "h") for path in native.FOLDER.rglob(f"*.{suffix}"))
    found = {path.relative_to(native.FOLDER).as_posix() for path in paths}
    assert {name for name in found - known if not name.startswith("agent/")} == {"main.c", "names.h"}
