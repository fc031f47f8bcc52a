"""Find the operator set of ONNX's own domain in which a model or a function is written."""

from onnx import FunctionProto, ModelProto

from gputune.client.model.importer.definitions import STANDARD


def opset_of(holder: ModelProto | FunctionProto, default: int = 0) -> int:
    """Return the operator set, `default` if none is named."""
    return max((int(item.version) for item in holder.opset_import if item.domain in STANDARD), default=default)
