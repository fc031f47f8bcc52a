"""Test the parts of `scripts/bench kernels` and `scripts/bench models`."""

import argparse
import json
import math
import sys
from contextlib import nullcontext
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import tool
from benchmarks import kernels, networks
from benchmarks.peers import comparing, comparison, entrants, naive, rivals
from benchmarks.peers.comparison import (
    DEFAULTS,
    MNN,
    NAIVE,
    OPENVINO,
    PEER,
    PEER_ALONE,
    TUNED,
    Case,
    Measured,
    Settings,
    digest_of,
    measure_all,
    named,
)
from benchmarks.peers.turns import Contender, Entry, running
from benchmarks.tuning.tools import NotTimed, Ratio
from gputune.client.model.plan import Plan
from gputune.kernels.catalogue import family_of
from gputune.kernels.family import Array
from gputune.kernels.ops.conv import ConvProblem
from gputune.kernels.ops.depthwise import DepthwiseProblem
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.runtime.backends import Backend, open_backend
from gputune.runtime.context.format import write_context
from gputune.runtime.context.records import Context, GraphRecord, ProgramRecord
from gputune.runtime.devices.discovery import NULL_REPORT
from models import classic_models
from models.architectures import detectors, mobilenet_v3
from tests.devices import device


def options_of(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    comparing.add_arguments(parser)
    return parser.parse_args(words)


@pytest.fixture
def product(tmp_path: Path) -> Entry:
    """A contender that needs no device."""
    onnx.save(kernels.gemm(4, 5, 6), tmp_path / "gemm.onnx")
    np.savez(tmp_path / "inputs.npz", x=np.ones((4, 6), np.float32))
    return Entry("blas", "numpy", {"model": str(tmp_path / "gemm.onnx"), "inputs": str(tmp_path / "inputs.npz")})


def state_of(process: int) -> str:
    return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_who_waits_for_a_turn_stands_still(product: Entry, tmp_path: Path) -> None:
    contender = Contender(product)
    try:
        process = contender._process.pid
        assert len(contender.block(0.001, most=4)) in (3, 4)
        contender.ask(do="outputs", file=str(tmp_path / "outputs.npz"))
        while state_of(process) == "R":  # a signal arrives when it arrives
            pass
        assert state_of(process) == "T"
        with np.load(tmp_path / "outputs.npz") as outputs:
            assert outputs["y"].shape == (4, 5)
    finally:
        contender.close()


def test_the_last_words_of_a_contender_that_ends_are_told(product: Entry) -> None:
    with pytest.raises(NotTimed, match=r"blas has ended with exit code 1: (.|\n)*no_such_file"):
        Contender(Entry("blas", "numpy", dict(product.arguments) | {"inputs": "no_such_file"}))


@pytest.mark.slow
def test_an_engine_that_cannot_read_a_model_is_left_out(product: Entry, capsys: pytest.CaptureFixture[str]) -> None:
    """And named; one that has to take part is not."""
    unreadable = replace(product, name=MNN, arguments=dict(product.arguments) | {"inputs": "no_such_file"})
    with running([replace(unreadable, may_fail=True), product]) as contenders:
        assert [contender.name for contender in contenders] == ["blas"]
    assert capsys.readouterr().out.startswith(f"goes on without {MNN}: ")
    with pytest.raises(NotTimed, match="no_such_file"), running([unreadable, product]):
        pass


def test_a_table_says_which_engine_could_not_run_a_network() -> None:
    cases = [Case(name, networks.OTHER, [], 1) for name in ("one", "other")]
    deviations = {TUNED: 0.0, DEFAULTS: 0.0}
    all_but_one = {name: [[2.0]] * 3 for name in (DEFAULTS, PEER, PEER_ALONE)} | {TUNED: [[1.0]] * 3}
    measured = [
        Measured("one", "", all_but_one | {MNN: [[3.0]] * 3}, deviations=deviations),
        Measured("other", "", all_but_one, deviations=deviations),
    ]
    lines = networks.tell(cases, measured, "device")[1]
    assert f"engines that could not run a network: {MNN}: other" in lines
    assert not any("could not run" in line for line in networks.tell(cases[:1], measured[:1], "device")[1])


def test_a_node_that_converts_a_layout_does_not_count() -> None:
    def node(op: str, microseconds: int) -> dict[str, Any]:
        return {"name": f"{op}_kernel_time", "dur": microseconds, "args": {"op_name": op}}

    run = {"name": "model_run", "dur": 1000}
    first = [node("ReorderInput", 50), node("Conv", 7), node("Relu", 2), node("ReorderOutput", 60), run]
    other = {"name": "session_initialization", "dur": 5}
    assert rivals.node_times([other, *first, node("Conv", 4), run, other]) == [9000, 4000]


def test_a_rivals_nodes_have_a_share_of_its_time_without_conversions() -> None:
    nodes = [("Reorder", 10.0), ("Convolution", 45.0), ("Clamp", 0.0), ("Reorder", 20.0), ("Result", 0.0)]
    assert rivals.node_share(nodes, 90.0) == 0.5


@pytest.mark.slow
@pytest.mark.skipif(find_spec("openvino") is None, reason="needs OpenVINO")
def test_a_rivals_nodes_are_timed_block_by_block(product: Entry) -> None:
    files = {name: str(product.arguments[name]) for name in ("model", "inputs")}
    rival = Contender(Entry(OPENVINO, "openvino", files | {"threads": 1, "nodes": True}))
    try:
        assert len(rival.block(10, most=6)) == 6
    finally:
        rival.close()


@pytest.mark.slow
def test_the_peers_nodes_are_timed_run_by_run(product: Entry) -> None:
    files = {name: str(product.arguments[name]) for name in ("model", "inputs")}
    peer = Contender(Entry(PEER, "onnxruntime", files | {"threads": 1, "nodes": True}))
    try:
        assert len(peer.block(10, most=6)) == 6
    finally:
        peer.close()


def measured(name: str, tuned: list[float] | None = None, key: str = "") -> Measured:
    """tuned: by round the ns of the tuned context beside 100 of all others."""
    tuned = [100.0] * 3 if tuned is None else tuned
    rounds = {each: [[100.0] * 3] * len(tuned) for each in (DEFAULTS, PEER, PEER_ALONE, NAIVE)}
    rounds[TUNED] = [[ns] * 3 for ns in tuned]
    return Measured(name, key or name, rounds, {TUNED: 1e-5}, [500.0] * (len(tuned) + 2), [40.0, 41.0])


def test_a_ratio_that_does_not_settle_is_told_as_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = [measured("steady", [50.0, 50.5, 50.0]), measured("shaky", [40.0, 50.0, 60.0])]
    cases = [Case(one.name, networks.FIRST, [], 1000) for one in found]
    monkeypatch.setattr(comparing, "measure_all", lambda *_: found)
    monkeypatch.setattr(comparing, "machine", lambda _: {"device": "none"})
    page = tmp_path / "page.md"
    begin, end = (f"<!-- scripts/bench models --device null: {word} -->" for word in ("begin", "end"))
    page.write_text(f"a\n{begin}\nb\n{end}\nc\n")
    given = ["--device", "null", "--page", str(page), "--json", str(tmp_path / "numbers.json")]
    comparing.compare("models", options_of(*given), lambda settings: cases, networks.tell)
    steady, shaky = (line for line in capsys.readouterr().out.splitlines() if line.startswith(("| steady", "| shaky")))
    assert "2.00 (1.98-2.00)" in steady
    assert "not measured (1.67-2.50)" in shaky
    before, _, after = page.read_text().partition("begin -->")
    assert before.startswith("a\n")
    assert "not measured: 1 of 2" in after
    assert after.endswith("end -->\nc\n")
    assert len(json.loads((tmp_path / "numbers.json").read_text())["cases"]) == 2
    alone = comparing.beside_best([(cases[1], found[1])], 1.4, 1.15)
    assert alone.startswith("not measured beside the best engine, mark: 1.4;")


def test_the_best_engine_is_the_one_to_be_faster_than() -> None:
    one = measured("one", [50.0, 50.0])
    assert one.best == PEER
    one.rounds[OPENVINO], one.rounds[MNN] = [[60.0] * 3] * 2, [[80.0] * 3] * 2
    assert one.best == OPENVINO
    speed = one.speed(TUNED, one.best)
    assert speed is not None
    assert speed.value == pytest.approx(1.2)


def test_the_share_of_the_limit_is_of_the_blocks_beside_each_round() -> None:
    one = measured("one", [100.0, 200.0])
    one.fma_gflops = [500.0, 500.0, 250.0, 250.0]  # the device is half as fast from the second round on
    share = one.share_of_limit(25_000)
    assert share is not None
    assert share.value == pytest.approx(0.5, rel=0.3)


def test_outputs_that_are_wrong_are_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    one = measured("one")
    one.deviations[DEFAULTS] = math.nan
    monkeypatch.setattr(comparing, "measure_all", lambda *_: [one])
    monkeypatch.setattr(comparing, "machine", lambda _: {"device": "none"})
    cases = [Case("one", "", [], 1000)]
    with pytest.raises(comparing.Failed, match=r"one, defaults \(nan\)"):
        comparing.compare("models", options_of("--device", "null"), lambda settings: cases, networks.tell)


def test_a_page_without_marks_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("nothing")
    with pytest.raises(comparing.Failed, match="does not hold"):
        comparing.put_into(page, "models", "text")
    assert page.read_text() == "nothing"


def test_only_what_has_not_settled_is_measured_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    times = {"steady": [[50.0] * 3], "shaky": [[40.0, 50.0, 60.0], [50.0] * 3]}
    done: list[str] = []

    def measure(case: Case, key: str, *_: object) -> Measured:
        done.append(case.name)
        return measured(case.name, times[case.name].pop(0), key)

    monkeypatch.setattr("benchmarks.peers.comparison.measure", measure)
    settings = comparing.settings_of(options_of("--device", "null"))
    cases = [Case(name, "", [], 1) for name in times]
    file = tmp_path / "results.jsonl"
    assert [one.settled for one in measure_all(cases, settings, file, resume=False)] == [True, False]
    assert [one.settled for one in measure_all(cases, settings, file, resume=True)] == [True, True]
    assert done == ["steady", "shaky", "shaky"]


def test_rounds_go_on_until_a_case_has_settled(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = {TUNED: [40.0, 60.0, *[50.0] * 40], PEER: [100.0] * 42}

    class Playing:
        def __init__(self, name: str) -> None:
            self.name, self.facts = name, {"computes": False}

        def block(self, seconds: float, most: int) -> list[float]:
            return [turns[self.name].pop(0)] * 3

    monkeypatch.setattr(comparison, "running", lambda entries: nullcontext([Playing(TUNED), Playing(PEER)]))
    monkeypatch.setattr(comparison, "_deviations", lambda contenders: {})
    settings = Settings(rounds=2, most_rounds=40, seconds=0, effort="quick", device=None)
    found = comparison.measure(Case("one", "", [], 1), "key", settings, [])
    assert found.settled
    assert 2 < len(found.rounds[TUNED]) < 40
    assert (
        len(
            comparison.measure(Case("one", "", [], 1), "key", replace(settings, rounds=1, most_rounds=1), []).rounds[
                TUNED
            ]
        )
        == 1
    )


def test_a_context_is_the_same_when_only_its_binaries_differ(tmp_path: Path) -> None:
    def digest(binary: bytes, source: str) -> str:
        assert NULL_REPORT.identity is not None
        graph = GraphRecord("graph", (), (), (), ())
        program = ProgramRecord(binary, source, "")
        device = NULL_REPORT.identity.to_dict()
        write_context(tmp_path / "context.bin", Context([graph], [program], [], device, "tier", {}, {}, computes=False))
        return digest_of(tmp_path / "context.bin")

    assert digest(b"1", "source") == digest(b"2", "source") != digest(b"1", "other")


def test_the_mean_of_ratios_counts_occurrences() -> None:
    one, two = (Ratio(value, value, value) for value in (1.0, 16.0))
    assert comparing.mean_speed([(one, 1), (two, 3), (None, 5)], "defaults") == "8.00 x defaults"


def test_no_mean_is_told_where_nothing_is_measured() -> None:
    assert (
        comparing.mean_speed([(None, 1)], "naive") == comparing.mean_speed([], "naive") == "not measured beside naive"
    )


def test_a_case_that_there_is_not_is_refused() -> None:
    assert comparing.chosen(["GEMM 1", "conv"], "gemm,x") == ["GEMM 1"]
    assert comparing.chosen(["net", "net 320", "other"], "Net,oth") == ["net", "other"], "a whole name is its own"
    assert comparing.chosen(["net", "net 320", "other"], "ne") == ["net", "net 320"]
    with pytest.raises(SystemExit, match="GEMM 1; conv"):
        comparing.chosen(["GEMM 1", "conv"], "pool")


def test_the_blocks_of_a_network_are_all_there() -> None:
    blocks = kernels.block_kernels(224)
    assert sum(block.weight for block in blocks) == 17
    assert [block.name for block in blocks if block.weight == 3] == ["block 64-384-64 14x14"]
    assert sum(weight for *_, weight in kernels.CONVS) == 16


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "multiply_adds"),
    [  # as published
        (classic_models.resnet18, 1.82e9),
        (classic_models.mobilenet_v2, 300e6),
        (lambda: classic_models.mobilenet_v2(0.5, 160), 50e6),
        (classic_models.mobilenet_v3_large, mobilenet_v3.MULTIPLY_ADDS),
        (classic_models.yolo_tiny, detectors.MULTIPLY_ADDS),
    ],
)
def test_networks_are_as_large_as_the_originals(make: Any, multiply_adds: float) -> None:
    plan: Plan = make().plan()
    flops = sum(family_of(each.task.op).work(each.task.problem).flops for each in plan.operations)
    assert flops / 2 == pytest.approx(multiply_adds, rel=0.05)


