"""Test why a generation would measure: hits, stale entries with reasons, new tasks; on the null device."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from gputune.cache import Validity, canonical_json
from tests.client import models
from tests.client.commands import Generate, config_file
from tests.client.models import save


@pytest.fixture
def generated(generate: Generate, tmp_path: Path) -> Any:
    """Runs explain over a cache that holds a small model tuned on the null device."""
    ran = generate(effort="quick")
    assert ran.code == 0, ran.err

    def explain(*words: object, model: Path = tmp_path / "model.onnx") -> Any:
        return generate.gputune(
            "performance-cache", "explain", "--model", model, *generate.target,
            "--performance_cache_dir", tmp_path / "cache", "--tuning_effort", "quick", *words,
        )  # fmt: skip

    return explain


def test_what_was_just_tuned_is_known(generated: Any) -> None:
    found = json.loads(generated("--json").out)
    assert found["counts"] == {"hit": len(found["tasks"]), "default": 0, "stale": 0, "seeded": 0, "new": 0}
    only = json.loads(generated("--json", "--task", found["tasks"][0]["task"][:8]).out)
    assert [task["task"] for task in only["tasks"]] == [found["tasks"][0]["task"]]
    assert generated("--task", "zz").code == 2


def test_a_new_driver_is_named_with_both_versions(generated: Any, tmp_path: Path) -> None:
    (file,) = (tmp_path / "cache").glob("*.sqlite")
    with sqlite3.connect(file) as connection:
        for number, text in connection.execute("SELECT id, key FROM validity").fetchall():
            before = Validity(**(json.loads(text) | {"driver_version": "0.9 (old)"}))
            row = (before.digest, canonical_json(before.to_dict()), number)
            connection.execute("UPDATE validity SET digest = ?, key = ? WHERE id = ?", row)
    connection.close()
    ran = generated()
    assert ran.code == 0, ran.err
    assert "stale    Conv" in ran.out
    assert "driver_version: 0.9 (old) -> " in ran.out.splitlines()[0]
    assert "0 of " in ran.out.splitlines()[-1]
    assert "are stale (driver_version: 0.9 (old) -> " in ran.out.splitlines()[-1]


def test_an_unknown_model_starts_from_near_problems_or_from_nothing(generated: Any, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    near = models.build(
        "(float[1,3,11,7] x) => (float[n,c,h,w] y)",
        "c = Conv<pads=[1,0,1,2], strides=[2,1]>(x, w, b) r = Relu(c) y = Softmax<axis=1>(r)",
        {"w": (8, 3, 3, 3), "b": (8,)},
    )
    found = {task["op"]: task for task in json.loads(generated("--json", model=save(near, other)).out)["tasks"]}
    assert found["Softmax"]["kind"] == "new"
    assert found["Conv"]["kind"] == "seeded"
    assert "of near problems" in found["Conv"]["origin"]


def test_it_answers_for_all_graphs_and_for_the_options_of_the_generator(generate: Generate, tmp_path: Path) -> None:
    generate.model = models.build(
        "(float[1,3,h,w] x) => (float[n,c,i,j] y)",
        "c = Conv<pads=[1,1,1,1]>(x, w, b) r = Relu(c) y = Softmax<axis=1>(r)",
        {"w": (8, 3, 3, 3), "b": (8,)},
    )
    model, config = models.save(generate.model, tmp_path), config_file(tmp_path, tasks=["Conv"])
    asked = ("--input_dimensions", "x=1,3,11,7;x=1,3,9,8", "--device_tier", "ours")
    told = ("--model", model, "--config_file", config, *generate.target, "--tuning_effort", "quick", *asked, "--json")
    for kinds in (("default", "new", "seeded"), ("default", "hit")):
        said = json.loads(generate.gputune("performance-cache", "explain", *told).out)
        assert Path(said["file"]).name == "ours.sqlite"
        assert {task["kind"] for task in said["tasks"]} <= set(kinds)
        ran = generate(*asked, effort="quick", tasks=["Conv"])
        assert ran.code == 0, ran.err
        done = ran.summary["tasks"]
        measures = {task["task"]: task["measures"] for task in said["tasks"]}
        assert {task["key"]: task["measured"] > 0 for task in done} == measures
        assert f"{said['counts']['hit']} of {len(done)} tasks are known, {said['counts']['default']} keep" in ran.err
    assert len(measures) >= 5, "two graphs' convolutions, softmaxes and transposes"


def test_it_writes_nothing_even_where_the_generation_would_delete(generated: Any, tmp_path: Path) -> None:
    before = {path.name: path.read_bytes() for path in (tmp_path / "cache").iterdir()}
    found = json.loads(
        generated("--json", "--config_file", config_file(tmp_path, invalidate_performance_cache=True)).out
    )
    assert found["counts"]["hit"] == 0
    assert not any(task["kind"] == "stale" for task in found["tasks"])
    assert json.loads(generated("--json", "--cache_mode", "refresh").out)["counts"]["hit"] == 0
    assert {path.name: path.read_bytes() for path in (tmp_path / "cache").iterdir()} == before


def test_options_that_decide_nothing_are_not_taken(generated: Any) -> None:
    ran = generated("--tuning_budget", "10s")
    assert ran.code == 2
    assert "--tuning_budget" in ran.err
