"""Test that each benchmark runs, in its smallest form, and that what computes a published figure is right."""

import argparse
import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import numpy as np
import onnx
import onnxruntime
import pytest

import bench
from benchmarks import kernels, networks, options, stable
from benchmarks.peers import comparing, rivals
from benchmarks.peers.comparison import (
    DEFAULTS,
    FMA,
    MNN,
    OPENVINO,
    PEER,
    TUNED,
    Case,
    Entry,
    Measured,
    Settings,
    measure,
    running,
)
from benchmarks.search.replay import mean_over_seeds
from benchmarks.search.spaces import NotRecorded, load
from gputune.client.errors import DeviceOrContextError
from gputune.client.tuning.measuring.intervals import Ratio, paired_ratio
from gputune.kernels.catalogue import family_of
from gputune.kernels.family import Array
from models import classic_models, tune_models
from models.architectures import detectors, mobilenet_v3

SPACE = Path(__file__).parents[1] / "recordings" / "depthwise_pocl_T4.json.gz"
LITTLE = ("--quick", "--device", "null", "--seconds", "0.05")
NIGHT = pytest.mark.night
OPENCL = (NIGHT, pytest.mark.opencl)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "shown"),
    [
        pytest.param(("search", "--space", SPACE, "--seeds", "2"), "auto, cold", id="search"),
        pytest.param(("kernels", "--quick", "--only", "GEMM"), "GEMM 16x16x16", id="kernels", marks=NIGHT),
        pytest.param(("models", "--quick"), "a small model", id="models", marks=NIGHT),
        pytest.param(("forms", *LITTLE), "recorded", id="forms", marks=NIGHT),
        pytest.param(("halves", *LITTLE, "--effort", "none"), "a small model", id="halves", marks=NIGHT),
        pytest.param(("weights", *LITTLE, "--effort", "none"), "1, 4, 32", id="weights", marks=NIGHT),
        pytest.param(
            ("stable", *LITTLE, "--effort", "quick", "--generations", "2"), "generation 2", id="stable", marks=NIGHT
        ),
        pytest.param(
            ("profiling", "--device", "waiting", "--rounds", "2"), "qhas: log per launch", id="profiling", marks=OPENCL
        ),
        pytest.param(("agent", "--quick"), "far agent", id="agent", marks=OPENCL),
        pytest.param(("native", "--rounds", "2", "--loads", "1"), "per launch", id="native", marks=OPENCL),
        pytest.param(("sessions", "--quick"), "a product of 16 x 16", id="sessions", marks=OPENCL),
        pytest.param(("parts", "--quick", "--seconds", "0.1"), "classifier", id="parts", marks=OPENCL),
    ],
)
def test_a_benchmark_runs(command: Sequence[object], shown: str, tmp_path: Path, capfd: Any) -> None:
    numbers = tmp_path / "numbers.json"
    code = bench.main([*map(str, command), "--work", str(tmp_path), "--json", str(numbers)])
    out, errors = capfd.readouterr()
    assert (code, shown in out) == (0, True), out + errors
    assert json.loads(numbers.read_text())


def test_every_benchmark_runs_above() -> None:
    (marked,) = (mark for mark in test_a_benchmark_runs.pytestmark if mark.name == "parametrize")
    assert {case.id for case in marked.args[1]} == bench.BENCHES.keys()


def test_what_cannot_be_measured_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments, words in (
        (["--strategies", "best"], "'best' is none of"),
        (["--evaluations", "3,x"], "'3,x' is no"),
    ):
        assert bench.main(["search", *arguments]) == 1
        assert words in capsys.readouterr().err


@pytest.mark.slow
def test_an_engine_that_cannot_read_a_model_is_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    onnx.save(kernels.gemm(4, 5, 6), model := tmp_path / "gemm.onnx")
    files: dict[str, Any] = {"inputs": [{"name": "x", "shape": (4, 6), "dtype": "float32"}], "model": str(model)}
    product = Entry("blas", "numpy", files)
    unreadable = Entry(MNN, "numpy", {**files, "model": "no_such_file"}, may_fail=True)
    nodes = [Entry(PEER, "onnxruntime nodes", {**files, "threads": 1})]
    if find_spec("openvino") is not None:
        nodes.append(Entry(OPENVINO, "openvino nodes", {**files, "threads": 1}))
    with running([unreadable, product, *nodes]) as contenders:
        assert [each.name for each in contenders] == [each.name for each in (product, *nodes)]
        results = [each.outputs()["y"] for each in contenders]
        assert all(np.allclose(result, results[0], atol=1e-5) and result.any() for result in results)
        assert all(min(each.block_ns(0.001)) > 0 for each in contenders), "nodes are timed block by block"
    assert capsys.readouterr().out.startswith(f"goes on without {MNN}: ")
    with (
        pytest.raises(DeviceOrContextError, match="no_such_file"),
        running([Entry("blas", "numpy", unreadable.arguments)]),
    ):
        pass


