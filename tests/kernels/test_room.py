"""Test rules of tuning spaces by the launches: they leave out what a device has no room for, and nothing else."""

import contextlib
import math
import random
from dataclasses import replace
from typing import Any

import pytest

from gputune.core.launches import Launch, Stage
from gputune.kernels.catalogue import family_of
from gputune.kernels.family import DeviceLimits, Instance
from gputune.kernels.indexing.cells import RecurrentProblem
from gputune.kernels.ops.conv import ConvProblem
from gputune.kernels.ops.matmul import MatMulProblem
from gputune.kernels.ops.softmax import SoftmaxProblem
from gputune.kernels.tiling.local_tiles import BANDS, SPLIT_GROUPS
from gputune.kernels.tiling.skinny import MOST_TURNS
from tests.kernels.batched_problems import TILES, batched
from tests.kernels.drawing import sampled
from tests.kernels.one_of_each import ONE_OF_EACH, TANH
from tests.kernels.problems import CPU, GPU
from tests.kernels.test_families import macros

KINDS = {"cpu": CPU.unbounded, "gpu": GPU.unbounded}
PRODUCTS: dict[str, tuple[str, Any]] = {
    "tiles": ("MatMul", MatMulProblem(70, 300, 70, bias=True)),
    "few-rows": ("MatMul", MatMulProblem(5, 900, 40)),
    "windows": ("Conv", ConvProblem(1, 14, 14, 32, 48, (3, 3), pads=(1, 1, 1, 1))),
    "batched": (
        "MatMul",
        batched((3,), 100, 200, 72, (20000, 200, 1), (14400, 72, 1), (7200, 72, 1), (60000, 43200)),
    ),
}
PROBLEMS = {op: (op, problem) for op, problem in ONE_OF_EACH.items()} | PRODUCTS
PROBLEMS |= {
    "many-rows": ("Softmax", SoftmaxProblem(5000, 40, 1)),
    "turned": ("MatMul", TILES["wide"]),
    "many-sequences": ("Recurrent", RecurrentProblem("RNN", 2, 200, 20, "forward", (TANH,), ("Y",))),
}
EACH = 40

ROOM: dict[str, dict[str, Any]] = {
    "square": {"max_work_item_sizes": (8, 8, 2)},
    "large and square": {"max_work_group_size": 64, "max_work_item_sizes": (64, 64, 2)},
    "wide": {"max_work_group_size": 64, "max_work_item_sizes": (128, 16, 4)},
    "tall": {"max_work_group_size": 128, "max_work_item_sizes": (8, 128, 2)},
    "flat": {"max_work_item_sizes": (256, 2, 1)},
    "narrow": {"max_work_item_sizes": (2, 64, 64)},
    "small work-groups": {"max_work_group_size": 8},
    "little local memory": {"local_memory_bytes": 4 << 10},
    "hardly any local memory": {"local_memory_bytes": 130},
    "small buffers": {"max_allocation_bytes": 48 << 10},
    "tiny buffers": {"max_allocation_bytes": 8 << 10},
}
"""What devices have room for; the three axes of work-groups have unequal limits."""


def kernels(instance: Instance) -> list[Launch | Stage]:
    return [kernel for launch in (*instance.prepare, instance.main) for kernel in launch.sequence]


def groups(kernel: Launch | Stage) -> int:
    return math.prod(kernel.global_size) // math.prod(kernel.local_size)


def lacking(instance: Instance, limits: DeviceLimits) -> str:
    """Return something for which there is no room, in words."""
    for kernel in kernels(instance):
        assert kernel.needs is not None
        of_axes = zip(kernel.local_size, limits.max_work_item_sizes, strict=False)
        if math.prod(kernel.local_size) > limits.max_work_group_size or any(size > most for size, most in of_axes):
            return f"{kernel.entry} in work-groups of {kernel.local_size}"
        if kernel.needs.local_bytes > limits.local_memory_bytes:
            return f"{kernel.entry} with {kernel.needs.local_bytes} bytes of local memory"
    buffers = {**instance.packed, **instance.scratch}
    return next((f"{name}: {size} bytes" for name, size in buffers.items() if size > limits.max_allocation_bytes), "")


def evenly(limits: DeviceLimits) -> DeviceLimits:
    """Return limits whose axes x and y are as the smaller one: some rules hold both sides of a group to that."""
    *sides, deep = limits.max_work_item_sizes
    return replace(limits, max_work_item_sizes=(min(sides), min(sides), deep))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", PROBLEMS)
def test_what_a_space_allows_is_what_fits_the_device(name: str, kind: str) -> None:
    (op, problem), unbounded = PROBLEMS[name], KINDS[kind]
    family = family_of(op)
    every = sampled(family.space(problem, unbounded), EACH, random.Random(1))
    rendered = [family.render(problem, one) for one in every]
    for room in ROOM.values():
        limits = replace(unbounded, **room)
        space = family.space(problem, limits)
        with contextlib.suppress(ValueError):  # nothing may be legal
            default = family.default(problem, limits)
            assert not space.violations(default)
            assert not lacking(family.render(problem, default), limits), default
        for one, instance in zip(every, rendered, strict=True):
            refused = space.violations(one)
            if refused and "max_allocation_bytes" not in room:  # inputs are larger than some of what is packed
                assert lacking(instance, evenly(limits)), (one, refused)
            if not refused:
                assert not lacking(instance, limits), one


@pytest.mark.parametrize("name", PRODUCTS)
def test_shares_and_bands_are_for_as_many_work_groups_as_the_launch_has(name: str) -> None:
    """Shares fill the device and not much more; bands are for more tiles than there are compute units."""
    op, problem = PRODUCTS[name]
    family, numbers = family_of(op), random.Random(1)
    kinds = (family.space(problem, replace(KINDS["gpu"], compute_units=units)) for units in (1, 1 << 20))
    legal = [one for kind in kinds for one in sampled(kind, EACH, numbers)]
    seen = set()
    for one in [each | {"BAND": band} for each in legal for band in BANDS]:
        main = family.render(problem, one).main
        kernel, sizes, split, band = main.sequence[0], macros(main), one["SPLIT"], one["BAND"]
        if not kernel.entry.endswith("_local" if band > 1 else ("_local", "_skinny")) or split == band == 1:
            continue
        most = MOST_TURNS if kernel.entry.endswith("_skinny") else SPLIT_GROUPS
        down = math.ceil(int(sizes["M"]) / (one["MR"] * one["LM"]))
        across = math.ceil(int(sizes["N"]) / (one["NV"] * one["VW"] * one["LN"]))
        for units in {1, 8, max(groups(kernel) // (most if band == 1 else split), 1)}:  # the last is just enough
            space = family.space(problem, replace(KINDS["gpu"], compute_units=units))
            fits = split == 1 or groups(kernel) <= most * units
            if band > 1:
                fits &= band <= down and across > 1 and groups(kernel) > units * split
            assert (not space.violations(one)) == fits, (one, units)
            seen.add((fits, split > 1, band > 1))
    assert len(seen) >= (2 if name == "few-rows" else 5), f"it tells too little: {seen}"
