"""Test the config file of the viewer."""

import re
from pathlib import Path

import pytest

from gputune.client.errors import ConfigError
from gputune.client.viewer.features import Features, read_features

SAMPLE = """{"features": {
    "enable_input_output_flow_events": true, "enable_sequencer_flow_events": true, "htp_json": true,
    "runtrace": true, "memory_info": true, "traceback": true, "qhas_schema": true, "qhas_json": true
}}"""


def test_the_sample_of_the_original_is_read(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(SAMPLE)
    assert read_features(tmp_path / "config.json") == Features(*[True] * 8)


def test_what_is_left_out_is_as_in_the_original(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"features": {"runtrace": false}}')
    assert read_features(tmp_path / "config.json") == Features(False, False, True, False, True, True, False, False)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"features": {"run_trace": true}}', "unknown key 'run_trace'; did you mean 'runtrace'?"),
        ('{"feature": {}}', "unknown key 'feature'; did you mean 'features'?"),
        ('{"features": {"runtrace": 1}}', "runtrace must be true or false, not 1"),
        ('{"features": {"runtrace": true, "runtrace": false}}', "key 'runtrace' occurs twice"),
        ('{"features": []}', 'features must be a JSON object, like {"runtrace": true}, not []'),
        ("[]", 'must be a JSON object, like {"features": {"runtrace": true}}, not []'),
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
    ],
)
def test_anything_else_is_refused(content: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(ConfigError, match=re.escape(said)):
        read_features(tmp_path / "config.json")


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"none.json cannot be read: No such file"):
        read_features(tmp_path / "none.json")
