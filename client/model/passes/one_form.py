"""Bring operators that can be written in many ways into one form, so that later passes and lowering know only that
form.

Cast           also for CastLike; the type is the output's; an Identity if the input has that type
Clip           bounds as attributes "min" and "max", whatever the operator set; a Max and a Min if the bounds are
               computed or the numbers are integers
Pow            a float32 exponent if the base is float32
Max, Min, Sum  of two inputs (a Sum is an Add), chained; an Identity for one input
Mean           the same as a Sum, and a Div by their number
Concat         of two or more parts that have elements; an Identity for one part
Scatter...     an Identity if there is nothing to write
Reshape        also for Flatten, Squeeze and Unsqueeze; the shape is the output's, the one input is the data
Softmax        attribute "axes": the first and last of the neighbouring axes over which it runs together; the same for
               LogSoftmax and Hardmax
BatchNorm      a Mul and an Add with one number per channel, computed by steps before them if it is not known;
               see normalisation_forms.py
Gemm, MatMul, Einsum   see product_forms.py
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from gputune.client.errors import ModelError, Refusal, UnsupportedNodes
from gputune.client.model.graph import Graph, Node, renamed
from gputune.client.model.passes import elementwise_forms, normalisation_forms, product_forms
from gputune.client.model.passes.additions import Work
from gputune.client.model.passes.refusing import refusing


def one_form(graph: Graph) -> Graph:
    """Return the same graph in canonical operators. Raises ModelError for uses of them that are not supported."""
    work = Work(graph)
    nodes: list[Node] = []
    refusals: list[Refusal] = []
    for node in graph.nodes:
        try:
            with refusing(node):
                nodes += FORMS.get(node.op, _as_is)(work, node)
        except UnsupportedNodes as error:
            refusals += error.refusals
    if refusals:
        raise UnsupportedNodes(refusals)
    return _with_copies(work, nodes)


def _with_copies(work: Work, nodes: list[Node]) -> Graph:
    """Return the graph of these nodes, with a copy in each output that is a constant; its readers read the constant."""
    graph, copies = work.graph, dict[str, str]()
    for output in graph.outputs:
        if output in graph.constants:
            value = graph.constants[output]
            if not value.size:
                nothing = f"has the shape {value.shape}, without elements: there is nothing to compute"
                raise ModelError(f"output {output!r} of model {graph.called} {nothing}")
            copies[output] = work.exact(f"{output}/value", value)
    others = {name: value for name, value in graph.constants.items() if name not in copies}
    copied = (Node("Identity", value, (value,), (output,)) for output, value in copies.items())
    return replace(graph, constants=others).rewritten(
        [*copied, *renamed(nodes, copies)], work.constants, work.tensors, work.scaled
    )


def _as_is(work: Work, node: Node) -> Iterator[Node]:
    yield node


def _conv(work: Work, node: Node) -> Iterator[Node]:
    rank, seen = (len(work.graph.shape(name)) for name in node.inputs[:2])
    if rank != seen:
        raise node.unsupported(f"its weight has {seen} dimensions, its input has {rank}")
    yield node


def _concat(work: Work, node: Node) -> Iterator[Node]:
    parts = tuple(name for name in node.inputs if work.graph.tensors[name].size)
    yield replace(node, inputs=parts) if len(parts) > 1 else replace(node, op="Identity", inputs=parts, attributes={})


def _scatter(work: Work, node: Node) -> Iterator[Node]:
    nothing = not work.graph.tensors[node.inputs[1]].size
    yield replace(node, op="Identity", inputs=node.inputs[:1], attributes={}) if nothing else node


def _reshape(work: Work, node: Node) -> Iterator[Node]:
    before, after = work.graph.tensors[node.inputs[0]], work.graph.tensors[node.output]
    if before.size != after.size:
        raise node.unsupported(f"its input has {before.size} elements, its output {after.size}")
    yield replace(node, op="Reshape", inputs=node.inputs[:1], attributes={})


def _softmax(work: Work, node: Node) -> Iterator[Node]:
    rank = len(work.graph.shape(node.output))
    together = work.graph.opset < 13  # then the axes from `axis` on count as one
    axis = int(node.attributes.get("axis", 1 if together else -1)) % max(rank, 1)
    yield replace(node, attributes={"axes": (axis, rank - 1 if together else axis)})


FORMS: dict[str, Callable[[Work, Node], Iterator[Node]]] = {
    "BatchNormalization": normalisation_forms.batch_normalization,
    "Cast": elementwise_forms.cast,
    "CastLike": elementwise_forms.cast,
    "Clip": elementwise_forms.clip,
    "Concat": _concat,
    "Conv": _conv,
    "ConvTranspose": _conv,
    "Dropout": elementwise_forms.dropout,
    "Einsum": product_forms.einsum,
    "Flatten": _reshape,
    "Gemm": product_forms.gemm,
    "Hardmax": _softmax,
    "LogSoftmax": _softmax,
    "MatMul": product_forms.matmul,
    "Max": elementwise_forms.variadic("Max"),
    "Mean": elementwise_forms.mean,
    "Min": elementwise_forms.variadic("Min"),
    "Pow": elementwise_forms.power,
    "Reshape": _reshape,
    "Scatter": _scatter,
    "ScatterElements": _scatter,
    "ScatterND": _scatter,
    "Softmax": _softmax,
    "Squeeze": _reshape,
    "Sum": elementwise_forms.variadic("Add"),
    "Unsqueeze": _reshape,
}
ONE_FORM_OPS = frozenset(FORMS)
