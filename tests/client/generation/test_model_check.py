"""Test gputune model-check: what runs, what does not and why, and what it costs."""

import ast
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import gputune as api
from gputune import client
from gputune.cache import PerformanceCache
from gputune.client.errors import Refusal
from gputune.client.generation.model_check import COUNTED, PROGRAM_SECONDS, TRIAL_SECONDS, check_model, describe
from gputune.client.model.importer import SUPPORTED_OPS, read_model
from gputune.client.model.lowering import lower
from gputune.client.model.nearest import NEAREST, nearest_form
from gputune.client.model.plan import Task
from gputune.client.tuning.measuring import peaks
from gputune.client.tuning.measuring.peaks import ASSUMED
from gputune.client.tuning.search.effort import EFFORTS
from gputune.client.tuning.search.task_search import device_limits
from gputune.kernels.catalogue import family_of
from gputune.kernels.chain import EMPTY
from gputune.kernels.ops.elementwise import ElementwiseProblem
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.runtime.devices.discovery import NULL_REPORT
from tests.client import models
from tests.client.answering_target import AnsweringTarget, by_width, tuner
from tests.client.commands import Gputune
from tests.client.summaries import problems

assert NULL_REPORT.identity is not None
LIMITS = device_limits(NULL_REPORT.identity)


def checked(path: Path, *arguments: object, gputune: Gputune) -> tuple[int, Any]:
    """The exit code and the content of --json, which is what its schema says."""
    ran = gputune("model-check", path, "--json", *arguments)
    content = json.loads(ran.out)
    assert problems("model-check", content) == []
    return ran.code, content


def test_a_model_that_runs(gputune: Gputune, tmp_path: Path) -> None:
    path = models.save(models.conv_relu_gemm(), tmp_path)
    code, content = checked(path, "--peak_gflops", 2, "--peak_gbps", 4, gputune=gputune)
    assert (code, content["runs_wholly"], content["unsupported"]) == (0, True, [])
    graph, plan = read_model(path), lower(read_model(path))
    assert [one["node"] for one in content["supported"]] == [node.name for node in graph.nodes]
    assert {one["op"]: one["operation"] for one in content["supported"]}["Relu"] == plan.operations[0].name, "fused"
    works = [family_of(each.task.op).work(each.task.problem) for each in plan.operations]
    assert content["flops"] == sum(work.flops for work in works)
    assert content["bytes"] == sum(work.bytes for work in works)
    assert content["roofline_ns"] == pytest.approx(sum(max(work.flops / 2, work.bytes / 4) for work in works))
    assert content["constant_bytes"] == sum(value.nbytes for value in plan.constants.values())
    assert content["peaks"]["origin"] == "given"


@pytest.mark.parametrize(
    ("body", "elements"),
    [
        ("a = MatMul(x, w) b = Tanh(a) c = MatMul(b, w) d = Tanh(c) y = MatMul(d, w)", 64 * 64),
        ("a = Gemm<transB = 1>(x, w, v) b = Tanh(a) c = Gemm<transB = 1>(b, w, v) d = Tanh(c) y = MatMul(d, u)",
         2 * 64 * 64 + 64),
        ("a = MatMul(x, w) b = Tanh(a) c = MatMul(b, same) d = Tanh(c) y = MatMul(d, u)", 2 * 64 * 64),
    ],
)  # fmt: skip
def test_weights_of_several_operations_are_counted_once(
    body: str, elements: int, gputune: Gputune, tmp_path: Path
) -> None:
    """In a layer that was unrolled; in the sum of weights, in the bytes that are moved, and in the roofline."""
    w = np.random.default_rng(0).standard_normal((64, 64), dtype=np.float32)
    weights: dict[str, tuple[int, ...] | models.Array] = {"w": w, "same": w, "u": (64, 64), "v": (64,)}
    path = models.save(models.build("(float[1,64] x) => (float[1,64] y)", body, weights), tmp_path)
    code, content = checked(path, "--peak_gflops", 1e6, "--peak_gbps", 1, gputune=gputune)
    assert code == 0 and content["constant_bytes"] == 4 * elements
    between = content["bytes"] - 4 * elements
    assert 0 < between < 4 * 64 * 20, "what operations hand to each other"
    assert content["roofline_ns"] == pytest.approx(content["bytes"])
    assert sum(task["total_ns"] for task in content["tasks"]) == pytest.approx(content["roofline_ns"])
    assert any(task["total_ns"] < task["weight"] * task["roofline_ns"] for task in content["tasks"])


def test_bytes_are_counted_in_a_precision_mode(gputune: Gputune, tmp_path: Path) -> None:
    path = models.save(models.conv_relu_gemm(), tmp_path)
    _, usual = checked(path, gputune=gputune)
    code, stored = checked(path, "--precision_mode", "float16_storage", gputune=gputune)
    assert (code, usual["precision_mode"], stored["precision_mode"]) == (0, "float32", "float16_storage")
    assert 2 * stored["constant_bytes"] == usual["constant_bytes"] and stored["bytes"] < usual["bytes"]
    said = gputune("model-check", path, "--precision_mode", "float16").out.splitlines()[0]
    assert said.startswith(f"{path}: all of it runs, in float16; ")


