"""Lower a graph to a plan: every node becomes an operation on device tensors, and equal problems become one task.

Rank-4 tensors are NHWC between operations. Conversions appear where the model's own order is needed: at its inputs and
outputs, at reshapes, and at matrix products over rank-4 tensors.
"""

from dataclasses import replace

from gputune.client.errors import ModelError, Refusal, UnsupportedNodes
from gputune.client.model.graph import Graph
from gputune.client.model.lowering.added import lowering_of
from gputune.client.model.lowering.emitting import Lowering
from gputune.client.model.lowering.operators import LOWERINGS
from gputune.client.model.lowering.precision import in_precision
from gputune.client.model.passes import simplify
from gputune.client.model.passes.joined_maps import joined_maps
from gputune.client.model.plan import Operation, Plan, weighted
from gputune.kernels.family import TensorSpec


def lower(graph: Graph) -> Plan:
    """Return the plan of an imported graph. Raises ModelError that names every node which cannot be lowered."""
    try:
        return lower_simplified(simplify(graph))
    except UnsupportedNodes as error:
        raise UnsupportedNodes(graph.in_its_words(error.refusals), graph.called) from error


def lower_simplified(graph: Graph) -> Plan:
    """Return the plan of a graph that went through all passes. Raises ModelError."""
    # An op package's lowering knows of no map that is never written.
    joined = {} if lowering_of("Concat") or lowering_of("Conv") else joined_maps(graph)
    lowering = Lowering(graph, joined)
    _lower_nodes(lowering)
    lowered = len(lowering.operations)
    lowering.layouts.finish()
    _run_before_readers(lowering.operations, lowered)
    return _plan(lowering)


def _plan(lowering: Lowering) -> Plan:
    graph, layouts = lowering.graph, lowering.layouts
    read = {name for operation in lowering.operations for name in operation.inputs.values()}
    constants = {name: value for name, value in layouts.constants.items() if name in read}
    unread = layouts.constants.keys() - constants.keys()
    plan = Plan(
        graph.name,
        tuple(_spec(graph, name) for name in graph.inputs),
        tuple(_spec(graph, name) for name in graph.outputs),
        tuple(lowering.operations),
        {name: spec for name, spec in layouts.tensors.items() if name not in unread},
        constants,
        layouts.aliases,
        holds=layouts.holds,
        constant_inputs=graph.constant_inputs,
        exactness=graph.exactness,
        states=graph.states,
    )
    plan = in_precision(plan, graph)
    return replace(plan, operations=weighted(plan.operations))


def _lower_nodes(lowering: Lowering) -> None:
    graph = lowering.graph
    refusals: list[Refusal] = []
    for node in graph.nodes:
        try:
            (lowering_of(node.op) or LOWERINGS[node.op])(lowering, node)
        except (ModelError, ValueError) as error:  # a ValueError says why no kernel family has such a problem
            known = error if isinstance(error, UnsupportedNodes) else node.unsupported(str(error))
            refusals += known.refusals
            for output in filter(None, node.outputs):  # so that the nodes behind it can be looked at
                lowering.layouts.define(output, on_device=True)
    if refusals:
        raise UnsupportedNodes(refusals)


def _run_before_readers(operations: list[Operation], since: int) -> None:
    """Move each operation from this place on up to the first that reads what it writes: what was a view, which is
    there with its source, has become a copy."""
    for place in range(since, len(operations)):
        operation = operations[place]
        readers = (k for k, each in enumerate(operations[:place]) if operation.output in each.inputs.values())
        operations.insert(next(readers, place), operations.pop(place))


def _spec(graph: Graph, tensor: str) -> TensorSpec:
    info = graph.tensors[tensor]
    return TensorSpec(tensor, info.shape, dtype=info.dtype)
