"""Test scripts/gpu/day: a crash or hang costs its phase, records stay, and a rehearsal fills the records."""

import json
import os
import signal
import subprocess
import sys
import tarfile
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from gpu import card, keeping, running
from gpu.phases import chains, kernel_tests, models
from gpu.plan import PHASES, Phase, box, chosen
from gpu.record import Record, spread

ROOT = Path(__file__).parents[2]
SCRIPTS = ROOT / "scripts"
OPTIONS = {"start": 0.0, "budget": 10, "cache": None}
CARD = {"card": "a card", "platform": "a platform", "driver": "1.2"}

CRASHES = """
import os, signal
from gpu.record import Record, run

def main(record: Record) -> None:
    record.put("before", value=1)
    record.say("half of it")
    os.kill(os.getpid(), signal.SIGSEGV)

run(main)
"""
HANGS = """
import subprocess, sys, time

child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
"""
WORKS = """
from gpu.record import Record, run

def main(record: Record) -> None:
    record.attempt("fails", lambda: 1 / 0)
    record.attempt("works", lambda: {"us": 2.5})
    (record.folder / "kept.txt").write_text("a file")

run(main)
"""


def day(tmp_path: Path, phases: Mapping[str, tuple[str, float]]) -> tuple[list[running.Outcome], dict[str, Any]]:
    """Runs phases that are made up, each a text and its box; the outcomes, and day.json."""
    modules, work, out = tmp_path / "modules", tmp_path / "work", tmp_path / "out"
    for folder in (modules, work, out):
        folder.mkdir()
    for name, (text, _) in phases.items():
        (modules / f"made_{name}.py").write_text(text)
    plan = [Phase(name, seconds, module=f"made_{name}") for name, (_, seconds) in phases.items()]
    path = os.pathsep.join(map(str, (modules, SCRIPTS, os.environ.get("PYTHONPATH", ""))))
    environment = {"PYTHONPATH": path, card.CARD: json.dumps(CARD)}
    outcomes = running.run_phases(plan, work, out, environment, time.monotonic() + 600, rehearse=True)
    return outcomes, keeping.read(out / keeping.DAY)


@pytest.mark.slow
def test_a_phase_that_crashes_costs_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcomes, found = day(tmp_path, {"crashes": (CRASHES, 120), "works": (WORKS, 120)})
    assert [(one.name, one.how, one.code) for one in outcomes] == [
        ("crashes", "crashed", -signal.SIGSEGV),
        ("works", "ok", 0),
    ]
    assert found["crashes"]["before"] == 1
    assert {name: found["works"][name] for name in CARD} == CARD
    assert found["works"]["works"] == {"us": 2.5}
    assert found["works"]["error"]["fails"].startswith("ZeroDivisionError")
    assert [one["how"] for one in found["outcomes"]] == ["crashed", "ok"]
    said = capsys.readouterr().out
    assert "half of it" in said
    assert "Segmentation fault" in said  # of faulthandler, in the phase's log
    with tarfile.open(tmp_path / "out" / "others.tar.gz") as package:
        assert {"works/kept.txt", "crashes.log"} <= set(package.getnames())


def test_a_phase_that_hangs_is_ended_with_all_that_it_started() -> None:
    environment = {**os.environ, running.MARK: "hangs"}
    with subprocess.Popen([sys.executable, "-c", HANGS], stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        child = int(process.stdout.readline())
        running.end_all("hangs", process)
        assert process.returncode == -signal.SIGKILL
        assert process.stdout.read() == b""  # when the last one that may write has ended
    assert child not in running.marked("hangs")


@pytest.mark.parametrize(("seconds", "how"), [(1.0, "left out"), (running.LEAST_S, "over")])
def test_no_phase_begins_without_time_or_goes_on_beyond_it(tmp_path: Path, seconds: float, how: str) -> None:
    (tmp_path / "made_sleeps.py").write_text("import time; time.sleep(600)")
    phase, environment = Phase("sleeps", 10, module="made_sleeps"), {"PYTHONPATH": str(tmp_path)}
    outcome = running.run_phase(phase, tmp_path, environment, seconds, rehearse=True)
    assert (outcome.how, outcome.code) == (how, None)


def test_what_is_left_goes_to_elastic_phases() -> None:
    phases = (Phase("a", 10), Phase("b", 20, elastic=True), Phase("c", 30, elastic=True), Phase("d", 5))
    assert box(phases, 0, 100) == 10
    assert box(phases, 1, 75) == 20 + 20 / 2
    assert box(phases, 2, 65) == 30 + 30
    assert box(phases, 3, 3) == 3
    assert box(phases, 3, -1) == 0


def test_phases_are_chosen_in_the_order_of_the_day() -> None:
    assert [phase.name for phase in chosen("models,facts")] == ["facts", "models"]
    assert chosen(None) == PHASES
    with pytest.raises(ValueError, match="no phase dinner"):
        chosen("facts,dinner")


@pytest.mark.parametrize(("kind", "rehearse", "code"), [("cpu", False, 3), ("none", True, 3), ("cpu", True, 0)])
def test_without_a_gpu_only_rehearsals_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, rehearse: bool, code: int
) -> None:
    found = None if kind == "none" else SimpleNamespace(is_gpu=False, environment={})
    monkeypatch.setattr(card, "find", lambda work, any_device: found)
    monkeypatch.setattr(running, "run_phases", lambda *arguments: [])
    options: Any = SimpleNamespace(**OPTIONS, out=tmp_path / "out", only="facts", rehearse=rehearse)
    assert running.run_day(options, tmp_path) == code


