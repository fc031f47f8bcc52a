"""Test the config file: which keys take effect, and the one line for any other key."""

import json
from pathlib import Path

import pytest

from gputune.client.errors import ConfigError, TargetError
from gputune.client.generation.request import choose_effort
from gputune.client.options.config import Config, read_config


def config(folder: Path, content: object) -> Path:
    path = folder / "config.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_a_target_that_is_no_address_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(TargetError, match=r"config.json: target: 'phone' is not HOST:PORT"):
        read_config(config(tmp_path, {"target": "a:1,phone"}))


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
