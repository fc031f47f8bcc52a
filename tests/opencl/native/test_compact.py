"""Test compact contexts in C: what the device packs on loading equals a packed context, bit for bit."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gputune.client.context.memory import weights
from gputune.core.errors import ChecksumMismatch, WrongDevice
from gputune.runtime.backends import Backend
from gputune.runtime.context.format import context_of, open_context
from gputune.runtime.native.binding import Native
from tests.client.model.test_alternatives import two_blocks
from tests.opencl.contexts import MODELS, compiling, inputs_of, loaded, outputs, written
from tests.strategies.files.contexts import head_of, header_of, need_of, with_head

SEEDS = range(2)


@pytest.fixture(scope="module")
def paths(backend: Backend, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Path]]:
    """A packed and a compact context of three graphs, whose parts are as small as can be."""
    folder = tmp_path_factory.mktemp("compact")
    models = {"blocks": two_blocks(), "products": MODELS["products"](), "again": MODELS["products"]()}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(weights, "PART_BYTES", 1)
        yield written(folder, models, compiling(backend), backend, persistent=True)


def test_all_forms_compute_the_bits_of_a_packed_context(native: Native, backend: Backend, paths: list[Path]) -> None:
    packed, compact = paths
    with native.open(compact) as file, native.device(file, backend.identity.name) as device:
        for name in ("blocks", "products", "again"):
            with loaded(backend, packed, name) as executor:
                wanted = [outputs(executor, seed) for seed in SEEDS]
                inputs = [inputs_of(executor, seed) for seed in SEEDS]
            with device.group([file]) as group:
                graphs = [
                    device.load(file, graph=name),
                    device.load(file, graph=name, one_by_one=True),
                    device.load(file, graph=name, group=group),
                    device.load(file, graph=name, group=group, one_by_one=True),
                ]
                for graph in graphs:
                    got = [graph.run(one) for one in inputs]
                    assert [{key: value.tobytes() for key, value in one.items()} for one in got] == wanted
                    assert not graph.warnings
                    graph.close()


def test_a_context_for_another_driver_packs_by_programs_from_source(
    native: Native, backend: Backend, paths: list[Path], tmp_path: Path
) -> None:
    packed, compact = paths
    whole = compact.read_bytes()
    fields = header_of(whole)
    fields["device"]["driver_version"] = "another"
    path = tmp_path / "other.bin"
    path.write_bytes(with_head(whole, need_of(fields, b""), fields))
    with loaded(backend, packed, "products") as executor:
        wanted, inputs = outputs(executor, 1), inputs_of(executor, 1)
    with (
        native.open(path) as file,
        native.device(file, backend.identity.name) as device,
        device.load(file, graph="products") as graph,
    ):
        assert {name: value.tobytes() for name, value in graph.run(inputs).items()} == wanted
        (warning,) = graph.warnings
        assert "building from source on another device" in warning


def test_weights_that_were_changed_are_not_packed(
    native: Native, backend: Backend, paths: list[Path], tmp_path: Path
) -> None:
    path = tmp_path / "damaged.bin"
    whole = bytearray(paths[1].read_bytes())
    with context_of(memoryview(bytes(whole)), "compact") as known:
        sources = {ref.index for part in known.header.packing for one in part.launches for ref in one.refs}
        assert sources and known.header.sections[-1].kind == "weights"
    whole[-1] ^= 1
    path.write_bytes(whole)
    with native.open(path) as file, native.device(file, backend.identity.name) as device:
        with pytest.raises(ChecksumMismatch, match=r"weights section .* is damaged"):
            for name in ("blocks", "products"):
                device.load(file, graph=name).close()
        path.unlink()


def test_what_is_too_large_to_be_packed_is_refused_with_the_device(
    native: Native, backend: Backend, paths: list[Path], tmp_path: Path
) -> None:
    whole = paths[1].read_bytes()
    fields = header_of(whole)
    with open_context(paths[1]) as known:
        part = known.header.graphs[1].constants("packed")[0]
    fields["packing"][part]["arena_bytes"] = [backend.identity.max_allocation_bytes + 4096]
    path = tmp_path / "large.bin"
    path.write_bytes(with_head(whole, need_of(fields, head_of(whole)[0]), fields))
    with (
        native.open(path) as file,
        native.device(file, backend.identity.name) as device,
        pytest.raises(WrongDevice, match=r"a buffer of [0-9]+ bytes"),
    ):
        device.load(file, graph="products")
