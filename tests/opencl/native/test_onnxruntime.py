"""Test that sessions of onnxruntime give the bits of contexts that Python runs on a real device."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from gputune.client.generation.ep_context import EpContextFile
from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.runtime import load
from gputune.runtime.backends import Backend
from tests.client.model.test_alternatives import two_blocks
from tests.client.models import save
from tests.native.compiling import opencl_library
from tests.onnxruntime.sessions import Array, Onnxruntime, opened, run, skip_unloadable
from tests.onnxruntimes import VERSIONS, child_environment
from tests.opencl.contexts import contexts


@pytest.fixture
def binary(backend: Backend, tmp_path: Path) -> Path:
    """A context with persistent kernels where the device can run them."""
    return contexts(backend, lower(read_model(save(two_blocks(), tmp_path))), tmp_path / "model.bin")


@pytest.fixture(params=[pytest.param(one, marks=[pytest.mark.night] * (one == "oldest")) for one in VERSIONS])
def ort(
    c_compiler: str, backend: Backend, tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Onnxruntime:
    skip_unloadable(request.param)
    variables = {**opencl_library(), **child_environment(request.param)}
    return Onnxruntime(tmp_path_factory.mktemp("steps"), {**variables, "GPUTUNE_DEVICE": backend.identity.name})


def given(binary: Path) -> tuple[list[dict[str, Array]], list[dict[str, Array]]]:
    """Inputs, and their outputs by Python."""
    executor = load(binary)
    numbers = np.random.default_rng(1)
    inputs = [
        {tensor.name: numbers.standard_normal(tensor.shape).astype(tensor.dtype) for tensor in executor.graph.inputs}
        for _ in range(4)
    ]
    return inputs, [executor.run(one) for one in inputs]


@pytest.mark.parametrize("embed", [False, True])
def test_a_session_gives_the_bits_of_the_context(ort: Onnxruntime, binary: Path, tmp_path: Path, embed: bool) -> None:
    EpContextFile(tmp_path / "model.onnx", embed).write(binary)
    inputs, wanted = given(binary)
    options = {"cache_compatibility_mode": "strict"}
    nothing, *found = ort.do(opened(tmp_path / "model.onnx", options=options), *map(run, inputs)).results
    assert nothing is None, nothing
    for mine, one in zip(found, wanted, strict=True):
        assert mine.keys() == one.keys()
        assert all(mine[name].tobytes() == array.tobytes() for name, array in one.items())


def test_nodes_around_run_on_the_host(ort: Onnxruntime, binary: Path, tmp_path: Path) -> None:
    EpContextFile(tmp_path / "model.onnx", False).write(binary)
    inputs, wanted = given(binary)
    model = onnx.load(str(tmp_path / "model.onnx"))
    x, y = model.graph.input[0].name, model.graph.output[0].name
    model.graph.node[0].input[0] = "negative"
    model.graph.node.insert(0, helper.make_node("Neg", [x], ["negative"]))
    model.graph.node.append(helper.make_node("Neg", [y], ["last"]))
    model.graph.value_info.extend(model.graph.output)
    model.graph.output[0].name = "last"
    onnx.save(model, str(tmp_path / "model.onnx"))
    steps = [run({**one, x: -one[x]}) for one in inputs]
    nothing, *found = ort.do(opened(tmp_path / "model.onnx"), *steps).results
    assert nothing is None, nothing
    for mine, one in zip(found, wanted, strict=True):
        assert mine["last"].tobytes() == (-one[y]).tobytes()
