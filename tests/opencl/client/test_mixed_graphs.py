"""Compare made-up models of all kinds of operators, as contexts on the device, with onnxruntime."""

from pathlib import Path

import pytest

from gputune.client.model.importer import import_model
from gputune.client.run.local_device import LocalDevice
from tests.client.mixed_graphs import Maker, far_off, wanted
from tests.opencl.conftest import KernelBench


@pytest.mark.parametrize("seed", [35, 20001, 20004, 20005])
def test_made_up_models_run_on_the_device(bench: KernelBench, seed: int) -> None:
    made = Maker(seed, nodes=9)
    got = LocalDevice(bench.backend).load(import_model(made.model, Path("made up"), {})).run({"x": made.input})
    wrong = {name: far_off(got[name], want) for name, want in wanted(made).items()}
    assert not any(wrong.values()), wrong
