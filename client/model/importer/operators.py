"""List the operators that have kernels, and the operators that will never have kernels."""

import onnx

from gputune.client.model.graph import ONE_FOR_ZERO, QUANTISE, RATIO, ROUNDINGS, WHOLE_SUM
from gputune.client.model.importer.definitions import STANDARD
from gputune.client.model.importer.inlining import has_body
from gputune.client.model.lowering.added import lowering_of
from gputune.client.model.lowering.operators import LOWERINGS
from gputune.client.model.passes.fuse_elementwise import ELEMENTWISE
from gputune.client.model.passes.one_form import ONE_FORM_OPS
from gputune.client.model.passes.quantised import QUANTISED_FORMS

NO_MODELS = frozenset(("Elementwise", "Rearrange", ONE_FOR_ZERO, QUANTISE, RATIO, WHOLE_SUM, *ROUNDINGS.values()))
"""What no model holds, though it is lowered."""

SUPPORTED_OPS = (frozenset(LOWERINGS) | ELEMENTWISE | ONE_FORM_OPS | QUANTISED_FORMS.keys()) - NO_MODELS


COPIED = frozenset(("com.microsoft.DequantizeLinear", "com.microsoft.QuantizeLinear"))
"""Operators that mean the same as ONNX's."""


def operator_of(node: onnx.NodeProto) -> str:
    """Return what an operator is called in tables: with its domain, unless that is ONNX's own or a copy of it."""
    if node.domain in STANDARD or f"{node.domain}.{node.op_type}" in COPIED:
        return node.op_type
    return f"{node.domain}.{node.op_type}"


def in_onnx(node: onnx.NodeProto) -> onnx.NodeProto:
    """Return a node as ONNX has it, where its operator is a copy."""
    if node.domain in STANDARD or operator_of(node) != node.op_type:
        return node
    copy = onnx.NodeProto()
    copy.CopyFrom(node)
    copy.domain = ""
    return copy


def is_supported(operator: str) -> bool:
    """Return whether there are kernels for an operator, an op package's included."""
    return operator in SUPPORTED_OPS or lowering_of(operator) is not None


def why_not(operator: str) -> str:
    """Return why an operator that is not supported is refused."""
    return f"there are no kernels for {operator}"


def may_run(node: onnx.NodeProto, opset: int) -> bool:
    """Return whether there are kernels for a node's operator, or a body that may be made of operators with kernels."""
    return is_supported(operator_of(node)) or has_body(node, opset)
