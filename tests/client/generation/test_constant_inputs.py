"""Test --input_value from the command line, a config file and Python to contexts, comparisons and farms."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

import gputune as api
from gputune.client.cli.farm.asked import Asked
from gputune.client.compare import comparing
from gputune.client.compare.engines import plain_array
from gputune.client.compare.turns import Contender, Process
from gputune.client.errors import ModelError
from gputune.runtime.context.format import read_header
from tests.client import models
from tests.client.commands import Generate, Gputune, config_file, read_json
from tests.client.model.test_input_values import RATE


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return models.save(onnx.parser.parse_model(RATE), tmp_path)


@pytest.fixture
def generate(generate: Generate, model: Path) -> Generate:
    generate.model = model
    return generate


def test_a_context_lacks_the_input_and_says_how_it_was_made(generate: Generate) -> None:
    header = generate("--input_value", "sr=16000").header
    assert [tensor.name for tensor in header.graphs[0].inputs] == ["x"]
    assert header.configuration["input_values"] == [{"sr": 16000}]


def test_net_run_refuses_the_input_in_a_list(generate: Generate, gputune: Gputune, tmp_path: Path) -> None:
    context = generate("--input_value", "sr=16000").context
    np.save(tmp_path / "x.npy", np.ones((1, 4), np.float32))
    listed = tmp_path / "list.txt"
    listed.write_text(f"x:={tmp_path / 'x.npy'} sr:={tmp_path / 'x.npy'}\n", encoding="utf-8")
    ran = gputune("net-run", "--retrieve_context", context, "--input_list", listed, "--device", "null")
    assert ran.code == 2 and ran.last_line.endswith("input 'sr' was fixed by --input_value; leave it out")
    plan = tmp_path / "plan.json"
    content = {"contexts": [{"path": str(context), "input_list": str(listed)}], "device": "null"}
    plan.write_text(json.dumps(content), encoding="utf-8")
    ran = gputune("throughput-net-run", "--config", plan)
    assert ran.code == 2 and ran.last_line.endswith("input 'sr' was fixed by --input_value; leave it out")


def test_other_commands_take_the_value(
    gputune: Gputune, model: Path, null_target: tuple[object, ...], tmp_path: Path
) -> None:
    for command in (("show-kernel", "*"), ("performance-cache", "explain")):
        asked = (*command, "--model", model, *null_target, "--performance_cache_dir", tmp_path / "cache")
        ran = gputune(*asked)
        assert ran.code == 3 and "--input_value sr=16000" in ran.last_line
        ran = gputune(*asked, "--input_value", "sr=16000")
        assert ran.code == 0, ran.err


def test_python_gives_values(model: Path, null_target: tuple[object, ...], tmp_path: Path) -> None:
    _, target, _, token_file = map(str, null_target)
    where: dict[str, Any] = {"target": target, "token_file": token_file, "output": tmp_path / "m.bin"}
    where["effort"] = "none"
    for given in (16000, np.int32(16000), np.array(16000)):
        tuned = api.tune(model, input_values={"sr": given}, **where)
        assert read_header(tuned.path).configuration["input_values"] == [{"sr": 16000}]
    config = config_file(tmp_path, input_values={"sr": 8000})
    tuned = api.tune(model, config_file=config, **{**where, "effort": "quick"})
    assert read_header(tuned.path).configuration["input_values"] == [{"sr": 8000}]
    with pytest.raises(ModelError, match=r"^input_values: input 'sr' of model .* is int64, and 0\.5 is no number"):
        api.tune(model, input_values={"sr": 0.5}, **where)
    with pytest.raises(ModelError, match=r"make 'sr' a constant, e\.g\. input_values={'sr': 16000}"):
        api.tune(model, **where)


@pytest.mark.night
def test_a_comparison_gives_the_value_to_other_engines(
    gputune: Gputune, generate: Generate, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "TURN_S", 0.001)
    figures = tmp_path / "figures.json"
    context = generate("--input_value", "sr=16000").context
    monkeypatch.setattr(comparing, "OTHERS", {"onnxruntime": "onnxruntime"})
    ran = gputune(
        "compare", "--model", model, "--retrieve_context", context, "--input_value", "sr=16000",
        "--device", "null", "--compare_seconds", 0.1, "--summary_json", figures,
    )  # fmt: skip
    assert ran.code == 0, ran.err
    assert [each["name"] for each in read_json(figures)["contenders"]] == ["untuned", "onnxruntime"]
    assert "left out" not in ran.err


@pytest.mark.parametrize("engine", ["onnxruntime", "openvino"])
def test_an_engine_computes_with_the_value(model: Path, engine: str) -> None:
    pytest.importorskip(engine)
    x = {"name": "x", "shape": [1, 4], "dtype": "float32"}
    found = []
    with Process() as process:
        for rate in (16000, 8000):
            constants = {"sr": plain_array(np.array(rate))}
            arguments = {"model": str(model), "inputs": [x], "threads": 1, "constants": constants}
            found.append(Contender("peer", process, engine, arguments).outputs()["y"])
    np.testing.assert_allclose(found[1], np.exp(-found[0]), rtol=1e-5)


def test_a_job_of_a_farm_keeps_values(model: Path, tmp_path: Path) -> None:
    """In the journal they are JSON. Those of an option take precedence over those of a config file."""
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"input_values": {"sr": 8000}}), encoding="utf-8")
    asked = Asked((str(model),), ("*",), None, "none", str(tmp_path), None, config_files=(str(config),))
    for values, rate in (({}, 8000), ({"sr": (16000,)}, (16000,))):
        job = Asked.read(json.loads(json.dumps({**asked.to_dict(), "input_values": values})))
        (request,) = job.requests().values()
        assert [file.values for file in request.models] == [{"sr": rate}]
