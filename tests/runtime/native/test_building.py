"""Test native parts of several files: all that decides about a library is in its name, and it shows only its exports.

tests/runtime/queues/test_loop.py tests that a part is built once, safely, or refused with the reason.
"""

import ctypes
import logging
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

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


def test_an_error_names_its_file(folder: Path) -> None:
    (folder / "src" / "two.c").write_text('#include "number.h"\nint sum(void) { return missing; }')
    with pytest.raises(NotBuilt, match=r"refuses two\.c: .*two\.c:2:.*error.*missing"):
        built()
    assert not [*(folder / "cache" / "gputune" / "native").iterdir()]


def test_a_library_that_cannot_be_linked_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PARTS, "made_up", Part(PART.sources, PART.headers, ("-lmissing-here",)))
    with pytest.raises(NotBuilt, match=r"refuses to link made_up-\w+\.so: .*missing-here"):
        built()


def test_what_takes_a_while_says_so(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "gputune")
    built()
    assert not caplog.messages
    for number in range(8):
        (folder / "src" / f"more{number}.c").write_text(f"extern int more{number};")
    library = built()
    built()
    assert caplog.messages == [f"building {library} from 10 files with cc, once; this takes some seconds"]


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
    sources, headers = part.compiled(), part.included()
    assert sources
    for path in (*sources, *headers):
        named = re.findall(r'^#include "(.+)"', path.read_text(encoding="utf-8"), re.MULTILINE)
        assert {Path(each).name for each in named} <= {header.name for header in headers}, path


def test_every_source_of_c_belongs_to_a_part_or_a_program() -> None:
    known = {path for part in PARTS.values() for path in (*part.compiled(), *part.included())}
    found = {path for suffix in ("c", "h") for path in native.FOLDER.rglob(f"*.{suffix}")}
    agent = set((native.FOLDER / "agent").iterdir())
    assert {path.name for path in found - known - agent} == {"main.c"}