@pytest.mark.parametrize(
    ("hows", "code"),
    [(["ok"], 0), (["ok", "left out"], 0), *(([how, "ok"], 1) for how in ("failed", "crashed", "over"))],
)
def test_a_day_fails_if_a_phase_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], hows: list[str], code: int
) -> None:
    outcomes = [running.Outcome(f"phase{place}", how, None, 1.0, 2.0) for place, how in enumerate(hows)]
    monkeypatch.setattr(card, "find", lambda work, any_device: SimpleNamespace(is_gpu=True, environment={}))
    monkeypatch.setattr(running, "run_phases", lambda *arguments: outcomes)
    options: Any = SimpleNamespace(**OPTIONS, out=tmp_path / "out", only="facts", rehearse=False)
    assert running.run_day(options, tmp_path) == code
    assert ("not all phases ended well: phase0" in capsys.readouterr().err) == bool(code)


def test_phases_know_the_cache_to_begin_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[dict[str, str]] = []
    found = SimpleNamespace(is_gpu=True, environment={"GPUTUNE_DEVICE": "0"})
    monkeypatch.setattr(card, "find", lambda work, any_device: found)

    def kept(phases: Any, work: Path, out: Path, environment: dict[str, str], *others: Any) -> list[running.Outcome]:
        given.append(environment)
        return []

    monkeypatch.setattr(running, "run_phases", kept)
    for cache in (None, tmp_path / "cache"):
        options: Any = SimpleNamespace(**{**OPTIONS, "cache": cache}, out=tmp_path / "out", only="facts", rehearse=True)
        running.run_day(options, tmp_path)
    assert given == [found.environment, {**found.environment, card.CACHE: str(tmp_path / "cache")}]


def test_where_no_driver_is_found_all_that_is_known_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(card, "discover", lambda seconds: [])
    monkeypatch.setattr(card, "_found", lambda pattern: [f"/somewhere/{pattern}"])
    assert card.find(tmp_path, any_device=False) is None
    said = capsys.readouterr().out
    assert "no OpenCL driver is registered" in said
    assert "/somewhere/libnvidia-opencl*" in said
    assert "LD_LIBRARY_PATH=" in said


def test_a_library_that_is_found_becomes_a_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "far" / card.LIBRARY
    library.parent.mkdir()
    library.write_bytes(b"")
    monkeypatch.setattr(card, "_found", lambda pattern: [str(library)] if "opencl" in pattern else [])
    assert list(card._libraries())[-1] == str(library)
    monkeypatch.setenv("LD_LIBRARY_PATH", "/before")
    variables = card._registered(str(library), tmp_path)
    (entry,) = Path(variables["OCL_ICD_VENDORS"]).iterdir()
    assert entry.read_text().strip() == str(library)
    assert variables["LD_LIBRARY_PATH"] == f"/before{os.pathsep}{library.parent}"
    assert "LD_LIBRARY_PATH" not in card._registered(f"/usr/lib/x86_64-linux-gnu/{card.LIBRARY}", tmp_path)


def test_a_package_has_what_there_is_room_for(tmp_path: Path) -> None:
    for name, content in (("small.txt", b"1"), ("large.bin", os.urandom(5000))):
        (tmp_path / name).write_bytes(content)
    keeping.pack(tmp_path / "p.tar.gz", tmp_path, [tmp_path / "large.bin", tmp_path / "small.txt"], most=2000)
    with tarfile.open(tmp_path / "p.tar.gz") as package:
        assert package.getnames() == ["small.txt", "left_out.txt"]
        missing = package.extractfile("left_out.txt")
        assert missing is not None
        assert missing.read() == b"large.bin\n"


