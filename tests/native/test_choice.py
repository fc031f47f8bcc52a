"""Test which context of a package the C runtime takes, and what it says of it, on a device of unknown family.

The result must equal Python's. No rule of the tiers knows the device's family.
"""

import random
from dataclasses import replace
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from gputune.core.errors import DeviceNotFound, WrongDevice
from gputune.core.identity import DeviceIdentity
from gputune.core.statuses import ContextVerdict
from gputune.runtime.context.format import ContextFile, open_context, write_context
from gputune.runtime.context.package import open_package
from gputune.runtime.context.packing import write_package
from gputune.runtime.context.records import Context, ProgramRecord
from gputune.runtime.loading.verdict import open_chosen, verdict_on
from gputune.runtime.native.binding import Native
from tests.native.fake import DEVICE, ELEMENTS, NBYTES, SOURCE, STAGES, Fake, doubling_context

PACKAGES, LARGEST = 24, 5
TOLD_APART = tuple(product(("Fake GPU", "Fake(TM) gpu", "Another"), ("1.0", "2.0"), (4, 6, 1)))


def devices(generator: random.Random) -> list[DeviceIdentity]:
    """Some that are like the device in some ways, no two of which share their binaries."""
    found = []
    for name, driver, units in generator.sample(TOLD_APART, generator.randint(1, LARGEST)):
        vendor, kind = generator.choice(("gputune", "another")), generator.choice(("gpu", "cpu"))
        if name == "Another" and kind == "gpu":  # of other models of a vendor C asks how alike their names are
            vendor = "another"
        made = replace(DEVICE, name=name, driver_version=driver, compute_units=units)
        found.append(replace(made, vendor=vendor, device_type=kind))
    return found


def package(folder: Path, generator: random.Random) -> Path:
    """Contexts for some of these devices; some are too large for the device, or of the null device."""
    with open_context(doubling_context(folder / "a.bin")) as file:
        (graph,) = file.header.graphs
    files: list[ContextFile] = []
    for device in devices(generator):
        arena = DEVICE.max_allocation_bytes + 1 if generator.random() < 0.3 else graph.arena_bytes[0]
        made = replace(graph, arena_bytes=(arena,)), (ProgramRecord(b"", SOURCE, ""),)
        path = folder / f"{len(files)}.bin"
        write_context(path, Context((made[0],), made[1], (), device.to_dict(), "t", {}, {}, generator.random() < 0.8))
        files.append(open_context(path))
    write_package(folder / "m.gtpkg", files)
    return folder / "m.gtpkg"


@pytest.mark.parametrize("seed", range(PACKAGES))
def test_the_same_context_is_taken_for_the_same_reason(native: Native, tmp_path: Path, seed: int) -> None:
    path = package(tmp_path, random.Random(seed))
    wanted = refused = ""
    with open_package(path) as opened:
        try:
            with open_chosen(opened, DEVICE, computes=True) as chosen:
                wanted = str(chosen.choice).replace('"', "'")
        except WrongDevice as error:
            refused = str(error).split(" contexts runs on ")[0].removeprefix(f"{path}: ")
    with native.open(path) as file, native.device(file, opencl=str(Fake().path)) as device:
        if wanted:
            with device.load(file) as graph:
                assert graph.choice == wanted
        else:
            with pytest.raises(WrongDevice, match=refused):
                device.load(file)


def test_a_context_whose_parts_begin_where_the_device_allows_none_is_refused(native: Native, tmp_path: Path) -> None:
    """With Python's words, alone and in a package; one whose parts fit there is taken."""
    other = replace(DEVICE, base_address_alignment_bytes=64, driver_version="2.0")
    paths = [
        doubling_context(tmp_path / f"{apart}.bin", device=other, apart=apart)
        for apart in (NBYTES + 64, NBYTES + DEVICE.base_address_alignment_bytes)
    ]
    for path, fits in zip(paths, (False, True), strict=True):
        with open_context(path) as known:
            verdict, reason = verdict_on(known.header, known.header.graphs, DEVICE, computes=True)
        assert (verdict is not ContextVerdict.UNSUPPORTED) == fits
        write_package(path.with_suffix(".gtpkg"), [open_context(path)])
        for each in (path, path.with_suffix(".gtpkg")):
            with native.open(each) as file, native.device(file, opencl=str(Fake().path)) as device:
                if fits:
                    with device.load(file) as graph:
                        assert set(graph.run({"x": np.ones(ELEMENTS, np.float32)})["y"]) == {2.0**STAGES}
                    continue
                with pytest.raises(WrongDevice) as refused:
                    device.load(file)
                assert reason in str(refused.value) and "at offset 320" in reason


def test_a_device_or_library_that_is_not_there_is_refused_with_what_is(native: Native) -> None:
    with pytest.raises(DeviceNotFound, match=r"no OpenCL device matches 'Adreno'; #0 Fake GPU \(Fake\)"):
        native.device(name="Adreno", opencl=str(Fake().path))
    with pytest.raises(DeviceNotFound, match=r"nowhere\.so is no library with OpenCL 1\.2"):
        native.device(opencl="nowhere.so")
    for wanted in ("fake gpu", "FAKE", "0"):
        with native.device(name=wanted, opencl=str(Fake().path)) as device:
            assert device.name == "Fake GPU"
