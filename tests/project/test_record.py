"""Test scripts/recording/record: a space is measured once, kept, written as T4, and tuned again without the device."""

import dataclasses
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from benchmarks.search import spaces
from gputune.cache import PerformanceCache
from gputune.client.generation.generator import GenerationRequest, generate
from gputune.client.model.model_files import ModelFile
from gputune.client.model.plan import Task
from gputune.client.options.config import Config
from gputune.client.progress import SILENT
from gputune.client.report.problems import problem_of
from gputune.client.target.connecting import choose_target
from gputune.client.tuning.measuring.runner import TaskRunner
from gputune.client.tuning.search.effort import EFFORTS
from gputune.client.tuning.search.task_search import BATCH
from gputune.client.tuning.tuner import Tuner
from gputune.core.statuses import STATUSES
from gputune.kernels.catalogue import family_of
from gputune.kernels.family import DeviceLimits
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.kernels.space import configuration_key
from gputune.runtime.devices import recording
from gputune.runtime.devices.recording import Recording, Row
from recording import record, recorder, t4
from tests.shared_server import SharedServer

pytestmark = pytest.mark.slow  # each starts processes

RECORDINGS = Path(__file__).parents[1] / "recordings"
SIZES: dict[str, Any] = {"m": 7, "k": 4, "n": 3}
SPACE = 135
"""What the null device has room for of this problem."""


@pytest.fixture(autouse=True, scope="module")
def _null_target(_null_server_of_all: SharedServer) -> Iterator[None]:
    """Have recordings use one server on the null device."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in _null_server_of_all.variables().items():
            patch.setenv(name, value)
        yield


def run(output: Path, *arguments: object, sizes: dict[str, Any] = SIZES) -> int:
    task = ("--op", "MatMul", "--problem", json.dumps(sizes))
    return record.main([*task, "--output", str(output), *map(str, arguments)])


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The whole space on the null device, and as T4 beside it."""
    path = tmp_path_factory.mktemp("recorded") / "whole.jsonl.gz"
    assert run(path, "--t4", path.with_name("matmul_null_T4.json.gz")) == 0
    return path


def test_a_recording_that_may_not_go_on_keeps_what_it_has(tmp_path: Path) -> None:
    path, answers = tmp_path / "begun.jsonl.gz", iter((True, True, False))
    way = recorder.Way(sample=None, samples=1, sample_ns=1000, warm_up_ns=0, cold=False)
    with choose_target(None, os.environ) as target, target.connect() as client:
        begun = recorder.Recorder(client, Task("MatMul", MatMulProblem(**SIZES), 1), path, way, SILENT)
        begun.run(lambda: next(answers))
    assert len(recording.read(path).rows) == 2 * BATCH
    assert len(begun.left) == SPACE - 2 * BATCH
    assert list(tmp_path.iterdir()) == [path]


def test_a_whole_space_is_recorded(whole: Path) -> None:
    recorded = recording.read(whole)
    header = recorded.header
    assert (header.op, header.space_size, len(recorded.rows)) == ("MatMul", SPACE, SPACE)
    assert {name: header.problem[name] for name in SIZES} == SIZES
    assert (header.device.name, header.measured["samples"], header.measured["sample_ns"]) == ("null", 16, 1_000_000)
    default = dict(zip(header.parameters, recorded.rows[0].values, strict=True))
    limits = DeviceLimits(1024, (1024, 1024, 1024), 64 << 10, 1 << 30, 1, "cpu", 4)
    assert default == family_of("MatMul").default(MatMulProblem(**SIZES), limits)
    assert header.prepare and {row.status for row in recorded.rows} == {"ok"}


