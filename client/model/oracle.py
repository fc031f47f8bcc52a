"""Run a model in onnxruntime as the oracle of what it computes. Only this module needs that optional library.

Products of bytes with weights of int8 saturate in onnxruntime on x86 processors without VNNI, so they are wrong there.
With weights of uint8 they are right everywhere: such weights, and their zero points, are handed over as larger by 128.
Products with weights of a few bits may allow onnxruntime to round what is multiplied with them: here it may not.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

from gputune.client.errors import ConfigError
from gputune.client.model.graph import Array
from gputune.client.model.importer.opening.narrowing import widen
from gputune.client.model.importer.opening.ordering import every_node
from gputune.core.dtypes import FLOAT, FLOATS, HALF
from gputune.runtime.onnxruntime import EXACT_PRODUCTS

WEIGHTS: Mapping[str, Sequence[tuple[int, int, int]]] = {
    "ConvInteger": [(1, 3, 2)],
    "DynamicQuantizeLSTM": [(1, 9, -1), (2, 11, -1)],
    "DynamicQuantizeMatMul": [(1, 3, -1)],
    "MatMulInteger": [(1, 3, 2)],
    "MatMulIntegerToFloat": [(1, 5, 4)],
    "QGemm": [(3, 5, 2)],
    "QLinearConv": [(3, 5, 2)],
    "QLinearMatMul": [(3, 5, 2)],
}
"""By operator, the inputs that hold each weight, its zero point, and the zero point of the other factor. The last is -1
if the other factor is uint8 in any case."""
IN_FLOATS = 1
"""The accuracy_level of MatMulNBits in float32; those above it are of fewer bits."""
RANGES_BY_THREADS = frozenset(("DynamicQuantizeLSTM",))
"""Operators for which onnxruntime has ranges of their own for the rows of each thread."""


class Oracle:
    """Runs a model in onnxruntime on the CPU, as it is written: without any optimisation, but for bfloat16, of which
    onnxruntime computes little: there it is float32."""

    def __init__(self, path: Path, model: onnx.ModelProto | None = None) -> None:
        """model: what is run in place of the file `path`, in whose folder its weights are. Raises ConfigError where
        onnxruntime is missing or cannot run the model."""
        self._path = path
        self._instead = model
        self._given: Mapping[str, Array] = {}
        self._onnxruntime = _onnxruntime()
        found = self._call(self._model)
        self._one_thread = any(node.op_type in RANGES_BY_THREADS for node in found.graph.node)
        changes = [widen(found, path), without_saturation(found, path.parent), without_rounding(found)]
        if any(changes):
            self._instead = found
        self._level = self._onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        self._session = self._open(str(path) if self._instead is None else self._instead.SerializeToString())

    def optimised(self) -> Oracle:
        """Return this oracle with all optimisations, and exact products of bytes. Raises ConfigError."""
        other = copy.copy(self)
        other._level = self._onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
        other._session = other._open(str(self._path) if self._instead is None else self._instead.SerializeToString())
        return other

    def given(self, inputs: Mapping[str, Array]) -> Oracle:
        """Return this oracle with inputs that are the same every time, which a context does not have."""
        other = copy.copy(self)
        other._given = inputs
        return other

    def run(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return the model's outputs by name; inputs of another type of floats than the model's are converted. Raises
        ConfigError."""
        return self._ask(self._session, inputs)

    def tensors(self, names: Sequence[str], inputs: Mapping[str, Array]) -> dict[str, Array]:
        """Return those of some tensors that the model computes under this name in it, in the order in which it has
        them."""
        model = self._model()
        wanted = set(names)
        found = [name for node in model.graph.node for name in node.output if name in wanted]
        del model.graph.output[:]
        model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in found)
        return self._ask(self._open(model.SerializeToString()), inputs) if found else {}

    @cached_property
    def names(self) -> frozenset[str]:
        """The tensors that the model's nodes compute."""
        return frozenset(name for node in self._model().graph.node for name in node.output if name)

    def _model(self) -> onnx.ModelProto:
        model = onnx.ModelProto()
        if self._instead is None:
            model = onnx.load(str(self._path), load_external_data=False)
        else:
            model.CopyFrom(self._instead)
        return model

    def _open(self, model: str | bytes) -> Any:
        options = self._onnxruntime.SessionOptions()
        options.graph_optimization_level = self._level
        options.log_severity_level = 3  # errors only
        options.intra_op_num_threads = 1 if self._one_thread else 0
        folder = {"session.model_external_initializers_file_folder_path": str(self._path.parent)}
        for name, value in {**folder, **EXACT_PRODUCTS}.items():
            options.add_session_config_entry(name, value)
        return self._call(lambda: self._onnxruntime.InferenceSession(model, options, ["CPUExecutionProvider"]))

    def _ask(self, session: Any, inputs: Mapping[str, Array]) -> dict[str, Array]:
        names = [output.name for output in session.get_outputs()]
        types = {"tensor(float16)": HALF, "tensor(double)": "float64"}
        floats = {one.name: types[one.type] for one in session.get_inputs() if one.type in types}
        given = {
            name: value.astype(floats.get(name, FLOAT)) if value.dtype in FLOATS else value
            for name, value in inputs.items()
        }
        return dict(zip(names, self._call(lambda: session.run(names, {**self._given, **given})), strict=True))

    def _call(self, work: Any) -> Any:
        try:
            return work()
        except Exception as error:  # onnxruntime's errors have no class of their own
            raise ConfigError(f"--verify: onnxruntime cannot run {self._path}: {error}") from error


