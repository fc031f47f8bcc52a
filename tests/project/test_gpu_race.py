"""Test scripts/gpu/race and scripts/gpu/third: findings are read rightly, and faults that are put in are named."""

from pathlib import Path

import pytest

from gpu.compiling.tools import Tools
from gpu.drivers import found, race, third
from gpu.drivers.findings import findings, gathered
from gpu.drivers.running import ROOT, TESTS, DidNotRun, Driver, Outcome, run
from gpu.drivers.witness import sampled, short
from gputune.client.progress import SILENT
from gputune.core.json_text import json_value

SAID = """
Read-write data race at local memory address 0x1000000000004
\tKernel: softmax_rows
\t
\tFirst entity:  Global(1,0,0) Local(1,0,0) Group(0,0,0)
\t  store float %0, float addrspace(3)* %arrayidx2, align 4, !dbg !45, !tbaa !40
\tAt line 205 (column 10) of input.cl:
\t  SHARE(MAX, maximum)
\t
\tSecond entity: Global(0,0,0) Local(0,0,0) Group(0,0,0)
\t  %1 = load float, float addrspace(3)* %arrayidx4, align 4, !dbg !48, !tbaa !40
\tAt line 206 (column 15) of input.cl:
\t  no_template = has(this);
\t

Invalid write of size 4 at global memory address 0x3000000000040
\tKernel: odd
\tEntity: Global(3,0,0) Local(3,0,0) Group(0,0,0)
\t  store float %1, float addrspace(1)* %arrayidx7, align 4
\tDebugging information not available.
\t
"""
FAULTS = {
    "softmax_rows.cl": r"(half_ /= 2\) \{ +\\\n +)barrier\(CLK_LOCAL_MEM_FENCE\);",
    "scan_axis.cl": r"()    if \(row >= OUTER \* BLOCKS\)\n        return;\n",
}
"""What is taken out of templates, by expressions whose group stays: a barrier, and a check of bounds."""
PLUGIN = f"""
import pathlib, re
faults, plain = {FAULTS!r}, pathlib.Path.read_text

def read_text(self, *positional, **named):
    text = plain(self, *positional, **named)
    if self.name in faults:
        text, number = re.subn(faults[self.name], "\\\\1", text)
        assert number == 1, self.name
    return text

pathlib.Path.read_text = read_text
"""


def wanted(name: str) -> Driver:
    """A driver; the test is skipped where it is not there."""
    try:
        return {"oclgrind": found.oclgrind, **found.THIRD}[name](Tools())
    except found.NotThere as error:
        pytest.skip(str(error))


def test_what_the_simulator_says_is_read() -> None:
    raced, beyond = findings(SAID)
    assert (raced.what, raced.kernel) == ("Read-write data race at local memory", "softmax_rows")
    first, second = raced.accesses
    assert first.item == "Global(1,0,0) Local(1,0,0) Group(0,0,0)"
    template = (ROOT / "kernels" / "ops" / "softmax_rows.cl").read_text(encoding="utf-8").splitlines()
    assert template[int(first.place.removeprefix("softmax_rows.cl:")) - 1].strip() == "SHARE(MAX, maximum)"
    assert (
        str(second)
        == "Global(0,0,0) Local(0,0,0) Group(0,0,0) at line 206 of the rendered text: no_template = has(this);"
    )
    assert (beyond.what, beyond.accesses[0].line) == ("Invalid write of size 4 at global memory", 0)


def test_findings_with_one_cause_are_one() -> None:
    once, again = Outcome("a", stderr=SAID), Outcome("b", stderr=SAID + SAID.replace("Global(1", "Global(7"))
    raced, beyond = gathered([once, again])
    assert (raced.count, raced.tests, beyond.tests) == (3, ["a", "b"], ["a", "b"])
    assert "3 times, in a and 1 tests more" in race.text([once, again], [raced, beyond])


