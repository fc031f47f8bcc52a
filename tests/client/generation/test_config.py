"""Test the config file: which keys take effect, and the one line for any other key."""

import json
from pathlib import Path

import pytest

from gputune.client.errors import ConfigError, TargetError
from gputune.client.generation.config import Config, choose_effort, read_config
from gputune.client.tuning.search.options import TuningOptions


def config(folder: Path, content: object) -> Path:
    path = folder / "config.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_the_seeds_example_is_read(tmp_path: Path) -> None:
    content = {"tuning_mode": True, "performance_cache_dir": "caches", "invalidate_performance_cache": False}
    assert read_config(config(tmp_path, content)) == Config(True, Path("caches"), False)


def test_what_is_asked_of_tuning(tmp_path: Path) -> None:
    content = {
        "tuning_mode": True,
        "tuning_budget": "10m",
        "tuning_strategy": "descent",
        "tasks": ["Conv", " /head/* "],
        "pins": {" Pool": {"TILE": 4}},
        "cold": True,
        "report": "tuning.html",
        "compare_seconds": "1m30s",
        "compare_again": True,
        "wait_for_quiet": 10,
        "fail_under": 1.05,
        "target": "phone:1,[::1]:2",
    }
    read = read_config(config(tmp_path, content))
    assert read.target == "phone:1,[::1]:2"
    assert read.tuning == TuningOptions(
        only=("Conv", "/head/*"),
        pins={"Pool": {"TILE": 4}},
        budget_seconds=600.0,
        strategy="descent",
        cold=True,
        report=Path("tuning.html"),
        compare_seconds=90.0,
        compare_again=True,
        wait_for_quiet=10,
        fail_under=1.05,
    )
    seconds = read_config(config(tmp_path, {"tuning_mode": True, "compare_seconds": 2.5})).tuning.compare_seconds
    assert seconds == 2.5
    assert read_config(config(tmp_path, {"target": "phone:1"})).target == "phone:1", "it is not about tuning"


def test_no_file_wishes_nothing() -> None:
    assert read_config(None) == Config()


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ({"vtcm_megabytes": 8}, "unknown key 'vtcm_megabytes'; the keys are "),
        ({"tunning_mode": True}, "unknown key 'tunning_mode'; did you mean 'tuning_mode'"),
        ({"precision_mode": "fp8"}, 'precision_mode must be one of float32, float16, float16_storage, not "fp8"'),
        ({"precision_mode": 16}, "precision_mode must be one of float32, float16, float16_storage, not 16"),
        ({"perf_hint": "high"}, "'perf_hint' is refused: clocks are an option, --perf_profile NAME"),
        ({"performance_cache_dir": "x"}, 'performance_cache_dir needs "tuning_mode": true'),
        ({"tuning_mode": False, "invalidate_performance_cache": True}, "invalidate_performance_cache needs"),
        ({"tuning_mode": "yes"}, 'tuning_mode must be true or false, not "yes"'),
        ({"tuning_mode": True, "performance_cache_dir": 3}, "performance_cache_dir must be a text, not 3"),
        ({"tuning_mode": True, "performance_cache_dir": ""}, "performance_cache_dir is empty"),
        ({"tuning_mode": True, "compare_seconds": [1]}, "compare_seconds must be a number of seconds, or a time such"),
        ({"tuning_mode": True, "compare_seconds": 0}, "compare_seconds: '0' is not a time such as 30"),
        ({"cold": True}, 'cold needs "tuning_mode": true'),
        ({"tuning_mode": False, "pins": {}}, 'pins needs "tuning_mode": true'),
        ({"tuning_mode": True, "cold": 1}, "cold must be true or false, not 1"),
        ({"tuning_mode": True, "tuning_budget": 600}, "tuning_budget must be a text, not 600"),
        ({"tuning_mode": True, "tuning_budget": "600"}, "tuning_budget: '600' is not a time such as 90s"),
        ({"tuning_mode": True, "wait_for_quiet": 0}, "wait_for_quiet must be a whole number from 1 to 10080, not 0"),
        ({"tuning_mode": True, "fail_under": "5%"}, 'fail_under must be a number, like 1.05, not "5%"'),
        ({"tuning_mode": True, "fail_under": 0}, "fail_under: 0.0 is no gain; give it as 1.05"),
        ({"wait_for_quiet": 5}, 'wait_for_quiet needs "tuning_mode": true'),
        ({"tuning_mode": True, "tuning_strategy": "magic"}, "tuning_strategy: 'magic' is no strategy; there are auto"),
        ({"tuning_mode": True, "tasks": "Conv"}, "tasks must be a list of texts"),
        ({"tuning_mode": True, "tasks": ["Conv", 3]}, '["Conv", "/head/*"], not ["Conv", 3]'),
        ({"tuning_mode": True, "tasks": []}, "tasks: a pattern is empty"),
        ({"tuning_mode": True, "pins": ["Conv"]}, "pins must be configurations by task"),
        ({"tuning_mode": True, "pins": {"Conv": 4}}, "pins must be configurations by task"),
        ({"tuning_mode": True, "pins": {"Conv": {"TILE": True}}}, 'with whole numbers, not {"Conv": {"TILE": true}}'),
        ({"tuning_mode": True, "pins": {"Conv": {"TILE": 1.5}}}, "with whole numbers"),
        ({"tuning_mode": True, "pins": {"Conv": {}}}, "pins 'Conv' to nothing"),
        ({"tuning_mode": True, "pins": {"": {"TILE": 1}}}, "pins: a pattern is empty"),
        ({"tuning_mode": True, "pins": {"A": {"T": 1}, " A": {"T": 2}}}, "pins 'A' twice"),
        ({"tuning_mode": True, "report": ""}, "report is empty"),
        ({"target": " "}, "target is empty"),
        ([], 'must be a JSON object, like {"context_configs": '),
        ("{", "is not JSON"),
        ('{"tuning_mode": true, "tuning_mode": false}', "key 'tuning_mode' occurs twice"),
    ],
)
def test_what_does_not_bind_is_an_error(tmp_path: Path, content: object, complaint: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_config(config(tmp_path, content))
    assert complaint in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_target_that_is_no_address_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"config.json: target: 'phone' is not HOST:PORT"):
        read_config(config(tmp_path, {"target": "a:1,phone"}))


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        read_config(tmp_path / "nowhere.json")


@pytest.mark.parametrize(
    ("tuning_mode", "option", "effort"),
    [(None, None, "normal"), (None, "quick", "quick"), (True, None, "normal"), (False, None, "none"),
     (False, "none", "none"), (None, "none", "none"), (True, "full", "full")],
)  # fmt: skip
def test_effort_follows_option_and_tuning_mode(tuning_mode: bool | None, option: str | None, effort: str) -> None:
    assert choose_effort(Config(tuning_mode), option).name == effort


@pytest.mark.parametrize(("tuning_mode", "option"), [(False, "quick"), (True, "none")])
def test_a_contradiction_is_an_error(tuning_mode: bool, option: str) -> None:
    with pytest.raises(ConfigError, match="contradicts"):
        choose_effort(Config(tuning_mode), option)
