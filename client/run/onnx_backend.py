"""Implement ONNX's backend interface, `onnx.backend.base.Backend`, for ONNX's test suite and other callers.

    from gputune.client.run.onnx_backend import GputuneBackend
    outputs = GputuneBackend.run_model(onnx.load("model.onnx"), [picture])

Models run with default configurations in this process; only the context binary generator tunes. Inputs that say how to
compute (shape_inputs.py), and shapes that the model leaves open, are known only when a model runs. The context is made
then, and another context for other values. What is known without computing on the device, such as a shape, is an
ordinary output.
"""

from __future__ import annotations

import functools
import hashlib
import unittest
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.backend.base
from onnx import ModelProto, NodeProto, ValueInfoProto, helper

from gputune.client.errors import ModelError
from gputune.client.memory_types import OPTION, RAW, MemoryTypes
from gputune.client.model.graph import Array, Graph
from gputune.client.model.importer import check_operators, import_model
from gputune.client.model.importer.definitions import STANDARD
from gputune.client.model.importer.inlining import with_functions_in_place
from gputune.client.model.importer.opening.checking import check_node, checked
from gputune.client.model.importer.opening.old_models import modern
from gputune.client.model.importer.shape_inputs import compile_time_inputs
from gputune.client.run.local_device import LocalDevice
from gputune.core.errors import DeviceNotFound
from gputune.runtime.backends import open_backend
from gputune.runtime.devices.discovery import NULL_REPORTS, DeviceReport, choose, discover, wanted_device
from gputune.runtime.memory.handles import MemHandle
from gputune.runtime.values import Value

ANY_DEVICE = "CPU"
"""How ONNX calls the device of callers who do not care; here it is the one that gputune would choose."""

MOST_KEPT = 16
"""Contexts of one model that are kept for the shapes and values that they were made for; the oldest goes first."""


class Unsupported(ModelError, unittest.SkipTest):
    """What gputune does not run, and why, in one line. Test suites count it as skipped."""


class LoadedGraph:
    """A graph on a device, and what of its outputs was known without it.

    known: those outputs by name. executor: what computes the others; None where there are none. operations: how many
    kernels it launches.
    """

    def __init__(self, graph: Graph, device: LocalDevice, memory_types: MemoryTypes) -> None:
        self.known = {
            name: graph.constants[name].astype(graph.stored(name), copy=False)
            for name in graph.outputs
            if name in graph.constants
        }
        computed = tuple(name for name in graph.outputs if name not in self.known)
        rest = replace(graph, outputs=computed)
        self.executor = device.load(rest.rewritten(rest.nodes), memory_types) if computed else None
        self.operations = len(self.executor.graph.launches) if self.executor else 0

    def run(self, inputs: Mapping[str, Value], outputs: Mapping[str, Value]) -> dict[str, Array]:
        """Run one inference. Raises as Executor.run does."""
        if self.executor is None:
            return dict(self.known)
        computed = {name: value for name, value in outputs.items() if name not in self.known}
        return {**self.known, **self.executor.run(inputs, computed)}


