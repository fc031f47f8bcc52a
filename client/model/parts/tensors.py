"""Describe tensors and constants as onnx has them."""

import numpy as np
import onnx
from onnx import helper, numpy_helper

from gputune.client.model.graph import Array, TensorInfo


def described_tensor(name: str, info: TensorInfo) -> onnx.ValueInfoProto:
    """Return what onnx says of a tensor."""
    return helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(np.dtype(info.dtype)), info.shape)


def constant_tensor(name: str, value: Array) -> onnx.TensorProto:
    """Return a constant that a model holds."""
    return numpy_helper.from_array(np.asarray(value, order="C"), name)
