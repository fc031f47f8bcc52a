"""Test that both readers read golden files alike, and refuse changed files with the same name of error."""

import itertools
import os
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgpack
import pytest

import c_tables
from gputune.core.ownership import TRUSTED_FOLDERS, untrusted
from gputune.runtime.context import records
from stress.fuzz.cases import chance_of
from stress.native import files
from stress.native.reading import DUMP, SOURCES, NativeReader, Reading, read_by_python
from tests.native.compiling import BUILD, OPTIMISED, compiled, sanitizers
from tests.native.refusals import Made, refusals
from tests.strategies.files import contexts as context_fuzzing
from tests.strategies.files.contexts import head_of, with_head

CASES = 400
NAMES = {"ok", "truncated", "checksum_mismatch", "malformed_header", "malformed_package", "malformed_ep_context"}


def new_reader(by_bytes: bool = False) -> NativeReader:
    return NativeReader(compiled("dump", (DUMP, *SOURCES), (*OPTIMISED, *sanitizers())), by_bytes)


@pytest.fixture(scope="module")
def reader(c_compiler: str) -> Iterator[NativeReader]:
    with new_reader() as opened:
        yield opened


@pytest.fixture(scope="module")
def bytes_reader(c_compiler: str) -> Iterator[NativeReader]:
    with new_reader(by_bytes=True) as opened:
        yield opened


def test_golden_files_are_read_alike(reader: NativeReader, tmp_path: Path) -> None:
    for path in files.originals(tmp_path):
        found = reader.read(path)
        assert found.error == "ok" and found.contexts, found.message
        assert found == read_by_python(path)


@pytest.mark.parametrize(("what", "name", "make"), [pytest.param(*one, id=one[0]) for one in refusals()])
def test_each_is_refused_by_its_name_in_both_languages(
    reader: NativeReader, tmp_path: Path, what: str, name: str, make: Made
) -> None:
    files.originals(tmp_path)  # which ONNX files name
    path = tmp_path / "home" / what
    make(path)
    by_native, by_python = reader.read(path), read_by_python(path)
    assert (by_native.error, by_python.error) == (name, name), (by_native.message, by_python.message)
    assert by_native == by_python
    assert name == "ok" or str(path.parent) in by_native.message
    if "feature that is not known" in what:
        for message in (by_native.message, by_python.message):
            assert "it requires 'sampler', which this" in message and "generate the context again" in message


@pytest.mark.parametrize("suffix", [".bin", ".onnx"])
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it is empty (0 bytes): copy or download it again"),
        (b"version https://git-lfs.github.com/spec/v1\n", "it is a Git LFS pointer to the file: run `git lfs pull`"),
        (b"\n<!DOCTYPE html>", "it is a web page (HTML or XML): the download has failed"),
        (b"<HTML>", "it is a web page (HTML or XML): the download has failed"),
        (b"<?xml version='1.0'?>", "it is a web page (HTML or XML): the download has failed"),
        (b"PK\3\4" + bytes(9), "it is an archive: unpack it"),
        (b"\x1f\x8b\x08" + bytes(9), "it is an archive: unpack it"),
        (b"\x08\x08", "this is an ONNX file and no context binary"),
        (files.compact()[:-1], "it is cut short: copy it again, or make it again"),
        (files.packed()[:-1], "it is cut short: copy it again, or make it again"),
        (files.compact()[:90], "it is cut short: copy it again, or make it again"),
    ],
)
def test_another_file_under_the_name_is_called_what_it_is(
    reader: NativeReader, tmp_path: Path, content: bytes, words: str, suffix: str
) -> None:
    path = tmp_path / f"a{suffix}"
    path.write_bytes(content)
    for read in (reader.read(path), read_by_python(path)):
        assert words in read.message or (suffix == ".onnx" and content.startswith((b"\x08", b"GPUT"))), read.message


def in_memory(reading: Reading, whole: bytes) -> Reading:
    """Return what is to be read of a file's bytes: the same as of the file, as far as an ONNX file needs no folder and
    can be told by its bytes."""
    if not whole.startswith((b"GPUT", b"\x08")):
        return Reading("not_a_context")
    named = whole.startswith(b"\x08") and b"context.bin" in whole
    return Reading("malformed_ep_context") if named or b"inside" in whole else reading


def test_bytes_are_read_as_files_are(reader: NativeReader, bytes_reader: NativeReader, tmp_path: Path) -> None:
    ended: Counter[str] = Counter()
    paths = files.originals(tmp_path)
    for what, _, make in refusals():
        make(tmp_path / "home" / what)
        paths.append(tmp_path / "home" / what)
    for path in (path for path in paths if path.is_file()):
        found = bytes_reader.read(path)
        assert found == in_memory(reader.read(path), path.read_bytes()), (path.name, found.message)
        assert found.error == "ok" or found.message.startswith(("context in memory: ", "ONNX file in memory: "))
        ended[found.error] += 1
    assert ended.keys() >= NAMES


def test_bytes_that_are_cut_short_are_refused(bytes_reader: NativeReader, tmp_path: Path) -> None:
    for whole in (files.compact(), files.packed()):
        for nbytes in (*range(200), *range(200, len(whole), 97), len(whole) - 1):
            (tmp_path / "cut").write_bytes(whole[:nbytes])
            found = bytes_reader.read(tmp_path / "cut")
            names = {"truncated"} if nbytes >= 8 else {"truncated", "not_a_context"}  # 8: its first word
            assert found.error in names, (nbytes, found.message)


