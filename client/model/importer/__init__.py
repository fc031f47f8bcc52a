"""ONNX file -> Graph: everything static, constants folded, and whatever is not supported refused by name.

models.py brings a model together: opening/ checks what the file holds, and graph_builder.py visits its nodes.
folding.py computes what is known, shapes.py says what the others compute, bounds.py whether their indices are inside,
and inlining.py takes apart what stands for other nodes. operators.py says what is supported; shape_inputs.py, of which
inputs values must be known.
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
