"""Runs a plan in numpy, with the families' own references: what a context must compute, without any device."""

from collections.abc import Mapping

from gputune.client.graph import Array, as_constant
from gputune.client.plan import Plan
from gputune.kernels.catalogue import family_of


def evaluate(plan: Plan, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The plan's outputs by name, in ONNX order, for inputs by name. KeyError or ValueError when those do not fit."""
    memory = {tensor.name: as_constant(inputs[tensor.name]).reshape(tensor.shape) for tensor in plan.inputs}
    memory.update(plan.constants)
    for operation in plan.operations:
        family, problem = family_of(operation.task.op), operation.task.problem
        values = {
            spec.name: memory[plan.root(operation.inputs[spec.name])].reshape(spec.shape)
            for spec in family.inputs(problem)
        }
        memory[plan.root(operation.output)] = family.reference(problem, values)
    return {tensor.name: memory[tensor.name].reshape(tensor.shape) for tensor in plan.outputs}