@pytest.mark.parametrize(
    ("make", "layers"),
    [pytest.param(classic_models.resnet50, 53, marks=pytest.mark.slow), (classic_models.squeezenet, 26)],
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


@pytest.fixture(scope="module")
def backend() -> Backend:
    return open_backend(device())


def channels_first(arrays: Array) -> Array:
    return np.ascontiguousarray(np.moveaxis(arrays, -1, 1))


@pytest.mark.opencl
@pytest.mark.parametrize(
    "problem",
    [
        MatMulProblem(5, 7, 13),
        ConvProblem(1, 9, 7, 4, 6, (3, 5), (2, 1), (1, 2, 0, 1), groups=2),
        DepthwiseProblem(1, 9, 7, 6, (3, 3), (2, 1), (1, 0, 1, 1)),
    ],
)
def test_naive_kernels_are_right(problem: Any, backend: Backend) -> None:
    op = {MatMulProblem: "MatMul", ConvProblem: "Conv", DepthwiseProblem: "DepthwiseConv"}[type(problem)]
    inputs = family_of(op).sample_inputs(problem, np.random.default_rng(2))
    want = family_of(op).reference(problem, inputs)
    maps = op != "MatMul"
    first, second = inputs.values()
    bound = naive.bound(backend, [naive.launch_of(problem)])
    backend.write(bound.buffers[0], channels_first(first) if maps else first)
    backend.write(bound.buffers[1], second)
    backend.enqueue(bound)
    got = backend.read(bound.buffers[2]).view(np.float32)
    assert got == pytest.approx((channels_first(want) if maps else want).reshape(-1), rel=1e-4, abs=1e-5)


@pytest.mark.slow
def test_kernels_are_compared_without_a_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = tmp_path / "numbers.json"
    given = ["--quick", "--only", "GEMM", "--work", str(tmp_path), "--json", str(numbers)]
    kernels.run(options_of(*given))
    (case,) = json.loads(numbers.read_text())["cases"]
    others = {PEER_ALONE, kernels.BLAS}
    if find_spec("openvino") is not None:
        others |= {OPENVINO, named(OPENVINO, 1)}
    assert set(case["rounds"]) == {TUNED, DEFAULTS, PEER, NAIVE} | others
    assert case["deviations"].keys() == others
    assert "[1/1]" in capsys.readouterr().out
    monkeypatch.setattr(Measured, "settled", True)
    kernels.run(options_of(*given, "--resume"))
    out = capsys.readouterr().out
    assert "[1/1]" not in out
    assert "| GEMM 16x16x16 |" in out


def test_contexts_are_made_again_when_a_template_has_changed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool, "ROOT", tmp_path)
    names = set()
    for path, text in (("kernels/ops/a.cl", "1"), ("kernels/ops/a.cl", "2"), ("client/a.py", "3")):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
        names.add(entrants._sources.__wrapped__())
    assert len(names) == 3


@pytest.mark.slow
def test_networks_are_compared_without_a_device(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = options_of("--quick", "--work", str(tmp_path))
    networks.run(given)
    assert "| a small model |" in capsys.readouterr().out
    given.prepare = True
    networks.run(given)
    out = capsys.readouterr().out
    assert (out.count("generating"), out.count("as made before")) == (0, 2), "contexts of the same are made once"
    monkeypatch.setattr(entrants, "_sources", lambda: "changed")
    networks.run(given)
    assert capsys.readouterr().out.count("generating") == 2