def test_two_days_next_to_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, median in (("a", 4.0), ("b", 3.0)):
        record = {"card": name, "us": {"median": median, "q1": 1, "q3": 9, "n": 5}, "only": {name: 1}, "flag": True}
        (tmp_path / f"{name}.json").write_text(json.dumps({"clblast": record}))
    command = [sys.executable, str(SCRIPTS / "gpu" / "day.py"), "--diff"]
    command += [str(tmp_path / f"{name}.json") for name in "ab"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [line.split() for line in done.stdout.splitlines()[2:]] == [["4", "3", "0.750", "clblast.us"]]
    assert keeping.print_difference(tmp_path / "a.json", tmp_path / "nothing.json") == 1


def test_what_pytest_says_is_read_with_processes_and_without() -> None:
    text = """
tests/opencl/kernels/test_pool.py::test_a[1] PASSED                      [ 10%]
[gw3] [ 20%] FAILED tests/opencl/kernels/test_top.py::test_b
[gw0] [ 30%] PASSED tests/opencl/kernels/test_top.py::test_c[x y]
FAILED tests/opencl/kernels/test_top.py::test_b - AssertionError
"""
    found = kernel_tests.results(text)
    assert sorted(found.values()) == ["FAILED", "PASSED", "PASSED"]
    assert found["tests/opencl/kernels/test_top.py::test_b"] == "FAILED"


def test_a_comparison_in_short() -> None:
    contenders = [{"name": "tuned", "time_ns": 1500}, {"name": "untuned", "time_ns": 2500}]
    assert models._in_short({"exit": 0, "summary": {"contenders": contenders}}) == "tuned 2 us, untuned 2 us"
    assert "no option" in models._in_short({"exit": 2, "said": "there is no option"})


@pytest.mark.opencl
def test_the_loop_in_c_launches_each_kernel_once(tmp_path: Path) -> None:
    from gpu.device import Device  # loads the drivers
    from gpu.loop import Launch, Loop

    device, loop = Device(), Loop(tmp_path)
    buffer = device.upload(np.zeros(64, np.float32))
    text = "__kernel void one(__global float *a) { a[get_global_id(0)] += 1.0f; }"
    kernel = device.kernel(device.build(text), "one", buffer)
    assert len(loop.run(device.queue, [Launch(kernel, (64,), (64,))] * 3)) == 3
    assert set(device.read(buffer, np.float32, 64)) == {3.0}
    with pytest.raises(OSError, match="clEnqueueNDRangeKernel"):
        loop.run(device.queue, [Launch(kernel, (64,), (63,))])


def test_samples_are_told_by_median_and_quartiles() -> None:
    assert spread([4.0, 1.0, 3.0, 2.0, 5.0]) == {"median": 3.0, "q1": 2.0, "q3": 4.0, "n": 5}
    assert spread([2.0]) == {"median": 2.0, "n": 1}
    assert spread([]) == {"n": 0}


def test_a_record_is_whole_at_any_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(card.CARD, json.dumps(CARD))
    record = Record(tmp_path / "phase.json", 10, rehearse=True)
    record.put("a", "b", value=3)
    written = keeping.read(tmp_path / "phase.json")
    assert (written["phase"], written["a"], written["rehearsal"]) == ("phase", {"b": 3}, True)
    assert written.keys() >= {*CARD, "date"}
    assert record.get("a", "b") == 3
    assert record.get("a", "c") is None


def rehearsed(tmp_path: Path, *options: str) -> dict[str, Any]:
    """Run the day as a rehearsal; return day.json."""
    command = [sys.executable, str(SCRIPTS / "gpu" / "day.py"), "--rehearse", "--budget", "900", *options]
    command += ["--out", str(tmp_path / "out"), "--work", str(tmp_path / "work")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    found = keeping.read(tmp_path / "out" / keeping.DAY)
    assert {one["how"] for one in found["outcomes"]} == {"ok"}
    assert found["facts"]["device"]["MAX_COMPUTE_UNITS"] >= 1
    return found


@pytest.mark.opencl
@pytest.mark.slow
def test_a_part_of_the_day_is_rehearsed(tmp_path: Path) -> None:
    assert rehearsed(tmp_path, "--only", "facts").keys() == {"outcomes", "facts"}


@pytest.mark.opencl
@pytest.mark.night
def test_a_rehearsal_fills_the_records(tmp_path: Path) -> None:
    """All phases run to their ends, so that no minute with a card is lost to a change elsewhere."""
    found = rehearsed(tmp_path)
    assert found.keys() == {"outcomes", *(each.name for each in PHASES)}
    assert "error" not in found["chains"] and found["chains"]["card"]
    times = {"us", "enqueue_us", "first use", "later use"}
    own = {"programs", "each program once", "each program twice"}
    each = [found["chains"][name] for name in (chains.UNTUNED, chains.EAGER, chains.TOGETHER)]
    assert all(one.keys() == times | own and one["each program twice"].keys() == times for one in each)
    assert each[0]["programs"] > each[-1]["programs"], "what can be merged is"


def test_wheels_that_were_carried_are_installed_where_they_are_missing(tmp_path: Path) -> None:
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for name in ("gputune_carried", "numpy"):
        described = f"{name}-1.0.dist-info"
        with zipfile.ZipFile(wheels / f"{name}-1.0-py3-none-any.whl", "w") as wheel:
            wheel.writestr(f"{name}.py", "WHO = 'carried'\n")
            wheel.writestr(f"{described}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            wheel.writestr(f"{described}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            wheel.writestr(f"{described}/RECORD", "")
    asked = "import gputune_carried, importlib.util as u; print(gputune_carried.WHO, u.find_spec('numpy').origin)"
    code = (
        f"from pathlib import Path; import day; day._install(Path({str(tmp_path)!r}), Path({str(wheels)!r})); {asked}"
    )
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS / "gpu")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment)
    who, _, numpy_path = done.stdout.strip().partition(" ")
    assert who == "carried", done.stderr
    assert not numpy_path.startswith(str(tmp_path))
