"""Test that C trusts programs that need a feature where the device's own binaries load, and builds them from source
only with a proof."""

import struct
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputune.core.errors import WrongDevice
from gputune.core.identity import DeviceIdentity
from gputune.runtime.context.format import REQUIRING_VERSION, open_context
from gputune.runtime.context.records import NEEDS
from gputune.runtime.contexts import device as devices
from gputune.runtime.contexts.arenas import NativeArenas
from gputune.runtime.contexts.device import NativeDevice
from gputune.runtime.executor import Executor
from gputune.runtime.loading.executors import executor_on
from gputune.runtime.native.binding import Native
from tests.native.fake import DEVICE, ELEMENTS, SOURCE, STAGES, Fake, compact_context, doubling_context
from tests.strategies.files.contexts import header_of, need_of, with_head

FEATURE = "x86.vpdpbusd"
ELSEWHERE = pytest.mark.parametrize(
    ("device", "binary"),
    [(replace(DEVICE, driver_version="2.0"), SOURCE.encode()), (DEVICE, b"of another driver")],
    ids=["another driver", "a binary that the driver refuses"],
)


def requiring(path: Path, whole: bytes, fields: dict[str, Any]) -> Path:
    """Write a context again with other fields, of which programs need features."""
    fields["requires"] = [NEEDS]
    path.write_bytes(
        with_head(whole[:8] + struct.pack("<I", REQUIRING_VERSION) + whole[12:], need_of(fields, b""), fields)
    )
    return path


def needing(path: Path, device: DeviceIdentity = DEVICE, binary: bytes = SOURCE.encode()) -> Path:
    doubling_context(path, device=device, binary=binary)
    whole = path.read_bytes()
    fields = header_of(whole)
    fields["programs"][0]["needs"] = [FEATURE, "half"]
    return requiring(path, whole, fields)


def test_the_devices_own_binaries_are_trusted(native: Native, tmp_path: Path) -> None:
    path = needing(tmp_path / "own.bin")
    with native.open(path) as file, native.device(file, opencl=str(Fake().path)) as device, device.load(file) as graph:
        assert set(graph.run({"x": np.ones(ELEMENTS, np.float32)})["y"]) == {2.0**STAGES}
        assert not graph.warnings


@ELSEWHERE
@pytest.mark.parametrize(("proved", "lacking"), [((), ("half", FEATURE)), (("half", "other"), (FEATURE,))])
def test_a_source_is_not_built_without_a_proof(
    native: Native, tmp_path: Path, device: DeviceIdentity, binary: bytes, proved: Sequence[str], lacking: Sequence[str]
) -> None:
    path = needing(tmp_path / "other.bin", device, binary)
    opencl = str(Fake().path)
    with (
        native.open(path) as file,
        native.device(name="0", opencl=opencl) as opened,
        pytest.raises(WrongDevice) as refused,
    ):
        opened.load(file, features=proved)
    reasons = "; ".join(f"{name}, because no proof of it is given" for name in lacking)
    assert str(refused.value) == (
        f"{path}: graph 'main' needs features that {DEVICE.name} does not prove: {reasons}; "
        "generate the context on this device, or give `features` of gputune_load_options"
    )


def test_what_packings_need_counts(native: Native, tmp_path: Path) -> None:
    """A graph needs what its packings need, each feature once and in Python's order."""
    path = compact_context(tmp_path / "compact.bin", [1.0, 2.0])
    whole = path.read_bytes()
    fields = header_of(whole)
    (program,) = fields["programs"]
    fields["programs"] = [{**program, "needs": needs} for needs in (["c"], ["d", "a"], ["c", "b"])]
    for place, packing in enumerate(fields["packing"]):
        packing["launches"][0]["program"] = place + 1
    fields["device"]["driver_version"] = "2.0"
    requiring(path, whole, fields)
    with open_context(path) as known:
        needs = known.header.needs_of(known.header.graphs[0])
    said = "; ".join(f"{name}, because no proof of it is given" for name in needs)
    with native.open(path) as file, native.device(name="0", opencl=str(Fake().path)) as device:
        with pytest.raises(WrongDevice, match=f"prove: {said}; generate"):
            device.load(file)
        with device.load(file, features=needs) as graph:
            assert set(graph.run({"x": np.ones(ELEMENTS, np.float32)})["y1"]) == {8.0}
    assert needs == ["a", "b", "c", "d"]


@ELSEWHERE
def test_a_source_is_built_with_all_proofs(
    native: Native, tmp_path: Path, device: DeviceIdentity, binary: bytes
) -> None:
    path, opencl = needing(tmp_path / "other.bin", device, binary), str(Fake().path)
    with (
        native.open(path) as file,
        native.device(name="0", opencl=opencl) as opened,
        opened.load(file, features=[FEATURE, "half"]) as graph,
    ):
        assert set(graph.run({"x": np.ones(ELEMENTS, np.float32)})["y"]) == {2.0**STAGES}
        (warning,) = graph.warnings
        assert "from source" in warning


@pytest.mark.parametrize(("reason", "refused"), [("", False), ("not today", True)])
def test_python_asks_the_device_before_it_loads(
    native: Native, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reason: str, refused: bool
) -> None:
    """Also for a device of the same name and driver, whose binaries C would trust; alone and in a group."""
    opencl, asked = str(Fake().path), []

    def prove(names: Collection[str]) -> Mapping[str, str]:
        asked.append([*names])
        return {**dict.fromkeys(names, ""), "half": reason}

    monkeypatch.setattr(devices, "library", lambda: native)
    device = NativeDevice(lambda: native.device(name="0", opencl=opencl), "", prove)
    arenas = NativeArenas(device, 1)
    words = f"graph 'main' needs features that {DEVICE.name} does not prove: half, because {reason}$"
    with open_context(needing(tmp_path / "own.bin")) as file:
        (graph,) = file.header.graphs
        loads: list[Callable[[], Sequence[Executor]]] = [
            lambda: [executor_on(device, file, None, strict=False)],
            lambda: arenas.load(file, graph, False, 0),
        ]
        for load in loads:
            with pytest.raises(WrongDevice, match=words) if refused else nullcontext():
                for executor in load():
                    executor.close()
    arenas.close()
    assert asked == 2 * [["half", FEATURE]]
