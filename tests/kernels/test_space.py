"""Test tuning spaces: the rules of any space, and what their identity follows."""

import itertools
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputune.client.model.plan import Task
from gputune.client.tuning.search.task_search import source_sha256
from gputune.kernels import ops
from gputune.kernels.catalogue import family_of
from gputune.kernels.family import DeviceLimits
from gputune.kernels.ops.conv import ConvProblem
from gputune.kernels.ops.depthwise import DepthwiseProblem
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.kernels.pointers import MOVING, POINTERS
from gputune.kernels.space import (
    Constraint,
    DeviceLimit,
    Parameter,
    TuningSpace,
    choice,
    configuration_key,
)
from gputune.kernels.template import template

from . import attention_problems, inverted_residual_problems, separable_problems
from .one_of_each import ONE_OF_EACH
from .problems import CASES, CPU, DEVICES, GPU, RELU
from .quantised_weights import PRODUCTS as QUANTISED

PADS = (1, 1, 1, 1)
REAL = [
    ("Conv", ConvProblem(1, 56, 56, 64, 64, (3, 3), pads=PADS, bias=True, epilogue=RELU)),
    ("Conv", ConvProblem(1, 224, 224, 3, 16, (3, 3), (2, 2), PADS, bias=True, epilogue=RELU)),
    ("Conv", ConvProblem(1, 24, 96, 3, 8, (3, 3), (2, 2), PADS, bias=True)),
    ("DepthwiseConv", DepthwiseProblem(1, 112, 112, 32, (3, 3), pads=PADS, bias=True)),
    ("DepthwiseConv", DepthwiseProblem(1, 7, 7, 256, (5, 5), pads=(2, 2, 2, 2), bias=True)),
    ("DepthwiseConv", DepthwiseProblem(1, 24, 96, 8, (3, 3), (2, 1), PADS, bias=True)),
    ("MatMul", MatMulProblem(3136, 64, 64, bias=True, epilogue=RELU)),
    ("MatMul", MatMulProblem(784, 24, 8, bias=True)),
    ("MatMul", MatMulProblem(1, 1280, 512, bias=True)),
    ("MatMul", MatMulProblem(1, 1280, 4, bias=True)),
    ("MatMul", MatMulProblem(1, 200, 2, bias=True)),
    ("MatMul", MatMulProblem(1, 8, 32, bias=True)),
    ("MatMul", MatMulProblem(1, 16, 4, bias=True)),
    ("MatMul", MatMulProblem(1, 4, 16, bias=True)),
]

FUSED: list[tuple[str, Any]] = [
    *(("Attention", problem) for name, problem in attention_problems.REAL.items() if name != "decoder"),
    *(("InvertedResidual", problem) for problem in inverted_residual_problems.REAL.values()),
    *(("SeparableConv", problem) for problem in separable_problems.REAL.values()),
]


@given(
    values=st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=4, unique=True), min_size=1, max_size=4),
    limit=st.integers(1, 200),
    pair=st.tuples(st.integers(0, 3), st.integers(0, 3)),
)
def test_configurations_are_the_product_less_what_is_forbidden(
    values: list[list[int]], limit: int, pair: tuple[int, int]
) -> None:
    names = "ABCD"[: len(values)]
    one, other = names[pair[0] % len(names)], names[pair[1] % len(names)]
    space = TuningSpace(
        tuple(Parameter(name, tuple(v), "") for name, v in zip(names, values, strict=True)),
        (
            Constraint((one, other), lambda x, y: x <= y, "ordered"),
            Constraint(tuple(names), lambda *all_: math.prod(all_) <= limit, "small"),
        ),
    )
    every = [dict(zip(names, chosen, strict=True)) for chosen in itertools.product(*values)]
    allowed = [one_ for one_ in every if not space.violations(one_)]
    assert list(space.configurations()) == allowed
    assert space.size == len(allowed)
    assert all(
        (c[one] <= c[other] and math.prod(c.values()) <= limit) == (c in allowed) for c in every
    )  # violations says the same as the rules themselves


def test_a_choice_has_the_configurations_of_all_its_spaces() -> None:
    one = TuningSpace((Parameter("A", (1, 2), "first"), Parameter("B", (4, 8), "second")), ())
    other = TuningSpace((Parameter("B", (8, 16), "another second"), Parameter("C", (0, 1, 2), "third")), ())
    whole = choice("WAY", "which of them", {0: one, 3: other})
    found = list(whole.configurations())
    assert len(found) == whole.size == 10
    assert not any(whole.violations(each) for each in found)
    assert found == [each for each in whole_product(whole) if not whole.violations(each)]
    assert whole.violations({"WAY": 3, "A": 1, "B": 4, "C": 1}) == ["with WAY 3: B is 8 or 16"]
    assert [each.meaning for each in whole.parameters][2] == "second; with WAY 3: another second"
    assert list(TuningSpace((), ()).configurations()) == [{}]


