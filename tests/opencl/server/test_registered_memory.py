"""Test a target on a local socket with a real device: it computes in the client's memory, and only names travel."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.client.target.client import TargetClient
from gputune.client.target.remote_executor import RemoteExecutor
from gputune.runtime.backends import Backend
from gputune.runtime.loading.model import load
from gputune.runtime.memory.handles import MemHandle
from tests.client import models
from tests.opencl.contexts import contexts
from tests.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.own("a local socket")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Of a server on the device that gputune chooses here."""
    with tempfile.TemporaryDirectory(prefix="gputune-") as folder:
        command = [sys.executable, "-m", "gputune.server", "--unix", f"{folder}/socket"]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            assert any(re.match("gputune target server listening on unix:", line) for line in process.stdout)
            yield f"unix:{folder}/socket"
            process.terminate()
            process.wait(PATIENCE_SECONDS)
        assert os.listdir(folder) == []  # noqa: PTH208


def test_a_target_computes_where_the_memory_lies(address: str, backend: Backend, tmp_path: Path) -> None:
    model = models.save(models.conv_relu_gemm(), tmp_path)
    path = contexts(backend, lower(read_model(model)), tmp_path / "context.bin")
    local = load(path)
    (x,), (y,) = local.graph.inputs, local.graph.outputs
    random = np.random.default_rng(5)
    with TargetClient.connect(address, 0) as client:
        executor = RemoteExecutor(client, path, None, strict=False)
        given, taken = executor.allocate_for(x), executor.allocate_for(y)
        for _ in range(5):
            values = random.standard_normal(x.shape, np.float32)
            given.view(x.dtype, x.shape)[...] = values
            outputs, _ = executor.run_timed({x.name: given}, {y.name: taken})
            wanted, _ = executor.run_timed({x.name: values})
            assert np.shares_memory(outputs[y.name], taken.array)
            assert np.array_equal(outputs[y.name], wanted[y.name])
            assert np.allclose(outputs[y.name], local.run({x.name: values})[y.name], rtol=1e-4, atol=1e-5)
        assert executor.copied_bytes == 0
        executor.close()
        given.close()
        taken.close()


def test_two_clients_use_one_memory(address: str, backend: Backend, tmp_path: Path) -> None:
    """One context writes what the other one reads, and neither client has the tensor."""
    model = models.save(models.conv_relu_gemm(), tmp_path)
    path = contexts(backend, lower(read_model(model)), tmp_path / "context.bin")
    with TargetClient.connect(address, 0) as one, TargetClient.connect(address, 0) as other:
        first, second = (RemoteExecutor(client, path, None, strict=False) for client in (one, other))
        (x,), (y,) = first.graph.inputs, first.graph.outputs
        given = MemHandle.allocate(x.nbytes)
        given.view(x.dtype, x.shape)[...] = np.random.default_rng(6).standard_normal(x.shape, np.float32)
        shared = MemHandle.from_fd(given.fileno(), 0, x.nbytes)
        assert np.array_equal(
            first.run_timed({x.name: given})[0][y.name], second.run_timed({x.name: shared})[0][y.name]
        )
