"""Test that a context which requires a feature is refused by its name, and written and read once a reader knows it."""

import dataclasses
import struct
from pathlib import Path

import pytest

from gputune.core.errors import MalformedHeader, UnsupportedFormatVersion
from gputune.runtime.context import records
from gputune.runtime.context.format import open_context, read_header, write_context
from gputune.runtime.context.package import open_package
from gputune.runtime.context.packing import write_package
from gputune.runtime.context.records import Context


@pytest.fixture
def path(context: Context, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A context of a writer that knows two features, for another driver."""
    device = {**context.device, "driver_version": "new"}
    with monkeypatch.context() as later:
        later.setattr(records, "FEATURES", ("image", "sampler"))
        write_context(tmp_path / "requiring.bin", dataclasses.replace(context, device=device, requires=("sampler",)))
    return tmp_path / "requiring.bin"


def test_a_reader_refuses_a_feature_that_it_does_not_know(path: Path) -> None:
    for read in (read_header, open_context):
        with pytest.raises(UnsupportedFormatVersion) as found:
            read(path)
        assert str(found.value) == (
            f"{path}: it requires 'sampler', which this gputune does not know; use a newer gputune, or generate the "
            "context again"
        )


def test_a_reader_that_knows_the_feature_reads_it(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "FEATURES", ("sampler",))
    with open_context(path) as file:
        assert file.head[8] == 4
        assert file.header.requires == ("sampler",)
        assert file.header.to_dict()["requires"] == ["sampler"]


def test_version_3_requires_nothing(path: Path, context_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "requires" not in read_header(context_path).to_dict()
    monkeypatch.setattr(records, "FEATURES", ("sampler",))
    path.write_bytes(path.read_bytes()[:8] + struct.pack("<I", 3) + path.read_bytes()[12:])
    with pytest.raises(MalformedHeader, match="version 4, and no others, have packings or require features"):
        read_header(path)


def test_a_feature_without_a_name_is_not_written(context: Context, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFormatVersion, match="it requires 'sampler'"):
        write_context(tmp_path / "requiring.bin", dataclasses.replace(context, requires=("sampler",)))
    assert not any(tmp_path.iterdir())


def test_a_package_with_such_a_context_gives_its_others(
    path: Path, context_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as later:
        later.setattr(records, "FEATURES", ("sampler",))
        with open_context(path) as one, open_context(context_path) as other:
            write_package(tmp_path / "both.gtpkg", [one, other], ["new", "old"])
    with open_package(tmp_path / "both.gtpkg") as package:
        with pytest.raises(UnsupportedFormatVersion, match=r"both\.gtpkg: context 'new': it requires 'sampler'"):
            package.open(0)
        with package.open(1) as file:
            assert file.header.graphs
