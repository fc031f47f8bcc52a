"""Make a model of the nodes of a part alone, as onnxruntime would run them."""

import onnx

from gputune.client.model.importer import read_by
from gputune.client.model.parts.cutting import Cut, Part
from gputune.client.model.parts.tensors import constant_tensor, described_tensor


def alone(cut: Cut, part: Part) -> onnx.ModelProto | None:
    """Return the model's nodes that one of the cut's own parts has, as a model with the part's inputs and outputs. None
    if they read more than the part, so that they can only run where more is computed."""
    imported, graph = cut.imported, onnx.GraphProto(name=part.graph.name)
    whole, tensors = imported.model, imported.graph.tensors
    places = cut.places_of(part)
    graph.node.extend(whole.graph.node[place] for place in places)
    computed = {name for node in graph.node for name in node.output}
    read = dict.fromkeys(name for node in graph.node for name in read_by(node) if name not in computed)
    kept = [name for name in part.graph.outputs if name not in computed]  # such as a shape, which is known
    known = [name for name in dict.fromkeys([*read, *kept]) if name in imported.constants]
    if any(name not in imported.constants and name not in part.graph.inputs for name in read):
        return None
    graph.initializer.extend(constant_tensor(name, imported.constants[name]) for name in known)
    graph.input.extend(described_tensor(name, tensors[name]) for name in part.graph.inputs)
    graph.output.extend(described_tensor(name, tensors[name]) for name in part.graph.outputs)
    return onnx.ModelProto(ir_version=max(whole.ir_version, 8), opset_import=whole.opset_import, graph=graph)
