"""Cut a model into parts that run on the device, between nodes that stay in onnxruntime.

cutting.py decides which nodes belong to which part. multiply_adds.py says how much work a node is. Shapes that onnx
cannot infer are what onnxruntime infers (host_types.py) or what the model states (stated_types.py). rest.py makes the
ONNX model that is left, and alone.py a model of a part.
"""

from gputune.client.model.parts.alone import alone
from gputune.client.model.parts.cutting import Cut, Part, cut_model, cut_of
from gputune.client.model.parts.host_types import host_session
from gputune.client.model.parts.rest import rest_of
from gputune.client.model.parts.telling import described, operators, stayed, told

__all__ = [
    "Cut",
    "Part",
    "alone",
    "cut_model",
    "cut_of",
    "described",
    "host_session",
    "operators",
    "rest_of",
    "stayed",
    "told",
]
