"""Test that quantised models have equal bytes in Python, in C, in onnxruntime and behind an agent."""

import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from gputune.client.generation.ep_context import EpContextFile
from gputune.client.model.importer import import_model
from gputune.client.model.lowering import lower
from gputune.client.model.reference import evaluate
from gputune.client.target.connecting import Target
from gputune.client.target.remote_executor import RemoteExecutor
from gputune.runtime import load
from gputune.runtime.backends import Backend
from tests.client.model.test_quantised import BIASED, GIVEN, Given, inputs_of, model_of
from tests.client.models import Array
from tests.native.compiling import INCLUDE, SOURCES, compiled, environment, opencl_library, sanitizers
from tests.onnxruntime.sessions import Onnxruntime
from tests.onnxruntimes import child_environment
from tests.opencl.contexts import contexts
from tests.opencl.server.conftest import shared_agent, target

__all__ = ["shared_agent", "target"]

Run = Callable[[Path, Mapping[str, Array]], Mapping[str, bytes]]
MODELS = {
    "static": Given(
        "(float[1,8,5,6] x) => (uint8[1,24,2,3] n, float[1,24,2,3] y)",
        BIASED + "c = Conv<pads=[1,1,1,1]>(d, v, b) p = QuantizeLinear(c, sy, zy) e = DequantizeLinear(p, sy, zy) "
        "m = MaxPool<kernel_shape=[2,2], strides=[2,2]>(e) n = QuantizeLinear(m, sy, zy) "
        "y = DequantizeLinear(n, sy, zy)",
    ),
    "dynamic": GIVEN["a dynamic product"],
    "bytes": GIVEN["a matrix in one operator"],
}


def bits(outputs: Mapping[str, Array]) -> dict[str, bytes]:
    return {name: value.tobytes() for name, value in outputs.items()}


@pytest.fixture
def in_c(backend: Backend, c_compiler: str, tmp_path: Path) -> Run:
    """By gputune-run, which reads and writes raw files."""
    program = compiled("gputune-run", [INCLUDE.parent / "main.c", *SOURCES], ("-O1", f"-I{INCLUDE}", *sanitizers()))
    environ = environment() | opencl_library()

    def run(path: Path, inputs: Mapping[str, Array]) -> dict[str, bytes]:
        for name, value in inputs.items():
            value.tofile(tmp_path / f"{name}.raw")
        command: list[str | Path] = [
            program,
            "--context_binary",
            path,
            "--output_dir",
            tmp_path / "c",
            "--device",
            backend.identity.name,
        ]
        files = [tmp_path / f"{name}.raw" for name in inputs]
        ran = subprocess.run([*command, *files], env=environ, capture_output=True, text=True, timeout=300)
        assert ran.returncode == 0, ran.stderr
        return {each.stem: each.read_bytes() for each in (tmp_path / "c" / "Result_0").iterdir()}

    return run


@pytest.fixture
def in_onnxruntime(backend: Backend, c_compiler: str, tmp_path: Path) -> Run:
    """By the plugin."""
    variables = {**opencl_library(), **child_environment("newest"), "GPUTUNE_DEVICE": backend.identity.name}

    def run(path: Path, inputs: Mapping[str, Array]) -> dict[str, bytes]:
        EpContextFile(path.with_suffix(".onnx"), embed=False).write(path)
        return bits(Onnxruntime(tmp_path, variables).outputs(path.with_suffix(".onnx"), inputs))

    return run


@pytest.fixture
def behind_an_agent(target: Target) -> Run:
    def run(path: Path, inputs: Mapping[str, Array]) -> dict[str, bytes]:
        with target.connect() as client:
            executor = RemoteExecutor(client, path, None, strict=True)
            try:
                return bits(executor.run_timed(inputs)[0])
            finally:
                executor.close()

    return run


@pytest.mark.parametrize("name", MODELS)
def test_bytes_are_equal_everywhere(
    backend: Backend, in_c: Run, in_onnxruntime: Run, behind_an_agent: Run, tmp_path: Path, name: str
) -> None:
    """And whole numbers are those of numpy."""
    plan = lower(import_model(model_of(MODELS[name]), Path("quantised"), {}))
    inputs, path = inputs_of(plan), contexts(backend, plan, tmp_path / "quantised.bin", persistent=False)
    found = load(path, device=backend.identity.name).run(inputs)
    for key, want in evaluate(plan, inputs).items():
        assert np.abs(found[key] - want.astype(np.float64)).max() <= (1e-4 if want.dtype.kind == "f" else 0)
    for run in (in_c, in_onnxruntime, behind_an_agent):
        assert run(path, inputs) == bits(found)
