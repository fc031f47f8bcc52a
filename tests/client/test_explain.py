"""Why a generation would measure: hits, what is stale and why, what is new; end to end on the null device."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from gputune.cache import Validity, canonical_json

from . import models
from .commands import Gputune, config_file
from .models import save


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
