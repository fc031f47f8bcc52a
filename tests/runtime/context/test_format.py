"""Test that a context file is read back as written, and that damaged or contradictory files are refused."""

import dataclasses
import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gputune.client.target.adb.bundle import write_bundle
from gputune.core.errors import (
    ChecksumMismatch,
    ContextError,
    MalformedHeader,
    NotAContext,
    Truncated,
    UnsupportedFormatVersion,
)
from gputune.runtime.context.format import open_context, read_header, write_context
from gputune.runtime.context.records import STATUS_BYTES, BufferRef, Context, ContextHeader
from tests.strategies.files import contexts as context_fuzzing

ONCE = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


def contents(path: Path) -> tuple[Any, ...]:
    """Everything that a context file says."""
    with open_context(path) as file:
        return file.header, file.binary(0), file.source(0), bytes(file.weights(0))


def test_what_is_written_is_read(context: Context, context_path: Path) -> None:
    header, binary, source, weights = contents(context_path)
    assert header == read_header(context_path)
    assert header.graphs == tuple(context.graphs)
    assert (binary, source) == (context.programs[0].binary, context.programs[0].source)
    assert weights == context.weights[0].tobytes()
    assert header.device.to_dict() == context.device
    assert (header.tier, header.computes) == ("null", False)
    assert (header.configuration, header.versions) == (context.configuration, context.versions)


def test_the_header_is_fit_for_json(context_path: Path) -> None:
    header = read_header(context_path)
    assert ContextHeader.from_dict(json.loads(json.dumps(header.to_dict()))) == header


def test_equal_sections_are_stored_once(context: Context, tmp_path: Path) -> None:
    twice = dataclasses.replace(context, programs=(context.programs[0],) * 2)
    write_context(tmp_path / "twice.bin", twice)
    header = read_header(tmp_path / "twice.bin")
    assert header.programs[0] == header.programs[1]
    assert [section.kind for section in header.sections] == ["binary", "source", "weights"]


def test_writing_replaces_a_file_whole_and_leaves_no_other(context: Context, context_path: Path) -> None:
    before = context_path.read_bytes()
    wrong = dataclasses.replace(context, graphs=())
    with pytest.raises(MalformedHeader):
        write_context(context_path, wrong)
    assert context_path.read_bytes() == before
    assert write_context(context_path, context) == len(before)
    assert [path.name for path in context_path.parent.iterdir()] == [context_path.name]


@ONCE
@given(share=st.floats(0, 1, exclude_max=True))
def test_a_truncated_file_is_refused(context_path: Path, share: float) -> None:
    whole = context_path.read_bytes()
    cut = context_path.with_name("cut.bin")
    cut.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises((Truncated, NotAContext)):
        read_header(cut)
    with pytest.raises((Truncated, NotAContext)):
        open_context(cut)


