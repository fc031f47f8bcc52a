"""Run quantised models on the device: bytes and integers are those of numpy in every element."""

from pathlib import Path

import numpy as np
import pytest

from gputune.client.model.importer import import_model
from gputune.client.model.lowering import lower
from gputune.client.model.reference import evaluate
from gputune.client.run.local_device import LocalDevice
from tests.client.model.test_quantised import GIVEN, inputs_of, model_of
from tests.opencl.conftest import KernelBench

DAILY = ("a Gemm", "a range")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in DAILY else pytest.mark.night) for name in GIVEN]
)
def test_quantised_models_are_exact_on_the_device(bench: KernelBench, name: str) -> None:
    graph = import_model(model_of(GIVEN[name]), Path("quantised"), {})
    plan = lower(graph)
    inputs = inputs_of(plan)
    got = LocalDevice(bench.backend).load(graph).run(inputs)
    for output, want in evaluate(plan, inputs).items():
        if want.dtype.kind == "f" or GIVEN[name].off:
            assert np.mean(np.abs(got[output] - want.astype(np.float64)) > 1e-6 * np.abs(want).max()) <= GIVEN[name].off
        else:
            np.testing.assert_array_equal(got[output], want)
