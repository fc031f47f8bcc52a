"""Run a model in onnxruntime as the oracle of what it computes. Only this module needs that optional library."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import onnx

from gputune.client.errors import ConfigError
from gputune.client.model.graph import Array
from gputune.core.dtypes import FLOAT, FLOATS, HALF


class Oracle:
    """Runs a model in onnxruntime on the CPU, as it is written: without any optimisation."""

    def __init__(self, path: Path, model: onnx.ModelProto | None = None) -> None:
        """model: what is run in place of the file `path`, in whose folder its weights are. Raises ConfigError where
        onnxruntime is missing or cannot run the model."""
        self._path = path
        self._instead = model
        self._given: Mapping[str, Array] = {}
        self._onnxruntime = _onnxruntime()
        self._session = self._open(str(path) if model is None else model.SerializeToString())

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
        if self._instead is None:
            return onnx.load(str(self._path), load_external_data=False)
        model = onnx.ModelProto()
        model.CopyFrom(self._instead)
        return model

    def _open(self, model: str | bytes) -> Any:
        options = self._onnxruntime.SessionOptions()
        options.graph_optimization_level = self._onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 3  # errors only
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(self._path.parent))
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


def _onnxruntime() -> Any:
    try:
        import onnxruntime
    except ImportError as error:
        raise ConfigError(f"--verify needs onnxruntime: pip install onnxruntime ({error})") from None
    return onnxruntime