def without_saturation(model: onnx.ModelProto, folder: Path) -> bool:
    """Hand over weights of int8 as those of uint8 where they are multiplied with such. Return whether there are any."""
    constants = {item.name: item for item in model.graph.initializer}
    constants |= {
        node.output[0]: item.t
        for node in model.graph.node
        if node.op_type == "Constant"
        for item in node.attribute
        if item.name == "value"
    }
    ranges = {name for node in model.graph.node if node.op_type == "DynamicQuantizeLinear" for name in node.output}
    made: set[str] = set()

    def larger(name: str, shape: tuple[int, ...] = ()) -> str:
        """Return the name of a constant that is larger by 128. shape: of the zeros that stand for an absent one."""
        called = f"{name or f'zeros {shape}'}/as uint8"
        if called not in made:
            made.add(called)
            tensor = constants.get(name)
            value = np.zeros(shape, np.int8) if tensor is None else numpy_helper.to_array(tensor, str(folder))
            stored = (value.astype(np.int16) + 128).astype(np.uint8)
            model.graph.initializer.append(numpy_helper.from_array(stored, called))
        return called

    for node in model.graph.node:
        for weight, zero, other in WEIGHTS.get(node.op_type, ()):
            names = [*node.input, *[""] * (zero + 1 - len(node.input))]
            tensor, point = constants.get(names[weight]), names[zero]
            if tensor is None or tensor.data_type != onnx.TensorProto.INT8 or (point and point not in constants):
                continue
            partner = constants.get(names[other])
            if other == -1 or names[other] in ranges or (partner and partner.data_type == onnx.TensorProto.UINT8):
                shape = tuple(tensor.dims[:1]) if node.op_type == "DynamicQuantizeLSTM" else ()
                names[weight], names[zero] = larger(names[weight]), larger(point, shape)
                node.input[:] = names
    return bool(made)


def without_rounding(model: onnx.ModelProto) -> bool:
    """Have products with weights of a few bits compute in float32. Return whether any is allowed less."""
    levels = [
        item
        for node in every_node(model.graph.node)
        if node.op_type == "MatMulNBits"
        for item in node.attribute
        if item.name == "accuracy_level" and item.i > IN_FLOATS
    ]
    for item in levels:
        item.i = IN_FLOATS
    return bool(levels)


def _onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise ConfigError(f"--verify needs onnxruntime: pip install onnxruntime ({error})") from None
    return onnxruntime
