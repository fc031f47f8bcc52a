"""Test contexts that store float16 or bfloat16: right, smaller, and the same bits in C as in Python."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest

from gputune.client.model.graph import Precision
from gputune.client.model.importer import import_model
from gputune.client.model.lowering import lower
from gputune.client.model.reference import evaluate
from gputune.client.run.local_device import LocalDevice
from gputune.core.dtypes import BFLOAT, ELEMENT_TYPES, FLOAT, HALF
from gputune.core.precision import STORED
from gputune.runtime.backends import Backend
from gputune.runtime.context.format import open_context
from gputune.runtime.contexts.executor import NativeExecutor
from gputune.runtime.executor import Executor
from gputune.runtime.memory.handles import MemHandle
from gputune.runtime.native.binding import Native
from gputune.runtime.values import Array
from tests.client.model.test_alternatives import two_blocks
from tests.client.models import build
from tests.opencl.contexts import compiling, inputs_of, loaded, outputs, written


def in_halves(dtype: str = HALF) -> onnx.ModelProto:
    """A model whose inputs, weights and outputs are halves, with casts around an operator in float32."""
    to = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    body = f"""c = Conv<pads=[1,1,1,1]>(x, k) r = Relu(c) p = MaxPool<kernel_shape=[2,2], strides=[2,2]>(r)
              f = Flatten(p) m = MatMul(f, w) a = Cast<to=1>(m) s = Softmax(a) y = Cast<to={to}>(s)"""
    numbers = np.random.default_rng(3)
    weights = {
        "k": numbers.standard_normal((5, 3, 3, 3)).astype(dtype),
        "w": (numbers.standard_normal((5 * 4 * 3, 7)) / 8).astype(dtype),
    }
    return build(f"({dtype}[1,3,8,7] x) => ({dtype}[1,7] y)", body, weights, opset=22, ir_version=10)


MODELS: Mapping[str, tuple[Callable[[], onnx.ModelProto], Precision]] = {
    "blocks": (two_blocks, Precision(STORED)),
    "float16": (in_halves, Precision()),
    "bfloat16": (partial(in_halves, BFLOAT), Precision()),
    "given": (two_blocks, Precision(STORED, given={"x": HALF})),
}
DAILY = ("blocks", "bfloat16")


@pytest.mark.parametrize("name", [pytest.param(one, marks=[pytest.mark.night] * (one not in DAILY)) for one in MODELS])
def test_all_forms_compute_the_same_right_bits(native: Native, backend: Backend, tmp_path: Path, name: str) -> None:
    make, precision = MODELS[name]
    paths = written(tmp_path, {"m": make()}, compiling(backend), backend, persistent=True, precision=precision)
    plan = lower(replace(import_model(make(), Path("m.onnx"), {}), precision=precision))
    allowed = 4 * ELEMENT_TYPES[plan.coarsest].resolution
    with loaded(backend, paths[0]) as executor:
        inputs, wanted = inputs_of(executor, 0), outputs(executor, 0)
        right = evaluate(plan, inputs)
        for tensor in executor.graph.outputs:
            got = np.frombuffer(wanted[tensor.name], tensor.dtype).reshape(tensor.shape).astype(np.float64)
            np.testing.assert_allclose(got, right[tensor.name], atol=allowed * np.abs(right[tensor.name]).max())
    for path in paths:
        with native.open(path) as file, native.device(file, backend.identity.name) as device:
            for one_by_one in (False, True):
                with device.load(file, graph="m", one_by_one=one_by_one) as graph:
                    assert {key: value.tobytes() for key, value in graph.run(inputs).items()} == wanted


@pytest.fixture(params=[HALF, BFLOAT])
def halves(request: pytest.FixtureRequest, backend: Backend, tmp_path: Path) -> Iterator[Executor]:
    """A graph in C that takes and gives halves."""
    model = build("(half[4,6] x, half[6] b) => (half[4,6] y, half[6] z)".replace("half", request.param),
                  "y = Add(x, b) z = Relu(b)", opset=14)  # fmt: skip
    (path,) = written(tmp_path, {"m": model}, compiling(backend), backend, kinds=["packed"])
    with loaded(backend, path) as executor:
        assert isinstance(executor, NativeExecutor)
        yield executor


def bits_of(arrays: Mapping[str, Array]) -> dict[str, tuple[str, bytes]]:
    return {name: (str(one.dtype), one.tobytes()) for name, one in arrays.items()}


@pytest.mark.filterwarnings("ignore:.*is copied")  # arrays of a few bytes
def test_halves_are_given_in_all_kinds_of_memory(halves: Executor) -> None:
    """Arrays, handles that the device maps or that are of arrays, and shared memory; what is returned has the type."""
    inputs = inputs_of(halves, 5)
    wanted = {"y": inputs["x"] + inputs["b"], "z": np.maximum(inputs["b"], 0)}
    tensors = (*halves.graph.inputs, *halves.graph.outputs)
    arrays = {one.name: np.zeros(one.shape, one.dtype) for one in tensors}
    for make in (halves.allocate_for, lambda one: MemHandle.from_array(arrays[one.name])):
        handles = {one.name: make(one) for one in tensors}
        for name, value in inputs.items():
            handles[name].view(value.dtype, value.shape)[...] = value
        given, taken = ({name: handles[name] for name in names} for names in (inputs, wanted))
        for found in (halves.run(inputs), halves.run(given), halves.run(inputs, taken), halves.run(given, taken)):
            assert bits_of(found) == bits_of(wanted)
    for name, value in inputs.items():
        halves.shared_inputs[name][...] = value
    halves.run_in_place()
    assert bits_of(halves.shared_outputs) == bits_of(wanted)


@pytest.mark.parametrize("dtype", ["float32", "int16", ">f2"])
def test_other_types_of_arrays_are_not_taken_for_halves(halves: Executor, dtype: str) -> None:
    inputs = inputs_of(halves, 6)
    with pytest.raises((ValueError, TypeError), match="x"):
        halves.run(inputs | {"x": inputs["x"].astype(dtype)})


def test_weights_and_arenas_are_half_as_large(backend: Backend, tmp_path: Path) -> None:
    body = "a = Conv(x, u) b = Conv<strides=[2,2], pads=[1,1,1,1]>(a, v) c = GlobalAveragePool(b) y = Conv(c, w)"
    weights = {"u": (96, 32, 1, 1), "v": (64, 96, 3, 3), "w": (40, 64, 1, 1)}
    model = build("(float[1,32,14,14] x) => (float[1,40,1,1] y)", body, weights)
    nbytes = {}
    for mode in (FLOAT, STORED):
        folder = tmp_path / mode
        folder.mkdir()
        (path,) = written(
            folder, {"m": model}, LocalDevice(backend), backend, precision=Precision(mode), kinds=["packed"]
        )
        with open_context(path) as file:
            header = file.header
            held = sum(header.sections[index].length for index in header.weights)
            nbytes[mode] = held, sum(header.graphs[0].arena_bytes)
    assert nbytes[STORED][0] <= 0.52 * nbytes[FLOAT][0]
    assert nbytes[STORED][1] <= 0.55 * nbytes[FLOAT][1]