class PreparedModel(onnx.backend.base.BackendRep):
    """A model that runs on a device.

    loaded: what ran last; None before the first run of a model of which something is known only then.
    """

    def __init__(self, model: ModelProto, device: LocalDevice, memory_types: MemoryTypes) -> None:
        self._memory_types = memory_types
        self._model = model
        self._device = device
        self._infos = {item.name: item for item in model.graph.input}
        self._valued = {item.name for item in model.graph.initializer}
        self._compile_time = compile_time_inputs(model.graph.node)
        self._graphs: dict[object, LoadedGraph] = {}
        self.loaded: LoadedGraph | None = None
        needed = [item for name, item in self._infos.items() if name not in self._valued]
        if all(_is_static(item) and item.name not in self._compile_time for item in needed):
            self.loaded = self._load({}, {})

    def run(
        self, inputs: Sequence[Any] | Mapping[str, Any], outputs: Mapping[str, Value] | None = None, **kwargs: Any
    ) -> tuple[Array, ...]:
        """Return the outputs in the model's order, for inputs in the model's order or by name. Those that have a value
        in the model may be left out: all of them, or the last ones. Memory handles may stand for inputs that are
        computed with, and `outputs` may give arrays or handles by name, as to Executor.run; an output that is known
        without computing stays where it is. Raises Unsupported, ValueError for what does not fit the model,
        DeviceError."""
        if kwargs:
            raise TypeError(f"run takes only inputs and outputs, not {', '.join(kwargs)}")
        given = self._named(inputs)
        free = {name: value for name, value in given.items() if not self._is_bound(name, value)}
        arrays = {name: value for name, value in given.items() if not isinstance(value, MemHandle)}
        bound = {name: value for name, value in arrays.items() if name not in free}
        open_shapes = {
            name: value.shape for name, value in arrays.items() if name in free and not _is_static(self._infos[name])
        }
        self.loaded = self._load(open_shapes, bound)
        results = self.loaded.run(free, outputs or {})
        return tuple(results[item.name] for item in self._model.graph.output)

    def _named(self, inputs: Sequence[Any] | Mapping[str, Any]) -> dict[str, Value]:
        required = [name for name in self._infos if name not in self._valued]
        if not isinstance(inputs, Mapping):
            if len(inputs) > len(self._infos):
                raise ValueError(f"{len(inputs)} inputs for a model that has {len(self._infos)}: {list(self._infos)}")
            names = required if len(inputs) == len(required) else list(self._infos)
            inputs = dict(zip(names, inputs, strict=False))
        for name in [name for name in required if name not in inputs]:
            raise ValueError(f"the model needs the input {name!r}")
        for name in [name for name in inputs if name not in self._infos]:
            raise ValueError(f"the model has no input {name!r}; its inputs are {list(self._infos)}")
        return {name: _array(name, value, self._infos[name]) for name, value in inputs.items()}

    def _is_bound(self, name: str, value: Value) -> bool:
        """Return whether an input becomes a constant: because it steers, has a value that is replaced, or has no
        elements."""
        if isinstance(value, MemHandle):
            if name in self._compile_time or name in self._valued or not _is_static(self._infos[name]):
                raise ValueError(f"input {name!r} must be an array: the model's shapes or constants depend on it")
            return False
        return name in self._compile_time or name in self._valued or not value.size

    def _load(self, shapes: Mapping[str, tuple[int, ...]], bound: Mapping[str, Array]) -> LoadedGraph:
        digest = hashlib.sha256()
        for name in sorted(bound):
            digest.update(f"{name} {bound[name].dtype} {bound[name].shape} ".encode())
            digest.update(bound[name].tobytes())
        key = (tuple(sorted(shapes.items())), digest.digest())
        if key not in self._graphs:
            try:
                graph = import_model(self._model, _path(self._model), shapes, bound)
                self._graphs[key] = LoadedGraph(graph, self._device, self._memory_types)
            except ModelError as error:
                raise Unsupported(error.message) from error
            if len(self._graphs) > MOST_KEPT:
                del self._graphs[next(iter(self._graphs))]
        return self._graphs[key]


