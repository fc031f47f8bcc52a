"""Test that kernels read an input that they are lent, and nothing beside it."""

from collections.abc import Callable
from pathlib import Path

import onnx
import pytest

from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.runtime.backends import Backend
from gputune.runtime.native.binding import Native
from tests.client import models
from tests.native.compiling import OPTIMISED, SOURCES, compiled, sanitizers
from tests.opencl.contexts import contexts, inputs_of, loaded
from tests.opencl.known import reads_in_place
from tests.opencl.runtime.test_reading_in_place import Fenced

MODELS: list[Callable[[], onnx.ModelProto]] = [models.conv_relu_gemm, models.squeeze_excite, models.gemms]


@pytest.mark.parametrize("model", [MODELS[0], *(pytest.param(one, marks=pytest.mark.night) for one in MODELS[1:])])
def test_kernels_of_both_forms_read_an_input_and_nothing_beside_it(
    backend: Backend, tmp_path: Path, model: Callable[[], onnx.ModelProto]
) -> None:
    if not reads_in_place(backend.identity):
        pytest.skip("this driver does not read inputs in place")
    lends = Native(compiled("libgputune_small.so", SOURCES, (*OPTIMISED, "-shared", "-DLEAST_LENT=1", *sanitizers())))
    path = contexts(backend, lower(read_model(models.save(model(), tmp_path))), tmp_path / "model.bin")
    executor = loaded(backend, path)
    inputs = inputs_of(executor, 3)
    with lends.open(path) as file, lends.device(file, backend.identity.name) as device:
        for one_by_one in (False, True):
            executor.persistent_kernels = not one_by_one
            want = executor.run(inputs)
            with device.load(file, one_by_one=one_by_one) as graph:
                for at_end in (False, True, False):
                    fenced = {name: Fenced(value, at_end) for name, value in inputs.items()}
                    found = graph.run({name: one.array for name, one in fenced.items()})
                    assert {name: one.tobytes() for name, one in found.items()} == {
                        name: one.tobytes() for name, one in want.items()
                    }
                    assert graph.counters()[1]["writes"] == 0
    executor.close()
