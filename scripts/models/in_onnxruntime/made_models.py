"""Make models of which onnxruntime has to run a part: a layout detector that selects boxes, and a classifier
with float64 inside."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from models import material

STRIDES = (8, 16, 32, 64)
CLASSES, BINS = 10, 8
"""By so many probabilities the detector says how far each side of a box is, in strides."""
MOST_BOXES, OVERLAP, LEAST_SCORE = 100, 0.5, 0.4


def selecting_detector() -> Path:
    """The layout detector with NonMaxSuppression at its end: it shows the boxes and which of them it selects."""
    model = onnx.load(material.layout_model())
    graph, nodes = model.graph, _Appended(model.graph)
    picture = [size.dim_value for size in graph.input[0].type.tensor_type.shape.dim]
    scores, distances = ([item.name for item in graph.output][start : start + 4] for start in (0, 4))
    del graph.output[:]
    centres, strides = _centres(*picture[2:])
    bins = nodes("Softmax", nodes("Reshape", nodes("Concat", *distances, axis=1), np.array([1, -1, 4, BINS])), axis=-1)
    sides = nodes("Squeeze", nodes("MatMul", bins, np.arange(BINS, dtype=np.float32)[:, None]), np.array([-1]))
    left_top, right_bottom = nodes.two("Split", nodes("Mul", sides, strides), np.array([2, 2]), axis=-1)
    ends = nodes("Sub", centres, left_top), nodes("Add", centres, right_bottom)
    shown = {"boxes": nodes("Concat", *ends, axis=-1)}
    shown["scores"] = nodes("Transpose", nodes("Concat", *scores, axis=1), perm=[0, 2, 1])
    limits = np.array([MOST_BOXES]), np.array([OVERLAP], np.float32), np.array([LEAST_SCORE], np.float32)
    shown["selected"] = nodes("NonMaxSuppression", *shown.values(), *limits)
    cells = centres.shape[1]
    shapes = {"boxes": (1, cells, 4), "scores": (1, CLASSES, cells), "selected": ("count", 3)}
    for name, tensor in shown.items():
        graph.node.append(helper.make_node("Identity", [tensor], [name]))
        kind = onnx.TensorProto.INT64 if name == "selected" else onnx.TensorProto.FLOAT
        graph.output.append(helper.make_tensor_value_info(name, kind, shapes[name]))
    return _saved(model, "selecting_detector")


def double_inside() -> Path:
    """The classifier of text lines, with a tensor in its middle that is float64 for a moment."""
    model = onnx.load(material.angle_model())
    graph = model.graph
    sums = [place for place, node in enumerate(graph.node) if node.op_type == "Conv"]
    place = sums[len(sums) // 2]
    node, nodes = graph.node[place], _Appended(graph)
    double = nodes("Cast", node.input[0], to=onnx.TensorProto.DOUBLE)
    node.input[0] = nodes("Cast", double, to=onnx.TensorProto.FLOAT)
    for one in reversed(nodes.made):
        graph.node.remove(one)
        graph.node.insert(place, one)
    return _saved(model, "double_inside")


class _Appended:
    """Appends nodes to a graph; each call returns the name of the output. Arrays become weights."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self._graph = graph
        self.made: list[onnx.NodeProto] = []

    def __call__(self, op: str, *inputs: Any, **attributes: Any) -> str:
        (name,) = self._outputs(op, inputs, 1, attributes)
        return name

    def two(self, op: str, *inputs: Any, **attributes: Any) -> list[str]:
        """The same, with two outputs."""
        return self._outputs(op, inputs, 2, attributes)

    def _outputs(self, op: str, inputs: Sequence[Any], count: int, attributes: dict[str, Any]) -> list[str]:
        title = f"appended{len(self.made)}"
        names = []
        for number, value in enumerate(inputs):
            names.append(value if isinstance(value, str) else f"{title}_weight{number}")
            if not isinstance(value, str):
                self._graph.initializer.append(numpy_helper.from_array(np.asarray(value), names[-1]))
        outputs = [f"{title}_{number}" for number in range(count)]
        self.made.append(helper.make_node(op, names, outputs, title, **attributes))
        self._graph.node.append(self.made[-1])
        return outputs


def _centres(lines: int, columns: int) -> tuple[Any, Any]:
    """The centre (x, y, as it is twice in a box) of each cell of all grids, and the stride of its grid."""
    centres, strides = [], []
    for stride in STRIDES:
        y, x = np.mgrid[: -(-lines // stride), : -(-columns // stride)].reshape(2, -1)
        centres.append((np.stack([x, y], axis=-1) + 0.5) * stride)
        strides.append(np.full((x.size, 1), stride))
    return tuple(np.concatenate(one)[None].astype(np.float32) for one in (centres, strides))  # type: ignore[return-value]


def _saved(model: onnx.ModelProto, stem: str) -> Path:
    path = material.MATERIAL / "made" / f"{stem}.onnx"
    onnx.checker.check_model(model)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(model, path)
    return path