def test_a_choice_of_which_nothing_is_legal_says_why_of_each_space() -> None:
    def never(reason: str) -> TuningSpace:
        return TuningSpace((Parameter("A", (1, 2), ""),), (Constraint(("A",), lambda a: a > 2, reason),))

    with pytest.raises(ValueError, match=r"on this device: with WAY 0: too large; with WAY 3: too small$"):
        choice("WAY", "which", {0: never("too large"), 3: never("too small")}).first()
    with pytest.raises(ValueError, match=r"on this device: too large$"):
        choice("WAY", "which", {0: never("too large"), 3: never("too large")}).first()


def whole_product(space: TuningSpace) -> list[dict[str, int]]:
    names = [parameter.name for parameter in space.parameters]
    values = itertools.product(*(parameter.values for parameter in space.parameters))
    return [dict(zip(names, each, strict=True)) for each in values]


def test_violations_name_everything_that_is_wrong() -> None:
    space = TuningSpace(
        (Parameter("A", (1, 2), ""), Parameter("B", (1, 2), "")),
        (Constraint(("A", "B"), lambda a, b: a != b, "A and B must differ"),),
    )
    assert space.violations({"A": 1, "C": 1}) == ["unknown parameter C", "no value for B"]
    assert space.violations({}) == ["no value for A, B"]
    assert space.violations({"A": 3, "B": 1}) == ["A=3 is not one of (1, 2)"]
    assert space.violations({"A": 2, "B": 2}) == ["A and B must differ"]
    assert space.violations({"A": 1, "B": 2}) == []


def test_the_first_configuration_or_why_there_is_none() -> None:
    parameters = (Parameter("A", (1, 2), ""), Parameter("B", (1, 2), ""))
    never, only = Constraint(("B",), lambda b: b > 2, "B must exceed 2"), Constraint(("A",), lambda a: a > 1, "A > 1")
    other = Constraint(("A", "B"), lambda a, b: a < b, "A < B")
    assert TuningSpace(parameters, (only,)).first() == {"A": 2, "B": 1}
    with pytest.raises(ValueError, match=r"can run this problem on this device: B must exceed 2$"):
        TuningSpace(parameters, (only, never)).first()
    with pytest.raises(ValueError, match="no configuration keeps all rules at once"):
        TuningSpace(parameters, (only, other)).first()


@pytest.mark.parametrize("limits", [CPU, GPU], ids=["cpu", "gpu"])
def test_a_problem_too_large_for_the_device_says_so_with_numbers(limits: DeviceLimits) -> None:
    tiny = replace(limits, max_allocation_bytes=1000)
    for op, problem in (("MatMul", MatMulProblem(8, 16, 32)), ("Conv", ConvProblem(1, 8, 8, 16, 32, (3, 3)))):
        with pytest.raises(ValueError, match=r"weights, \d{4,} bytes or more, .* allocation of 1000 bytes"):
            family_of(op).default(problem, tiny)


@pytest.mark.parametrize("op", ["Conv", "MatMul"])
def test_guesses_fit_any_number_of_registers(monkeypatch: pytest.MonkeyPatch, op: str) -> None:
    """Registers as few as no device has them: a tile shrinks to one narrow vector instead of growing again."""
    monkeypatch.setattr("gputune.kernels.tiling.workgroups.registers", lambda limits: (1, 1))
    problem: Any = {"Conv": ConvProblem(1, 9, 9, 3, 64, (3, 3)), "MatMul": MatMulProblem(64, 64, 64)}[op]
    default = family_of(op).default(problem, GPU)
    if default.get("ALG"):  # local tiles have their own rule
        default = next(one for one in family_of(op).starters(problem, GPU) if one["ALG"] == 0)
    assert (default["MR"], default["NV"], default["VW"]) == (1, 1, 1)


def test_identity_of_a_space_follows_what_it_declares() -> None:
    def space(values: tuple[int, ...] = (1, 2), reason: str = "why") -> TuningSpace:
        return TuningSpace((Parameter("A", values, ""),), (Constraint(("A",), lambda a: a < 9, reason),))

    assert space().sha256 == space().sha256
    assert len({space().sha256, space((1, 4)).sha256, space(reason="because").sha256}) == 3


