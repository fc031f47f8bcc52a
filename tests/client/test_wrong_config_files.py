"""Test that what is wrong in a config file is told in one line that names the file."""

from collections.abc import Callable
from pathlib import Path

import pytest

from gputune.client.errors import ConfigError
from gputune.client.options.config import read_config
from gputune.client.options.config_file import read_file
from gputune.client.options.run import KEYS
from gputune.client.options.viewer import read_features
from gputune.client.run.throughput.config import read_plan

READERS: dict[str, Callable[[Path], object]] = {
    "generator": read_config,
    "net-run": lambda path: read_file(path, KEYS),
    "throughput": read_plan,
    "viewer": read_features,
}
LINES = Path(__file__).with_name("wrong_config_files.txt").read_text(encoding="utf-8").splitlines()
FILES = [line.split(" | ") for line in LINES if line and not line.startswith("#")]


@pytest.mark.parametrize(("reader", "content", "said"), FILES)
def test_what_does_not_bind_is_refused(tmp_path: Path, reader: str, content: str, said: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        READERS[reader](path)
    told = str(caught.value).removeprefix(f"config file {path}").removeprefix(": ").strip()
    assert told.startswith(said[:-3]) if said.endswith("...") else told == said
    assert "\n" not in told


@pytest.mark.parametrize("reader", READERS)
def test_a_file_that_is_not_there_is_named(tmp_path: Path, reader: str) -> None:
    with pytest.raises(ConfigError, match=r"none\.json cannot be read: No such file"):
        READERS[reader](tmp_path / "none.json")
