"""Test gputune power on trees of fake files."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gputune.client.doctor import power
from gputune.runtime.native.power import Controls
from gputune.runtime.power.fake_trees import make_tree
from tests.client.commands import Gputune


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return make_tree(tmp_path / "root", "mali")


def test_show_lists_what_is_found(gputune: Gputune, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    ran = gputune("power", "show", "--root", root)
    assert ran.code == 0
    rows = [line.split() for line in ran.out.splitlines() if "/13000000.mali/" in line]
    assert [(row[3].rpartition("/")[2], row[5], row[7]) for row in rows] == [
        ("governor", "simple_ondemand", "yes"),
        ("min_freq", "200000000", "yes"),
        ("max_freq", "800000000", "yes"),
    ]
    told = json.loads(gputune("power", "show", "--root", root, "--json").out)
    assert told["effective"]["devfreq.13000000.mali_max_hz"] == 800e6


def test_what_refuses_is_told(gputune: Gputune, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    advice = "not allowed; run as root, or give the file to a group by a udev rule"
    found = Controls.all
    monkeypatch.setattr(
        Controls,
        "all",
        lambda self: [
            each._replace(refusal="EACCES", advice=advice) if "devfreq" in each.path else each for each in found(self)
        ],
    )
    ran = gputune("power", "show", "--root", root)
    assert f"EACCES: {advice}" in ran.out.splitlines()
    assert "[refused now: EACCES" in gputune("power", "check", "--root", root).out
    (nothing,) = power.check_power(tmp_path / "empty")
    assert nothing.line.startswith("no control of clocks or power")
    denied, open_to_all = power.check_power(root)
    assert denied.line.startswith("devfreq: 3 of 3 controls cannot be written")
    assert (denied.status, open_to_all.status) == ("note", "ok")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everything")
def test_a_file_that_may_not_be_written_refuses(root: Path) -> None:
    for path in root.rglob("min_freq"):
        path.chmod(0o444)
    with Controls(None, root) as controls:
        assert [each.refusal for each in controls.all()] == ["", "EACCES", "", ""]


def test_check_says_what_would_be_written_and_writes_nothing(gputune: Gputune, root: Path) -> None:
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    ran = gputune("power", "check", "--root", root, "--perf_profile", "burst", "--json")
    writes = {
        step: [f"{Path(each['path']).name}={each['value']}" for each in plan]
        for step, plan in json.loads(ran.out)["writes"].items()
    }
    assert list(writes)[-3:] == ["deinit start", "deinit done", "close"]
    assert writes["init start"] == ["governor=performance", "min_freq=800000000", "cpu_dma_latency=40"]
    assert writes["init done"] == [
        "governor=simple_ondemand",
        "min_freq=300000000",
        "max_freq=400000000",
        "cpu_dma_latency=2000",
    ]
    assert writes["execute start"] == [
        "governor=performance",
        "max_freq=800000000",
        "min_freq=800000000",
        "cpu_dma_latency=40",
    ]
    assert writes["close"] == ["max_freq=800000000", "cpu_dma_latency="]
    assert json.loads(ran.out)["ignored"] == ["bus", "high_performance", "DSP_RPC_POLLING_TIME_US"]
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


def test_profiles_that_are_none(gputune: Gputune, root: Path, tmp_path: Path) -> None:
    silent = gputune("power", "check", "--root", root, "--perf_profile", "system_settings")
    assert silent.out == "system_settings asks for nothing: nothing is read or written\n"
    file = tmp_path / "profile.yaml"
    file.write_text("general:\n  ASYNC: true\n")
    assert gputune("power", "check", "--perf_config_yaml", file).code == 2


def test_all_presets_are_listed(gputune: Gputune, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    lines = gputune("power", "presets").out.splitlines()
    row = next(line.split() for line in lines if "sustained_high_performance" in line)
    assert row[3:5] == ["TURBO", "held,"]
    assert len(json.loads(gputune("power", "presets", "--json").out)) == 10


def test_a_tree_is_made_in_a_new_folder_only(gputune: Gputune, tmp_path: Path) -> None:
    folder = tmp_path / "phone"
    assert gputune("power", "fake-tree", folder, "kgsl").code == 0
    assert (folder / "sys/class/kgsl/kgsl-3d0/max_pwrlevel").read_text() == "1\n"
    assert gputune("power", "fake-tree", folder).code == 2


VOTING = """
import sys
from pathlib import Path
from gputune.runtime.native.power import Controls, Votes, preset_of
from tests.native.voting import MALI, identity
from tests.waiting import becomes

least = Path(sys.argv[2])
votes = Votes(Controls(identity(MALI), Path(sys.argv[1])), preset_of("burst"))
votes.begin("execute")
assert becomes(lambda: least.read_text() == "800000000")
print("voted", flush=True)
sys.stdin.read()
"""


def test_what_a_killed_process_left_is_brought_back(
    gputune: Gputune, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    before = {path: path.read_text() for path in root.rglob("13000000.mali/*")}
    least = root / "sys/class/devfreq/13000000.mali/min_freq"
    with subprocess.Popen(
        [sys.executable, "-c", VOTING, str(root), str(least)],
        cwd=Path(__file__).parents[3],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as voting:
        assert voting.stdout is not None
        assert voting.stdout.readline() == "voted\n"
        assert f"process {voting.pid} votes" in gputune("power", "restore", "--root", root).out
        assert least.read_text() == "800000000"
        voting.kill()
    ran = gputune("power", "restore", "--root", root)
    assert (ran.code, f"{least}: 800000000 -> 200000000" in ran.out.splitlines()) == (0, True)
    assert {path: path.read_text() for path in before} == before
    assert gputune("power", "restore", "--root", root).out == "done\n"
    assert list(tmp_path.glob("gputune-power/*")) == []