def test_a_test_is_what_its_steps_are() -> None:
    outcome = Outcome("a")
    for step, how, why in (
        ("setup", "passed", ""),
        ("call", "failed", "x\nE   AssertionError:\nE   wrong\n"),
        ("teardown", "passed", ""),
    ):
        outcome.add({"step": step, "outcome": how, "seconds": 1.0, "why": why, "stderr": step})
    assert (outcome.outcome, outcome.reason, outcome.seconds) == ("failed", "wrong", 3)
    assert outcome.stderr == "setupcallteardown"
    outcome.stderr = "\nOCLGRIND FATAL ERROR (./a.cpp:1)\nUnsupported instruction: freeze\n"
    assert outcome.reason == "oclgrind cannot do this: Unsupported instruction: freeze"


def test_a_sample_has_a_test_of_each_function_and_family() -> None:
    tests = [f"x/a.py::test_p[{name}]" for name in ("Conv-a", "Conv-b", "MatMul-a", "MatMul-b")]
    tests += [f"x/b.py::test_q[{number}]" for number in range(9)] + ["x/b.py::test_r"]
    chosen = sampled(tests, 1)
    assert [test.partition("-")[0].partition("[")[2] for test in chosen[:2]] == ["Conv", "MatMul"]
    assert [short(test)[:12] for test in chosen[2:]] == ["b.py::test_q", "b.py::test_r"]
    assert set(chosen) == set(sampled(tests[::-1], 1))


def test_failures_and_entries_that_are_not_expected_are_faults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu.drivers.third.KNOWN", {"x": {"a.py::test_p": "reason", "a.py::test_q": "other"}})
    outcomes = [Outcome("t/a.py::test_p[1]", "failed", why="E  no"), Outcome("t/a.py::test_z", "failed", why="E  yes")]
    result = third.Result("x", outcomes, whole=True)
    assert [outcome.reason for outcome in result.unknown] == ["yes"]
    assert result.unneeded == ["a.py::test_q"]
    assert not third.Result("x", outcomes, whole=False).unneeded
    assert "1 tests fail as is known: a.py::test_p: reason" in result.text()


def test_what_is_not_there_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in (race, third):
        monkeypatch.setattr(module, "Tools", lambda: Tools(tmp_path))
    monkeypatch.setattr("sys.prefix", str(tmp_path))
    assert (race.main([]), third.main([])) == (3, 3)
    told = capsys.readouterr().err
    assert "oclgrind is not there; scripts/setup --gpu-tools brings it" in told
    assert "intel is left out: " in told and "rusticl is left out: " in told


@pytest.mark.slow
def test_a_run_that_ends_early_is_no_run() -> None:
    with pytest.raises(DidNotRun, match="unrecognized arguments"):
        run(Driver("none", Path("none"), {}), ["--no-such-option"], 1, SILENT)


@pytest.mark.night
def test_a_barrier_and_a_check_of_bounds_taken_out_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted("oclgrind")
    (tmp_path / "taken_out.py").write_text(PLUGIN, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    tests = [f"{TESTS}/test_softmax.py::test_work_items_share_a_row", f"{TESTS}/test_reduce.py::test_kernels_are_right"]
    report = tmp_path / "report.json"
    assert race.main(["-p", "taken_out", *tests, "-k", "share or scan", "--json", str(report)]) == 1
    named = {(each["what"], each["kernel"]): each["accesses"] for each in json_value(report.read_text())["findings"]}
    first, second = named["Read-write data race at local memory", "softmax_rows"]
    assert first["item"] != second["item"]
    assert {access["source"] for access in (first, second)} <= {"SHARE(MAX, maximum)", "SHARE(ADD, sum)"}
    assert first["place"].startswith("softmax_rows.cl:")
    (beyond,) = named["Invalid write of size 4 at global memory", "scan_axis"]
    assert beyond["source"] == "STORE(value, p, 0);"


@pytest.mark.night
def test_a_sample_of_the_kernel_tests_has_no_finding(capsys: pytest.CaptureFixture[str]) -> None:
    wanted("oclgrind")
    assert race.main(["--sample"]) == 0, capsys.readouterr().out
    assert "0 findings" in capsys.readouterr().out


@pytest.mark.night
@pytest.mark.parametrize("name", list(found.THIRD))
def test_a_kernel_runs_on_another_driver(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    wanted(name)
    test = f"{TESTS}/test_softmax.py::test_work_items_share_a_row[shape1-4-0]"
    assert third.main(["--driver", name, "--processes", "1", test]) == 0, capsys.readouterr().out
    assert f"{name}: 1 passed" in capsys.readouterr().out