def test_dimensions_are_given_by_their_names(gputune: Gputune, tmp_path: Path) -> None:
    model = models.build("(float[N,4] a, float[N,2] b) => (float[N,6] y)", "y = Concat<axis=1>(a, b)")
    path = models.save(model, tmp_path)
    code, content = checked(path, "--input_dimensions", "N=20", gputune=gputune)
    assert (code, content["input_dimensions"], content["bytes"]) == (0, {"N": [20]}, 2 * 20 * 6 * 4)
    assert api.check(path, {"N": 20}).bytes == content["bytes"]
    ran = gputune("model-check", path, "--input_dimensions", "a=20,4;b=21,2")
    assert ran.code == 3 and "'N'" in ran.last_line


def test_values_make_inputs_constants(gputune: Gputune, tmp_path: Path) -> None:
    body = "s = Mul(v, k) l = Cast<to=7>(s) y = Reshape(x, l)"
    model = models.build("(float[6] x, float[2] v) => (float[a,b] y)", body, {"k": models.numbers(2)})
    path = models.save(model, tmp_path)
    assert checked(path, gputune=gputune)[0] == 9
    code, content = checked(path, "--input_value", "v=1,1.5", gputune=gputune)
    assert (code, content["input_values"]) == (0, {"v": [1, 1.5]})
    assert api.check(path, input_values={"v": [1, 1.5]}).runs
    ran = gputune("model-check", path, "--input_value", "w=1")
    assert ran.code == 3 and "has no input 'w'" in ran.last_line


def test_trials_are_those_of_the_tuner(tmp_path: Path, cache: PerformanceCache, gputune: Gputune) -> None:
    path = models.save(models.conv_relu_gemm(), tmp_path)
    found = check_model(path, {})
    assert found.model is not None
    content = describe(found, ASSUMED, LIMITS)["tuning"]
    for name in ("quick", "normal"):
        tuning = tuner(AnsweringTarget(by_width), cache, EFFORTS[name])
        assert describe(found, ASSUMED, tuning._limits)["tuning"][name]["trials"] == tuning.expected_trials(
            found.model.tasks
        )
    sizes = [family_of(task.op).space(task.problem, LIMITS).size for task in found.model.tasks]
    assert content["full"]["at_least"] == any(size >= COUNTED for size in sizes)
    one = PROGRAM_SECONDS * len(found.model.plan.tasks)
    own = {"trials": 0, "seconds": one, "compiling_seconds": one, "compare_seconds": 0.0, "at_least": False}
    assert content["none"] == own
    for name in ("quick", "normal", "full"):
        told = content[name]
        assert (told["compiling_seconds"], told["compare_seconds"]) == (2 * one, EFFORTS[name].compare_seconds)
        assert told["seconds"] == pytest.approx(TRIAL_SECONDS * told["trials"] + 2 * one + told["compare_seconds"])
    assert f"(at most {content['quick']['trials']} trials)" in gputune("model-check", path).out
    seconds = [content[name]["seconds"] for name in ("none", "quick", "normal", "full")]
    assert seconds == sorted(seconds)


def test_every_node_without_kernels_is_named(gputune: Gputune, tmp_path: Path) -> None:
    model = models.build(
        "(float[1,3,5,5] x) => (float[1,3] y, int64[4,n] z)",
        "a = Relu(x) y = Det(a) z = NonZero(x)",
    )
    code, content = checked(models.save(model, tmp_path), gputune=gputune)
    assert (code, content["runs_wholly"], content["nodes"]) == (9, False, 3)
    assert [one["op"] for one in content["unsupported"]] == ["Det", "NonZero"]
    assert "on the host" in content["unsupported"][1]["nearest"]
    ran = gputune("model-check", tmp_path / "model.onnx")
    assert ran.code == 9
    assert "of 3 nodes that were looked at, 2 cannot" in ran.out and "instead: " in ran.out


def test_an_operator_has_one_line_for_each_reason(gputune: Gputune, tmp_path: Path) -> None:
    body = "a = Relu(x) n = NonZero(a) b = Det(a) c = Det(x) d = Det(x) y = Add(b, c) z = Add(d, c)"
    model = models.build("(float[1,3,5,5] x) => (float[1,3] y, float[1,3] z, int64[4,k] n)", body)
    ran = gputune("model-check", models.save(model, tmp_path))
    title, parts, heading, *lines = ran.out.splitlines()
    assert title.endswith("of 7 nodes that were looked at, 4 cannot"), ran.out
    assert parts.startswith("with --unsupported host: ") or "--unsupported host" in parts
    assert heading == "what cannot run:"
    assert lines[0].startswith("  3 Det nodes, 'Det_2', 'Det_3', ..: ") and "; instead: " in lines[0]
    assert lines[1].startswith("  NonZero node 'NonZero_1': ")
    assert not [line for line in lines[2:] if "Det_4" in line]