@ONCE
@given(share=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_a_flipped_byte_is_noticed_or_without_effect(context_path: Path, share: float, flip: int) -> None:
    damaged = bytearray(context_path.read_bytes())
    damaged[int(share * len(damaged))] ^= flip
    path = context_path.with_name("damaged.bin")
    path.write_bytes(damaged)
    try:
        assert contents(path) == contents(context_path)  # padding between sections
    except ContextError as error:
        assert str(path) in str(error)


def test_a_damaged_section_is_found_when_it_is_read_and_the_header_stays_readable(context_path: Path) -> None:
    damaged = bytearray(context_path.read_bytes())
    damaged[-1] ^= 1
    context_path.write_bytes(damaged)
    read_header(context_path)
    with open_context(context_path) as file:
        assert file.source(0)
        for _ in range(2):  # it is not forgotten
            with pytest.raises(ChecksumMismatch, match="weights section 2"):
                file.weights(0)


def test_other_files_and_versions_are_named(context_path: Path) -> None:
    whole = context_path.read_bytes()
    for content, error in (
        (b"", NotAContext),
        (b"\x7fELF" + whole[4:], NotAContext),
        *((context_fuzzing.of_version(whole, version), UnsupportedFormatVersion) for version in (1, 2, 5)),
        (whole[:12] + struct.pack("<I", 1 << 31) + whole[16:], MalformedHeader),
        (whole + b"\0", MalformedHeader),
    ):
        context_path.write_bytes(content)
        with pytest.raises(error):
            open_context(context_path)


def with_header(path: Path, fields: Any) -> None:
    """Puts another header with a right checksum in front of the sections."""
    path.write_bytes(context_fuzzing.with_header(path.read_bytes(), fields))


def at(*path: str | int) -> Callable[[Any, Any], None]:
    def put(fields: Any, value: Any) -> None:
        for step in path[:-1]:
            fields = fields[step]
        fields[path[-1]] = value

    return put


LAUNCH = ("graphs", 0, "launches", 0)
ARENA = (*LAUNCH, "arguments", 2)


def nested(levels: int) -> Any:
    """Lists in lists."""
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("put", "value", "words"),
    [
        (at("graphs"), [], "there must be one"),
        (at("graphs", 1, "name"), "main", "different names"),
        (at("tier"), 3, "header: tier: expected a text, got 3"),
        (at("computes"), 1, "computes: expected true or false, got 1"),
        (at("device"), {}, "device: DeviceIdentity lacks base_address_alignment_bytes"),
        (at("device", "base_address_alignment_bytes"), 3, "not a power of two"),
        (at("device", "compute_units"), True, "compute_units"),
        (at("versions"), {"x": 1}, r"versions\['x'\]: expected a text"),
        (at("programs", 0, "binary"), 1, "no binary section"),
        (at("weights"), [7], "section 7 is no weights section"),
        (at("sections", 2, "offset"), 1, "not aligned"),
        (at("sections", 1, "offset"), 0, "overlaps"),
        (at("sections", 2, "length"), -1, r"sections\[2\].length: value -1 is outside 0"),
        (at("graphs", 0, "inputs", 0, "dtype"), "float64", "'float64'"),
        (at("graphs", 0, "inputs", 0, "memory_type"), "dmabuf", "'dmabuf'"),
        (at("graphs", 0, "inputs", 0, "shape"), [0], "empty or too large"),
        (at("graphs", 0, "inputs", 0, "shape"), [2**62, 2**62], "empty or too large"),
        (at("graphs", 0, "inputs", 0, "shape"), [1] * 70, "shape: length 70 is outside 0..16"),
        (at("graphs", 0, "arena_bytes"), [0], "an arena is empty"),
        (at("graphs", 0, "arena_bytes"), [128], "lies outside"),
        (at(*LAUNCH, "program"), 1, "no program 1"),
        (at(*LAUNCH, "global_size"), [9], "does not divide"),
        (at(*LAUNCH, "local_size"), [0], "at least 1"),
        (at(*LAUNCH, "global_size"), [], "dimensions"),
        (at(*LAUNCH, "arguments", 3), 2**31, r"arguments\[3\]: value 2147483648 is outside"),
        (at(*LAUNCH, "arguments", 3), True, r"arguments\[3\]: expected "),
        (at(*ARENA, "kind"), "heap", "'heap'"),
        (at(*ARENA, "index"), 1, "lies outside"),
        (at(*ARENA, "offset"), 64, "has an offset"),
        (at(*ARENA, "offset"), 2**62, "lies outside"),
        (at(*ARENA, "nbytes"), 0, "lies outside"),
        (at(*LAUNCH, "arguments", 0, "nbytes"), 33, "lies outside"),
        (at(*ARENA, "kind"), "status", "not persistent reads counters or a status"),
        (at("graphs", 0, "counter_bytes"), 6, "6 bytes of counters"),
        (at("configuration"), {"a": [{"b": b"bytes"}]}, "configuration.*: expected a plain value, got bytes"),
        (at("configuration"), {"a": msgpack.Timestamp(1)}, "Timestamp"),
        (at("configuration"), {"a": {"b": float("nan")}}, "configuration: it has a number that is not finite"),
        (at("configuration"), {"a": float("inf")}, "configuration: it has a number that is not finite"),
        (at("configuration"), {"a": {"b": {b"c": 1}}}, "expected texts as keys"),
        (at("configuration"), {"a": nested(31)}, "more than 32 levels"),
        (at("graphs", 0, "name"), "main\0", "name: expected a text without a character 0"),
        (at("device", "name"), "a\0b", "device.name: expected a text without a character 0"),
        (at("tier"), nested(500), "tier: expected a text, got list"),
        (at("device", "name"), nested(500), "device.name: expected a text, got list"),
    ],
)
def test_a_header_that_contradicts_itself_is_refused(
    context_path: Path, put: Callable[[Any, Any], None], value: Any, words: str
) -> None:
    fields = read_header(context_path).to_dict()
    put(fields, value)
    with_header(context_path, fields)
    with pytest.raises(MalformedHeader, match=words):
        read_header(context_path)


def counting(fields: Any, nbytes: int) -> None:
    """Makes a persistent kernel of the launch, one that counts in so many bytes."""
    graph = fields["graphs"][0]
    counters = {"kind": "counters", "index": 0, "offset": 0, "nbytes": nbytes}
    graph["persistent"] = [{**graph["launches"][0], "arguments": [counters, *graph["launches"][0]["arguments"]]}]


