"""Test scripts/gpu/check: rules see what they are for, and exceptions stay needed."""

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpu.checking import exceptions, main
from gpu.checking.cases import CHAIN, DEFAULT, PERSISTENT, RANDOM, STARTER, Case, cases, persistent_case
from gpu.checking.devices import DEVICES, PHONES
from gpu.checking.exceptions import KNOWN, Known, Place
from gpu.checking.problems import IN_HALF, PHONE_SAMPLE, PROBLEMS, SAMPLE, Named
from gpu.checking.report import Report
from gpu.checking.results import Results
from gpu.checking.rules import RULES, Look, broken
from gpu.compiling.compilers import Compiler, Found, NotCompiled
from gpu.compiling.listing import Facts
from gpu.compiling.tools import Tools
from gputune.client.progress import SILENT
from gputune.core.json_text import json_value
from gputune.core.launches import Needs, Stage
from gputune.kernels.catalogue import families, family_of
from gputune.kernels.ops.matmul import MatMulProblem

H100, GFX90A, DG2 = DEVICES["h100"], DEVICES["gfx90a"], DEVICES["dg2"]
KERNEL = Stage("run", (132 * 64,), (64,), (), needs=Needs())
CASE = Case(Named("one", "Conv", None), H100, DEFAULT, {"VW": 4}, "", "", (KERNEL,), 1 << 20)
IN_HALVES = replace(CASE, problem=Named("one", "MatMul", MatMulProblem(8, 8, 8, dtype="float16")))
FINE = Facts(40, 0, 0, 1 << 10, {"16": 96, "4": 4})
GOOD = Look(CASE, KERNEL, FINE)
PHONE = replace(
    GOOD,
    case=replace(CASE, device=DEVICES["adreno740"]),
    kernel=replace(KERNEL, entry="matmul_tiled"),
    facts=Facts(12, 0),
)
LARGE = replace(KERNEL, global_size=(132 * 2048,), local_size=(2048,))
ROOMY = replace(KERNEL, global_size=(132 * 256,), local_size=(256,))
GREEDY = replace(KERNEL, needs=Needs(local_bytes=1 << 20))
FENCES = {"membar.cta": 2, "ld.global.nc.f32": 1, "fence.acq_rel.gpu": 3}


@pytest.mark.parametrize(
    ("rule", "look"),
    [
        ("compiles", replace(GOOD, facts=None, fault="clang-15: error")),
        ("fits_limits", replace(GOOD, kernel=LARGE)),
        ("fits_limits", replace(GOOD, kernel=GREEDY)),
        ("no_spills", replace(GOOD, facts=replace(FINE, spills=8))),
        ("no_stack", replace(GOOD, facts=replace(FINE, stack_bytes=8))),
        ("local_memory", replace(GOOD, facts=replace(FINE, local_bytes=(48 << 10) + 1))),
        ("wide_accesses", replace(GOOD, facts=replace(FINE, widths={"16": 80, "4": 20}))),
        ("wide_accesses", replace(GOOD, case=IN_HALVES, facts=replace(FINE, widths={"8": 80, "2": 20}))),
        ("fills_device", replace(GOOD, kernel=replace(KERNEL, global_size=(1024,), local_size=(4,)))),
        ("occupancy", replace(GOOD, kernel=ROOMY, facts=replace(FINE, registers=129))),
        ("occupancy", replace(GOOD, kernel=replace(ROOMY, local_size=(192,)), facts=replace(FINE, registers=255))),
        ("phone_registers", replace(PHONE, facts=Facts(33, 0))),
        ("no_spills", replace(PHONE, facts=Facts(12, 8))),
        ("multiply_adds", replace(PHONE, facts=Facts(19, 0, multiply_adds=64, slots=335))),
        ("load_cycles", replace(PHONE, facts=Facts(spills=0, load_cycles=25.0))),
        ("enough_groups", replace(GOOD, kernel=replace(KERNEL, global_size=(131 * 64,)))),
        (
            "ordered_memory",
            replace(
                GOOD,
                case=replace(CASE, problem=Named("chain", PERSISTENT, None)),
                facts=replace(FINE, instructions=FENCES),
            ),
        ),
    ],
)
def test_a_rule_sees_what_it_is_for(rule: str, look: Look) -> None:
    assert broken(GOOD) == {}
    assert list(broken(look)) == [rule]


