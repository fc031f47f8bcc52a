"""Test that C trusts programs that need a feature where the device's own binaries load, and refuses them elsewhere."""

import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gputune.core.errors import WrongDevice
from gputune.core.identity import DeviceIdentity
from gputune.runtime.context.format import REQUIRING_VERSION
from gputune.runtime.context.records import NEEDS
from gputune.runtime.native.binding import Native
from tests.native.fake import DEVICE, ELEMENTS, SOURCE, STAGES, Fake, doubling_context
from tests.strategies.files.contexts import header_of, need_of, with_head

FEATURE = "x86.vpdpbusd"


def needing(path: Path, device: DeviceIdentity = DEVICE, binary: bytes = SOURCE.encode()) -> Path:
    doubling_context(path, device=device, binary=binary)
    whole = path.read_bytes()
    fields = header_of(whole)
    fields["programs"][0]["needs"], fields["requires"] = [FEATURE, "half"], [NEEDS]
    path.write_bytes(
        with_head(whole[:8] + struct.pack("<I", REQUIRING_VERSION) + whole[12:], need_of(fields, b""), fields)
    )
    return path


def test_the_devices_own_binaries_are_trusted(native: Native, tmp_path: Path) -> None:
    path = needing(tmp_path / "own.bin")
    with native.open(path) as file, native.device(file, opencl=str(Fake().path)) as device, device.load(file) as graph:
        assert set(graph.run({"x": np.ones(ELEMENTS, np.float32)})["y"]) == {2.0**STAGES}
        assert not graph.warnings


@pytest.mark.parametrize(
    ("device", "binary"),
    [(replace(DEVICE, driver_version="2.0"), SOURCE.encode()), (DEVICE, b"of another driver")],
    ids=["another driver", "a binary that the driver refuses"],
)
def test_a_source_is_not_built_without_a_proof(
    native: Native, tmp_path: Path, device: DeviceIdentity, binary: bytes
) -> None:
    path = needing(tmp_path / "other.bin", device, binary)
    opencl = str(Fake().path)
    with (
        native.open(path) as file,
        native.device(name="0", opencl=opencl) as opened,
        pytest.raises(WrongDevice) as refused,
    ):
        opened.load(file)
    assert str(refused.value) == (
        f"{path}: program 0 needs the feature {FEATURE}, which only a proof on this device shows, and C makes none; "
        "generate the context on this device"
    )
