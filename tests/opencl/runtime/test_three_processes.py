"""Test three programs and two descriptors: results equal results from arrays, and gputune copies nothing."""

from pathlib import Path

from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.runtime.backends import Backend
from tests.client import models
from tests.opencl.contexts import contexts, loaded
from tests.opencl.runtime.three_processes import pass_frames

FRAMES = 50


def test_frames_pass_through_three_processes_without_a_copy(backend: Backend, tmp_path: Path) -> None:
    plan = lower(read_model(models.save(models.conv_relu_gemm(), tmp_path)))
    with loaded(backend, contexts(backend, plan, tmp_path / "context.bin")) as executor:
        passed = pass_frames(executor, FRAMES)
    assert passed.seen == passed.wanted
    assert passed.copied_bytes == 0
