"""Test which library is taken: the wheel's, a named one, or a compiled one, and what is said where there is none."""

import os
import shutil
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from gputune.runtime.native import building
from gputune.runtime.native.building import (
    PARTS,
    REMEDY,
    REMEDY_OF_BUNDLES,
    NotBuilt,
    Part,
    native_part,
    runtime_library,
    why_no_runtime,
)
from tests.native.compiling import library

SOURCE = """
#define SHOWN __attribute__((visibility("default")))
#ifdef GPUTUNE_SOURCES
SHOWN const char *gputune_version(void) { return "0.1.0+" GPUTUNE_SOURCES; }
#endif
"""
PART = Part(("src/*.c",), headers=("include",))

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


def forget() -> None:
    for function in (native_part, runtime_library, why_no_runtime):
        function.cache_clear()


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for native/, in which the runtime is one file, and an empty cache."""
    tmp_path.chmod(0o700)
    for name in ("GPUTUNE_CC", "CC", "GPUTUNE_RUNTIME_LIBRARY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(building, "FOLDER", tmp_path / "native")
    monkeypatch.setitem(PARTS, "runtime", PART)
    (tmp_path / "native" / "src").mkdir(parents=True)
    (tmp_path / "native" / "lib").mkdir()
    (tmp_path / "native" / "src" / "one.c").write_text(SOURCE)
    forget()
    yield tmp_path
    forget()


def of_a_wheel(folder: Path) -> Path:
    """Build what a wheel has."""
    files = PART.files()
    return building.build(PART, files, ["cc"], folder / "native" / "lib", f"runtime-{PART.digest(files)}-")


def no_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(folder / "nothing"))
    monkeypatch.setattr(building, "_ZIG", "no_such_package")


def test_a_wheels_library_needs_no_compiler(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = of_a_wheel(folder)
    no_compiler(folder, monkeypatch)
    assert native_part("runtime") == runtime_library() == library
    assert why_no_runtime() == ""
    assert not (folder / "cache").exists()


def test_a_library_can_be_built_into_the_package(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is found later without a compiler, and every user can read it."""
    monkeypatch.setattr(building, "PARTS", {"runtime": PART})
    assert building.main() == 0
    no_compiler(folder, monkeypatch)
    found = runtime_library()
    assert found.parent == folder / "native" / "lib"
    assert found.stat().st_mode & 0o777 == 0o755
    assert building.main() == 1  # now without a compiler


