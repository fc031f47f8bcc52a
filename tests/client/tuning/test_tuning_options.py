"""Test what a user may ask of tuning: how it is written, which tasks it names, and the one line for nonsense."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from gputune.client.errors import ConfigError
from gputune.client.generation import generator
from gputune.client.generation.generator import GenerationRequest
from gputune.client.options.kinds import parse_budget
from gputune.client.options.tasks import clean_patterns, parse_patterns, parse_pin
from gputune.client.options.tuning import TuningOptions, matches
from tests.client.commands import Gputune, config_file

DIGEST = "1a2b3c4d5e" + "0" * 54
CONV = ("Conv 1a2b3c4d5e", "Conv", DIGEST, "/stem/conv", "/head/0/conv[1]")
POOL = ("Pool 99aabbccdd", "Pool", "99aabbccdd" + "1" * 54, "/head/pool")


@pytest.mark.parametrize(
    ("pattern", "meant"),
    [
        ("Conv", True), ("conv", False), ("Con", False), ("Conv *", True), ("Conv 1a2b3c4d5e", True),
        ("/head/*", True), ("/head/*/conv*", True), ("/neck/*", False), ("/head/0/conv[1]", True), ("*", True),
        ("1a2b3c", True), ("1a2b3c4d5e", True), (DIGEST, True), ("1a2b3", False), ("2b3c4d", False), ("1a2b3d", False),
    ],
)  # fmt: skip
def test_which_task_a_pattern_means(pattern: str, meant: bool) -> None:
    assert matches(pattern, CONV) is meant


def test_a_digest_is_known_by_its_beginning_and_no_other_name_is() -> None:
    assert not matches("abcdef", ["abcdefabcdef"])


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("1h30m", 5400), ("1.5h", 5400), (" 1h1m1s ", 3661), ("0.5s", 0.5)]
)
def test_budgets(text: str, seconds: float) -> None:
    assert parse_budget(text, "--tuning_budget") == seconds


@pytest.mark.parametrize(
    "text", ["", "90", "0s", "0h0m", "m", "1m1h", "1 h", "-1s", "٣s", "inf", "nans", "9" * 400 + "h"]
)
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--tuning_budget: .* is not a time such as 90s, 10m or 1h30m$"):
        parse_budget(text, "--tuning_budget")


def test_patterns() -> None:
    assert parse_patterns("Conv, /head/*,Conv", "--tasks") == ("Conv", "/head/*")
    for empty in ("", "Conv,", " , "):
        with pytest.raises(ConfigError, match=r"^--tasks: a pattern is empty"):
            parse_patterns(empty, "--tasks")
    with pytest.raises(ConfigError, match=r"^tasks: a pattern is empty"):
        clean_patterns([], "tasks")


@pytest.mark.parametrize(
    ("text", "pattern", "configuration"),
    [
        ("Conv=TILE=4", "Conv", {"TILE": 4}),
        ("Conv 1a2b*=TILE_M=4,V=-1", "Conv 1a2b*", {"TILE_M": 4, "V": -1}),
        ("a=b,c=TILE=4", "a=b,c", {"TILE": 4}),
    ],
)
def test_pins(text: str, pattern: str, configuration: dict[str, int]) -> None:
    assert parse_pin(text, "--pin") == (pattern, configuration)


@pytest.mark.parametrize(
    "text", ["", "Conv", "Conv=4", "=TILE=4", "Conv=TILE=x", "Conv=TILE=4,", "Conv=TILE=1.5", "Conv=TILE=4=5", " =A=1"]
)
def test_what_is_no_pin_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--pin: .* is not of the form TASK=NAME=VALUE,NAME=VALUE"):
        parse_pin(text, "--pin")


def test_a_parameter_has_one_value() -> None:
    with pytest.raises(ConfigError, match=r"^--pin: A has two values in 'Conv=A=1,A=2'$"):
        parse_pin("Conv=A=1,A=2", "--pin")


def test_which_tasks_are_wanted() -> None:
    assert TuningOptions().wants(CONV)
    some = TuningOptions(only=("Softmax", "/head/*"))
    assert some.wants(CONV) and some.wants(POOL) and not some.wants(("Softmax 1", "/x"))
    assert TuningOptions(only=("Pool",)).wants(POOL) and not TuningOptions(only=("Pool",)).wants(CONV)


def test_the_pin_of_a_task() -> None:
    same = TuningOptions(pins={"Pool": {"A": 2}, "Conv": {"A": 1}, "/stem/*": {"A": 1}})
    assert same.pin_of(CONV) == {"A": 1} and same.pin_of(("Softmax",)) is None
    with pytest.raises(ConfigError, match=r"'Conv' and '/stem/\*' are for the same task and differ"):
        TuningOptions(pins={"Conv": {"A": 1}, "/stem/*": {"A": 2}}).pin_of(CONV)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (
            TuningOptions(only=("Conv", "Konv")),
            "tasks: no task of this model is called 'Konv'; did you mean",
        ),
        (TuningOptions(only=("nomatch*",)), "'nomatch\\*'; `performance-cache explain` lists them$"),
        (TuningOptions(pins={"/head/poll": {"A": 1}}), "pins: .* called '/head/poll'; did you mean '/head/pool'"),
    ],
)
def test_a_pattern_without_a_task_is_an_error(options: TuningOptions, complaint: str) -> None:
    TuningOptions(only=("Conv", "/head/*"), pins={"Pool": {"A": 1}}).check_bound([CONV, POOL])
    with pytest.raises(ConfigError, match=complaint):
        options.check_bound([CONV, POOL])


class TestCommandLine:
    """From options and config file to what the generator is asked."""

    @pytest.fixture
    def ask(self, gputune: Gputune, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
        """The request that the generator got, or the line on standard error."""

        def run(*words: object) -> GenerationRequest | str:
            requests: list[GenerationRequest] = []
            monkeypatch.setattr(generator, "generate", lambda request, *others, **more: requests.append(request))
            ran = gputune("context-binary-generator", "--model", "m.onnx", "--binary_file", "b", *words)
            assert (ran.code, len(requests)) in ((0, 1), (2, 0), (4, 0)), ran.err
            return requests[0] if requests else ran.last_line

        return run

    def test_nothing_is_asked_by_default(self, ask: Any) -> None:
        request = ask()
        assert (request.tuning, request.target) == (TuningOptions(), None)

    def test_the_folder_of_the_caches(self, ask: Any, tmp_path: Path) -> None:
        file = config_file(tmp_path)
        assert ask("--config_file", file).performance_cache_dir == tmp_path / "cache"
        mine = tmp_path / "mine"
        assert ask("--config_file", file, "--performance_cache_dir", mine).performance_cache_dir == mine
        assert ask("--performance_cache_dir", mine).performance_cache_dir == mine
        (mine / "performance").mkdir(parents=True)
        (mine / "performance" / "a.sqlite").touch()
        assert ask("--performance_cache_dir", mine).performance_cache_dir == mine / "performance"
        (mine / "b.sqlite").touch()
        assert ask("--performance_cache_dir", mine).performance_cache_dir == mine

    @pytest.mark.parametrize("words", [["--device", "null"], ["--adb"]])
    def test_another_server_contradicts_the_files_target(self, ask: Any, tmp_path: Path, words: list[str]) -> None:
        line = ask("--config_file", config_file(tmp_path, target="a:1"), *words)
        assert line == f"error: {words[0]} contradicts the target a:1 in the config file; drop one of them"


def test_a_pattern_with_a_comma_stands_in_double_quotes() -> None:
    assert parse_patterns('"/head, left/conv",Conv', "--tasks") == ("/head, left/conv", "Conv")
    with pytest.raises(ConfigError, match=r"^--tasks: "):
        parse_patterns('"/head', "--tasks")
