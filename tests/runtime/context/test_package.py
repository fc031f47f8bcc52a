"""Test that a package holds contexts of several devices with each section once, and restores them byte by byte."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gputune.core.errors import ChecksumMismatch, ContextError, MalformedPackage, NotAContext
from gputune.runtime.context.format import ContextFile, context_of, open_context, write_context
from gputune.runtime.context.package import PREFIX, is_package, open_package
from gputune.runtime.context.packing import Packing, split, write_package
from gputune.runtime.context.records import Context, TensorRecord

Make = Callable[..., Path]
WEIGHTS = [np.full(20_000, number, np.float32) for number in range(4)]


@pytest.fixture
def make(context: Context, tmp_path: Path) -> Make:
    """Writes a context for a device of a name, with weights that others may have, too."""

    def made(name: str, weights: tuple[int, ...] = (0, 1), **fields: Any) -> Path:
        path = tmp_path / f"{name}.bin"
        device = {**context.device, "name": name, "platform": "opencl"}
        arrays = [np.arange(40, dtype=np.float32), *(WEIGHTS[number] for number in weights)]
        changes = {"device": device, "tier": f"{name}-cu1", "weights": arrays, "computes": True, **fields}
        write_context(path, replace(context, **changes))
        return path

    return made


def pack(path: Path, *contexts: Path, names: tuple[str, ...] = ()) -> Packing:
    files = [open_context(context) for context in contexts]
    try:
        return write_package(path, files, names)
    finally:
        for file in files:
            file.close()


def contents(file: ContextFile) -> tuple[Any, ...]:
    return file.header, [bytes(file.section(index)) for index in range(len(file.header.sections))]


def test_contexts_come_out_as_they_went_in(make: Make, tmp_path: Path) -> None:
    paths = [make("a"), make("b", (1, 2)), make("c", ())]
    pack(tmp_path / "m.gtpkg", *paths)
    assert is_package(tmp_path / "m.gtpkg") and not is_package(paths[0])
    with open_package(tmp_path / "m.gtpkg") as package:
        assert [entry.name for entry in package.contexts] == ["a-cu1", "b-cu1", "c-cu1"]
        for place, path in enumerate(paths):
            with package.open(place) as packed, open_context(path) as plain:
                assert contents(packed) == contents(plain)
                assert packed.content == plain.content
                assert packed.source(0) == plain.source(0)
        (tmp_path / "out").mkdir()
        written = split(package, tmp_path / "out")
    assert [path.name for path in written] == ["a-cu1.bin", "b-cu1.bin", "c-cu1.bin"]
    assert [path.read_bytes() for path in written] == [path.read_bytes() for path in paths]


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(held=st.lists(st.sets(st.integers(0, 3)), min_size=1, max_size=5))
def test_a_package_is_no_larger_than_its_distinct_sections(
    held: list[set[int]], tmp_path_factory: pytest.TempPathFactory, make: Make
) -> None:
    paths = [make(f"device{number}", tuple(sorted(weights))) for number, weights in enumerate(held)]
    package = tmp_path_factory.mktemp("package") / "m.gtpkg"
    packing = pack(package, *paths)
    distinct: dict[tuple[str, str], int] = {}
    for path in paths:
        with open_context(path) as file:
            headers = len(file.head)
            distinct[path.name, "head"] = headers
            distinct |= {(section.kind, section.sha256): section.length for section in file.header.sections}
    assert packing.once == sum(distinct.values())
    assert packing.package == package.stat().st_size
    assert packing.package <= 1.02 * sum(distinct.values()) + 2048 * len(paths)
    assert packing.apart == sum(path.stat().st_size for path in paths)


def test_what_is_common_is_counted_once(make: Make, tmp_path: Path) -> None:
    packing = pack(tmp_path / "m.gtpkg", make("a"), make("b"), make("c", (2,)))
    assert packing.common == 160 + 2 * WEIGHTS[0].nbytes + len("__kernel void f(__global float *a) {}") + len(
        open_context(tmp_path / "a.bin").binary(0)
    )
    assert "3 contexts in " in str(packing)


def test_contexts_of_one_tier_are_told_apart_by_numbers(make: Make, tmp_path: Path) -> None:
    paths = [make("a"), make("b", tier="a-cu1"), make("c", tier="../x y")]
    pack(tmp_path / "m.gtpkg", *paths)
    with open_package(tmp_path / "m.gtpkg") as package:
        assert [entry.name for entry in package.contexts] == ["a-cu1", "a-cu1.2", "tier-..-x-y"]


def other_model(context: Context, **fields: Any) -> Any:
    return [replace(context.graphs[0], **fields), context.graphs[1]]


def test_contexts_of_another_model_are_refused_by_the_difference(make: Make, context: Context, tmp_path: Path) -> None:
    first = make("a")
    for graphs, words in (
        (context.graphs[:1], r"its graphs are \['main'\], not \['main', 'other'\]"),
        (other_model(context, inputs=(TensorRecord("x", (4, 2)),)), r"inputs .* 'main' are x float32\[4, 2\], not x f"),
        (other_model(context, outputs=(TensorRecord("z", (8,)),)), r"outputs of its graph 'main' are z float32\[8\]"),
    ):
        with pytest.raises(MalformedPackage, match=words):
            pack(tmp_path / "m.gtpkg", first, make("b", graphs=graphs))
    assert not (tmp_path / "m.gtpkg").exists()


def test_two_for_one_device_are_refused(make: Make, tmp_path: Path) -> None:
    first = make("a").rename(tmp_path / "first.bin")
    with pytest.raises(MalformedPackage, match=r"first.bin and .*a.bin are for the same device and driver, a:"):
        pack(tmp_path / "m.gtpkg", first, make("a", (3,)))


def test_a_package_is_no_context_and_a_context_no_package(make: Make, tmp_path: Path) -> None:
    context = make("a")
    pack(tmp_path / "m.gtpkg", context)
    with pytest.raises(NotAContext, match="a package of contexts; `gputune package --split`"):
        open_context(tmp_path / "m.gtpkg")
    with pytest.raises(MalformedPackage, match="no package of contexts"):
        open_package(context)
    (tmp_path / "empty").touch()
    with pytest.raises(MalformedPackage, match="empty: no package of contexts"):
        open_package(tmp_path / "empty")


def test_damage_is_found_where_it_is(make: Make, tmp_path: Path) -> None:
    path = tmp_path / "m.gtpkg"
    pack(path, make("a", (0,)), make("b", (1,)))
    whole = path.read_bytes()
    with open_package(path) as package, package.open(0) as file:
        head = whole.index(bytes(file.head))
    weights = whole.index(WEIGHTS[1].tobytes())
    path.write_bytes(changed(whole, weights))
    with open_package(path) as package:
        contents(package.open(0))
        with pytest.raises(ChecksumMismatch, match=r"context 'b-cu1': weights section \d is damaged"):
            contents(package.open(1))
        with pytest.raises(ChecksumMismatch):
            split(package, tmp_path)
    path.write_bytes(changed(whole, head + 60))
    with open_package(path) as package, pytest.raises(ChecksumMismatch, match="context 'a-cu1': the header is damaged"):
        package.open(0)
    for content in (changed(whole, PREFIX.size + 5), whole[:-1], whole[:20], whole + b"a"):
        path.write_bytes(content)
        with pytest.raises(ContextError):
            open_package(path)


def changed(content: bytes, place: int) -> bytes:
    return content[:place] + bytes([content[place] ^ 1]) + content[place + 1 :]


def test_a_context_with_sections_where_none_are_written_is_refused(make: Make, tmp_path: Path) -> None:
    content = bytearray(make("a", (0,)).read_bytes())
    with context_of(memoryview(bytes(content)), "a.bin") as file:
        last = file.header.sections[-2]
        end = len(content) - file.header.sections[-1].length - (-last.length % 64)
    if last.length % 64 == 0:
        pytest.fail("the section has no padding behind it")
    content[end] = 1
    (tmp_path / "odd.bin").write_bytes(content)
    with pytest.raises(MalformedPackage, match="do not lie as gputune writes them"):
        pack(tmp_path / "m.gtpkg", tmp_path / "odd.bin")
