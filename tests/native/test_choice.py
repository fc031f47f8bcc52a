"""Test that the C runtime takes the context of a package that Python takes, and says the same of it."""

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
NVIDIA, AMD, INTEL = "NVIDIA Corporation", "Advanced Micro Devices, Inc.", "Intel(R) Corporation"
QUALCOMM, ARM, IMAGINATION = "QUALCOMM", "ARM", "Imagination Technologies"
MADE_FOR = (
    ("NVIDIA GeForce RTX 3060", NVIDIA, "OpenCL 3.0 CUDA"),
    ("NVIDIA GeForce RTX 4060", NVIDIA, "OpenCL 3.0 CUDA"),
    ("NVIDIA A100-SXM4-40GB", NVIDIA, "OpenCL 3.0 CUDA"),
    ("AMD Radeon RX 6800 XT", AMD, "OpenCL 2.0 AMD-APP"),
    ("gfx1100", AMD, "OpenCL 2.0 AMD-APP"),
    ("QUALCOMM Adreno(TM)", QUALCOMM, "OpenCL 3.0 Adreno(TM) 740"),
    ("QUALCOMM Adreno(TM)", QUALCOMM, "OpenCL 2.0 Adreno(TM) 640"),
    ("Mali-G78", ARM, "OpenCL 2.1 v1.r26p0"),
    ("Mali-G52", ARM, "OpenCL 2.0 v1.r18p0"),
    ("Intel(R) Arc(TM) A770 Graphics", INTEL, "OpenCL 3.0 NEO"),
    ("Intel(R) UHD Graphics 630", INTEL, "OpenCL 3.0 NEO"),
    ("PowerVR Rogue GE8320", IMAGINATION, "OpenCL 1.2"),
    ("PowerVR B-Series BXE-4-32", IMAGINATION, "OpenCL 3.0"),
)
"""Devices whose contexts a package has: name, vendor and version."""
HERE = (
    ("NVIDIA GeForce RTX 3080 Ti", NVIDIA, "OpenCL 3.0 CUDA", 3, "is of the same family nvidia-ampere"),
    ("NVIDIA L40S", NVIDIA, "OpenCL 3.0 CUDA", 3, "is of the same family nvidia-ada"),
    ("NVIDIA H200", NVIDIA, "OpenCL 3.0 CUDA", 4, "is of the same vendor nvidia"),
    ("gfx1030", AMD, "OpenCL 2.0 AMD-APP", 3, "is of the same family amd-rdna2"),
    ("AMD Radeon RX 7900 XTX", AMD, "OpenCL 2.0 AMD-APP", 3, "is of the same family amd-rdna3"),
    ("AMD Instinct MI250X", AMD, "OpenCL 2.0 AMD-APP", 4, "is of the same vendor amd"),
    ("QUALCOMM Adreno(TM)", QUALCOMM, "OpenCL 3.0 Adreno(TM) 750", 3, "is of the same family adreno-7xx"),
    ("QUALCOMM Adreno(TM)", QUALCOMM, "OpenCL 2.0 Adreno(TM) 619", 3, "is of the same family adreno-6xx"),
    ("QUALCOMM Adreno(TM)", QUALCOMM, "OpenCL 3.0 Adreno(TM) 830", 4, "is of the same vendor qualcomm"),
    ("Mali-G710", ARM, "OpenCL 3.0 v1.r38p0", 3, "is of the same family mali-valhall"),
    ("Mali-G31", ARM, "OpenCL 2.0 v1.r12p0", 3, "is of the same family mali-bifrost"),
    ("Mali-T880", ARM, "OpenCL 1.2 v1.r22p0", 4, "is of the same vendor arm"),
    ("Intel(R) Arc(TM) A380 Graphics", INTEL, "OpenCL 3.0 NEO", 3, "is of the same family intel-xe-hpg"),
    ("Intel(R) HD Graphics 530", INTEL, "OpenCL 3.0 NEO", 3, "is of the same family intel-gen9"),
    ("Intel(R) Iris(R) Xe Graphics", INTEL, "OpenCL 3.0 NEO", 4, "is of the same vendor intel"),
    ("PowerVR Rogue GX6250", IMAGINATION, "OpenCL 1.2", 3, "is of the same family powervr-rogue"),
    ("PowerVR D-Series DXT-48-1536", IMAGINATION, "OpenCL 3.0", 3, "is of the same family powervr-volcanic"),
    ("PowerVR SGX 544MP", IMAGINATION, "OpenCL 1.1", 4, "is of the same vendor imagination"),
    ("Vivante GC7000", "Vivante Corporation", "OpenCL 1.2", 5, "is another gpu"),
)
"""Devices that choose among them: name, vendor, version, and how far the chosen context is and why."""
TOLD_APART = tuple(product(("Fake GPU", "Fake(TM) gpu", "Another"), ("1.0", "2.0"), (4, 6, 1)))


def devices(generator: random.Random) -> list[DeviceIdentity]:
    """Some that are like the device in some ways, no two of which share their binaries."""
    found = []
    for name, driver, units in generator.sample(TOLD_APART, generator.randint(1, LARGEST)):
        vendor, kind = generator.choice(("gputune", "another")), generator.choice(("gpu", "cpu"))
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


def compare(native: Native, path: Path, here: DeviceIdentity) -> str:
    """Choose in both languages, and return what they say of the context, or of all if they refuse them."""
    wanted = refused = ""
    with open_package(path) as opened:
        try:
            with open_chosen(opened, here, computes=True) as chosen:
                wanted = str(chosen.choice).replace('"', "'")
        except WrongDevice as error:
            refused = str(error).split(" contexts runs on ")[0].removeprefix(f"{path}: ")
    with native.open(path) as file, native.device(name="0", opencl=str(Fake().path)) as device:
        assert device.name == here.name
        if wanted:
            with device.load(file) as graph:
                assert graph.choice == wanted
        else:
            with pytest.raises(WrongDevice, match=refused):
                device.load(file)
    return wanted or refused


@pytest.mark.parametrize("seed", range(PACKAGES))
def test_the_same_context_is_taken_for_the_same_reason(native: Native, tmp_path: Path, seed: int) -> None:
    """Of devices whose families no rule knows."""
    compare(native, package(tmp_path, random.Random(seed)), DEVICE)


@pytest.fixture(scope="module")
def all_families(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A package with a context for each device of MADE_FOR, some with as many compute units as the fake device has."""
    folder = tmp_path_factory.mktemp("families")
    files = []
    for place, (name, vendor, version) in enumerate(MADE_FOR):
        made = replace(DEVICE, name=name, vendor=vendor, device_version=version, compute_units=2 + place % 6)
        path = doubling_context(folder / f"{place}.bin", device=made, binary=SOURCE.encode() + b"%d" % place)
        files.append(open_context(path))
    write_package(folder / "families.gtpkg", files)
    return folder / "families.gtpkg"


@pytest.mark.parametrize(("name", "vendor", "version", "far", "why"), HERE)
def test_other_models_of_the_family_come_before_others_of_the_vendor(
    native: Native,
    all_families: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    vendor: str,
    version: str,
    far: int,
    why: str,
) -> None:
    for variable, text in {"FAKE_NAME": name, "FAKE_VENDOR": vendor, "FAKE_VERSION": version}.items():
        monkeypatch.setenv(variable, text)
    said = compare(native, all_families, replace(DEVICE, name=name, vendor=vendor, device_version=version))
    assert f", distance {far} of 6: made for " in said and said.endswith(why), said


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
