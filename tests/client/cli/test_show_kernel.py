"""Test `gputune show-kernel`: a device gets the same sources and launches of a task."""

import json
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import onnx
import pytest

from gputune.cache import PerformanceCache
from gputune.kernels.catalogue import family_of
from tests.client import models
from tests.client.commands import Generate, Gputune
from tests.client.models import save


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save(models.conv_relu_gemm(), tmp_path)


@pytest.fixture
def show(gputune: Gputune, model: Path, tmp_path: Path, null_target: tuple[object, ...]) -> Any:
    def run(*words: object, model: Path = model) -> Any:
        folder = ("--performance_cache_dir", tmp_path / "cache")
        return gputune("show-kernel", *words, "--model", model, *null_target, *folder)

    return run


def only(ran: Any) -> Any:
    assert ran.code == 0, ran.err
    (kernel,) = json.loads(ran.out)["kernels"]
    return kernel


def test_the_default_is_shown_where_nothing_was_tuned(show: Any) -> None:
    kernel = only(show("Conv", "--json"))
    assert kernel["origin"] == "the default: the performance cache has no winner for this device and driver"
    purposes = [launch["purpose"] for launch in kernel["launches"]]
    assert purposes[-1] == "main" and set(purposes[:-1]) == {"prepare"}
    main = kernel["launches"][-1]
    for one in main["kernels"]:
        assert re.search(rf"void {one['entry']}\(", main["source"])
        pairs = zip(one["global_size"], one["local_size"], strict=True)
        assert all(whole % part == 0 for whole, part in pairs)
    assert set(kernel["packed_bytes"]) <= {name for one in main["kernels"] for name in one["arguments"]}


def test_people_get_opencl_with_the_launch_in_comments(show: Any) -> None:
    kernel = only(show("Conv", "--json"))
    lines = show("Conv", "--configuration", "default").out.splitlines()
    assert lines[0].startswith(f"// Conv {kernel['task'][:10]}: ")
    assert f"// configuration (the default): {pairs(kernel)}" in lines
    main = kernel["launches"][-1]
    (entry,) = main["kernels"]
    sizes = [" x ".join(map(str, entry[name])) for name in ("global_size", "local_size")]
    arguments = ", ".join(map(str, entry["arguments"]))
    assert f"// main: {entry['entry']}({arguments}), global size {sizes[0]}, local size {sizes[1]}" in lines
    assert f"//   options: {main['options']}" in lines
    shown = " ".join(" ".join(lines).split())
    assert all(" ".join(launch["source"].split()) in shown for launch in kernel["launches"])


def test_the_winner_of_the_cache_is_shown(
    gputune: Gputune, generate: Generate, show: Any, model: Path, tmp_path: Path, null_target: tuple[object, ...]
) -> None:
    before = only(show("Conv", "--json"))
    title = f"Conv {before['task'][:10]}"
    assert generate(effort="quick").code == 0
    tuned = only(show(title, "--json"))
    explained = gputune(
        "performance-cache", "explain", "--model", model, *null_target, "--performance_cache_dir", tmp_path / "cache",
        "--tuning_effort", "quick", "--task", before["task"][:8], "--json",
    )  # fmt: skip
    (known,) = json.loads(explained.out)["tasks"]
    assert tuned["configuration"] == known["configuration"] and tuned["origin"].startswith("tuned: ")
    assert tuned["configuration"] != before["configuration"], "otherwise this shows nothing"
    assert only(show(title, "--json", "--configuration", "default"))["configuration"] == before["configuration"]


def test_given_values_are_rendered_and_wrong_ones_answered_with_the_legal(show: Any) -> None:
    default = only(show("MatMul", "--json"))
    given = only(show(default["task"][:10], "--json", "--configuration", pairs(default)))
    assert given["origin"] == "as given"
    assert given["launches"] == default["launches"]
    wrong = show(default["task"][:10], "--configuration", "NONE=1")
    assert wrong.code == 2
    assert "Its parameters are " in wrong.last_line and f"The default is {pairs(default)}" in wrong.last_line
    assert show("Conv", "--configuration", "tunde").last_line.startswith("error: --configuration: 'tunde' is not of")


