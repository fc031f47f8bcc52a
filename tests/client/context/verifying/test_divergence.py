"""Test the search for the operation to blame, on a numpy machine whose memory and kernels can fail on request."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputune.client.context.verifying import divergence
from gputune.client.context.verifying.captures import Capture, Captures, OperationLaunches, windows
from gputune.client.context.verifying.divergence import Divergence, Finding
from gputune.client.model.graph import Array, Precision
from gputune.client.model.importer import read_model
from gputune.client.model.lowering import lower
from gputune.client.model.oracle import Oracle
from gputune.client.model.plan import Plan
from gputune.client.model.reference import result_of
from gputune.client.tuning.search.task_search import device_limits
from gputune.core.precision import STORED
from gputune.kernels.catalogue import family_of
from gputune.runtime.context.records import BufferRef
from gputune.runtime.devices.discovery import NULL_REPORT
from tests.client import models
from tests.strategies.graphs.comparing import mixed

Spoil = Callable[[int, dict[str, Array]], None]
"""Is told after how many operations it is called, and may change the memory."""


class Machine:
    """Captures of a plan that numpy computes. A tensor's buffer has its place among the roots as its index."""

    def __init__(self, plan: Plan, spoil: Spoil = lambda done, memory: None) -> None:
        self._plan = plan
        self._spoil = spoil
        self._roots = list(dict.fromkeys(map(plan.root, plan.tensors)))
        self.largest_bytes = self.reads = 0

    def place(self, operation: int) -> OperationLaunches:
        each = self._plan.operations[operation]
        tensors = {**each.inputs, "output": each.output}
        return OperationLaunches(slice(0), {name: self.ref(tensor) for name, tensor in tensors.items()})

    def ref(self, tensor: str) -> BufferRef:
        root = self._plan.root(tensor)
        return BufferRef("arena", self._roots.index(root), 0, self._plan.tensors[root].nbytes)

    def read(self, captures: Sequence[Capture], inputs: Mapping[str, Array]) -> list[Array]:
        self.reads += 1
        self.largest_bytes = max(self.largest_bytes, sum(capture.ref.nbytes for capture in captures))
        memory: dict[str, Array] = {**inputs, **self._plan.constants}
        found: dict[int, Array] = {}
        for done in range(len(self._plan.operations) + 1):
            if done:
                operation = self._plan.operations[done - 1]
                given = {name: memory[self._plan.root(tensor)] for name, tensor in operation.inputs.items()}
                memory[self._plan.root(operation.output)] = result_of(operation, given)
                self._spoil(done, memory)
            for index, capture in enumerate(captures):
                if capture.after == done:
                    value = np.ascontiguousarray(memory[self._roots[capture.ref.index]])
                    found[index] = value.reshape(-1).view(np.uint8).copy()
        return [found[index] for index in range(len(captures))]


def first(path: Path, plan: Plan, machine: Machine, inputs: Mapping[str, Array]) -> Finding | None:
    return Divergence(plan, cast(Captures, machine), Oracle(path)).first(inputs)


@pytest.mark.parametrize("seed", range(2000, 2006))
def test_each_wrong_kernel_of_a_model_is_the_one_that_is_named(seed: int, tmp_path: Path) -> None:
    made = mixed(seed)
    path = models.save(made.model, tmp_path)
    plan, inputs = lower(read_model(path)), made.inputs
    assert first(path, plan, Machine(plan), inputs) is None
    for place, operation in enumerate(plan.operations):
        output = plan.root(operation.output)

        def wrong(done: int, memory: dict[str, Array], place: int = place, output: str = output) -> None:
            if done == place + 1 and memory[output].dtype == np.float32:
                memory[output] = memory[output] * np.float32(1.5) + np.float32(1)

        found = first(path, plan, Machine(plan, wrong), inputs)
        # where the error does not get through to any tensor that the model has, nothing is wrong with it
        assert found is None or (found.operation, found.cause) == (place, "kernel"), operation
        held = plan.holds.get(operation.output)
        if held and held.name in {t.name for t in plan.outputs} and made.values[held.name].dtype == np.float32:
            assert found is not None


def test_a_wrong_kernel_of_a_tensor_that_the_model_does_not_have_is_named(tmp_path: Path) -> None:
    """Lines are computed as maps, which are made by a pass and are no tensors of the model."""
    model = models.build(
        "(float[1,3,16] x) => (float[1,3,16] y)",
        "a = Conv<pads=[1,1]>(x, k) b = Conv<pads=[1,1]>(a, k) y = Conv<pads=[1,1]>(b, k)",
        {"k": (3, 3, 3)},
    )
    path = models.save(model, tmp_path)
    plan, inputs = lower(read_model(path)), {"x": models.positive(1, 3, 16)}
    convolutions = [place for place, each in enumerate(plan.operations) if each.task.op == "Conv"]
    output = plan.root(plan.operations[convolutions[1]].output)

    def wrong(done: int, memory: dict[str, Array]) -> None:
        if done == convolutions[1] + 1:
            memory[output] = memory[output] + np.float32(1)

    found = first(path, plan, Machine(plan, wrong), inputs)
    assert found is not None and (found.operation, found.cause) == (convolutions[1], "kernel")