@pytest.mark.parametrize(
    "look",
    [
        replace(GOOD, facts=None),
        replace(GOOD, case=replace(IN_HALVES, configuration={"VW": 2}), facts=replace(FINE, widths={"4": 4})),
        replace(GOOD, case=replace(CASE, configuration={"VW": 1}), facts=replace(FINE, widths={"4": 4})),
        replace(GOOD, case=replace(CASE, kind=RANDOM), kernel=replace(KERNEL, global_size=(64,))),
        replace(GOOD, case=replace(CASE, elements=4 * 131 * 32), kernel=replace(KERNEL, global_size=(131 * 64,))),
        replace(GOOD, case=replace(CASE, device=GFX90A), kernel=replace(KERNEL, global_size=(104 * 64,))),
        replace(GOOD, case=replace(CASE, elements=1000), kernel=replace(KERNEL, global_size=(64,))),
        replace(GOOD, facts=replace(FINE, instructions=FENCES)),
        replace(GOOD, kernel=ROOMY, facts=replace(FINE, registers=128)),
        replace(GOOD, kernel=ROOMY, facts=replace(FINE, registers=154)),
        replace(PHONE, facts=Facts(16, 0, multiply_adds=64, slots=124)),
        replace(PHONE, facts=Facts(spills=0, load_cycles=12.0)),
    ],
)
def test_a_rule_sees_nothing_else(look: Look) -> None:
    assert broken(look) == {}


def test_kernels_have_the_ratio_that_they_are_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu.checking.rules.LEAST_RATIO", {"run": (8, 6)})
    facts = replace(FINE, multiply_adds=64, loads=8)
    assert broken(replace(GOOD, facts=facts)) == {}
    assert list(broken(replace(GOOD, facts=replace(facts, loads=9)))) == ["enough_arithmetic"]


def test_every_family_has_problems_with_names_of_their_own() -> None:
    assert {each.family for each in PROBLEMS} == set(families())
    names = [each.name for each in PROBLEMS]
    assert len(names) == len(set(names))
    assert set(names) >= {*SAMPLE, *CHAIN}


def test_families_of_floats_have_problems_in_half() -> None:
    assert {each.title for each in IN_HALF} == {f"{name} in half" for name in families() if name != "Typed"}


def test_an_exception_of_a_family_excuses_it_in_half_but_not_the_reverse() -> None:
    broken = Place("Conv in half", "one", "run", "h100", "no_spills")
    assert Known("Conv", "no_spills", "large").excuses(broken)
    assert Known("Conv in half", "no_spills", "large").excuses(broken)
    assert not Known("Conv in half", "no_spills", "large").excuses(broken._replace(family="Conv"))


def test_exceptions_name_what_there_is() -> None:
    known_families = {*families(), PERSISTENT, *(each.title for each in IN_HALF)}
    assert [each for each in KNOWN if each.family not in known_families or each.rule not in RULES] == []
    assert [each for each in KNOWN if not set(each.devices) <= set(DEVICES) or not each.reason] == []
    names = {each.name for each in PROBLEMS}
    assert [each for each in KNOWN if not set(each.problems) <= names] == []


def report_of(*looks: Look, whole: bool = True, known: tuple[Known, ...] = ()) -> Report:
    report = Report(whole, known=known)
    for look in looks:
        report.add(look)
    return report


def test_a_broken_rule_needs_an_exception_and_an_exception_a_broken_rule() -> None:
    spilling = replace(GOOD, facts=replace(FINE, spills=8))
    excused = Known("Conv", "no_spills", "it is large")
    assert not report_of(GOOD).failed
    assert report_of(spilling).failed
    assert "rules broken without an exception (1)" in report_of(spilling).text()
    assert not report_of(spilling, known=(excused,)).failed
    assert "no_spills: it is large; Conv 1 on h100" in report_of(spilling, known=(excused,)).text()
    assert report_of(GOOD, known=(excused,)).needless == [excused]
    assert "exceptions that nothing needs any more (1)" in report_of(GOOD, known=(excused,)).text()
    assert not report_of(GOOD, whole=False, known=(excused,)).failed
    narrowed: tuple[dict[str, Any], ...] = ({"devices": ("dg2",)}, {"problems": ("two",)}, {"kernels": ("walk",)})
    for narrow in narrowed:
        assert report_of(spilling, known=(replace(excused, **narrow),)).failed


def test_what_random_configurations_spill_is_listed_only() -> None:
    case = replace(CASE, kind=RANDOM)
    report = report_of(Look(case, KERNEL, replace(FINE, spills=8)))
    assert not report.failed
    assert "random configurations that spill (1)" in report.text()
    assert report.plain()["kernels"][0]["facts"]["spills"] == 8


def test_configurations_are_drawn_the_same_each_time_and_legal() -> None:
    problem = next(each for each in PROBLEMS if each.name == "gemm-1024")
    drawn = [case.configuration for case in cases([problem], [H100], (), 5)]
    assert drawn == [case.configuration for case in cases([problem], [H100], (), 5)]
    assert [each["ALG"] for each in drawn] == [0] * 5 + [1] * 5
    space = family_of("MatMul").space(problem.problem, H100.limits)
    assert [space.violations(each) for each in drawn] == [[]] * 10


