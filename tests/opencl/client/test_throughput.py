"""Test throughput-net-run on a real device: two contexts that share arenas in parallel with two that share nothing."""

import json
from pathlib import Path

import numpy as np
import pytest

from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.runtime.backends import Backend
from tests.client.commands import Gputune, read_json
from tests.client.model.test_alternatives import two_blocks
from tests.client.models import conv_relu_gemm, save
from tests.opencl.contexts import contexts, inputs_of, loaded

MODELS = {"first": conv_relu_gemm, "second": two_blocks, "third": conv_relu_gemm, "fourth": two_blocks}


@pytest.mark.long("who serves several models at once: no other test runs throughput-net-run on a device")
def test_groups_and_others_run_beside_each_other(
    backend: Backend, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    listed = []
    for name, model in MODELS.items():
        (tmp_path / name).mkdir()
        path = contexts(backend, lower(read_model(save(model(), tmp_path / name))), tmp_path / f"{name}.bin")
        lines = []
        with loaded(backend, path) as executor:
            for seed in range(3):
                for tensor, value in inputs_of(executor, seed).items():
                    np.save(tmp_path / name / f"{seed}.npy", value)
                    lines.append(f"{tensor}:={tmp_path / name / str(seed)}.npy\n")
        (tmp_path / f"{name}.txt").write_text("".join(lines))
        listed.append({"path": str(path), "input_list": str(tmp_path / f"{name}.txt"), "instances": 2})
    for context, priority in zip(listed, ("low", "high"), strict=False):
        context |= {"group": "g", "priority": priority}
    config = {"contexts": listed, "groups": {"g": {"streams": 1}}, "warmup": 3}
    (tmp_path / "config.json").write_text(json.dumps(config))
    ran = Gputune(capfd)(
        "throughput-net-run", "--config", tmp_path / "config.json", "--duration", "0.5", "--summary_json",
        tmp_path / "summary.json",
    )  # fmt: skip
    assert ran.code == 0, ran.err
    summary = read_json(tmp_path / "summary.json")
    assert summary["computes"] is True
    assert summary["wrong"] == 0
    assert all(one["inferences"] for name, one in summary["instances"].items() if not name.startswith("first"))
    for context in summary["contexts"].values():
        assert context["executed"] == context["inferences"] + context["warmup"]
        assert context["warnings"] == []
