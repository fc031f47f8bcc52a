"""Define operators that ONNX does not have by operators that it has."""

from collections.abc import Callable, Mapping, Sequence

import onnx.defs
import onnx.parser
from onnx import FunctionProto, NodeProto, TypeProto

from gputune.client.model.graph import Array
from gputune.client.model.importer.definitions import attention, classical, fused, quantised_transformer
from gputune.client.model.importer.definitions.attention import ATTENTION
from gputune.client.model.importer.definitions.blocks import BLOCKS
from gputune.client.model.importer.definitions.classical import CLASSICAL
from gputune.client.model.importer.definitions.fused import FUSED, IN_ONNX
from gputune.client.model.importer.definitions.quantised_transformer import TRANSFORMER
from gputune.client.model.importer.definitions.quantising import QUANTISING
from gputune.client.model.importer.definitions.use import NotDefined, Use

__all__ = ["DOMAIN", "STANDARD", "NotDefined", "defined_body", "is_defined"]

STANDARD = ("", "ai.onnx")
"""How ONNX's own domain is called."""
DOMAIN = "com.microsoft"
OPSET = 21
"""The operator set in which definitions are written. Those that quantise are written in the model's."""
OUTPUTS: Mapping[str, tuple[str, ...]] = {
    "DynamicQuantizeLSTM": ("Y", "h", "c"),
    **attention.OUTPUTS,
    **classical.OUTPUTS,
    **fused.OUTPUTS,
    **quantised_transformer.OUTPUTS,
}
"""The names of the results of operators that have several."""
DEFINITIONS: Mapping[str, Mapping[str, Callable[[Use], str]]] = {
    DOMAIN: {**QUANTISING, **TRANSFORMER, **FUSED, **ATTENTION, **BLOCKS},
    classical.DOMAIN: CLASSICAL,
}
"""By domain and operator, what writes the nodes of a use. It raises NotDefined for one that is not known."""


def defined_body(
    node: NodeProto, opset: int, types: Sequence[TypeProto], known: Sequence[Array | None]
) -> FunctionProto | None:
    """Return the function that defines an operator in this operator set; None for an unknown one. types: of its inputs,
    empty ones for those that are absent. known: their values, if they have some. Raises NotDefined for a use that is
    not known."""
    if not (definition := _definition(node, opset)):
        return None
    quantising = node.op_type in QUANTISING
    use = Use(node, opset if quantising else OPSET, types, known)
    written = definition(use)
    inputs = ", ".join(f"i{k}" for k in range(len(node.input)))
    outputs = ", ".join(OUTPUTS.get(node.op_type, ("y",))[: len(node.output)])
    head = f'<domain: "{node.domain}", opset_import: ["" : {use.opset}]> {node.op_type} ({inputs}) => ({outputs})'
    one = "one = Constant<value = float {1.0}>()" if quantising else ""
    body = onnx.parser.parse_function(f"{head} {{ {one} {' '.join(use.lines)} {written} }}")
    for part in body.node:
        named = node.op_type in (f"QLinear{part.op_type}", f"DynamicQuantize{part.op_type}")
        if named and part.op_type not in ("Add", "Mul", "GlobalAveragePool"):
            part.attribute.extend(item for item in node.attribute if item.name not in ("channels_last", "opset"))
    return body


def is_defined(node: NodeProto, opset: int) -> bool:
    """Return whether a node's operator, which this operator set does not have, has a definition here."""
    return _definition(node, opset) is not None


def _definition(node: NodeProto, opset: int) -> Callable[[Use], str] | None:
    if node.domain in DEFINITIONS:
        return DEFINITIONS[node.domain].get(node.op_type)
    if node.domain in STANDARD and node.op_type in IN_ONNX:
        has = onnx.defs.has(node.op_type) and onnx.defs.get_schema(node.op_type).since_version <= opset
        return None if has else IN_ONNX[node.op_type]
    return None