def test_persistent_kernels_are_read_and_checked_as_launches_are(context_path: Path) -> None:
    fields = read_header(context_path).to_dict()
    counting(fields, 192)
    fields["graphs"][0]["counter_bytes"] = 192
    with_header(context_path, fields)
    graph = read_header(context_path).graphs[0]
    assert (graph.persistent[0].counts, graph.launches[0].counts) == (True, False)
    counting(fields, 193)
    with_header(context_path, fields)
    with pytest.raises(MalformedHeader, match=r"lies outside the counters buffers of \[192\] bytes"):
        read_header(context_path)


def test_kernels_that_yield_have_a_status_and_files_of_before_are_read(context_path: Path) -> None:
    fields = read_header(context_path).to_dict()
    counting(fields, 192)
    fields["graphs"][0]["counter_bytes"] = 192
    with_header(context_path, fields)
    (launch,) = read_header(context_path).graphs[0].persistent
    assert not launch.yields
    status = {"kind": "status", "index": 0, "offset": 0, "nbytes": STATUS_BYTES}
    fields["graphs"][0]["persistent"][0]["arguments"].insert(1, status)
    with_header(context_path, fields)
    assert read_header(context_path).graphs[0].persistent[0].yields
    status["nbytes"] = STATUS_BYTES + 1
    with_header(context_path, fields)
    with pytest.raises(MalformedHeader, match="outside the status buffers"):
        read_header(context_path)


def test_persistent_kernels_read_weights_that_launches_read(context_path: Path) -> None:
    fields = read_header(context_path).to_dict()
    counting(fields, 192)
    graph = fields["graphs"][1]  # of the first launch only
    graph["persistent"], graph["counter_bytes"] = fields["graphs"][0].pop("persistent"), 192
    with_header(context_path, fields)
    assert read_header(context_path).graphs[1].persistent
    graph["launches"][0]["arguments"] = [3]
    with_header(context_path, fields)
    with pytest.raises(MalformedHeader, match="a persistent launch reads weights that no plain launch reads"):
        read_header(context_path)


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
@pytest.mark.parametrize(("mask", "mode"), [(0o077, 0o600), (0o002, 0o664), (0o027, 0o640)])
def test_the_umask_is_respected(context: Context, tmp_path: Path, mask: int, mode: int) -> None:
    before = os.umask(mask)
    try:
        write_context(tmp_path / "a.bin", context)
        write_bundle(tmp_path / "bundle.pyz")
    finally:
        os.umask(before)
    assert (tmp_path / "a.bin").stat().st_mode & 0o777 == mode
    assert (tmp_path / "bundle.pyz").stat().st_mode & 0o777 == mode | (mode & 0o444) >> 2


def test_files_of_before_there_were_persistent_kernels_are_read(context_path: Path) -> None:
    before = read_header(context_path)
    fields = before.to_dict()
    for name in ("persistent", "counter_bytes"):
        del fields["graphs"][0][name]
    with_header(context_path, fields)
    assert read_header(context_path) == before


@pytest.mark.parametrize("header", [b"\xc1", b"", msgpack.packb([1]), b"\x81\x01\x02", b"\x91" * 5000])
def test_a_header_that_is_no_map_is_refused(context_path: Path, header: bytes) -> None:
    with_header(context_path, header)
    with pytest.raises(MalformedHeader):
        read_header(context_path)


LATER = {"packing", "requires", "models"}


@pytest.mark.parametrize("name", sorted({field.name for field in dataclasses.fields(ContextHeader)} - LATER))
def test_every_field_of_the_header_is_needed(context_path: Path, name: str) -> None:
    fields = read_header(context_path).to_dict()
    del fields[name]
    with_header(context_path, fields)
    with pytest.raises(MalformedHeader, match=f"ContextHeader lacks {name}"):
        read_header(context_path)


def test_a_contradiction_is_found_when_writing(context: Context, tmp_path: Path) -> None:
    (main, *others) = context.graphs
    outside = dataclasses.replace(main.launches[0], arguments=(BufferRef("weights", 0, 128, 64),))
    graphs = (dataclasses.replace(main, launches=(outside,)), *others)
    with pytest.raises(MalformedHeader, match="lies outside the weights buffers"):
        write_context(tmp_path / "wrong.bin", dataclasses.replace(context, graphs=graphs))
    assert list(tmp_path.iterdir()) == []


def test_large_weights_are_mapped_and_not_read_at_once(context: Context, tmp_path: Path) -> None:
    large = np.zeros(1 << 22, np.uint8)
    write_context(tmp_path / "large.bin", dataclasses.replace(context, weights=(*context.weights, large)))
    with open_context(tmp_path / "large.bin") as file:
        assert isinstance(file.weights(1), memoryview)
        assert file.weights(1).nbytes == large.nbytes