def test_a_node_that_converts_a_layout_does_not_count() -> None:
    def node(op: str, microseconds: int) -> dict[str, Any]:
        return {"name": f"{op}_kernel_time", "dur": microseconds, "args": {"op_name": op}}

    run = {"name": "model_run", "dur": 1000}
    first = [node("ReorderInput", 50), node("Conv", 7), node("Relu", 2), node("ReorderOutput", 60), run]
    other = {"name": "session_initialization", "dur": 5}
    assert rivals.node_times([other, *first, node("Conv", 4), run, other]) == [9000, 4000]
    nodes = [("Reorder", 10.0), ("Convolution", 45.0), ("Clamp", 0.0), ("Reorder", 20.0), ("Result", 0.0)]
    assert rivals.node_share(nodes, 90.0) == 0.5


STEADY, SHAKY = [50.0, 50.5, 50.0] * 4, [40.0, 50.0, 60.0] * 4


def measured(name: str, tuned: list[float]) -> Measured:
    """tuned: by round the ns of the tuned context beside 100 of all others."""
    rounds = {each: [100.0] * len(tuned) for each in (DEFAULTS, PEER)}
    return Measured(name, rounds | {TUNED: tuned}, {TUNED: 1e-5})


def compared(monkeypatch: pytest.MonkeyPatch, found: list[Measured], *words: str) -> Any:
    """Return the result of networks that were measured so, with these options."""
    monkeypatch.setattr(comparing, "measure_all", lambda *_: found)
    monkeypatch.setattr(comparing, "machine", lambda _: {"processor": "a", "device": "none"})
    parser = argparse.ArgumentParser()
    comparing.add_arguments(parser)
    cases = [Case(one.name, networks.FIRST, [], 1000) for one in found]
    return comparing.compare("models", parser.parse_args(words), lambda settings: cases, networks.tell)


def test_a_ratio_that_does_not_settle_is_told_as_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = tmp_path / "page.md"
    begin, end = (f"<!-- scripts/bench models --device null: {word} -->" for word in ("begin", "end"))
    page.write_text(f"a\n{begin}\nb\n{end}\nc\n")
    found = [measured("steady", STEADY), measured("shaky", SHAKY)]
    result = compared(monkeypatch, found, "--device", "null", "--page", str(page))
    ((head, (steady, shaky)),) = result.tables
    place = head.index(comparing.BEST)
    assert (steady[place], shaky[place]) == ("2.00 (1.98-2.00)", "not measured (1.67-2.50)")
    assert not result.broken and len(result.figures["cases"]) == 2
    before, _, after = page.read_text().partition("begin -->")
    assert before.startswith("a\n") and after.endswith("end -->\nc\n")
    assert "not measured: 1 of 2" in after and "| steady" in after and "deviation, defaults" not in after
    alone = comparing.beside_best([(Case("shaky", "", [], 1), found[1])], 1.4, 1.15)
    assert alone.startswith("not measured beside the best engine, mark: 1.4;")
    page.write_text("nothing")
    with pytest.raises(ValueError, match="does not hold"):
        comparing.put_into(page, "models", "text")
    assert page.read_text() == "nothing"


def test_the_chart_has_a_bar_for_what_has_settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [measured("<steady>", STEADY), measured("shaky", SHAKY)]
    compared(monkeypatch, found, "--device", "null", "--chart", str(tmp_path / "c.svg"))
    drawn = Xml.parse(tmp_path / "c.svg")
    style = "{http://www.w3.org/2000/svg}%s"
    bars = [each.attrib for each in drawn.iter(style % "path") if each.attrib["class"].startswith("box")]
    ends = [(bar["class"], float(bar["d"].split("H")[1].split("V")[0])) for bar in bars]
    kinds = ["box tuned", "box default", "box other"]
    assert [kind for kind, _ in ends] == [*kinds, *kinds[1:]], "the tuned one of the second is not known"
    assert ends[0][1] == pytest.approx(2 * ends[1][1], abs=0.2)
    words = [each.text for each in drawn.iter(style % "text")]
    assert {"<steady>", "shaky", "tuned", "defaults", "onnxruntime", "1"} <= set(words)


