"""List the operators that have kernels, and the operators that will never have kernels."""

import onnx

from gputune.client.model.graph import ROUNDINGS
from gputune.client.model.importer.inlining import has_body
from gputune.client.model.importer.opening.operator_sets import STANDARD
from gputune.client.model.lowering.added import lowering_of
from gputune.client.model.lowering.operators import LOWERINGS
from gputune.client.model.passes.fuse_elementwise import ELEMENTWISE
from gputune.client.model.passes.one_form import ONE_FORM_OPS

NO_MODELS = frozenset(("Elementwise", "Rearrange", *ROUNDINGS.values()))
"""What no model holds, though it is lowered."""

SUPPORTED_OPS = (frozenset(LOWERINGS) | ELEMENTWISE | ONE_FORM_OPS) - NO_MODELS
# fmt: off
QUANTISED_OPS = frozenset((
    "ConvInteger", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger", "QLinearConv",
    "QLinearMatMul", "QuantizeLinear",
))
# fmt: on


def operator_of(node: onnx.NodeProto) -> str:
    """Return what an operator is called in tables: with its domain, unless that is ONNX's own."""
    return node.op_type if node.domain in STANDARD else f"{node.domain}.{node.op_type}"


def is_supported(operator: str) -> bool:
    """Return whether there are kernels for an operator, an op package's included."""
    return operator in SUPPORTED_OPS or lowering_of(operator) is not None


def is_quantised(operator: str) -> bool:
    return operator in QUANTISED_OPS or operator.startswith("QLinear")


def why_not(operator: str) -> str:
    """Return why an operator that is not supported is refused."""
    return "it computes with quantised numbers" if is_quantised(operator) else f"there are no kernels for {operator}"


def may_run(node: onnx.NodeProto, opset: int) -> bool:
    """Return whether there are kernels for a node's operator, or a body that may be made of operators with kernels."""
    return is_supported(operator_of(node)) or has_body(node, opset)
