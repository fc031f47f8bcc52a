"""Ask onnxruntime for the types and shapes that it infers, such as behind its own operators, and run nodes in it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import onnx

from gputune.client.errors import ConfigError, ModelError
from gputune.client.model.graph import TensorInfo
from gputune.client.model.importer import check_declared
from gputune.client.model.parts.tensors import described_tensor
from gputune.core.dtypes import ELEMENT_TYPES, FLOAT
from gputune.runtime.onnxruntime import EXACT_PRODUCTS

NAMES = {**{name: name for name in ELEMENT_TYPES}, "float": FLOAT, "double": "float64"}
"""numpy's names of onnxruntime's element types."""


def host_types(model: onnx.ModelProto, path: Path, known: Mapping[str, TensorInfo]) -> dict[str, TensorInfo]:
    """Return types and shapes of tensors that a model computes, as far as onnxruntime infers them whatever the data.

    known: of its inputs and other tensors. Raises ConfigError if onnxruntime is not installed, ModelError if it cannot
    open the model, or an output has another type than declared.
    """
    onnxruntime = _onnxruntime()
    asked = onnx.ModelProto()
    asked.CopyFrom(model)
    graph = asked.graph
    computed = [name for node in graph.node for name in node.output if name]
    del graph.value_info[:]
    graph.value_info.extend(described_tensor(name, known[name]) for name in computed if name in known)
    del graph.output[:]
    graph.output.extend(onnx.ValueInfoProto(name=name) for name in computed)
    for item in graph.input:
        if item.name in known:
            item.CopyFrom(described_tensor(item.name, known[item.name]))
    try:
        found = _outputs(onnxruntime, asked, path)
    except ModelError:  # a branch that is not taken may not fit these shapes
        del graph.input[:]
        graph.input.extend(model.graph.input)
        del graph.value_info[:]
        found = _outputs(onnxruntime, asked, path)
    types = {item.name: dtype for item in found if (dtype := _dtype(item)) is not None}
    check_declared(path, model, types)
    return {item.name: info for item in found if (info := _info(item)) is not None}


def host_session(model: onnx.ModelProto, path: Path, spins: bool) -> Any:
    """Return a session of a model on the CPU, as an application would open it. path: what messages call the model.
    spins: whether threads wait for work by spinning. Raises ConfigError, ModelError."""
    onnxruntime = _onnxruntime()
    options = onnxruntime.SessionOptions()
    for name, value in {"session.intra_op.allow_spinning": str(int(spins)), **EXACT_PRODUCTS}.items():
        options.add_session_config_entry(name, value)
    return _opened(onnxruntime, options, model, path)


def _outputs(onnxruntime: Any, model: onnx.ModelProto, path: Path) -> list[Any]:
    """Return a model's outputs as a session knows them. Raises ModelError."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return list(_opened(onnxruntime, options, model, path).get_outputs())


def _opened(onnxruntime: Any, options: Any, model: onnx.ModelProto, path: Path) -> Any:
    options.log_severity_level = 4
    options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(path.parent))
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    except Exception as error:  # onnxruntime's errors have no class of their own
        raise ModelError(f"onnxruntime cannot open model {path}: {error}") from error


def _dtype(item: Any) -> str | None:
    """Return the type of the numbers in a tensor; None for what is no tensor of numbers."""
    kind, _, element = item.type.partition("(")
    return NAMES.get(element.rstrip(")")) if kind == "tensor" else None


def _info(item: Any) -> TensorInfo | None:
    """Return the shape and the type of a tensor; None for what is no tensor, and where a dimension is open. Of single
    numbers onnxruntime says no more than of tensors of which it knows nothing."""
    dtype = _dtype(item)
    if dtype is None or not item.shape or not all(isinstance(size, int) and size >= 0 for size in item.shape):
        return None
    return TensorInfo(tuple(item.shape), dtype)


def _onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise ConfigError(
            f"--unsupported host needs onnxruntime, which runs the rest of the model: pip install onnxruntime ({error})"
        ) from None
    return onnxruntime
