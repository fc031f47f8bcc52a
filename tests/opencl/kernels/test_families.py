"""Compare kernels of every family with their references: difficult problems, and each value of each parameter."""

import functools
import itertools
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gputune.core.dtypes import FLOAT, FLOATS, HALF
from gputune.core.launches import ArgumentForm
from gputune.kernels.catalogue import family_of
from tests.kernels.difficult import DIFFICULT, UNEVEN
from tests.kernels.drawing import shared_out
from tests.kernels.one_of_each import ONE_OF_EACH
from tests.kernels.problems import GPU
from tests.opencl.conftest import KernelBench

AHEAD = 20
"""Configurations that are built together, of one problem and of those that come next."""
MANY = replace(GPU, max_work_group_size=1024, max_work_item_sizes=(1024, 1024, 64), compute_units=132)
BEYOND = (GPU, MANY, replace(MANY, compute_units=1))
"""Shares are for a device with more units than tiles, and bands for a device with fewer."""
FORMS: tuple[ArgumentForm, ...] = ("sub_buffers", "offsets")
IN_LOCAL_MEMORY = frozenset(
    (
        "ArgMax",
        "InvertedResidual",
        "MatMul",
        "Normalise",
        "Recurrent",
        "Reduce",
        "SeparableConv",
        "Softmax",
        "Transpose",
    )
)

PROBLEMS: Mapping[tuple[str, str], Mapping[str, Any]] = {
    (op, dtype): {
        name: family_of(op).of_floats(problem, dtype)
        for name, problem in {**problems, "one of each": ONE_OF_EACH[op]}.items()
        if dtype == FLOAT or family_of(op).of_floats(problem, dtype) != problem
    }
    for dtype in FLOATS
    for op, problems in DIFFICULT.items()
    if dtype == FLOAT or dtype in family_of(op).floats
}
EACH_DAY = {FLOAT: 1, HALF: 3}
"""One of so many problems of a type does not wait for the night; of other types the first."""
CASES = [
    # Of shorter floats the same kernels convert what they load and store, so most problems wait for the night.
    pytest.param(op, dtype, name, id=f"{op}-{dtype}-{name.replace(' ', '-')}", marks=[pytest.mark.night] * waits)
    for (op, dtype), problems in PROBLEMS.items()
    for place, name in enumerate(problems)
    for waits in [place % EACH_DAY.get(dtype, len(problems)) > 0]
]


@functools.cache
def plan(bench: KernelBench, op: str, thorough: bool) -> dict[str, list[tuple[KernelBench, dict[str, int]]]]:
    """Return what runs of each problem. thorough: each problem has all values of all parameters.

    Kernels for GPUs are rendered as GPUs get them: with pointers to vectors, and every second one with offsets.
    """
    family, problems = family_of(op), PROBLEMS[op, FLOAT]
    kinds = {
        "own": (bench.limits,),
        "gpu": (GPU,) if family.estimate(next(iter(problems.values())), GPU) is None else BEYOND,
    }
    each = [{name: problem} for name, problem in problems.items()] if thorough else [problems]
    chosen = [pair for some in each for pair in shared_out(family, some, kinds).items()]
    limits = replace(bench.limits, device_type="gpu", preferred_float_width=1)
    forms = itertools.cycle(replace(bench, limits=replace(limits, argument_form=form)) for form in FORMS)
    return {
        name: [(bench, family.default(problems[name], bench.limits))]
        + [(next(forms) if kind == "gpu" else bench, one) for kind, one in configurations]
        for name, configurations in chosen
    }


@functools.cache
def tried(
    bench: KernelBench, op: str, dtype: str, thorough: bool
) -> dict[str, list[tuple[KernelBench, dict[str, int]]]]:
    """Return what runs of each problem on a type of floats: in half one that is legal there, another one of each."""
    every = plan(bench, op, thorough and dtype == FLOAT)
    if dtype == FLOAT:
        return every
    family = family_of(op)
    of_half: dict[str, list[tuple[KernelBench, dict[str, int]]]] = {}
    for number, (name, problem) in enumerate(PROBLEMS[op, dtype].items()):
        legal = [
            (kind, one)
            for kind, one in every[name]
            if any(not family.space(problem, limits).violations(one) for limits in (bench.limits, *BEYOND))
        ]
        of_half[name] = [legal[number % len(legal)]] if legal else [(bench, family.default(problem, bench.limits))]
    return of_half


@pytest.mark.parametrize(("op", "dtype", "name"), CASES)
def test_configurations_compute_the_reference(
    bench: KernelBench, pytestconfig: pytest.Config, op: str, dtype: str, name: str
) -> None:
    family, problems = family_of(op), PROBLEMS[op, dtype]
    planned = tried(bench, op, dtype, bool(pytestconfig.getoption("night")))
    names = list(planned)
    wanted = [(kind, problems[each], one) for each in names[names.index(name) :] for kind, one in planned[each]]
    instances = [kind.instance(family, problem, one) for kind, problem, one in wanted[: max(AHEAD, len(planned[name]))]]
    bench.build_together(instances[: len(planned[name])], instances)
    inputs = family.sample_inputs(problems[name], np.random.default_rng(1))
    for kind, configuration in planned[name]:
        kind.compare(family, problems[name], [configuration], inputs)


@pytest.mark.parametrize("op", ONE_OF_EACH)
def test_some_of_them_take_offsets(bench: KernelBench, op: str) -> None:
    launches = [
        kind.instance(family_of(op), PROBLEMS[op, FLOAT][name], one).main
        for name, planned in plan(bench, op, False).items()
        for kind, one in planned
        if kind.limits.argument_form == "offsets"
    ]
    assert launches and all("_offsets" in launch.entry for launch in launches)
    needs = [kernel.needs for launch in launches for kernel in launch.sequence]
    assert op not in IN_LOCAL_MEMORY or any(each and each.local_bytes for each in needs)


@pytest.mark.parametrize("op", ONE_OF_EACH)
def test_the_default_computes_the_reference_as_it_is_shipped(shipped: KernelBench, op: str) -> None:
    family, problem = family_of(op), ONE_OF_EACH[op]
    inputs = family.sample_inputs(problem, np.random.default_rng(2))
    shipped.compare(family, problem, [family.default(problem, shipped.limits)], inputs)


@pytest.mark.parametrize(
    ("op", "problem", "configurations"),
    [(op, problem, configurations) for op, _, problem, configurations in UNEVEN],
    ids=[f"{op}-{name}" for op, name, *_ in UNEVEN],
)
def test_tiles_and_groups_that_divide_nothing(
    bench: KernelBench, op: str, problem: Any, configurations: tuple[dict[str, int], ...]
) -> None:
    if bench.limits.device_type != "cpu":  # no space has prefetching there
        configurations = tuple(one | {"PF": 0} if "PF" in one else one for one in configurations)
    family = family_of(op)
    bench.compare(family, problem, configurations, family.sample_inputs(problem, np.random.default_rng(1)))
