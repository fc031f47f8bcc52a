"""Test which files --models of `gputune farm tune` names."""

from pathlib import Path

import pytest

from gputune.client.cli.farm.asked import found_models
from gputune.client.errors import ConfigError, ModelError


def test_names_with_commas_are_files_as_a_whole_or_stand_in_quotes(tmp_path: Path) -> None:
    first, second, third = (tmp_path / name for name in ("a,b.onnx", "c d.onnx", "e.onnx"))
    for path in (first, second, third):
        path.touch()
    assert found_models([str(first), f"{second},{third}"]) == [first, second, third]
    assert found_models([f'"{first}",{second}']) == [first, second]
    with pytest.raises(ConfigError, match=r"^--models: "):
        found_models([f'"{first}'])
    with pytest.raises(ModelError, match=r"no ONNX model at .*missing"):
        found_models([f"{third},{tmp_path / 'missing.onnx'}"])
