"""Test the form of compact contexts: packings are read, checked as strictly as graphs are, and have a version."""

import dataclasses
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputune.core.errors import ChecksumMismatch, MalformedHeader, UnsupportedFormatVersion, WrongDevice
from gputune.core.statuses import ContextVerdict
from gputune.runtime.backends import Backend, open_backend
from gputune.runtime.context.format import open_context, read_header, write_context
from gputune.runtime.context.package import open_package
from gputune.runtime.context.packing import write_package
from gputune.runtime.context.records import BufferRef, Context, GraphRecord
from gputune.runtime.devices.discovery import NULL_REPORT
from gputune.runtime.loading.executors import executor_on
from gputune.runtime.loading.verdict import verdict_on
from tests.runtime.context.test_format import at
from tests.strategies.files import contexts as context_fuzzing
from tests.strategies.files.contexts import head_of, need_of, with_head

PACKED_BYTES = 512


@pytest.fixture
def compact(context: Context) -> Context:
    """The small context, whose second launch reads what is packed from a section of its own."""
    (main, other) = context.graphs
    first, second = main.launches
    packed = dataclasses.replace(
        second, arguments=(second.arguments[0], BufferRef("packed", 0, 128, 32), *second.arguments[2:])
    )
    pack = dataclasses.replace(
        first, operation="pack", arguments=(BufferRef("weights", 1, 0, 64), BufferRef("arena", 0, 0, PACKED_BYTES), 3)
    )
    packing = GraphRecord("0" * 64, (), (), (pack,), (PACKED_BYTES,))
    return dataclasses.replace(
        context,
        graphs=(dataclasses.replace(main, launches=(first, packed)), other),
        weights=(*context.weights, np.arange(16, dtype=np.float32)),
        packing=(packing,),
    )


@pytest.fixture
def path(compact: Context, tmp_path: Path) -> Path:
    write_context(tmp_path / "compact.bin", compact)
    return tmp_path / "compact.bin"


@pytest.fixture
def backend() -> Backend:
    return open_backend(NULL_REPORT)


def version(path: Path) -> int:
    return int(struct.unpack_from("<I", path.read_bytes(), 8)[0])


def change(path: Path, put: Callable[[Any, Any], None], value: Any) -> None:
    fields = read_header(path).to_dict()
    put(fields, value)
    whole = path.read_bytes()
    path.write_bytes(with_head(whole, need_of(fields, head_of(whole)[0]), fields))


def test_it_is_read_as_it_was_written_and_runs(compact: Context, path: Path, backend: Backend) -> None:
    assert version(path) == 4
    with open_context(path) as file:
        assert file.header.packing == tuple(compact.packing)
        assert file.header.graphs[0].constants("packed") == [0]
        for graph in ("main", "other"):
            with executor_on(backend, file, graph, strict=False) as executor:
                assert executor.run({"x": np.ones((2, 4), np.float32)})["y"].shape == (8,)


def test_a_context_without_packings_is_as_it_was_before_there_were_any(context_path: Path) -> None:
    assert version(context_path) == 3
    assert "packing" not in read_header(context_path).to_dict()


@pytest.mark.parametrize("number", [1, 2, 5])
def test_other_versions_are_refused(path: Path, number: int) -> None:
    path.write_bytes(context_fuzzing.of_version(path.read_bytes(), number))
    with pytest.raises(UnsupportedFormatVersion, match=f"format version {number}, this gputune reads 3 and 4"):
        read_header(path)


def test_version_3_has_no_packings(path: Path) -> None:
    path.write_bytes(context_fuzzing.of_version(path.read_bytes(), 3))
    with pytest.raises(MalformedHeader, match="version 4, and no others, have packings or require"):
        read_header(path)


def test_that_version_has_packings(context_path: Path) -> None:
    context_path.write_bytes(context_fuzzing.of_version(context_path.read_bytes(), 4))
    with pytest.raises(MalformedHeader, match="version 4, and no others, have packings or require"):
        read_header(context_path)


PACKING = ("packing", 0)
PACK = (*PACKING, "launches", 0)
READS = ("graphs", 0, "launches", 1, "arguments", 1)