def test_a_task_that_the_model_does_not_have_is_told_with_the_nearest(show: Any) -> None:
    ran = show("Comv")
    assert (ran.code, ran.last_line) == (
        2,
        "error: tasks: no task of this model is called 'Comv'; did you mean 'Conv'?",
    )


def test_all_tasks_of_a_pattern_are_shown(show: Any) -> None:
    kernels = json.loads(show("*", "--json").out)["kernels"]
    assert {"Conv", "MatMul"} <= {kernel["op"] for kernel in kernels}
    assert all(family_of(kernel["op"]) for kernel in kernels)


def test_kernels_of_a_precision_mode_are_shown(show: Any) -> None:
    modes = ("float32", "float16_storage")
    problems = [only(show("MatMul", "--json", "--precision_mode", mode))["problem"] for mode in modes]
    assert [problem["dtype"] for problem in problems] == ["float32", "float16"]


def pairs(kernel: Any) -> str:
    return ",".join(f"{name}={value}" for name, value in kernel["configuration"].items())


def test_what_a_kernel_needs_is_shown_and_why_it_is_never_persistent(show: Any, tmp_path: Path) -> None:
    value = partial(onnx.helper.make_tensor_value_info, elem_type=onnx.TensorProto.FLOAT, shape=[8, 64])
    node = onnx.helper.make_node("Softmax", ["x"], ["y"], "softmax")
    model = save(onnx.helper.make_model(onnx.helper.make_graph([node], "net", [value("x")], [value("y")])), tmp_path)
    chosen = "VW=1,LANES=4,DIMY=1,KEEP=1,EXP=1"

    def kernel(values: str) -> Any:
        return only(show("Softmax", "--json", "--configuration", values, model=model))["launches"][-1]["kernels"][0]

    alone = kernel(chosen.replace("4", "1"))
    assert (alone["needs"]["local_bytes"], alone["needs"]["cooperates"]) == (0, False)
    assert alone["writes"] == ["output"]
    assert alone["left_out_of_persistent_kernels"] == ""
    together = kernel(chosen)
    assert (together["needs"]["local_bytes"], together["needs"]["cooperates"]) == (16, True)
    assert together["left_out_of_persistent_kernels"] == "work-items of a group wait for each other"
    lines = show("Softmax", "--configuration", chosen, model=model).out.splitlines()
    assert "//   local memory of a work-group, bytes: 16" in lines
    assert "//   never part of a persistent kernel: work-items of a group wait for each other" in lines


def test_what_was_measured_says_what_the_kernels_take(generate: Generate, show: Any, tmp_path: Path) -> None:
    """The null device says nothing, so a trial of the cache gets the numbers of another device."""
    assert generate(effort="quick").code == 0
    before = only(show("Conv", "--json"))
    assert [kernel["resources"] for kernel in before["launches"][-1]["kernels"]] == [{}]
    assert not any("compiled to" in line for line in show("Conv").out.splitlines())

    takes = {"registers": 40, "spilled_bytes": 0, "local_bytes": 4096}
    (path,) = (tmp_path / "cache").glob("*.sqlite")
    with PerformanceCache.open(path) as cache:
        (summary,) = [one for one in cache.tasks() if one.task.op == "Conv"]
        trials = cache.trials_of(summary.task, summary.validity)
        trial = next(one for one in reversed(trials) if one.configuration == before["configuration"])
        measured = {**trial.measured, "resources": [takes]}
        others = {**trial.measured, "resources": [{"registers": 99}]}
        cache.store_trials(
            summary.task,
            summary.validity,
            [
                replace(trial, measured=measured),
                replace(trial, measured=others, rendered_sha256="0" * 64),  # of another source
                replace(trial, measured={**trial.measured, "resources": [takes, takes]}),  # of another launch
            ],
        )
    shown = only(show("Conv", "--json"))
    assert [kernel["resources"] for kernel in shown["launches"][-1]["kernels"]] == [takes]
    assert all(kernel["resources"] == {} for launch in shown["launches"][:-1] for kernel in launch["kernels"])
    lines = show("Conv").out.splitlines()
    assert "//   compiled to: 40 registers, 0 bytes spilled, 4096 bytes of local memory" in lines
