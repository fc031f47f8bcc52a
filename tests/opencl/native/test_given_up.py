"""Test on a real device that launches complete what groups of persistent kernels have given up."""

from pathlib import Path

import numpy as np
import pytest

from gputune.client.model.plan import Plan
from gputune.client.model.reference import evaluate
from gputune.runtime.backends import Backend
from gputune.runtime.native.binding import Native
from tests.native.compiling import OPTIMISED, SOURCES, compiled, sanitizers
from tests.opencl.contexts import contexts, plan

__all__ = ["plan"]

INFERENCES = 60
"""Fewer than a quiet process makes before it compares the forms."""
IMPATIENT = (*OPTIMISED, "-shared", "-DMOST_ROUNDS=0.0", *sanitizers())


@pytest.fixture(scope="module")
def impatient(native: Native) -> Native:
    """Provide the library whose groups do not wait for each other; `native` says where OpenCL is."""
    return Native(compiled("libgputune_impatient.so", SOURCES, IMPATIENT))


def test_what_is_given_up_is_run_again_by_launches(
    impatient: Native, backend: Backend, plan: Plan, tmp_path: Path
) -> None:
    path = contexts(backend, plan, tmp_path / "model.bin")
    random = np.random.default_rng(1)
    with (
        impatient.open(path) as file,
        impatient.device(file, backend.identity.name) as device,
        device.load(file) as graph,
    ):
        if not graph.has_persistent:
            pytest.skip("groups do not run at the same time here")
        for _ in range(INFERENCES):
            inputs = {one.name: random.standard_normal(one.shape).astype(one.dtype) for one in graph.info.inputs}
            (want,) = evaluate(plan, inputs).values()
            (got,) = graph.run(inputs).values()
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * np.abs(want).max())
        total = graph.counters()[0]
        assert total["aborted"] > 0, "two groups seldom arrive at the same moment"
        assert sum(total[name] for name in ("persistent", "aborted", "launches", "recorded")) == INFERENCES
        assert not graph.warnings
