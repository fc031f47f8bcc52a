"""Test the config file of the viewer."""

from pathlib import Path

from gputune.client.options.viewer import Features, read_features

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