@pytest.mark.parametrize("damage", ["another content", "other sources", "another part"])
def test_a_wheels_library_that_is_another_is_not_taken(
    folder: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    library = of_a_wheel(folder)
    if damage == "another content":
        library.write_bytes(library.read_bytes()[:-1])
    elif damage == "other sources":
        (folder / "native" / "src" / "one.c").write_text(SOURCE + "extern int more;")
    else:
        library.rename(library.with_name(library.name.replace("runtime", "onnxruntime")))
    compiled = runtime_library()
    assert compiled.parent == folder / "cache" / "gputune" / "native"
    forget()
    shutil.rmtree(folder / "cache")
    no_compiler(folder, monkeypatch)
    with pytest.raises(NotBuilt, match="there is no C compiler"):
        runtime_library()


def test_it_has_the_same_bytes_wherever_it_is_built(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = of_a_wheel(folder)
    content = library.read_bytes()
    library.rename(folder / "old.so")
    monkeypatch.chdir("/")
    again = of_a_wheel(folder)
    assert (again, again.read_bytes()) == (library, content)


def test_sources_may_lie_in_an_archive(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the bundle for devices."""
    from_folder = native_part("runtime")
    with zipfile.ZipFile(folder / "bundle.pyz", "w") as archive:
        archive.write(folder / "native" / "src" / "one.c", "gputune/runtime/native/src/one.c")
    monkeypatch.setattr(building, "FOLDER", zipfile.Path(folder / "bundle.pyz", "gputune/runtime/native/"))
    forget()
    assert native_part("runtime") == from_folder


def test_a_compiler_of_pypi_will_do(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = folder / "packages" / "ziglang"
    package.mkdir(parents=True)
    (package / "__main__.py").write_text(
        f"import os, sys\nassert sys.argv.pop(1) == 'cc'\n"
        f"os.execve({shutil.which('cc')!r}, ['cc', *sys.argv[1:]], {{'PATH': {os.environ['PATH']!r}}})\n"
    )
    monkeypatch.setenv("PATH", str(folder / "nothing"))
    monkeypatch.setenv("PYTHONPATH", str(package.parent))
    monkeypatch.syspath_prepend(str(package.parent))
    assert runtime_library().is_file()


def test_a_compiler_may_be_named_from_here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "mine").symlink_to(shutil.which("cc") or "")
    monkeypatch.chdir(folder)
    monkeypatch.setenv("GPUTUNE_CC", "./mine -O0")
    assert runtime_library().is_file()


def version_of_another(folder: Path) -> Path:
    (folder / "other.c").write_text(SOURCE)
    command = ["cc", "-shared", "-fPIC", '-DGPUTUNE_SOURCES="0123"', "other.c", "-o", "other.so"]
    building._run(command, "other.c", folder)
    return folder / "other.so"


def without_a_version(folder: Path) -> Path:
    (folder / "other.c").write_text(SOURCE)
    building._run(["cc", "-shared", "-fPIC", "other.c", "-o", "other.so"], "other.c", folder)
    return folder / "other.so"


def no_library(folder: Path) -> Path:
    (folder / "other.so").write_text("no library")
    return folder / "other.so"


def open_to_all(folder: Path) -> Path:
    path = without_a_version(folder)
    path.chmod(0o666)
    return path


NAMED: Mapping[str, tuple[Callable[[Path], Path], str]] = {
    "of other sources": (
        version_of_another,
        r"/other.so is of another gputune \(0.1.0\+0123\) than this Python code \(sources \w{16}\)$",
    ),
    "of an older gputune": (
        without_a_version,
        r"/other.so is of another gputune \(an older version\) than this Python code \(sources \w{16}\)$",
    ),
    "no library": (no_library, r"/other.so cannot be loaded: "),
    "missing": (
        lambda folder: folder / "other.so",
        r"GPUTUNE_RUNTIME_LIBRARY: .*/other.so cannot be used: No such file",
    ),
    "open to all": (open_to_all, r"GPUTUNE_RUNTIME_LIBRARY: .*/other.so can be written by every user"),
}


@pytest.mark.parametrize(("make", "words"), NAMED.values(), ids=NAMED)
def test_a_named_library_is_refused_by_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch, make: Callable[[Path], Path], words: str
) -> None:
    monkeypatch.setenv("GPUTUNE_RUNTIME_LIBRARY", str(make(folder)))
    with pytest.raises(NotBuilt, match=words) as refused:
        runtime_library()
    assert why_no_runtime() == f"the C runtime is not here: {refused.value}; {REMEDY}"


def test_a_named_library_of_these_sources_is_taken(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = of_a_wheel(folder).rename(folder / "any.so")
    monkeypatch.setenv("GPUTUNE_RUNTIME_LIBRARY", str(library))
    no_compiler(folder, monkeypatch)
    assert runtime_library() == library


def test_without_a_library_there_is_one_line_with_the_remedy(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    no_compiler(folder, monkeypatch)
    assert why_no_runtime() == (
        "the C runtime is not here: there is no C compiler (cc, gcc, clang), and GPUTUNE_CC names none; install a C "
        "compiler, such as Debian's gcc or PyPI's ziglang, or the wheel of gputune for this kind of machine"
    )


def test_without_a_library_a_bundle_names_the_agent(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with zipfile.ZipFile(folder / "bundle.pyz", "w") as archive:
        archive.writestr("native/src/one.c", SOURCE)
    monkeypatch.setattr(building, "FOLDER", zipfile.Path(folder / "bundle.pyz", "native/"))
    monkeypatch.setenv("GPUTUNE_CC", "none")
    assert why_no_runtime() == f"the C runtime is not here: GPUTUNE_CC is 'none'; {REMEDY_OF_BUNDLES}"


def test_a_wheels_library_is_not_taken_by_who_wants_none(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_a_wheel(folder)
    monkeypatch.setenv("GPUTUNE_CC", "none")
    assert why_no_runtime() == f"the C runtime is not here: GPUTUNE_CC is 'none'; {REMEDY}"


def test_the_real_runtime_says_its_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the tests compile it; the part itself is the same, but for options."""
    monkeypatch.undo()
    monkeypatch.setenv("GPUTUNE_RUNTIME_LIBRARY", str(library()))
    monkeypatch.setenv("GPUTUNE_TRUSTED_FOLDERS", str(library().parent))
    forget()
    assert runtime_library() == library()