def test_a_path_in_an_onnx_file_in_memory_leads_to_no_folder(bytes_reader: NativeReader, tmp_path: Path) -> None:
    (path,) = (path for path in files.originals(tmp_path) if path.name == "1.onnx")
    found = bytes_reader.read(path)
    assert found.error == "malformed_ep_context"
    assert "'context.bin' names a file, but the ONNX file is in memory, without a folder: embed" in found.message


def test_of_a_key_that_is_there_twice_the_last_one_counts(reader: NativeReader, tmp_path: Path) -> None:
    (make,) = (make for what, _, make in refusals() if what == "a key that is there twice.bin")
    make(tmp_path / "twice.bin")
    for found in (reader.read(tmp_path / "twice.bin"), read_by_python(tmp_path / "twice.bin")):
        assert found.contexts[0]["tier"] == "the last one"


def test_a_feature_is_required_of_both_readers_once_it_has_a_name(
    c_compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(records, "FEATURES", ("image", "sampler"))
    monkeypatch.setattr(c_tables, "NAMES", {**c_tables.NAMES, "FEATURES": records.FEATURES})
    header = {**msgpack.unpackb(head_of(files.rich())[1]), "requires": ["sampler"]}
    whole = with_head(files.rich(), head_of(files.rich())[0], header)
    path, tables = tmp_path / "requiring.bin", BUILD / "requiring" / "tables.c"  # compiled once for all runs
    tables.parent.mkdir(parents=True, exist_ok=True)
    tables.write_text(c_tables.text(), encoding="utf-8")
    sources = (DUMP, tables, *(one for one in SOURCES if one.name != tables.name))
    with NativeReader(compiled("dump", sources, (*OPTIMISED, *sanitizers()))) as reader:
        for version, name in ((3, "malformed_header"), (4, "ok")):
            path.write_bytes(whole[:8] + struct.pack("<I", version) + whole[12:])
            found = reader.read(path)
            assert (found.error, found) == (name, read_by_python(path)), found.message
    assert found.contexts[0]["requires"] == ["sampler"]


@pytest.mark.slow
def test_changed_files_are_refused_with_the_same_name_or_read_alike(reader: NativeReader, tmp_path: Path) -> None:
    files.originals(tmp_path)
    ended: Counter[str] = Counter()
    for number in range(CASES):
        path = files.changed(tmp_path, chance_of(0, number))
        found = reader.read(path)
        assert found == read_by_python(path), f"case {number}: {found.message}"
        assert found.error == "ok" or (str(path) in found.message and not set(found.message) & {"\n", "\x1b"})
        ended[found.error] += 1
    assert ended.keys() >= NAMES


@pytest.mark.slow
@pytest.mark.parametrize("step", [4, pytest.param(1, marks=pytest.mark.night)])
def test_each_field_of_a_header_is_checked_as_python_does(reader: NativeReader, tmp_path: Path, step: int) -> None:
    path = tmp_path / "exchanged.bin"
    ended: Counter[str] = Counter()
    for what, content in itertools.islice(files.exchanged(files.compact()), 0, None, step):
        path.write_bytes(content)
        found = reader.read(path)
        assert found == read_by_python(path), f"{what}: {found.message}"
        ended[found.error] += 1
    assert ended["malformed_header"] > 800 // step and ended["ok"] > 20 // step


def test_the_fuzzers_call_what_the_reader_has(c_compiler: str) -> None:
    for name in ("fuzzer", "inflater"):
        compiled(f"{name}.o", (DUMP.with_name(f"{name}.c"),), ("-c",))


@pytest.mark.parametrize("version", [1, 2])
def test_older_formats_are_refused_by_name(reader: NativeReader, tmp_path: Path, version: int) -> None:
    path = tmp_path / "old.bin"
    path.write_bytes(context_fuzzing.of_version(context_fuzzing.original(), version))
    found = reader.read(path)
    assert found.error == read_by_python(path).error == "unsupported_format_version"
    assert f"format version {version}, this runtime reads 3" in found.message


@pytest.mark.parametrize("content", [b"\x7fELF", b"GPUTUNE\1" + bytes(200), b"GPUTPKG"])
def test_other_files_are_no_contexts(reader: NativeReader, tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.bin"
    path.write_bytes(content)
    assert reader.read(path).error == read_by_python(path).error == "not_a_context"


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
@pytest.mark.parametrize("what", ["file", "folder", "sticky", "group", "own group", "owner", "nothing"])
def test_files_that_another_user_could_change_are_refused_as_python_does(
    c_compiler: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "context.bin"
    path.write_bytes(context_fuzzing.original())
    if what in ("group", "own group", "owner") and os.geteuid() != 0:
        pytest.skip("only root gives files away")
    if what == "file":
        path.chmod(0o666)
    elif what in ("folder", "sticky"):
        folder.chmod(0o777 if what == "folder" else 0o1777)
    elif what in ("group", "own group"):
        os.chown(path, -1, 47110 if what == "group" else os.getegid())
        path.chmod(0o664)
    elif what == "owner":
        os.chown(path, 47110, 47110)
    with new_reader() as reader:
        found = reader.read(path)
    assert found.error == ("untrusted_file" if untrusted(path) else "ok"), found.message
    assert (found.error == "ok") == (what in ("sticky", "own group", "nothing"))
    monkeypatch.setenv(TRUSTED_FOLDERS, f"/missing{os.pathsep}{folder}")
    with new_reader() as reader:
        assert reader.read(path).error == "ok"


def test_a_context_beside_an_onnx_file_must_be_trusted_too(reader: NativeReader, tmp_path: Path) -> None:
    (path,) = (path for path in files.originals(tmp_path) if path.name == "1.onnx")
    (path.parent / "context.bin").chmod(0o666)
    assert reader.read(path).error == "untrusted_file"
