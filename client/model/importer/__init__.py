"""Import an ONNX file as a Graph: everything is static, constants are folded, and unsupported parts are refused by
name.

models.py puts a model together: opening/ checks what the file holds, and graph_builder.py visits its nodes. folding.py
computes known values, shapes.py the shapes of all others; bounds.py checks that indices are in range. inlining.py
replaces nodes that stand for other nodes. operators.py says what is supported, and shape_inputs.py which inputs must
have known values.
"""

from gputune.client.model.importer.models import check_operators, import_model, read_model, sized_names
from gputune.client.model.importer.opening.inputs import OPTION
from gputune.client.model.importer.opening.weights import data_files
from gputune.client.model.importer.operators import QUANTISED_OPS, SUPPORTED_OPS

__all__ = [
    "OPTION",
    "QUANTISED_OPS",
    "SUPPORTED_OPS",
    "check_operators",
    "data_files",
    "import_model",
    "read_model",
    "sized_names",
]