def test_outputs_that_are_wrong_and_engines_without_a_network_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = measured("one", STEADY), measured("other", STEADY)
    one.deviations[DEFAULTS] = float("nan")
    one.rounds[MNN] = [300.0] * len(STEADY)
    result = compared(monkeypatch, [one, other], "--device", "null")
    assert [line.rpartition(": ")[2] for line in result.broken] == ["one, defaults (nan)"]
    assert f"* engines that could not run a network: {MNN}: other" in result.lines


def test_the_best_engine_is_the_one_to_be_faster_than() -> None:
    one = measured("one", STEADY)
    assert one.best == PEER
    one.rounds |= {OPENVINO: [60.0] * 12, MNN: [80.0] * 12}
    assert one.best == OPENVINO
    speed = one.speed(TUNED, one.best)
    assert speed is not None and speed.median == pytest.approx(1.2)
    assert one.speed(TUNED, "another") is None


def test_the_share_of_the_limit_is_of_the_block_beside_each_round() -> None:
    one = measured("one", [100.0, 200.0])
    assert one.share_of_limit(25_000) is None
    one.limits[FMA], one.rounds[FMA] = 1e6, [2000.0, 4000.0]  # the device is half as fast in the second round
    share = one.share_of_limit(25_000)
    assert share is not None
    assert share.median == pytest.approx(0.5)


def test_rounds_go_on_until_a_case_has_settled() -> None:
    """Only contenders that compute are compared."""

    class Playing:
        def __init__(self, name: str, times_ns: list[float], **facts: Any) -> None:
            self.name, self.facts, self.blocks, self._times_ns = name, facts, 0, times_ns

        def block_ns(self, seconds: float) -> list[float]:
            self.blocks += 1
            return [self._times_ns.pop(0)] * 3

        def outputs(self) -> dict[str, Array]:
            return {"y": np.array([1.0, 2.0 + 0.5 * (self.name == TUNED)])}

    def found(least: int, most: int) -> tuple[Measured, list[int]]:
        playing = [
            Playing(TUNED, [40.0, 60.0, *[50.0] * 40]),
            Playing(PEER, [100.0] * 42),
            Playing(FMA, [10.0] * 42, computes=False, amount=5.0),
        ]
        settings = Settings(least, most, 0, "quick", None)
        contenders: Any = playing
        return measure("one", contenders, settings), [each.blocks for each in playing]

    one, blocks = found(2, 40)
    assert one.settled and 2 < blocks[0] < 40
    assert blocks == [blocks[0]] * 3
    assert one.deviations == {TUNED: 0.25} and one.rates(FMA) == [0.5] * blocks[0]
    assert found(1, 1)[1] == [1] * 3


def test_the_mean_of_ratios_counts_occurrences() -> None:
    one, two = (Ratio(value, value, value, 1.0) for value in (1.0, 16.0))
    assert comparing.mean_speed([(one, 1), (two, 3), (None, 5)], "defaults") == "8.00 x defaults"
    assert comparing.mean_speed([(None, 1)], "OpenBLAS") == comparing.mean_speed([], "OpenBLAS")


def test_a_case_that_there_is_not_is_refused() -> None:
    assert options.chosen(["GEMM 1", "conv"], "gemm,x") == ["GEMM 1"]
    assert options.chosen(["net", "net 320", "other"], "Net,oth") == ["net", "other"], "a whole name is its own"
    assert options.chosen(["net", "net 320", "other"], "ne") == ["net", "net 320"]
    with pytest.raises(SystemExit, match="GEMM 1; conv"):
        options.chosen(["GEMM 1", "conv"], "pool")


def test_generations_that_are_as_fast_as_the_best_count() -> None:
    times = {"first": [100.0] * 9, "second": [104.0] * 9, "third": [130.0] * 9, "effort full": [90.0] * 9}
    plain = [120.0] * 9
    gains = {title: paired_ratio(plain, own) for title, own in times.items()}
    ratios = {title: paired_ratio(own, times["first"]) for title, own in times.items()}
    lines = stable.conclusions(["first", "second", "third"], ratios, gains)
    assert [line.rpartition(": ")[2] for line in lines] == ["2 of 3", "2 of 3", "1 of 3", "86.5% (median)"]


