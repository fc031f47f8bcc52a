"""Compare models with recurrent cells, as contexts on the device, with onnxruntime: every output, lengths as inputs."""

from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from gputune.client.model.importer import import_model
from gputune.client.run.local_device import LocalDevice
from tests.client.model.test_recurrent import case
from tests.opencl.conftest import KernelBench


@pytest.mark.parametrize(("op", "optional"), [("LSTM", "B h c P"), ("GRU", "B h")])
def test_cells_run_on_the_device(bench: KernelBench, op: str, optional: str) -> None:
    model, inputs = case(op, optional, lengths=(5, 2, 3), direction="bidirectional")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    got = LocalDevice(bench.backend).load(import_model(model, Path("recurrent.onnx"), {})).run(inputs)
    assert list(got) == names
    for name, want in zip(names, session.run(None, inputs), strict=True):
        np.testing.assert_allclose(got[name], want, rtol=1e-5, atol=1e-5)
