"""Run every case of ONNX's own test suite on the device, by gputune and in onnxruntime with the plugin."""

import json
import subprocess

import pytest

import tool
from models.onnx_suite_worker import GROUPS

BATCHES = 16
"""So many processes run the groups of cases, because a driver that dies takes its process with it."""


@pytest.mark.night
@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.parametrize("through", ["gputune", "onnxruntime"])
def test_cases_are_right_or_refused_for_a_reason_that_is_known(through: str, batch: int) -> None:
    command = [*tool.module("models.onnx_suite_worker"), through, *GROUPS[batch::BATCHES]]
    ran = subprocess.run(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, env=tool.environment(), check=False
    )
    results = [json.loads(line) for line in ran.stdout.splitlines()[1:]]
    failed = {result["name"]: result["detail"] for result in results if result["status"] == "failed"}
    assert (ran.returncode, failed) == (0, {}), f"the last was {results[-1]['name'] if results else 'none'}"
