"""Compare plans with onnxruntime, by the references of the kernel families in place of kernels."""

from collections.abc import Callable, Mapping

import numpy as np
import onnx
import onnxruntime

from gputune.client.model.alternatives import Alternatives
from gputune.client.model.graph import Graph
from gputune.client.model.lowering import Plan
from gputune.client.model.reference import evaluate
from gputune.kernels.catalogue import family_of
from tests.client.models import Array

TOLERANCE = 1e-5
"""Of the largest value of an output; plans differ from onnxruntime by the order of their sums only."""

Lowered = Callable[[onnx.ModelProto], Plan]
"""What the fixture `lowered` is: it gives the plan of a model."""
Simplified = Callable[[onnx.ModelProto], Graph]
Alternated = Callable[[onnx.ModelProto], Alternatives]


def random_inputs(plan: Plan) -> dict[str, Array]:
    """Normal numbers, small whole ones, and bools."""
    generator = np.random.default_rng(1)

    def values(dtype: str, shape: tuple[int, ...]) -> Array:
        if dtype == "float32":
            return generator.standard_normal(shape, dtype=np.float32)
        return generator.integers(0 if dtype[0] in "ub" else -9, 2 if dtype == "bool" else 10, shape).astype(dtype)

    return {tensor.name: values(tensor.dtype, tensor.shape) for tensor in plan.inputs}


def computed_by_onnxruntime(model: onnx.ModelProto, inputs: Mapping[str, Array]) -> dict[str, Array]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # which warns of constants that nobody reads
    options.graph_optimization_level = (
        onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    )  # which sees what is not there
    session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, dict(inputs)), strict=True))


def assert_agrees(
    model: onnx.ModelProto, plan: Plan, inputs: Mapping[str, Array] | None = None, tolerance: float = TOLERANCE
) -> None:
    """The plan's outputs, their names, shapes and types are those of onnxruntime."""
    inputs = random_inputs(plan) if inputs is None else inputs
    got, wanted = evaluate(plan, inputs), computed_by_onnxruntime(model, inputs)
    assert list(got) == list(wanted)
    for name, want in wanted.items():
        assert (got[name].shape, got[name].dtype) == (want.shape, want.dtype)
        largest = np.abs(want).max(initial=0, where=np.isfinite(want)) if want.dtype.kind == "f" else 0
        np.testing.assert_allclose(got[name], want, rtol=0, atol=tolerance * largest, err_msg=name)


def assert_whole(plan: Plan) -> None:
    """What is read was written before, sizes fit the families, and views are views of real tensors."""
    written = {tensor.name for tensor in plan.inputs} | plan.constants.keys()
    names = [operation.name for operation in plan.operations]
    assert len(names) == len(set(names))
    for operation in plan.operations:
        family, problem = family_of(operation.task.op), operation.task.problem
        specs = family.inputs(problem)
        assert operation.inputs.keys() == {spec.name for spec in specs}
        for spec in specs:
            tensor = plan.tensors[operation.inputs[spec.name]]
            assert plan.root(tensor.name) in written
            assert tensor.nbytes == spec.nbytes
            assert tensor.constant or not spec.constant
        assert plan.tensors[operation.output].nbytes == family.output(problem).nbytes
        assert plan.root(operation.output) not in written
        written.add(plan.root(operation.output))
    assert {tensor.name for tensor in plan.outputs} <= written
    owners = {*(t.name for t in plan.inputs), *(t.name for t in plan.outputs), *plan.constants}
    assert not owners & plan.aliases.keys()
    assert not plan.aliases.keys() & set(plan.aliases.values())
    assert plan.constants.keys() == {name for name, tensor in plan.tensors.items() if tensor.constant}
    for name, value in plan.constants.items():
        assert (str(value.dtype), value.shape) == (plan.tensors[name].dtype, plan.tensors[name].shape)


def ops(plan: Plan) -> list[str]:
    return [operation.task.op for operation in plan.operations]
