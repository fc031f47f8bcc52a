"""Test that the wheel for a kind of machine is the wheel for all with libraries that its Python code finds."""

import base64
import hashlib
import os
import shutil
import stat
import zipfile
from pathlib import Path

import pytest

import native_wheels
from gputune.runtime.native import building
from gputune.runtime.native.building import PARTS, Part, native_part

SOURCE = '__attribute__((visibility("default"))) int number(void) { return 42; }'
ABOUT = "gputune-0.1.0.dist-info"
KIND = "manylinux_2_28_x86_64"

pytestmark = pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")


@pytest.fixture
def zig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Stand in for ziglang: this machine's compiler, which writes down for what it is asked and where it may keep."""
    monkeypatch.setitem(PARTS, "runtime", Part(("src/*.c",)))
    monkeypatch.setitem(PARTS, "onnxruntime", Part(("src/*.c", "onnxruntime/*.c")))
    program = tmp_path / "zig"
    asked = f'echo "$1 $2 $3 $ZIG_GLOBAL_CACHE_DIR" >> {tmp_path}/asked'
    program.write_text(f'#!/bin/sh\n{asked}; shift 3; exec cc "$@"\n')
    program.chmod(0o755)
    return str(program)


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """Write a wheel for all machines."""
    files = {
        "gputune/runtime/native/src/one.c": SOURCE,
        "gputune/runtime/native/onnxruntime/two.c": "extern int two;",
        f"{ABOUT}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n\n",
    }
    lines = [f"{name},{native_wheels._digest(text.encode())},{len(text)}" for name, text in files.items()]
    files[f"{ABOUT}/RECORD"] = "".join(f"{line}\n" for line in [*lines, f"{ABOUT}/RECORD,,"])
    path = tmp_path / "dist" / "gputune-0.1.0-py3-none-any.whl"
    path.parent.mkdir()
    with zipfile.ZipFile(path, "w") as made:
        for name, text in files.items():
            made.writestr(zipfile.ZipInfo(name, (2026, 1, 2, 3, 4, 6)), text)
    return path


def test_it_has_libraries_that_need_no_compiler(
    wheel: Path, zig: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = native_wheels.write_wheel(wheel, KIND, [zig], tmp_path / "work")
    assert made == wheel.with_name(f"gputune-0.1.0-py3-none-{KIND}.whl")
    asked = (tmp_path / "asked").read_text().splitlines()
    assert {*asked} == {f"cc -target x86_64-linux-gnu.2.28 {tmp_path / 'work' / 'zig'}"} and len(asked) == 5
    assert "ZIG_GLOBAL_CACHE_DIR" not in os.environ
    with zipfile.ZipFile(made) as archive:
        archive.extractall(tmp_path / "installed")
    monkeypatch.setattr(building, "FOLDER", tmp_path / "installed" / "gputune" / "runtime" / "native")
    for name in ("PATH", "CC", "GPUTUNE_CC"):
        monkeypatch.setenv(name, "")
    for name in ("runtime", "onnxruntime"):
        native_part.cache_clear()
        assert native_part(name).parent == tmp_path / "installed" / "gputune" / "runtime" / "native" / "lib"
    native_part.cache_clear()


def test_its_metadata_is_right_and_its_bytes_are_the_same_each_time(wheel: Path, zig: str, tmp_path: Path) -> None:
    contents = []
    for name in ("first", "second"):
        made = native_wheels.write_wheel(wheel, KIND, [zig], tmp_path / name)
        contents.append(made.read_bytes())
    assert contents[0] == contents[1]
    with zipfile.ZipFile(made) as archive:
        entries = {entry.filename: entry for entry in archive.infolist()}
        about = archive.read(f"{ABOUT}/WHEEL").decode().splitlines()
        record = [line.split(",") for line in archive.read(f"{ABOUT}/RECORD").decode().splitlines()]
        read = {name: archive.read(name) for name in entries}
    assert about == ["Wheel-Version: 1.0", "Root-Is-Purelib: false", f"Tag: py3-none-{KIND}", ""]
    assert {entry.date_time for entry in entries.values()} == {(2026, 1, 2, 3, 4, 6)}
    assert sorted(name for name, *_ in record) == sorted(entries) and len(entries) == 6
    for name, digest, nbytes in record[:-1]:
        wanted = base64.urlsafe_b64encode(hashlib.sha256(read[name]).digest()).rstrip(b"=").decode()
        assert (digest, int(nbytes)) == (f"sha256={wanted}", len(read[name])), name
    assert record[-1] == [f"{ABOUT}/RECORD", "", ""]
    libraries = [entry for name, entry in entries.items() if name.endswith(".so")]
    assert [bool((entry.external_attr >> 16) & stat.S_IXUSR) for entry in libraries] == [True, True]
