"""Test that programs compiled before are not compiled again, whatever asks for them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.client import models
from tests.client.commands import Gputune, read_json
from tests.client.models import save


@pytest.fixture
def generate(gputune: Gputune, tmp_path: Path, null_target: tuple[object, ...]) -> Any:
    """Generates a small model of defaults with a kernel repository; the totals of the summary, and what was said."""
    model = save(models.conv_relu_gemm(), tmp_path)

    def run(**keys: object) -> tuple[Any, str]:
        config = tmp_path / "config.json"
        config.write_text(json.dumps({"kernel_repo_path": str(tmp_path / "repo"), **keys}))
        ran = gputune(
            "context-binary-generator", "--model", model, "--binary_file", "m", "--output_dir", tmp_path,
            "--config_file", config, *null_target, "--tuning_effort", "none",
            "--summary_json", tmp_path / "summary.json",
        )  # fmt: skip
        assert ran.code == 0, ran.err
        return read_json(tmp_path / "summary.json")["totals"], ran.err

    return run


def test_a_second_context_of_defaults_compiles_nothing(generate: Any, tmp_path: Path) -> None:
    totals, said = generate()
    assert totals["compile_requests"] > 0
    assert f"0 programs found, {totals['compile_requests']} compiled" in said
    one = (tmp_path / "m.bin").read_bytes()
    again, said = generate()
    assert again["compile_requests"] == 0
    assert f"{totals['compile_requests']} programs found, 0 compiled" in said
    assert (tmp_path / "m.bin").read_bytes() == one
    assert generate(invalidate_kernel_repo=True)[0]["compile_requests"] == totals["compile_requests"]