def test_what_is_there_is_not_recorded_again(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = whole.read_bytes()
    assert run(whole) == 2
    assert "is there already" in capsys.readouterr().err
    assert whole.read_bytes() == before


def test_a_recording_goes_on_where_it_was_interrupted(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, part = tmp_path / "cut.jsonl.gz", tmp_path / "cut.jsonl.gz.part"
    batches: list[int] = []
    original: Callable[..., Any] = TaskRunner.measure

    def counted(self: TaskRunner, batch: Any, *others: Any, **named: Any) -> Any:
        if len(batches) == 2:
            raise KeyboardInterrupt
        batches.append(len(batch))
        return original(self, batch, *others, **named)

    monkeypatch.setattr(TaskRunner, "measure", counted)
    sample = ("--sample", 20)
    assert run(path, *sample) == 130
    assert batches == [8, 8] and not path.exists()
    part.write_bytes(part.read_bytes()[:-7])  # as if it had been ended within a line
    assert run(path, *sample, sizes={**SIZES, "k": 8}) == 2
    assert "of another task" in capsys.readouterr().err
    assert run(path, *sample, "--samples", 3) == 2, "other samples would not be comparable"
    batches.append(0)  # no more interrupts
    assert run(path, *sample) == 0
    times = [{row.values: row.samples_ns[0] for row in recording.read(one).rows} for one in (path, whole)]
    assert sum(batches[3:]) == len(times[0]) - 15
    assert not part.exists()
    assert times[0].items() < times[1].items(), "the null device keeps its times"


def test_a_sample_holds_the_default_and_the_starters(tmp_path: Path, whole: Path) -> None:
    path = tmp_path / "sample.jsonl.gz"
    assert run(path, "--sample", 20) == 0
    recorded, all_of_it = recording.read(path), recording.read(whole)
    assert 21 <= len(recorded.rows) <= 30
    assert recorded.header.space_size == SPACE
    assert set(recorded.rows) < set(all_of_it.rows)
    assert recorded.rows[0] == all_of_it.rows[0]


def test_a_model_is_recorded_into_a_folder_and_replayed_as_a_whole(tmp_path: Path) -> None:
    model = matmul_model(tmp_path, sizes={"m": 3, "k": 4, "n": 2}, then="Softmax")
    folder = tmp_path / "recordings"
    arguments = ["--model", str(model), "--output", str(folder)]
    assert record.main([*arguments, "--task", "Soft*"]) == 0
    (only,) = folder.iterdir()
    assert recording.read(only).header.op == "Softmax"
    only.unlink()
    assert record.main([*arguments, "--sample", "5"]) == 0
    assert sorted(recording.read(path).header.op for path in folder.iterdir()) == ["MatMul", "Softmax"]
    summary = generated(tmp_path, model, folder, "quick")
    assert {task["op"] for task in summary["tasks"]} == {"MatMul", "Softmax"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "either --op"),
        (("--op", "MatMul", "--problem", "{"), "no JSON"),
        (("--op", "MatMul", "--problem", '{"m": 1}'), "its fields are m, k, n"),
        (("--op", "MatMul", "--problem", '{"m": 1, "k": 1, "n": 0}'), "no problem of MatMul"),
        (("--op", "MatMul", "--problem", "[]"), "no problem of MatMul"),
        (("--op", "MatMul", "--task", "x"), "--task is for --model"),
        (("--model", "m.onnx", "--problem", "{}"), "--problem is for --op"),
        (("--model", "m.onnx", "--op", "MatMul"), "either --op"),
        (("--model", "m.onnx", "--input_dimensions", "x=1,a"), "NAME=1,3,224,224"),
        (("--model", "m.onnx"), "m.onnx"),
    ],
)
def test_what_cannot_be_recorded_is_one_line(
    arguments: tuple[str, ...], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert record.main([*arguments, "--device", "null", "--output", str(tmp_path / "x.jsonl.gz")]) in (2, 3)
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1


def test_t4_keeps_to_the_published_schema(whole: Path) -> None:
    recorded = recording.read(whole)
    failed = [
        dataclasses.replace(
            recorded.rows[0], values=(0,) * len(recorded.header.parameters), status=status, samples_ns=()
        )
        for status in STATUSES[1:]
    ]
    plain = t4.to_t4(Recording("x", recorded.header, (*recorded.rows, *failed)))
    check_t4(json.loads(json.dumps(plain)))
    words = [result["invalidity"] for result in plain["results"][SPACE:]]
    assert words == ["constraints", "compile", "runtime", "runtime", "correctness", "timeout", "runtime"]


def check_t4(plain: Any) -> None:
    """What results-schema.json 1.0.0 of T4 demands."""
    assert plain["schema_version"] == "1.0.0"
    for result in plain["results"]:
        assert {"configuration", "times", "invalidity", "correctness"} <= result.keys()
        assert isinstance(result["configuration"], dict) and isinstance(result["objectives"], list)
        assert isinstance(result["times"]["compilation_time"], int | float)
        assert isinstance(result["times"]["runtimes"], list)
        assert result["invalidity"] in ("timeout", "compile", "runtime", "correctness", "constraints", "correct")
        assert type(result["correctness"]) in (int, float)
        for measurement in result["measurements"]:
            assert isinstance(measurement["name"], str) and isinstance(measurement["unit"], str)
            assert isinstance(measurement["value"], int | float)


def test_both_formats_are_the_same_space_to_the_replay_of_strategies(whole: Path) -> None:
    ours, theirs = spaces.load(whole), spaces.load(whole.with_name("matmul_null_T4.json.gz"))
    assert (theirs.title, ours.device) == ("matmul null", "null")
    assert ours.kernel.startswith("MatMul ") and len(ours.kernel) == len("MatMul 0123456789")
    assert list(ours.space.configurations()) == list(theirs.space.configurations())
    assert ours.samples_ns.keys() == theirs.samples_ns.keys()
    for key, samples in ours.samples_ns.items():
        assert theirs.samples_ns[key] == pytest.approx(samples)


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b", b"{}", b"[[", b'{"results": [{"configuration": {}}]}'])
def test_files_of_neither_format_are_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.json"
    path.write_bytes(content)
    with pytest.raises(spaces.NotRecorded, match=r"x\.json"):
        spaces.load(path)


def matmul_model(folder: Path, sizes: dict[str, Any], then: str = "") -> Path:
    m, k, n = sizes.values()
    body = f"p = MatMul(x, w) y = {then}(p)" if then else "y = MatMul(x, w)"
    text = f'<ir_version: 8, opset_import: ["" : 13]> small (float[{m},{k}] x) => (float[{m},{n}] y) {{ {body} }}'
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(numpy_helper.from_array(np.ones((k, n), np.float32), "w"))
    onnx.save(model, folder / "model.onnx")
    return folder / "model.onnx"


def generated(folder: Path, model: Path, recorded: Path, effort: str) -> Any:
    """The summary of a generation on a replayed device, from an empty cache."""
    request = GenerationRequest(
        models=[ModelFile(model, [{}])],
        binary_file=folder / "c.bin",
        config=Config(),
        effort=EFFORTS[effort],
        performance_cache_dir=folder / "cache",
        device=f"replay:{recorded}",
    )
    return generate(request, {}, SILENT)


def test_a_generation_without_hardware_finds_the_recorded_best(whole: Path, tmp_path: Path) -> None:
    recorded = recording.read(whole)
    least_ns = min(min(row.samples_ns) for row in recorded.rows)
    *others, last = recorded.rows  # the null device's times differ by luck; so that one is clearly the best:
    best = dataclasses.replace(last, samples_ns=(0.9 * least_ns,) * len(last.samples_ns))
    path = tmp_path / "one_best.jsonl.gz"
    recording.write(path, recorded.header, [*others, best])
    (task,) = generated(tmp_path, matmul_model(tmp_path, SIZES), path, "full")["tasks"]
    assert task["trials"] == {"ok": SPACE}
    assert task["tuned_ns"] == pytest.approx(0.9 * least_ns)
    assert task["configuration"] == dict(zip(recorded.header.parameters, best.values, strict=True))


@pytest.mark.night
def test_tuning_from_a_recorded_device_comes_near_its_best(tmp_path: Path) -> None:
    """The search on real times: those of a CPU, given to what today's templates render to, which may have changed. The
    best is what measuring everything finds; of so few recorded samples the least median may be luck. Other paths of a
    search are in tests/client/tuning/test_recorded_paths.py."""
    (path,) = RECORDINGS.glob(f"depthwise*{recording.SUFFIX}")
    recorded = recording.read(path)
    op = recorded.header.op
    task = Task(op, problem_of(op, recorded.header.problem), 1)
    renewed = [_renewed(recorded, row, task) for row in recorded.rows]
    prepare = tuple(sorted({digest for _, digests in renewed for digest in digests}))
    today = tmp_path / "today.jsonl.gz"
    recording.write(today, dataclasses.replace(recorded.header, prepare=prepare), [row for row, _ in renewed])
    with choose_target(None, {}, f"replay:{today}") as target, target.connect() as client:
        assert client.server["backend"] == "replay"
        outcomes = []
        for number, effort in enumerate(("full", "normal", "normal")):
            with PerformanceCache.open(tmp_path / f"{number}.sqlite") as cache:
                outcomes += Tuner([client], cache, EFFORTS[effort]).tune([task])
    whole, outcome, again = outcomes
    assert sum(whole.trials.values()) == len(recorded.rows)
    assert outcome == again and not again.hit, "a replay is the same each time"
    assert sum(outcome.trials.values()) < len(recorded.rows) / 2
    found = spaces.load(today)
    best, cost = (found.costs_ns[configuration_key(one.configuration)] for one in (whole, outcome))
    assert best is not None and cost is not None and cost <= 1.03 * best
    assert sum(other < cost for other in found.costs_ns.values() if other is not None) <= 0.01 * len(recorded.rows)
    assert outcome.tuned_ns == pytest.approx(cost, rel=0.03)


def _renewed(recorded: Recording, row: Row, task: Task) -> tuple[Row, list[str]]:
    """The row with the digests of what its configuration renders to now, and those of what prepares it."""
    configuration = dict(zip(recorded.header.parameters, row.values, strict=True))
    instance = family_of(task.op).render(task.problem, configuration)
    program, launch = recorder.digests_of(instance.main)
    prepare = [recorder.digests_of(launch)[1] for launch in instance.prepare]
    return dataclasses.replace(row, program=program, launch=launch), prepare


def test_the_recordings_of_the_repository_can_be_replayed() -> None:
    paths = sorted(RECORDINGS.glob(f"*{recording.SUFFIX}"))
    assert 2 <= len(paths) <= 3
    for path in paths:
        recorded = recording.read(path)
        assert len(recorded.rows) == recorded.header.space_size, "a strategy may ask for any of its space"
        assert spaces.load(path).best_ns > 0
    everything = sum(path.stat().st_size for path in RECORDINGS.iterdir())
    assert everything < 150_000
