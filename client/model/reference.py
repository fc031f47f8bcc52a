"""Runs a plan in numpy, with the families' own references: what a context must compute, without any device."""

from collections.abc import Mapping

import numpy as np

from gputune.client.model.graph import Array
from gputune.client.model.plan import Plan
from gputune.kernels.catalogue import family_of


def evaluate(plan: Plan, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The plan's outputs by name, in ONNX order, for inputs by name. KeyError or ValueError when those do not fit."""
    memory = {spec.name: np.asarray(inputs[spec.name], spec.dtype).reshape(spec.shape) for spec in plan.inputs}
    memory.update(plan.constants)
    for operation in plan.operations:
        family, problem = family_of(operation.task.op), operation.task.problem
        values = {
            spec.name: memory[plan.root(operation.inputs[spec.name])].reshape(spec.shape)
            for spec in family.inputs(problem)
        }
        result = family.reference(problem, values)
        memory[plan.root(operation.output)] = result.astype(family.output(problem).dtype, copy=False)
    return {tensor.name: memory[tensor.name].reshape(tensor.shape) for tensor in plan.outputs}
