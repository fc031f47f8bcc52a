"""Import an ONNX file as a Graph: everything is static, constants are folded, and unsupported parts are refused by
name.

models.py puts a model together: opening/ checks what the file holds, and graph_builder.py visits its nodes. folding.py
computes known values, shapes.py the shapes of all others; bounds.py checks that indices are in range. inlining.py
replaces nodes that stand for other nodes; definitions/ has those of operators that are not ONNX's. operators.py says
what is supported, and shape_inputs.py which inputs must have known values. deciding.py proposes values for inputs of
the model from which those follow. halves.py leaves one type of floats to what comes behind.
"""

from gputune.client.input_values import Value, told_value, value_of
from gputune.client.model.importer.folding import folded
from gputune.client.model.importer.graph_builder import Visited
from gputune.client.model.importer.halves import in_reals
from gputune.client.model.importer.models import (
    Imported,
    check_operators,
    dimension_names,
    import_model,
    import_nodes,
    input_names,
    load,
    read_interface,
    read_model,
    read_static_inputs,
    sized_names,
)
from gputune.client.model.importer.opening.inputs import Input, Interface, interface_of
from gputune.client.model.importer.opening.ordering import every_node, graphs_of, in_order, read_by, taken_by
from gputune.client.model.importer.opening.types import check_declared
from gputune.client.model.importer.opening.weights import data_files
from gputune.client.model.importer.operators import SUPPORTED_OPS, operator_of

__all__ = [
    "SUPPORTED_OPS",
    "Imported",
    "Input",
    "Interface",
    "Value",
    "Visited",
    "check_declared",
    "check_operators",
    "data_files",
    "dimension_names",
    "every_node",
    "folded",
    "graphs_of",
    "import_model",
    "import_nodes",
    "in_order",
    "in_reals",
    "input_names",
    "interface_of",
    "load",
    "operator_of",
    "read_by",
    "read_interface",
    "read_model",
    "read_static_inputs",
    "sized_names",
    "taken_by",
    "told_value",
    "value_of",
]
