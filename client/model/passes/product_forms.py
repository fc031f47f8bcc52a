"""Bring matrix products into one form.

Gemm     of inputs a, b with b a constant [K, N] and any leading axes of a; it has no other attributes
Einsum   any other product of two tensors: attribute "equation" names each axis of both and of the result by a letter,
         "abc,cd->abd"; an axis of size 1 repeats

What is added to a product becomes an Add after it, and factors become a Mul.
"""

from __future__ import annotations

import string
from collections.abc import Iterator

import numpy as np

from gputune.client.model.graph import Array, Node, Scaled, TensorInfo, as_constant
from gputune.client.model.passes.additions import Work


def matmul(work: Work, node: Node) -> Iterator[Node]:
    """Yield the nodes of a MatMul: vectors are matrices of one row or one column, and leading axes are a batch."""
    _check_type(work, node)
    left, right = (work.graph.shape(name) for name in node.inputs[:2])
    weight = work.graph.constants.get(node.inputs[1])
    if weight is not None and weight.ndim <= 2 and node.inputs[0] not in work.graph.constants:
        if weight.ndim == 2:
            yield _gemm_node(work, node, weight, node.output, work.graph.scaled.get(node.inputs[1]))
            return
        column = work.tensor(f"{node.output}/column", TensorInfo((*left[:-1], 1)))
        yield _gemm_node(work, node, weight[:, np.newaxis], column)
        yield Node("Reshape", f"{node.name}/shape", (column,), node.outputs, origins=node.origins)
        return
    batch = string.ascii_uppercase[: max(len(left), len(right), 2) - 2]
    a, b = _matmul_letters(batch, "mk", len(left), "k"), _matmul_letters(batch, "kn", len(right), "k")
    result = batch + ("m" if len(left) > 1 else "") + ("n" if len(right) > 1 else "")
    yield _einsum_node(node, f"{a},{b}->{result}", node.output)


def gemm(work: Work, node: Node) -> Iterator[Node]:
    """Yield the nodes of a Gemm: alpha * a * b + beta * c, with either side transposed."""
    _check_type(work, node)
    turned = [bool(node.attributes.get(name, 0)) for name in ("transA", "transB")]
    alpha, beta = (float(node.attributes.get(name, 1.0)) for name in ("alpha", "beta"))
    addend = node.inputs[2] if len(node.inputs) > 2 and beta != 0 else ""
    weight = work.graph.constants.get(node.inputs[1])
    info = work.graph.tensors[node.output]
    product = work.tensor(f"{node.output}/product", info) if addend else node.output
    if weight is not None and not turned[0] and node.inputs[0] not in work.graph.constants:
        right, known = weight.T if turned[1] else weight, work.graph.scaled.get(node.inputs[1])
        known = known.turned() if known and turned[1] else known
        if alpha != 1:
            right, known = right * np.float32(alpha), known and known.times(as_constant(alpha))
        yield _gemm_node(work, node, right, product, known)
    else:
        a, b = ("km" if turned[0] else "mk"), ("nk" if turned[1] else "kn")
        bare = product if alpha == 1 else work.tensor(f"{node.output}/bare", info)
        yield _einsum_node(node, f"{a},{b}->mn", bare)
        if alpha != 1:
            factor = work.constant(f"{node.output}/alpha", alpha)
            yield Node("Mul", f"{node.name}/alpha", (bare, factor), (product,), origins=node.origins)
    if addend and beta != 1 and addend in work.graph.constants:
        addend = work.constant(f"{addend}/beta", work.graph.constants[addend] * np.float32(beta))
    elif addend and beta != 1:
        scaled = work.tensor(f"{addend}/beta", work.graph.tensors[addend])
        factor = work.constant(f"{node.output}/beta", beta)
        yield Node("Mul", f"{node.name}/beta", (addend, factor), (scaled,), origins=node.origins)
        addend = scaled
    if addend:
        yield Node("Add", f"{node.name}/add", (product, addend), node.outputs, origins=node.origins)