def test_the_blocks_of_a_network_are_all_there() -> None:
    blocks = kernels.block_kernels(224)
    assert sum(block.weight for block in blocks) == 17
    assert [block.name for block in blocks if block.weight == 3] == ["block 64-384-64 14x14"]
    assert sum(weight for *_, weight in kernels.CONVS) == 16


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "multiply_adds"),
    [  # as published
        pytest.param(classic_models.resnet18, 1.82e9, marks=NIGHT),
        (classic_models.mobilenet_v2, 300e6),
        (lambda: classic_models.mobilenet_v2(0.5, 160), 50e6),
        pytest.param(classic_models.mobilenet_v3_large, mobilenet_v3.MULTIPLY_ADDS, marks=NIGHT),
        pytest.param(classic_models.yolo_tiny, detectors.MULTIPLY_ADDS, marks=NIGHT),
        pytest.param(tune_models.classifier, 385e6, marks=NIGHT),
    ],
)
def test_networks_are_as_large_as_the_originals(make: Any, multiply_adds: float) -> None:
    plan = make().plan()
    flops = sum(family_of(each.task.op).work(each.task.problem).flops for each in plan.operations)
    assert flops / 2 == pytest.approx(multiply_adds, rel=0.05)


@pytest.mark.parametrize(
    ("make", "layers"),
    [
        pytest.param(classic_models.resnet50, 53, marks=(pytest.mark.slow, NIGHT)),
        (classic_models.squeezenet, 26),
    ],
)
def test_topologies_get_weights_that_differ(make: Any, layers: int) -> None:
    path = make().path
    graph = onnx.load(path).graph
    weights = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer}
    convolutions = [node for node in graph.node if node.op_type == "Conv"]
    assert len(convolutions) == layers
    assert all(weights[node.input[1]].std() > 0 for node in convolutions)
    assert not {"ConstantOfShape", "Softmax"} & {node.op_type for node in graph.node}
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    (given,) = session.get_inputs()
    (result,) = session.run(None, {given.name: np.random.default_rng(1).standard_normal(given.shape, np.float32)})
    assert np.isfinite(result).all()
    assert len(np.unique(result)) > 500


def test_percent_of_the_optimum_is_told_with_the_error_of_its_seeds(tmp_path: Path) -> None:
    """On a copy of a device what was best is found as soon as it is tried."""
    numbers, spaces = tmp_path / "numbers.json", []
    for name in ("A4000", "A6000"):
        spaces.append(tmp_path / f"depthwise_{name}_T4.json.gz")
        spaces[-1].write_bytes(SPACE.read_bytes())

    def found(strategy: str, evaluations: str) -> Any:
        how = ("--strategies", strategy, "--seeds", "2", "--evaluations", evaluations)
        assert bench.main(["search", "--space", *map(str, spaces), *how, "--json", str(numbers)]) == 0
        return json.loads(numbers.read_text())["depthwise"]

    blind = found("random", "2,400")["random, cold"]["all devices"]
    warm = found("auto", "8")["auto, records of 1 other devices"]["A4000"]
    assert blind["400"] == {"percent": 100, "standard_error": 0}, "after all of a space its best is known"
    assert 0 < blind["2"]["standard_error"] < blind["2"]["percent"] < warm["8"]["percent"] == 100
    first, second = np.array([[40.0], [60.0]]), np.array([[90.0], [90.0]])
    mean, error = mean_over_seeds([first, second])
    assert (mean.tolist(), error.tolist()) == ([70.0], [5.0]), "10 for the first device, none for the second, over two"
    assert mean_over_seeds([first[:1]])[1].tolist() == [0.0]


def test_a_cache_file_of_kernel_tuner_is_a_space(tmp_path: Path) -> None:
    path = tmp_path / "gemm_RTX_3090_cachefile.json"
    rows: list[dict[str, Any]] = [{"A": a, "B": 7, "time": 2.0, "times": [1.0, 2.0, 6.0]} for a in (4, 1)]
    rows.append({"A": 2, "B": 7, "time": "RuntimeFailedConfig"})
    path.write_text(json.dumps({"tune_params_keys": ["A", "B"], "cache": dict(enumerate(rows))}))
    space = load(path)
    assert (space.kernel, space.device, space.vendor) == ("gemm", "RTX_3090", "nvidia")
    assert [cost for _, cost in space.records()] == [2e6, None, 2e6]
    path.write_text("[]")
    with pytest.raises(NotRecorded, match=r"gemm_RTX_3090_cachefile\.json is no cache file"):
        load(path)
