"""Record which device tensor holds which tensor of the graph, and in which order of its elements.

Between operations every map is NHWC, and conversions are kernels at the ends of the model. A first convolution of few
channels needs no conversion: its template reads the planes of the model's input. Lines are maps of height 1; depth is
folded into channels or into two steps (passes/fold_depth.py). A move reads a map where it lies and writes the order
that its readers want. A transpose that equals the device's order is a view.

On CPU devices NHWC is as fast as blocked layouts and needs no conversions between kernels. Layout is part of a task's
key, so blocked layouts or images for phones can become alternatives without a new kind of task.
"""

from collections.abc import Callable

import numpy as np

from gputune.client.errors import ModelError
from gputune.client.model.graph import Array, Graph
from gputune.client.model.plan import GraphTensor
from gputune.kernels.family import TensorSpec
from gputune.kernels.ops.transpose import TransposeProblem
from gputune.kernels.ops.typed import TypedProblem

TO_DEVICE = (0, 2, 3, 1)
"""For each axis of a rank-4 tensor on the device (NHWC), the ONNX axis that it is."""


def device_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape in device order: NHWC for rank 4, else as it is."""
    return tuple(shape[axis] for axis in TO_DEVICE) if len(shape) == 4 else shape


def same_in_memory(shape: tuple[int, ...]) -> bool:
    """Return whether a tensor has the same bytes in ONNX order and in device order."""
    return len(shape) != 4 or shape[1] == 1 or shape[2] * shape[3] == 1


class Layouts:
    """The device tensors of a graph while it is being lowered.

    A float32 tensor of rank 4 has up to two device tensors, one in ONNX order and one in device order; others have
    one. The graph's inputs, outputs and constants own their names in ONNX order, all others in device order. What
    is asked for and not there yet is made: constants are permuted, what lies the same in memory is a view, and for
    the rest `emit(name, op, problem, inputs, output)` gets a conversion to run.
    """

    def __init__(self, graph: Graph, emit: Callable[[str, str, object, dict[str, str], str], None]) -> None:
        self.tensors: dict[str, TensorSpec] = {}
        self.constants: dict[str, Array] = {}
        self.aliases: dict[str, str] = {}
        self._graph = graph
        self._emit = emit
        self._shapes = {name: info.shape for name, info in graph.tensors.items()}
        self._dtypes = {name: info.dtype for name, info in graph.tensors.items()}
        self._known = dict(graph.constants)
        self._names: dict[tuple[str, bool], str] = {}
        self._matrices: dict[str, str] = {}
        self._given = graph.names()
        for name in graph.inputs:
            self.define(name, on_device=False)

    def shape(self, tensor: str) -> tuple[int, ...]:
        """Shape in ONNX order."""
        return self._shapes[tensor]

    @property
    def holds(self) -> dict[str, GraphTensor]:
        """Which tensor of the graph lies in each device tensor, and in which order."""
        return {name: GraphTensor(*held) for held, name in self._names.items()}

    def dtype(self, tensor: str) -> str:
        """numpy's name of its element type."""
        return self._dtypes[tensor]

    def define(self, tensor: str, on_device: bool) -> str:
        """Return the device tensor for a result that is about to be computed, in device or in ONNX order."""
        return self._claim(tensor, self._has_two(tensor) and on_device)

    def get(self, tensor: str, on_device: bool) -> str:
        """Return the device tensor that holds `tensor` in the order wanted."""
        wanted = self._has_two(tensor) and on_device
        if (tensor, wanted) in self._names:
            return self._names[tensor, wanted]
        if tensor in self._known:
            value = self._known[tensor]
            return self._constant(tensor, wanted, value.transpose(TO_DEVICE) if wanted else value)
        source = self._names[tensor, not wanted]
        target = self._claim(tensor, wanted)
        if same_in_memory(self.shape(tensor)):
            self._view(target, source)
        else:
            batch, channels, height, width = self.shape(tensor)
            order = ("NCHW", "NHWC") if wanted else ("NHWC", "NCHW")
            problem = TransposeProblem(batch, channels, height, width, *order)
            self._emit(target, "Transpose", problem, {"input": source}, target)
        return target

    def get_broadcast(self, tensor: str, rank: int, on_device: bool) -> str:
        """`get`, with leading axes of size 1 first where device order needs as many axes as the result has."""
        shape = self.shape(tensor)
        if not on_device or rank != 4 or len(shape) == 4:
            return self.get(tensor, on_device)
        padded = self._given.free(f"{tensor}/4d")
        self._shapes[padded], self._dtypes[padded] = (1,) * (4 - len(shape)) + shape, self.dtype(tensor)
        if tensor in self._known:
            self._known[padded] = self._known[tensor].reshape(self._shapes[padded])
        else:
            self.reshape(padded, tensor)
        return self.get(padded, on_device)

    def temporary(self, wanted: str, shape: tuple[int, ...], dtype: str = "float32") -> str:
        """Return a device tensor that the graph does not know, between two operations of one node."""
        name = self._given.free(wanted)
        self.tensors[name] = TensorSpec(name, shape, dtype=dtype)
        return name

    def reshape(self, target: str, source: str) -> None:
        """Make `target` the elements of `source` in ONNX order, in another shape: a view, or a constant.

        Where maps stay maps, with another height and width, it is a view in device order, too.
        """
        if source in self._known and target not in self._graph.outputs:
            self._known[target] = self._known[source].reshape(self.shape(target))
            return
        both = self._has_two(source) and self._has_two(target) and self.shape(source)[:2] == self.shape(target)[:2]
        on_device = both and self.lies_on_device(source)
        viewed = self.get(source, on_device)
        self._view(self._claim(target, on_device), viewed)

    def order(self, tensor: str, on_device: bool) -> tuple[int, ...]:
        """Return the axes of a tensor as they follow each other in memory, in device or in ONNX order."""
        return TO_DEVICE if on_device and self._has_two(tensor) else tuple(range(len(self.shape(tensor))))

    def view(self, target: str, on_device: bool, source: str) -> None:
        """Make `target`, in device or in ONNX order, the elements of the device tensor `source` as they lie there."""
        self._view(self.define(target, on_device), source)

    def constant(self, wanted: str, value: Array) -> str:
        """Return a constant that the graph does not know, as it is to lie on the device."""
        name = self._given.free(wanted)
        self._add_constant(name, value)
        return name

    def lies_on_device(self, tensor: str) -> bool:
        """Return whether a tensor is there in device order already, apart from ones that lie the same in both."""
        return (tensor, True) in self._names and not same_in_memory(self.shape(tensor))

    def converts(self, tensor: str, on_device: bool) -> bool:
        """Return whether `get` would have to compute the tensor in the order wanted from the other one."""
        there = not self._has_two(tensor) or (tensor, on_device) in self._names or self.is_constant(tensor)
        return not there and not same_in_memory(self.shape(tensor))

    def is_constant(self, tensor: str) -> bool:
        return tensor in self._known

    def matrix(self, weight: str) -> str:
        """Return the weights [O, C, 1, 1] of a 1x1 convolution as the right side [C, O] of a matrix product."""
        if weight not in self._matrices:
            value = self._known[weight]
            self._matrices[weight] = self.constant(f"{weight}/matrix", value.reshape(value.shape[:2]).T)
        return self._matrices[weight]

    def finish(self) -> None:
        """Sees to it that each output of the graph owns the memory in which it lies, in ONNX order."""
        outputs = self._graph.outputs
        for output in outputs:
            if output in self._graph.inputs:
                raise ModelError(f"output {output!r} of model {self._graph.called} is also an input")
            self.get(output, on_device=False)
        for output in outputs:
            if (root := self.aliases.get(output)) is None:
                continue
            del self.aliases[output]
            if root in self._graph.inputs or root in outputs or root in self.constants:
                shape, dtype = self.shape(output), self.dtype(output)
                problem = TypedProblem("copy", shape, (shape,), (dtype,), dtype)
                self._emit(output, "Typed", problem, {"input0": root}, output)
            else:  # the memory was the other tensor's; now that one is the view
                self.aliases.update({view: output for view, owner in self.aliases.items() if owner == root})
                self.aliases[root] = output

    def _has_two(self, tensor: str) -> bool:
        return len(self.shape(tensor)) == 4 and self.dtype(tensor) == "float32"

    def _claim(self, tensor: str, on_device: bool) -> str:
        owns_onnx_order = tensor in self._graph.inputs or tensor in self._graph.outputs or self.is_constant(tensor)
        name = tensor
        if self._has_two(tensor) and owns_onnx_order == on_device:
            name = self._given.free(f"{tensor}/{'NHWC' if on_device else 'NCHW'}")
        self._names[tensor, on_device] = name
        shape = device_shape(self.shape(tensor)) if on_device else self.shape(tensor)
        self.tensors[name] = TensorSpec(name, shape, dtype=self.dtype(tensor))
        return name

    def _constant(self, tensor: str, on_device: bool, value: Array) -> str:
        name = self._claim(tensor, on_device)
        self._add_constant(name, value)
        return name

    def _add_constant(self, name: str, value: Array) -> None:
        self.constants[name] = value = np.asarray(value)  # a mapped or turned weight is not copied
        self.tensors[name] = TensorSpec(name, value.shape, constant=True, dtype=value.dtype.name)

    def _view(self, target: str, source: str) -> None:
        self.aliases[target] = self.aliases.get(source, source)