def einsum(work: Work, node: Node) -> Iterator[Node]:
    """Yield the nodes of an Einsum of two tensors, or of one that is turned or summed over."""
    _check_type(work, node)
    inputs, result = _written_out(work, node)
    if len(inputs) == 2:
        yield _einsum_node(node, f"{','.join(inputs)}->{result}", node.output)
        return
    if len(inputs) > 2:
        raise node.unsupported(f"it multiplies {len(inputs)} tensors; 1 and 2 are supported")
    (letters,) = inputs
    if len(set(letters)) < len(letters):
        raise node.unsupported("it takes a diagonal of its only input")
    (source,), shape = node.inputs, work.graph.shape(node.inputs[0])
    kept = [letter for letter in letters if letter in result]
    if len(kept) < len(letters):
        axes = tuple(axis for axis, letter in enumerate(letters) if letter not in result)
        info = TensorInfo(tuple(shape[letters.index(letter)] for letter in kept))
        total = work.tensor(f"{node.output}/sum", info)
        attributes = {"axes": axes, "keepdims": 0}
        yield Node("ReduceSum", node.name, (source,), (total,), attributes, origins=node.origins)
        source = total
    order = tuple(kept.index(letter) for letter in result)
    yield Node("Transpose", f"{node.name}/turned", (source,), node.outputs, {"perm": order}, origins=node.origins)


def _check_type(work: Work, node: Node) -> None:
    dtype = work.graph.tensors[node.output].dtype
    if dtype != "float32":
        raise node.unsupported(f"it multiplies {dtype}; float32 is supported")


def _gemm_node(work: Work, node: Node, matrix: Array, output: str, scaled: Scaled | None = None) -> Node:
    """Return the Gemm by a constant matrix [K, N]. scaled: what else is known of it."""
    shape = work.graph.shape(node.inputs[0])
    if not matrix.size or len(matrix) != shape[-1]:
        sizes = "x".join(map(str, matrix.shape))
        raise node.unsupported(f"its right side is {sizes}, but rows of its left side have {shape[-1]}")
    weight = work.constant(f"{node.inputs[1]}/matrix", matrix, scaled)
    return Node("Gemm", node.name, (node.inputs[0], weight), (output,), origins=node.origins)


def _einsum_node(node: Node, equation: str, output: str) -> Node:
    return Node("Einsum", node.name, node.inputs[:2], (output,), {"equation": equation}, origins=node.origins)


def _matmul_letters(batch: str, matrix: str, rank: int, vector: str) -> str:
    """Return the letters of one side: of the batch as many as it has axes for, from the last one on."""
    return vector if rank == 1 else batch[len(batch) - (rank - 2) :] + matrix


def _written_out(work: Work, node: Node) -> tuple[list[str], str]:
    """Return the letters of each input and of the result, where the equation leaves out the result or says ... ."""
    equation = "".join(node.attributes["equation"].split())
    terms, arrow, result = equation.partition("->")
    inputs = terms.split(",")
    if len(inputs) != len(node.inputs):
        raise node.unsupported(f"its equation {equation!r} has {len(inputs)} inputs, it has {len(node.inputs)}")
    ranks = [len(work.graph.shape(name)) for name in node.inputs]
    spare = [letter for letter in string.ascii_letters if letter not in equation]
    hidden = max((rank - len(term) + 3 for term, rank in zip(inputs, ranks, strict=True) if "..." in term), default=0)
    rest = spare[:hidden]
    if not arrow:
        named = terms.replace(",", "").replace(".", "")
        result = ("..." if hidden else "") + "".join(sorted(x for x in set(named) if named.count(x) == 1))
    written = [
        term.replace("...", "".join(rest[len(rest) - (rank - len(term) + 3) :]))
        for term, rank in zip(inputs, ranks, strict=True)
    ]
    result = result.replace("...", "".join(rest))
    if [len(term) for term in written] != ranks or not "".join((*written, result)).isalpha():
        raise node.unsupported(f"its equation {equation!r} does not fit inputs of {ranks} dimensions")
    return written, result
