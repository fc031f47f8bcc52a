"""Test what families declare of their vectors, and what becomes of it in texts for CPUs and for other devices."""

from typing import Any

import pytest

from gputune.client.tuning.search.rendered import rendered_sha256
from gputune.core.launches import source_sha256
from gputune.kernels.catalogue import families, family_of
from gputune.kernels.ops.matmul import LOCAL, MatMulProblem
from gputune.kernels.pointers import aligned

from .aligned_problems import ALIGNED
from .drawing import drawn
from .one_of_each import ONE_OF_EACH
from .problems import CPU, GPU, SMALL

WIDTHS = ("VW", "VR", "VC")
WITHOUT = {"PoolIndices", "TopK"}
"""Families without vectors."""


@pytest.mark.parametrize(("op", "problem", "widest"), ALIGNED)
def test_vectors_are_aligned_where_all_distances_are_multiples(op: str, problem: Any, widest: int) -> None:
    family, seen = family_of(op), set()
    for one in [*family.starters(problem, GPU), *drawn(family, problem, GPU, 600)]:
        width = max(one.get(name, 1) for name in WIDTHS if one.get(name) != 3)
        launch = family.render(problem, one).main
        if width == 1:
            continue
        if op == "MatMul" and one.get("PACK") and any(problem.lies.starts):  # then b is not read where it lies
            continue
        if op == "MatMul" and problem.places and one["ALG"] == LOCAL:  # what is not aligned is accessed by elements
            continue
        assert launch.aligned == (width <= widest), f"{one} of {problem}"
        seen.add(launch.aligned)
    assert (True in seen) == (widest > 1)


def test_every_family_with_vectors_is_listed() -> None:
    assert {op for op, _, _ in ALIGNED} == set(families()) - WITHOUT


@pytest.mark.parametrize("op", sorted(set(ONE_OF_EACH) - WITHOUT))
def test_only_other_devices_than_cpus_have_pointers(op: str) -> None:
    family = family_of(op)
    problem = next(problem for name, problem, widest in ALIGNED if name == op and widest > 2)
    configuration = next(one for one in drawn(family, problem, GPU, 1000) if family.render(problem, one).main.aligned)
    plain = family.render(problem, configuration)
    assert family.rendered(problem, configuration, CPU) == plain
    assert "ALIGNED_VECTORS" not in plain.main.source + plain.main.options
    for limits in (GPU, SMALL):
        instance = family.rendered(problem, configuration, limits)
        assert instance.main.options == f"{plain.main.options} -DALIGNED_VECTORS=1"
        assert instance.main.source.count("#if ALIGNED_VECTORS\n") == 1
        assert instance.main.source_sha256 == source_sha256(instance.main.source)
        assert instance.prepare == plain.prepare
        assert rendered_sha256(instance) != rendered_sha256(plain)


def test_unaligned_launches_have_the_text_of_aligned_launches() -> None:
    family, problem = family_of("MatMul"), MatMulProblem(49, 24, 100)
    every = [family.rendered(problem, one, GPU).main for one in drawn(family, problem, GPU, 1000) if one["ALG"] == 0]
    assert len({launch.source for launch in every}) == 1
    assert {launch.options.endswith("-DALIGNED_VECTORS=1") for launch in every} == {True, False}


def test_distances_are_multiples() -> None:
    assert aligned(4, 8, 12, 0) and aligned(1, 3, 7) and aligned(2, -6)
    assert not aligned(4, 8, 6) and not aligned(16, 8)
