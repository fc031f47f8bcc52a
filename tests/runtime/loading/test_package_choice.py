"""Test which context of a package a device takes, and that it says why."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gputune.runtime
from gputune.core.errors import DeviceNotFound, UntrustedFile, WrongDevice
from gputune.core.identity import DeviceIdentity
from gputune.core.statuses import ContextVerdict
from gputune.runtime.backends import Backend, open_backend
from gputune.runtime.context.format import open_context, write_context
from gputune.runtime.context.package import open_package
from gputune.runtime.context.packing import write_package
from gputune.runtime.context.records import Context
from gputune.runtime.devices.discovery import NULL_REPORT, DeviceReport
from gputune.runtime.loading import devices
from gputune.runtime.loading.model import open_any
from gputune.runtime.loading.verdict import choices, open_chosen

OPTIMAL, PREFER, UNSUPPORTED = ContextVerdict
PHONE = {"name": "QUALCOMM Adreno(TM) 740", "vendor": "QUALCOMM", "platform": "QUALCOMM", "device_type": "gpu"}
HERE = {**PHONE, "compute_units": 6, "driver": "q.icd"}
CPU = {"name": "pthread-skylake-avx512-Xeon", "vendor": "GenuineIntel", "platform": "pocl", "driver": "p.icd"}
Pack = Callable[..., Path]


def device(**fields: Any) -> DeviceIdentity:
    assert NULL_REPORT.identity is not None
    return replace(NULL_REPORT.identity, **fields)


@pytest.fixture
def pack(context: Context, tmp_path: Path) -> Pack:
    """Writes a package of contexts for these devices; those without any fields are of the null device."""

    def packed(*made_for: dict[str, Any]) -> Path:
        files = []
        for number, identity in enumerate(made_for):
            path = tmp_path / f"{number}.bin"
            made = device(**identity).to_dict()
            write_context(path, replace(context, device=made, tier=f"t{number}", computes=bool(identity)))
            files.append(open_context(path))
        write_package(tmp_path / "m.gtpkg", files)
        return tmp_path / "m.gtpkg"

    return packed


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> Callable[[DeviceIdentity], list[str]]:
    """Gives the null device another identity, with its driver installed; the names of devices that are asked for."""

    def named(*present: DeviceIdentity) -> list[str]:
        asked: list[str] = []

        def open_device(report: DeviceReport) -> Backend:
            assert report.identity is not None
            asked.append(report.identity.name)
            same = [
                one for one in present if (one.name, one.platform) == (report.identity.name, report.identity.platform)
            ]
            if not same:
                raise DeviceNotFound("not here")
            backend = open_backend(NULL_REPORT)
            backend.identity = same[0]
            return backend

        monkeypatch.delenv("GPUTUNE_DEVICE", raising=False)
        monkeypatch.setattr(devices, "driver_files", lambda: [Path(one.driver) for one in present])
        reports = [DeviceReport(number, one, one.driver, True, "") for number, one in enumerate(present)]
        monkeypatch.setattr(devices, "discover", lambda: reports)
        monkeypatch.setattr(devices, "open_reported", open_device)
        return asked

    return named


@pytest.mark.parametrize(
    ("made_for", "steps", "fit", "words"),
    [
        ({}, 0, "optimal", ""),
        ({"driver_version": "2"}, 1, "near", "made for another driver: driver_version is '1', not '2'"),
        ({"compute_units": 8}, 2, "near", "made for 8 compute units, here are 6"),
        ({"name": "QUALCOMM Adreno(TM) 730"}, 3, "near", "is of the same family adreno-7xx"),
        ({"name": "QUALCOMM Adreno(TM) 540"}, 4, "rebuilt", "is of the same vendor qualcomm"),
        ({"name": "Mali-G78", "vendor": "ARM"}, 5, "rebuilt", "is another gpu"),
        (CPU | {"device_type": "cpu"}, 6, "rebuilt", "is a gpu"),
    ],
)
def test_distances(pack: Pack, made_for: dict[str, Any], steps: int, fit: str, words: str) -> None:
    with open_package(pack({**HERE, **made_for})) as package:
        (choice,) = choices(package, device(**HERE), computes=True)
    assert (choice.distance, choice.fit) == (steps, fit)
    assert choice.verdict is (PREFER if steps else OPTIMAL)
    assert words in choice.reason and bool(choice.reason) == bool(steps)
    assert f"context 't0', of 1 in the package: {fit}" in str(choice)


def test_the_nearest_comes_first_and_what_cannot_run_last(pack: Pack) -> None:
    units = [{**HERE, "compute_units": count} for count in (32, 8, 2)]
    made_for = [{}, {**HERE, "driver_version": "2"}, *units, HERE, CPU]
    with open_package(pack(*made_for)) as package:
        found = choices(package, device(**HERE), computes=True)
        assert [choice.name for choice in found] == ["t5", "t1", "t3", "t4", "t2", "t6", "t0"]
        assert found[-1].verdict is UNSUPPORTED and "made by the null device" in found[-1].reason
        small = device(**HERE, max_work_group_size=2)
        with pytest.raises(WrongDevice, match=r"none of 7 contexts runs on QUALCOMM Adreno\(TM\) 740; t5: .*; \.\.\.$"):
            open_chosen(package, small, computes=True)
        with open_chosen(package, device(), computes=False) as null:
            assert null.choice is not None and null.choice.name == "t0"


def test_a_context_whose_graph_does_not_fit_is_passed_over(pack: Pack, context: Context, tmp_path: Path) -> None:
    package = pack(HERE, {**HERE, "compute_units": 8})
    large = replace(context.graphs[0], arena_bytes=(1 << 20,))
    made_for = device(**HERE).to_dict()
    write_context(
        tmp_path / "0.bin",
        replace(context, graphs=(large, context.graphs[1]), device=made_for, computes=True, tier="t0"),
    )
    write_package(package, [open_context(tmp_path / "0.bin"), open_context(tmp_path / "1.bin")])
    small = device(**HERE, max_allocation_bytes=4096)
    with open_package(package) as opened_package:
        for graph, name in (("main", "t1"), ("other", "t0"), (None, "t1")):
            with open_chosen(opened_package, small, True, graph) as file:
                assert file.choice is not None and file.choice.name == name


def test_loading_takes_the_device_that_is_here_and_its_context(
    pack: Pack, opened: Callable[..., list[str]], recwarn: pytest.WarningsRecorder
) -> None:
    asked = opened(device(**CPU))
    executor = open_any(pack({}, HERE, CPU)).executor()
    assert asked == [CPU["name"]]
    assert executor.choice is not None and (executor.choice.name, executor.choice.fit) == ("t2", "optimal")
    assert executor.header.tier == "t2" and executor.warnings == [] and not recwarn.list
    assert executor.run({"x": np.ones((2, 4), np.float32)})["y"].shape == (8,)


def test_of_two_drivers_the_best_device_that_is_there_is_found_by_discovery(
    pack: Pack, opened: Callable[..., list[str]]
) -> None:
    gpu, cpu = device(**HERE), device(**CPU)
    asked = opened(cpu, gpu)
    assert open_any(pack(CPU, HERE)).executor().device == gpu
    assert open_any(pack(CPU, HERE)).executor("pthread").device == cpu
    assert asked == [HERE["name"], CPU["name"]]


def test_a_group_settles_packages_for_its_device(pack: Pack, opened: Callable[..., list[str]]) -> None:
    opened(device(**HERE))
    path = pack(CPU, HERE)
    with gputune.runtime.load_group([path], names=["m"]) as group:
        assert group["m"].header.tier == group["m/other"].header.tier == "t1"
        assert group["m"].choice is not None and group["m"].choice.fit == "optimal"
        assert group.memory.arenas == (256,)
        assert group.add(path, name="again").choice == group["m"].choice


def test_a_package_that_another_user_could_change_is_not_loaded(pack: Pack) -> None:
    path = pack({})
    path.chmod(0o666)
    with pytest.raises(UntrustedFile, match=r"m.gtpkg can be written by every user"):
        gputune.runtime.load(path, "null")
    with pytest.raises(UntrustedFile, match=r"m.gtpkg can be written by every user"):
        gputune.runtime.load_group([path], "null")
