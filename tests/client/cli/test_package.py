"""Test gputune package: contexts of several devices go into one file, come out unchanged, and net-run chooses among
them.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gputune.core.identity import DeviceIdentity
from gputune.runtime.devices.discovery import DeviceReport
from tests.client.commands import Gputune, read_json
from tests.client.contexts import DEVICE, small_context


@pytest.fixture
def made(tmp_path: Path) -> list[Path]:
    """Contexts of one model, of the null device and for two that compute."""
    null = small_context(tmp_path / "null.bin", (256,))
    return [null, for_device(tmp_path / "a.bin"), for_device(tmp_path / "b.bin", vendor="B")]


def for_device(path: Path, arenas: tuple[int, ...] = (256,), **fields: Any) -> Path:
    """The small context for a device named as the file."""
    path.parent.mkdir(exist_ok=True)
    return small_context(path, arenas, device={**DEVICE, "name": path.stem, "platform": "x", **fields})


def names(gputune: Gputune, package: Path) -> list[str]:
    ran = gputune("package", "--list", package, "--json")
    assert ran.code == 0, ran.err
    return [context["name"] for context in json.loads(ran.out)["contexts"]]


def test_a_package_is_made_listed_changed_and_split(gputune: Gputune, made: list[Path], tmp_path: Path) -> None:
    package, out = tmp_path / "m.gtpkg", tmp_path / "out"
    ran = gputune("package", *made[:2], "--output", package)
    assert ran.code == 0, ran.err
    apart = sum(path.stat().st_size for path in made[:2])
    share = 1 - package.stat().st_size / apart
    said = f"{package}: 2 contexts in {package.stat().st_size} bytes, as files of their own {apart}: {share:.1%} saved"
    assert ran.out.startswith(said)
    assert names(gputune, package) == ["null", "a"]
    assert gputune("package", package, "--add", made[2]).code == 0
    assert names(gputune, package) == ["null", "a", "b"]
    again = for_device(tmp_path / "again" / "a.bin", (512,))
    assert gputune("package", package, "--add", again, "--remove", "b").code == 0
    assert names(gputune, package) == ["null", "a"]
    ran = gputune("package", "--split", package, "--output_dir", out)
    assert ran.out.splitlines() == [str(out / "null.bin"), str(out / "a.bin")]
    assert (out / "null.bin").read_bytes() == made[0].read_bytes()
    assert (out / "a.bin").read_bytes() == again.read_bytes()
    assert gputune("package", package, made[2], "--output", tmp_path / "all.gtpkg").code == 0
    assert names(gputune, tmp_path / "all.gtpkg") == ["null", "a", "b"]


def test_different_precision_modes_are_named(gputune: Gputune, made: list[Path], tmp_path: Path) -> None:
    half = small_context(
        tmp_path / "half.bin", (256,), device={**DEVICE, "name": "half", "platform": "x"}, precision_mode="float16"
    )
    shown = gputune("context-binary-utility", "--context_binary", half)
    assert "precision mode: float16" in [line.strip() for line in shown.out.splitlines()]
    package = tmp_path / "m.gtpkg"
    said = (
        "outputs differ between devices, because contexts have different precision modes: 'a' float32, 'half' float16"
    )
    assert gputune("package", made[1], half, "--output", package).out.splitlines()[1:] == [said]
    assert gputune("package", "--list", package).out.splitlines()[-1] == said
    listed = json.loads(gputune("package", "--list", package, "--json").out)["contexts"]
    assert [context["precision_mode"] for context in listed] == ["float32", "float16"]
    assert len(gputune("package", *made, "--output", package).out.splitlines()) == 1


def test_rules_of_quantised_nodes_are_named(gputune: Gputune, tmp_path: Path) -> None:
    told: dict[str, object] = {"whole_numbers": {}, "exceptions": [], "steps": {}}
    made = [
        small_context(
            tmp_path / f"{name}.bin", (256,), device={**DEVICE, "name": name, "platform": "x"},
            quantised_graphs={"main": {**told, "rules": rules}},
        )
        for name, rules in (("a", "exact"), ("b", "float"))
    ]  # fmt: skip
    package = tmp_path / "m.gtpkg"
    said = gputune("package", *made, "--output", package).out.splitlines()[1]
    assert said.endswith("different precision modes: 'a' float32 quantised exact, 'b' float32 quantised float")
    listed = json.loads(gputune("package", "--list", package, "--json").out)["contexts"]
    assert [context["quantised"] for context in listed] == ["exact", "float"]


def test_the_utility_lists_a_package(gputune: Gputune, made: list[Path], tmp_path: Path) -> None:
    package = tmp_path / "m.gtpkg"
    larger = for_device(tmp_path / "c.bin", (512, 128), driver_version="2")
    gputune("package", *made, larger, "--output", package)
    ran = gputune("context-binary-utility", "--context_binary", package, "--json_file", tmp_path / "m.json")
    assert ran.code == 0, ran.err
    shown = read_json(tmp_path / "m.json")
    assert [context["tier"] for context in shown["package"]["contexts"]] == ["null", "a", "b", "c"]
    assert shown["package"]["contexts"][3]["max_spill_fill_size"] == {"main": 640}
    assert shown["group"]["arena_bytes"] == [512, 128]
    lines = ran.out.splitlines()
    assert lines[:2] == [str(package), f"  size: {package.stat().st_size:,} bytes, a package"]
    assert any(line.startswith("  context 'a': a (x, driver 1), ") for line in lines)
    assert lines[-1] == "graph 'main': max_spill_fill_size 640 bytes"


def test_verdicts_of_devices_here(
    gputune: Gputune, made: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = DeviceIdentity.from_dict({**DEVICE, "name": "a", "platform": "x", "driver_version": "3"})
    monkeypatch.setattr("gputune.client.run.packages.discover", lambda: [DeviceReport(0, here, "", True, "")])
    gputune("package", *made, "--output", tmp_path / "m.gtpkg")
    ran = gputune("package", "--list", tmp_path / "m.gtpkg", "--compatibility")
    first, second, third = ran.out.splitlines()[3:]
    assert first.startswith(
        "#0 a (x, cpu): takes 'a': near, distance 1: made for another driver: driver_version is '3'"
    )
    assert second.startswith("#0 a (x, cpu): 'b': rebuilt, distance 5: made for b, a is another cpu")
    assert third.startswith("#0 a (x, cpu): 'null': unsupported") and "made by the null device" in third


def test_net_run_takes_a_package_and_says_which_context(gputune: Gputune, made: list[Path], tmp_path: Path) -> None:
    package, inputs = tmp_path / "m.gtpkg", tmp_path / "inputs.txt"
    gputune("package", *made[1:], made[0], "--output", package)
    np.ones((2, 4), np.float32).tofile(tmp_path / "x.raw")
    inputs.write_text(f"x:={tmp_path / 'x.raw'}\n")
    options = ("--input_list", inputs, "--output_dir", tmp_path, "--summary_json", tmp_path / "s.json")
    ran = gputune("net-run", "--retrieve_context", package, *options, "--device", "null")
    assert ran.code == 0, ran.err
    assert f"{package}: context 'null', of 3 in the package: optimal" in ran.err
    choice = read_json(tmp_path / "s.json")["choice"]
    assert (choice["name"], choice["fit"], choice["distance"]) == ("null", "optimal", 0)
    ran = gputune("net-run", "--retrieve_context", package, "--validate_binary", "--device", "null")
    assert (ran.code, "are whole; optimal on null" in ran.out) == (0, True), ran.err
    two = (f"{package},{made[0]}", "--input_list", f"{inputs},{inputs}", *options[2:], "--device", "null")
    for sharing in ("--share_spill_fill", "--no_share_spill_fill"):
        ran = gputune("net-run", "--retrieve_context", *two, sharing)
        assert ran.code == 0, ran.err
        assert read_json(tmp_path / "s.json")["contexts"]["m"]["choice"]["name"] == "null"
