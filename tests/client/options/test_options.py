"""Test that an option means the same on a command line, in a config file and in Python, whichever it is."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pytest

import gputune
from gputune.client.cli.context_binary_generator import command as generator
from gputune.client.cli.main import cli
from gputune.client.errors import ConfigError
from gputune.client.options.command_line import given_of
from gputune.client.options.config import CONFIGURED, KEYS, Config, GraphKeys, read_config
from gputune.client.options.option import GROUPS
from gputune.client.options.python import TUNE, given_by
from tables.interface import commands

PIN = {"Conv": {"A": 1, "B": 2}}
NOTHING = object()
ALIKE: Mapping[str, tuple[Any, Any, Any, Any]] = {
    "cache_mode": ("refresh", "refresh", NOTHING, "refresh"),
    "cold": (True, True, NOTHING, True),
    "compare_again": (True, True, True, True),
    "compare_seconds": ("1m30s", "1m30s", 90, 90.0),
    "fail_under": ("1.05", 1.05, 1.05, 1.05),
    "float64": ("float32", "float32", "float32", "float32"),
    "input_value": ("sr=16000", {"sr": 16000}, NOTHING, {"sr": 16000}),
    "io_type": ("a=b=float16", {"a=b": "float16"}, {"a=b": "float16"}, {"a=b": "float16"}),
    "keep_float32": ("Conv,/head", ["Conv", "/head"], ["Conv", "/head"], ("Conv", "/head")),
    "performance_cache_dir": ("caches", "caches", "caches", Path("caches")),
    "pin": ("Conv=A=1,B=2", PIN, NOTHING, PIN),
    "precision_mode": ("float16", "float16", "float16", "float16"),
    "quantised": ("float", "float", "float", "float"),
    "report": ("a.html", "a.html", NOTHING, Path("a.html")),
    "retry_failures": ("timeout,crash", NOTHING, NOTHING, ("timeout", "crash")),
    "state": ("a=b;c=d", "a=b;c=d", "a=b;c=d", ("a=b", "c=d")),
    "state_capacity": ("16, 64", [64, 16], (16, 64), (64, 16)),
    "tasks": ("Conv,/head/*,Conv", ["Conv", " /head/* "], NOTHING, ("Conv", "/head/*")),
    "tuning_budget": ("1h30m", "1h30m", 5400, 5400.0),
    "tuning_strategy": ("descent", "descent", NOTHING, "descent"),
    "unsupported": ("host", "host", "host", "host"),
    "wait_for_quiet": ("10", 10, 10, 10),
    "weights": ("compact", "compact", "compact", "compact"),
}
"""By option: how a command line, a config file and a program give it, and what that means."""
OPTIONS = {one.name: one for one in CONFIGURED if not one.only_key}
ONLY_KEYS = {"tuning_mode": True, "argument_form": "svm", "memory_limit_hint": 3, "target": "phone:1,[::1]:2"}


def on_command_line(*words: str) -> dict[str, Any]:
    """What the generator gets of these words."""
    with cli.make_context(
        "gputune", ["--help"], resilient_parsing=True
    ) as parent:  # from which it takes its form of help
        words = ("--model", "m", "--binary_file", "b", *words)
        return given_of(generator.make_context("generator", list(words), parent).params)


def in_file(folder: Path, **keys: object) -> Config:
    """What a config file with these keys asks for."""
    (path := folder / "config.json").write_text(json.dumps({"tuning_mode": True, **keys}), encoding="utf-8")
    return replace(read_config(path), tuning_mode=None)


def test_the_table_has_every_option_of_a_generation() -> None:
    assert {*ALIKE} == {*OPTIONS}
    for name, (_, key, argument, _) in ALIKE.items():
        assert (bool(OPTIONS[name].key), bool(OPTIONS[name].argument and name != "input_value")) == (
            key is not NOTHING, argument is not NOTHING
        ), name  # fmt: skip


@pytest.mark.parametrize("name", ALIKE)
def test_an_option_means_the_same_wherever_it_is_given(name: str, tmp_path: Path) -> None:
    text, key, argument, meaning = ALIKE[name]
    option = OPTIONS[name]
    words = [option.words] if text is True else [option.words, text]
    given = on_command_line(*words)
    assert given[name] == meaning
    asked = Config().having(given)
    assert asked != Config() and asked.having({}) == asked
    if key is not NOTHING:
        assert in_file(tmp_path, **{option.key: key}) == asked == in_file(tmp_path).having(given)
    if argument is not NOTHING:
        assert Config().having(given_by(TUNE, {option.argument: argument})) == asked


def test_an_option_comes_before_its_key(tmp_path: Path) -> None:
    """Pins and values of inputs go beside those of the file, and replace those for the same name."""
    file = in_file(
        tmp_path, tuning_budget="10m", tasks=["Pool"], cold=True, precision_mode="float16", io_type="float16",
        pins={"Conv": {"A": 1}, "Pool": {"A": 1}}, input_values={"sr": 1, "on": True},
    )  # fmt: skip
    words = ("--tuning_budget", "1s", "--tasks", "Conv", "--pin", "Pool=A=2", "--input_value", "sr=2")
    asked = file.having(on_command_line(*words, "--io_type", "y=float32"))
    tuning, precision = asked.tuning, asked.precision
    assert (tuning.budget_seconds, tuning.only, tuning.cold) == (1.0, ("Conv",), True)
    assert (tuning.pins, asked.input_values) == ({"Conv": {"A": 1}, "Pool": {"A": 2}}, {"sr": 2, "on": True})
    assert (precision.mode, precision.io_types) == ("float16", {"y": "float32"})


def test_keys_that_are_no_options(tmp_path: Path) -> None:
    found = in_file(tmp_path, **ONLY_KEYS, disable_queue_recording=True)
    assert (found.argument_form, found.memory_limit_hint, found.target) == ("svm", 3, "phone:1,[::1]:2")
    assert found.graphs == (GraphKeys((), {"queue_recording": False}),)


@pytest.mark.parametrize("name", [name for name, one in TUNE.items() if one.kind.choices])
def test_the_nearest_choice_is_named(name: str) -> None:
    choice = TUNE[name].kind.choices[-1]
    wrong: dict[str, Any] = {name: f"{choice}s"}
    with pytest.raises(ConfigError, match=f"^{name}: there is no '{choice}s'; did you mean '{choice}'"):
        gputune.tune("m.onnx", **wrong)
    with pytest.raises(click.BadParameter, match=f"'{choice}s' is not one of"):
        on_command_line(TUNE[name].words, f"{choice}s")


def test_an_argument_that_there_is_not() -> None:
    with pytest.raises(TypeError, match="unexpected keyword argument 'efort'"):
        gputune.tune("m.onnx", efort="quick")  # type: ignore[call-arg]


def test_every_option_of_a_command_and_every_key_is_described() -> None:
    options = [one for _, command in commands() for one in command.params if isinstance(one, click.Option)]
    ours = [one for one in options if "--version" not in one.opts]
    assert [one.opts for one in ours if getattr(one, "group", None) not in GROUPS or not one.help] == []
    keys = [one for one in (*CONFIGURED, *KEYS.options) if not one.only_key]
    assert [one.key for one in keys if not (one.help or one.key_help)] == []
