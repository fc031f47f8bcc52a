"""Compute a convolution of NHWC maps, or of planes, by onnxruntime."""

from collections.abc import Mapping

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

from gputune.kernels.family import Array
from gputune.kernels.ops.conv import ConvProblem
from gputune.kernels.ops.depthwise import DepthwiseProblem


def run_convolution(problem: ConvProblem | DepthwiseProblem, inputs: Mapping[str, Array], groups: int) -> Array:
    """The convolution alone, without the epilogue, as [N, Ho, Wo, C]."""
    names = [name for name in ("input", "weight", "bias") if name in inputs]
    node = helper.make_node(
        "Conv", names, ["output"], kernel_shape=problem.kernel, strides=problem.strides, pads=problem.pads,
        dilations=problem.dilations, group=groups,
    )  # fmt: skip
    values = {name: inputs[name] for name in names}
    if problem.layout == "NHWC":
        values["input"] = np.ascontiguousarray(values["input"].transpose(0, 3, 1, 2))
    given = [helper.make_tensor_value_info(name, TensorProto.FLOAT, values[name].shape) for name in names]
    graph = helper.make_graph([node], "conv", given, [helper.make_tensor_value_info("output", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    result: Array = session.run(None, values)[0]
    return np.ascontiguousarray(result.transpose(0, 2, 3, 1))