def test_a_supported_operator_in_an_unsupported_way_has_its_reason(gputune: Gputune, tmp_path: Path) -> None:
    model = models.build(
        "(float[1,3,5,5] x, float[4,3,3,3] w) => (float[1,4,3,3] y, float[1,3,5,5] z)", "y = Conv(x, w) z = Relu(x)"
    )
    code, content = checked(models.save(model, tmp_path), gputune=gputune)
    assert code == 9
    (one,) = content["unsupported"]
    assert one["op"] == "Conv" and "'w' is computed at run time" in one["why"]
    assert [each["op"] for each in content["supported"]] == ["Relu"]


def test_what_a_later_step_refuses_is_listed_too(gputune: Gputune, tmp_path: Path) -> None:
    model = models.build(
        "(float[1,3,5,5] x, float[4,3,3,3] w, float[3] m) => (float[1,4,3,3] y, float[1,3,5,5] z)",
        "a = Clip(x, m) y = Conv(a, w) z = Relu(a)",
    )
    code, content = checked(models.save(model, tmp_path), gputune=gputune)
    assert (code, [one["op"] for one in content["unsupported"]]) == (9, ["Clip", "Conv"])
    assert [one["op"] for one in content["supported"]] == ["Relu"]


def test_a_roofline_at_assumed_peaks_is_called_an_estimate(gputune: Gputune, tmp_path: Path) -> None:
    path = models.save(models.conv_relu_gemm(), tmp_path)
    assumed = gputune("model-check", path).out
    assert "roofline, an estimate:" in assumed and "assumed as of two cores of a CPU" in assumed
    assert "; a faster device takes less" in assumed
    given = gputune("model-check", path, "--peak_gflops", 2, "--peak_gbps", 4).out
    assert "roofline:" in given and "estimate" not in given.split("roofline", 1)[1].splitlines()[0]
    assert "can be faster" not in given + gputune("model-check", "--help").out


@pytest.mark.slow
def test_peaks_are_measured_on_a_device(gputune: Gputune, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the null device, which models time; on a small copy and a small product."""
    small = ElementwiseProblem((4096,), (), (4096,), EMPTY)
    monkeypatch.setattr(peaks, "MEMORY", Task("Elementwise", small, 1))
    monkeypatch.setattr(peaks, "ARITHMETIC", Task("MatMul", MatMulProblem(32, 32, 32), 1))
    path = models.save(models.conv_relu_gemm(), tmp_path)
    code, content = checked(path, "--device", "null", gputune=gputune)
    assert (code, content["peaks"]["origin"]) == (0, "measured on null with a matrix product and a copy")
    assert content["peaks"]["gflops"] > 0 and content["peaks"]["gbps"] > 0
    assert content["roofline_ns"] > 0


@pytest.mark.parametrize(
    ("op", "advice"),
    [
        ("If", "control flow decided"),
        ("SequenceAt", "in place of sequences"),
        ("com.example.Foo", "an op package that lowers com.example.Foo"),
        ("Softmix", "Softmax, or"),
        ("Conv", "as the reason says"),
        ("TopK", "TopK as the reason says"),
        ("QLinearConv", "as the reason says"),
        ("Zzz", "operators that are supported"),
    ],
)
def test_the_nearest_form(op: str, advice: str) -> None:
    assert advice in nearest_form(Refusal(op, "n", ""))


OPERATORS = frozenset(schema.name for schema in onnx.defs.get_all_schemas() if not schema.domain)


def named_in(text: str) -> set[str]:
    """The ONNX operators that a text names. Words that are also plain English count where they are written as names."""
    return set(re.findall(r"[A-Z]\w+", text)) & OPERATORS


def test_no_advice_is_against_an_operator_that_is_supported() -> None:
    assert not set(NEAREST) & SUPPORTED_OPS
    assert set(NEAREST) <= OPERATORS


def test_advice_names_only_operators_that_are_supported() -> None:
    advice = {op: nearest_form(Refusal(op, "n", "")) for op in OPERATORS}
    assert not {op: text for op, text in advice.items() if named_in(text) - SUPPORTED_OPS - {op}}
    assert all(advice[op].startswith(f"{op} as the reason says") for op in SUPPORTED_OPS & OPERATORS)


def refusals_in_the_source() -> list[tuple[str, str]]:
    """(where, text) of every literal text with which the importer and the lowering refuse a node."""
    found = []
    for path in sorted(Path(client.__file__).parent.glob("model/importer/*.py")) + sorted(
        Path(client.__file__).parent.glob("model/lowering/*.py")
    ):
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(call, ast.Call) and "unsupported" in ast.unparse(call.func):
                texts = [one.value for one in ast.walk(call) if isinstance(one, ast.Constant)]
                found += [(f"{path.name}:{call.lineno}", text) for text in texts if isinstance(text, str)]
    return found


def test_reasons_name_only_operators_that_are_supported() -> None:
    """A reason that says which form is supported must not lead to an operator that is refused, too."""
    reasons = refusals_in_the_source()
    assert len(reasons) > 30
    assert {where: named_in(text) - SUPPORTED_OPS for where, text in reasons if named_in(text) - SUPPORTED_OPS} == {}
