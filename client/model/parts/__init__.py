"""Cut a model into parts that run on the device, between nodes that stay in onnxruntime.

cutting.py decides which nodes belong to which part. multiply_adds.py says how much work a node is, and quantised.py
which nodes onnxruntime computes in int8. Shapes that onnx cannot infer are what onnxruntime infers (host_types.py) or
what the model states (stated_types.py). rest.py makes the ONNX model that is left.
"""

from gputune.client.model.parts.cutting import Cut, Part, cut_model, cut_of
from gputune.client.model.parts.rest import rest_of
from gputune.client.model.parts.telling import described, operators, stayed, told

__all__ = ["Cut", "Part", "cut_model", "cut_of", "described", "operators", "rest_of", "stayed", "told"]
