"""Test why a generation would measure: hits, stale entries with reasons, new tasks; on the null device."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from gputune.cache import Validity, canonical_json
from tests.client import models
from tests.client.commands import Gputune, config_file
from tests.client.models import save


@pytest.fixture
def generated(gputune: Gputune, tmp_path: Path, null_target: tuple[object, ...]) -> Any:
    """Runs explain over a cache that holds a small model tuned on the null device."""
    model = save(models.conv_relu_gemm(), tmp_path)
    ran = gputune(
        "context-binary-generator", "--model", model, "--binary_file", "m", "--output_dir", tmp_path,
        "--config_file", config_file(tmp_path), *null_target, "--tuning_effort", "quick",
    )  # fmt: skip
    assert ran.code == 0, ran.err

    def explain(*words: object, model: Path = model) -> Any:
        return gputune(
            "performance-cache", "explain", "--model", model, *null_target,
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


SHAPES = "x=1,3,11,7;x=1,3,9,8"


def test_it_answers_for_all_graphs_and_for_the_options_of_the_generator(
    gputune: Gputune, tmp_path: Path, null_target: tuple[object, ...]
) -> None:
    model = save(
        models.build(
            "(float[1,3,h,w] x) => (float[n,c,i,j] y)",
            "c = Conv<pads=[1,1,1,1]>(x, w, b) r = Relu(c) y = Softmax<axis=1>(r)",
            {"w": (8, 3, 3, 3), "b": (8,)},
        ),
        tmp_path,
    )
    config = config_file(tmp_path, tasks=["Conv"])
    asked = (
        "--model", model, "--input_dimensions", SHAPES, "--config_file", config, "--device_tier", "ours",
        *null_target, "--tuning_effort", "quick",
    )  # fmt: skip
    generator = ("context-binary-generator", "--binary_file", "m", "--output_dir", tmp_path, *asked)
    for kinds in (("default", "new", "seeded"), ("default", "hit")):
        said = json.loads(gputune("performance-cache", "explain", *asked, "--json").out)
        assert Path(said["file"]).name == "ours.sqlite"
        assert {task["kind"] for task in said["tasks"]} <= set(kinds)
        ran = gputune(*generator, "--summary_json", tmp_path / "summary.json")
        assert ran.code == 0, ran.err
        done = json.loads((tmp_path / "summary.json").read_text())["tasks"]
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