def chain() -> Any:
    """Operations one behind the other, of which one reads the first one's result again."""
    return models.build(
        "(float[1,16] x) => (float[1,16] y)",
        """a = MatMul(x, k) b = MatMul(a, k) c = MatMul(b, k) d = MatMul(c, k) e = MatMul(d, k)
           s = Add(a, e) y = Softmax(s)""",
        {"k": (16, 16)},
    )


@pytest.mark.parametrize("when", [2, 3, 4])
def test_what_overwrites_a_tensor_is_named(when: int, tmp_path: Path) -> None:
    path = models.save(chain(), tmp_path)
    plan, inputs = lower(read_model(path)), {"x": models.positive(1, 16)}
    reader = next(k for k, each in enumerate(plan.operations) if k > 1 and "a" in each.inputs.values())

    def spoil(done: int, memory: dict[str, Array]) -> None:
        if done == when:
            memory["a"] = memory["a"] + 3

    found = first(path, plan, Machine(plan, spoil), inputs)
    assert found is not None
    assert (found.operation, found.cause, found.spoilt, found.culprit) == (reader, "overwritten", "a", when - 1)
    assert found.agreeing == reader


def test_a_problem_that_is_not_the_models_is_told_from_a_wrong_kernel(tmp_path: Path) -> None:
    """The oracle runs a model with another weight than the one that was lowered."""
    path = models.save(chain(), tmp_path)
    plan, inputs = lower(read_model(path)), {"x": models.positive(1, 16)}
    model = chain()
    model.graph.node[2].op_type = "Add"
    model.graph.node[2].input[1] = "x"
    found = first(models.save(model, tmp_path), plan, Machine(plan), inputs)
    assert found is not None
    assert (found.tensor, found.cause, found.agreeing) == ("c", "problem", 2)


def test_the_most_negative_number_of_a_mask_is_that_of_its_type(tmp_path: Path) -> None:
    lowest = np.array(np.finfo(np.float32).min, np.float32)
    model = models.build(
        "(float[1,16] x) => (float[1,16] y)",
        "c = Less(x, half) m = Where(c, x, lowest) y = Softmax(m)",
        {"half": np.array(0.5, np.float32), "lowest": lowest},
    )
    path = models.save(model, tmp_path)
    plan, inputs = lower(replace(read_model(path), precision=Precision(STORED))), {"x": models.positive(1, 16)}
    assert plan.coarsest == "float16" and first(path, plan, Machine(plan), inputs) is None


def test_no_more_is_held_than_a_window(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(divergence, "WINDOW_BYTES", 3 * 64)
    path = models.save(chain(), tmp_path)
    plan, inputs = lower(read_model(path)), {"x": models.positive(1, 16)}
    machine = Machine(plan)
    assert first(path, plan, machine, inputs) is None
    assert (machine.largest_bytes, machine.reads) == (3 * 64, -(-len(plan.operations) // 3))


@given(st.lists(st.integers(1, 20)), st.integers(1, 30), st.integers(1, 5))
def test_windows_take_everything_once_within_their_limits(sizes: list[int], most_bytes: int, most: int) -> None:
    found = list(windows(sizes, most_bytes, most))
    assert [place for window in found for place in window] == list(range(len(sizes)))
    for window in found:
        nbytes = sum(sizes[place] for place in window)
        assert len(window) <= most and (nbytes <= most_bytes or len(window) == 1)
    for before, behind in pairwise(found):
        more = sum(sizes[place] for place in (*before, behind[0]))
        assert more > most_bytes or len(before) == most, "a window takes what there is room for"


def test_kernels_read_each_input_that_is_no_constant(tmp_path: Path) -> None:
    """So that a captured operation can be computed again: what is captured are arguments of its launches."""
    assert NULL_REPORT.identity is not None
    limits = device_limits(NULL_REPORT.identity)
    for seed in range(2100, 2110):
        plan = lower(read_model(models.save(mixed(seed).model, tmp_path)))
        for operation in plan.operations:
            family, problem = family_of(operation.task.op), operation.task.problem
            instance = family.render(problem, family.default(problem, limits))
            named = {each for kernel in instance.main.sequence for each in kernel.arguments}
            computed = {name for name, tensor in operation.inputs.items() if not plan.is_constant(tensor)}
            assert {*computed, "output"} <= named
            assert {spec.name for spec in family.inputs(problem)} <= operation.inputs.keys()
