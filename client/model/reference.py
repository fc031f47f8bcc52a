"""Run a plan in numpy with the families' own references: what a context must compute, without any device."""

from collections.abc import Callable, Mapping

import numpy as np

from gputune.client.model.graph import Array
from gputune.client.model.plan import Operation, Plan
from gputune.kernels.catalogue import family_of


def evaluate(
    plan: Plan, inputs: Mapping[str, Array], after: Callable[[Operation, Array], None] = lambda operation, result: None
) -> dict[str, Array]:
    """Return the plan's outputs by name, in ONNX order, for inputs by name; `after` hears of each operation what it
    computes, as it lies on the device. KeyError or ValueError when the inputs do not fit."""
    memory = {spec.name: np.asarray(inputs[spec.name], spec.dtype).reshape(spec.shape) for spec in plan.inputs}
    memory.update(plan.constants)
    for operation in plan.operations:
        result = result_of(operation, {name: memory[plan.root(tensor)] for name, tensor in operation.inputs.items()})
        memory[plan.root(operation.output)] = result
        after(operation, result)
    return {tensor.name: memory[tensor.name].reshape(tensor.shape) for tensor in plan.outputs}


def result_of(operation: Operation, inputs: Mapping[str, Array]) -> Array:
    """Return what an operation computes from its inputs by the kernel's names for them, whatever their shapes are."""
    family, problem = family_of(operation.task.op), operation.task.problem
    values = {spec.name: inputs[spec.name].reshape(spec.shape) for spec in family.inputs(problem)}
    return family.reference(problem, values).astype(family.output(problem).dtype, copy=False)