@pytest.mark.parametrize("more", [(), ("vit-norm",)])
def test_launches_that_cannot_be_merged_leave_a_persistent_kernel(
    monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    monkeypatch.setattr("gpu.checking.cases.CHAIN", (*CHAIN, *more))
    (kernel,) = persistent_case(H100).kernels
    assert kernel.global_size == (H100.limits.compute_units,)
    assert f"void {kernel.entry}(" in persistent_case(H100).source


class Counting(Compiler):
    """A compiler that counts how often it is asked, and refuses texts that say so."""

    programs = ("none",)
    version = "1"
    asked = 0

    def _compile(self, text: Path, options: list[str], architecture: str) -> Found:
        self.asked += 1
        if "wrong" in text.read_text():
            raise NotCompiled("it is wrong")
        return {"run": FINE}


def test_results_are_kept_by_all_that_decides_them(tmp_path: Path) -> None:
    compiler = Counting(Tools(tmp_path))
    results = Results(Tools(tmp_path), tmp_path / "kept")
    results.__dict__["compilers"] = {"nvidia": compiler}
    case = replace(CASE, source="text")
    for _ in range(2):
        assert list(results.looks(case)) == [Look(case, KERNEL, FINE)]
        (look,) = results.looks(replace(case, source="wrong"))
        assert (look.facts, look.fault) == (None, "it is wrong")
    assert compiler.asked == 2
    for other in (replace(case, options="-DA=1"), replace(case, device=DEVICES["rtx3060"]), replace(case, source="")):
        list(results.looks(other))
    assert compiler.asked == 5
    compiler.version = "2"
    list(results.looks(case))
    assert compiler.asked == 6


def test_what_is_left_out_for_want_of_a_tool_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tools, "program", lambda self, name: None)
    results = Results(Tools(tmp_path), tmp_path)
    assert len(results.left_out) == 5
    assert "clang-15, ptxas, nvdisasm" in results.left_out[0]
    assert list(results.looks(CASE)) == [Look(CASE, KERNEL)]


@pytest.mark.parametrize("arguments", [["--family", "Nothing"], ["--device", "h100,toaster"]])
def test_wrong_names_are_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main.main(arguments)
    assert "there are " in capsys.readouterr().err


def test_where_no_compiler_exists_kernels_are_rendered_and_limits_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gpu.checking.results.COMPILERS", {})
    found = tmp_path / "found.json"
    assert main.main(["--family", "TopK,Softmax", "--device", "adreno740", "--random", "2", "--json", str(found)]) == 0
    kernels = json_value(found.read_bytes())["kernels"]
    assert {each["family"] for each in kernels} == {"TopK", "Softmax"}
    assert {each["kind"] for each in kernels} == {DEFAULT, STARTER, RANDOM}
    assert all(each["facts"] is None for each in kernels)


@pytest.mark.parametrize(
    ("arguments", "left_out", "whole"),
    [
        ([], [], True),
        ([], ["amd's devices"], False),
        (["--device", "h100"], [], False),
        (["--family", "Pool"], [], False),
    ],
)
def test_exceptions_are_judged_when_everything_is_checked(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], left_out: list[str], whole: bool
) -> None:
    seen: list[Report] = []
    monkeypatch.setattr(Results, "left_out", left_out)
    monkeypatch.setattr(main, "chosen_cases", lambda *_: [])
    monkeypatch.setattr(main, "check", lambda chosen, results, report, progress: seen.append(report))
    assert main.main(arguments) == int(whole)  # nothing is compiled, so no exception is needed
    assert [(report.whole, report.left_out) for report in seen] == [(whole, left_out)]


@pytest.mark.night
@pytest.mark.parametrize(
    ("device", "names"),
    [*((device, SAMPLE) for device in (H100, GFX90A, DG2)), *((DEVICES[name], PHONE_SAMPLE) for name in PHONES)],
    ids=[H100.name, GFX90A.name, DG2.name, *PHONES],
)
def test_a_sample_of_todays_kernels_keeps_the_rules(device: Any, names: Sequence[str]) -> None:
    results = Results()
    if device.maker not in results.compilers:
        pytest.skip("; ".join(results.left_out) + "; scripts/setup --gpu-tools brings it")
    chosen = list(cases([each for each in PROBLEMS if each.name in names], [device], (DEFAULT,), 0))
    if device is H100:
        chosen.append(persistent_case(device))
    report = Report(whole=False)
    main.check(chosen, results, report, SILENT)
    assert [f"{fault.look.case.title}: {fault.rule}, {fault.why}" for fault in report.unexcused] == []
    assert len(report.looks) >= len(chosen)
    assert all(math.prod(look.kernel.global_size) for look in report.looks)


def test_needless_exceptions_are_found_over_all_that_is_broken() -> None:
    one, two = Known("Conv", "no_stack", "arrays"), Known("Pool", "no_stack", "arrays", devices=("dg2",))
    found = {Place("Conv", "resnet-7", "run", "h100", "no_stack"), Place("Pool", "any", "run", "h100", "no_stack")}
    assert exceptions.needless(found, (one, two)) == [two]
