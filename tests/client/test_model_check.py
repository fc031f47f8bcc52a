"""gputune model-check: what runs, what does not and why, and what it costs."""

import json
from pathlib import Path
from typing import Any

import pytest

from gputune.client import peaks
from gputune.client.errors import Refusal
from gputune.client.importer import read_model
from gputune.client.lowering import lower
from gputune.client.model_check import COUNTED, check_model, describe
from gputune.client.nearest import nearest_form
from gputune.client.peaks import ASSUMED, Peaks
from gputune.client.plan import Task
from gputune.client.tuning.effort import EFFORTS, trials_for
from gputune.client.tuning.task_search import device_limits
from gputune.kernels.catalogue import family_of
from gputune.kernels.chain import EMPTY
from gputune.kernels.family import Work
from gputune.kernels.ops.elementwise import ElementwiseProblem
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.runtime.devices import NULL_REPORT

from . import models
from .commands import Gputune

assert NULL_REPORT.identity is not None
LIMITS = device_limits(NULL_REPORT.identity)


def checked(path: Path, *arguments: object, gputune: Gputune) -> tuple[int, Any]:
    ran = gputune("model-check", path, "--json", *arguments)
    return ran.code, json.loads(ran.out)


def test_a_model_that_runs(gputune: Gputune, tmp_path: Path) -> None:
    path = models.save(models.conv_relu_gemm(), tmp_path)
    code, content = checked(path, "--gflops", 2, "--gbps", 4, gputune=gputune)
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


def test_trials_are_those_of_the_tuner(tmp_path: Path) -> None:
    found = check_model(models.save(models.conv_relu_gemm(), tmp_path), {})
    assert found.model is not None
    content = describe(found, ASSUMED, LIMITS)
    sizes = [(task.op, family_of(task.op).space(task.problem, LIMITS).size) for task in found.model.tasks]
    for name in ("quick", "normal"):
        assert content["tuning"][name]["trials"] == sum(trials_for(EFFORTS[name], op, size) for op, size in sizes)
    assert content["tuning"]["full"]["at_least"] == any(size >= COUNTED for _, size in sizes)
    assert content["tuning"]["none"] == {"trials": 0, "seconds": 0.0, "at_least": False}
    seconds = [content["tuning"][name]["seconds"] for name in ("none", "quick", "normal", "full")]
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


def test_a_supported_operator_in_an_unsupported_way_has_its_reason(gputune: Gputune, tmp_path: Path) -> None:
    model = models.build(
        "(float[1,3,5,5] x, float[4,3,3,3] w) => (float[1,4,3,3] y, float[1,3,5,5] z)", "y = Conv(x, w) z = Relu(x)"
    )
    code, content = checked(models.save(model, tmp_path), gputune=gputune)
    assert code == 9
    (one,) = content["unsupported"]
    assert one["op"] == "Conv" and "'w' is computed at run time" in one["why"]
    assert [each["op"] for each in content["supported"]] == ["Relu"]


def test_a_quantised_model_has_each_of_its_nodes_listed(gputune: Gputune, tmp_path: Path) -> None:
    model = models.build(
        "(float[2,3] x) => (uint8[2,3] y, uint8[2,3] z)",
        "y = QuantizeLinear(x, scale) r = Relu(x) z = QuantizeLinear(r, scale)",
        {"scale": models.numbers(0.5)},
    )
    code, content = checked(models.save(model, tmp_path), gputune=gputune)
    assert (code, content["nodes"]) == (9, 3)
    assert [one["op"] for one in content["unsupported"]] == ["QuantizeLinear"] * 2
    assert all("the float32 model" in one["nearest"] for one in content["unsupported"])


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
    ("arguments", "complaint"),
    [
        (("--gflops", 3), "give --gflops and --gbps"),
        (("--gflops", 3, "--device", "null"), "--gflops: with --device the peaks are measured"),
        (("--input_dimensions", "x=1,3,9,7;x=2,3,9,7"), "one shape at a time"),
    ],
)
def test_options_that_contradict(
    gputune: Gputune, tmp_path: Path, arguments: tuple[object, ...], complaint: str
) -> None:
    ran = gputune("model-check", models.save(models.conv_relu_gemm(), tmp_path), *arguments)
    assert ran.code == 2
    assert complaint in ran.last_line


def test_a_broken_model_is_no_unsupported_one(gputune: Gputune, tmp_path: Path) -> None:
    assert gputune("model-check", tmp_path / "none.onnx").code == 3


def test_the_roofline_is_the_slower_of_both() -> None:
    device = Peaks(10.0, 2.0, "")
    assert [device.roofline_ns(Work(100, 10)), device.roofline_ns(Work(10, 10))] == [10.0, 5.0]


@pytest.mark.parametrize(
    ("op", "advice"),
    [
        ("If", "control flow decided"),
        ("SequenceAt", "in place of sequences"),
        ("com.example.Foo", "an op package that lowers com.example.Foo"),
        ("Softmix", "Softmax, or"),
        ("Conv", "as the reason says"),
        ("QLinearConv", "the float32 model"),
        ("Zzz", "operators that are supported"),
    ],
)
def test_the_nearest_form(op: str, advice: str) -> None:
    assert advice in nearest_form(Refusal(op, "n", ""))