@pytest.mark.parametrize(
    ("put", "value", "words"),
    [
        (at("packing"), 3, "header: packing: expected a list, got 3"),
        (at(*PACKING), 3, r"packing\[0\]: expected a GraphRecord, got 3"),
        (at(*PACKING, "arena_bytes"), [], "lies outside the packed buffers|lies outside the arena buffers"),
        (at(*PACKING, "arena_bytes"), [0], "an arena is empty"),
        (at(*PACKING, "arena_bytes"), [PACKED_BYTES - 1], "lies outside the arena buffers"),
        (at(*PACKING, "arena_bound_bytes"), PACKED_BYTES + 1, "below their bound"),
        (
            at(*PACKING, "outputs"),
            [{"name": "y", "shape": [1], "dtype": "int8", "memory_type": "raw"}],
            "must have one arena, and nothing",
        ),
        (
            at(*PACKING, "inputs"),
            [{"name": "x", "shape": [1], "dtype": "int8", "memory_type": "raw"}],
            "must have one arena, and nothing",
        ),
        (at(*PACKING, "counter_bytes"), 4, "must have one arena, and nothing"),
        (at(*PACK, "program"), 9, "no program 9"),
        (at(*PACK, "global_size"), [9], "does not divide"),
        (at(*PACK, "arguments", 0, "nbytes"), 65, "lies outside the weights buffers"),
        (at(*PACK, "arguments", 0, "index"), 2, "lies outside the weights buffers"),
        (at(*PACK, "arguments", 0), {"kind": "packed", "index": 0, "offset": 0, "nbytes": 64}, "reads packed weights"),
        (at(*PACK, "arguments", 0, "kind"), "input", "lies outside the input buffers"),
        (at(*PACK, "arguments", 0, "kind"), "status", "reads counters or a status"),
        (at(*READS, "index"), 1, "lies outside the packed buffers"),
        (at(*READS, "offset"), 64, "offset that a packed buffer must not have"),
        (at(*READS, "nbytes"), PACKED_BYTES, "lies outside the packed buffers"),
    ],
)
def test_a_packing_that_contradicts_itself_is_refused(
    path: Path, put: Callable[[Any, Any], None], value: Any, words: str
) -> None:
    change(path, put, value)
    with pytest.raises(MalformedHeader, match=words):
        read_header(path)


def test_persistent_kernels_read_nothing_packed_that_no_launch_reads(path: Path) -> None:
    fields = read_header(path).to_dict()
    (first, second), other = fields["graphs"][0]["launches"], fields["graphs"][1]
    change(path, at("graphs", 0, "persistent"), [second])
    assert read_header(path).graphs[0].persistent
    other["persistent"] = [{**second, "arguments": [second["arguments"][1]]}]
    change(path, at("graphs", 1), other)
    with pytest.raises(MalformedHeader, match="a persistent launch reads weights that no plain launch reads"):
        read_header(path)
    assert first["arguments"]


def test_a_damaged_source_is_found_when_it_is_packed(path: Path, backend: Backend) -> None:
    whole = bytearray(path.read_bytes())
    whole[-1] ^= 1
    path.write_bytes(whole)
    with open_context(path) as file:
        executor_on(backend, file, "other", strict=False).close()
        with pytest.raises(ChecksumMismatch, match="weights section 3 is damaged"):
            executor_on(backend, file, "main", strict=False)


def test_what_a_device_cannot_pack_it_cannot_run(path: Path, backend: Backend) -> None:
    change(path, at(*PACKING, "arena_bytes"), [1 << 40])
    backend.identity = dataclasses.replace(backend.identity, max_allocation_bytes=1 << 30)
    with open_context(path) as file:
        verdict, reason = verdict_on(file.header, file.header.graphs[:1], backend.identity, False)
        assert verdict is ContextVerdict.UNSUPPORTED
        assert f"a buffer of {1 << 40} bytes" in reason
        with pytest.raises(WrongDevice):
            executor_on(backend, file, "main", strict=False)
        executor_on(backend, file, "other", strict=False).close()


def test_contexts_of_a_package_share_sources(path: Path, tmp_path: Path) -> None:
    second = tmp_path / "second.bin"
    second.write_bytes(path.read_bytes())
    change(second, at("device", "driver_version"), "another")
    with open_context(path) as one, open_context(second) as other:
        write_package(tmp_path / "both.gtpkg", [one, other])
    with open_package(tmp_path / "both.gtpkg") as package:
        assert sum(section.kind == "weights" for section in package.index.sections) == 2
        with package.open(1) as file:
            assert file.header.packing and bytes(file.content) == second.read_bytes()
