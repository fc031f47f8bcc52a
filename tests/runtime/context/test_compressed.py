"""Test that programs and sources are compressed where that makes them smaller, and that older readers refuse them."""

import dataclasses
import hashlib
import random
from pathlib import Path

import pytest

from gputune.core.errors import ChecksumMismatch, UnsupportedFormatVersion
from gputune.runtime.context import records
from gputune.runtime.context.format import ContextFile, open_context, read_header, write_context
from gputune.runtime.context.package import open_package
from gputune.runtime.context.packing import split, write_package
from gputune.runtime.context.records import COMPRESSED, Context, ProgramRecord

TEXT = "__kernel void f(__global float *a) { a[get_global_id(0)] *= 2; }\n" * 40
NOISE = random.Random(73).randbytes(4000)


@pytest.fixture
def large(context: Context, tmp_path: Path) -> Path:
    """A context of three programs, two of which have the same source, and weights that could be compressed."""
    programs = [ProgramRecord(binary, TEXT, "") for binary in (bytes(9000), NOISE)]
    wanted = dataclasses.replace(context, programs=(*context.programs, *programs), weights=(bytes(640),))
    write_context(tmp_path / "large.bin", wanted)
    return tmp_path / "large.bin"


def contents(file: ContextFile) -> list[bytes]:
    return [bytes(file.section(place)) for place in range(len(file.header.sections))]


def test_what_gets_smaller_is_compressed_and_read_as_it_was(large: Path, context: Context) -> None:
    own = context.programs[0]
    with open_context(large) as file:
        assert contents(file) == [own.binary, own.source.encode(), bytes(9000), TEXT.encode(), NOISE, bytes(640)]
        assert (file.source(1), file.source(2), file.binary(2)) == (TEXT, TEXT, NOISE)
        inflated = [section.inflated for section in file.header.sections]
        assert inflated == [0, 0, 9000, len(TEXT), 0, 0]
        for place, section in enumerate(file.header.sections):
            stored = file.stored(place)
            assert (stored.nbytes, hashlib.sha256(stored).hexdigest()) == (section.length, section.sha256)
            assert not section.inflated or section.length < section.inflated / 9
        assert (file.head[8], file.header.requires) == (4, (COMPRESSED,))


def test_a_context_of_small_programs_is_as_before(context_path: Path) -> None:
    with open_context(context_path) as file:
        assert (file.head[8], file.header.requires) == (3, ())
        assert {*file.header.to_dict()["sections"][0]} == {"kind", "offset", "length", "sha256"}


def test_an_older_reader_refuses_it_by_name(large: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "FEATURES", tuple(name for name in records.FEATURES if name != COMPRESSED))
    with pytest.raises(UnsupportedFormatVersion, match="it requires 'compressed_sections', which this gputune does"):
        read_header(large)


def test_a_damaged_section_is_found_before_it_is_inflated(large: Path) -> None:
    with open_context(large) as file:
        (place,) = (at for at, one in enumerate(file.header.sections) if one.inflated == 9000)
        at = large.read_bytes().index(bytes(file.stored(place)))
    whole = bytearray(large.read_bytes())
    whole[at + 3] ^= 1
    large.write_bytes(whole)
    with open_context(large) as file, pytest.raises(ChecksumMismatch, match=f"binary section {place} is damaged"):
        file.binary(1)


def test_a_package_has_the_same_bytes(large: Path, context_path: Path, context: Context, tmp_path: Path) -> None:
    other = {**context.device, "driver_version": "new"}
    write_context(context_path, dataclasses.replace(context, device=other))
    with open_context(large) as one, open_context(context_path) as two:
        write_package(tmp_path / "both.gtpkg", [one, two], ["large", "small"])
        wanted = contents(one)
    (folder := tmp_path / "apart").mkdir()
    with open_package(tmp_path / "both.gtpkg") as package:
        assert contents(package.open(0)) == wanted
        paths = split(package, folder)
    assert [path.read_bytes() for path in paths] == [large.read_bytes(), context_path.read_bytes()]