class GputuneBackend(onnx.backend.base.Backend):
    """Runs models on an OpenCL device. Devices are called as `gputune devices` lists them: by number or part of a name;
    "CPU" is whichever gputune would choose, also where it is no CPU."""

    @classmethod
    def is_compatible(cls, model: ModelProto, device: str = ANY_DEVICE, **kwargs: Any) -> bool:
        """Return whether `prepare` takes the model; running it may still show that a value is not supported."""
        try:
            cls.prepare(model, device, **kwargs)
        except Unsupported:
            return False
        return True

    @classmethod
    def prepare(cls, model: ModelProto, device: str = ANY_DEVICE, **kwargs: Any) -> PreparedModel:
        """Return the model, ready to run. The one option, input_output_tensor_mem_type, is that of
        context-binary-generator: what is going to be given for inputs and outputs, "raw" or "memhandle", or
        NAME=memhandle,.... Raises onnx's ValidationError for an invalid model, Unsupported for what cannot run whatever
        its inputs are, ConfigError for the option, DeviceNotFound."""
        memory_types = MemoryTypes.parse(kwargs.pop(OPTION, "raw"))
        _refuse(kwargs)
        model = checked(model)
        try:
            model = modern(with_functions_in_place(model), _path(model))
            _check_tensors(model)
            check_operators(model)
        except ModelError as error:
            raise Unsupported(error.message) from error
        except ValueError as error:
            raise Unsupported(f"model {_path(model)} {error}") from error
        memory_types.check({model.graph.name: [item.name for item in (*model.graph.input, *model.graph.output)]})
        return PreparedModel(model, cls.opened(device), memory_types)

    @classmethod
    def run_node(
        cls,
        node: NodeProto,
        inputs: Sequence[Any],
        device: str = ANY_DEVICE,
        outputs_info: Sequence[tuple[np.dtype[Any], tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Array, ...]:
        """Return the outputs of one operator; `opset_version` is the newest where it is not given. Raises as prepare
        and PreparedModel.run do."""
        version = kwargs.pop("opset_version", onnx.defs.onnx_opset_version())
        _refuse(kwargs)
        check_node(node, version)
        values = [np.asarray(value) for value in inputs]
        names = [name for name in node.input if name]
        if len(names) != len(values):
            raise ValueError(f"{len(values)} inputs for a node that reads {len(names)}: {names}")
        given = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
            for name, value in dict(zip(names, values, strict=True)).items()
        ]
        results = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
        graph = helper.make_graph([node], node.name or node.op_type, given, results)
        domains = {"", node.domain}
        opsets = [helper.make_opsetid(domain, version if domain in STANDARD else 1) for domain in domains]
        model = helper.make_model(graph, opset_imports=opsets)
        return PreparedModel(model, cls.opened(device), RAW).run(dict(zip(names, values, strict=True)))

    @classmethod
    def opened(cls, device: str) -> LocalDevice:
        """Return what models run on, opened once in a process. Raises DeviceNotFound."""
        return _device(device)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether there is such a device, and it works."""
        try:
            _report(device)
        except DeviceNotFound:
            return False
        return True


prepare = GputuneBackend.prepare
run_model = GputuneBackend.run_model
run_node = GputuneBackend.run_node
supports_device = GputuneBackend.supports_device


@functools.cache
def _reports() -> tuple[DeviceReport, ...]:
    return tuple(discover())


def _report(device: str) -> DeviceReport:
    wanted = wanted_device(None if device == ANY_DEVICE else device)
    return choose([] if wanted in NULL_REPORTS else _reports(), wanted).report


@functools.cache
def _device(device: str) -> LocalDevice:
    return LocalDevice(open_backend(_report(device)))


def _path(model: ModelProto) -> Path:
    """Return what messages call a model that has no file."""
    return Path(model.graph.name or "given")


def _refuse(options: Mapping[str, object]) -> None:
    for name in options:
        raise TypeError(f"there is no option {name!r}")


def _check_tensors(model: ModelProto) -> None:
    for what, items in (("input", model.graph.input), ("output", model.graph.output)):
        for item in items:
            if not item.type.HasField("tensor_type"):
                raise ModelError(f"{what} {item.name!r} of model {_path(model)} is not a tensor")


def _is_static(item: ValueInfoProto) -> bool:
    """Return whether a model says how large an input is."""
    kind = item.type.tensor_type
    return kind.HasField("shape") and all(dim.dim_value > 0 for dim in kind.shape.dim)


def _array(name: str, value: Any, item: ValueInfoProto) -> Value:
    """Return an input as the array that the model takes, or its handle. What is no tensor stays what it is, and is
    refused at import."""
    if isinstance(value, MemHandle):
        return value
    array = np.asarray(value)
    if item.type.HasField("tensor_type") and array.dtype.kind in "iufb":
        wanted = np.dtype(helper.tensor_dtype_to_np_dtype(item.type.tensor_type.elem_type))
        if array.dtype != wanted:
            raise ValueError(f"input {name!r} is {array.dtype}, the model takes {wanted}")
    return array
