"""Implement --verify: compare a finished context with onnxruntime, and name the operation that causes a difference."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gputune.client.context.choice import Decision
from gputune.client.context.verifying.captures import Captures, windows
from gputune.client.context.verifying.distance import Compared, allowed_for, check_compared, compared, in_words
from gputune.client.context.verifying.divergence import WINDOW_BYTES, Divergence, Finding
from gputune.client.context.verifying.part_oracle import PartOracle, part_oracles
from gputune.client.context.verifying.steps import Steps
from gputune.client.errors import ConfigError, VerificationError
from gputune.client.input_lists import read_input_list, read_inputs
from gputune.client.model.graph import Array, Graph
from gputune.client.model.oracle import Oracle
from gputune.client.model.parts import Cut
from gputune.client.model.plan import Operation, Plan
from gputune.client.model.state import Decoder
from gputune.client.target.client import TargetClient
from gputune.client.target.remote_executor import RemoteExecutor
from gputune.client.tuning.search.task_search import task_key
from gputune.runtime.application.made_up_inputs import RANGES, TensorLike, random_inputs, telling_draw
from gputune.runtime.context.records import TensorRecord

log = logging.getLogger(__name__)

REMEDY = "give inputs that the model is made for with --input_list; if it has them, look for NaN in its weights"
"""The remedy for outputs that are NaN or infinite in onnxruntime, too."""


@dataclass(frozen=True)
class GroundTruth:
    """Hold the oracle of each graph and the inputs on which the graph is compared, by the graph's name. decoders: the
    models behind graphs with a state, which are compared step by step."""

    oracles: Mapping[str, Oracle | PartOracle]
    inputs: Mapping[str, Sequence[Mapping[str, Array]]]
    decoders: Mapping[str, Decoder] = field(default_factory=dict)


def ground_truth_for(
    models: Sequence[Path],
    input_list: Path | None,
    plans: Sequence[Plan],
    decoders: Mapping[str, Decoder] | None = None,
) -> GroundTruth:
    """Return what verifying needs, known to be there before anything takes time: the inputs of the list, else random
    ones. models: of each plan. decoders: by the names of graphs with a state.

    Raises ConfigError."""
    if decoders:
        return _of_steps(models, input_list, plans, decoders)
    by_path = {path: Oracle(path) for path in dict.fromkeys(models)}
    oracles = {plan.name: by_path[path].given(plan.constant_inputs) for plan, path in zip(plans, models, strict=True)}
    if input_list is None:
        return GroundTruth(oracles, {plan.name: [_made_up(oracles[plan.name], plan.inputs)] for plan in plans})
    if len(plans) > 1:
        raise ConfigError("--input_list is for one graph, and there are several; leave it out for random inputs")
    tensors = tuple(TensorRecord(tensor.name, tensor.shape, tensor.dtype) for tensor in plans[0].inputs)
    lines = read_input_list(input_list, tensors, _fixed(plans[0]))
    return GroundTruth(oracles, {plans[0].name: [read_inputs(line, tensors) for line in lines]})


def _of_steps(
    models: Sequence[Path], input_list: Path | None, plans: Sequence[Plan], decoders: Mapping[str, Decoder]
) -> GroundTruth:
    """Return the same of graphs with a state, each of which makes up the inputs of its steps."""
    if input_list is not None:
        raise ConfigError("--input_list has no meaning with --verify and --state, whose steps have inputs of their own")
    oracles: dict[str, Oracle | PartOracle] = {}
    for plan, path in zip(plans, models, strict=True):
        found = decoders.get(plan.name)
        oracles[plan.name] = Oracle(path) if found is None else Oracle(path, found.original.model)
    return GroundTruth(oracles, {plan.name: [] for plan in plans}, decoders)


def ground_truth_of_parts(cuts: Sequence[Cut], input_list: Path | None) -> GroundTruth:
    """Return the right inputs and outputs of all parts if the models have the inputs of the list, else random inputs.
    Raises ConfigError."""
    oracles: dict[str, PartOracle] = {}
    for cut in cuts:
        graph = cut.imported.graph
        oracle = Oracle(cut.imported.path, cut.imported.model).given(graph.constant_inputs)
        tensors = tuple(
            TensorRecord(name, graph.tensors[name].shape, graph.tensors[name].dtype) for name in graph.inputs
        )
        if input_list is None:
            inputs = [_made_up(oracle, tensors)]
        elif len(cuts) == 1:
            inputs = [read_inputs(line, tensors) for line in read_input_list(input_list, tensors, _fixed(graph))]
        else:
            raise ConfigError("--input_list is for one model in one shape; leave it out for random inputs")
        oracles |= part_oracles(cut, oracle, inputs)
    return GroundTruth(oracles, {name: oracle.inputs for name, oracle in oracles.items()})


def _made_up(oracle: Oracle, tensors: Sequence[TensorLike]) -> dict[str, Array]:
    """Return random inputs that leave as few outputs as possible NaN or infinite. Raises ConfigError."""
    draw = telling_draw(lambda draw: oracle.run(random_inputs(tensors, draw)))
    if (ends := RANGES[draw]) is not None:
        log.info(
            f"--verify: random inputs are from {ends[0]:g} to {ends[1]:g}; normal ones make outputs NaN or infinite"
        )
    return random_inputs(tensors, draw)


def _fixed(model: Plan | Graph) -> list[str]:
    """Return the inputs that have a value."""
    return [name for name, value in model.constant_inputs.items() if value.size]


@dataclass(frozen=True)
class Verifier:
    """Compares contexts on a target with an oracle. decoder: what a graph with a state was made of."""

    oracle: Oracle | PartOracle
    client: TargetClient
    decoder: Decoder | None = None

    def verify(self, context: Path, decision: Decision, inputs: Sequence[Mapping[str, Array]]) -> dict[str, Compared]:
        """Return what all inputs together have shown of each output, by its name. An output that onnxruntime has no
        tensor for is left out, with a warning.

        Raises VerificationError that names the operation to blame, NothingCompared, ConfigError where the oracle cannot
        run the model, TargetError, DeviceOrContextError, ContextError."""
        found: dict[str, Compared] = {}
        executor = RemoteExecutor(self.client, context, decision.plan.name, strict=False)
        try:
            if self.decoder is not None:
                found, wrong = self._in_steps(executor, decision.plan, self.decoder), None
            else:
                wrong = self._wrong(executor, inputs, found, decision.plan)
        finally:
            executor.close()
        if wrong is not None:
            given, output, words = wrong
            raise VerificationError(
                f"graph {decision.plan.name!r}: output {output!r} is not what onnxruntime computes: {words}; "
                f"{self._reason(context, decision, given)}"
            )
        for name in (output.name for output in decision.plan.outputs if output.name not in found):
            log.warning(f"output {name!r} is not verified: onnxruntime has no tensor of this name in the model")
        check_compared(found, REMEDY, f"graph {decision.plan.name!r}: ")
        for name, one in found.items():
            told = f"output {name!r} of graph {decision.plan.name!r}"
            stepped = f", and {one.stepped} of {one.values} values by a step" if one.stepped else ""
            own = f", {one.own:.1e} by onnxruntime's optimisations alone" if one.own else ""
            log.info(f"verified: {told} is off by at most {one.error:.1e} of its largest value{stepped}{own}")
        return found

    def _in_steps(self, executor: RemoteExecutor, plan: Plan, decoder: Decoder) -> dict[str, Compared]:
        """Return what all steps from an empty state to a full one have shown. Raises VerificationError."""
        assert isinstance(self.oracle, Oracle)
        allowed = allowed_for(plan.coarsest)
        steps = Steps(plan.name, plan.inputs, decoder, self.oracle, allowed, plan.steps)
        return steps.verify(lambda given: executor.run_timed(given)[0])

    def _wrong(
        self,
        executor: RemoteExecutor,
        inputs: Sequence[Mapping[str, Array]],
        found: dict[str, Compared],
        plan: Plan,
    ) -> tuple[Mapping[str, Array], str, str] | None:
        """Return the first inputs on which an output differs, the output and how; `found` gets what all until then
        show."""
        allowed, steps = allowed_for(plan.coarsest), plan.steps
        for given in inputs:
            got = executor.run_timed(given)[0]
            for name, want in self._wanted(got, given):
                step = steps.get(name, 0.0)
                one = compared(got[name], want, step)
                if not one.within(allowed) and plan.exactness is not None:
                    own = self.oracle.optimised().tensors([name], given)
                    one = one.beside(got[name], want, own[name]) if name in own else one
                found[name] = found.get(name, Compared()) + one
                if not one.within(allowed):
                    return given, name, in_words(got[name], want, allowed, step)
        return None

    def _wanted(self, got: Mapping[str, Array], inputs: Mapping[str, Array]) -> Iterator[tuple[str, Array]]:
        """Yield the right outputs: the model's own, and then, a window at a time, what is an output by choice."""
        own = self.oracle.run(inputs)
        yield from ((name, own[name]) for name in got if name in own)
        chosen = [name for name in got if name not in own]
        del own
        for window in windows([got[name].nbytes for name in chosen], WINDOW_BYTES, len(chosen)):
            yield from self.oracle.tensors([chosen[place] for place in window], inputs).items()

    def _reason(self, context: Path, decision: Decision, inputs: Mapping[str, Array]) -> str:
        """Return which operation of the context goes wrong, where one does."""
        captures = Captures(context, decision.plan, decision.outcomes, self.client)
        finding = Divergence(decision.plan, captures, self.oracle).first(inputs)
        if finding is not None:
            return told(finding, decision)
        if captures.graph.persistent:
            return (
                "launched one by one, all tensors of the model are right, so persistent kernels are to blame; the "
                "config key persistent_kernels leaves them out"
            )
        return "when it ran again, all tensors of the model were right: what it computes varies"


def told(finding: Finding, decision: Decision) -> str:
    """Return a finding in words."""
    operations = decision.plan.operations
    operation = operations[finding.operation]
    key = task_key(operation.task).digest
    return (
        f"the first tensor that differs is {finding.tensor!r} ({finding.words}), computed by {operation.task.op} "
        f"{key[:10]} of {_nodes(operation)} with {dict(decision.outcomes[key].configuration)}; the "
        f"{finding.agreeing} tensors of the model that were computed before it agree; {_cause(finding, operations)}"
    )


def _cause(finding: Finding, operations: Sequence[Operation]) -> str:
    match finding.cause:
        case "kernel":
            return "its kernel does not compute what it should from the inputs that it had"
        case "overwritten":
            culprit = operations[finding.culprit]
            return (
                f"its input {finding.spoilt!r} was overwritten by {culprit.task.op} of {_nodes(culprit)} before it ran"
            )
        case "problem":
            return (
                "its kernel computes what numpy does from the same inputs, so the model's nodes were lowered to "
                "another problem, or amplify a small difference"
            )


def _nodes(operation: Operation) -> str:
    return ", ".join(operation.nodes) or "no node"