def test_device_limits_filter_and_are_no_part_of_a_spaces_identity() -> None:
    def space(most: int) -> TuningSpace:
        rule = DeviceLimit(("A",), lambda a: a <= most, f"A must not exceed the device's {most}")
        return TuningSpace((Parameter("A", (1, 2, 4), ""),), (rule,))

    assert space(2).sha256 == space(4).sha256
    assert (space(2).size, space(4).size) == (2, 3)
    assert space(2).violations({"A": 4}) == ["A must not exceed the device's 2"]


ROOM: dict[str, dict[str, Any]] = {
    "memory halved": {"max_allocation_bytes": 1 << 29, "local_memory_bytes": 16 << 10},
    "memory that hardly suffices": {"max_allocation_bytes": 60_000, "local_memory_bytes": 512},
    "small work-groups": {"max_work_group_size": 16, "max_work_item_sizes": (16, 8, 4)},
}


@pytest.mark.parametrize("room", ROOM)
@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize("op", ONE_OF_EACH)
def test_what_a_measurement_belongs_to_does_not_depend_on_the_room_a_device_has(
    op: str, device: str, room: str
) -> None:
    """Drivers report other sizes from one process to the next; the space and the sources stay the same ones."""
    problem, limits = ONE_OF_EACH[op], DEVICES[device]
    little, task = replace(limits, **ROOM[room]), Task(op, problem, 1)
    family = family_of(op)
    assert family.space(problem, little).parameters == family.space(problem, limits).parameters
    assert family.space(problem, little).sha256 == family.space(problem, limits).sha256
    assert source_sha256(task, little) == source_sha256(task, limits)


def test_configuration_key_is_canonical() -> None:
    assert configuration_key({"B": 2, "A": 1}) == configuration_key({"A": 1, "B": 2}) == '{"A":1,"B":2}'


def test_an_unknown_op_names_the_known_ones() -> None:
    with pytest.raises(KeyError, match=r"no kernel family for op 'Gelu'; there are .*Concat, Conv"):
        family_of("Gelu")


def test_every_template_belongs_to_a_family() -> None:
    texts = {path.name: path.read_text(encoding="utf-8") for path in Path(next(iter(ops.__path__))).glob("*.cl")}
    every = [*ONE_OF_EACH.items(), *((op, problem) for op, _, problem in CASES), *REAL]
    sources = "".join(
        launch.source
        for op, problem in [*every, ("MatMul", QUANTISED["uneven blocks"])]
        for limits in (CPU, GPU)
        for configuration in (family_of(op).default(problem, limits), *family_of(op).starters(problem, limits))
        for instance in [family_of(op).render(problem, configuration)]
        for launch in (*instance.prepare, instance.main)
    )
    rendered = {name for name in texts if template(name) in sources}
    included = {name for text in texts.values() for name in re.findall(r'#include "(.+)"', text)}
    assert set(texts) == rendered | included | {POINTERS, MOVING, "halves.cl", "bfloats.cl"}
    assert not any("#include" in template(name) for name in rendered)


def test_templates_ask_of_memory_no_more_than_its_elements_do() -> None:
    """An input may be an application's array, at any address where its elements are aligned, as bits8 and the like are.
    Shares are scratch, which begins at a multiple of any vector's size."""
    pointer = re.compile(r"\b(?:__global|__constant)\b[^;,(){}*]*\b(?:\w*vec|(?!bits)[a-z]+(?:2|3|4|8|16))\s*\*")
    assert pointer.search("__global const float4 *restrict input")
    found = {
        path.name for path in Path(next(iter(ops.__path__))).glob("*.cl") if pointer.search(path.read_text("utf-8"))
    }
    assert found == {"add_shares.cl"}


@pytest.mark.parametrize(("op", "problem"), REAL, ids=[f"{op}-{i}" for i, (op, _) in enumerate(REAL)])
def test_real_tasks_have_room_to_tune(op: str, problem: Any) -> None:
    shape = ("MR", "VW") if op == "DepthwiseConv" else ("MR", "NV", "VW")
    space = family_of(op).space(problem, CPU)
    tiles = {tuple(c[name] for name in shape) for c in space.configurations()}
    assert space.size >= 200
    assert len(tiles) >= 2


@pytest.mark.parametrize("device", ["cpu", "gpu"])
@pytest.mark.parametrize(("op", "problem"), REAL[:5] + REAL[6:9] + FUSED, ids=str)
def test_large_tasks_start_from_several_guesses(op: str, problem: Any, device: str) -> None:
    assert len(family_of(op).starters(problem, DEVICES[device])) >= (2 if op == "InvertedResidual" else 3)
    assert op not in dict(FUSED) or device != "cpu" or family_of(op).space(problem, CPU).size >= 200
