"""--verify: a finished context against onnxruntime, and where the two part, the first tensor that differs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from gputune.client.context import builder
from gputune.client.context.choice import Decision
from gputune.client.errors import ConfigError, VerificationError
from gputune.client.input_lists import read_input_list, read_inputs
from gputune.client.model.graph import Array
from gputune.client.model.lowering.layouts import TO_DEVICE
from gputune.client.model.oracle import Oracle
from gputune.client.model.plan import Operation, Plan
from gputune.client.target.client import TargetClient
from gputune.client.target.remote_executor import RemoteExecutor
from gputune.client.tuning.search.task_search import task_key
from gputune.kernels.family import TensorSpec
from gputune.runtime.context.records import TensorRecord

ALLOWED = 1e-3
"""An output is right when it is nowhere further off than this share of its largest value."""
TINY = 1e-6
"""A deviation that does not matter, however small an output is."""
KEPT_BYTES = 256 << 20
"""Inner tensors are looked at in groups of about this size."""


@dataclass(frozen=True)
class Questions:
    """What knows the right outputs, and on which inputs each graph is compared, by the graph's name."""

    oracle: Oracle
    inputs: Mapping[str, Sequence[Mapping[str, Array]]]


def questions_for(model: Path, input_list: Path | None, plans: Sequence[Plan]) -> Questions:
    """What verifying needs, known to be there before anything takes time: the inputs of the list, else random ones.

    Raises ConfigError."""
    oracle = Oracle(model)
    if input_list is None:
        return Questions(oracle, {plan.name: [random_inputs(plan)] for plan in plans})
    if len(plans) > 1:
        raise ConfigError("--input_list is for one graph, and there are several; leave it out for random inputs")
    tensors = tuple(TensorRecord(tensor.name, tensor.shape, tensor.dtype) for tensor in plans[0].inputs)
    lines = read_input_list(input_list, tensors)
    return Questions(oracle, {plans[0].name: [read_inputs(line, tensors) for line in lines]})


@dataclass(frozen=True)
class Verifier:
    """Compares contexts on a target with an oracle; `write` makes the file of built graphs."""

    oracle: Oracle
    client: TargetClient
    write: Callable[[builder.Built, Path], object]

    def verify(self, context: Path, decision: Decision, inputs: Sequence[Mapping[str, Array]]) -> dict[str, float]:
        """By output name the largest error over all inputs, as a share of the output's largest value.

        Raises VerificationError that names the first tensor which differs, ConfigError where the oracle cannot run the
        model, TargetError, DeviceOrContextError."""
        plan = decision.plan
        executor = RemoteExecutor(self.client, context, plan.name, strict=False)
        errors: dict[str, float] = {output.name: 0.0 for output in plan.outputs}
        for given in inputs:
            got, want = executor.run_timed(given)[0], self.oracle.run(given)
            want |= self.oracle.tensors([name for name in got if name not in want], given)
            for name, value in got.items():
                if name not in want:
                    raise ConfigError(
                        f"--verify: onnxruntime has no tensor {name!r}, which is an output of the context"
                    )
                error = distance(value, want[name])
                errors[name] = max(errors[name], error)
                if not error <= ALLOWED:
                    raise VerificationError(
                        f"graph {plan.name!r}: output {name!r} is not what onnxruntime computes: {_words(error)}; "
                        f"{self._first(decision, given) or 'no tensor inside of the model differs'}"
                    )
        executor.close()
        return errors

    def _first(self, decision: Decision, inputs: Mapping[str, Array]) -> str:
        """The first tensor that differs, in the order in which the operations run, and what computes it."""
        for operations in _groups(decision.plan):
            got = self._run(decision, operations, inputs)
            want = self.oracle.tensors([each.output for each in operations], inputs)
            for operation in operations:
                name = operation.output
                if name not in want or want[name].size != got[name].size:
                    continue  # a pass has made another tensor of it
                error = distance(got[name], _as_on_device(decision.plan, name, want[name]).reshape(got[name].shape))
                if not error <= ALLOWED:
                    key = task_key(operation.task).digest
                    configuration = dict(decision.outcomes[key].configuration)
                    return (
                        f"the first tensor that differs is {name!r} ({_words(error)}), computed by {operation.task.op} "
                        f"{key[:10]} of {', '.join(operation.nodes) or 'no node'} with {configuration}"
                    )
        return ""

    def _run(
        self, decision: Decision, operations: Sequence[Operation], inputs: Mapping[str, Array]
    ) -> dict[str, Array]:
        """What the operations compute on the target, as it lies there: a context in which that is an output, too."""
        plan = decision.plan
        known = {plan.root(output.name) for output in plan.outputs}
        shown = [TensorSpec(each.output, plan.tensors[each.output].shape, dtype=plan.tensors[each.output].dtype)
                 for each in operations if plan.root(each.output) not in known]  # fmt: skip
        open_plan = replace(plan, outputs=(*plan.outputs, *shown))
        built = builder.build(open_plan, decision.outcomes, self.client, lambda task, outcome: None)
        with tempfile.TemporaryDirectory(prefix="gputune-verify-") as folder:
            path = Path(folder) / "open.bin"
            self.write(built, path)
            executor = RemoteExecutor(self.client, path, plan.name, strict=False)
            got = executor.run_timed(inputs)[0]
            executor.close()
        by_root = {plan.root(name): value for name, value in got.items()}
        return {each.output: by_root[plan.root(each.output)] for each in operations}


def random_inputs(plan: Plan) -> dict[str, Array]:
    """Inputs that mean something to most models, the same each time: normal numbers; whole ones are 0 or 1."""
    generator = np.random.default_rng(0)
    return {
        tensor.name: generator.standard_normal(tensor.shape, dtype=np.float32)
        if tensor.dtype == "float32"
        else generator.integers(0, 2, tensor.shape).astype(tensor.dtype)
        for tensor in plan.inputs
    }


def distance(got: Array, want: Array) -> float:
    """The largest difference by the largest value; infinite where shapes, types or what is no number differ. Of whole
    numbers and bools every one counts."""
    if got.shape != want.shape or got.dtype != want.dtype:
        return float("inf")
    if not np.issubdtype(want.dtype, np.floating):
        return 0.0 if np.array_equal(got, want) else float("inf")
    finite = np.isfinite(want)
    if not np.array_equal(got[~finite], want[~finite], equal_nan=True) or not np.isfinite(got[finite]).all():
        return float("inf")
    difference = np.abs(got[finite].astype(np.float64) - want[finite]).max(initial=0.0)
    largest = float(np.abs(want[finite]).max(initial=0.0))
    return float(difference) / max(largest, TINY / ALLOWED)


def _as_on_device(plan: Plan, name: str, value: Array) -> Array:
    """A tensor of the model in the order in which the device has the one of its name: maps inside are NHWC."""
    own = {tensor.name for tensor in (*plan.inputs, *plan.outputs)}
    return value.transpose(TO_DEVICE) if value.ndim == 4 and value.dtype == np.float32 and name not in own else value


def _groups(plan: Plan) -> Iterator[list[Operation]]:
    """The operations in groups whose outputs take about KEPT_BYTES."""
    group: list[Operation] = []
    nbytes = 0
    for operation in plan.operations:
        size = plan.tensors[operation.output].nbytes
        if group and nbytes + size > KEPT_BYTES:
            yield group
            group, nbytes = [], 0
        group.append(operation)
        nbytes += size
    if group:
        yield group


def _words(error: float) -> str:
    if error == float("inf"):
        return "other shapes, types, whole numbers or infinities"
    return f"off by {error:.2g} of its largest value, {ALLOWED:g} is allowed"
